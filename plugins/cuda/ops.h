/* ops.h -- the table of operations: one row per operation of docs/ops.md with what this plugin can
 * do of it, what memory it needs beside its tensors, and how it is launched. Contracts, verdicts
 * and sizes follow from the rows (verdict.c, program.c). A row lies in the file of its family,
 * op_*.cu.
 *
 * Launch functions run once for each combination of symbol values, when a step is captured: what
 * they choose (a kernel for so many rows) holds for all steps with these values. */
#ifndef CU_OPS_H
#define CU_OPS_H
#include "program.h"
#include "types.h"

typedef struct cu_run cu_run;

/* Why a node does not run here; the texts are in verdict.c. */
enum {
    CU_OK,
    CU_WEIGHT_TYPE,
    CU_FLAT_TYPE,
    CU_WANTS_F32,
    CU_SHAPE,
    CU_HEAD,
    CU_LENGTH,
    CU_NO_KERNEL,
    CU_EXPERTS,
    CU_VIEW,
    CU_N_REASONS
};

typedef struct {
    uint32_t op, contract;
    /* beyond what is true of all: operands there, weights of types that can be kept; NULL =
     * nothing */
    uint32_t (*verdict)(const mn_device *d, const mn_graph *g, const mn_node *n);
    /* raises what the program needs for this node; NULL = nothing */
    void (*needs)(const mn_program *p, const mn_node *n, cu_needs *needs);
    void (*launch)(cu_run *r, const cu_unit *u);
} cu_op;
const cu_op *cu_op_of(uint32_t op); /* NULL = none */
extern const cu_op *const cu_ops[];
extern const uint32_t cu_n_ops;

/* A launch under way. */
struct cu_run {
    mn_context *c;
    const mn_program *p;
    const mn_graph *g;
    mn_device *dev;
    const int64_t *sym;
    cudaStream_t s;
    /* EXPERTS tensor whose pairs the scratch holds sorted; -1 = none */
    int32_t sorted;
    /* tensor whose rows the scratch holds in 16 bits, and how; -1 = none */
    int32_t rounded, rounded_kind;
    /* whether this launch lets its successor start before older work is over, or its predecessor
     * did: see cu_linear.late, cu_attend.early */
    bool late, early;
};

/* ---- launches (launch.c; cu_is_joined: op_cache.c) ----------------------------------------- */
cu_run cu_run_of(mn_context *c, const int64_t *symbol, cudaStream_t s);
/* Whether in this step the attention of a STORE and of an ATTENTION unit runs both. */
bool cu_is_joined(const cu_run *r, const cu_unit *u);
/* Unit i is a store that its attention runs, or a part of a router that its norm runs. */
bool cu_is_absorbed(const cu_run *r, uint32_t i);
/* Whether unit i is the norm of a router, with the scores and the route behind it: of their nodes;
 * and whether in this step one kernel runs the three (op_moe.c). */
bool cu_is_router(const mn_program *p, uint32_t i);
bool cu_runs_router(const cu_run *r, uint32_t i);
void cu_launch_router(cu_run *r, const cu_unit *u);
/* The nodes of a unit in the order of their names; with the store that an attention runs in this
 * step, and what a router's norm runs. Their number. */
enum { CU_UNIT_NODES = 9 };
int cu_nodes_of(const cu_run *r, const cu_unit *u, int32_t *nodes);
/* Copies the views that a unit reads (in) or wrote, between what they view and their dense places;
 * false = there is none (views.c). */
bool cu_copy_views(const cu_run *r, const cu_unit *u, bool in);
/* last: the unit launched before, or UINT32_MAX. */
mn_status cu_launch_unit(cu_run *r, uint32_t i, uint32_t last, mn_error *err);
/* Units [from, to) but those that others run. *last: as above; it is kept. */
mn_status cu_launch_some(cu_run *r, uint32_t from, uint32_t to, uint32_t *last, mn_error *err);

/* ---- operands in this step (operands.c) ----------------------------------------------------- */
/* Where a tensor lies; NULL = absent or not bound. */
void *cu_ptr(const cu_run *r, int32_t t);
static inline float *cu_f32(const cu_run *r, int32_t t) {
    return cu_ptr(r, t);
}
static inline int32_t *cu_i32(const cu_run *r, int32_t t) {
    return cu_ptr(r, t);
}
/* 1 where the tensor has no such dim. */
int64_t cu_dim(const cu_run *r, int32_t t, uint32_t i);
int64_t cu_last_dim(const cu_run *r, int32_t t);
int64_t cu_elements(const cu_run *r, int32_t t);
static inline const cu_weight *cu_weight_of(const cu_run *r, int32_t t) {
    return t < 0 ? NULL : r->p->w[t];
}
/* A flat weight; NULL = absent. */
static inline const float *cu_flat(const cu_run *r, int32_t t) {
    return t < 0 ? NULL : (const float *)r->p->w[t]->data;
}
/* The same of input i of a node. */
static inline float *cu_in_f32(const cu_run *r, const mn_node *n, uint32_t i) {
    return cu_f32(r, mnp_in(r->g, n, i));
}
static inline int32_t *cu_in_i32(const cu_run *r, const mn_node *n, uint32_t i) {
    return cu_i32(r, mnp_in(r->g, n, i));
}
static inline const float *cu_in_flat(const cu_run *r, const mn_node *n, uint32_t i) {
    return cu_flat(r, mnp_in(r->g, n, i));
}
static inline cu_planes cu_planes_of(const cu_weight *w) {
    return (cu_planes){{w->plane[0], w->plane[1], w->plane[2], w->plane[3]}};
}
/* SLOTS or PARAMS: rows lie 4 * dim[1] bytes apart. */
cu_rows cu_rows_of(const cu_run *r, int32_t t);
/* How the rows of a tensor lie in this step: CU_F32, CU_HALF, CU_LOW. */
int cu_kind(const cu_run *r, int32_t t);
/* The attributes of a GLU. */
cu_glu cu_glu_attrs(const mn_graph *g, const mn_node *n);
/* Whether so few pairs are products of one row each (one_row.cuh), of x in f32, without sorting. */
static inline bool cu_pairs_alone(const cu_type *t, int64_t pairs) {
    return t->import && pairs <= 8;
}
/* How the pairs of an EXPERTS tensor are to be sorted; places in the scratch. */
cu_sort cu_sort_of(const cu_run *r, int32_t experts, int n_experts);
/* Says at level debug which kernel was chosen for a node. */
void cu_chose(const cu_run *r, uint32_t node, const char *kernel, const char *type, int64_t rows);
#endif
