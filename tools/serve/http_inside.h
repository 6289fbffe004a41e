/* http_inside.h -- what the files of the HTTP side share; no other file includes it.
 *
 *   http.c           sockets, connections, the library's life
 *   http_exchange.c  a request: its head, its body, when it goes to the application
 *   http_answer.c    its answer
 *
 * The library keeps the connections; an `exchange` here is one request of a connection with its
 * answer, from its first line to the library's completion call. Everything is called from http_run,
 * or from the application between two calls of it. */
#ifndef MINERVA_SERVE_HTTP_INSIDE_H
#define MINERVA_SERVE_HTTP_INSIDE_H
#include "serve/head.h"
#include "serve/http.h"
#include "serve/loop.h"
#include <microhttpd.h>

enum { MAX_HEADERS = 8, MAX_OLDER = 4 };

/* One connection: the library's, with what it does not know. */
typedef struct connection {
    struct connection *prev, *next;
    http_server *server;
    struct MHD_Connection *mhd;
    watch watch;
    int fd, watched;
    int busy;     /* 1: a whole request has arrived, its answer is not sent yet */
    double since; /* when it began to be not busy */
    struct exchange *exchange;
} connection;

typedef struct exchange {
    http_request request; /* first: the application's view */
    http_server *server;
    connection *connection;
    struct MHD_Connection *mhd;
    char *method, *path;
    const char *target; /* in the library's memory, as far as its address counts */
    const char *wrong;  /* with the head; NULL: nothing so far */
    head_verdict seen;  /* of the head's bytes as they came */
    size_t n_seen;      /* of them, from target on */
    int refused;        /* answered without the library */
    mn_text body;
    size_t n_shared; /* bytes of the body that count in the server's n_shared */
    int checked, dispatched, suspended, ended, gone;
    int no_memory;   /* for a part of the answer's head: the connection is closed instead */
    int closes;      /* the connection ends with the answer */
    int streams;     /* http_begin was called */
    unsigned status; /* 0: no answer yet */
    char *type;
    mn_text out; /* the answer; of a stream, from `sent` on what was not sent */
    size_t sent;
    size_t n_headers;
    char *headers[MAX_HEADERS][2];
} exchange;

struct http_server {
    struct MHD_Daemon *daemon;
    struct MHD_Daemon
        *older[MAX_OLDER]; /* with former certificates and open connections; NULL: none */
    http_params params;
    http_app app;
    watch watch;
    connection *connections;
    unsigned n_connections;
    int port;
    uint64_t first_id, n_ids; /* of requests without X-Request-Id */
    size_t n_shared;          /* bytes of bodies that have not arrived whole (http_exchange.c) */
};

/* ---- http.c ---------------------------------------------------------------------------------- */
/* The library leaves the connection alone until resume. While an answer is awaited it does not look
 * at the socket: that is watched here for the client's end (EPOLLRDHUP), so that a client that
 * leaves ends its request, also before the first byte of an answer. */
void http_suspend(exchange *x);
void http_resume(exchange *x); /* if it is suspended */
void http_watch_client(exchange *x);
void http_unwatch_client(connection *c);

/* ---- http_exchange.c: the library's callbacks ------------------------------------------------ */
/* The first line has come: the exchange begins. */
void *http_on_target(void *server, const char *target, struct MHD_Connection *mhd);
/* Versions from 1.0 on refuse doubtful heads themselves, when they are told to. */
int http_library_is_strict(void);
/* For the head, for each piece of the body, and with *n 0 at its end and after each resume. */
enum MHD_Result http_on_access(void *server, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *bytes,
                               size_t *n, void **state);
/* The answer is sent, or the connection is gone. */
void http_on_completed(void *server, struct MHD_Connection *mhd, void **state,
                       enum MHD_RequestTerminationCode why);
/* A header of the request; NULL: none. */
const char *http_field(const exchange *x, const char *name);

/* ---- http_answer.c --------------------------------------------------------------------------- */
/* Hands the answer over to the library. */
enum MHD_Result http_queue(exchange *x);
void http_answer_free(exchange *x);
#endif
