/* cu.h -- what the parts of the CUDA plugin share. C++ as a better C: no exceptions, no STL, no
 * constructors. */
#ifndef CU_H
#define CU_H
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <minerva/plugin.h>
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
    cu_weight *w; /* [n_tensors] */
    uint32_t kept;
};

struct cu_kv {
    uint32_t dtype; /* of keys and values */
    int64_t n_layers, n_head_kv, dim_k, dim_v, pad_k, pad_v, layer;
    uint64_t layer_bytes, page_bytes, v_offset;
};

/* ---- error.cu -------------------------------------------------------------------------------- */
mn_status cu_fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...);
mn_status cu_check(cudaError_t e, mn_error *err, const char *what);
void *cu_new(mn_device *d, uint64_t bytes); /* zeroed */
void cu_delete(mn_device *d, void *p);
/* Bytes of a T up to and with field f: what the other side must at least own. */
#define CU_UP_TO(T, f) (offsetof(T, f) + sizeof(((T *)0)->f))
#define CU_TRY(call, err, what)                                                                    \
    do {                                                                                           \
        mn_status st_ = cu_check((call), (err), (what));                                           \
        if (st_)                                                                                   \
            return st_;                                                                            \
    } while (0)

/* ---- graph access ---------------------------------------------------------------------------- */
static inline const mn_node *cu_node(const mn_graph *g, uint32_t i) {
    return (const mn_node *)((const char *)g->nodes + (uint64_t)i * g->node_stride);
}
static inline const mn_tensor *cu_tensor(const mn_graph *g, uint32_t i) {
    return (const mn_tensor *)((const char *)g->tensors + (uint64_t)i * g->tensor_stride);
}
static inline const mn_symbol *cu_symbol(const mn_graph *g, uint32_t i) {
    return (const mn_symbol *)((const char *)g->symbols + (uint64_t)i * g->symbol_stride);
}
static inline int32_t cu_in(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_in ? g->operands[n->in_off + i] : -1;
}
static inline int32_t cu_out(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_out ? g->operands[n->out_off + i] : -1;
}
static inline int64_t cu_attr(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_attr ? (int64_t)g->attrs[n->attr_off + i] : 0;
}
static inline double cu_attr_f64(const mn_graph *g, const mn_node *n, uint32_t i) {
    double v = 0;
    if (i < n->n_attr)
        memcpy(&v, &g->attrs[n->attr_off + i], 8);
    return v;
}
static inline int64_t cu_dim(const mn_graph *g, const int64_t *sym, int64_t d) {
    return d >= 0 ? d : (uint64_t)~d < g->n_symbols ? sym[~d] : -1;
}
static inline int64_t cu_round(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}
uint32_t cu_root(const mn_graph *g, uint32_t tensor);
bool cu_symbols(const mn_graph *g, const int64_t *given, const int64_t *max, int64_t *out,
                uint32_t *bad);
mn_status cu_read_compile(const mn_compile *in, mn_compile *out, mn_error *err);

/* ---- kv.cu ----------------------------------------------------------------------------------- */
mn_status cu_kv_of(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, uint32_t k_dtype,
                   uint32_t v_dtype, cu_kv *kv, mn_error *err);
int64_t cu_kv_rank(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, int64_t layer);
uint32_t cu_precision(const mn_compile *c);
/* the type of keys or values: what c says, else what the class says */
uint32_t cu_kv_dtype(uint32_t asked, uint32_t precision);

/* ---- memory.cu ------------------------------------------------------------------------------- */
mn_status cu_event_new(mn_device *d, cudaStream_t s, mn_event **out, mn_error *err);
/* so many can be had without an allocation */
mn_status cu_events_reserve(mn_device *d, uint32_t n, mn_error *err);

extern const mn_backend cu_backend;
#endif
