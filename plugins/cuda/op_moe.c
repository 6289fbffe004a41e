/* op_moe.c -- MOE_ROUTE and MOE_COMBINE: their operands for the kernels of k_moe.cu. The route
 * also sorts the pairs of token and expert, which MOE_LINEAR (op_linear.c) then finds in the
 * scratch. Of one row the norm before it runs all three: itself, the scores and the route. */
#include "ops.h"

/* ---- a router: norm, scores and route, three units in a row ---------------------------------- */
/* Whether units i to i + 2 are one, by their nodes alone. */
bool cu_is_router(const mn_program *p, uint32_t i) {
    if (i + 2 >= p->n_units || p->precision == MN_PRECISION_EXACT)
        return false;
    const mn_graph *g = p->graph;
    const cu_unit *u = &p->units[i];
    const mn_node *norm = mnp_node(g, u->node);
    const mn_node *scores = mnp_node(g, u[1].node);
    const mn_node *route = mnp_node(g, u[2].node);
    if (norm->op != MN_OP_RMS_NORM || scores->op != MN_OP_LINEAR || route->op != MN_OP_MOE_ROUTE)
        return false;
    if (u[1].norm >= 0 || u[1].epi >= 0 || u[1].gather >= 0 || scores->n_out != 1)
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
    return fits && is_float && mnp_out_tensor(g, norm, 0)->n_dim == 2;
}

/* Whether the products behind it read y in f32, and experts that are not sorted. */
static bool reads_plain(const cu_run *r, int32_t y, int32_t experts) {
    for (uint32_t i = r->p->lo; i < r->p->hi; i++) {
        const mn_node *n = mnp_node(r->g, i);
        if (n->op != MN_OP_MOE_LINEAR || mnp_in(r->g, n, MN_MOE_LINEAR_X) != y)
            continue;
        const cu_type *type = cu_weight_of(r, mnp_in(r->g, n, MN_MOE_LINEAR_WEIGHT))->type;
        if (!cu_pairs_alone(type, cu_elements(r, experts)))
            return false;
    }
    return true;
}

bool cu_runs_router(const cu_run *r, uint32_t i) {
    if (!cu_rounds(r->p) || r->p->n_views || !cu_is_router(r->p, i))
        return false;
    const cu_unit *u = &r->p->units[i];
    const int32_t y = mnp_out(r->g, mnp_node(r->g, u->node), 0);
    const mn_node *route = mnp_node(r->g, u[2].node);
    if (cu_dim(r, y, 0) != 1 || cu_kind(r, y) != CU_F32)
        return false;
    return reads_plain(r, y, mnp_out(r->g, route, MN_MOE_ROUTE_OUT_EXPERTS));
}

static cu_route route_of(const cu_run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    const int32_t logits = mnp_in(g, n, MN_MOE_ROUTE_LOGITS);
    const int32_t experts = mnp_out(g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    cu_route a = {0};
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
    return a;
}

void cu_launch_router(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *norm = mnp_node(g, u->node);
    const mn_node *scores = mnp_node(g, u[1].node);
    const cu_weight *w = cu_weight_of(r, mnp_in(g, scores, MN_LINEAR_WEIGHT));
    cu_router a = {0};
    a.x = cu_in_f32(r, norm, MN_RMS_NORM_X);
    a.norm = cu_in_flat(r, norm, MN_RMS_NORM_WEIGHT);
    a.w = w->data;
    a.w_dtype = w->type->dtype;
    a.bias = cu_in_flat(r, scores, MN_LINEAR_WEIGHT + 1);
    a.y = cu_f32(r, mnp_out(g, norm, 0));
    a.scores = cu_f32(r, mnp_out(g, scores, 0));
    a.arrived = (unsigned *)(r->c->scratch + r->p->arrived_at);
    a.D = (int)w->cols;
    a.ld = (int)w->ld;
    a.eps = (float)mnp_attr_f64(g, norm, MN_RMS_NORM_ATTR_EPS);
    a.offset = (float)mnp_attr_f64(g, norm, MN_RMS_NORM_ATTR_OFFSET);
    a.route = route_of(r, mnp_node(g, u[2].node));
    cu_chose(r, u->node, "router", w->type->name, 1);
    cu_router_run(r->s, &a);
}

/* ---- the units as they are ------------------------------------------------------------------- */
/* Experts and weights of each row, and their pairs sorted into the scratch. */
static void route(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t experts = mnp_out(g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    const cu_route a = route_of(r, n);
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
        const mn_node *add = mnp_node(g, u->epi);
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

static uint32_t route_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    (void)d;
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
    cu_need(&needs->arrived, 4);
}

static uint32_t combine_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    (void)d;
    const mn_tensor *x = mnp_in_tensor(g, n, MN_MOE_COMBINE_X);
    if (x->n_dim == 3 && mnp_in(g, n, MN_MOE_COMBINE_WEIGHTS) >= 0)
        return CU_OK;
    return CU_SHAPE;
}

const cu_op cu_op_moe_route = {MN_OP_MOE_ROUTE, 1, route_verdict, route_needs, route};
const cu_op cu_op_moe_combine = {MN_OP_MOE_COMBINE, 1, combine_verdict, NULL, combine};
