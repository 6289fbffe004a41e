/* access.h -- who may use the server: keys, and without keys only pages of this server itself. */
#ifndef MINERVA_SERVE_ACCESS_H
#define MINERVA_SERVE_ACCESS_H
#include <stddef.h>

/* keys[i] is "" once it has been withdrawn: the numbers of keys stay the same. names[i]: of the
 * file, or "" */
typedef struct {
    char **keys, **names;
    size_t n_keys;
    int metrics_open;           /* /metrics needs no key */
    const char *const *origins; /* of --allow-origin: pages of these may use the server */
    size_t n_origins;
    const char *host; /* of --host */
    int insecure;     /* --insecure: any numeric address may be the Host */
    int tls;          /* the server's own pages have https: URLs */
} access_rules;

/* Reads keys, one per line with a name behind it or none; lines that begin with '#' are comments.
 * Called again, it keeps the numbers of keys that stay, adds new ones, and withdraws those that are
 * not there any more. 0, or the exit code with the error printed and the rules as they were. */
int access_read_keys(access_rules *rules, const char *path);
const char *access_first_key(const access_rules *rules); /* one that is valid */
void access_free(access_rules *rules);

/* The key that a client sent: of authorization, "Bearer KEY", else plain; NULL: none. Both may be
 * NULL. */
const char *access_given(const char *authorization, const char *plain);
/* The index of the key in authorization, "Bearer KEY", or in plain, "KEY"; else -1. Both may be
 * NULL. The time does not depend on how much of a key is right. */
int access_key(const access_rules *rules, const char *authorization, const char *plain);
/* Whether a path needs no key: health, and the page, which holds no secret and asks for it. */
int access_is_public(const access_rules *rules, const char *path);
/* Whether a request without keys may come with this Host header: a page of another site can make
 * its own name resolve to this machine, and the browser then sends that name. NULL: HTTP/1.0. */
int access_host(const access_rules *rules, const char *host);
/* Whether a page of this origin may read answers: a page of this server (its scheme, and the same
 * as Host), or named. */
int access_origin(const access_rules *rules, const char *origin, const char *host);
/* 1 if the address can be reached from this machine alone. */
int access_is_local(const char *host);
#endif
