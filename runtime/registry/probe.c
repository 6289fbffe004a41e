/* probe.c -- asks plugins in other processes, all at the same time, under one deadline: what hangs
 * or crashes there costs a record. One minerva-probe is started per file. It forks and ends at
 * once; what goes on is no child of this process, which an application may wait for by accident,
 * and may outlive it: probe_watch.c, which gives the verdict. This file starts them and reads one
 * report from each. What they print goes nowhere near the descriptors of this process. */
#include "registry/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_NS 1000000000u /* for minerva-probe to say itself that a plugin hangs */
#define ENTRY_MS 50          /* the contract */
#define REMEMBER_HANG_S 3600u

extern char **environ;

typedef struct {
    mn_probe_candidate *candidate;
    const char *failed; /* why it could not be asked at all; NULL = it was */
    int error;
    pid_t pid;     /* of minerva-probe, and its process group, which lives on; 0 = not started */
    int report_fd; /* -1 = all was read */
    bool too_long;
} child;

typedef struct {
    const char *program; /* as named; what is started is real */
    char real[PATH_MAX];
    mn_error untrusted; /* why it is not started at all; status 0 = it may be */
    /* of minerva-probe: its name, the limit in ms, the plugin, the key of the cache, then
     * KEY=VALUE, NULL */
    char **args;
    char limit[24];
    child *children;
    struct pollfd *fds; /* [n] */
    size_t n;
    uint64_t begin_ns, timeout_ns;
} probe_run;
enum { ARG_NAME, ARG_LIMIT, ARG_PLUGIN, ARG_KEY, ARG_SETTINGS };

/* ---- starting -------------------------------------------------------------------------------- */

/* A pipe whose ends lie above the descriptors that the child gets, so that none is overwritten. */
static bool open_pipe(int ends[2]) {
    int low[2];
    if (pipe2(low, O_CLOEXEC))
        return false;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, MN_REPORT_FD + 1);
        close(low[i]);
    }
    if (ends[0] >= 0 && ends[1] >= 0)
        return fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return false;
}

/* Descriptors 0 to 2 are /dev/null, 3 is the report. 0, or an errno. */
static int add_files(posix_spawn_file_actions_t *files, int report) {
    int error = posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDWR, 0);
    for (int fd = 1; fd <= 2 && !error; fd++)
        error = posix_spawn_file_actions_adddup2(files, 0, fd);
    return error ? error : posix_spawn_file_actions_adddup2(files, report, MN_REPORT_FD);
}

/* The environment without the tokens of a hub, which are no plugin's business. vars: room for all
 * of it. */
static void without_tokens(char **vars) {
    static const char *const names[] = {"HF_TOKEN=", "HUGGING_FACE_HUB_TOKEN="};
    size_t n = 0;
    for (char **var = environ; var && *var; var++) {
        bool token = false;
        for (size_t i = 0; i < MN_COUNT(names); i++)
            token |= !strncmp(*var, names[i], strlen(names[i]));
        if (!token)
            vars[n++] = *var;
    }
    vars[n] = NULL;
}

/* Its own process group, so that it can be ended with all that it started; no signal ignored or
 * blocked. 0, or an errno. */
static int spawn(const probe_run *run, child *c, int report) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int error = posix_spawn_file_actions_init(&files);
    if (error)
        return error;
    error = posix_spawnattr_init(&how);
    if (error) {
        posix_spawn_file_actions_destroy(&files);
        return error;
    }
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                       POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setsigmask(&how, &none);
    error = add_files(&files, report);
    run->args[ARG_PLUGIN] = c->candidate->file.real;
    size_t n_vars = 0;
    while (environ && environ[n_vars])
        n_vars++;
    char **vars = mn_alloc(n_vars + 1, sizeof *vars);
    if (!error && !vars)
        error = ENOMEM;
    if (!error) {
        without_tokens(vars);
        error = posix_spawn(&c->pid, run->real, &files, &how, run->args, vars);
    }
    mn_free(vars);
    if (error)
        c->pid = 0;
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static void probe_start(const probe_run *run, child *c) {
    int report[2];
    if (!open_pipe(report)) {
        c->failed = "cannot make a pipe";
        c->error = errno;
        return;
    }
    c->error = spawn(run, c, report[1]);
    c->failed = c->error ? "cannot start" : NULL;
    close(report[1]);
    c->report_fd = report[0];
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void close_report(child *c) {
    if (c->report_fd >= 0)
        close(c->report_fd);
    c->report_fd = -1;
}

/* What is there now, but not more than a few pages: another child waits, too. Closed when the
 * report is complete: its writer may go on. */
static void read_report(child *c) {
    char chunk[4096];
    mn_text *report = &c->candidate->report;
    for (int i = 0; i < 16 && c->report_fd >= 0; i++) {
        const ssize_t n = read(c->report_fd, chunk, sizeof chunk);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        c->too_long = n > 0 && report->len + (size_t)n > MN_REPORT_MAX;
        if (n > 0 && !c->too_long)
            mn_text_put(report, chunk, (size_t)n);
        if (n <= 0 || c->too_long || mn_report_complete(report))
            close_report(c);
    }
}

static bool any_open(const probe_run *run) {
    for (size_t i = 0; i < run->n; i++)
        if (run->children[i].report_fd >= 0)
            return true;
    return false;
}

static void probe_wait_some(probe_run *run, uint64_t until_ns) {
    const uint64_t now = mn_now_ns();
    const uint64_t left_ms = until_ns > now ? (until_ns - now + 999999) / 1000000 : 0;
    for (size_t i = 0; i < run->n; i++)
        run->fds[i] = (struct pollfd){run->children[i].report_fd, POLLIN, 0};
    poll(run->fds, run->n, (int)MN_MIN(left_ms, (uint64_t)60000));
    for (size_t i = 0; i < run->n; i++)
        read_report(&run->children[i]);
}

/* The process that was started has forked and is gone, or was killed. An application that takes all
 * its children leaves none to wait for. */
static void probe_reap(const child *c) {
    int how;
    while (c->pid && waitpid(c->pid, &how, 0) < 0 && errno == EINTR)
        continue;
}

/* One deadline for all, which each keeps by itself. One that does not is ended; what cannot even be
 * killed is left behind: it sits in its driver and ends with it, or with the machine. */
static void wait_all(probe_run *run) {
    const uint64_t deadline = run->begin_ns + run->timeout_ns + GRACE_NS;
    while (any_open(run) && mn_now_ns() < deadline)
        probe_wait_some(run, deadline);
    for (size_t i = 0; i < run->n; i++) {
        child *c = &run->children[i];
        if (c->report_fd >= 0 && c->pid)
            kill(-c->pid, SIGKILL);
        probe_reap(c);
    }
}

/* ---- where minerva-probe gave no verdict ----------------------------------------------------- */

/* Makes the report complete, if it is not. */
static void conclude(const probe_run *run, child *c) {
    mn_text *report = &c->candidate->report;
    const bool is_late = c->report_fd >= 0;
    close_report(c);
    if (mn_report_complete(report))
        return;
    report->len = 0;
    if (!run->untrusted.status && !c->too_long && !is_late && (!c->failed || c->error == ENOMEM))
        mn_report_put(report, "memory", "1"); /* the likeliest reason of its silence */
    if (run->untrusted.status)
        mn_report_verdict(report, MN_RECORD_FAILED, "cannot be probed: %s", run->untrusted.msg);
    else if (c->failed)
        mn_report_verdict(report, MN_RECORD_FAILED, "cannot be probed: %s %s: %s", c->failed,
                          run->program, strerror(c->error));
    else if (c->too_long)
        mn_report_verdict(report, MN_RECORD_FAILED, "its report is longer than %u bytes",
                          MN_REPORT_MAX);
    else if (is_late)
        mn_report_verdict(report, MN_RECORD_HUNG, "hung for %g s", (double)run->timeout_ns * 1e-9);
    else
        mn_report_verdict(report, MN_RECORD_CRASHED,
                          "crashed: its probe ended without a complete report");
    mn_report_put(report, "ms", "%" PRIu64, (mn_now_ns() - run->begin_ns) / 1000000);
    mn_text_puts(report, MN_REPORT_END);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The command line but for the plugin: the limit, the key, and plugins' own settings, whose bytes
 * are in `settings`. NULL = out of memory. */
static char **make_args(probe_run *run, const mn_config *cfg, const mn_probe_cache *cache,
                        mn_text *settings) {
    static char program[] = "minerva-probe";
    static char no_key[] = "";
    const char *name, *value, *origin;
    size_t n = 0;
    size_t at = ARG_SETTINGS;
    for (size_t i = 0; mn_config_at(cfg, i, &name, &value, &origin); i++) {
        if (strncmp(name, "plugin.", 7) != 0 || !strcmp(origin, "default"))
            continue;
        n++;
        mn_text_printf(settings, "%s=%s", name, value);
        mn_text_put(settings, "", 1); /* one after the other, each with its NUL */
    }
    char **args = settings->failed ? NULL : mn_calloc(n + ARG_SETTINGS + 1, sizeof *args);
    if (!args)
        return NULL;
    snprintf(run->limit, sizeof run->limit, "%" PRIu64, run->timeout_ns / 1000000);
    args[ARG_NAME] = program;
    args[ARG_LIMIT] = run->limit;
    args[ARG_KEY] = cache->forget ? no_key : cache->host.ptr;
    for (size_t i = 0; i < settings->len; i += strlen(settings->ptr + i) + 1)
        args[at++] = settings->ptr + i;
    return args;
}

static mn_status run_children(probe_run *run, const mn_config *cfg, const mn_probe_cache *cache,
                              mn_error *err) {
    mn_text settings = {0};
    run->args = make_args(run, cfg, cache, &settings);
    run->fds = mn_calloc(run->n, sizeof *run->fds);
    bool enough_memory = run->args && run->fds;
    if (enough_memory) {
        run->begin_ns = mn_now_ns();
        for (size_t i = 0; i < run->n && !run->untrusted.status; i++)
            probe_start(run, &run->children[i]);
        wait_all(run);
    }
    for (size_t i = 0; i < run->n && enough_memory; i++) {
        conclude(run, &run->children[i]);
        enough_memory = !run->children[i].candidate->report.failed;
    }
    for (size_t i = 0; i < run->n; i++)
        close_report(&run->children[i]);
    mn_free(run->args);
    mn_free(run->fds);
    mn_text_free(&settings);
    return enough_memory ? MN_OK : mn_fail_memory(err, run->n * sizeof *run->fds);
}

/* A hang is remembered for an hour, and as long as nobody is willing to wait longer: a driver may
 * have been slow because the machine was busy. */
static bool remembered(const mn_probe_cache *cache, mn_probe_candidate *c, uint64_t timeout_ns) {
    c->cached = mn_probe_cache_find(cache, &c->file, &c->report);
    const uint64_t waited_ms = mn_report_number(&c->report, "ms");
    const uint32_t now_s = (uint32_t)(mn_now_ns() / 1000000000u); /* age: modulo 2^32 */
    const uint32_t age_s = now_s - mn_report_number(&c->report, "hung_at_s");
    const bool hung = mn_report_status(&c->report) == MN_RECORD_HUNG;
    const bool more_time = (waited_ms + 1) * 1000000 <= timeout_ns;
    if (c->cached && hung && (more_time || age_s > REMEMBER_HANG_S)) {
        mn_text_free(&c->report);
        c->cached = false;
    }
    return c->cached;
}

/* Those for whose probe memory was short, to be probed once more. */
static void choose_again(probe_run *run) {
    size_t n = 0;
    for (size_t i = 0; i < run->n; i++) {
        mn_probe_candidate *c = run->children[i].candidate;
        if (!mn_report_number(&c->report, "memory"))
            continue;
        mn_text_free(&c->report);
        run->children[n++] = (child){.candidate = c, .report_fd = -1};
    }
    run->n = n;
}

mn_status mn_probe_all(const mn_config *cfg, const mn_trust *trust, const char *program,
                       mn_probe_candidate *list, size_t n, mn_error *err) {
    mn_probe_cache cache;
    probe_run run = {
        .program = program,
        .untrusted = MN_ERROR_INIT,
        .timeout_ns = (uint64_t)(mn_config_get_float(cfg, "probe_timeout") * 1e9),
    };
    if (!n || !run.timeout_ns)
        return MN_OK;
    run.children = mn_calloc(n, sizeof *run.children);
    mn_trust_path(trust, program, run.real, &run.untrusted);
    const bool enough_memory = mn_probe_cache_open(&cache, cfg, program) && run.children;
    for (size_t i = 0; i < n && enough_memory; i++)
        if (!remembered(&cache, &list[i], run.timeout_ns))
            run.children[run.n++] = (child){.candidate = &list[i], .report_fd = -1};
    mn_status st = enough_memory ? MN_OK : mn_fail_memory(err, n * sizeof *run.children);
    if (!st && run.n)
        st = run_children(&run, cfg, &cache, err);
    choose_again(&run);
    if (!st && run.n)
        st = run_children(&run, cfg, &cache, err);
    mn_probe_cache_close(&cache);
    mn_free(run.children);
    return st;
}

/* ---- from report to record ------------------------------------------------------------------- */

static const char *probe_word_of(mn_str word, const char *const *words, size_t n,
                                 const char *otherwise) {
    for (size_t i = 0; i < n; i++)
        if (mn_str_is(word, words[i]))
            return words[i];
    return otherwise;
}

/* What the plugin told before it went wrong; the good ones tell it again when they are loaded. */
static bool take_facts(mn_plugin_record *rec, const mn_text *report) {
    static const char *const kinds[] = {"backend", "loader", "backend+loader"};
    mn_str id = mn_report_get(report, "id");
    uint32_t abi = mn_report_number(report, "abi");
    rec->kind = probe_word_of(mn_report_get(report, "kind"), kinds, MN_COUNT(kinds), rec->kind);
    if (abi)
        rec->abi = abi;
    if (id.len && id.len < 64) {
        char *copy = mn_strndup(id.ptr, id.len);
        if (!copy)
            return false;
        mn_free((void *)(uintptr_t)rec->id.ptr);
        rec->id = (mn_str){copy, id.len};
    }
    return mn_plugin_text(&rec->vendor, mn_report_get(report, "vendor")) &&
           mn_plugin_text(&rec->version, mn_report_get(report, "version")) &&
           mn_plugin_text(&rec->build_id, mn_report_get(report, "build_id"));
}

static void probe_add_text(mn_plugin_record *rec, const char *fmt, ...) MN_PRINTF(2, 3);
static void probe_add_text(mn_plugin_record *rec, const char *fmt, ...) {
    char *text = rec->probe.text;
    const size_t len = strlen(text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + len, sizeof rec->probe.text - len, fmt, args);
    va_end(args);
}

/* What the probe found that is no reason to refuse the plugin. */
static void add_remarks(mn_plugin_record *rec, const mn_text *report) {
    const mn_str changes = mn_report_get(report, "changes");
    const mn_str prints = mn_report_get(report, "prints");
    const uint32_t leaves = mn_report_number(report, "leaves");
    const size_t begin = strlen(rec->probe.text);
    rec->probe.intrudes = rec->probe.ok && (changes.len || prints.len);
    if (rec->probe.entry_ms > ENTRY_MS)
        probe_add_text(rec, "; its entry took %u ms, at most %d are allowed", rec->probe.entry_ms,
                       ENTRY_MS);
    if (changes.len)
        probe_add_text(rec, "; changes the process that opens it: %.*s", MN_STR_ARG(changes));
    if (prints.len)
        probe_add_text(rec, "; prints on standard output: \"%.*s\"", MN_STR_ARG(prints));
    if (leaves)
        probe_add_text(rec, "; leaves %u thread%s running after its shutdown", leaves,
                       leaves == 1 ? "" : "s");
    const bool any = rec->probe.text[begin] != 0;
    rec->probe.remarks = any ? rec->probe.text + begin + strlen("; ") : "";
}

bool mn_probe_judge(mn_plugin_record *rec, const mn_probe_candidate *c) {
    const mn_text *report = &c->report;
    if (!report->len)
        return true;
    const mn_record_status status = mn_report_status(report);
    const mn_str reason = mn_report_get(report, "reason");
    rec->probe.done = true;
    rec->probe.ok = status == MN_RECORD_OK;
    rec->no_memory = mn_report_number(report, "memory") != 0;
    rec->probe.cached = c->cached;
    rec->probe.ms = mn_report_number(report, "ms");
    rec->probe.entry_ms = mn_report_number(report, "entry_ms");
    rec->probe.pending = mn_report_number(report, "watch") != 0;
    probe_add_text(rec, "%s%s in %u ms", c->cached ? "remembered: " : "",
                   mn_record_status_name(status), rec->probe.ms);
    add_remarks(rec, report);
    if (rec->probe.ok)
        return true;
    return take_facts(rec, report) &&
           mn_plugin_reject(rec, status, "%.*s%s", (int)MN_MIN(reason.len, (uint64_t)400),
                            reason.ptr, c->cached ? MN_PROBE_REMEMBERED : "");
}
