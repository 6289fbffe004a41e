/* op_moe.cu -- MOE_ROUTE and MOE_COMBINE: their operands for the kernels of k_moe.cu. The route
 * also sorts the pairs of token and expert, which MOE_LINEAR (op_linear.cu) then finds in the
 * scratch. */
#include "ops.h"

/* Experts and weights of each row, and their pairs sorted into the scratch. */
static void route(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t logits = mnp_in(g, n, MN_MOE_ROUTE_LOGITS);
    const int32_t experts = mnp_out(g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    cu_route a = {};
    a.logits = cu_f32(r, logits);
    a.bias = cu_in_flat(r, n, MN_MOE_ROUTE_BIAS);
    a.experts = cu_i32(r, experts);
    a.weights = cu_f32(r, mnp_out(g, n, MN_MOE_ROUTE_OUT_WEIGHTS));
    a.T = (int)cu_dim(r, logits, 0);
    a.n = (int)cu_last_dim(r, logits);
    a.k = (int)cu_last_dim(r, experts);
    a.kind = (int)mnp_attr(g, n, MN_MOE_ROUTE_ATTR_KIND);
    a.normalise = mnp_attr(g, n, MN_MOE_ROUTE_ATTR_NORMALISE);
    a.scale = (float)mnp_attr_f64(g, n, MN_MOE_ROUTE_ATTR_SCALE);
    if (!a.T)
        return;
    const cu_sort then = cu_sort_of(r, experts, a.n);
    cu_route_run(r->s, &a, &then);
    r->sorted = experts;
}

/* With u->epi: the ADD behind it, whose other operand is the residual. */
static void combine(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t x = mnp_in(g, n, MN_MOE_COMBINE_X);
    int32_t y = mnp_out(g, n, 0);
    const float *residual = NULL;
    if (u->epi >= 0) {
        const mn_node *add = mnp_node(g, (uint32_t)u->epi);
        const int32_t a = mnp_in(g, add, MN_ADD_A);
        residual = cu_f32(r, a == y ? mnp_in(g, add, MN_ADD_B) : a);
        y = mnp_out(g, add, 0);
    }
    const float *weights = cu_in_f32(r, n, MN_MOE_COMBINE_WEIGHTS);
    const int T = (int)cu_dim(r, x, 0);
    const int k = (int)cu_dim(r, x, 1);
    const int D = (int)cu_dim(r, x, 2);
    if (T)
        cu_moe_combine(r->s, cu_f32(r, x), weights, residual, cu_f32(r, y), T, k, D);
}

static uint32_t route_verdict(const mn_device *, const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_MOE_ROUTE_LOGITS);
    if (x->n_dim != 2 || mnp_out(g, n, MN_MOE_ROUTE_OUT_WEIGHTS) < 0)
        return CU_SHAPE;
    if (x->dim[1] > 1024)
        return CU_EXPERTS;
    return CU_OK;
}

/* The sorted pairs, where each expert's begin, and the experts that have any (cu_sort_of). */
static void route_needs(const mn_program *p, const mn_node *n, cu_needs *needs) {
    const mn_graph *g = p->graph;
    const mn_tensor *x = mnp_in_tensor(g, n, MN_MOE_ROUTE_LOGITS);
    const mn_tensor *y = mnp_out_tensor(g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    const int64_t rows = mnp_dim(g, p->symbol_max, y->dim[0]);
    const int64_t pairs = rows * y->dim[1];
    const int64_t words = pairs + 2 * x->dim[1] + 1; /* pairs, starts, active experts */
    cu_need(&needs->pairs, (uint64_t)words * 4);
}

static uint32_t combine_verdict(const mn_device *, const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_MOE_COMBINE_X);
    if (x->n_dim == 3 && mnp_in(g, n, MN_MOE_COMBINE_WEIGHTS) >= 0)
        return CU_OK;
    return CU_SHAPE;
}

extern const cu_op cu_op_moe_route = {MN_OP_MOE_ROUTE, 1, route_verdict, route_needs, route};
extern const cu_op cu_op_moe_combine = {MN_OP_MOE_COMBINE, 1, combine_verdict, NULL, combine};
