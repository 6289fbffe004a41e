/* verdict.c -- which nodes run here; pure, no device work. What is true of all operations stands
 * here, the rest in the backend's rows (gpu_ops.h). */
#include "dtype.h"
#include "gpu_table.h"
#include <stdio.h>

const mng_op *mng_op_of(const mng_backend *b, uint32_t op) {
    for (uint32_t i = 0; i < b->n_ops; i++)
        if (b->ops[i]->op == op)
            return b->ops[i];
    return NULL;
}

mn_status mng_contracts(void *self, const mn_op_contract **table, uint32_t *n, uint32_t *stride) {
    const mng_plugin *p = self;
    *table = p->contracts;
    *n = p->backend->n_ops;
    *stride = sizeof **table;
    return MN_OK;
}

/* ---- reasons --------------------------------------------------------------------------------- */
static const char *const reasons[MNG_N_REASONS] = {
    [MNG_OK] = "",
    [MNG_WEIGHT_TYPE] = "a matrix of this type cannot be multiplied",
    [MNG_FLAT_TYPE] = "norm weights and biases are f32, f16 or bf16",
    [MNG_WANTS_F32] = "an operand must be f32",
    [MNG_SHAPE] = "operands do not fit together",
    [MNG_LENGTH] = "rows of weights are too long",
    [MNG_NO_KERNEL] =
        "this operation, this contract of it, or an operand or attribute of it has no kernel",
    [MNG_VIEW] = "a view of a weight or of state",
    [MNG_DISTANCES] = "a table of distances with more than 128 buckets of several distances",
};

void mng_reason_text(const mng_backend *b, uint32_t reason, char *to, size_t room) {
    const char *text = "";
    if (reason < MNG_N_REASONS && reasons[reason])
        text = reasons[reason];
    if (reason == MNG_HEAD)
        snprintf(to, room, "heads of at most %u elements", b->limits.kv.max_head_dim);
    else if (reason == MNG_EXPERTS)
        snprintf(to, room, "at most %u experts", b->limits.max_experts);
    else
        snprintf(to, room, "%s", text);
}

mn_status mng_reason(void *self, uint32_t reason, char *buf, uint32_t cap) {
    const mng_plugin *p = self;
    if (cap)
        mng_reason_text(p->backend, reason, buf, cap);
    return MN_OK;
}

/* ---- a node ---------------------------------------------------------------------------------- */
static bool is_float(uint32_t dtype) {
    return dtype == MN_F32 || dtype == MN_F16 || dtype == MN_BF16;
}

static uint32_t matrix_verdict(const mn_device *dev, const mn_tensor *t) {
    const mng_backend *b = mng_backend_of(dev);
    if (!mn_dequant_has(t->dtype.id) || t->dtype.id == MN_F64)
        return MNG_WEIGHT_TYPE;
    return b->weight_verdict ? b->weight_verdict(dev, t) : (uint32_t)MNG_OK;
}

/* What every operation asks of a weight. */
static uint32_t weight_verdict(const mn_device *dev, const mn_node *n, const mn_tensor *t,
                               uint32_t i) {
    const bool any_float = n->op == MN_OP_ATTENTION && i == MN_ATTENTION_DISTANCE_BIAS;
    const bool f32_only =
        !any_float && (n->op == MN_OP_ROPE || n->op == MN_OP_ATTENTION || n->op == MN_OP_MOE_ROUTE);
    for (uint32_t k = 0; k < t->n_dim; k++)
        if (t->dim[k] <= 0)
            return MNG_SHAPE;
    if (!t->n_dim || t->n_dim > 3)
        return MNG_SHAPE;
    if (mng_is_matrix(n, i))
        return matrix_verdict(dev, t);
    if (f32_only && t->dtype.id != MN_F32)
        return MNG_WANTS_F32;
    if (is_float(t->dtype.id))
        return MNG_OK;
    return MNG_FLAT_TYPE;
}

uint32_t mng_verdict(const mn_device *dev, const mn_graph *g, uint32_t node) {
    const mn_node *n = mnp_node(g, node);
    const mng_op *op = mng_op_of(mng_backend_of(dev), n->op);
    if (!op || n->contract > op->contract || mnp_has_more(g, n))
        return MNG_NO_KERNEL;
    const bool writes = mnp_out(g, n, 0) >= 0 || n->op == MN_OP_KV_STORE;
    if (mnp_in(g, n, 0) < 0 || !writes)
        return MNG_SHAPE;
    if (!mng_accepts_views(g, n))
        return MNG_VIEW;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const mn_tensor *t = mnp_in_tensor(g, n, i);
        uint32_t why = MNG_OK;
        if (t && t->role == MN_ROLE_WEIGHT)
            why = weight_verdict(dev, n, t, i);
        if (why)
            return why;
    }
    if (op->verdict)
        return op->verdict(dev, g, n);
    return MNG_OK;
}

typedef struct {
    const mn_device *dev;
    const mn_graph *graph;
} question;

static int32_t verdict_of(void *user, const int64_t *symbol, uint32_t node, uint32_t *reason) {
    const question *q = user;
    (void)symbol;
    *reason = mng_verdict(q->dev, q->graph, node);
    return *reason ? MN_VERDICT_NO : MN_VERDICT_NATIVE;
}

mn_status mng_supports(mn_device *dev, const mn_compile *in, mn_verdict *verdicts, uint32_t stride,
                       mn_error *err) {
    mn_compile c;
    const mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    question q = {dev, c.graph};
    return mnp_supports(mng_device_of(dev)->host, &c, verdict_of, &q, verdicts, stride, err);
}
