/* replicas.h -- the servers behind a front: how each one is, which beginnings of prompts it had
 * lately, and which of them is the best for a request. No network; one thread. */
#ifndef MINERVA_SERVE_REPLICAS_H
#define MINERVA_SERVE_REPLICAS_H
#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

enum { REPLICAS_MAX = 1024, PROMPT_BLOCK = 64, PROMPT_MAX_BLOCKS = 4096 };

typedef enum {
    REPLICA_UNKNOWN, /* not asked yet */
    REPLICA_READY,
    REPLICA_BUSY,       /* it answers, and is loading, draining or stuck */
    REPLICA_UNREACHABLE /* no connection, or it broke */
} replica_state;

typedef struct {
    char *url; /* without a slash at its end */
    replica_state state;
    unsigned n_mine;   /* requests of this front that it has */
    unsigned n_others; /* generations that it had beyond those when it was asked last */
    unsigned n_silent; /* questions after its health in a row without an answer */
    uint64_t n_requests, n_failures;
} replica;

typedef struct {
    replica *v;
    unsigned n, next; /* next: where the search begins, so that equals take turns */
    struct beginning *beginnings;
    size_t n_beginnings; /* a power of two */
} replicas;

/* Hashes of a prompt's beginnings, of PROMPT_BLOCK bytes, twice as many and so on. */
typedef struct {
    uint64_t *hashes;
    uint32_t n;
} prompt_blocks;

/* urls: texts with commas between URLs. 0, or the exit code with the error printed. */
int replicas_add(replicas *all, const char *const *urls, size_t n);
int replicas_open(replicas *all); /* after the last one is added; likewise */
void replicas_free(replicas *all);
/* 1 if an entry of --replicas is a URL, not a device. */
int replicas_is_url(const char *entry);

/* Of a request's body: tools, messages and prompt, names and values in their order. salt: what else
 * separates caches (the key). Without memory: no blocks. */
void prompt_blocks_read(prompt_blocks *p, const cJSON *body, const char *salt);
void prompt_blocks_free(prompt_blocks *p);

/* The replica for a prompt: of those that are ready, not in tried (a bit each) and not much busier
 * than the least loaded one, the one that had the longest beginning, else the least loaded one.
 * *n_known: blocks that it had. NULL: none. */
replica *replicas_choose(replicas *all, const prompt_blocks *p, const uint64_t *tried,
                         uint32_t *n_known);
/* From now on r has the prompt in its cache. */
void replicas_note(replicas *all, const prompt_blocks *p, const replica *r);
/* r's process has ended: its cache is empty. */
void replicas_forget(replicas *all, const replica *r);
unsigned replicas_ready(const replicas *all);
#endif
