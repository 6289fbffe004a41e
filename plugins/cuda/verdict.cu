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
    const mn_node *n = mnp_node(g, node);
    const mn_tensor *x = mnp_in(g, n, 0) >= 0 ? mnp_tensor(g, mnp_in(g, n, 0)) : NULL,
                    *y = mnp_out(g, n, 0) >= 0 ? mnp_tensor(g, mnp_out(g, n, 0)) : NULL;
    if (!mnp_knows(contracts, N, n))
        return NONE;
    if (!x || (!y && n->op != MN_OP_KV_STORE))
        return SHAPE;
    for (uint32_t i = 0; i < n->n_in; i++) {
        int32_t t = mnp_in(g, n, i);
        uint32_t r = t >= 0 && mnp_tensor(g, t)->role == MN_ROLE_WEIGHT
                         ? weight(d, n, mnp_tensor(g, t), i)
                         : OK;
        if (r)
            return r;
    }
    switch (n->op) {
    case MN_OP_LINEAR:
        for (uint32_t i = 0; i < n->n_out; i++)
            if (mnp_in(g, n, MN_LINEAR_WEIGHT + 2 * i) < 0 || mnp_out(g, n, i) < 0)
                return SHAPE;
        return OK;
    case MN_OP_KV_STORE: /* a block per head */
        return x->n_dim == 3 && x->dim[1] <= 65535 ? OK : SHAPE;
    case MN_OP_ROPE:
        return x->n_dim == 3 && x->dim[2] > 0 && mnp_attr(g, n, MN_ROPE_ATTR_N_ROT) % 2 == 0
                   ? OK
                   : SHAPE;
    case MN_OP_ATTENTION: {
        int64_t kv = mnp_attr(g, n, MN_ATTENTION_ATTR_N_HEAD_KV);
        if (x->n_dim != 3 || y->n_dim != 3 || kv <= 0 || x->dim[1] <= 0 || x->dim[1] % kv)
            return SHAPE;
        return x->dim[2] > 256 || y->dim[2] > 256 ? HEAD : OK;
    }
    case MN_OP_SAMPLE:
        for (uint32_t i = MN_SAMPLE_MASK; i <= MN_SAMPLE_TARGET; i++)
            if (mnp_in(g, n, i) >= 0)
                return NONE;
        return mnp_out(g, n, MN_SAMPLE_OUT_LOGPROB) >= 0 ? NONE : OK;
    case MN_OP_EMBED:
        return mnp_in(g, n, MN_EMBED_POS_WEIGHT) >= 0 ? NONE : OK;
    case MN_OP_GLU:
        for (uint32_t i = MN_GLU_ATTR_ALPHA; i <= MN_GLU_ATTR_UP_OFFSET; i++)
            if (mnp_attr(g, n, i))
                return NONE;
        return mnp_in(g, n, 1) >= 0 ? OK : SHAPE;
    case MN_OP_ADD:
    case MN_OP_MUL:
        return mnp_in(g, n, 1) >= 0 ? OK : SHAPE;
    default:
        return OK;
    }
}

typedef struct {
    const mn_device *dev;
    const mn_graph *graph;
} asked;

static int32_t verdict_of(void *user, const int64_t *symbol, uint32_t node, uint32_t *reason) {
    const asked *a = (const asked *)user;
    (void)symbol;
    *reason = cu_verdict(a->dev, a->graph, node);
    return *reason ? MN_VERDICT_NO : MN_VERDICT_NATIVE;
}

mn_status cu_supports(mn_device *d, const mn_graph *g, const int64_t *symbol_at,
                      mn_verdict *verdicts, uint32_t stride, mn_error *err) {
    const int64_t none = 0;
    mn_compile c, ask = {};
    ask.size = sizeof ask;
    ask.graph = g;
    ask.node_hi = g->n_nodes;
    ask.symbol_max = &none;
    mn_status st = mnp_read_compile(&ask, &c, err);
    asked a = {d, g};
    if (st)
        return st;
    return mnp_supports(d->plugin->host, g, symbol_at, verdict_of, &a, verdicts, stride, err);
}
