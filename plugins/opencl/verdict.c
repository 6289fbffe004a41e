/* verdict.c -- which nodes run here; pure, no device work. What is true of all operations stands
 * here, the rest in their rows (ops.h). */
#include "dtype.h"
#include "ops.h"

static const char *const reasons[OCL_N_REASONS] = {
    [OCL_OK] = "",
    [OCL_WEIGHT_TYPE] = "a matrix of this type cannot be multiplied",
    [OCL_FLAT_TYPE] = "norm weights and biases are f32, f16 or bf16",
    [OCL_WANTS_F32] = "an operand must be f32",
    [OCL_SHAPE] = "operands do not fit together",
    [OCL_HEAD] = "heads of at most 512 elements",
    [OCL_NO_KERNEL] = "this operation, or this contract of it, has no kernel",
    [OCL_EXPERTS] = "at most 1,024 experts",
    [OCL_VIEW] = "a view of a weight or of state",
};

mn_status ocl_contracts(void *self, const uint32_t (**table)[2], uint32_t *n) {
    static uint32_t contracts[64][2];
    (void)self;
    for (uint32_t i = 0; i < ocl_n_ops; i++) { /* the same values whoever comes first */
        contracts[i][0] = ocl_ops[i]->op;
        contracts[i][1] = ocl_ops[i]->contract;
    }
    *table = (const uint32_t(*)[2])contracts;
    *n = ocl_n_ops;
    return MN_OK;
}

const char *ocl_reason_text(uint32_t r) {
    if (r < OCL_N_REASONS)
        return reasons[r];
    return "";
}

mn_status ocl_reason(void *self, uint32_t reason, char *buf, uint32_t cap) {
    (void)self;
    if (cap)
        snprintf(buf, cap, "%s", ocl_reason_text(reason));
    return MN_OK;
}

static bool is_float(uint32_t dtype) {
    return dtype == MN_F32 || dtype == MN_F16 || dtype == MN_BF16;
}

/* What every operation asks of a weight. */
static uint32_t weight_verdict(const mn_node *n, const mn_tensor *t, uint32_t i) {
    const bool f32_only =
        n->op == MN_OP_ROPE || n->op == MN_OP_ATTENTION || n->op == MN_OP_MOE_ROUTE;
    for (uint32_t k = 0; k < t->n_dim; k++)
        if (t->dim[k] <= 0)
            return OCL_SHAPE;
    if (!t->n_dim || t->n_dim > 3)
        return OCL_SHAPE;
    if (ocl_is_matrix(n, i)) {
        const bool known = mn_dequant_has(t->dtype.id) && t->dtype.id != MN_F64;
        if (known)
            return OCL_OK;
        return OCL_WEIGHT_TYPE;
    }
    if (f32_only && t->dtype.id != MN_F32)
        return OCL_WANTS_F32;
    if (is_float(t->dtype.id))
        return OCL_OK;
    return OCL_FLAT_TYPE;
}

uint32_t ocl_verdict(const mn_graph *g, uint32_t node) {
    const mn_node *n = mnp_node(g, node);
    const ocl_op *op = ocl_op_of(n->op);
    if (!op || n->contract > op->contract)
        return OCL_NO_KERNEL;
    const bool writes = mnp_out(g, n, 0) >= 0 || n->op == MN_OP_KV_STORE;
    if (mnp_in(g, n, 0) < 0 || !writes)
        return OCL_SHAPE;
    if (!ocl_takes_views(g, n))
        return OCL_VIEW;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const mn_tensor *t = mnp_in_tensor(g, n, i);
        uint32_t why = OCL_OK;
        if (t && t->role == MN_ROLE_WEIGHT)
            why = weight_verdict(n, t, i);
        if (why)
            return why;
    }
    if (op->verdict)
        return op->verdict(g, n);
    return OCL_OK;
}

static int32_t verdict_of(void *user, const int64_t *symbol, uint32_t node, uint32_t *reason) {
    const mn_graph *g = user;
    (void)symbol;
    *reason = ocl_verdict(g, node);
    if (*reason)
        return MN_VERDICT_NO;
    return MN_VERDICT_NATIVE;
}

mn_status ocl_supports(mn_device *d, const mn_graph *g, const int64_t *symbol_at,
                       mn_verdict *verdicts, uint32_t stride, mn_error *err) {
    const int64_t none = 0;
    mn_compile c;
    mn_compile ask = {.size = sizeof ask, .graph = g, .node_hi = g->n_nodes, .symbol_max = &none};
    const mn_status st = mnp_read_compile(&ask, &c, err);
    if (st)
        return st;
    return mnp_supports(d->plugin->host, g, symbol_at, verdict_of, (void *)(uintptr_t)g, verdicts,
                        stride, err);
}
