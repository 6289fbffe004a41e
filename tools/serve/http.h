/* http.h -- the HTTP side of the front: connections, limits, who may ask, whole and streamed
 * answers. The rest of the server sees requests with a body and writes bytes.
 *
 * One thread. libmicrohttpd is used in the files of http_inside.h alone; http_absent.c stands in
 * for them where the library is missing. */
#ifndef MINERVA_SERVE_HTTP_H
#define MINERVA_SERVE_HTTP_H
#include "text_buffer.h"
#include "serve/access.h"
#include <stddef.h>
#include <stdint.h>

typedef struct http_server http_server;

enum { HTTP_ID = 256 };

/* A request whose body has arrived and that access.h permits. */
typedef struct http_request {
    const char *method, *path; /* path: decoded, without the query */
    char *body;                /* n_body bytes and a NUL; never NULL */
    size_t n_body;
    int key;              /* index of the key that it came with; -1: none */
    unsigned status;      /* of the answer; 0: none yet */
    void *owner;          /* the application's; NULL at first */
    int began;            /* http_begin was called */
    int admitted;         /* the application's: it counts among the requests of its key */
    char id[HTTP_ID + 1]; /* X-Request-Id: the client's, else one of this server */
    double since;         /* seconds(): its head had arrived */
    /* the application's, for the access log: the model that was asked for, of a front; tokens;
     * seconds(): the first text, or 0 */
    char model[96];
    uint64_t n_prompt, n_new;
    double first_at;
    uint64_t n_events; /* events of a dialect that numbers them */
} http_request;

typedef struct {
    void *arg;
    /* Answers by http_answer or http_begin, now or later. */
    void (*request)(void *arg, http_request *r);
    /* r ends: it was answered, or the client has gone. Called once for each that `request` had;
     * r->owner is to be released, r is freed afterwards. */
    void (*gone)(void *arg, http_request *r);
    /* r ends, also one that `request` never had since it was refused; before `gone`. NULL: none */
    void (*ended)(void *arg, const http_request *r);
} http_app;

typedef struct {
    const char *host;               /* a numeric address or a name */
    int port;                       /* 0: any that is free */
    const char *tls_cert, *tls_key; /* the texts of PEM files; NULL: no TLS */
    unsigned max_connections;
    size_t max_body;
    size_t max_unfinished; /* bytes of bodies that have not arrived whole, but for 64 KiB of each */
    int receive_s;         /* time for head and body of a request, and for an idle connection */
    int send_s;            /* time without progress while an answer is sent */
    const access_rules *access;
    int set; /* of loop.h */
} http_params;

/* Listens. 0, or the exit code with the error printed and *out NULL. params->access and the texts
 * outlive the server. */
int http_create(const http_params *params, const http_app *app, http_server **out);
int http_port(const http_server *s); /* the one that it listens on */
/* Handles what has arrived and sends what there is; then the ms after which it wants to be called
 * again, -1 = when a descriptor is ready. After each loop_wait. */
int http_run(http_server *s);
/* Once a second: ends connections that were too slow to send a request. */
void http_tick(http_server *s, double now);
/* New connections have this certificate, open ones keep theirs. 0: it cannot be used, and the old
 * one stays. */
int http_use_certificate(http_server *s, const char *cert, const char *key);
void http_stop_listening(http_server *s); /* open connections stay */
unsigned http_connections(const http_server *s);
int http_busy(const http_server *s); /* 1: a request has no whole answer yet */
void http_free(http_server *s);      /* every request is `gone` before it returns */

/* A whole answer; *body is emptied. type: "application/json". */
void http_answer(http_request *r, unsigned status, const char *type, mn_text *body);
/* Before an answer: one more header, copied. */
void http_header(http_request *r, const char *name, const char *value);
/* 200 with a body that http_put and http_end write piece by piece; nothing if it has begun. */
void http_begin(http_request *r, const char *type);
void http_put(http_request *r, const char *bytes, size_t n);
void http_end(http_request *r);
/* A header that the request came with; NULL: none. */
const char *http_request_header(const http_request *r, const char *name);
/* The body as memory of the caller, who frees it; r has none afterwards. NULL: out of memory, or
 * the body is empty. */
char *http_take_body(http_request *r);
/* Bytes that http_put has accepted and the client has not: a client that reads too slowly. */
size_t http_unsent(const http_request *r);
/* Closes the connection without the end of the answer. */
void http_drop(http_request *r);
/* {"error": {"message", "type", "param", "code"}} with the status; param, code: may be NULL. */
void http_error(http_request *r, unsigned status, const char *type, const char *param,
                const char *code, const char *message);
#endif
