/* program.h -- a compiled segment: units of fused nodes, and where tensors lie. */
#ifndef CU_PROGRAM_H
#define CU_PROGRAM_H
#include "backend.h"
#include "kernels.h"
#include "shard.h"

/* A unit of common/patterns.c, as the launches want it. Node indices; -1 = absent. epi: an ADD or
 * GLU behind a product, an ADD behind a MOE_COMBINE. */
typedef struct {
    uint32_t node;
    int32_t gather, norm, epi, rope_q, rope_k;
    /* STORE: the unit of its ATTENTION, which takes the store in when each sequence has one row;
     * ATTENTION: the unit of that store; -1 = none */
    int32_t with;
    mnp_kv kv;
} cu_unit;

/* Bytes that kernels need beside tensors, each the largest of all nodes: 16-bit rows of x, splits
 * of attention and their counters, the same of tiles of rows, resolved ids, adjusted logits, pairs
 * sorted by expert; of products of many rows: weights in 16 bits, rows of x and y sorted by
 * expert. */
typedef struct {
    uint64_t half, partial, arrived, tile_sums, tiles_arrived, ids, logits, pairs, wide, sorted_x,
        sorted_y;
} cu_needs;

/* An exchange of a group's plan takes place before unit `unit`; n_units = behind the last. add: a
 * unit that the exchange runs, too: the addition to a sum; -1 = none. */
typedef struct {
    uint32_t unit;
    int32_t add;
} cu_stop;

static inline void cu_need(uint64_t *at_least, uint64_t bytes) {
    if (bytes > *at_least)
        *at_least = bytes;
}

struct mn_program {
    mn_device *dev;
    const mn_graph *graph;
    const cu_weight **w; /* [n_tensors] entries of the weight set; NULL where it has none */
    uint32_t lo, hi, precision, flags, n_units;
    mnp_kv_types kv_types;
    int64_t *symbol_max;
    int32_t seq_rows; /* the FACT of this name among the symbols; -1 = none */
    cu_unit *units;
    mnp_allocation *allocations; /* [n_tensors] */
    mnp_use *uses;               /* [n_tensors] */
    /* [n_tensors] CU_HALF or CU_LOW if only products of matrix units read the tensor: it is stored
     * so, if there are enough rows; else 0 */
    uint8_t *half;
    /* [n_tensors] where a view that kernels cannot read in its place is kept dense, in the scratch;
     * MNP_NOWHERE = it is none. n_views: how many there are (views.c) */
    uint64_t *dense;
    uint32_t n_views;
    /* places in the scratch */
    uint64_t arena, half_at, partial_at, arrived_at, tile_sums_at, tiles_arrived_at, ids_at,
        adjusted_at, count_at, pairs_at, wide_at, wide_bytes, sorted_x_at, sorted_y_at, gemm_at,
        scratch;
    int split, max_splits;
    /* of a member of a group (group.h): which one of which plan, and where its exchanges are */
    const mnp_shard *plan;
    uint32_t rank, n_stops;
    cu_stop *stops; /* [n_stops], in the order of the plan's exchanges */
};
/* CU_PAIRS: read by products of experts, which round from 9 pairs on; CU_ALWAYS: they always do */
enum { CU_KIND = 0x0f, CU_PAIRS = 0x40, CU_ALWAYS = 0x80 };
enum { CU_SLACK = 256 }; /* behind the scratch: kernels read whole vectors */

typedef struct {
    int64_t *symbol;
    uint32_t set;
    cudaGraphExec_t exec;
    uint64_t used;
    bool prepared;
} cu_captured;
enum { CU_MAX_CAPTURED = 128 };
struct mn_context {
    mn_program *prog;
    mn_queue *queue;
    char *scratch;
    int64_t *symbol, *keys;            /* [n_symbols], [CU_MAX_CAPTURED][n_symbols] */
    mn_binding *sets[MN_BINDING_SETS]; /* [n_tensors] each */
    bool bound[MN_BINDING_SETS];
    uint32_t set;         /* the one that is being bound or run */
    mn_binding *bindings; /* sets[set] */
    cudaStream_t capture;
    cu_captured graphs[CU_MAX_CAPTURED];
    uint32_t n_graphs;
    uint64_t clock, launch_ns, n_launches, capture_ns; /* host time */
    bool direct; /* direct: launch without graphs, an option for finding faults */
};
/* Takes the values of a step into c->symbol; what they are too large for is an error. */
mn_status cu_context_begin(mn_context *c, uint32_t set, const int64_t *values, mn_error *err);
/* The graph of c->symbol, NULL if there is none; and one that was captured for it, which is the
 * context's from now on. prepare: it gives way to others last. */
cudaGraphExec_t cu_context_find(mn_context *c, bool prepare);
void cu_context_keep(mn_context *c, cudaGraphExec_t exec, bool prepare);
/* The member of a group that a program is made for. */
typedef struct {
    const mnp_shard *plan;
    uint32_t rank;
} cu_member;
/* As estimate and compile; of: NULL = none. */
mn_status cu_estimate_as(mn_device *d, const cu_member *of, const mn_compile *c, mn_estimate *out,
                         mn_error *err);
mn_status cu_compile_as(mn_device *d, const cu_member *of, const mn_compile *c, mn_program **out,
                        mn_error *err);
/* Whether products of the class go to matrix units. */
static inline bool cu_rounds(const mn_program *p) {
    return p->precision != MN_PRECISION_EXACT && !(p->flags & MN_COMPILE_DETERMINISTIC);
}
/* Room behind what the scratch has; its place. */
uint64_t cu_reserve(mn_program *p, uint64_t bytes);
/* Checks the segment's views and places those that need it, behind all else (views.c). */
mn_status cu_place_views(mn_program *p, mn_error *err);
/* Of a member: where the exchanges are, behind the lowering pass; and what lives because of them,
 * behind the units' (group_stops.c). */
mn_status cu_find_stops(mn_program *p, mn_error *err);
void cu_stops_live(mn_program *p);
mn_status cu_launch_units(mn_context *c, const int64_t *symbol, cudaStream_t s, mn_error *err);
#endif
