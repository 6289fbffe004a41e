/* verdict.cu -- which nodes run here; pure, no device work. */
#include "backend.h"
#include "kernels.h"

static const char *const reasons[] = {
    "",
    "weight type is not one of f32, f16, bf16, q8_0",
    "norm weights and biases are f32, f16 or bf16",
    "an operand must be f32",
    "operands do not fit together",
    "heads of at most 256 elements",
    "rows of weights are too long",
    "this operation has no kernel",
};
enum { OK, TYPE, VECTOR, F32, SHAPE, HEAD, LENGTH, NONE };

static const uint32_t contracts[][2] = {
    {MN_OP_EMBED, 1},   {MN_OP_RMS_NORM, 1},    {MN_OP_LAYER_NORM, 1}, {MN_OP_LINEAR, 1},
    {MN_OP_ROPE, 1},    {MN_OP_KV_STORE, 1},    {MN_OP_ATTENTION, 1},  {MN_OP_ACT, 1},
    {MN_OP_GLU, 1},     {MN_OP_ADD, 1},         {MN_OP_MUL, 1},        {MN_OP_SCALE, 1},
    {MN_OP_SOFTCAP, 1}, {MN_OP_GATHER_ROWS, 1}, {MN_OP_SAMPLE, 2},
};
enum { N = sizeof contracts / sizeof contracts[0] };

mn_status cu_contracts(void *self, const uint32_t (**table)[2], uint32_t *n) {
    (void)self;
    *table = contracts, *n = N;
    return MN_OK;
}

const char *cu_reason_text(uint32_t r) {
    return r < sizeof reasons / sizeof *reasons ? reasons[r] : "";
}
mn_status cu_reason(void *self, uint32_t reason, char *buf, uint32_t cap) {
    (void)self;
    if (cap)
        snprintf(buf, cap, "%s", cu_reason_text(reason));
    return MN_OK;
}

static bool matrix_type(const mn_tensor *t) {
    return t->dtype.id == MN_F32 || t->dtype.id == MN_F16 || t->dtype.id == MN_BF16 ||
           t->dtype.id == MN_Q8_0;
}
static bool vector_type(const mn_tensor *t) {
    return t->dtype.id == MN_F32 || t->dtype.id == MN_F16 || t->dtype.id == MN_BF16;
}

static uint32_t weight(const mn_device *d, const mn_node *n, const mn_tensor *t, uint32_t i) {
    bool table = n->op == MN_OP_EMBED || (n->op == MN_OP_LINEAR && i % 2 == 1);
    if (table) {
        if (t->n_dim != 2 || t->dim[0] <= 0 || t->dim[1] <= 0 || t->dim[0] > 1 << 30)
            return SHAPE;
        if (!matrix_type(t))
            return TYPE;
        return n->op == MN_OP_LINEAR && !cu_gemv_fits(d, t->dim[1]) ? LENGTH : OK;
    }
    if (t->n_dim != 1)
        return SHAPE;
    if (n->op == MN_OP_ROPE || n->op == MN_OP_ATTENTION)
        return t->dtype.id == MN_F32 ? OK : F32;
    return vector_type(t) ? OK : VECTOR;
}

uint32_t cu_verdict(const mn_device *d, const mn_graph *g, uint32_t node) {
    const mn_node *n = cu_node(g, node);
    const mn_tensor *x = cu_in(g, n, 0) >= 0 ? cu_tensor(g, cu_in(g, n, 0)) : NULL,
                    *y = cu_out(g, n, 0) >= 0 ? cu_tensor(g, cu_out(g, n, 0)) : NULL;
    bool known = false;
    for (int i = 0; i < N; i++)
        known |= contracts[i][0] == n->op && n->contract <= contracts[i][1];
    if (!known)
        return NONE;
    if (!x || (!y && n->op != MN_OP_KV_STORE))
        return SHAPE;
    for (uint32_t i = 0; i < n->n_in; i++) {
        int32_t t = cu_in(g, n, i);
        uint32_t r = t >= 0 && cu_tensor(g, t)->role == MN_ROLE_WEIGHT
                         ? weight(d, n, cu_tensor(g, t), i)
                         : OK;
        if (r)
            return r;
    }
    switch (n->op) {
    case MN_OP_LINEAR:
        return n->n_in < 2 * n->n_out ? SHAPE : OK;
    case MN_OP_ROPE:
        return x->n_dim == 3 && x->dim[2] > 0 && cu_attr(g, n, MN_ROPE_ATTR_N_ROT) % 2 == 0 ? OK
                                                                                            : SHAPE;
    case MN_OP_ATTENTION: {
        int64_t kv = cu_attr(g, n, MN_ATTENTION_ATTR_N_HEAD_KV);
        if (x->n_dim != 3 || y->n_dim != 3 || kv <= 0 || x->dim[1] <= 0 || x->dim[1] % kv)
            return SHAPE;
        return x->dim[2] > 256 || y->dim[2] > 256 ? HEAD : OK;
    }
    case MN_OP_SAMPLE:
        for (uint32_t i = MN_SAMPLE_MASK; i <= MN_SAMPLE_TARGET; i++)
            if (cu_in(g, n, i) >= 0)
                return NONE;
        return cu_out(g, n, MN_SAMPLE_OUT_LOGPROB) >= 0 ? NONE : OK;
    case MN_OP_EMBED:
        return cu_in(g, n, MN_EMBED_POS_WEIGHT) >= 0 ? NONE : OK;
    case MN_OP_GLU:
        for (uint32_t i = MN_GLU_ATTR_ALPHA; i <= MN_GLU_ATTR_UP_OFFSET; i++)
            if (cu_attr(g, n, i))
                return NONE;
        return cu_in(g, n, 1) >= 0 ? OK : SHAPE;
    case MN_OP_ADD:
    case MN_OP_MUL:
        return cu_in(g, n, 1) >= 0 ? OK : SHAPE;
    default:
        return OK;
    }
}

mn_status cu_supports(mn_device *d, const mn_graph *g, const int64_t *symbol_at,
                      mn_verdict *verdicts, uint32_t stride, mn_error *err) {
    int64_t none = 0;
    mn_compile c, ask = {};
    ask.size = sizeof ask, ask.graph = g, ask.node_hi = g->n_nodes,
    ask.symbol_max = symbol_at ? symbol_at : &none;
    mn_status s = cu_read_compile(&ask, &c, err);
    if (s)
        return s;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        mn_verdict v = {};
        v.reason = cu_verdict(d, g, i);
        v.verdict = v.reason ? MN_VERDICT_NO : MN_VERDICT_NATIVE;
        memcpy((char *)verdicts + (uint64_t)i * stride, &v, stride < sizeof v ? stride : sizeof v);
    }
    return MN_OK;
}
