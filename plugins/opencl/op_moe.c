/* op_moe.c -- MOE_ROUTE and MOE_COMBINE: their operands for moe.cl. MOE_LINEAR: op_linear.c. */
#include "ops.h"

#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

static void set_groups(const mn_graph *g, const mn_node *n, ocl_route_args *a) {
    const int n_group = (int)mnp_attr(g, n, MN_MOE_ROUTE_ATTR_N_GROUP);
    const int score = (int)mnp_attr(g, n, MN_MOE_ROUTE_ATTR_GROUP_SCORE);
    if (n_group < 2)
        return;
    a->n_group = n_group;
    a->groups_used = (int)mnp_attr(g, n, MN_MOE_ROUTE_ATTR_GROUPS_USED);
    a->group_score = score ? score : 1;
}

static void route(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t logits = mnp_in(r->g, n, MN_MOE_ROUTE_LOGITS);
    const int32_t experts = mnp_out(r->g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    const double scale = mnp_attr_f64(r->g, n, MN_MOE_ROUTE_ATTR_SCALE);
    ocl_route_args a = {.scale = scale == 0 ? 1 : (float)scale};
    a.E = (int)mng_last_dim(r, logits);
    a.J = (int)mng_last_dim(r, experts);
    a.kind = (int)mnp_attr(r->g, n, MN_MOE_ROUTE_ATTR_KIND);
    a.normalise = mnp_attr(r->g, n, MN_MOE_ROUTE_ATTR_NORMALISE) != 0;
    a.jitter = (float)mnp_attr_f64(r->g, n, MN_MOE_ROUTE_ATTR_JITTER);
    set_groups(r->g, n, &a);
    const mng_ref refs[] = {mng_operand(r, logits), mng_in(r, n, MN_MOE_ROUTE_BIAS),
                            mng_operand(r, experts), mng_out(r, n, MN_MOE_ROUTE_OUT_WEIGHTS)};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_moe_route,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_groups(r, mng_dim(r, logits, 0), 1)});
}

/* Of some experts, or behind another device's sum. */
static void combine_part(mng_run *r, const mn_node *n, ocl_combine_args whole, mng_ref add,
                         mng_ref to) {
    const mn_tensor *resident = mnp_in_tensor(r->g, n, MN_MOE_COMBINE_RESIDENT);
    const ocl_part_args a = {.whole = whole, .n_experts = resident ? (int)resident->dim[0] : 0};
    const mng_ref refs[] = {mng_in(r, n, MN_MOE_COMBINE_X),
                            mng_in(r, n, MN_MOE_COMBINE_WEIGHTS),
                            mng_in(r, n, MN_MOE_COMBINE_EXPERTS),
                            mng_in(r, n, MN_MOE_COMBINE_RESIDENT),
                            mng_in(r, n, MN_MOE_COMBINE_BASE),
                            add,
                            to};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_moe_combine_part,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items((int64_t)whole.n, 1, 1)});
}

static void combine(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t x = mnp_in(r->g, n, MN_MOE_COMBINE_X);
    const int32_t y = mnp_out(r->g, n, 0);
    ocl_combine_args a = {.n = (uint64_t)mng_elements(r, y)};
    a.J = (int)mng_dim(r, x, 1);
    a.D = (int)mng_last_dim(r, x);
    mng_ref add = mng_absent(r);
    mng_ref to = mng_operand(r, y);
    if (u->add >= 0) {
        add = mng_operand(r, mng_addend(r->g, u->add, y));
        to = mng_out(r, mnp_node(r->g, (uint32_t)u->add), 0);
    }
    const bool all = mnp_in(r->g, n, MN_MOE_COMBINE_RESIDENT) < 0;
    if (!all || mnp_in(r->g, n, MN_MOE_COMBINE_BASE) >= 0) {
        combine_part(r, n, a, add, to);
        return;
    }
    const mng_ref refs[] = {mng_operand(r, x), mng_in(r, n, MN_MOE_COMBINE_WEIGHTS), add, to};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_moe_combine,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items((int64_t)a.n, 1, 1)});
}

static uint32_t route_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    if (mnp_attr(g, n, MN_MOE_ROUTE_ATTR_N_GROUP) > OCL_MAX_EXPERT_GROUPS)
        return MNG_NO_KERNEL;
    return mng_route_verdict(d, g, n);
}

const mng_op ocl_op_moe_route = {MN_OP_MOE_ROUTE, 2, route_verdict, NULL, route};
const mng_op ocl_op_moe_combine = {MN_OP_MOE_COMBINE, 3, mng_combine_verdict, NULL, combine};
