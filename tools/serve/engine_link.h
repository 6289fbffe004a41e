/* engine_link.h -- the front's side of one engine process: starts it, talks to it, starts it again
 * when it dies, and leaves out plugins that crash. */
#ifndef MINERVA_SERVE_ENGINE_LINK_H
#define MINERVA_SERVE_ENGINE_LINK_H
#include "serve/loop.h"
#include "serve/wire.h"
#include <sys/types.h>

typedef struct engine_link engine_link;

typedef struct {
    void *arg;
    void (*ready)(void *arg, engine_link *l); /* it accepts requests now */
    /* it has died, `crashed` if by its own fault; what it had is to be sent again once it is
     * ready */
    void (*down)(void *arg, engine_link *l, int crashed);
    /* what l says of requests: perhaps of some that it does not have */
    void (*admitted)(void *arg, const engine_link *l, uint64_t id);
    void (*refused)(void *arg, const engine_link *l, const wire_refused *m);
    void (*event)(void *arg, const engine_link *l, const wire_event *m);
    void (*vector)(void *arg, const engine_link *l, const wire_vector *m);
} engine_calls;

typedef enum {
    LINK_WAITING, /* no process: it is started at start_at */
    LINK_LOADING,
    LINK_READY,
    LINK_DYING, /* its socket is closed, its exit status is awaited */
    LINK_DEAD,  /* given up: exit_code */
} link_state;

enum { LINK_MAX_PLUGINS = 8, LINK_ID = 64, LINK_PREFIXES = 4096 };
/* Descriptors of an engine process: its socket, and the pipe for the plugin that it crashes in. */
enum { ENGINE_FD = 3, BLAME_FD = 4 };

struct engine_link {
    unsigned index;
    int set; /* of loop.h */
    const wire_open *open;
    uint64_t stamp; /* of the front's model */
    char *device;   /* of --device or --replicas; NULL: the setting */
    engine_calls calls;
    link_state state;
    pid_t pid;
    int fd;
    int blame; /* a pipe: the process writes the plugin that it crashed in; -1: none */
    watch watch;
    wire_in in;
    mn_text out;
    size_t sent; /* bytes of out that are written */
    int want_write, was_ready, other_model, exit_code;
    int stopping;    /* by link_stop: no other process follows */
    char *why;       /* of the last process that was not ready: why it ended; NULL: not known */
    char title[112]; /* for messages: "engine 0 of NAME" */
    double start_at, died_at;
    unsigned n_failed; /* starts in a row that failed */
    uint64_t n_restarts;
    /* of the process that runs, or ran last */
    wire_ready info; /* its texts: info_texts */
    char *info_texts[3];
    wire_beat beat;
    double beat_at;       /* the process has shown life, loading or ready */
    double most_silent_s; /* after so long without, it is ended; 0: never */
    double tick_at;
    uint64_t n_preempted, cache_queries, cache_hits; /* of earlier processes */
    uint64_t n_drafted, n_accepted, n_forced;        /* likewise */
    uint64_t forms_ns;                               /* likewise */
    /* crashes by plugin, with this model */
    struct {
        char id[LINK_ID];
        unsigned n;
    } crashes[LINK_MAX_PLUGINS];
    size_t n_plugins;
    mn_text excluded;                 /* "cuda,vendor" */
    unsigned n_generations;           /* that it has */
    uint64_t prefixes[LINK_PREFIXES]; /* hashes of beginnings that it had, each in its place */
};

/* Starts the first process. of: the name of the model, for messages, or NULL. device is copied;
 * open, its texts and calls->arg outlive l. */
void link_init(engine_link *l, unsigned index, int set, const wire_open *open, uint64_t stamp,
               const char *device, const char *of, const engine_calls *calls);
/* Restarts, exit statuses: call it every tick. */
void link_tick(engine_link *l, double now);
/* Sends what was put into l->out; nothing while the engine is not ready. 0: memory ran out for a
 * message that was put since the last call, which is not sent. */
int link_flush(engine_link *l);
/* Begins to end the process, without a restart: the state is LINK_DEAD when it has ended, which
 * link_tick sees. calls->down is not called. */
void link_stop(engine_link *l);
/* Ends the process, without a restart. */
void link_free(engine_link *l);
/* Seconds since the engine's scheduler has shown life; of one that is not ready: INFINITY. */
double link_silence(const engine_link *l, double now);
#endif
