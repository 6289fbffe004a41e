/* op_rows.c -- operations on rows: EMBED, norms, elementwise, GATHER_ROWS, SAMPLE. Each function
 * gathers the operands of one node for its kernel (k_misc.cu, k_sample.cu); without rows there is
 * no launch. */
#include "ops.h"

/* Two launches: the state of the slots goes forward, then ids become rows. */
static void launch_embed(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const mng_weight *w = cu_in_weight(r, n, MN_EMBED_WEIGHT);
    const int32_t history = mnp_in(g, n, MN_EMBED_HISTORY);
    const int32_t positions = mnp_in(g, n, MN_EMBED_POS_WEIGHT);
    const double scale = mnp_attr_f64(g, n, MN_EMBED_ATTR_SCALE);
    cu_embed e = {.src = cu_in_i32(r, n, MN_EMBED_SRC),
                  .pos = cu_in_i32(r, n, MN_EMBED_POS),
                  .row_slot = cu_in_i32(r, n, MN_EMBED_ROW_SLOT),
                  .table = cu_planes_of(w),
                  .positions = cu_flat(r, positions),
                  .slots = cu_in_rows(r, n, MN_EMBED_SLOTS),
                  .history = cu_i32(r, history),
                  .row_pos = cu_out_i32(r, n, MN_EMBED_OUT_ROW_POS),
                  .ids = cu_room(r, CU_NEED_IDS),
                  .x = cu_out_f32(r, n, MN_EMBED_OUT_X),
                  .T = cu_in_dim(r, n, MN_EMBED_SRC, 0),
                  .S = cu_dim(r, history, 0),
                  .C = cu_dim(r, history, 1),
                  .V = (int)w->rows,
                  .D = (int)w->cols,
                  .ld = (int)w->ld,
                  .n_positions = cu_dim(r, positions, 0),
                  .factor = scale == 0 ? 1 : (float)scale};
    if (!e.T)
        return;
    cu_embed_state(r->step->stream, &e);
    cu_row_of(w)->embed(r->step->stream, &e);
}

/* Ids of the history, then columns of their rows. */
static void launch_lookup(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const mng_weight *w = cu_in_weight(r, n, MN_LOOKUP_WEIGHT);
    const int32_t history = mnp_in(g, n, MN_LOOKUP_HISTORY);
    const double scale = mnp_attr_f64(g, n, MN_LOOKUP_ATTR_SCALE);
    cu_embed e = {.row_slot = cu_in_i32(r, n, MN_LOOKUP_ROW_SLOT),
                  .table = cu_planes_of(w),
                  .history = cu_i32(r, history),
                  .row_pos = cu_i32(r, mnp_in(g, n, MN_LOOKUP_ROW_POS)),
                  .ids = cu_room(r, CU_NEED_IDS),
                  .x = cu_out_f32(r, n, MN_LOOKUP_OUT_Y),
                  .T = cu_in_dim(r, n, MN_LOOKUP_ROW_POS, 0),
                  .S = cu_dim(r, history, 0),
                  .C = cu_dim(r, history, 1),
                  .V = (int)w->rows,
                  .D = cu_dim(r, mnp_out(g, n, MN_LOOKUP_OUT_Y), 1),
                  .ld = (int)w->ld,
                  .first = (int)mnp_attr(g, n, MN_LOOKUP_ATTR_FIRST),
                  .factor = scale == 0 ? 1 : (float)scale};
    if (!e.T)
        return;
    cu_lookup_ids(r->step->stream, &e);
    cu_row_of(w)->embed(r->step->stream, &e);
}

/* Inputs that are not bound switch their filters off; outputs that are not bound are not
 * computed. */
static void launch_sample(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t logits = mnp_in(g, n, MN_SAMPLE_LOGITS);
    const int32_t history = mnp_in(g, n, MN_SAMPLE_HISTORY);
    const int32_t bias_ids = mnp_in(g, n, MN_SAMPLE_BIAS_IDS);
    const int32_t ids = mnp_out(g, n, MN_SAMPLE_OUT_TOP_IDS);
    const int32_t probs = mnp_out(g, n, MN_SAMPLE_OUT_TOP_LOGPROBS);
    cu_sample a = {.logits = cu_f32(r, logits),
                   .bias = cu_in_f32(r, n, MN_SAMPLE_BIAS),
                   .out_slot = cu_in_i32(r, n, MN_SAMPLE_OUT_SLOT),
                   .params = cu_in_rows(r, n, MN_SAMPLE_PARAMS),
                   .slots = cu_in_rows(r, n, MN_SAMPLE_SLOTS),
                   .history = cu_i32(r, history),
                   .mask = cu_in_ptr(r, n, MN_SAMPLE_MASK),
                   .bias_values = cu_in_f32(r, n, MN_SAMPLE_BIAS_VALUES)};
    a.bias_ids = a.bias_values ? cu_i32(r, bias_ids) : NULL;
    a.n_bias_ids = cu_dim(r, bias_ids, 1);
    a.target = cu_in_i32(r, n, MN_SAMPLE_TARGET);
    a.draft = cu_in_i32(r, n, MN_SAMPLE_DRAFT);
    a.ids = cu_out_i32(r, n, MN_SAMPLE_OUT_IDS);
    a.logprob = cu_out_f32(r, n, MN_SAMPLE_OUT_LOGPROB);
    a.breakers = cu_in_ptr(r, n, MN_SAMPLE_BREAKERS);
    a.mu = cu_out_f32(r, n, MN_SAMPLE_OUT_MU);
    a.samplers = n->contract >= 4;
    a.adjusted = cu_room(r, CU_NEED_ADJUSTED);
    a.count = cu_room(r, CU_NEED_COUNT);
    a.O = cu_dim(r, logits, 0);
    a.S = cu_dim(r, history, 0);
    a.C = cu_dim(r, history, 1);
    a.V = cu_dim(r, logits, 1);
    a.top_ids = cu_i32(r, ids);
    a.top_logprobs = cu_f32(r, probs);
    if (a.top_ids || a.top_logprobs) /* not bound = not computed */
        a.n_top = cu_dim(r, ids >= 0 ? ids : probs, 1);
    if (a.O)
        cu_sample_run(r->step->stream, &a);
}

/* The product of experts that wants the rows of y in 16 bits, too; NULL = none. */
static const mn_node *expert_reader(const mng_run *r, int32_t y, int *half) {
    for (uint32_t i = r->p->base.lo; i < r->p->base.hi && cu_rounds(r->p); i++) {
        const mn_node *n = mnp_node(r->g, i);
        if (n->op != MN_OP_MOE_LINEAR || mnp_in(r->g, n, MN_MOE_LINEAR_X) != y)
            continue;
        *half = cu_in_type(r, n, MN_MOE_LINEAR_WEIGHT)->half;
        if (*half == CU_F32)
            return NULL;
        return n;
    }
    return NULL;
}

/* If a product of experts reads y, its 16-bit rows are left in the scratch on the way. */
static void launch_rms_norm(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t x = mnp_in(g, n, MN_RMS_NORM_X);
    const int32_t y = mnp_out(g, n, 0);
    if (cu_runs_router(r, cu_index_of(r, u))) {
        cu_launch_router(r, u);
        return;
    }
    cu_norm a = {0};
    a.D = cu_last_dim(r, x);
    a.rows = (int)(mng_elements(r, x) / a.D);
    a.x = cu_f32(r, x);
    a.x_rows = a.rows;
    a.w = cu_in_flat(r, n, MN_RMS_NORM_WEIGHT);
    a.w_rows = (int)cu_in_weight(r, n, MN_RMS_NORM_WEIGHT)->rows;
    a.y = cu_ptr(r, y);
    a.y_kind = cu_kind(r, y);
    a.eps = cu_attr(g, n, MN_RMS_NORM_ATTR_EPS);
    a.offset = cu_attr(g, n, MN_RMS_NORM_ATTR_OFFSET);
    const int64_t n_normal = cu_in_weight(r, n, MN_RMS_NORM_WEIGHT)->cols;
    if (n_normal < a.D) {
        if (a.rows)
            cu_rms_part(r->step->stream, &a, (int)n_normal);
        return;
    }
    if (expert_reader(r, y, &a.half_kind) && a.y_kind == CU_F32) {
        a.half = cu_room(r, CU_NEED_HALF);
        a.ld = (int)mnp_round(a.D, CU_K_ALIGN);
        r->step->rounded = y;
        r->step->rounded_kind = a.half_kind;
    }
    if (a.rows)
        cu_rms_norm(r->step->stream, &a);
}

/* Weight and bias may have a row for each of the last but one dim. */
static void launch_layer_norm(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t x = mnp_in(g, n, MN_LAYER_NORM_X);
    const int32_t y = mnp_out(g, n, 0);
    const mng_weight *w = cu_in_weight(r, n, MN_LAYER_NORM_WEIGHT);
    const int D = cu_last_dim(r, x);
    const int rows = (int)(mng_elements(r, x) / D);
    const float *weight = cu_floats(w, 0);
    const float *bias = cu_in_flat(r, n, MN_LAYER_NORM_BIAS);
    const float eps = cu_attr(g, n, MN_LAYER_NORM_ATTR_EPS);
    const int w_rows = (int)w->rows;
    if (rows)
        cu_layer_norm(r->step->stream, cu_f32(r, x), weight, bias, cu_f32(r, y), rows, w_rows, D,
                      eps);
}

/* ACT, GLU, ADD, MUL, SCALE, SOFTCAP. */
static void launch_elementwise(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t y = mnp_out(g, n, 0);
    cu_elementwise e = {.a = cu_in_f32(r, n, 0),
                        .y = cu_ptr(r, y),
                        .n = mng_elements(r, y),
                        .y_kind = cu_kind(r, y)};
    switch (n->op) {
    case MN_OP_ACT:
        e.what = CU_EW_ACT;
        e.glu.kind = cu_attr_int(g, n, MN_ACT_ATTR_KIND);
        if (e.glu.kind == MN_ACT_XIELU)
            e.what = CU_EW_XIELU;
        e.xielu.alpha_p = cu_attr(g, n, MN_ACT_ATTR_ALPHA_P);
        e.xielu.alpha_n = cu_attr(g, n, MN_ACT_ATTR_ALPHA_N);
        e.xielu.beta = cu_attr(g, n, MN_ACT_ATTR_BETA);
        e.xielu.eps = cu_attr(g, n, MN_ACT_ATTR_EPS);
        break;
    case MN_OP_GLU:
        e.what = CU_EW_GLU;
        e.glu = cu_glu_attrs(g, n);
        break;
    case MN_OP_SCALE:
        e.what = CU_EW_SCALE;
        e.f = cu_attr(g, n, MN_SCALE_ATTR_FACTOR);
        break;
    case MN_OP_SOFTCAP:
        e.what = CU_EW_SOFTCAP;
        e.f = cu_attr(g, n, MN_SOFTCAP_ATTR_CAP);
        break;
    default:
        e.what = n->op == MN_OP_ADD ? CU_EW_ADD : CU_EW_MUL;
    }
    if (n->op == MN_OP_GLU || n->op == MN_OP_ADD || n->op == MN_OP_MUL)
        e.b = cu_in_f32(r, n, 1);
    cu_elementwise_run(r->step->stream, &e);
}

static void launch_gather(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t x = mnp_in(g, n, MN_GATHER_ROWS_X);
    const int32_t y = mnp_out(g, n, 0);
    const int32_t *rows = cu_in_i32(r, n, MN_GATHER_ROWS_ROWS);
    const int n_rows = cu_dim(r, y, 0);
    const int x_rows = cu_dim(r, x, 0);
    const int D = cu_last_dim(r, x);
    if (n_rows)
        cu_gather(r->step->stream, cu_f32(r, x), rows, cu_f32(r, y), n_rows, x_rows, D);
}

/* ---- what they need -------------------------------------------------------------------------- */
static void embed_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_tensor *src = mnp_in_tensor(p->base.graph, n, MN_EMBED_SRC);
    const int64_t rows = mnp_dim(p->base.graph, p->base.symbol_max, src->dim[0]);
    mng_need(needs, CU_NEED_IDS, (uint64_t)rows * 4);
}

static void lookup_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_tensor *pos = mnp_in_tensor(p->base.graph, n, MN_LOOKUP_ROW_POS);
    const int64_t rows = mnp_dim(p->base.graph, p->base.symbol_max, pos->dim[0]);
    mng_need(needs, CU_NEED_IDS, (uint64_t)rows * 4);
}

static void sample_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_tensor *x = mnp_in_tensor(p->base.graph, n, MN_SAMPLE_LOGITS);
    const int64_t rows = mnp_dim(p->base.graph, p->base.symbol_max, x->dim[0]);
    const int64_t ids = mnp_dim(p->base.graph, p->base.symbol_max, x->dim[1]);
    mng_need(needs, CU_NEED_ADJUSTED, (uint64_t)(rows * ids) * 4);
    mng_need(needs, CU_NEED_COUNT, (uint64_t)(rows * ids) * 4);
}

const mng_op cu_op_embed = {MN_OP_EMBED, 1, mng_embed_verdict, embed_needs, launch_embed};
const mng_op cu_op_lookup = {MN_OP_LOOKUP, 1, mng_lookup_verdict, lookup_needs, launch_lookup};
const mng_op cu_op_rms_norm = {MN_OP_RMS_NORM, 3, mng_pair_verdict, NULL, launch_rms_norm};
const mng_op cu_op_layer_norm = {MN_OP_LAYER_NORM, 1, mng_pair_verdict, NULL, launch_layer_norm};
const mng_op cu_op_act = {MN_OP_ACT, 3, NULL, NULL, launch_elementwise};
const mng_op cu_op_glu = {MN_OP_GLU, 2, mng_pair_verdict, NULL, launch_elementwise};
const mng_op cu_op_add = {MN_OP_ADD, 1, mng_pair_verdict, NULL, launch_elementwise};
const mng_op cu_op_mul = {MN_OP_MUL, 1, mng_pair_verdict, NULL, launch_elementwise};
const mng_op cu_op_scale = {MN_OP_SCALE, 1, NULL, NULL, launch_elementwise};
const mng_op cu_op_softcap = {MN_OP_SOFTCAP, 1, NULL, NULL, launch_elementwise};
const mng_op cu_op_gather_rows = {MN_OP_GATHER_ROWS, 1, mng_pair_verdict, NULL, launch_gather};
const mng_op cu_op_sample = {MN_OP_SAMPLE, 4, mng_sample_verdict, sample_needs, launch_sample};
