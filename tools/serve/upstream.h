/* upstream.h -- requests to other servers by HTTP, many at once in the thread of the event loop.
 * libcurl makes the connections, keeps and reuses them, and has TLS. It is opened at run time;
 * upstream_absent.c stands in for upstream.c where its headers are missing. */
#ifndef MINERVA_SERVE_UPSTREAM_H
#define MINERVA_SERVE_UPSTREAM_H
#include <stddef.h>

typedef struct upstream upstream;
typedef struct upstream_call upstream_call;

enum { UPSTREAM_HEADERS = 8 };

typedef struct {
    const char *base, *path; /* http://HOST:PORT, and a path that is not encoded */
    const char *body;        /* NULL: GET; else POST; it outlives the call */
    int deletes;             /* without body: DELETE */
    size_t n_body;
    const char *headers[UPSTREAM_HEADERS]; /* "Name: value"; copied */
    size_t n_headers;
    long timeout_s; /* of the whole call; 0: none */
    void *arg;
    /* The next bytes of the answer's body. 0: the call is to end. Neither starts nor cancels
     * calls. */
    int (*body_came)(void *arg, const char *bytes, size_t n);
    /* The call is over, and is freed afterwards; not called after upstream_cancel. error: NULL if
     * the answer is whole. */
    void (*done)(void *arg, const char *error);
} upstream_params;

/* ca: a file of certificates to trust instead of the system's, or NULL. NULL: the error is
 * printed. */
upstream *upstream_create(int set, const char *ca);
void upstream_free(upstream *u); /* all calls are over or cancelled */
/* NULL: out of memory. */
upstream_call *upstream_start(upstream *u, const upstream_params *params);
void upstream_cancel(upstream_call *c); /* closes its connection, unless the answer is whole */
/* From the answer's head on; 0 before. */
int upstream_status(const upstream_call *c);
const char *upstream_type(const upstream_call *c);  /* Content-Type, or "" */
long upstream_retry_after(const upstream_call *c);  /* seconds; 0: none */
int upstream_was_connected(const upstream_call *c); /* the request may have been sent */
/* Time outs and calls that are over; in each round of the loop. */
void upstream_run(upstream *u);
int upstream_wait_ms(const upstream *u); /* until the next time out; -1: none */
#endif
