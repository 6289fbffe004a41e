/* relay.h -- a front without an engine (--replicas URL,URL): requests go to other servers of the
 * same interface, and their answers come back.
 *
 *   relay.c         requests: sent, sent again, cancelled     replicas.c   which server is chosen
 *   relay_stream.c  event streams, as far as they are passed  upstream.c   HTTP to the servers
 *   relay_info.c    health of the servers; /health, /metrics
 *
 * A request that has no answer yet is sent again to another server when its own one breaks off or
 * is full. From the first token of a stream on, it is sent again only where the answer must come
 * out the same (temperature 0 or a seed): what the client has is compared and left out. Else the
 * stream ends with an error event. */
#ifndef MINERVA_SERVE_RELAY_H
#define MINERVA_SERVE_RELAY_H
#include "serve/replicas.h"
#include "serve/serve.h"
#include "serve/upstream.h"

typedef struct relay relay;

/* ---- relay_stream.c -------------------------------------------------------------------------- */
/* The events of one answer, which may come from several servers one after the other. All zero: an
 * answer that begins. */
typedef struct {
    mn_text rest;      /* the event that is not complete yet */
    mn_text held;      /* events before the first token */
    mn_text head;      /* what is before "choices" in every event, of the first server */
    int has_token;     /* passed on: from now on nothing is held */
    int is_over;       /* [DONE] has come */
    int refused;       /* an error event of status 503 came: nothing behind it is used */
    int is_named;      /* events of a dialect: not compared, so never resumed behind a token */
    uint64_t n_named;  /* such events; the next one has this number */
    int differs;       /* the next server's answer is not the first one's */
    uint64_t n_passed; /* events with choices that the client has, and their hash */
    uint64_t n_now;    /* of the server that sends now */
    uint64_t passed, now;
} relay_stream;

/* The next bytes of a server; what the client is to have now is appended to out. 0: out of memory,
 * or one of refused and differs is set. */
int relay_stream_feed(relay_stream *t, const char *bytes, size_t n, mn_text *out);
/* Another server begins the same answer. */
void relay_stream_again(relay_stream *t);
void relay_stream_free(relay_stream *t);

/* ---- relay.c --------------------------------------------------------------------------------- */
typedef struct relay_request {
    struct relay_request *prev, *next;
    relay *owner;
    http_request *http;
    replica *at;         /* NULL: it waits for one that is ready */
    upstream_call *call; /* NULL likewise */
    prompt_blocks blocks;
    uint64_t tried[REPLICAS_MAX / 64]; /* in this round */
    int repeats;                       /* its answer is the same when it is computed again */
    int began;                         /* http_begin was called */
    int over;                          /* it has its whole answer */
    int decided;                       /* `streams` is known of the answer that comes */
    int streams;                       /* the answer that comes is an event stream */
    unsigned n_broken;                 /* servers that broke off while they had it */
    double since, waits_since;
    relay_stream stream;
    mn_text whole; /* of an answer that is no stream */
} relay_request;

typedef struct {
    uint64_t n_retried, n_resumed, n_interrupted, n_blocks, n_known;
    histogram first_token;
} relay_counts;

typedef struct relay_probe relay_probe;

struct relay {
    serve *s;
    upstream *up;
    replicas all;
    relay_probe *probes; /* [all.n], relay_info.c */
    relay_request *requests;
    char name[48];
    relay_counts counts;
};

/* 1 if --replicas has URLs. */
int relay_is_asked(const serve_flags *f);
/* Flags that have no meaning for a front are errors. NULL with *code: the error is printed. */
relay *relay_open(serve *s, int *code);
void relay_free(relay *l); /* after http_free */
/* What has come from the servers; before http_run in each round of the loop. */
void relay_run(relay *l);
int relay_wait_ms(const relay *l);
void relay_tick(relay *l, double now);
/* What still runs ends with an error. */
void relay_end(relay *l);
/* For http_app; arg is the struct serve. */
void relay_handle(void *arg, http_request *r);
void relay_gone(void *arg, http_request *r);
/* A replica has become ready: what waits is sent. */
void relay_resume(relay *l);
/* r cannot be reached, and whatever its process had in its cache is lost. */
void relay_lost(relay *l, replica *r, const char *why);
/* r is silent: its requests go elsewhere. */
void relay_abandon(relay *l, replica *r);

/* ---- relay_info.c ---------------------------------------------------------------------------- */
int relay_probes_open(relay *l); /* 0: out of memory */
void relay_probes_tick(relay *l, double now);
void relay_probes_free(relay *l);
void relay_ready(relay *l, http_request *r);
void relay_metrics(relay *l, http_request *r);
#endif
