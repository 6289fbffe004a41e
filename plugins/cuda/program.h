/* program.h -- what CUDA adds to gpu_host's programs and contexts: tensors that are kept in 16
 * bits, splits of attention, the exchanges of a group's member; captured graphs. */
#ifndef CU_PROGRAM_H
#define CU_PROGRAM_H
#include "cu.h"
#include "gpu_table.h"
#include "shard.h"

/* Bytes that kernels need beside tensors, each the largest of all nodes: 16-bit rows of x, splits
 * of attention and their counters, the same of tiles of rows, resolved ids, adjusted logits and how
 * often each was drawn, pairs sorted by expert; of products of many rows: weights in 16 bits, rows
 * of x and y sorted by expert, partial sums; chunks of recurrences; of products of heads: x and y
 * without what is passed on, their pairs. */
enum {
    CU_NEED_HALF,
    CU_NEED_PARTIAL,
    CU_NEED_ARRIVED,
    CU_NEED_TILE_SUMS,
    CU_NEED_TILES_ARRIVED,
    CU_NEED_IDS,
    CU_NEED_LORA,
    CU_NEED_ADJUSTED,
    CU_NEED_COUNT,
    CU_NEED_PAIRS,
    CU_NEED_WIDE,
    CU_NEED_SORTED_X,
    CU_NEED_SORTED_Y,
    CU_NEED_GEMM,
    CU_NEED_CHUNKS,
    CU_NEED_HEADS_X,
    CU_NEED_HEADS_Y,
    CU_NEED_HEADS,
    CU_N_NEEDS
};
_Static_assert((int)CU_N_NEEDS <= (int)MNG_MAX_NEEDS, "needs of a program");

/* An exchange of a group's plan takes place before unit `unit`; n_units = behind the last. add: a
 * unit that the exchange runs, too: the addition to a sum; -1 = none. */
typedef struct {
    uint32_t unit;
    int32_t add;
} cu_stop;

/* The `with` of a unit: STORE: the unit of its ATTENTION, which takes the store in when each
 * sequence has one row; ATTENTION: the unit of that store. */
struct mn_program {
    mng_program base;
    int32_t seq_rows; /* the FACT of this name among the symbols; -1 = none */
    /* [n_tensors] CU_HALF or CU_LOW if only products of matrix units read the tensor: it is stored
     * so, if there are enough rows; else 0 */
    uint8_t *half;
    int split, max_splits;
    /* of a member of a group (group.h): which one of which plan, and where its exchanges are */
    const mnp_shard *plan;
    uint32_t rank, n_stops;
    cu_stop *stops; /* [n_stops], in the order of the plan's exchanges */
};
/* CU_PAIRS: read by products of experts, which round from 9 pairs on; CU_ALWAYS: they always do */
enum { CU_KIND = 0x0f, CU_PAIRS = 0x40, CU_ALWAYS = 0x80 };
/* Whether products of the class go to matrix units. */
static inline bool cu_rounds(const mn_program *p) {
    return p->base.precision != MN_PRECISION_EXACT && !(p->base.flags & MN_COMPILE_DETERMINISTIC);
}
/* What runs behind the unit's own node: an ADD or GLU behind a product, an ADD behind a
 * MOE_COMBINE; -1 = nothing. */
static inline int32_t cu_epilogue_of(const mng_unit *u) {
    return u->add >= 0 ? u->add : u->glu;
}
static inline const mn_node *cu_epilogue(const mn_graph *g, const mng_unit *u) {
    const int32_t node = cu_epilogue_of(u);
    if (node < 0)
        return NULL;
    return mnp_node(g, node);
}
/* The member of a group that a program is made for: what mng_compile_as passes on. */
typedef struct {
    const mnp_shard *plan;
    uint32_t rank;
} cu_member;
/* Of a member: where the exchanges are, behind the lowering pass; and what lives because of them,
 * behind the units' (group_stops.c). */
mn_status cu_find_stops(mn_program *p, mn_error *err);
void cu_stops_live(mn_program *p);

/* ---- a step under way, and contexts ---------------------------------------------------------- */
struct mng_step {
    cudaStream_t stream;
    /* EXPERTS tensor whose pairs the scratch holds sorted; -1 = none */
    int32_t sorted;
    /* tensor whose rows the scratch holds in 16 bits, and how; -1 = none */
    int32_t rounded, rounded_kind;
    uint32_t last; /* the unit launched before; UINT32_MAX = none */
    /* whether this launch lets its successor start before older work is over, or its predecessor
     * did: see cu_linear.late, cu_attend.early */
    bool late, early;
};

typedef struct {
    int64_t *symbol;
    uint32_t set;
    cudaGraphExec_t exec;
    uint64_t used;
    bool prepared;
} cu_captured;
enum { CU_MAX_CAPTURED = 128 };
struct mn_context {
    mng_context base;
    mng_step step;
    cudaStream_t stream; /* where the next run goes: `capture`, or that of the queue */
    cudaStream_t capture;
    int64_t *keys; /* [CU_MAX_CAPTURED][n_symbols] */
    cu_captured graphs[CU_MAX_CAPTURED];
    uint32_t n_graphs;
    uint64_t clock, launch_ns, n_launches, capture_ns; /* host time */
    bool direct; /* launch without graphs, an option for finding faults */
};
/* The graph of c->symbol, NULL if there is none; and one that was captured for it, which is the
 * context's from now on. prepare: it gives way to others last. */
cudaGraphExec_t cu_graph_find(mn_context *c, bool prepare);
void cu_graph_keep(mn_context *c, cudaGraphExec_t exec, bool prepare);

/* ---- hooks, by file; contracts: gpu_host.h --------------------------------------------------- */
/* program.c */
uint32_t cu_precision(const mn_compile *);
const mnp_pattern *const *cu_patterns(const mn_device *, uint32_t *);
mn_status cu_program_begin(mn_program *, const mn_compile *, const void *, mn_error *);
void cu_program_uses(mn_program *);
mn_status cu_program_lowered(mn_program *, const mnp_unit *, mn_error *);
void cu_program_live(mn_program *, uint32_t);
void cu_program_needs(mn_program *, mng_needs *);
void cu_program_free(mn_program *);
void cu_estimate(const mn_program *, double, mn_estimate *);
/* graphs.c */
mn_status cu_context_open(mn_context *, mn_error *);
void cu_context_close(mn_context *);
void cu_context_rebind(mn_context *, uint32_t);
mn_status cu_step(mn_context *, bool, mn_error *);
/* launch.c */
void cu_run_begin(mng_run *);
bool cu_is_absorbed(const mng_run *, uint32_t);
void cu_unit_begin(mng_run *, uint32_t);
void cu_unit_end(mng_run *, uint32_t, bool);
uint32_t cu_unit_nodes(const mng_run *, const mng_unit *, int32_t *, uint32_t);
void cu_copy_view_of(mng_run *, const mng_view *);
#endif
