/* op_state.c -- CONV_STATE, SSM_SCAN and GATED_DELTA: their operands for the kernels of k_state.cu.
 * All run as class exact in every class. */
#include "ops.h"
#include "state_nodes.h"
#include <math.h>

static cu_states states_of(const mng_run *r, const mng_unit *u) {
    const mng_states from = mng_states_of(r, u);
    return (cu_states){.row_pos = cu_i32(r, from.row_pos),
                       .seqs = cu_i32(r, from.seqs),
                       .states = cu_i32(r, from.states),
                       .memory = cu_ptr(r, from.memory),
                       .n_pages = (int64_t)from.n_pages,
                       .page_bytes = from.state->page_bytes,
                       .layer_at = from.state->layer_at,
                       .T = from.T,
                       .Q = from.Q,
                       .S = from.S};
}

/* The steps of the recurrences; without rows no state changes. */
static bool has_rows(const cu_states *s) {
    return s->T > 0 && s->Q > 0;
}

static void launch_conv(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const mn_conv_shape shape = mnp_conv_shape(r->g, n);
    cu_conv a = {.s = states_of(r, u),
                 .x = cu_in_f32(r, n, MN_CONV_STATE_X),
                 .weight = cu_in_flat(r, n, MN_CONV_STATE_WEIGHT),
                 .bias = cu_in_flat(r, n, MN_CONV_STATE_BIAS),
                 .y = cu_out_f32(r, n, MN_CONV_STATE_OUT_Y),
                 .C = (int)shape.channels,
                 .W = (int)shape.width};
    if (has_rows(&a.s)) {
        cu_conv_run(r->step->stream, &a);
    }
}

static void launch_scan(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const mn_ssm_shape shape = mnp_ssm_shape(g, n);
    const int x_width = (int)(shape.n_head * shape.dim);
    const int b_width = (int)(shape.n_group * shape.n);
    cu_scan a = {.s = states_of(r, u),
                 .rows = cu_in_f32(r, n, MN_SSM_SCAN_XBC),
                 .step = cu_in_f32(r, n, MN_SSM_SCAN_DT),
                 .a = cu_in_flat(r, n, MN_SSM_SCAN_A),
                 .dt_bias = cu_in_flat(r, n, MN_SSM_SCAN_DT_BIAS),
                 .d = cu_in_flat(r, n, MN_SSM_SCAN_D),
                 .y = cu_out_f32(r, n, MN_SSM_SCAN_OUT_Y),
                 .width = x_width + 2 * b_width,
                 .write_at = x_width,
                 .read_at = x_width + b_width,
                 .H = (int)shape.n_head,
                 .dim = (int)shape.dim,
                 .G = (int)shape.n_group,
                 .n = (int)shape.n,
                 .dt_min = cu_attr(g, n, MN_SSM_SCAN_ATTR_DT_MIN),
                 .dt_max = cu_attr(g, n, MN_SSM_SCAN_ATTR_DT_MAX),
                 .a_log = cu_attr_int(g, n, MN_SSM_SCAN_ATTR_A_LOG)};
    if (has_rows(&a.s)) {
        cu_scan_run(r->step->stream, &a);
    }
}

/* Factors of q and of what is written, with their defaults. */
static void set_factors(const mn_graph *g, const mn_node *n, cu_scan *a) {
    const float scale = cu_attr(g, n, MN_GATED_DELTA_ATTR_SCALE);
    const float beta_scale = cu_attr(g, n, MN_GATED_DELTA_ATTR_BETA_SCALE);
    const float eps = cu_attr(g, n, MN_GATED_DELTA_ATTR_EPS);
    a->eps = eps;
    a->scale = scale;
    a->beta_scale = beta_scale;
    if (scale == 0) {
        const double root = sqrt((double)a->n);
        a->scale = (float)(1 / root);
    }
    if (beta_scale == 0) {
        a->beta_scale = 1;
    }
}

static void launch_delta(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const mn_delta_shape shape = mnp_delta_shape(g, n);
    const int k_width = (int)(shape.n_head_k * shape.dim_k);
    const int v_width = (int)(shape.n_head_v * shape.dim_v);
    cu_scan a = {.s = states_of(r, u),
                 .rows = cu_in_f32(r, n, MN_GATED_DELTA_QKV),
                 .step = cu_in_f32(r, n, MN_GATED_DELTA_GATE),
                 .beta = cu_in_f32(r, n, MN_GATED_DELTA_BETA),
                 .a = cu_in_flat(r, n, MN_GATED_DELTA_A),
                 .dt_bias = cu_in_flat(r, n, MN_GATED_DELTA_DT_BIAS),
                 .y = cu_out_f32(r, n, MN_GATED_DELTA_OUT_Y),
                 .width = 2 * k_width + v_width,
                 .x_at = 2 * k_width,
                 .write_at = k_width,
                 .H = (int)shape.n_head_v,
                 .dim = (int)shape.dim_v,
                 .G = (int)shape.n_head_k,
                 .n = (int)shape.dim_k,
                 .a_log = cu_attr_int(g, n, MN_GATED_DELTA_ATTR_A_LOG),
                 .each = shape.per_element,
                 .in_turn = cu_attr_int(g, n, MN_GATED_DELTA_ATTR_HEADS)};
    set_factors(g, n, &a);
    if (has_rows(&a.s)) {
        cu_scan_run(r->step->stream, &a);
    }
}

/* ---- verdicts -------------------------------------------------------------------------------- */
static uint32_t conv_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    const mn_conv_shape s = mnp_conv_shape(g, n);
    if (s.width > CU_CONV_MOST) {
        return MNG_LENGTH;
    }
    return mng_state_verdict(d, g, n);
}
static uint32_t scan_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    const mn_ssm_shape s = mnp_ssm_shape(g, n);
    if (s.n > CU_SCAN_MOST) {
        return MNG_HEAD;
    }
    return mng_state_verdict(d, g, n);
}
static uint32_t delta_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    const mn_delta_shape s = mnp_delta_shape(g, n);
    if (s.dim_k > CU_SCAN_MOST) {
        return MNG_HEAD;
    }
    return mng_state_verdict(d, g, n);
}

const mng_op cu_op_conv_state = {MN_OP_CONV_STATE, 1, conv_verdict, NULL, launch_conv};
const mng_op cu_op_ssm_scan = {MN_OP_SSM_SCAN, 1, scan_verdict, NULL, launch_scan};
const mng_op cu_op_gated_delta = {MN_OP_GATED_DELTA, 1, delta_verdict, NULL, launch_delta};
