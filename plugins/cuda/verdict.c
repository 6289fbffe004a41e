/* verdict.c -- which nodes run here; pure, no device work. What is true of all operations stands
 * here, the rest in their rows (ops.h). */
#include "ops.h"
#include "dtype.h"

static const char *const reasons[CU_N_REASONS] = {
    [CU_OK] = "",
    [CU_WEIGHT_TYPE] = "a matrix of this type cannot be multiplied",
    [CU_FLAT_TYPE] = "norm weights and biases are f32, f16 or bf16",
    [CU_WANTS_F32] = "an operand must be f32",
    [CU_SHAPE] = "operands do not fit together",
    [CU_HEAD] = "heads of at most 256 elements",
    [CU_LENGTH] = "rows of weights are too long",
    [CU_NO_KERNEL] = "this operation has no kernel",
    [CU_EXPERTS] = "at most 1,024 experts",
    [CU_VIEW] = "a view of a weight or of state",
};

mn_status cu_contracts(void *self, const uint32_t (**table)[2], uint32_t *n) {
    static uint32_t contracts[64][2];
    (void)self;
    for (uint32_t i = 0; i < cu_n_ops; i++) { /* the same values whoever comes first */
        contracts[i][0] = cu_ops[i]->op;
        contracts[i][1] = cu_ops[i]->contract;
    }
    *table = (const uint32_t(*)[2])contracts;
    *n = cu_n_ops;
    return MN_OK;
}

const char *cu_reason_text(uint32_t r) {
    if (r < CU_N_REASONS)
        return reasons[r];
    return "";
}

mn_status cu_reason(void *self, uint32_t reason, char *buf, uint32_t cap) {
    (void)self;
    if (cap)
        snprintf(buf, cap, "%s", cu_reason_text(reason));
    return MN_OK;
}

static bool is_float(uint32_t dtype) {
    return dtype == MN_F32 || dtype == MN_F16 || dtype == MN_BF16;
}

/* What every operation asks of a weight. */
static uint32_t weight_verdict(const mn_node *n, const mn_tensor *t, uint32_t i) {
    const bool f32_only =
        n->op == MN_OP_ROPE || n->op == MN_OP_ATTENTION || n->op == MN_OP_MOE_ROUTE;
    for (uint32_t k = 0; k < t->n_dim; k++) {
        if (t->dim[k] <= 0)
            return CU_SHAPE;
    }
    if (!t->n_dim || t->n_dim > 3)
        return CU_SHAPE;
    if (cu_is_matrix(n, i)) {
        const bool known = mn_dequant_has(t->dtype.id) && t->dtype.id != MN_F64;
        if (known)
            return CU_OK;
        return CU_WEIGHT_TYPE;
    }
    if (f32_only)
        return t->dtype.id == MN_F32 ? CU_OK : CU_WANTS_F32;
    if (is_float(t->dtype.id))
        return CU_OK;
    return CU_FLAT_TYPE;
}

static bool is_kept(const mn_tensor *t) {
    return t->role == MN_ROLE_WEIGHT || t->role == MN_ROLE_STATE;
}

/* Views of activations are read in their place or copied (views.c); of nothing else. */
static bool views_kept(const mn_graph *g, const mn_node *n) {
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        const int32_t t = mnp_operand(g, n, i);
        if (t < 0 || mnp_root(g, t) == (uint32_t)t)
            continue;
        const mn_tensor *root = mnp_tensor(g, mnp_root(g, t));
        if (is_kept(root) || is_kept(mnp_tensor(g, t)))
            return true;
    }
    return false;
}

uint32_t cu_verdict(const mn_device *d, const mn_graph *g, uint32_t node) {
    const mn_node *n = mnp_node(g, node);
    const cu_op *op = cu_op_of(n->op);
    if (!op || n->contract > op->contract)
        return CU_NO_KERNEL;
    const bool writes = mnp_out(g, n, 0) >= 0 || n->op == MN_OP_KV_STORE;
    if (mnp_in(g, n, 0) < 0 || !writes)
        return CU_SHAPE;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const mn_tensor *t = mnp_in_tensor(g, n, i);
        const bool weight = t && t->role == MN_ROLE_WEIGHT;
        const uint32_t why = weight ? weight_verdict(n, t, i) : (uint32_t)CU_OK;
        if (why)
            return why;
    }
    if (views_kept(g, n))
        return CU_VIEW;
    if (op->verdict)
        return op->verdict(d, g, n);
    return (uint32_t)CU_OK;
}

typedef struct {
    const mn_device *dev;
    const mn_graph *graph;
} question;

static int32_t verdict_of(void *user, const int64_t *symbol, uint32_t node, uint32_t *reason) {
    const question *q = user;
    (void)symbol;
    *reason = cu_verdict(q->dev, q->graph, node);
    if (*reason)
        return MN_VERDICT_NO;
    return MN_VERDICT_NATIVE;
}

mn_status cu_supports(mn_device *d, const mn_graph *g, const int64_t *symbol_at,
                      mn_verdict *verdicts, uint32_t stride, mn_error *err) {
    const int64_t none = 0;
    mn_compile c;
    mn_compile ask = {0};
    ask.size = sizeof ask;
    ask.graph = g;
    ask.node_hi = g->n_nodes;
    ask.symbol_max = &none;
    mn_status st = mnp_read_compile(&ask, &c, err);
    question q = {d, g};
    if (st)
        return st;
    return mnp_supports(d->plugin->host, g, symbol_at, verdict_of, &q, verdicts, stride, err);
}
