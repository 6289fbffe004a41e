/* verdict.c -- the loop of supports: a backend says what it thinks of one node; and what a node has
 * that no backend of this version knows. Holds nothing. */
#include "common.h"

/* How much plugin.h has of each operation: one more than its last operand and attribute. Of those
 * that repeat a group of weight and bias: what stands before the groups. */
static const struct {
    uint32_t n_in, n_out, n_attr;
    bool repeats; /* 2 inputs and an output for each group */
} op_sizes[] = {
    [MN_OP_EMBED] = {MN_EMBED_ROWS + 1, MN_EMBED_OUT_ROW_POS + 1, MN_EMBED_ATTR_SCALE + 1, 0},
    [MN_OP_RMS_NORM] = {MN_RMS_NORM_WEIGHT + 1, 1, MN_RMS_NORM_ATTR_OFFSET + 1, 0},
    [MN_OP_LAYER_NORM] = {MN_LAYER_NORM_BIAS + 1, 1, MN_LAYER_NORM_ATTR_EPS + 1, 0},
    [MN_OP_LINEAR] = {MN_LINEAR_WEIGHT, 0, 0, 1},
    [MN_OP_ROPE] = {MN_ROPE_AXES + 1, 1, MN_ROPE_ATTR_MSCALE + 1, 0},
    [MN_OP_KV_STORE] = {MN_KV_STORE_KV + 1, 0, MN_KV_STORE_ATTR_GROUP + 1, 0},
    [MN_OP_ATTENTION] = {MN_ATTENTION_RELATIVE_Q + 1, 1, MN_ATTENTION_ATTR_MAX_DISTANCE + 1, 0},
    [MN_OP_ACT] = {1, 1, MN_ACT_ATTR_EPS + 1, 0},
    [MN_OP_GLU] = {MN_GLU_UP + 1, 1, MN_GLU_ATTR_UP_OFFSET + 1, 0},
    [MN_OP_ADD] = {MN_ADD_B + 1, 1, 0, 0},
    [MN_OP_MUL] = {MN_MUL_B + 1, 1, 0, 0},
    [MN_OP_SCALE] = {1, 1, MN_SCALE_ATTR_FACTOR + 1, 0},
    [MN_OP_SOFTCAP] = {1, 1, MN_SOFTCAP_ATTR_CAP + 1, 0},
    [MN_OP_GATHER_ROWS] = {MN_GATHER_ROWS_ROWS + 1, 1, 0, 0},
    [MN_OP_SAMPLE] = {MN_SAMPLE_BREAKERS + 1, MN_SAMPLE_OUT_MU + 1, 0, 0},
    [MN_OP_MOE_ROUTE] = {MN_MOE_ROUTE_BIAS + 1, MN_MOE_ROUTE_OUT_WEIGHTS + 1,
                         MN_MOE_ROUTE_ATTR_JITTER + 1, 0},
    [MN_OP_MOE_LINEAR] = {MN_MOE_LINEAR_WEIGHT + 2, 0, 0, 1}, /* 2 behind the groups */
    [MN_OP_MOE_COMBINE] = {MN_MOE_COMBINE_BASE + 1, 1, 0, 0},
    [MN_OP_CONV_STATE] = {MN_CONV_STATE_BIAS + 1, 1, MN_CONV_STATE_ATTR_GROUP + 1, 0},
    [MN_OP_SSM_SCAN] = {MN_SSM_SCAN_STATE + 1, 1, MN_SSM_SCAN_ATTR_DT_MAX + 1, 0},
    [MN_OP_GATED_DELTA] = {MN_GATED_DELTA_STATE + 1, 1, MN_GATED_DELTA_ATTR_BETA_SCALE + 1, 0},
    [MN_OP_LORA] = {MN_LORA_ADAPTER + 1, 1, 0, 0},
    [MN_OP_LOOKUP] = {MN_LOOKUP_WEIGHT + 1, 1, MN_LOOKUP_ATTR_SCALE + 1, 0},
};

bool mnp_has_more(const mn_graph *g, const mn_node *n) {
    if (n->op >= sizeof op_sizes / sizeof *op_sizes)
        return true;
    const uint64_t n_in =
        op_sizes[n->op].n_in + (op_sizes[n->op].repeats ? 2 * (uint64_t)n->n_out : 0);
    const uint32_t n_out = op_sizes[n->op].repeats ? n->n_out : op_sizes[n->op].n_out;
    for (uint64_t i = n_in; i < n->n_in; i++)
        if (mnp_in(g, n, (uint32_t)i) >= 0)
            return true;
    for (uint32_t i = n_out; i < n->n_out; i++)
        if (mnp_out(g, n, i) >= 0)
            return true;
    for (uint32_t i = op_sizes[n->op].n_attr; i < n->n_attr; i++)
        if (mnp_attr(g, n, i))
            return true;
    return false;
}

bool mnp_knows(const mn_op_contract *contracts, uint32_t n, const mn_graph *g,
               const mn_node *node) {
    for (uint32_t i = 0; i < n; i++)
        if (contracts[i].op == node->op)
            return node->contract <= contracts[i].contract && !mnp_has_more(g, node);
    return false;
}

/* Of a newer host's mn_verdict the known fields are written. */
mn_status mnp_supports(const mn_host *h, const mn_compile *c, mnp_verdict_fn fn, void *user,
                       mn_verdict *verdicts, uint32_t stride, mn_error *err) {
    const mn_graph *g = c->graph;
    const uint64_t want = (uint64_t)g->n_symbols * sizeof(int64_t);
    int64_t *symbol = (int64_t *)mnp_new(h, want);
    if (!symbol)
        return mnp_fail_memory(err, want, "symbols");
    const size_t known = stride < sizeof(mn_verdict) ? stride : sizeof(mn_verdict);
    mn_status st = mnp_symbols(g, c->symbol_max, NULL, symbol, err);
    for (uint32_t i = c->node_lo; i < c->node_hi && !st; i++) {
        mn_verdict v = {0, 0, 0, 0};
        v.verdict = fn(user, symbol, i, &v.reason);
        memcpy((char *)verdicts + (uint64_t)(i - c->node_lo) * stride, &v, known);
    }
    mnp_delete(h, symbol);
    return st;
}
