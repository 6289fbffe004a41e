/* op_rows.c -- operations on rows: EMBED, norms, elementwise, GATHER_ROWS, SAMPLE. Each function
 * gathers the operands of one node for its kernel (k_misc.cu, k_sample.cu); without rows there is
 * no launch. */
#include "ops.h"

/* Two launches: the state of the slots goes forward, then ids become rows. */
static void launch_embed(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const cu_weight *w = cu_weight_of(r, mnp_in(g, n, MN_EMBED_WEIGHT));
    const int32_t history = mnp_in(g, n, MN_EMBED_HISTORY);
    const int32_t positions = mnp_in(g, n, MN_EMBED_POS_WEIGHT);
    const double scale = mnp_attr_f64(g, n, MN_EMBED_ATTR_SCALE);
    cu_embed e = {0};
    e.src = cu_in_i32(r, n, MN_EMBED_SRC);
    e.pos = cu_in_i32(r, n, MN_EMBED_POS);
    e.row_slot = cu_in_i32(r, n, MN_EMBED_ROW_SLOT);
    e.table = cu_planes_of(w);
    e.positions = cu_flat(r, positions);
    e.slots = cu_rows_of(r, mnp_in(g, n, MN_EMBED_SLOTS));
    e.history = cu_i32(r, history);
    e.row_pos = cu_i32(r, mnp_out(g, n, MN_EMBED_OUT_ROW_POS));
    e.ids = (int32_t *)(r->c->scratch + r->p->ids_at);
    e.x = cu_f32(r, mnp_out(g, n, MN_EMBED_OUT_X));
    e.T = (int)cu_dim(r, mnp_in(g, n, MN_EMBED_SRC), 0);
    e.S = (int)cu_dim(r, history, 0);
    e.C = (int)cu_dim(r, history, 1);
    e.V = (int)w->rows;
    e.D = (int)w->cols;
    e.ld = (int)w->ld;
    e.n_positions = (int)cu_dim(r, positions, 0);
    e.factor = scale == 0 ? 1 : (float)scale;
    if (!e.T)
        return;
    cu_embed_state(r->s, &e);
    w->type->embed(r->s, &e);
}

/* Inputs that are not bound switch their filters off; outputs that are not bound are not
 * computed. */
static void launch_sample(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t logits = mnp_in(g, n, MN_SAMPLE_LOGITS);
    const int32_t history = mnp_in(g, n, MN_SAMPLE_HISTORY);
    const int32_t bias_ids = mnp_in(g, n, MN_SAMPLE_BIAS_IDS);
    const int32_t ids = mnp_out(g, n, MN_SAMPLE_OUT_TOP_IDS);
    const int32_t probs = mnp_out(g, n, MN_SAMPLE_OUT_TOP_LOGPROBS);
    cu_sample a = {0};
    a.logits = cu_f32(r, logits);
    a.bias = cu_in_f32(r, n, MN_SAMPLE_BIAS);
    a.out_slot = cu_in_i32(r, n, MN_SAMPLE_OUT_SLOT);
    a.params = cu_rows_of(r, mnp_in(g, n, MN_SAMPLE_PARAMS));
    a.slots = cu_rows_of(r, mnp_in(g, n, MN_SAMPLE_SLOTS));
    a.history = cu_i32(r, history);
    a.mask = cu_ptr(r, mnp_in(g, n, MN_SAMPLE_MASK));
    a.bias_values = cu_in_f32(r, n, MN_SAMPLE_BIAS_VALUES);
    a.bias_ids = a.bias_values ? cu_i32(r, bias_ids) : NULL;
    a.n_bias_ids = (int)cu_dim(r, bias_ids, 1);
    a.target = cu_in_i32(r, n, MN_SAMPLE_TARGET);
    a.draft = cu_in_i32(r, n, MN_SAMPLE_DRAFT);
    a.ids = cu_i32(r, mnp_out(g, n, MN_SAMPLE_OUT_IDS));
    a.logprob = cu_f32(r, mnp_out(g, n, MN_SAMPLE_OUT_LOGPROB));
    a.breakers = cu_ptr(r, mnp_in(g, n, MN_SAMPLE_BREAKERS));
    a.mu = cu_f32(r, mnp_out(g, n, MN_SAMPLE_OUT_MU));
    a.samplers = n->contract >= 4;
    a.adjusted = (float *)(r->c->scratch + r->p->adjusted_at);
    a.count = (int32_t *)(r->c->scratch + r->p->count_at);
    a.O = (int)cu_dim(r, logits, 0);
    a.S = (int)cu_dim(r, history, 0);
    a.C = (int)cu_dim(r, history, 1);
    a.V = (int)cu_dim(r, logits, 1);
    a.top_ids = cu_i32(r, ids);
    a.top_logprobs = cu_f32(r, probs);
    if (a.top_ids || a.top_logprobs) /* not bound = not computed */
        a.n_top = (int)cu_dim(r, ids >= 0 ? ids : probs, 1);
    if (a.O)
        cu_sample_run(r->s, &a);
}

/* The product of experts that wants the rows of y in 16 bits, too; NULL = none. */
static const mn_node *expert_reader(const cu_run *r, int32_t y, int *half) {
    for (uint32_t i = r->p->lo; i < r->p->hi && cu_rounds(r->p); i++) {
        const mn_node *n = mnp_node(r->g, i);
        if (n->op != MN_OP_MOE_LINEAR || mnp_in(r->g, n, MN_MOE_LINEAR_X) != y)
            continue;
        *half = cu_weight_of(r, mnp_in(r->g, n, MN_MOE_LINEAR_WEIGHT))->type->half;
        if (*half == CU_F32)
            return NULL;
        return n;
    }
    return NULL;
}

/* If a product of experts reads y, its 16-bit rows are left in the scratch on the way. */
static void launch_rms_norm(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t x = mnp_in(g, n, MN_RMS_NORM_X);
    const int32_t y = mnp_out(g, n, 0);
    if (cu_runs_router(r, (uint32_t)(u - r->p->units))) {
        cu_launch_router(r, u);
        return;
    }
    cu_norm a = {0};
    a.D = (int)cu_last_dim(r, x);
    a.rows = (int)(cu_elements(r, x) / a.D);
    a.x = cu_f32(r, x);
    a.x_rows = a.rows;
    a.w = cu_in_flat(r, n, MN_RMS_NORM_WEIGHT);
    a.y = cu_ptr(r, y);
    a.y_kind = cu_kind(r, y);
    a.eps = (float)mnp_attr_f64(g, n, MN_RMS_NORM_ATTR_EPS);
    a.offset = (float)mnp_attr_f64(g, n, MN_RMS_NORM_ATTR_OFFSET);
    if (expert_reader(r, y, &a.half_kind) && a.y_kind == CU_F32) {
        a.half = r->c->scratch + r->p->half_at;
        a.ld = (int)mnp_round(a.D, CU_K_ALIGN);
        r->rounded = y;
        r->rounded_kind = a.half_kind;
    }
    if (a.rows)
        cu_rms_norm(r->s, &a);
}

/* Weight and bias may have a row for each of the last but one dim. */
static void launch_layer_norm(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t x = mnp_in(g, n, MN_LAYER_NORM_X);
    const int32_t y = mnp_out(g, n, 0);
    const cu_weight *w = cu_weight_of(r, mnp_in(g, n, MN_LAYER_NORM_WEIGHT));
    const int D = (int)cu_last_dim(r, x);
    const int rows = (int)(cu_elements(r, x) / D);
    const float *weight = (const float *)w->data;
    const float *bias = cu_in_flat(r, n, MN_LAYER_NORM_BIAS);
    const float eps = (float)mnp_attr_f64(g, n, MN_LAYER_NORM_ATTR_EPS);
    const int w_rows = (int)w->rows;
    if (rows)
        cu_layer_norm(r->s, cu_f32(r, x), weight, bias, cu_f32(r, y), rows, w_rows, D, eps);
}

/* ACT, GLU, ADD, MUL, SCALE, SOFTCAP. */
static void launch_elementwise(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t y = mnp_out(g, n, 0);
    cu_elementwise e = {0};
    e.a = cu_in_f32(r, n, 0);
    e.y = cu_ptr(r, y);
    e.n = cu_elements(r, y);
    e.y_kind = cu_kind(r, y);
    switch (n->op) {
    case MN_OP_ACT:
        e.what = CU_EW_ACT;
        e.glu.kind = (int)mnp_attr(g, n, MN_ACT_ATTR_KIND);
        break;
    case MN_OP_GLU:
        e.what = CU_EW_GLU;
        e.glu = cu_glu_attrs(g, n);
        break;
    case MN_OP_SCALE:
        e.what = CU_EW_SCALE;
        e.f = (float)mnp_attr_f64(g, n, MN_SCALE_ATTR_FACTOR);
        break;
    case MN_OP_SOFTCAP:
        e.what = CU_EW_SOFTCAP;
        e.f = (float)mnp_attr_f64(g, n, MN_SOFTCAP_ATTR_CAP);
        break;
    default:
        e.what = n->op == MN_OP_ADD ? CU_EW_ADD : CU_EW_MUL;
    }
    if (n->op == MN_OP_GLU || n->op == MN_OP_ADD || n->op == MN_OP_MUL)
        e.b = cu_in_f32(r, n, 1);
    cu_elementwise_run(r->s, &e);
}

static void launch_gather(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t x = mnp_in(g, n, MN_GATHER_ROWS_X);
    const int32_t y = mnp_out(g, n, 0);
    const int32_t *rows = cu_in_i32(r, n, MN_GATHER_ROWS_ROWS);
    const int n_rows = (int)cu_dim(r, y, 0);
    const int x_rows = (int)cu_dim(r, x, 0);
    const int D = (int)cu_last_dim(r, x);
    if (n_rows)
        cu_gather(r->s, cu_f32(r, x), rows, cu_f32(r, y), n_rows, x_rows, D);
}

/* ---- what they need -------------------------------------------------------------------------- */
static uint32_t embed_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    (void)d;
    const mn_tensor *w = mnp_in_tensor(g, n, MN_EMBED_WEIGHT);
    if (w && w->n_dim == 2 && w->dim[0] <= 1 << 30)
        return CU_OK;
    return CU_SHAPE;
}

static uint32_t two_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    (void)d;
    if (mnp_in(g, n, 1) >= 0)
        return CU_OK;
    return CU_SHAPE;
}

static void embed_needs(const mn_program *p, const mn_node *n, cu_needs *needs) {
    const mn_tensor *src = mnp_in_tensor(p->graph, n, MN_EMBED_SRC);
    const int64_t rows = mnp_dim(p->graph, p->symbol_max, src->dim[0]);
    cu_need(&needs->ids, (uint64_t)rows * 4);
}

static void sample_needs(const mn_program *p, const mn_node *n, cu_needs *needs) {
    const mn_tensor *x = mnp_in_tensor(p->graph, n, MN_SAMPLE_LOGITS);
    const int64_t rows = mnp_dim(p->graph, p->symbol_max, x->dim[0]);
    const int64_t ids = mnp_dim(p->graph, p->symbol_max, x->dim[1]);
    cu_need(&needs->logits, (uint64_t)(rows * ids) * 4);
}

const cu_op cu_op_embed = {MN_OP_EMBED, 1, embed_verdict, embed_needs, launch_embed};
const cu_op cu_op_rms_norm = {MN_OP_RMS_NORM, 1, two_verdict, NULL, launch_rms_norm};
const cu_op cu_op_layer_norm = {MN_OP_LAYER_NORM, 1, two_verdict, NULL, launch_layer_norm};
const cu_op cu_op_act = {MN_OP_ACT, 1, NULL, NULL, launch_elementwise};
const cu_op cu_op_glu = {MN_OP_GLU, 1, two_verdict, NULL, launch_elementwise};
const cu_op cu_op_add = {MN_OP_ADD, 1, two_verdict, NULL, launch_elementwise};
const cu_op cu_op_mul = {MN_OP_MUL, 1, two_verdict, NULL, launch_elementwise};
const cu_op cu_op_scale = {MN_OP_SCALE, 1, NULL, NULL, launch_elementwise};
const cu_op cu_op_softcap = {MN_OP_SOFTCAP, 1, NULL, NULL, launch_elementwise};
const cu_op cu_op_gather_rows = {MN_OP_GATHER_ROWS, 1, two_verdict, NULL, launch_gather};
const cu_op cu_op_sample = {MN_OP_SAMPLE, 4, two_verdict, sample_needs, launch_sample};
