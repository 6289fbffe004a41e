/* states.c -- operands of the operations with a state in a step: shapes, and the sequences.
 * common/state_nodes.c has the shapes of nodes. Holds nothing. */
#include "states.h"

/* ---- shapes ---------------------------------------------------------------------------------- */
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
int64_t mnc_n_sequences(const mnc_call *c) {
    return c->in[mnp_state_row_pos(c->node->op) + MNP_SEQS_BEHIND].rows;
}

const int32_t *mnc_row_pos(const mnc_call *c) {
    return c->in[mnp_state_row_pos(c->node->op)].ptr;
}

bool mnc_sequence_at(const mnc_call *c, int64_t i, mnc_sequence *out) {
    const uint32_t at = mnp_state_row_pos(c->node->op);
    const int32_t *seq = (const int32_t *)c->in[at + MNP_SEQS_BEHIND].ptr + 4 * i;
    const int64_t n_rows = c->in[at].rows;
    const int64_t n_slots = c->in[at + MNP_STATES_BEHIND].rows;
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
