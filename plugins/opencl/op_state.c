/* op_state.c -- CONV_STATE, SSM_SCAN and GATED_DELTA: their operands for state.cl. Every kernel
 * gets all buffers that pages of states may lie in. */
#include "ops.h"
#include "state_nodes.h"

enum { MOST_OPERANDS = 10 };

static ocl_states states_args(const mng_states *from) {
    return (ocl_states){.page_bytes = from->state->page_bytes,
                        .layer_at = from->state->layer_at,
                        .n_pages = from->n_pages,
                        .part_pages = from->part_pages,
                        .T = from->T,
                        .S = from->S};
}

/* refs with the buffers of the states behind them. */
static void enqueue_with_states(mng_run *r, const mng_states *s, const ocl_launch *l) {
    const mn_buffer *b = r->c->base.bindings[s->memory].buffer;
    mng_ref refs[MOST_OPERANDS + OCL_KV_PARTS];
    ocl_launch all = *l;
    memcpy(refs, l->refs, l->n_refs * sizeof *refs);
    refs[all.n_refs++] = mng_operand(r, s->memory);
    for (uint32_t i = 1; i < OCL_KV_PARTS; i++) {
        mng_ref part = mng_absent(r);
        if (i < b->n_parts)
            part = (mng_ref){b->mem[i], 0};
        refs[all.n_refs++] = part;
    }
    all.refs = refs;
    ocl_enqueue(r, &all);
}

static void conv_state(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const mn_conv_shape shape = mnp_conv_shape(r->g, n);
    const mng_states s = mng_states_of(r, u);
    ocl_conv_args a = {.s = states_args(&s)};
    a.C = (int)shape.channels;
    a.W = (int)shape.width;
    const mng_ref refs[] = {mng_in(r, n, MN_CONV_STATE_X),
                            mng_in(r, n, MN_CONV_STATE_WEIGHT),
                            mng_in(r, n, MN_CONV_STATE_BIAS),
                            mng_operand(r, s.row_pos),
                            mng_operand(r, s.seqs),
                            mng_operand(r, s.states),
                            mng_out(r, n, MN_CONV_STATE_OUT_Y)};
    enqueue_with_states(r, &s,
                        &(ocl_launch){.kernel = OCL_KERNEL_conv_state,
                                      .refs = refs,
                                      .n_refs = sizeof refs / sizeof *refs,
                                      .args = &a,
                                      .args_bytes = sizeof a,
                                      .grid = ocl_items(a.C, s.Q, 1)});
}

/* SSM_SCAN and GATED_DELTA. */
static void scan_state(mng_run *r, const mng_unit *u) {
    const mng_scan scan = mng_scan_of(r->g, mnp_node(r->g, u->node));
    const mng_states s = mng_states_of(r, u);
    ocl_scan_args a = {.s = states_args(&s), MNG_SCAN_NUMBERS(&scan)};
    const mng_ref refs[] = {mng_operand(r, scan.rows),    mng_operand(r, scan.step),
                            mng_operand(r, scan.beta),    mng_operand(r, scan.a),
                            mng_operand(r, scan.dt_bias), mng_operand(r, scan.d),
                            mng_operand(r, s.row_pos),    mng_operand(r, s.seqs),
                            mng_operand(r, s.states),     mng_operand(r, scan.y)};
    enqueue_with_states(r, &s,
                        &(ocl_launch){.kernel = OCL_KERNEL_scan_state,
                                      .refs = refs,
                                      .n_refs = sizeof refs / sizeof *refs,
                                      .args = &a,
                                      .args_bytes = sizeof a,
                                      .grid = ocl_items((int64_t)a.H * a.dim, s.Q, 1)});
}

const mng_op ocl_op_conv_state = {MN_OP_CONV_STATE, 1, mng_state_verdict, NULL, conv_state};
const mng_op ocl_op_ssm_scan = {MN_OP_SSM_SCAN, 1, mng_state_verdict, NULL, scan_state};
const mng_op ocl_op_gated_delta = {MN_OP_GATED_DELTA, 1, mng_state_verdict, NULL, scan_state};
