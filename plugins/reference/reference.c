/* reference.c -- the table of the oracle: a row per op, and what the plugin says of itself. SAMPLE
 * is cpu_host's own, since every CPU plugin must draw the same ids; it is plain C in double like
 * the rest. */
#include "reference.h"
#include "sampler.h"
#include <math.h>
#include <string.h>

enum { REASON_TYPE = 1, REASON_VECTOR, REASON_F32, REASON_SHAPE };
static const char *const reasons[] = {
    "",
    "the oracle does not know this weight type",
    "norm weights and biases are f32, f16 or bf16",
    "an operand must be f32",
    "operands do not fit together",
};

static uint64_t last_dim(const mnc_query *q, uint32_t in) {
    const mn_tensor *t = mnc_query_in(q, in);
    return t && t->n_dim ? (uint64_t)mnc_query_dim(q, t, t->n_dim - 1) : 0;
}
static uint64_t first_dim(const mnc_query *q, uint32_t in) {
    const mn_tensor *t = mnc_query_in(q, in);
    return t && t->n_dim ? (uint64_t)mnc_query_dim(q, t, 0) : 0;
}

/* ---- scratch of the ops that need some ------------------------------------------------------- */
static void size_embed(const mnc_query *q, mnc_op *op) {
    op->shared_bytes = first_dim(q, MN_EMBED_SRC) * sizeof(int32_t);
    op->worker_bytes = last_dim(q, MN_EMBED_WEIGHT) * sizeof(float);
}
static void size_norm(const mnc_query *q, mnc_op *op) {
    op->worker_bytes = 2 * last_dim(q, MN_RMS_NORM_X) * sizeof(float);
}
static void size_linear(const mnc_query *q, mnc_op *op) {
    for (uint32_t i = MN_LINEAR_WEIGHT; i < q->node->n_in; i += 2) {
        uint64_t bytes = (first_dim(q, i) + last_dim(q, i)) * sizeof(float);
        if (bytes > op->worker_bytes)
            op->worker_bytes = bytes;
    }
}
static void size_moe_linear(const mnc_query *q, mnc_op *op) {
    for (uint32_t i = MN_MOE_LINEAR_WEIGHT; i < q->node->n_in; i += 2) {
        const mn_tensor *t = mnc_query_in(q, i);
        uint64_t n = t && t->n_dim == 3 ? (uint64_t)t->dim[1] : 0,
                 bytes = (n + last_dim(q, i)) * sizeof(float);
        if (bytes > op->worker_bytes)
            op->worker_bytes = bytes;
    }
}
static void size_moe_route(const mnc_query *q, mnc_op *op) {
    op->worker_bytes = last_dim(q, MN_MOE_ROUTE_LOGITS) * (3 * sizeof(double) + sizeof(float));
}
static void size_attention(const mnc_query *q, mnc_op *op) {
    const mn_tensor *y = mnc_query_out(q, MN_ATTENTION_OUT_Y);
    uint64_t dim_v = y && y->n_dim == 3 ? (uint64_t)mnc_query_dim(q, y, 2) : 0;
    op->worker_bytes = (last_dim(q, MN_ATTENTION_PAGES) * 64 + dim_v) * sizeof(double);
}
static void size_sample(const mnc_query *q, mnc_op *op) {
    op->worker_bytes = mnc_sample_bytes((int64_t)last_dim(q, MN_SAMPLE_LOGITS));
}

static const struct {
    uint32_t op;
    mnc_fn fn;
    void (*size)(const mnc_query *, mnc_op *);
} table[] = {
    {MN_OP_EMBED, ref_embed, size_embed},
    {MN_OP_RMS_NORM, ref_rms_norm, size_norm},
    {MN_OP_LAYER_NORM, ref_layer_norm, size_norm},
    {MN_OP_LINEAR, ref_linear, size_linear},
    {MN_OP_ROPE, ref_rope, NULL},
    {MN_OP_KV_STORE, ref_kv_store, NULL},
    {MN_OP_ATTENTION, ref_attention, size_attention},
    {MN_OP_ACT, ref_act, NULL},
    {MN_OP_GLU, ref_glu, NULL},
    {MN_OP_ADD, ref_add, NULL},
    {MN_OP_MUL, ref_mul, NULL},
    {MN_OP_SCALE, ref_scale, NULL},
    {MN_OP_SOFTCAP, ref_softcap, NULL},
    {MN_OP_GATHER_ROWS, ref_gather_rows, NULL},
    {MN_OP_SAMPLE, mnc_op_sample, size_sample},
    {MN_OP_MOE_ROUTE, ref_moe_route, size_moe_route},
    {MN_OP_MOE_LINEAR, ref_moe_linear, size_moe_linear},
    {MN_OP_MOE_COMBINE, ref_moe_combine, NULL},
};
enum { N_OPS = sizeof table / sizeof table[0] };
static const uint32_t contracts[][2] = {
    {MN_OP_EMBED, 1},      {MN_OP_RMS_NORM, 1},    {MN_OP_LAYER_NORM, 1}, {MN_OP_LINEAR, 1},
    {MN_OP_ROPE, 1},       {MN_OP_KV_STORE, 1},    {MN_OP_ATTENTION, 1},  {MN_OP_ACT, 1},
    {MN_OP_GLU, 1},        {MN_OP_ADD, 1},         {MN_OP_MUL, 1},        {MN_OP_SCALE, 1},
    {MN_OP_SOFTCAP, 1},    {MN_OP_GATHER_ROWS, 1}, {MN_OP_SAMPLE, 1},     {MN_OP_MOE_ROUTE, 1},
    {MN_OP_MOE_LINEAR, 1}, {MN_OP_MOE_COMBINE, 1},
};

/* ---- verdicts -------------------------------------------------------------------------------- */
static bool is_vector_type(const mn_tensor *t) {
    return t->dtype.id == MN_F32 || t->dtype.id == MN_F16 || t->dtype.id == MN_BF16;
}

static uint32_t judge_weight(const mnc_query *q, uint32_t i) {
    const mn_tensor *t = mnc_query_in(q, i);
    if (!t || t->role != MN_ROLE_WEIGHT)
        return 0;
    switch (q->node->op) {
    case MN_OP_EMBED:
        if (i == MN_EMBED_POS_WEIGHT)
            return is_vector_type(t) ? 0 : REASON_VECTOR;
        return ref_has_type(t->dtype.id) ? 0 : REASON_TYPE;
    case MN_OP_MOE_LINEAR:
        if (i % 2 == 1)
            return is_vector_type(t) ? 0 : REASON_VECTOR;
        if (t->n_dim != 3)
            return REASON_SHAPE;
        return ref_has_type(t->dtype.id) ? 0 : REASON_TYPE;
    case MN_OP_LINEAR:
        if (i % 2 == 0)
            return is_vector_type(t) ? 0 : REASON_VECTOR;
        if (t->n_dim != 2 || !mnc_query_in(q, MN_LINEAR_X))
            return REASON_SHAPE;
        return ref_has_type(t->dtype.id) ? 0 : REASON_TYPE;
    case MN_OP_ROPE:
    case MN_OP_MOE_ROUTE:
    case MN_OP_ATTENTION:
        return t->dtype.id == MN_F32 ? 0 : REASON_F32;
    default:
        return is_vector_type(t) ? 0 : REASON_VECTOR;
    }
}

static bool shapes_fit(const mnc_query *q) {
    const mn_node *n = q->node;
    const mn_tensor *x = mnc_query_in(q, 0), *y = mnc_query_in(q, 1);
    if (!x || !n->n_out || !n->n_in)
        return n->op == MN_OP_KV_STORE && x;
    if (n->op == MN_OP_ROPE)
        return x->n_dim == 3 && mnc_query_in(q, MN_ROPE_FREQS);
    if (n->op == MN_OP_ATTENTION) {
        int64_t h = x->n_dim == 3 ? mnc_query_dim(q, x, 1) : 0,
                kv = n->n_attr > MN_ATTENTION_ATTR_N_HEAD_KV
                         ? (int64_t)q->graph->attrs[n->attr_off + MN_ATTENTION_ATTR_N_HEAD_KV]
                         : 0;
        return h > 0 && kv > 0 && h % kv == 0;
    }
    if (n->op == MN_OP_MOE_ROUTE)
        return n->n_out == 2 && mnc_query_out(q, 0) && mnc_query_out(q, 1);
    if (n->op == MN_OP_MOE_LINEAR)
        return y && n->n_in >= 2 * n->n_out + 1;
    if (n->op == MN_OP_MOE_COMBINE)
        return y != NULL;
    if (n->op == MN_OP_LINEAR)
        return n->n_in >= 1 + 2 * n->n_out - 1;
    return n->op != MN_OP_GLU && n->op != MN_OP_ADD && n->op != MN_OP_MUL ? true : y != NULL;
}

static int32_t verdict(void *self, const mnc_query *q, uint32_t *reason) {
    (void)self;
    *reason = 0;
    for (uint32_t i = 0; i < q->node->n_in && !*reason; i++)
        *reason = judge_weight(q, i);
    if (!*reason && !shapes_fit(q))
        *reason = REASON_SHAPE;
    return *reason ? MN_VERDICT_NO : MN_VERDICT_NATIVE;
}

static const char *reason_text(void *self, uint32_t reason) {
    (void)self;
    return reason < sizeof reasons / sizeof reasons[0] ? reasons[reason] : NULL;
}

static uint32_t precision(void *self, const mn_graph *g) {
    (void)self, (void)g;
    return MN_PRECISION_EXACT;
}

static mn_status prepare(void *self, const mnc_query *q, mnc_op *op, mn_error *err) {
    (void)self;
    for (int i = 0; i < N_OPS; i++) {
        if (table[i].op != q->node->op)
            continue;
        op->fn = table[i].fn;
        if (table[i].size)
            table[i].size(q, op);
        return MN_OK;
    }
    return mnp_fail(err, MN_UNSUPPORTED, q->index, "op %u has no row", q->node->op);
}

/* A block of each quantised type and a half, by hand. */
static mn_status self_test(void *self, mn_error *err) {
    (void)self;
    uint8_t q4[18] = {0x00, 0x3c, 0x9f}; /* d = 1; 0x9f: element 0 is 7, element 16 is 1 */
    float out[32];
    mnc_weight w = {
        .dtype = {MN_Q4_0, 32, 18, 1}, .data = q4, .rows = 1, .cols = 32, .row_bytes = 18};
    ref_row(&w, 0, out);
    if (out[0] != 7 || out[16] != 1 || mn_f32_to_f16(1.0f / 3) != 0x3555 ||
        mn_f16_to_f32(0x0001) != 0x1p-24f)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "arithmetic self-test failed");
    return MN_OK;
}

static const mnc_ops ops = {
    .id = "reference",
    .vendor = "Minerva",
    .version = MN_PLUGIN_VERSION,
    .build_id = MN_PLUGIN_VERSION " " __DATE__ " " __TIME__,
    .device_flags = MN_DEVICE_ORACLE,
    .contracts = contracts,
    .n_contracts = sizeof contracts / sizeof contracts[0],
    .verdict = verdict,
    .reason = reason_text,
    .precision = precision,
    .prepare = prepare,
    .self_test = self_test,
};

MN_PLUGIN_NOTE("reference", MN_KIND_BACKEND, "")

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mnc_plugin_entry(host, &ops, err);
}
