/* op_linear.c -- LINEAR and MOE_LINEAR: one kernel for each weight (linear.cl). One row has a
 * kernel of its own; more go by four, so that a weight is unpacked once for four of them. */
#include "ops.h"

enum { FEW = 4, OUTPUTS_CPU = 8, OUTPUTS = 4 }; /* as in linear.cl */
#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

/* N outputs, `tiles` of rows. */
static ocl_grid grid_of(const ocl_run *r, int64_t N, int64_t tiles) {
    const int64_t outputs = r->dev->is_cpu ? OUTPUTS_CPU : OUTPUTS;
    const size_t lanes = r->dev->linear_lanes;
    const size_t groups = (size_t)((N + outputs - 1) / outputs);
    return (ocl_grid){{groups * lanes, (size_t)(outputs * tiles), 1}, {lanes, (size_t)outputs, 1}};
}

static ocl_linear_args args_of(const ocl_weight *w, int64_t N, int64_t rows) {
    ocl_linear_args a = {.w = ocl_matrix_of(w)};
    a.K = (int)w->cols;
    a.N = (int)N;
    a.rows = (int)rows;
    return a;
}

/* Product i of a node; add: what is added to it, or absent, and where the sum goes. */
static void product(ocl_run *r, const mn_node *n, uint32_t i, ocl_ref add, ocl_ref y) {
    const int32_t x = mnp_in(r->g, n, MN_LINEAR_X);
    const int32_t weight = mnp_in(r->g, n, MN_LINEAR_WEIGHT + 2 * i);
    const ocl_weight *w = ocl_weight_of(r, weight);
    const ocl_linear_args a = args_of(w, w->rows, ocl_dim(r, x, 0));
    const ocl_ref refs[] = {ocl_operand(r, x), ocl_operand(r, weight),
                            ocl_in(r, n, MN_LINEAR_BIAS + 2 * i), add, y};
    const bool one = a.rows == 1;
    ocl_enqueue(r, &(ocl_launch){.kernel = one ? OCL_KERNEL_linear_one : OCL_KERNEL_linear_few,
                                 .type = w->type,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = grid_of(r, w->rows, one ? 1 : (a.rows + FEW - 1) / FEW)});
}

static void linear(ocl_run *r, const ocl_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    if (u->add >= 0) {
        const mn_node *add = mnp_node(r->g, (uint32_t)u->add);
        const bool first = mnp_in(r->g, add, MN_ADD_A) == mnp_out(r->g, n, 0);
        product(r, n, 0, ocl_in(r, add, first ? MN_ADD_B : MN_ADD_A), ocl_out(r, add, 0));
        return;
    }
    for (uint32_t i = 0; i < n->n_out; i++)
        product(r, n, i, ocl_absent(r), ocl_out(r, n, i));
}

static void moe_linear(ocl_run *r, const ocl_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t x = mnp_in(r->g, n, MN_MOE_LINEAR_X);
    const int32_t experts = mnp_in(r->g, n, MN_MOE_LINEAR_EXPERTS);
    const int64_t pairs = ocl_elements(r, experts);
    for (uint32_t i = 0; i < n->n_out; i++) {
        const int32_t weight = mnp_in(r->g, n, MN_MOE_LINEAR_WEIGHT + 2 * i);
        const ocl_weight *w = ocl_weight_of(r, weight);
        const int64_t n_experts = mnp_tensor(r->g, (uint32_t)weight)->dim[0];
        ocl_linear_args a = args_of(w, w->rows / n_experts, pairs);
        a.n_experts = (int)n_experts;
        a.per_x = 1;
        if (mnp_tensor(r->g, (uint32_t)x)->n_dim == 2)
            a.per_x = (int)ocl_dim(r, experts, 1);
        const ocl_ref refs[] = {ocl_operand(r, x), ocl_operand(r, experts), ocl_operand(r, weight),
                                ocl_in(r, n, MN_MOE_LINEAR_BIAS + 2 * i), ocl_out(r, n, i)};
        ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_linear_experts,
                                     .type = w->type,
                                     .refs = refs,
                                     .n_refs = N_REFS(refs),
                                     .args = &a,
                                     .args_bytes = sizeof a,
                                     .grid = grid_of(r, a.N, pairs)});
    }
}

/* Elements of the operand's rows, whatever its rank; -1: a size that is a symbol. */
static int64_t row_elements(const mn_tensor *x, uint32_t from) {
    int64_t n = 1;
    for (uint32_t i = from; i < x->n_dim; i++)
        n = x->dim[i] < 0 ? -1 : n * x->dim[i];
    return n;
}

static uint32_t linear_verdict(const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_LINEAR_X);
    for (uint32_t i = 0; i < n->n_out; i++) {
        const mn_tensor *w = mnp_in_tensor(g, n, MN_LINEAR_WEIGHT + 2 * i);
        if (!w || w->n_dim != 2 || w->dim[1] != row_elements(x, 1))
            return OCL_SHAPE;
    }
    return OCL_OK;
}

static uint32_t moe_verdict(const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_MOE_LINEAR_X);
    const mn_tensor *experts = mnp_in_tensor(g, n, MN_MOE_LINEAR_EXPERTS);
    if (!experts || experts->n_dim != 2 || x->n_dim < 2 || x->n_dim > 3)
        return OCL_SHAPE;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const mn_tensor *w = mnp_in_tensor(g, n, MN_MOE_LINEAR_WEIGHT + 2 * i);
        if (!w || w->n_dim != 3 || w->dim[2] != row_elements(x, x->n_dim - 1))
            return OCL_SHAPE;
    }
    return OCL_OK;
}

const ocl_op ocl_op_linear = {MN_OP_LINEAR, 1, linear_verdict, NULL, linear};
const ocl_op ocl_op_moe_linear = {MN_OP_MOE_LINEAR, 1, moe_verdict, NULL, moe_linear};
