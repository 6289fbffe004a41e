/* journal.c -- the crash journal: in calls of which plugin files processes of this user died.
 *
 * One file of the cache (base/cache.c), a line per event, only ever appended to, each line by one
 * write: processes that write at the same time cannot spoil it. The descriptor belongs to the
 * process, for a signal handler has no handle; it is open while a runtime that asked for it lives.
 * Lines: "died KEY SIGNAL ID CALL", "wrote KEY SIGNAL ID CALL" where the plugin died of a write
 * into memory that it was given as const, and "told KEY" when the user was told of what stands
 * before.
 * KEY is a file at one time of its life: another one in its place has no past. */
#include "registry/internal.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define JOURNAL "crashes"
#define MAX_BYTES 65536u /* some hundred deaths: then it begins anew */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of n_users */
static uint32_t n_users;
static _Atomic int journal_fd = -1;

void mn_plugin_file_key(const mn_plugin_file *file, char key[17]) {
    const uint64_t facts[] = {file->dev, file->ino, file->size, file->mtime_ns};
    const uint64_t path = mn_hash(file->real, strlen(file->real), 0);
    snprintf(key, 17, "%016" PRIx64, mn_hash(facts, sizeof facts, path));
}

/* ---- writing --------------------------------------------------------------------------------- */

void mn_journal_open(void) {
    int fd = -1;
    pthread_mutex_lock(&lock);
    n_users++;
    if (journal_fd < 0 && !mn_cache_append(JOURNAL, &fd, NULL))
        journal_fd = fd;
    pthread_mutex_unlock(&lock);
}

void mn_journal_close(void) {
    pthread_mutex_lock(&lock);
    n_users--;
    if (!n_users && journal_fd >= 0) {
        const int fd = journal_fd;
        journal_fd = -1;
        close(fd);
    }
    pthread_mutex_unlock(&lock);
}

static const struct {
    int number;
    const char *name;
} signals[] = {{SIGSEGV, "SIGSEGV"},
               {SIGBUS, "SIGBUS"},
               {SIGILL, "SIGILL"},
               {SIGFPE, "SIGFPE"},
               {SIGABRT, "SIGABRT"}};

/* A line in the making; no function that a signal handler may not call. */
typedef struct {
    char text[256];
    size_t n;
} line;

static void journal_add(line *l, const char *word) {
    for (; *word && l->n < sizeof l->text - 1; word++)
        l->text[l->n++] = *word;
}

static bool journal_append(line *l) {
    const int e = errno;
    const int fd = journal_fd;
    l->text[l->n++] = '\n';
    const bool done = fd >= 0 && write(fd, l->text, l->n) == (ssize_t)l->n;
    errno = e;
    return done;
}

int mn_journal_note(int number, bool wrote) {
    const mn_callee *callee;
    const char *what, *name = NULL;
    bool alone;
    for (size_t i = 0; i < MN_COUNT(signals); i++)
        if (signals[i].number == number)
            name = signals[i].name;
    if (!name || !mn_call_now(&callee, &what, &alone) || !alone || !callee->key[0])
        return 0;
    line l = {.n = 0};
    const char *const words[] = {
        wrote ? "wrote " : "died ", callee->key, " ", name, " ", callee->id, " ", what};
    for (size_t i = 0; i < MN_COUNT(words); i++)
        journal_add(&l, words[i]);
    return journal_append(&l);
}

static void note_told(const char *key) {
    line l = {.n = 0};
    journal_add(&l, "told ");
    journal_add(&l, key);
    journal_append(&l);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Up to the next blank, which is cut off. */
static mn_str journal_word(mn_str *rest) {
    const char *blank = rest->len ? memchr(rest->ptr, ' ', rest->len) : NULL;
    const mn_str first = {rest->ptr, blank ? (uint64_t)(blank - rest->ptr) : rest->len};
    const uint64_t cut = first.len + (blank != NULL);
    *rest = (mn_str){rest->ptr + cut, rest->len - cut};
    return first;
}

typedef struct {
    bool told; /* else: died */
    bool wrote;
    mn_str key, signal, id, call;
} event;

/* The line at *at, which goes behind it. false = it is none that this program writes. */
static bool read_event(const mn_text *journal, size_t *at, event *out) {
    const char *from = journal->ptr + *at;
    const char *eol = memchr(from, '\n', journal->len - *at);
    if (!eol)
        return false;
    mn_str rest = {from, (uint64_t)(eol - from)};
    *at += (size_t)rest.len + 1;
    const mn_str kind = journal_word(&rest);
    *out = (event){.told = mn_str_is(kind, "told"), .wrote = mn_str_is(kind, "wrote")};
    out->key = journal_word(&rest);
    if (out->key.len != 16 || (!out->told && !out->wrote && !mn_str_is(kind, "died")))
        return false;
    if (out->told)
        return !rest.len;
    out->signal = journal_word(&rest);
    out->id = journal_word(&rest);
    out->call = rest;
    return out->signal.len > 3 && out->id.len && rest.len && !memchr(rest.ptr, 0, rest.len);
}

static bool is_damaged(const mn_text *journal) {
    event e;
    for (size_t at = 0; at < journal->len;)
        if (!read_event(journal, &at, &e))
            return true;
    return false;
}

void mn_journal_read(mn_text *journal) {
    mn_error why = MN_ERROR_INIT;
    mn_cache_read(JOURNAL, MAX_BYTES, journal, &why);
    const bool long_one = why.status == MN_IO_ERROR && why.vendor_code == EFBIG;
    if (!long_one && !is_damaged(journal))
        return;
    mn_log(MN_LOG_WARN, "cache: %s: the journal of crashes is %s: it is ignored and begins anew",
           JOURNAL, long_one ? "too long" : "damaged");
    mn_cache_remove(JOURNAL);
    mn_text_free(journal);
}

void mn_journal_past(const mn_text *journal, const char *key, mn_past *out) {
    event e;
    *out = (mn_past){.told = true};
    for (size_t at = 0; at < journal->len && read_event(journal, &at, &e);) {
        if (!mn_str_is(e.key, key))
            continue;
        out->told = e.told;
        if (e.told)
            continue;
        out->deaths++;
        out->wrote = out->wrote || e.wrote;
        snprintf(out->how, sizeof out->how, "%.*s in %.*s", MN_STR_ARG(e.signal),
                 MN_STR_ARG(e.call));
    }
}

/* ---- what follows from it -------------------------------------------------------------------- */

/* Whether a device of the plugin stands in the user's list. */
static bool is_named(const mn_config *cfg, mn_str id) {
    for (const char *at = mn_config_get_str(cfg, "device"); *at;) {
        const size_t n = strcspn(at, ",");
        const mn_str name = {at, MN_MIN(n, strcspn(at, ":"))};
        if (mn_str_eq(name, id))
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

/* The id as far as it is known of a plugin that was not opened here. */
static mn_str id_of(const mn_plugin_record *rec, const mn_probe_candidate *c) {
    const mn_str told = mn_report_get(&c->report, "id");
    if (rec->id.len)
        return rec->id;
    return told.len ? told : mn_str_of(rec->host->id);
}

/* Once for each death, where somebody listens. */
static void journal_tell(const mn_services *services, const mn_plugin_record *rec, const char *key,
                         const mn_past *past) {
    if (past->told || !services->journal)
        return;
    mn_log(MN_LOG_WARN, "plugin %s (%s): an earlier run died in it: %s", rec->host->id, rec->path,
           past->how);
    if (mn_config_log_level(services->cfg) >= MN_LOG_WARN)
        note_told(key);
}

/* One write is enough: nothing that such a plugin computes, and nothing that others compute beside
 * it, can be trusted. Not opened, also if it has other parts. */
static bool reject_writer(mn_plugin_record *rec, const mn_past *past, mn_str id) {
    return mn_plugin_reject(rec, MN_RECORD_SET_ASIDE,
                            "it wrote into memory that it was given as const: %s; it is tried "
                            "again when its file changes, or by --device %.*s",
                            past->how, MN_STR_ARG(id));
}

bool mn_plugin_past_judge(const mn_services *services, const mn_text *journal,
                          mn_plugin_record *rec, mn_probe_candidate *c) {
    enum { ENOUGH = 2 };
    mn_past past;
    char key[17];
    mn_plugin_file_key(&c->file, key);
    mn_journal_past(journal, key, &past);
    if (!past.deaths)
        return true;
    journal_tell(services, rec, key, &past);
    const mn_str id = id_of(rec, c);
    const bool loader = !strcmp(rec->kind, "loader");
    const bool named = is_named(services->cfg, id);
    if (past.wrote && !named)
        return reject_writer(rec, &past, id);
    if (past.deaths < ENOUGH || loader || named)
        return true;
    c->deaths = past.deaths;
    return mn_plugin_reject(rec, MN_RECORD_SET_ASIDE,
                            "%u runs died in its calls, the last by %s; it is tried again when its "
                            "file changes, or by --device %.*s",
                            past.deaths, past.how, MN_STR_ARG(id));
}
