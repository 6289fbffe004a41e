/* op_rows.c -- operations on rows: EMBED, norms, elementwise, GATHER_ROWS, copies of views. Each
 * function gathers the operands of one node for its kernel (rows.cl, embed.cl). */
#include "ops.h"

#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

/* Ids, in the scratch, become rows. positions: learned ones, or absent. */
static void embed_rows(mng_run *r, const mng_weight *w, ocl_embed_args a, mng_ref positions,
                       mng_ref row_pos, mng_ref x) {
    for (uint32_t i = 0; i < w->n_parts; i++) {
        const mng_part part = mng_part_of(w, i);
        const mng_ref rows[] = {part.at, positions, mng_needed(r, OCL_NEED_IDS), row_pos, x};
        a.first = (int)part.first;
        a.count = (int)part.rows;
        ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_embed_rows,
                                     .type = w->type,
                                     .refs = rows,
                                     .n_refs = N_REFS(rows),
                                     .args = &a,
                                     .args_bytes = sizeof a,
                                     .grid = ocl_items((a.D + 15) / 16, a.T, 1)});
    }
}

/* Two kernels: the state of the slots goes forward, then ids become rows. */
static void embed(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const mng_weight *w = mng_weight_of(r, mnp_in(r->g, n, MN_EMBED_WEIGHT));
    const int32_t history = mnp_in(r->g, n, MN_EMBED_HISTORY);
    const int32_t positions = mnp_in(r->g, n, MN_EMBED_POS_WEIGHT);
    const double scale = mnp_attr_f64(r->g, n, MN_EMBED_ATTR_SCALE);
    const mng_ref ids = mng_needed(r, OCL_NEED_IDS);
    const mng_ref row_pos = mng_out(r, n, MN_EMBED_OUT_ROW_POS);
    ocl_embed_args a = {.w = ocl_matrix_of(w)};
    a.factor = scale == 0 ? 1 : (float)scale;
    a.T = (int)mng_dim(r, mnp_in(r->g, n, MN_EMBED_SRC), 0);
    a.S = (int)mng_dim(r, history, 0);
    a.C = (int)mng_dim(r, history, 1);
    a.V = (int)w->rows;
    a.D = (int)w->cols;
    a.slot_words = (int)mng_dim(r, mnp_in(r->g, n, MN_EMBED_SLOTS), 1);
    a.n_positions = (int)mng_dim(r, positions, 0);
    const mng_ref state[] = {mng_in(r, n, MN_EMBED_SRC),
                             mng_in(r, n, MN_EMBED_POS),
                             mng_in(r, n, MN_EMBED_ROW_SLOT),
                             mng_in(r, n, MN_EMBED_SLOTS),
                             mng_in(r, n, MN_EMBED_HISTORY),
                             row_pos,
                             ids};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_embed_state,
                                 .refs = state,
                                 .n_refs = N_REFS(state),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items(a.T, 1, 1)});
    embed_rows(r, w, a, mng_operand(r, positions), row_pos, mng_out(r, n, MN_EMBED_OUT_X));
}

static void embed_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_tensor *src = mnp_in_tensor(p->base.graph, n, MN_EMBED_SRC);
    mng_need(needs, OCL_NEED_IDS,
             (uint64_t)mnp_dim(p->base.graph, p->base.symbol_max, src->dim[0]) * 4);
}

static void lookup(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const mng_weight *w = mng_weight_of(r, mnp_in(r->g, n, MN_LOOKUP_WEIGHT));
    const int32_t history = mnp_in(r->g, n, MN_LOOKUP_HISTORY);
    const double scale = mnp_attr_f64(r->g, n, MN_LOOKUP_ATTR_SCALE);
    const mng_ref row_pos = mng_in(r, n, MN_LOOKUP_ROW_POS);
    ocl_embed_args a = {.w = ocl_matrix_of(w)};
    a.factor = scale == 0 ? 1 : (float)scale;
    a.T = (int)mng_dim(r, mnp_in(r->g, n, MN_LOOKUP_ROW_POS), 0);
    a.S = (int)mng_dim(r, history, 0);
    a.C = (int)mng_dim(r, history, 1);
    a.V = (int)w->rows;
    a.D = (int)mng_last_dim(r, mnp_out(r->g, n, 0));
    a.column = (int)mnp_attr(r->g, n, MN_LOOKUP_ATTR_FIRST);
    const mng_ref state[] = {row_pos, mng_in(r, n, MN_LOOKUP_ROW_SLOT),
                             mng_in(r, n, MN_LOOKUP_HISTORY), mng_needed(r, OCL_NEED_IDS)};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_lookup_ids,
                                 .refs = state,
                                 .n_refs = N_REFS(state),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items(a.T, 1, 1)});
    embed_rows(r, w, a, mng_absent(r), row_pos, mng_out(r, n, 0));
}

static void lookup_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_tensor *row_pos = mnp_in_tensor(p->base.graph, n, MN_LOOKUP_ROW_POS);
    mng_need(needs, OCL_NEED_IDS,
             (uint64_t)mnp_dim(p->base.graph, p->base.symbol_max, row_pos->dim[0]) * 4);
}

static void rms_norm(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t x = mnp_in(r->g, n, MN_RMS_NORM_X);
    const mng_weight *w = mng_weight_of(r, mnp_in(r->g, n, MN_RMS_NORM_WEIGHT));
    ocl_norm_args a = {.D = (int)mng_last_dim(r, x), .w_rows = (int)w->rows, .n = (int)w->cols};
    a.eps = (float)mnp_attr_f64(r->g, n, MN_RMS_NORM_ATTR_EPS);
    a.offset = (float)mnp_attr_f64(r->g, n, MN_RMS_NORM_ATTR_OFFSET);
    const mng_ref refs[] = {mng_operand(r, x), mng_in(r, n, MN_RMS_NORM_WEIGHT), mng_out(r, n, 0)};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_rms_norm,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_groups(r, mng_elements(r, x) / a.D, 1)});
}

/* Weight and bias may have a row for each of the last but one dim. */
static void layer_norm(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t x = mnp_in(r->g, n, MN_LAYER_NORM_X);
    const mng_weight *w = mng_weight_of(r, mnp_in(r->g, n, MN_LAYER_NORM_WEIGHT));
    ocl_norm_args a = {.D = (int)mng_last_dim(r, x), .w_rows = (int)w->rows};
    a.eps = (float)mnp_attr_f64(r->g, n, MN_LAYER_NORM_ATTR_EPS);
    const mng_ref refs[] = {mng_operand(r, x), mng_in(r, n, MN_LAYER_NORM_WEIGHT),
                            mng_in(r, n, MN_LAYER_NORM_BIAS), mng_out(r, n, 0)};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_layer_norm,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_groups(r, mng_elements(r, x) / a.D, 1)});
}

/* What the kernel of elements does for an operation. */
static int what_of(uint32_t op) {
    switch (op) {
    case MN_OP_ACT:
        return OCL_ACT;
    case MN_OP_GLU:
        return OCL_GLU;
    case MN_OP_ADD:
        return OCL_ADD;
    case MN_OP_MUL:
        return OCL_MUL;
    case MN_OP_SCALE:
        return OCL_SCALE;
    default:
        return OCL_SOFTCAP;
    }
}

static void add_glu_attrs(const mng_run *r, const mn_node *n, ocl_elementwise_args *a) {
    const mng_glu glu = mng_glu_of(r->g, n);
    a->kind = glu.kind;
    a->alpha = glu.alpha;
    a->limit = glu.limit;
    a->offset = glu.up_offset;
}

static void add_act_attrs(const mng_run *r, const mn_node *n, ocl_elementwise_args *a) {
    a->kind = (int)mnp_attr(r->g, n, MN_ACT_ATTR_KIND);
    if (a->kind != MN_ACT_XIELU)
        return;
    a->what = OCL_XIELU;
    a->alpha = (float)mnp_attr_f64(r->g, n, MN_ACT_ATTR_ALPHA_P);
    a->limit = (float)mnp_attr_f64(r->g, n, MN_ACT_ATTR_ALPHA_N);
    a->offset = (float)mnp_attr_f64(r->g, n, MN_ACT_ATTR_BETA);
    a->factor = (float)mnp_attr_f64(r->g, n, MN_ACT_ATTR_EPS);
}

void ocl_scale_pairs(mng_run *r, mng_ref y, mng_ref factors, int64_t n, int64_t n_pairs) {
    const ocl_elementwise_args a = {
        .n = (uint64_t)n, .what = OCL_PAIRS, .kind = (int)(n / n_pairs)};
    const mng_ref refs[] = {y, factors, y};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_elementwise,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items(n, 1, 1)});
}

/* ACT, GLU, ADD, MUL, SCALE, SOFTCAP. */
static void elementwise(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t y = mnp_out(r->g, n, 0);
    ocl_elementwise_args a = {.n = (uint64_t)mng_elements(r, y), .what = what_of(n->op)};
    if (n->op == MN_OP_ACT)
        add_act_attrs(r, n, &a);
    if (n->op == MN_OP_GLU)
        add_glu_attrs(r, n, &a);
    if (n->op == MN_OP_SCALE)
        a.factor = (float)mnp_attr_f64(r->g, n, MN_SCALE_ATTR_FACTOR);
    if (n->op == MN_OP_SOFTCAP)
        a.factor = (float)mnp_attr_f64(r->g, n, MN_SOFTCAP_ATTR_CAP);
    const mng_ref refs[] = {mng_in(r, n, 0), mng_in(r, n, 1), mng_operand(r, y)};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_elementwise,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items((int64_t)a.n, 1, 1)});
}

static void gather_rows(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t x = mnp_in(r->g, n, MN_GATHER_ROWS_X);
    const ocl_gather_args a = {.rows = (int)mng_dim(r, x, 0), .D = (int)mng_last_dim(r, x)};
    const int64_t outputs = mng_dim(r, mnp_out(r->g, n, 0), 0);
    const mng_ref refs[] = {mng_operand(r, x), mng_in(r, n, MN_GATHER_ROWS_ROWS), mng_out(r, n, 0)};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_gather_rows,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_groups(r, outputs, 1)});
}

void ocl_copy_view(mng_run *r, const mng_view *v) {
    ocl_view_args a = {.n = (uint64_t)v->n, .n_dim = (int)v->n_dim, .out = v->out};
    for (uint32_t d = 0; d < v->n_dim; d++) {
        a.dim[d] = (uint64_t)v->dim[d];
        a.stride[d] = (uint64_t)v->stride[d];
    }
    const mng_ref refs[] = {v->dense, v->apart};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_copy_view,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items(v->n, 1, 1)});
}

const mng_op ocl_op_embed = {MN_OP_EMBED, 1, mng_embed_verdict, embed_needs, embed};
const mng_op ocl_op_lookup = {MN_OP_LOOKUP, 1, mng_lookup_verdict, lookup_needs, lookup};
const mng_op ocl_op_rms_norm = {MN_OP_RMS_NORM, 3, mng_pair_verdict, NULL, rms_norm};
const mng_op ocl_op_layer_norm = {MN_OP_LAYER_NORM, 1, mng_pair_verdict, NULL, layer_norm};
const mng_op ocl_op_act = {MN_OP_ACT, 3, NULL, NULL, elementwise};
const mng_op ocl_op_glu = {MN_OP_GLU, 2, mng_pair_verdict, NULL, elementwise};
const mng_op ocl_op_add = {MN_OP_ADD, 1, mng_pair_verdict, NULL, elementwise};
const mng_op ocl_op_mul = {MN_OP_MUL, 1, mng_pair_verdict, NULL, elementwise};
const mng_op ocl_op_scale = {MN_OP_SCALE, 1, NULL, NULL, elementwise};
const mng_op ocl_op_softcap = {MN_OP_SOFTCAP, 1, NULL, NULL, elementwise};
const mng_op ocl_op_gather_rows = {MN_OP_GATHER_ROWS, 1, mng_pair_verdict, NULL, gather_rows};
