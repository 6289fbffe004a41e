/* reading.h -- the body of a request becomes what its endpoint needs: JSON, then ids of prompts.
 * Long bodies are read in threads of their own (tasks.h), so that no stream waits for the tokeniser
 * meanwhile. */
#ifndef MINERVA_SERVE_READING_H
#define MINERVA_SERVE_READING_H
#include "serve/serve.h"
#include "serve/tasks.h"

/* The first member of what owns a request; zero but for the functions, `counts` and `streams`. */
typedef struct reading {
    task task;
    serve *s;
    served *m;          /* that the request names; set before `read` */
    http_request *http; /* NULL: the client has gone while it was read */
    _Atomic int gone;   /* likewise, for the thread */
    cJSON *body;        /* of the request; its owner's texts may point into it */
    json_error e;
    int key;     /* of the request */
    double stay; /* of its model, if it has_stay */
    int has_stay;
    int running; /* a thread has it: nothing else may be touched */
    int counts;  /* it is a request of generations: it needs room in the queue while it is read */
    int streams; /* its answer may be an event stream */
    int is_counted; /* in n_reading */
    int is_long;    /* it is read in a thread */
    /* of models.c: it waits for m, or it holds m */
    int waits, holds;
    struct reading *previous_waiting, *next_waiting;
    double pinged_at;
    char *text; /* of the body, for a thread */
    size_t n_text;
    void (*step)(struct reading *x), (*then)(struct reading *x); /* of a thread's work */
    int (*read)(struct reading *x);     /* in any thread, with `body`; 0: e is set */
    void (*begin)(struct reading *x);   /* in the loop, when it is read */
    void (*release)(struct reading *x); /* in the loop: frees all but body */
} reading;

/* r's owner is x from now on. Either read and begun, or refused, or later in the loop. */
void reading_start(reading *x, serve *s, http_request *r);
/* The request is over: x is freed, now or when its thread is done. */
void reading_gone(reading *x);

/* ---- for models.c ---- */
/* x holds its model now: it is read. */
void reading_go(reading *x);
/* Answers with x->e, which has failed. */
void reading_refuse(reading *x);
/* x waits: a stream has a comment, once it has waited for a second, and then every --ping. */
void reading_ping(reading *x, double now);

/* The route of an endpoint without an engine: the answer is what `read` (in any thread; 0: x->e is
 * set) appends to reading_out. */
void reading_serve(serve *s, http_request *r, int (*read)(reading *x));
/* The text of the answer, of a reading that reading_serve began; it is freed with the request. */
mn_text *reading_out(reading *x);
#endif
