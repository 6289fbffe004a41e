/* models.h -- the models of one server: which there are, which of them are loaded, who waits.
 *
 *   models.c        the list, names, phases
 *   models_list.c   which there are, and their settings
 *   models_open.c   text and engines of one model
 *   models_routes.c /models/load and /models/unload
 *
 * A `served` is one model with its settings, its text (tokeniser, chat template) in this process,
 * and its engines, which are processes of their own: a crash of one touches no other. A request
 * names its model. It is read when that model is loaded, and holds the model until the request is
 * over: a model that is held is never unloaded.
 *
 *   from       by                                   to
 *   UNLOADED   want: a request, /models/load        OPENING   a thread opens its files
 *   OPENING    on_opened                            QUEUED    it waits for its turn and for memory
 *   QUEUED     take_turn                            STARTING  engine processes load it
 *   STARTING   models_ready                         LOADED    its requests run
 *   LOADED     unload: nobody holds it              ENDING    its engine processes end
 *   LOADED     unload: requests hold it             DRAINING  they end, others wait
 *   DRAINING   nobody wants its memory any more     LOADED
 *   DRAINING   the last request has ended           ENDING
 *   ENDING     end_if_ended                         UNLOADED  its memory is free
 *   any of OPENING to LOADED    fail                FAILED    it has a sentence for its requests
 *   FAILED     want, RETRY_S later                  OPENING
 *
 * One model at a time is in QUEUED or STARTING with its turn: the one that was wanted first. If it
 * does not fit beside the loaded ones (--models-memory, --models-max, or its engine found too
 * little memory), the least recently used one is unloaded: at once if no request holds it, else it
 * is drained: what runs ends, and what comes waits for its next turn. A model that fails has one
 * sentence for its requests; for RETRY_S they get it at once, then it is tried again.
 *
 * One thread, but for what reading.h says: threads read the fields of a model that a request
 * holds. */
#ifndef MINERVA_SERVE_MODELS_H
#define MINERVA_SERVE_MODELS_H
#include "app.h"
#include "serve/adapters.h"
#include "serve/engine_link.h"
#include "serve/flags.h"
#include "serve/http.h"
#include "serve/json.h"
#include "serve/metrics.h"
#include "serve/tasks.h"

struct serve;
struct reading;

typedef enum {
    MODEL_UNLOADED,
    MODEL_OPENING,  /* a thread opens its files */
    MODEL_QUEUED,   /* it waits for memory, or for its turn */
    MODEL_STARTING, /* engines load it */
    MODEL_LOADED,
    MODEL_DRAINING, /* loaded; requests that hold it end, others wait */
    MODEL_ENDING,   /* its engine processes end */
    MODEL_FAILED,   /* `why` says why */
} model_phase;

/* Work of a thread: opens a model for its text. */
typedef struct {
    task task;
    struct served *m;
    int code;
} model_opening;

typedef struct served {
    struct serve *s;
    char *name; /* in answers, and of requests */
    /* ---- its settings ---- */
    serve_flags own;
    app_flags flags;
    sampling_flags sampling;
    double keep_alive; /* seconds without requests before it is unloaded; below 0: it stays */
    served_adapters adapters;
    double stay; /* the same while it is loaded: keep_alive, or what a request has asked for */
    /* ---- its life ---- */
    model_phase phase;
    char why[512];          /* the sentence of MODEL_FAILED */
    unsigned status;        /* of answers with that sentence */
    double failed_at;       /* seconds() */
    unsigned n_held;        /* requests that hold it */
    unsigned n_generations; /* of them, not finished */
    struct reading *first_waiting, *last_waiting;
    unsigned n_waiting; /* in that list */
    int asked;          /* it is to be loaded without a request: /models/load */
    int must_end;       /* it is drained by /models/unload */
    int is_open;        /* its text is: the loop may read what is below */
    model_opening opening;
    double wanted_at, used_at;   /* seconds(); used: begin or end of the last request */
    uint64_t estimate, measured; /* bytes that it needs; 0: not known */
    uint64_t kv_bytes;           /* of the KV cache, where no flag says it */
    int on_host;                 /* its engines run on CPUs */
    uint64_t crowded_until;      /* so many models have to end before it fits */
    uint64_t n_loads, n_failures;
    /* ---- of a model that is open; all zero else ---- */
    app a;                   /* runtime and model, for text alone */
    char fingerprint[24];    /* of model, device and version: system_fingerprint; empty: none was
                                ready yet */
    mn_sample_params sample; /* the defaults of requests */
    int has_seed;            /* --seed: of requests that have none */
    arg_texts stops;         /* of --stop */
    char *chat_template;     /* the text of a file; NULL: own.chat_template is a name */
    uint32_t longest_token;  /* bytes */
    wire_open open;
    engine_link *links;
    unsigned n_links;
    _Atomic uint32_t n_ctx, n_seq; /* of the engines; n_ctx 0: none was ready yet */
    /* ---- for good ---- */
    metrics metrics;
} served;

typedef struct {
    served **v; /* in the order of the flags */
    unsigned n;
    int lazy;                     /* they are loaded and unloaded; else there is one, for good */
    unsigned most;                /* loaded at once; 0: no limit */
    uint64_t memory;              /* bytes that the loaded ones may need together; 0: no limit */
    uint64_t host_memory;         /* the same of those on CPUs, where there is no such limit */
    uint64_t n_ended;             /* how often one was unloaded */
    _Atomic uint32_t n_sequences; /* at once, of all engines */
    double pinged_at;
    char **texts; /* of the file of --models */
    size_t n_texts;
} models;

/* ---- names (models.c) ------------------------------------------------------------------------ */
/* The model of a name: its own, an alias, either with ":latest", or its own without the quant where
 * that leaves no choice. NULL: the server has none. */
served *models_find(const struct serve *s, const char *name);
/* The same for a request; name NULL: the only model. NULL: the error is set, of status 404. */
served *models_choose(const struct serve *s, const char *name, json_error *e);

/* ---- requests (models.c) --------------------------------------------------------------------- */
/* x, whose model is set, holds it and goes on (reading_go), now or when it is loaded; or it is
 * refused. */
void models_enter(struct reading *x);
/* x is over, or its client has gone: it neither holds its model nor waits for it. */
void models_leave(struct reading *x);
/* Sets x->e if its model has failed meanwhile. */
void models_check(struct reading *x);
/* The model of x stays for so long without requests (as keep_alive) until it is unloaded or another
 * request says otherwise; if its sender may unload models. */
void models_stay(const struct reading *x, double seconds);
/* An engine of m is ready. */
void models_ready(served *m);

/* ---- the list (models.c) --------------------------------------------------------------------- */
/* A model without settings; the name is copied. NULL: out of memory. */
served *models_add(struct serve *s, const char *name);
void models_free(struct serve *s); /* after http_free */
/* Starts the only model, or begins to load those that are asked for. 0, or the exit code with the
 * error printed. */
int models_begin(struct serve *s);
/* In each round of the loop: engines that end or start, whose turn it is. */
void models_tick(struct serve *s, double now);
unsigned models_engines_ready(const struct serve *s); /* that accept requests */
int models_were_ready(const struct serve *s); /* 1: the only model was, or there are several */
int models_are_open(const struct serve *s);   /* 1: requests are accepted */

/* ---- which there are (models_list.c) --------------------------------------------------------- */
/* Fills the list from the flags of s; s->name is set. The only model of a server is open then. 0,
 * or the exit code with the error printed. */
int models_list(struct serve *s);
int models_are_several(const struct serve *s); /* by the flags */
/* A model that has come onto this machine, as /api/pull brings one: with --all-models it is in the
 * list from now on, with the settings of the command line. 0: memory ran out. In the loop. */
int models_learn(struct serve *s, const char *name);
void model_free_settings(served *m);

/* ---- loading and unloading, for routes (models.c) -------------------------------------------- */
/* Whether r may load, unload, pull or delete: with --manage, or with a key whose name is "admin" or
 * begins with "admin-"; on loopback, too, since browsers reach it. 0: r is answered with 403. */
int models_permit(const struct serve *s, http_request *r);
int models_may(const struct serve *s, const http_request *r); /* the same without an answer */
/* "unloaded", "loading", "loaded" or "failed". */
const char *models_state(const served *m);
/* Begins to load it; it is when its state says so. 0: the error is set: it is loaded already. */
int models_load(served *m, json_error *e);
/* Unloads it when the requests that hold it have ended. 0: the error is set: it is not loaded. */
int models_unload(served *m, json_error *e);
/* Bytes of weights and KV cache of its engines; 0: it is not loaded. */
uint64_t models_bytes(const served *m);

/* ---- one model (models_open.c) --------------------------------------------------------------- */
/* Opens its files and reads its defaults. 0, or the exit code with the error printed; model_close
 * frees what is open. Any thread. */
int model_open_text(served *m);
/* Sets estimate and kv_bytes of a model whose text is open. Any thread. */
void model_estimate(served *m);
/* Starts its engines. 0, or the exit code with the error printed. */
int model_start(served *m);
void model_free_engines(served *m);
void model_close_text(served *m);
#endif
