/* ops.h -- launches of the CUDA plugin: its rows of the table of operations (a row lies in the file
 * of its family, op_*.c), what one unit runs of others, and operands as kernels want them. */
#ifndef CU_OPS_H
#define CU_OPS_H
#include "program.h"

/* clang-format off */
#define CU_OPS(X)                                                                                  \
    X(embed) X(rms_norm) X(layer_norm) X(linear) X(rope) X(kv_store) X(attention) X(act) X(glu)    \
    X(add) X(mul) X(scale) X(softcap) X(gather_rows) X(sample) X(moe_route) X(moe_linear)          \
    X(moe_combine) X(conv_state) X(ssm_scan) X(gated_delta) X(lookup) X(lora)
/* clang-format on */
#define CU_OP_(name) CU_OP_##name,
enum { CU_OPS(CU_OP_) CU_N_OPS };
extern const mng_op *const cu_ops[CU_N_OPS];

/* ---- units that run others (launch.c; cu_is_joined: op_cache.c) ------------------------------ */
/* Whether in this step the attention of a STORE and of an ATTENTION unit runs both. */
bool cu_is_joined(const mng_run *r, const mng_unit *u);
/* Whether unit i is the norm of a router, with the scores and the route behind it: of their nodes;
 * and whether in this step one kernel runs the three (op_moe.c). */
bool cu_is_router(const mn_program *p, uint32_t i);
bool cu_runs_router(const mng_run *r, uint32_t i);
void cu_launch_router(mng_run *r, const mng_unit *u);
static inline uint32_t cu_index_of(const mng_run *r, const mng_unit *u) {
    return (uint32_t)(u - r->p->base.units);
}
/* Units [from, to) but those that others run. */
mn_status cu_launch_some(mng_run *r, uint32_t from, uint32_t to, mn_error *err);

/* ---- operands in this step (operands.c) ------------------------------------------------------ */
/* Where a tensor lies; NULL = absent or not bound. */
void *cu_ptr(const mng_run *r, int32_t t);
/* The place of a CU_NEED_*. */
static inline void *cu_room(const mng_run *r, uint32_t need) {
    const mng_ref at = mng_needed(r, need);
    return (char *)at.mem + at.at;
}
static inline float *cu_f32(const mng_run *r, int32_t t) {
    return cu_ptr(r, t);
}
static inline int32_t *cu_i32(const mng_run *r, int32_t t) {
    return cu_ptr(r, t);
}
/* A flat weight; NULL = absent. */
static inline const float *cu_flat(const mng_run *r, int32_t t) {
    return cu_ptr(r, t);
}
/* The same of input i of a node. */
static inline float *cu_in_f32(const mng_run *r, const mn_node *n, uint32_t i) {
    return cu_ptr(r, mnp_in(r->g, n, i));
}
static inline int32_t *cu_in_i32(const mng_run *r, const mn_node *n, uint32_t i) {
    return cu_ptr(r, mnp_in(r->g, n, i));
}
static inline const float *cu_in_flat(const mng_run *r, const mn_node *n, uint32_t i) {
    return cu_ptr(r, mnp_in(r->g, n, i));
}
static inline void *cu_in_ptr(const mng_run *r, const mn_node *n, uint32_t i) {
    return cu_ptr(r, mnp_in(r->g, n, i));
}
static inline const mng_weight *cu_in_weight(const mng_run *r, const mn_node *n, uint32_t i) {
    return mng_weight_of(r, mnp_in(r->g, n, i));
}
static inline const cu_type *cu_in_type(const mng_run *r, const mn_node *n, uint32_t i) {
    return cu_row_of(cu_in_weight(r, n, i));
}
static inline float *cu_out_f32(const mng_run *r, const mn_node *n, uint32_t i) {
    return cu_ptr(r, mnp_out(r->g, n, i));
}
static inline int32_t *cu_out_i32(const mng_run *r, const mn_node *n, uint32_t i) {
    return cu_ptr(r, mnp_out(r->g, n, i));
}
/* Sizes and attributes as kernels have them. */
static inline int cu_dim(const mng_run *r, int32_t t, uint32_t i) {
    return (int)mng_dim(r, t, i);
}
static inline int cu_last_dim(const mng_run *r, int32_t t) {
    return (int)mng_last_dim(r, t);
}
static inline int cu_elements(const mng_run *r, int32_t t) {
    return (int)mng_elements(r, t);
}
static inline int cu_in_dim(const mng_run *r, const mn_node *n, uint32_t i, uint32_t d) {
    return cu_dim(r, mnp_in(r->g, n, i), d);
}
static inline float cu_attr(const mn_graph *g, const mn_node *n, uint32_t i) {
    return (float)mnp_attr_f64(g, n, i);
}
static inline int cu_attr_int(const mn_graph *g, const mn_node *n, uint32_t i) {
    return (int)mnp_attr(g, n, i);
}
/* SLOTS or PARAMS: rows lie 4 * dim[1] bytes apart. */
cu_rows cu_rows_of(const mng_run *r, int32_t t);
static inline cu_rows cu_in_rows(const mng_run *r, const mn_node *n, uint32_t i) {
    return cu_rows_of(r, mnp_in(r->g, n, i));
}
/* How the rows of a tensor lie in this step: CU_F32, CU_HALF, CU_LOW. */
int cu_kind(const mng_run *r, int32_t t);
/* The attributes of a GLU. */
cu_glu cu_glu_attrs(const mn_graph *g, const mn_node *n);
/* Whether so few pairs are products of one row each (one_row.cuh), of x in f32, without sorting. */
static inline bool cu_pairs_alone(const cu_type *t, int64_t pairs) {
    return t->import && pairs <= 8;
}
/* How the pairs of an EXPERTS tensor are to be sorted; places in the scratch. */
cu_sort cu_sort_of(const mng_run *r, int32_t experts, int n_experts);
/* Says at level debug which kernel was chosen for a node. */
void cu_chose(const mng_run *r, uint32_t node, const char *kernel, const char *type, int64_t rows);
#endif
