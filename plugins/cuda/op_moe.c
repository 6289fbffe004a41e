/* op_moe.c -- MOE_ROUTE and MOE_COMBINE: their operands for the kernels of k_moe.cu. The route
 * also sorts the pairs of token and expert, which MOE_LINEAR (op_linear.c) then finds in the
 * scratch. Of one row the norm before it runs all three: itself, the scores and the route. */
#include "ops.h"

/* ---- a router: norm, scores and route, three units in a row ---------------------------------- */
/* Whether units i to i + 2 are one, by their nodes alone. */
bool cu_is_router(const mn_program *prog, uint32_t i) {
    const mng_program *p = &prog->base;
    if (i + 2 >= p->n_units || p->precision == MN_PRECISION_EXACT)
        return false;
    const mn_graph *g = p->graph;
    const mng_unit *u = &p->units[i];
    const mn_node *norm = mnp_node(g, u->node);
    const mn_node *scores = mnp_node(g, u[1].node);
    const mn_node *route = mnp_node(g, u[2].node);
    if (norm->op != MN_OP_RMS_NORM || scores->op != MN_OP_LINEAR || route->op != MN_OP_MOE_ROUTE)
        return false;
    if (u[1].norm >= 0 || cu_epilogue_of(&u[1]) >= 0 || u[1].gather >= 0 || scores->n_out != 1)
        return false;
    if (mnp_in(g, scores, MN_LINEAR_X) != mnp_out(g, norm, 0))
        return false;
    if (mnp_in(g, route, MN_MOE_ROUTE_LOGITS) != mnp_out(g, scores, 0))
        return false;
    const mn_tensor *w = mnp_in_tensor(g, scores, MN_LINEAR_WEIGHT);
    const int64_t D = w->dim[1];
    const bool fits = D % 4 == 0 && D <= CU_ROUTER_MOST && w->dim[0] <= 32;
    const uint32_t type = w->dtype.id;
    const bool is_float = type == MN_F32 || type == MN_F16 || type == MN_BF16;
    const bool whole = mnp_in_tensor(g, norm, MN_RMS_NORM_WEIGHT)->dim[0] == D;
    return fits && is_float && whole && mnp_out_tensor(g, norm, 0)->n_dim == 2;
}

/* Whether the products behind it read y in f32, and experts that are not sorted. */
static bool reads_plain(const mng_run *r, int32_t y, int32_t experts) {
    for (uint32_t i = r->p->base.lo; i < r->p->base.hi; i++) {
        const mn_node *n = mnp_node(r->g, i);
        if (n->op != MN_OP_MOE_LINEAR || mnp_in(r->g, n, MN_MOE_LINEAR_X) != y)
            continue;
        const cu_type *type = cu_in_type(r, n, MN_MOE_LINEAR_WEIGHT);
        if (!cu_pairs_alone(type, mng_elements(r, experts)))
            return false;
    }
    return true;
}

bool cu_runs_router(const mng_run *r, uint32_t i) {
    if (!cu_rounds(r->p) || r->p->base.n_views || !cu_is_router(r->p, i))
        return false;
    const mng_unit *u = &r->p->base.units[i];
    const int32_t y = mnp_out(r->g, mnp_node(r->g, u->node), 0);
    const mn_node *route = mnp_node(r->g, u[2].node);
    if (mng_dim(r, y, 0) != 1 || cu_kind(r, y) != CU_F32)
        return false;
    return reads_plain(r, y, mnp_out(r->g, route, MN_MOE_ROUTE_OUT_EXPERTS));
}

static cu_route route_of(const mng_run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    const int32_t logits = mnp_in(g, n, MN_MOE_ROUTE_LOGITS);
    const int32_t experts = mnp_out(g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    cu_route a = {.logits = cu_f32(r, logits),
                  .bias = cu_in_flat(r, n, MN_MOE_ROUTE_BIAS),
                  .experts = cu_i32(r, experts),
                  .weights = cu_out_f32(r, n, MN_MOE_ROUTE_OUT_WEIGHTS),
                  .T = cu_dim(r, logits, 0),
                  .n = cu_last_dim(r, logits),
                  .k = cu_last_dim(r, experts),
                  .kind = cu_attr_int(g, n, MN_MOE_ROUTE_ATTR_KIND),
                  .groups_used = cu_attr_int(g, n, MN_MOE_ROUTE_ATTR_GROUPS_USED),
                  .group_score = cu_attr_int(g, n, MN_MOE_ROUTE_ATTR_GROUP_SCORE),
                  .normalise = mnp_attr(g, n, MN_MOE_ROUTE_ATTR_NORMALISE),
                  .scale = cu_attr(g, n, MN_MOE_ROUTE_ATTR_SCALE),
                  .jitter = cu_attr(g, n, MN_MOE_ROUTE_ATTR_JITTER)};
    const int n_group = cu_attr_int(g, n, MN_MOE_ROUTE_ATTR_N_GROUP);
    if (n_group > 1)
        a.n_group = n_group;
    if (!a.group_score)
        a.group_score = 1;
    return a;
}

void cu_launch_router(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *norm = mnp_node(g, u->node);
    const mn_node *scores = mnp_node(g, u[1].node);
    const mng_weight *w = cu_in_weight(r, scores, MN_LINEAR_WEIGHT);
    cu_router a = {.x = cu_in_f32(r, norm, MN_RMS_NORM_X),
                   .norm = cu_in_flat(r, norm, MN_RMS_NORM_WEIGHT),
                   .w = cu_plane(w, 0),
                   .w_dtype = cu_row_of(w)->dtype,
                   .bias = cu_in_flat(r, scores, MN_LINEAR_WEIGHT + 1),
                   .y = cu_out_f32(r, norm, 0),
                   .scores = cu_out_f32(r, scores, 0),
                   .arrived = cu_room(r, CU_NEED_ARRIVED),
                   .D = (int)w->cols,
                   .ld = (int)w->ld,
                   .eps = cu_attr(g, norm, MN_RMS_NORM_ATTR_EPS),
                   .offset = cu_attr(g, norm, MN_RMS_NORM_ATTR_OFFSET),
                   .route = route_of(r, mnp_node(g, u[2].node))};
    cu_chose(r, u->node, "router", cu_row_of(w)->name, 1);
    cu_router_run(r->step->stream, &a);
}

/* ---- the units as they are ------------------------------------------------------------------- */
/* Experts and weights of each row, and their pairs sorted into the scratch. */
static void route(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t experts = mnp_out(g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    const cu_route a = route_of(r, n);
    if (!a.T)
        return;
    const cu_sort then = cu_sort_of(r, experts, a.n);
    cu_route_run(r->step->stream, &a, &then);
    r->step->sorted = experts;
}

/* Of some experts, or behind another device's sum. */
static void combine_part(mng_run *r, const mn_node *n, const float *residual, int32_t y) {
    const int32_t x = mnp_in(r->g, n, MN_MOE_COMBINE_X);
    const mn_tensor *resident = mnp_in_tensor(r->g, n, MN_MOE_COMBINE_RESIDENT);
    const cu_combine a = {.x = cu_f32(r, x),
                          .weights = cu_in_f32(r, n, MN_MOE_COMBINE_WEIGHTS),
                          .base = cu_in_f32(r, n, MN_MOE_COMBINE_BASE),
                          .residual = residual,
                          .experts = cu_in_i32(r, n, MN_MOE_COMBINE_EXPERTS),
                          .resident = cu_in_i32(r, n, MN_MOE_COMBINE_RESIDENT),
                          .y = cu_f32(r, y),
                          .T = cu_dim(r, x, 0),
                          .k = cu_dim(r, x, 1),
                          .D = cu_dim(r, x, 2),
                          .n = resident ? (int)resident->dim[0] : 0};
    if (a.T)
        cu_moe_combine_part(r->step->stream, &a);
}

/* With cu_epilogue_of(u): the ADD behind it, whose other operand is the residual. */
static void combine(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t x = mnp_in(g, n, MN_MOE_COMBINE_X);
    int32_t y = mnp_out(g, n, 0);
    const float *residual = NULL;
    if (cu_epilogue_of(u) >= 0) {
        const mn_node *add = mnp_node(g, cu_epilogue_of(u));
        residual = cu_f32(r, mng_addend(g, cu_epilogue_of(u), y));
        y = mnp_out(g, add, 0);
    }
    const bool whole = mnp_in(g, n, MN_MOE_COMBINE_RESIDENT) < 0;
    if (!whole || mnp_in(g, n, MN_MOE_COMBINE_BASE) >= 0) {
        combine_part(r, n, residual, y);
        return;
    }
    const float *weights = cu_in_f32(r, n, MN_MOE_COMBINE_WEIGHTS);
    const int T = cu_dim(r, x, 0);
    const int k = cu_dim(r, x, 1);
    const int D = cu_dim(r, x, 2);
    if (T)
        cu_moe_combine(r->step->stream, cu_f32(r, x), weights, residual, cu_f32(r, y), T, k, D);
}

/* The sorted pairs, where each expert's begin, and the experts that have any (cu_sort_of). */
static void route_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_graph *g = p->base.graph;
    const mn_tensor *x = mnp_in_tensor(g, n, MN_MOE_ROUTE_LOGITS);
    const mn_tensor *y = mnp_out_tensor(g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    const int64_t rows = mnp_dim(g, p->base.symbol_max, y->dim[0]);
    const int64_t pairs = rows * y->dim[1];
    const int64_t words = pairs + 2 * x->dim[1] + 1; /* pairs, starts, active experts */
    mng_need(needs, CU_NEED_PAIRS, (uint64_t)words * 4);
    mng_need(needs, CU_NEED_ARRIVED, 4);
}

/* Lanes of a warp have the groups. */
static uint32_t route_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    if (mnp_attr(g, n, MN_MOE_ROUTE_ATTR_N_GROUP) > 32)
        return MNG_NO_KERNEL;
    return mng_route_verdict(d, g, n);
}

const mng_op cu_op_moe_route = {MN_OP_MOE_ROUTE, 2, route_verdict, route_needs, route};
const mng_op cu_op_moe_combine = {MN_OP_MOE_COMBINE, 3, mng_combine_verdict, NULL, combine};
