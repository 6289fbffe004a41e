/* cpu_host.h -- the parts of mn_backend that both CPU plugins share: host memory as device memory,
 * synchronous queues, weight sets, KV pages, programs whose steps run inside one call of the host's
 * thread pool. A plugin supplies facts, verdicts and one function per op (mnc_ops). Uses plugin.h
 * and plugins/common alone. Prefix mnc_ = CPU host. */
#ifndef MNC_CPU_HOST_H
#define MNC_CPU_HOST_H
#include "common.h"

#define MNC_MAX_IN 32
#define MNC_MAX_OUT 16

/* A plane beside DATA: the value of block b of row r is at mnc_extra_row(...) + b * step. data
 * NULL = there is none. 2^row_shift rows (counted from the beginning of a group) share a row of
 * values. */
typedef struct {
    const uint8_t *data;
    const uint8_t *const *groups; /* as in mnc_weight */
    uint64_t row_bytes, step;     /* 0: one value for all rows, for all blocks of a row */
    uint32_t dtype;
    uint32_t row_shift;
} mnc_extra;

/* A weight as the ops see it: in the mapped file where its rows are dense, else copied once into
 * one block. */
typedef struct {
    mn_dtype dtype;
    const void *data;   /* row-major blocks of the DATA plane; NULL only with groups */
    int64_t rows, cols; /* [N, K]; experts [E, N, K] have E * N rows; a vector has rows 1 */
    uint64_t row_bytes;
    /* experts, or parts that lie apart: where the rows [g * group_rows, ...) begin; NULL = one
         * block */
    const uint8_t *const *groups;
    int64_t group_rows;
    mnc_extra scale;
    mnc_extra bias;
    mnc_extra tensor_scale;
    mnc_extra pick;
    void *repacked; /* what mnc_ops.repack made, or NULL */
} mnc_weight;
static inline const uint8_t *mnc_row(const mnc_weight *w, int64_t r) {
    return w->groups ? w->groups[r / w->group_rows] + (uint64_t)(r % w->group_rows) * w->row_bytes
                     : (const uint8_t *)w->data + (uint64_t)r * w->row_bytes;
}
static inline const uint8_t *mnc_extra_row(const mnc_weight *w, const mnc_extra *x, int64_t r) {
    return x->groups ? x->groups[r / w->group_rows] +
                           (uint64_t)(r % w->group_rows >> x->row_shift) * x->row_bytes
                     : x->data + (uint64_t)(r >> x->row_shift) * x->row_bytes;
}
/* Expert e of [E, N, K] as a matrix [N, K]; not for a repacked weight. */
mnc_weight mnc_expert(const mnc_weight *w, int64_t e);

/* An operand in one execution. absent: ptr == NULL && weight == NULL. */
typedef struct {
    /* inputs, outputs, states, interiors: dense row-major; f32 for FLOAT, as declared otherwise */
    void *ptr;
    const mnc_weight *weight; /* role weight */
    int64_t dim[MN_MAX_DIM];  /* with the step's symbol values */
    uint32_t n_dim;
    uint32_t dtype;
    int64_t rows, cols; /* dim[0] and the product of the rest */
} mnc_operand;

/* The KV pages of one group: page p at base + p * geo.page_bytes, this node's layer in it at
 * geo.layer * geo.layer_bytes. Rows of heads are dense. */
typedef struct {
    mnp_kv geo;
    const int32_t *pages;       /* [n_slots, max_pages] */
    int64_t max_pages, n_pages; /* pages per slot; in the buffer */
    uint8_t *base;
} mnc_kv;

/* The states of one group (mnp_state), this node's layer in them. */
typedef struct {
    mnp_state geo;
    const int32_t *pages; /* STATES [n_slots, 2] */
    int64_t n_pages;      /* in the buffer */
    uint8_t *base;
} mnc_states;

/* One node in one execution, the same for all parts. */
typedef struct mnc_call mnc_call;
struct mnc_call {
    const mn_node *node;
    mnc_operand in[MNC_MAX_IN];
    mnc_operand out[MNC_MAX_OUT];
    const uint64_t *attr;
    uint32_t n_attr;
    mnc_kv kv;         /* KV_STORE and ATTENTION */
    mnc_states states; /* CONV_STATE, SSM_SCAN and GATED_DELTA */
    void *user;        /* from mnc_op.user */
    /* mnc_op.shared_bytes of scratch, 64-byte aligned, the same for all parts, this node's
         * during the node */
    void *shared;
    int64_t max_rows; /* symbol_max of the leading dimension: what scratch was sized for */
    /* Of nodes with mnc_op.takes: the call before, if it computes operand 0 and nothing else, for
     * this call alone. Else NULL */
    const mnc_call *maker;
};

/* Part i of n of a stage of a node, at work. Parts run in any order, at the same time or one after
 * the other: none waits for another. */
typedef struct {
    uint32_t i;
    uint32_t n;
    uint32_t n_threads; /* that may be at work */
    /* Above 1: the rows of each weight lie on so many memory nodes; the parts [k * n / n_nodes, (k
     * + 1) * n / n_nodes) compute the rows of node k. */
    uint32_t n_nodes;
    void *scratch;   /* mnc_op.worker_bytes, 64-byte aligned, this part's while it runs */
    uint32_t thread; /* that runs the part, below n_threads */
    bool again;      /* this thread has run a part of this phase before */
    /* In a phase of several stages: the part is the units [unit_lo, unit_hi), of n_units equal
     * ones, of each of the rows [row_lo, row_hi); i and n do not matter then. */
    bool in_cells;
    int64_t row_lo;
    int64_t row_hi;
    int64_t unit_lo;
    int64_t unit_hi;
    int64_t n_units;
} mnc_worker;
/* this part's share, in multiples of grain */
void mnc_range(const mnc_worker *w, int64_t total, int64_t grain, int64_t *lo, int64_t *hi);
/* As above, for MNC_GUIDED * n_threads parts that are taken in order: the first are large, so that
 * there are few, the last small, so that all threads end at about the same time. With several
 * nodes, the same on each. */
#define MNC_GUIDED 4u
void mnc_range_guided(const mnc_worker *w, int64_t total, int64_t grain, int64_t *lo, int64_t *hi);
/* Elements [lo, hi), and n - 1 times the same `step` further on. */
typedef struct {
    int64_t lo;
    int64_t hi;
    int64_t step;
    int64_t n;
} mnc_spans;
static inline void mnc_next_span(mnc_spans *s) {
    s->lo += s->step;
    s->hi += s->step;
    s->n--;
}
/* Of [rows, cols] elements: in cells those of this part's units, else its share in multiples of
 * grain. What a stage of mnc_op.in_cells shares its work out with, or with these two. */
mnc_spans mnc_range_cells(const mnc_worker *w, int64_t rows, int64_t cols, int64_t grain);
/* Of all rows; of the n things of a row, a multiple of n_units. */
void mnc_range_rows(const mnc_worker *w, int64_t rows, int64_t *lo, int64_t *hi);
void mnc_range_units(const mnc_worker *w, int64_t n, int64_t *lo, int64_t *hi);
/* The weight of an optional operand; NULL: the node lacks it. */
static inline const mnc_weight *mnc_optional(const mnc_call *c, uint32_t in) {
    return in < c->node->n_in ? c->in[in].weight : NULL;
}
int64_t mnc_attr_int(const mnc_call *c, uint32_t i); /* missing = 0 */
double mnc_attr_f64(const mnc_call *c, uint32_t i);
/* K [Hkv, page_tokens, Dk] of a page, this node's layer */
static inline uint8_t *mnc_kv_k(const mnc_kv *kv, int32_t page) {
    return kv->base + (uint64_t)page * kv->geo.page_bytes +
           (uint64_t)kv->geo.layer * kv->geo.layer_bytes;
}
static inline uint8_t *mnc_kv_v(const mnc_kv *kv, int32_t page) {
    return mnc_kv_k(kv, page) + kv->geo.v_offset;
}
/* The node's layer of the state that a slot begins the step with (NULL: zeros), and of the one that
 * it leaves behind (NULL: it has none, and no rows). */
static inline const float *mnc_state_from(const mnc_states *s, int32_t slot) {
    const int32_t page = s->pages[2 * (int64_t)slot];
    if (page < 0)
        return NULL;
    return (const float *)(s->base + (uint64_t)page * s->geo.page_bytes + s->geo.layer_at);
}
static inline float *mnc_state_to(const mnc_states *s, int32_t slot) {
    const int32_t page = s->pages[2 * (int64_t)slot + 1];
    if (page < 0)
        return NULL;
    return (float *)(s->base + (uint64_t)page * s->geo.page_bytes + s->geo.layer_at);
}

/* Row `slot` of SLOTS or PARAMS: rows lie 4 * dim[1] bytes apart. */
static inline void *mnc_row_of(const mnc_operand *rows, int32_t slot) {
    return (int32_t *)rows->ptr + (int64_t)slot * rows->dim[1];
}

typedef void (*mnc_fn)(const mnc_call *c, mnc_worker *w);
enum { MNC_FIRST, MNC_MAIN };
/* What a stage of the node is in this execution. */
typedef struct {
    int64_t ns;    /* of one thread, roughly */
    int64_t units; /* that it can be cut into; 0: the stage is left out */
} mnc_work;
typedef mnc_work (*mnc_work_fn)(const mnc_call *c, uint32_t stage, uint32_t n_threads);
typedef int64_t (*mnc_cells_fn)(const mnc_call *c, uint32_t stage);
typedef bool (*mnc_now_fn)(const mnc_call *c, uint32_t n_threads);
typedef bool (*mnc_takes_fn)(const mnc_call *c);
/* Parts of some work for so many threads: no more than units, nor than mnc_range_guided knows, and
 * none of less than a microsecond or two, for which a part would cost more than it brings. 0: it
 * is left out. */
uint32_t mnc_parts(mnc_work work, uint32_t n_threads);

/* What prepare decides for a node, once per program. A node is one or two stages: all parts of
 * first are done before a part of fn begins. */
typedef struct {
    mnc_fn first; /* NULL: only fn */
    mnc_fn fn;
    /* Asked when the phases before are over. NULL: a part for each thread */
    mnc_work_fn work;
    /* Bits 1 << stage of stages that may be shared out in cells, which are the rows of operand 0
     * (dim 0), each in equal units of its elements: what they write of a cell depends on nothing
     * but the same cell of operands with as many rows, or on what no stage of the phase writes.
     * Consecutive ones run as one phase, cell by cell, also first and fn of one node. */
    uint32_t in_cells;
    /* Of those, stages that read all units of their rows and take all rows at once: they begin a
     * phase. */
    uint32_t begins;
    /* Into how many units a row can be cut at most, with these shapes; it can be cut into divisors
     * of that, too. 0: the stage is shared out otherwise. NULL: 1 */
    mnc_cells_fn cells;
    /* Whether it is in cells with the values that operands have now, when the phase before is over;
     * NULL: yes */
    mnc_now_fn now;
    /* Whether the node does in this execution what its maker would do, which then does not run:
     * first reads operand 0 of the maker instead of its own, which it fills. NULL: no */
    mnc_takes_fn takes;
    void *user; /* static data, or memory of the host's that is released with the program: */
    bool owns_user;
    uint64_t worker_bytes;
    uint64_t shared_bytes;
} mnc_op;

/* What prepare and verdict look at: shapes with symbols at their maximum, dtypes of weights. */
typedef struct {
    const mn_graph *graph;
    const mn_node *node;
    uint32_t index;        /* of the node */
    const int64_t *symbol; /* [n_symbols] values at hand (maximum or asked for) */
    uint32_t precision;
    uint32_t n_workers;
} mnc_query;
const mn_tensor *mnc_query_in(const mnc_query *q, uint32_t i); /* NULL = absent */
const mn_tensor *mnc_query_out(const mnc_query *q, uint32_t i);
int64_t mnc_query_dim(const mnc_query *q, const mn_tensor *t, uint32_t i); /* with symbols */
int64_t mnc_query_attr(const mnc_query *q, uint32_t i); /* an integer; missing = 0 */

/* The plugin. All functions: any thread, no state but `self`. */
typedef struct mnc_ops {
    /* device_name NULL: the CPU's model name */
    const char *id;
    const char *vendor;
    const char *version;
    const char *device_name;
    uint64_t device_flags; /* added to UNIFIED | WRAPS */
    const mn_op_contract *contracts;
    uint32_t n_contracts;
    /* at entry; reads options; no heavy work */
    mn_status (*init)(const mn_host *host, void **self, mn_error *err);
    void (*fini)(const mn_host *host, void *self);
    int32_t (*verdict)(void *self, const mnc_query *q, uint32_t *reason); /* MN_VERDICT_* */
    const char *(*reason)(void *self, uint32_t reason);
    uint32_t (*precision)(void *self, const mn_graph *g); /* the class for AUTO */
    mn_status (*prepare)(void *self, const mnc_query *q, mnc_op *op, mn_error *err);
    /* optional: a second layout of LINEAR's matrices [rows, cols], which its products read beside
     * the stored one. Its bytes in a precision; 0: there is none */
    uint64_t (*repacked_bytes)(void *self, uint32_t dtype, int64_t rows, int64_t cols,
                               uint32_t precision);
    /* Makes it; to is 64-byte aligned. false: this weight is read as it is stored. */
    bool (*repack)(void *self, const mnc_weight *w, uint8_t *to);
    mn_status (*self_test)(void *self, mn_error *err); /* optional */
    double (*gbps)(void *self);                        /* optional claims */
    mnp_state_cols state_cols;                         /* how states lie in pages */
    bool has_numa; /* the option numa says where weights and caches lie (numa.h) */
} mnc_ops;

/* The body of minerva_plugin_entry. */
const mn_plugin *mnc_plugin_entry(const mn_host *host, const mnc_ops *ops, mn_error *err);

#endif
