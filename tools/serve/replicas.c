/* replicas.c -- the choice of a replica by prefix, load and health.
 *
 * The front has no tokeniser: it compares the bytes of prompts. One table for all replicas maps the
 * hash of a beginning to the replicas that had it lately. The hash of a block covers all blocks
 * before it, so that the longest beginning is found from its end, and an entry that another one has
 * overwritten costs nothing but its own block. Two prompts whose hashes collide are sent to one
 * replica, which compares the tokens themselves. */
#include "serve/replicas.h"
#include "app.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A replica is much busier than another one with half as many requests again, and some more. */
enum { SLACK = 16, WHO = 4, ENTRIES_PER_REPLICA = 16384 };

typedef struct beginning {
    uint64_t hash;
    uint16_t who[WHO]; /* index + 1 of replicas, the latest first; 0: none */
} beginning;

/* ---- the list -------------------------------------------------------------------------------- */

int replicas_is_url(const char *entry) {
    return !strncasecmp(entry, "http://", 7) || !strncasecmp(entry, "https://", 8);
}

/* One URL of n bytes. 0, or the exit code with the error printed. */
static int serve_replicas_add(replicas *all, const char *url, size_t n) {
    while (n && url[n - 1] == '/')
        n--;
    char *copy = strndup(url, n);
    if (!copy)
        return no_memory();
    const char *host = replicas_is_url(copy) ? strstr(copy, "://") + 3 : "";
    const char *wrong = strpbrk(copy, "?# \t");
    if (!*host || *host == '/' || wrong || all->n == REPLICAS_MAX) {
        const int code =
            all->n == REPLICAS_MAX
                ? complain(EXIT_USAGE, "--replicas: found more than %d URLs", REPLICAS_MAX)
                : complain(
                      EXIT_USAGE,
                      "--replicas: found \"%s\", expected URLs as http://HOST:PORT with commas "
                      "between them, and no devices among them",
                      copy);
        free(copy);
        return code;
    }
    for (unsigned i = 0; i < all->n; i++)
        if (!strcmp(all->v[i].url, copy)) {
            complain(EXIT_USAGE, "--replicas: found %s twice", copy);
            free(copy);
            return EXIT_USAGE;
        }
    all->v[all->n++].url = copy;
    return 0;
}

int replicas_add(replicas *all, const char *const *urls, size_t n) {
    int code = 0;
    if (!all->v)
        all->v = calloc(REPLICAS_MAX, sizeof *all->v);
    if (!all->v)
        return no_memory();
    for (size_t i = 0; i < n; i++)
        for (const char *at = urls[i]; code == 0 && *at;) {
            const size_t length = strcspn(at, ",");
            code = serve_replicas_add(all, at, length);
            at += length + (at[length] == ',');
        }
    return code;
}

int replicas_open(replicas *all) {
    all->n_beginnings = ENTRIES_PER_REPLICA;
    while (all->n_beginnings < (size_t)all->n * ENTRIES_PER_REPLICA)
        all->n_beginnings *= 2;
    all->beginnings = calloc(all->n_beginnings, sizeof *all->beginnings);
    return all->beginnings ? 0 : no_memory();
}

void replicas_free(replicas *all) {
    for (unsigned i = 0; i < all->n; i++)
        free(all->v[i].url);
    free(all->v);
    free(all->beginnings);
    *all = (replicas){0};
}

unsigned replicas_ready(const replicas *all) {
    unsigned n = 0;
    for (unsigned i = 0; i < all->n; i++)
        n += all->v[i].state == REPLICA_READY;
    return n;
}

/* ---- beginnings of prompts ------------------------------------------------------------------- */

/* FNV-1a over what was fed, and how much of a block that is. */
typedef struct {
    prompt_blocks *out;
    uint64_t hash;
    uint32_t n_bytes;
} feeder;

static void replicas_feed(feeder *f, const char *bytes, size_t n) {
    for (size_t i = 0; i < n && f->out->n < PROMPT_MAX_BLOCKS; i++) {
        f->hash = mn_fnv_word(f->hash, (unsigned char)bytes[i]);
        if (++f->n_bytes % PROMPT_BLOCK == 0)
            f->out->hashes[f->out->n++] = f->hash;
    }
}

/* A value with all that is inside, in its order; each ends with a byte that no text has. The depth
 * is the parser's, which has a limit. */
static void feed_value(feeder *f, const cJSON *value) {
    if (value->string)
        replicas_feed(f, value->string, strlen(value->string));
    if (cJSON_IsString(value))
        replicas_feed(f, value->valuestring, strlen(value->valuestring));
    else if (cJSON_IsNumber(value))
        replicas_feed(f, (const char *)&value->valuedouble, sizeof value->valuedouble);
    for (const cJSON *child = value->child; child; child = child->next)
        feed_value(f, child);
    replicas_feed(f, "\xff", 1);
}

void prompt_blocks_read(prompt_blocks *p, const cJSON *body, const char *salt) {
    /* chat templates write the tools before the messages */
    static const char *const fields[] = {"tools", "messages", "prompt"};
    feeder f = {p, MN_FNV_BASIS, 0};
    *p = (prompt_blocks){.hashes = malloc(PROMPT_MAX_BLOCKS * sizeof *p->hashes)};
    if (!p->hashes)
        return;
    f.hash = mn_fnv_z(f.hash, salt);
    for (size_t i = 0; i < MN_COUNT(fields); i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(body, fields[i]);
        if (value)
            feed_value(&f, value);
    }
    uint64_t *fitting = realloc(p->hashes, (p->n + 1) * sizeof *fitting);
    p->hashes = fitting ? fitting : p->hashes;
}

void prompt_blocks_free(prompt_blocks *p) {
    free(p->hashes);
    *p = (prompt_blocks){0};
}

/* ---- who had what ---------------------------------------------------------------------------- */

static beginning *entry_of(const replicas *all, uint64_t hash) {
    return &all->beginnings[(hash ^ hash >> 32) & (all->n_beginnings - 1)];
}

void replicas_note(replicas *all, const prompt_blocks *p, const replica *r) {
    const uint16_t who = (uint16_t)(r - all->v + 1);
    for (uint32_t i = 0; i < p->n; i++) {
        beginning *b = entry_of(all, p->hashes[i]);
        size_t at = 0;
        if (b->hash != p->hashes[i])
            *b = (beginning){.hash = p->hashes[i]};
        while (at < WHO - 1 && b->who[at] && b->who[at] != who)
            at++;
        memmove(b->who + 1, b->who, at * sizeof *b->who);
        b->who[0] = who;
    }
}

void replicas_forget(replicas *all, const replica *r) {
    const uint16_t who = (uint16_t)(r - all->v + 1);
    for (size_t i = 0; i < all->n_beginnings; i++) {
        uint16_t *w = all->beginnings[i].who;
        size_t n = 0;
        for (size_t j = 0; j < WHO; j++)
            if (w[j] != who)
                w[n++] = w[j];
        while (n < WHO)
            w[n++] = 0;
    }
}

/* ---- the choice ------------------------------------------------------------------------------ */

static unsigned load_of(const replica *r) {
    return r->n_mine + r->n_others;
}

static int may_have(const replicas *all, const replica *r, const uint64_t *tried) {
    const size_t i = (size_t)(r - all->v);
    return r->state == REPLICA_READY && !(tried[i / 64] >> i % 64 & 1);
}

/* The least loaded one that may have the request. */
static replica *least_loaded(replicas *all, const uint64_t *tried) {
    replica *least = NULL;
    for (unsigned i = 0; i < all->n; i++) {
        replica *r = &all->v[(all->next + i) % all->n];
        if (may_have(all, r, tried) && (!least || load_of(r) < load_of(least)))
            least = r;
    }
    return least;
}

/* Of those that had this beginning the least loaded one with at most so many requests. */
static replica *least_of(const replicas *all, const beginning *b, const uint64_t *tried,
                         unsigned most) {
    replica *least = NULL;
    for (size_t i = 0; i < WHO && b->who[i]; i++) {
        replica *r = &all->v[b->who[i] - 1];
        if (!may_have(all, r, tried) || load_of(r) > most)
            continue;
        if (!least || load_of(r) < load_of(least))
            least = r;
    }
    return least;
}

replica *replicas_choose(replicas *all, const prompt_blocks *p, const uint64_t *tried,
                         uint32_t *n_known) {
    replica *least = least_loaded(all, tried);
    *n_known = 0;
    if (!least)
        return NULL;
    const unsigned most = load_of(least) + load_of(least) / 2 + SLACK;
    for (uint32_t n = p->n; n > 0; n--) {
        const beginning *b = entry_of(all, p->hashes[n - 1]);
        replica *r = b->hash == p->hashes[n - 1] ? least_of(all, b, tried, most) : NULL;
        if (!r)
            continue;
        *n_known = n;
        return r;
    }
    all->next = (unsigned)(least - all->v + 1) % all->n;
    return least;
}
