/* op_state.c -- CONV_STATE, SSM_SCAN and GATED_DELTA: their operands for the kernels of k_state.cu,
 * which have class exact; scans of many rows in coarser classes go to k_chunks.cu. */
#include "chunks.h"
#include "ops.h"
#include "state_nodes.h"

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
    if (has_rows(&a.s))
        cu_conv_run(r->step->stream, &a);
}

/* Rows of a sequence from which chunks are faster. */
enum { CHUNKS_FROM = 48 };
/* Whether a sequence of the step may have as many. */
static bool runs_chunks(const mng_run *r, const cu_scan *a) {
    const uint64_t room = r->p->base.needs.bytes[CU_NEED_CHUNKS];
    if (!cu_rounds(r->p) || a->s.T - a->s.Q < CHUNKS_FROM - 1 || !cu_chunks_fit(a))
        return false;
    return cu_chunks_room(a->s.T, a->s.Q, a->G, a->H) <= room;
}
static void scan_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_graph *g = p->base.graph;
    const int64_t *most = p->base.symbol_max;
    const mng_scan scan = mng_scan_of(g, n);
    const mn_tensor *y = mnp_out_tensor(g, n, 0);
    const mn_tensor *seqs = mnp_in_tensor(g, n, mnp_state_row_pos(n->op) + MNP_SEQS_BEHIND);
    const int64_t rows = mnp_dim(g, most, y->dim[0]);
    const int64_t n_seqs = mnp_dim(g, most, seqs->dim[0]);
    if (!cu_rounds(p) || scan.n != CU_CHUNK_LONG || rows < CHUNKS_FROM)
        return;
    mng_need(needs, CU_NEED_CHUNKS, cu_chunks_room((int)rows, (int)n_seqs, scan.G, scan.H));
}

/* SSM_SCAN and GATED_DELTA. */
static void launch_scan(mng_run *r, const mng_unit *u) {
    const mng_scan from = mng_scan_of(r->g, mnp_node(r->g, u->node));
    cu_scan a = {.s = states_of(r, u),
                 .rows = cu_f32(r, from.rows),
                 .step = cu_f32(r, from.step),
                 .beta = cu_f32(r, from.beta),
                 .a = cu_flat(r, from.a),
                 .dt_bias = cu_flat(r, from.dt_bias),
                 .d = cu_flat(r, from.d),
                 .y = cu_f32(r, from.y),
                 MNG_SCAN_NUMBERS(&from)};
    if (!has_rows(&a.s))
        return;
    if (runs_chunks(r, &a)) {
        a.chunks_from = CHUNKS_FROM;
        cu_chunks_run(r->step->stream, &a, cu_room(r, CU_NEED_CHUNKS));
    }
    cu_scan_run(r->step->stream, &a);
}

const mng_op cu_op_conv_state = {MN_OP_CONV_STATE, 1, mng_state_verdict, NULL, launch_conv};
const mng_op cu_op_ssm_scan = {MN_OP_SSM_SCAN, 1, mng_state_verdict, scan_needs, launch_scan};
const mng_op cu_op_gated_delta = {MN_OP_GATED_DELTA, 1, mng_state_verdict, scan_needs, launch_scan};
