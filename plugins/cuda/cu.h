/* cu.h -- what the parts of the CUDA plugin share that run on the host. Kernels see none of it. */
#ifndef CU_H
#define CU_H
#include "kernels.h"
#include "units.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifndef CU_BUILT_FOR /* which GPUs this file has code for; the build says it */
#define CU_BUILT_FOR "one kind of GPU"
#endif

typedef struct {
    const mn_host *host;
    mn_plugin api;
} cu_plugin;

struct mn_event {
    mn_device *dev;
    cudaEvent_t ev;
    mn_event *next;
};
struct mn_device {
    cu_plugin *plugin;
    cu_card card;
    int index;
    double gbps;
    pthread_mutex_t lock; /* of spare */
    mn_event *spare;
};
struct mn_buffer {
    mn_device *dev;
    char *ptr;
    uint64_t bytes;
    uint32_t kind;
};

/* Writes go through a ring of pinned segments, so that the source is free on return and the copy
 * stays asynchronous. */
enum { CU_SEGMENTS = 32, CU_SEGMENT_BYTES = 1 << 18, CU_STAGE_BYTES = 6 << 20 };
struct mn_queue {
    mn_device *dev;
    cudaStream_t stream;
    char *ring,
        *staging; /* staging: on the device, for weights that are repacked; made when needed */
    cudaEvent_t used[CU_SEGMENTS];
    bool pending[CU_SEGMENTS];
    uint32_t next;
    uint64_t read_ns, n_reads; /* host time; logged when the queue ends */
    int aborted;               /* atomic; set from any thread */
};

/* A weight on the device: a matrix in the planes of its type (types.h), or `flat`, f32 without
 * padding: norms, biases, sinks, frequencies, learned positions. Experts are rows, one after the
 * other. */
typedef struct cu_type cu_type;
typedef struct {
    const cu_type *type;
    char *data; /* all planes, within those of the set */
    uint64_t bytes;
    char *plane[4];
    int64_t rows, cols, ld; /* ld: flat: cols */
    int64_t group_rows;     /* rows of one expert; else rows */
    bool wanted, put, flat;
} cu_weight;
struct mn_weights {
    mn_device *dev;
    const mn_graph *graph;
    /* [n_tensors]; threads that put at once share nothing else, and stage in a queue */
    cu_weight *w;
    char *data; /* of all weights that are wanted */
};

/* ---- error.c -------------------------------------------------------------------------------- */
mn_status cu_check(cudaError_t e, mn_error *err, const char *what);
/* The same of an allocation on the current device: without room, how much is free. */
mn_status cu_check_room(cudaError_t e, uint64_t bytes, mn_error *err, const char *what);
static inline void *cu_new(const mn_device *d, uint64_t bytes) { /* zeroed */
    return mnp_new(d->plugin->host, bytes);
}
static inline void cu_delete(const mn_device *d, void *p) {
    mnp_delete(d->plugin->host, p);
}
#define CU_TRY(call, err, what)                                                                    \
    do {                                                                                           \
        mn_status st_ = cu_check((call), (err), (what));                                           \
        if (st_)                                                                                   \
            return st_;                                                                            \
    } while (0)

/* ---- weights.c ------------------------------------------------------------------------------ */
/* Whether operand i of a node is a matrix, which is kept by its type; else a weight is flat. */
bool cu_is_matrix(const mn_node *n, uint32_t i);
/* Bytes on the device of a weight of the graph. */
uint64_t cu_weight_bytes(const mn_tensor *t, bool matrix);

/* ---- kv.c ----------------------------------------------------------------------------------- */
extern const mnp_kv_rules cu_kv_rules;
/* The class that a program of c runs in. */
uint32_t cu_precision(const mn_compile *c);

/* ---- memory.c ------------------------------------------------------------------------------- */
/* MN_CANCELLED after abort. */
mn_status cu_check_abort(const mn_queue *q, mn_error *err);
mn_status cu_event_new(mn_device *d, cudaStream_t s, mn_event **out, mn_error *err);
/* so many can be had without an allocation */
mn_status cu_events_reserve(mn_device *d, uint32_t n, mn_error *err);

extern const mn_backend cu_backend;
extern const mn_profile cu_profile; /* profile.c */
#endif
