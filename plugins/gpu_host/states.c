/* states.c -- CONV_STATE, SSM_SCAN and GATED_DELTA of GPU backends: their verdict by shapes, and
 * where the pages of states lie in a step. common/state_nodes.c has the shapes, common/memory.c the
 * pages. Holds nothing. */
#include "gpu_table.h"
#include "state_nodes.h"
#include <math.h>

/* Whether n is at most `most`; 0: any. */
static bool within(int64_t n, uint32_t most) {
    return !most || n <= (int64_t)most;
}

uint32_t mng_state_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    const mng_limits *l = &mng_backend_of(dev)->limits;
    if (!mnp_n_state(g, n))
        return MNG_SHAPE;
    if (n->op == MN_OP_CONV_STATE && !within(mnp_conv_shape(g, n).width, l->max_taps))
        return MNG_LENGTH;
    if (n->op == MN_OP_SSM_SCAN && !within(mnp_ssm_shape(g, n).n, l->max_state))
        return MNG_HEAD;
    if (n->op == MN_OP_GATED_DELTA && !within(mnp_delta_shape(g, n).dim_k, l->max_state))
        return MNG_HEAD;
    return MNG_OK;
}

mng_states mng_states_of(const mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const uint32_t row_pos = mnp_state_row_pos(n->op);
    const uint64_t page_bytes = u->state.page_bytes;
    mng_states s = {.state = &u->state};
    mnp_memory_node at;
    mnp_memory_node_of(n, &at);
    s.row_pos = mnp_in(r->g, n, row_pos);
    s.seqs = mnp_in(r->g, n, row_pos + MNP_SEQS_BEHIND);
    s.states = mnp_in(r->g, n, at.pages);
    s.memory = mnp_in(r->g, n, at.memory);
    const mn_binding *bound = &mng_context_of(r->c)->bindings[s.memory];
    s.T = (int)mng_dim(r, s.row_pos, 0);
    s.Q = (int)mng_dim(r, s.seqs, 0);
    s.S = (int)mng_dim(r, s.states, 0);
    s.n_pages = bound->bytes / page_bytes;
    s.part_pages = bound->buffer->room / page_bytes;
    return s;
}

static float float_attr(const mn_graph *g, const mn_node *n, uint32_t i, float otherwise) {
    const double v = mnp_attr_f64(g, n, i);
    if (v == 0)
        return otherwise;
    return (float)v;
}

static mng_scan scan_of_ssm(const mn_graph *g, const mn_node *n) {
    const mn_ssm_shape shape = mnp_ssm_shape(g, n);
    mng_scan s = {.beta = -1, .scale = 1, .beta_scale = 1};
    s.rows = mnp_in(g, n, MN_SSM_SCAN_XBC);
    s.step = mnp_in(g, n, MN_SSM_SCAN_DT);
    s.a = mnp_in(g, n, MN_SSM_SCAN_A);
    s.dt_bias = mnp_in(g, n, MN_SSM_SCAN_DT_BIAS);
    s.d = mnp_in(g, n, MN_SSM_SCAN_D);
    s.H = (int)shape.n_head;
    s.dim = (int)shape.dim;
    s.G = (int)shape.n_group;
    s.n = (int)shape.n;
    s.write_at = s.H * s.dim;
    s.read_at = s.write_at + s.G * s.n;
    s.width = s.read_at + s.G * s.n;
    s.dt_min = float_attr(g, n, MN_SSM_SCAN_ATTR_DT_MIN, 0);
    s.dt_max = float_attr(g, n, MN_SSM_SCAN_ATTR_DT_MAX, 0);
    s.a_log = mnp_attr(g, n, MN_SSM_SCAN_ATTR_A_LOG) != 0;
    return s;
}

static mng_scan scan_of_delta(const mn_graph *g, const mn_node *n) {
    const mn_delta_shape shape = mnp_delta_shape(g, n);
    const double root = sqrt((double)shape.dim_k);
    mng_scan s = {.d = -1};
    s.rows = mnp_in(g, n, MN_GATED_DELTA_QKV);
    s.step = mnp_in(g, n, MN_GATED_DELTA_GATE);
    s.beta = mnp_in(g, n, MN_GATED_DELTA_BETA);
    s.a = mnp_in(g, n, MN_GATED_DELTA_A);
    s.dt_bias = mnp_in(g, n, MN_GATED_DELTA_DT_BIAS);
    s.H = (int)shape.n_head_v;
    s.dim = (int)shape.dim_v;
    s.G = (int)shape.n_head_k;
    s.n = (int)shape.dim_k;
    s.write_at = s.G * s.n;
    s.x_at = 2 * s.write_at;
    s.width = s.x_at + s.H * s.dim;
    s.eps = float_attr(g, n, MN_GATED_DELTA_ATTR_EPS, 0);
    s.scale = float_attr(g, n, MN_GATED_DELTA_ATTR_SCALE, (float)(1 / root));
    s.beta_scale = float_attr(g, n, MN_GATED_DELTA_ATTR_BETA_SCALE, 1);
    s.a_log = mnp_attr(g, n, MN_GATED_DELTA_ATTR_A_LOG) != 0;
    s.each = shape.per_element != 0;
    s.in_turn = mnp_attr(g, n, MN_GATED_DELTA_ATTR_HEADS) != 0;
    return s;
}

mng_scan mng_scan_of(const mn_graph *g, const mn_node *n) {
    mng_scan s;
    if (n->op == MN_OP_SSM_SCAN)
        s = scan_of_ssm(g, n);
    else
        s = scan_of_delta(g, n);
    s.y = mnp_out(g, n, 0);
    return s;
}
