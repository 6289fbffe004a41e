/* cu.h -- what the parts of the CUDA plugin share. C++ as a better C: no exceptions, no STL, no
 * constructors. */
#ifndef CU_H
#define CU_H
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "units.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    CU_PAGE_TOKENS = 64,
    CU_K_ALIGN = 64 /* rows of weights are padded with zeros to this many elements */,
    CU_MAX_SEG = 4
};

struct cu_plugin {
    const mn_host *host;
    mn_plugin api;
};

struct mn_event {
    mn_device *dev;
    cudaEvent_t ev;
    mn_event *next;
};
struct mn_device {
    cu_plugin *plugin;
    int index, sms, smem_max, cc;
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
enum { CU_SEGMENTS = 32, CU_SEGMENT_BYTES = 1 << 18 };
struct mn_queue {
    mn_device *dev;
    cudaStream_t stream;
    char *ring;
    cudaEvent_t used[CU_SEGMENTS];
    bool pending[CU_SEGMENTS];
    uint32_t next;
    uint64_t read_ns, n_reads; /* host time; logged when the queue ends */
    volatile int aborted;
};

/* A weight on the device. Matrices: rows of `ld` elements. Vectors and frequencies: f32. Q8_0:
 * quants, then scales apart. */
struct cu_weight {
    char *data;
    __half *scale;
    uint32_t dtype;
    int64_t rows, cols, ld;
    bool wanted, put, vector;
};
struct mn_weights {
    mn_device *dev;
    const mn_graph *graph;
    cu_weight
        *w; /* [n_tensors]; threads that put at once share nothing else, and stage in a queue */
};

/* ---- error.cu -------------------------------------------------------------------------------- */
mn_status cu_check(cudaError_t e, mn_error *err, const char *what);
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

/* ---- kv.cu ----------------------------------------------------------------------------------- */
extern const mnp_kv_rules cu_kv_rules;
/* The class that a program of c runs in. */
uint32_t cu_precision(const mn_compile *c);

/* ---- memory.cu ------------------------------------------------------------------------------- */
mn_status cu_event_new(mn_device *d, cudaStream_t s, mn_event **out, mn_error *err);
/* so many can be had without an allocation */
mn_status cu_events_reserve(mn_device *d, uint32_t n, mn_error *err);

extern const mn_backend cu_backend;
#endif
