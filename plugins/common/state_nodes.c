/* state_nodes.c -- verdicts by shapes of the operations with a state, for every backend. Sizes come
 * from ground/state_shapes.h; what it does not look at, since no size follows from it, is compared
 * here. Holds nothing. */
#include "state_nodes.h"

/* ---- operands -------------------------------------------------------------------------------- */
/* t is [n], or [rows, n] with rows of a step in front. */
static bool is_vector(const mn_tensor *t, int64_t n) {
    return t && t->n_dim == 1 && t->dim[0] == n;
}
static bool is_rows(const mn_tensor *t, int64_t n) {
    return t && t->n_dim == 2 && t->dim[1] == n;
}

bool mnp_has_state(uint32_t op) {
    return op == MN_OP_CONV_STATE || op == MN_OP_SSM_SCAN || op == MN_OP_GATED_DELTA;
}

uint32_t mnp_state_row_pos(uint32_t op) {
    switch (op) {
    case MN_OP_CONV_STATE:
        return MN_CONV_STATE_ROW_POS;
    case MN_OP_SSM_SCAN:
        return MN_SSM_SCAN_ROW_POS;
    default:
        return MN_GATED_DELTA_ROW_POS;
    }
}

/* ROW_POS [T] and SEQS [Q, 4]; STATES is checked where the state's place is looked up. */
static bool has_sequences(const mn_graph *g, const mn_node *n) {
    const uint32_t at = mnp_state_row_pos(n->op);
    const mn_tensor *row_pos = mnp_in_tensor(g, n, at);
    const mn_tensor *seqs = mnp_in_tensor(g, n, at + MNP_SEQS_BEHIND);
    return row_pos && row_pos->n_dim == 1 && is_rows(seqs, 4);
}

/* ---- shapes ---------------------------------------------------------------------------------- */
mn_conv_shape mnp_conv_shape(const mn_graph *g, const mn_node *n) {
    const mn_conv_shape none = {0, 0, 0};
    const mn_tensor *w = mnp_in_tensor(g, n, MN_CONV_STATE_WEIGHT);
    const mn_tensor *bias = mnp_in_tensor(g, n, MN_CONV_STATE_BIAS);
    if (!w || !has_sequences(g, n))
        return none;
    const mn_conv_shape s = mn_conv_shape_of(w);
    if (!is_rows(mnp_in_tensor(g, n, MN_CONV_STATE_X), s.channels) ||
        !is_rows(mnp_out_tensor(g, n, MN_CONV_STATE_OUT_Y), s.channels))
        return none;
    if (bias && !is_vector(bias, s.channels))
        return none;
    return s;
}

/* Y is [T, H P], [T, H, P], or by groups, [T, G, H P / G]. */
static bool is_scan_output(const mn_tensor *y, const mn_ssm_shape *s) {
    if (y->n_dim == 3)
        return y->dim[1] == s->n_head || y->dim[1] == s->n_group;
    return y->n_dim == 2;
}

mn_ssm_shape mnp_ssm_shape(const mn_graph *g, const mn_node *n) {
    const mn_ssm_shape none = {0, 0, 0, 0, 0};
    const mn_tensor *xbc = mnp_in_tensor(g, n, MN_SSM_SCAN_XBC);
    const mn_tensor *a = mnp_in_tensor(g, n, MN_SSM_SCAN_A);
    const mn_tensor *y = mnp_out_tensor(g, n, MN_SSM_SCAN_OUT_Y);
    if (!xbc || !a || !y || !has_sequences(g, n))
        return none;
    const mn_ssm_shape s = mn_ssm_shape_of(xbc, a, y, mnp_attr(g, n, MN_SSM_SCAN_ATTR_N_GROUP));
    if (!is_scan_output(y, &s) || !is_rows(mnp_in_tensor(g, n, MN_SSM_SCAN_DT), s.n_head))
        return none;
    if (!is_vector(mnp_in_tensor(g, n, MN_SSM_SCAN_D), s.n_head) ||
        !is_vector(mnp_in_tensor(g, n, MN_SSM_SCAN_DT_BIAS), s.n_head))
        return none;
    return s;
}

/* GATE [T, Hv], or [T, Hv, Dk]. */
static bool is_gate(const mn_tensor *gate, const mn_delta_shape *s) {
    if (!s->per_element)
        return is_rows(gate, s->n_head_v);
    return gate->dim[1] == s->n_head_v && gate->dim[2] == s->dim_k;
}

mn_delta_shape mnp_delta_shape(const mn_graph *g, const mn_node *n) {
    const mn_delta_shape none = {0, 0, 0, 0, 0, 0};
    const mn_tensor *qkv = mnp_in_tensor(g, n, MN_GATED_DELTA_QKV);
    const mn_tensor *gate = mnp_in_tensor(g, n, MN_GATED_DELTA_GATE);
    const mn_tensor *y = mnp_out_tensor(g, n, MN_GATED_DELTA_OUT_Y);
    if (!qkv || !gate || !y || !has_sequences(g, n))
        return none;
    const int64_t n_head_k = mnp_attr(g, n, MN_GATED_DELTA_ATTR_N_HEAD_K);
    const mn_delta_shape s = mn_delta_shape_of(qkv, gate, y, n_head_k);
    const int64_t n_bias = s.per_element ? s.n_head_v * s.dim_k : s.n_head_v;
    if (!is_gate(gate, &s) || !is_rows(mnp_in_tensor(g, n, MN_GATED_DELTA_BETA), s.n_head_v))
        return none;
    if (!is_vector(mnp_in_tensor(g, n, MN_GATED_DELTA_A), s.n_head_v) ||
        !is_vector(mnp_in_tensor(g, n, MN_GATED_DELTA_DT_BIAS), n_bias))
        return none;
    return s;
}

mn_memory_layer mnp_state_layer(const mn_graph *g, const mn_node *n) {
    switch (n->op) {
    case MN_OP_CONV_STATE:
        return mn_conv_layer(mnp_conv_shape(g, n));
    case MN_OP_SSM_SCAN:
        return mn_ssm_layer(mnp_ssm_shape(g, n));
    default:
        return mn_delta_layer(mnp_delta_shape(g, n));
    }
}
