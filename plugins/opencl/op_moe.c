/* op_moe.c -- MOE_ROUTE and MOE_COMBINE: their operands for moe.cl. MOE_LINEAR: op_linear.c. */
#include "ops.h"

#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

static void route(ocl_run *r, const ocl_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t logits = mnp_in(r->g, n, MN_MOE_ROUTE_LOGITS);
    const int32_t experts = mnp_out(r->g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    const double scale = mnp_attr_f64(r->g, n, MN_MOE_ROUTE_ATTR_SCALE);
    ocl_route_args a = {.scale = scale == 0 ? 1 : (float)scale};
    a.E = (int)ocl_last_dim(r, logits);
    a.J = (int)ocl_last_dim(r, experts);
    a.kind = (int)mnp_attr(r->g, n, MN_MOE_ROUTE_ATTR_KIND);
    a.normalise = mnp_attr(r->g, n, MN_MOE_ROUTE_ATTR_NORMALISE) != 0;
    const ocl_ref refs[] = {ocl_operand(r, logits), ocl_in(r, n, MN_MOE_ROUTE_BIAS),
                            ocl_operand(r, experts), ocl_out(r, n, MN_MOE_ROUTE_OUT_WEIGHTS)};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_moe_route,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_groups(r, ocl_dim(r, logits, 0), 1)});
}

static uint32_t route_verdict(const mn_graph *g, const mn_node *n) {
    const mn_tensor *logits = mnp_in_tensor(g, n, MN_MOE_ROUTE_LOGITS);
    const mn_tensor *experts = mnp_out_tensor(g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    if (mnp_out(g, n, MN_MOE_ROUTE_OUT_WEIGHTS) < 0)
        return OCL_SHAPE;
    if (logits->n_dim != 2 || experts->n_dim != 2 || experts->dim[1] > logits->dim[1])
        return OCL_SHAPE;
    if (logits->dim[1] > OCL_MAX_EXPERTS)
        return OCL_EXPERTS;
    return OCL_OK;
}

static void combine(ocl_run *r, const ocl_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t x = mnp_in(r->g, n, MN_MOE_COMBINE_X);
    const int32_t y = mnp_out(r->g, n, 0);
    ocl_combine_args a = {.n = (uint64_t)ocl_elements(r, y)};
    a.J = (int)ocl_dim(r, x, 1);
    a.D = (int)ocl_last_dim(r, x);
    ocl_ref add = ocl_absent(r);
    ocl_ref to = ocl_operand(r, y);
    if (u->add >= 0) {
        const mn_node *sum = mnp_node(r->g, (uint32_t)u->add);
        const bool first = mnp_in(r->g, sum, MN_ADD_A) == y;
        add = ocl_in(r, sum, first ? MN_ADD_B : MN_ADD_A);
        to = ocl_out(r, sum, 0);
    }
    const ocl_ref refs[] = {ocl_operand(r, x), ocl_in(r, n, MN_MOE_COMBINE_WEIGHTS), add, to};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_moe_combine,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items((int64_t)a.n, 1, 1)});
}

static uint32_t combine_verdict(const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_MOE_COMBINE_X);
    if (x->n_dim == 3 && mnp_in(g, n, MN_MOE_COMBINE_WEIGHTS) >= 0)
        return OCL_OK;
    return OCL_SHAPE;
}

const ocl_op ocl_op_moe_route = {MN_OP_MOE_ROUTE, 1, route_verdict, NULL, route};
const ocl_op ocl_op_moe_combine = {MN_OP_MOE_COMBINE, 1, combine_verdict, NULL, combine};
