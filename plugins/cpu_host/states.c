/* states.c -- operands of the operations with a state: shapes from the graph and from a step, and
 * the sequences of a step. ground/state_shapes.h has the sizes; what it does not look at, since no
 * size follows from it, is compared here. Holds nothing. */
#include "states.h"

/* ---- shapes ---------------------------------------------------------------------------------- */
/* t is [n], or [rows, n] with rows of a step in front. */
static bool is_vector(const mn_tensor *t, int64_t n) {
    return t && t->n_dim == 1 && t->dim[0] == n;
}
static bool is_rows(const mn_tensor *t, int64_t n) {
    return t && t->n_dim == 2 && t->dim[1] == n;
}

/* SEQS [Q, 4]; STATES is checked where the state's place is looked up. */
static bool are_sequences(const mn_tensor *row_pos, const mn_tensor *seqs) {
    return row_pos && row_pos->n_dim == 1 && is_rows(seqs, 4);
}

mn_conv_shape mnc_conv_asked(const mnc_query *q) {
    const mn_conv_shape none = {0, 0, 0};
    const mn_tensor *w = mnc_query_in(q, MN_CONV_STATE_WEIGHT);
    const mn_tensor *bias = mnc_query_in(q, MN_CONV_STATE_BIAS);
    if (!w ||
        !are_sequences(mnc_query_in(q, MN_CONV_STATE_ROW_POS), mnc_query_in(q, MN_CONV_STATE_SEQS)))
        return none;
    const mn_conv_shape s = mn_conv_shape_of(w);
    if (!is_rows(mnc_query_in(q, MN_CONV_STATE_X), s.channels) ||
        !is_rows(mnc_query_out(q, MN_CONV_STATE_OUT_Y), s.channels))
        return none;
    if (bias && !is_vector(bias, s.channels))
        return none;
    return s;
}

mn_ssm_shape mnc_ssm_asked(const mnc_query *q) {
    const mn_ssm_shape none = {0, 0, 0, 0, 0};
    const mn_tensor *xbc = mnc_query_in(q, MN_SSM_SCAN_XBC);
    const mn_tensor *a = mnc_query_in(q, MN_SSM_SCAN_A);
    const mn_tensor *y = mnc_query_out(q, MN_SSM_SCAN_OUT_Y);
    if (!xbc || !a || !y ||
        !are_sequences(mnc_query_in(q, MN_SSM_SCAN_ROW_POS), mnc_query_in(q, MN_SSM_SCAN_SEQS)))
        return none;
    const int64_t n_group = mnp_attr(q->graph, q->node, MN_SSM_SCAN_ATTR_N_GROUP);
    const mn_ssm_shape s = mn_ssm_shape_of(xbc, a, y, n_group);
    if (y->n_dim == 3 && y->dim[1] != s.n_head)
        return none;
    if (y->n_dim > 3 || !is_rows(mnc_query_in(q, MN_SSM_SCAN_DT), s.n_head))
        return none;
    if (!is_vector(mnc_query_in(q, MN_SSM_SCAN_D), s.n_head) ||
        !is_vector(mnc_query_in(q, MN_SSM_SCAN_DT_BIAS), s.n_head))
        return none;
    return s;
}

mn_delta_shape mnc_delta_asked(const mnc_query *q) {
    const mn_delta_shape none = {0, 0, 0, 0, 0, 0};
    const mn_tensor *qkv = mnc_query_in(q, MN_GATED_DELTA_QKV);
    const mn_tensor *gate = mnc_query_in(q, MN_GATED_DELTA_GATE);
    const mn_tensor *y = mnc_query_out(q, MN_GATED_DELTA_OUT_Y);
    if (!qkv || !gate || !y ||
        !are_sequences(mnc_query_in(q, MN_GATED_DELTA_ROW_POS),
                       mnc_query_in(q, MN_GATED_DELTA_SEQS)))
        return none;
    const int64_t n_head_k = mnp_attr(q->graph, q->node, MN_GATED_DELTA_ATTR_N_HEAD_K);
    const mn_delta_shape s = mn_delta_shape_of(qkv, gate, y, n_head_k);
    const int64_t n_gate = s.per_element ? s.n_head_v * s.dim_k : s.n_head_v;
    const bool gate_fits = s.per_element ? gate->dim[1] == s.n_head_v && gate->dim[2] == s.dim_k
                                         : is_rows(gate, s.n_head_v);
    if (!gate_fits || !is_rows(mnc_query_in(q, MN_GATED_DELTA_BETA), s.n_head_v))
        return none;
    if (!is_vector(mnc_query_in(q, MN_GATED_DELTA_A), s.n_head_v) ||
        !is_vector(mnc_query_in(q, MN_GATED_DELTA_DT_BIAS), n_gate))
        return none;
    return s;
}

uint64_t mnc_n_state(const mnc_query *q) {
    switch (q->node->op) {
    case MN_OP_CONV_STATE:
        return (uint64_t)mnc_conv_asked(q).n_state;
    case MN_OP_SSM_SCAN:
        return (uint64_t)mnc_ssm_asked(q).n_state;
    default:
        return (uint64_t)mnc_delta_asked(q).n_state;
    }
}

/* The dims of an operand as state_shapes.h reads them. */
static mn_tensor dims_of(const mnc_operand *o) {
    mn_tensor t = {.n_dim = o->n_dim};
    memcpy(t.dim, o->dim, sizeof o->dim);
    return t;
}

mn_conv_shape mnc_conv_of(const mnc_call *c) {
    const mn_tensor w = dims_of(&c->in[MN_CONV_STATE_WEIGHT]);
    return mn_conv_shape_of(&w);
}

mn_ssm_shape mnc_ssm_of(const mnc_call *c) {
    const mn_tensor xbc = dims_of(&c->in[MN_SSM_SCAN_XBC]);
    const mn_tensor a = dims_of(&c->in[MN_SSM_SCAN_A]);
    const mn_tensor y = dims_of(&c->out[MN_SSM_SCAN_OUT_Y]);
    return mn_ssm_shape_of(&xbc, &a, &y, mnc_attr_int(c, MN_SSM_SCAN_ATTR_N_GROUP));
}

mn_delta_shape mnc_delta_of(const mnc_call *c) {
    const mn_tensor qkv = dims_of(&c->in[MN_GATED_DELTA_QKV]);
    const mn_tensor gate = dims_of(&c->in[MN_GATED_DELTA_GATE]);
    const mn_tensor y = dims_of(&c->out[MN_GATED_DELTA_OUT_Y]);
    return mn_delta_shape_of(&qkv, &gate, &y, mnc_attr_int(c, MN_GATED_DELTA_ATTR_N_HEAD_K));
}

/* ---- sequences ------------------------------------------------------------------------------- */
/* ROW_POS, SEQS and STATES are behind one another in all three operations. */
static uint32_t state_row_pos(const mnc_call *c) {
    switch (c->node->op) {
    case MN_OP_CONV_STATE:
        return MN_CONV_STATE_ROW_POS;
    case MN_OP_SSM_SCAN:
        return MN_SSM_SCAN_ROW_POS;
    default:
        return MN_GATED_DELTA_ROW_POS;
    }
}
#define SEQS_BEHIND 1u
#define STATES_BEHIND 2u

int64_t mnc_n_sequences(const mnc_call *c) {
    return c->in[state_row_pos(c) + SEQS_BEHIND].rows;
}

const int32_t *mnc_row_pos(const mnc_call *c) {
    return c->in[state_row_pos(c)].ptr;
}

bool mnc_sequence_at(const mnc_call *c, int64_t i, mnc_sequence *out) {
    const uint32_t at = state_row_pos(c);
    const int32_t *seq = (const int32_t *)c->in[at + SEQS_BEHIND].ptr + 4 * i;
    const int64_t n_rows = c->in[at].rows;
    const int64_t n_slots = c->in[at + STATES_BEHIND].rows;
    const int32_t slot = seq[2];
    if (seq[1] <= 0 || seq[0] < 0 || (int64_t)seq[0] + seq[1] > n_rows)
        return false;
    if (slot < 0 || slot >= n_slots)
        return false;
    const int32_t *page = c->states.pages + 2 * (int64_t)slot;
    if (page[0] >= c->states.n_pages || page[1] >= c->states.n_pages)
        return false;
    out->row_lo = seq[0];
    out->row_hi = (int64_t)seq[0] + seq[1];
    out->from = mnc_state_from(&c->states, slot);
    out->to = mnc_state_to(&c->states, slot);
    return out->to != NULL;
}
