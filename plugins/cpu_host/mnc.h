/* mnc.h -- what the files of cpu_host share; no op and no plugin sees it. */
#ifndef MNC_INTERNAL_H
#define MNC_INTERNAL_H
#include "cpu_host.h"
#include <stdatomic.h>
#include <string.h>

#define MNC_ALIGN 64u
#ifndef MNC_PAGE_TOKENS /* a test's stub has others */
#define MNC_PAGE_TOKENS 64u
#endif
#define MNC_NO_PLACE UINT64_MAX
/* Bytes of a T up to and with field f: what the other side must at least own. Its sizeof may be
 * smaller or larger than ours. */
#define MNC_UP_TO(T, f) (offsetof(T, f) + sizeof(((T *)0)->f))

typedef struct {
    mn_plugin api;
    const mn_host *host;
    const mnc_ops *ops;
    void *self;
} mnc_plugin;

struct mn_event {
    uint32_t unused;
};
struct mn_device {
    mnc_plugin *plugin;
    struct mn_event done; /* everything is synchronous: one event, always over, serves all */
};
struct mn_buffer {
    mn_device *dev;
    uint8_t *ptr;
    uint64_t bytes;
    bool owned;
};
struct mn_queue {
    mn_device *dev;
    atomic_bool aborted;
};

typedef struct {
    mnc_weight w;
    void *copy, *groups;
    bool wanted, put;
} mnc_kept;
struct mn_weights {
    mn_device *dev;
    const mn_graph *graph;
    uint32_t precision, kept_how;
    uint32_t n;      /* graph->n_tensors */
    mnc_kept kept[]; /* by tensor */
};

/* One node that runs, in order. */
typedef struct {
    uint32_t node;
    mnc_op op;
    mnc_kv kv;
} mnc_step;
/* Where a tensor written in the segment lies while nobody binds it. */
typedef struct {
    uint64_t place, bytes;
    int32_t first, last;
    bool produced;
} mnc_home;

struct mn_program {
    mn_device *dev;
    const mn_graph *graph;
    const mn_weights *weights;
    uint32_t lo, hi, precision, kv_dtype, n_workers, n_steps;
    uint64_t arena_bytes, shared_bytes, worker_bytes;
    int64_t *symbol_max; /* [n_symbols] */
    mnc_step *steps;     /* [hi - lo] */
    mnc_home *homes;     /* [n_tensors] */
};

typedef struct mnc_team {
    atomic_uint arrived, generation;
    uint32_t n;
} mnc_team;

struct mn_context {
    mn_program *prog;
    mn_queue *queue;
    mnc_team team;
    atomic_uint stop_at; /* index into active after which all workers leave: queue aborted */
    int64_t *symbol;     /* [n_symbols] values that the calls are filled for */
    bool bound, filled;
    mn_binding *bindings; /* [n_tensors]; buffer NULL = not bound */
    mnc_call *calls;      /* [n_steps] */
    bool *needed;         /* [n_tensors], while binding */
    uint32_t *active;     /* [n_steps] calls to run */
    uint32_t n_active;
    uint8_t *scratch; /* arena, shared, n_workers * worker */
    uint64_t scratch_bytes;
};

/* ---- graph.c: strided access, symbols, sizes ------------------------------------------------- */
static inline const mn_node *mnc_node(const mn_graph *g, uint32_t i) {
    return (const mn_node *)((const char *)g->nodes + (uint64_t)i * g->node_stride);
}
static inline const mn_tensor *mnc_tensor(const mn_graph *g, uint32_t i) {
    return (const mn_tensor *)((const char *)g->tensors + (uint64_t)i * g->tensor_stride);
}
static inline const mn_symbol *mnc_symbol(const mn_graph *g, uint32_t i) {
    return (const mn_symbol *)((const char *)g->symbols + (uint64_t)i * g->symbol_stride);
}
/* Operand indices of a node, -1 = absent. */
static inline int32_t mnc_in(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_in ? g->operands[n->in_off + i] : -1;
}
static inline int32_t mnc_out(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_out ? g->operands[n->out_off + i] : -1;
}
int64_t mnc_dim(const mn_graph *g, const int64_t *symbol, int64_t dim);
/* Writes all values, derived ones computed; false = outside [min, max]. *bad is the symbol at
 * fault. */
bool mnc_symbols(const mn_graph *g, const int64_t *given, const int64_t *max, int64_t *out,
                 uint32_t *bad);
bool mnc_bytes(const mn_graph *g, const mn_tensor *t, const int64_t *symbol,
               uint64_t *bytes);                       /* dense; false = overflow or broken dims */
uint32_t mnc_elem_dtype(const mn_tensor *t);           /* as ops see it: FLOAT interiors are f32 */
uint32_t mnc_root(const mn_graph *g, uint32_t tensor); /* what a view is a view of */

/* ---- the parts of the table ------------------------------------------------------------------ */
/* by size; checks the segment */
mn_status mnc_read_compile(const mn_compile *in, mn_compile *out, mn_error *err);
uint32_t mnc_precision(const mn_device *d, const mn_compile *c);
mn_status mnc_kv_of(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, uint32_t kv_dtype,
                    mnc_kv *kv, mn_error *err);
uint32_t mnc_kv_dtype(const mn_compile *c, uint32_t precision);
int64_t mnc_kv_rank(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, int64_t layer);
mn_status mnc_homes(mn_program *p, mn_error *err);   /* plan.c: fills homes and arena_bytes */
bool mnc_out_may_be_absent(uint32_t op, uint32_t i); /* OPTIONAL outputs of ops.def */
bool mnc_changes_state(uint32_t op);
void mnc_facts(mn_device_info *info, const char *device_name);
extern const mn_backend mnc_backend;

mn_status mnc_device_count(void *, uint32_t *, mn_error *);
mn_status mnc_device_info(void *, uint32_t, mn_device_info *, mn_error *);
mn_status mnc_device_open(void *, uint32_t, mn_device **, mn_error *);
void mnc_device_close(mn_device *);
mn_status mnc_device_memory(mn_device *, uint64_t *, uint64_t *, mn_error *);
mn_status mnc_self_test(mn_device *, mn_error *);
mn_status mnc_contracts(void *, const uint32_t (**)[2], uint32_t *);
mn_status mnc_supports(mn_device *, const mn_graph *, const int64_t *, mn_verdict *, uint32_t,
                       mn_error *);
mn_status mnc_reason(void *, uint32_t, char *, uint32_t);
mn_status mnc_estimate(mn_device *, const mn_compile *, mn_estimate *, mn_error *);
mn_status mnc_alloc(mn_device *, uint64_t, uint32_t, mn_buffer **, mn_error *);
mn_status mnc_wrap(mn_device *, void *, uint64_t, mn_buffer **, mn_error *);
void mnc_buffer_free(mn_buffer *);
mn_status mnc_map(mn_buffer *, void **, mn_error *);
mn_status mnc_queue_create(mn_device *, mn_queue **, mn_error *);
void mnc_queue_free(mn_queue *);
mn_status mnc_write(mn_queue *, mn_buffer *, uint64_t, const void *, uint64_t, mn_error *);
mn_status mnc_read(mn_queue *, const mn_buffer *, uint64_t, mn_buffer *, uint64_t, uint64_t,
                   mn_event **, mn_error *);
mn_status mnc_copy(mn_queue *, mn_buffer *, uint64_t, const mn_buffer *, uint64_t, uint64_t,
                   mn_event **, mn_error *);
mn_status mnc_wait(mn_event *, uint64_t, mn_error *);
mn_status mnc_queue_wait(mn_queue *, mn_event *, mn_error *);
void mnc_event_free(mn_event *);
mn_status mnc_abort(mn_queue *);
mn_status mnc_weights_open(mn_device *, const mn_compile *, mn_weights **, mn_error *);
mn_status mnc_weights_put(mn_weights *, mn_queue *, const mn_weight_src *, mn_event **, mn_error *);
mn_status mnc_weights_seal(mn_weights *, mn_queue *, uint32_t *, mn_error *);
void mnc_weights_free(mn_weights *);
mn_status mnc_kv_layout(mn_device *, const mn_compile *, uint32_t, mn_kv_layout *, mn_error *);
mn_status mnc_kv_copy(mn_queue *, mn_buffer *, const mn_kv_layout *, const mn_page_copy *, uint32_t,
                      uint32_t, mn_error *);
mn_status mnc_compile(mn_device *, const mn_compile *, mn_program **, mn_error *);
void mnc_program_free(mn_program *);
mn_status mnc_program_save(const mn_program *, void *, uint64_t *);
mn_status mnc_context_create(mn_program *, mn_queue *, mn_context **, mn_error *);
mn_status mnc_context_bind(mn_context *, const mn_binding *, uint32_t, uint32_t, mn_error *);
mn_status mnc_execute(mn_context *, const int64_t *, mn_event **, mn_error *);
void mnc_context_free(mn_context *);

static inline void *mnc_new(const mn_device *d, uint64_t bytes) { /* zeroed */
    const mn_host *h = d->plugin->host;
    void *p = h->alloc(h->self, bytes ? bytes : 1, MNC_ALIGN);
    if (p)
        memset(p, 0, bytes);
    return p;
}
static inline void mnc_delete(const mn_device *d, void *p) {
    d->plugin->host->release(d->plugin->host->self, p);
}
static inline mn_status mnc_fail_memory(mn_error *err, uint64_t bytes, const char *what) {
    return mnc_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: %llu bytes for %s",
                    (unsigned long long)bytes, what);
}
#define MNC_NAME(t)                                                                                \
    (int)((t)->name.len > 200 ? 200 : (t)->name.len), (t)->name.ptr ? (t)->name.ptr : ""

#endif
