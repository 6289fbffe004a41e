/* reference.c -- the oracle: verdicts from the table of its operations, and what the plugin says of
 * itself. An operation is a file of its own that exports a ref_op; REF_OPS of reference.h lists
 * them. */
#include "reference.h"
#include <math.h>
#include <string.h>

static const char *const reasons[] = {
    "",
    "the oracle does not know this weight type",
    "norm weights and biases are f32, f16 or bf16",
    "an operand must be f32",
    "operands do not fit together",
};

#define CONTRACT(OP, name, contract) {MN_OP_##OP, contract},
#define POINTER(OP, name, contract) &ref_op_##name,
static const mn_op_contract contracts[] = {REF_OPS(CONTRACT)};
static const ref_op *const table[] = {REF_OPS(POINTER)};
enum { N_OPS = sizeof table / sizeof table[0] };

/* The row of MN_OP_* op; NULL: the oracle lacks it. */
static const ref_op *ref_find(uint32_t op) {
    for (int i = 0; i < N_OPS; i++)
        if (contracts[i].op == op)
            return table[i];
    return NULL;
}

/* ---- for the operations' own size, weight and fits ------------------------------------------- */
uint64_t ref_last_dim(const mnc_query *q, uint32_t in) {
    const mn_tensor *t = mnc_query_in(q, in);
    if (t && t->n_dim)
        return (uint64_t)mnc_query_dim(q, t, t->n_dim - 1);
    return 0;
}

uint64_t ref_first_dim(const mnc_query *q, uint32_t in) {
    const mn_tensor *t = mnc_query_in(q, in);
    if (t && t->n_dim)
        return (uint64_t)mnc_query_dim(q, t, 0);
    return 0;
}

uint32_t ref_vector(const mn_tensor *t) {
    const uint32_t id = t->dtype.id;
    if (id == MN_F32)
        return 0;
    if (id == MN_F16)
        return 0;
    if (id == MN_BF16)
        return 0;
    return REF_NO_VECTOR;
}

uint32_t ref_f32(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    (void)q;
    (void)i;
    if (t->dtype.id == MN_F32)
        return 0;
    return REF_NO_F32;
}

bool ref_has_second(const mnc_query *q) {
    return mnc_query_in(q, 1) != NULL;
}

/* ---- verdicts -------------------------------------------------------------------------------- */
/* REF_NO_*, or 0 if operand i of the node will do. */
static uint32_t judge_weight(const ref_op *o, const mnc_query *q, uint32_t i) {
    const mn_tensor *t = mnc_query_in(q, i);
    if (!t || t->role != MN_ROLE_WEIGHT)
        return 0;
    if (o->weight)
        return o->weight(q, i, t);
    return ref_vector(t);
}

/* REF_NO_*, or 0 if the node can be computed. */
static uint32_t ref_judge(const mnc_query *q) {
    const ref_op *o = ref_find(q->node->op);
    if (!o)
        return REF_NO_SHAPE;
    for (uint32_t i = 0; i < q->node->n_in; i++) {
        const uint32_t reason = judge_weight(o, q, i);
        if (reason)
            return reason;
    }
    if (!mnc_query_in(q, 0) || (o->fits && !o->fits(q)))
        return REF_NO_SHAPE;
    const bool needs_output = q->node->op != MN_OP_KV_STORE;
    if (needs_output && !q->node->n_out)
        return REF_NO_SHAPE;
    return 0;
}

static int32_t verdict(void *self, const mnc_query *q, uint32_t *reason) {
    (void)self;
    *reason = ref_judge(q);
    if (*reason)
        return MN_VERDICT_NO;
    return MN_VERDICT_NATIVE;
}

static const char *reason_text(void *self, uint32_t reason) {
    (void)self;
    if (reason < sizeof reasons / sizeof reasons[0])
        return reasons[reason];
    return NULL;
}

static uint32_t precision(void *self, const mn_graph *g) {
    (void)self;
    (void)g;
    return MN_PRECISION_EXACT;
}

static mn_status prepare(void *self, const mnc_query *q, mnc_op *op, mn_error *err) {
    (void)self;
    const ref_op *o = ref_find(q->node->op);
    if (!o)
        return mnp_fail(err, MN_UNSUPPORTED, q->index, "op %u has no row", q->node->op);
    op->first = o->first;
    op->fn = o->fn;
    if (o->size)
        o->size(q, op);
    return MN_OK;
}

/* A block of each quantised type and a half, by hand. */
static mn_status self_test(void *self, mn_error *err) {
    (void)self;
    uint8_t q4[18] = {0x00, 0x3c, 0x9f}; /* d = 1; 0x9f: element 0 is 7, element 16 is 1 */
    float out[32];
    mnc_weight w = {
        .dtype = {MN_Q4_0, 32, 18, 1}, .data = q4, .rows = 1, .cols = 32, .row_bytes = 18};
    ref_row(&w, 0, out);
    const bool unpacks = out[0] == 7 && out[16] == 1;
    const bool rounds = mn_f32_to_f16(1.0f / 3) == 0x3555;
    const bool has_subnormals = mn_f16_to_f32(0x0001) == 0x1p-24f;
    if (!unpacks || !rounds || !has_subnormals)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "arithmetic self-test failed");
    return MN_OK;
}

static const mnc_ops ops = {
    .id = "reference",
    .vendor = "Minerva",
    .version = MN_PLUGIN_VERSION,
    .device_flags = MN_DEVICE_ORACLE,
    .state_cols = {.ssm_scan = 1}, /* as in docs/ops.md */
    .contracts = contracts,
    .n_contracts = N_OPS,
    .verdict = verdict,
    .reason = reason_text,
    .precision = precision,
    .prepare = prepare,
    .self_test = self_test,
};

MN_PLUGIN_NOTE("reference", MN_KIND_BACKEND, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mnc_plugin_entry(host, &ops, err);
}
