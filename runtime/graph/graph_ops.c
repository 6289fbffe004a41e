/* graph_ops.c -- one function per operation: the shapes of its outputs, its attributes, one node.
 *
 * Each takes and returns indices of tensors; docs/ops.md has the contracts. A function that looks
 * at the shape of an input returns before that once g has failed, since inputs may be -1 then. */
#include "graph/build.h"

static const mn_tensor *graph_op_tensor(const mn_model_graph *g, int32_t t) {
    return &g->abi.tensors[t];
}

/* A new tensor of the shape of x. */
static int32_t like(mn_model_graph *g, const char *name, int32_t x) {
    if (g->status)
        return -1;
    const mn_tensor *t = graph_op_tensor(g, x);
    int64_t last = 0;
    if (t->n_dim > 2)
        last = t->dim[2];
    return mn_gb_interior(g, name, t->dim[0], t->dim[1], last);
}

/* Ends a node with its one output, which it returns. */
static int32_t graph_op_end(mn_model_graph *g, int32_t y) {
    mn_gb_out(g, y);
    mn_gb_end(g);
    return y;
}

/* Rows of the step, or of its texts. */
static int64_t graph_op_rows(const mn_model_graph *g) {
    return MN_DIM(g->of_text ? MN_SYM_TEXT : MN_SYM_TOKENS);
}

int32_t mn_g_embed(mn_model_graph *g, int32_t table, double scale, int32_t positions) {
    const mn_graph_io *io = &g->io;
    const int64_t T = graph_op_rows(g);
    int32_t *row_pos = g->of_text ? &g->text_row_pos : &g->row_pos;
    const int32_t x = mn_gb_interior(g, g->of_text ? "text_embd" : "embd", T, g->hp.n_embd, 0);
    *row_pos =
        mn_gb_tensor(g, g->of_text ? "text_row_pos" : "row_pos", MN_ROLE_INTERIOR, MN_I32, 1, &T);
    mn_gb_begin(g, MN_OP_EMBED);
    mn_gb_in(g, g->of_text ? io->text_src : io->src);
    mn_gb_in(g, g->of_text ? io->text_pos : io->pos);
    mn_gb_in(g, g->of_text ? io->text_row_slot : io->row_slot);
    mn_gb_in(g, table);
    mn_gb_in(g, io->slots);
    mn_gb_in(g, io->history);
    if (positions >= 0)
        mn_gb_in(g, positions);
    mn_gb_attr_f64(g, scale);
    mn_gb_out(g, x);
    mn_gb_out(g, *row_pos);
    mn_gb_end(g);
    return x;
}

/* by: for each slot and position a row of the table. */
static int32_t graph_op_lookup(mn_model_graph *g, int32_t by, int32_t table, int64_t first,
                               int64_t n, double scale) {
    const int32_t y = mn_gb_interior(g, "lookup", MN_DIM(MN_SYM_TOKENS), n, 0);
    mn_gb_begin(g, MN_OP_LOOKUP);
    mn_gb_in(g, g->row_pos);
    mn_gb_in(g, g->io.row_slot);
    mn_gb_in(g, by);
    mn_gb_in(g, table);
    mn_gb_attr(g, (uint64_t)first);
    mn_gb_attr_f64(g, scale);
    return graph_op_end(g, y);
}

int32_t mn_g_lookup(mn_model_graph *g, int32_t table, int64_t first, int64_t n, double scale) {
    return graph_op_lookup(g, g->io.history, table, first, n, scale);
}

/* What is asked by id elsewhere is asked by position here: no other operation has a table of
 * positions. */
int32_t mn_g_growth(mn_model_graph *g, int64_t n) {
    const int32_t table = mn_gb_growth(g, n);
    if (table < 0)
        return -1;
    return graph_op_lookup(g, g->io.growth_row, table, 0, n, 0);
}

/* ---- norms ----------------------------------------------------------------------------------- */
static int32_t rms_norm(mn_model_graph *g, int32_t x, int32_t weight, double eps, double offset,
                        int32_t y) {
    mn_gb_begin(g, MN_OP_RMS_NORM);
    mn_gb_in(g, x);
    mn_gb_in(g, weight);
    mn_gb_attr_f64(g, eps);
    mn_gb_attr_f64(g, offset);
    return graph_op_end(g, y);
}

int32_t mn_g_rms_norm(mn_model_graph *g, int32_t x, int32_t weight) {
    return rms_norm(g, x, weight, g->hp.norm_eps, g->hp.norm_offset, like(g, "norm", x));
}

int32_t mn_g_rms_norm_of(mn_model_graph *g, int32_t x, int32_t weight, double eps) {
    return rms_norm(g, x, weight, eps, 0, like(g, "norm", x));
}

int32_t mn_g_rms_norm_heads(mn_model_graph *g, int32_t x, int32_t weight, int64_t head_dim) {
    if (g->status)
        return -1;
    const int64_t rows = graph_op_tensor(g, x)->dim[0];
    const int64_t n_head = graph_op_tensor(g, x)->dim[1] / head_dim;
    const int32_t y = mn_gb_interior(g, "norm", rows, n_head, head_dim);
    return rms_norm(g, x, weight, g->hp.norm_eps, g->hp.norm_offset, y);
}

int32_t mn_g_layer_norm_of(mn_model_graph *g, int32_t x, int32_t weight, int32_t bias, double eps) {
    mn_gb_begin(g, MN_OP_LAYER_NORM);
    mn_gb_in(g, x);
    mn_gb_in(g, weight);
    mn_gb_in(g, bias);
    mn_gb_attr_f64(g, eps);
    return graph_op_end(g, like(g, "norm", x));
}

int32_t mn_g_layer_norm(mn_model_graph *g, int32_t x, int32_t weight, int32_t bias) {
    return mn_g_layer_norm_of(g, x, weight, bias, g->hp.norm_eps);
}

/* ---- products -------------------------------------------------------------------------------- */
/* A weight and a bias per output. */
static void put_product(mn_model_graph *g, uint32_t n, const mn_g_product *p) {
    for (uint32_t i = 0; i < n; i++) {
        mn_gb_in(g, p[i].weight);
        mn_gb_in(g, p[i].bias);
    }
}

static void end_outputs(mn_model_graph *g, uint32_t n, const int32_t *y) {
    for (uint32_t i = 0; i < n; i++)
        mn_gb_out(g, y[i]);
    mn_gb_end(g);
}

/* Ends a product. */
static void end_product(mn_model_graph *g, uint32_t n, const mn_g_product *p, const int32_t *y) {
    put_product(g, n, p);
    end_outputs(g, n, y);
}

void mn_g_linear(mn_model_graph *g, int32_t x, uint32_t n, const mn_g_product *p,
                 const int64_t *head_dim, int32_t *y) {
    for (uint32_t i = 0; i < n; i++) {
        y[i] = -1;
        if (g->status)
            continue;
        const int64_t rows = graph_op_tensor(g, x)->dim[0];
        const int64_t cols = graph_op_tensor(g, p[i].weight)->dim[0];
        int64_t hd = 0;
        if (head_dim)
            hd = head_dim[i];
        y[i] = mn_gb_interior(g, "linear", rows, hd ? cols / hd : cols, hd);
    }
    mn_gb_begin(g, MN_OP_LINEAR);
    mn_gb_in(g, x);
    end_product(g, n, p, y);
    for (uint32_t i = 0; i < n; i++)
        y[i] = mn_gb_adapt(g, x, p[i].weight, y[i], -1);
}

void mn_g_moe_linear(mn_model_graph *g, int32_t x, int32_t experts, uint32_t n,
                     const mn_g_product *p, int32_t factors, int32_t *y) {
    mn_g_moe_linear_of(g, x, experts, n, p, factors, -1, y);
}

void mn_g_moe_linear_of(mn_model_graph *g, int32_t x, int32_t experts, uint32_t n,
                        const mn_g_product *p, int32_t factors, int32_t resident, int32_t *y) {
    const int64_t T = MN_DIM(MN_SYM_TOKENS);
    const int64_t n_used = mn_g_layer(g)->n_expert_used;
    for (uint32_t i = 0; i < n; i++) {
        y[i] = -1;
        if (g->status)
            continue;
        const int64_t cols = graph_op_tensor(g, p[i].weight)->dim[1];
        y[i] = mn_gb_interior(g, "moe_linear", T, n_used, cols);
    }
    mn_gb_begin(g, MN_OP_MOE_LINEAR);
    mn_gb_in(g, x);
    mn_gb_in(g, experts);
    put_product(g, n, p);
    if (factors >= 0 || resident >= 0)
        mn_gb_in(g, factors);
    if (resident >= 0)
        mn_gb_in(g, resident);
    end_outputs(g, n, y);
}

int32_t mn_g_heads(mn_model_graph *g, int32_t x, int32_t weight) {
    if (g->status)
        return -1;
    const mn_tensor *t = graph_op_tensor(g, x);
    const mn_tensor *w = graph_op_tensor(g, weight);
    const mn_g_product p = {weight, -1};
    const int64_t width = w->dim[1] + t->dim[2] - w->dim[2];
    const int32_t y = mn_gb_interior(g, "heads", t->dim[0], t->dim[1], width);
    mn_gb_begin(g, MN_OP_LINEAR);
    mn_gb_in(g, x);
    end_product(g, 1, &p, &y);
    return y;
}

/* ---- attention ------------------------------------------------------------------------------- */
int32_t mn_g_rope(mn_model_graph *g, int32_t x) {
    const mn_hparams *h = &g->hp;
    const int32_t at = mn_g_layer(g)->rope;
    if (at < 0)
        return x;
    mn_gb_begin(g, MN_OP_ROPE);
    mn_gb_in(g, x);
    mn_gb_in(g, g->row_pos);
    mn_gb_in(g, g->freqs[at]);
    mn_gb_attr(g, h->rope_pairing);
    mn_gb_attr(g, (uint64_t)h->rope[at].n_rot);
    mn_gb_attr_f64(g, g->rope_mscale[at]);
    return graph_op_end(g, like(g, "rope", x));
}

int32_t mn_g_rope_behind(mn_model_graph *g, int32_t x) {
    const int32_t at = mn_g_layer(g)->rope;
    if (at < 0 || g->status)
        return x;
    const int64_t width = graph_op_tensor(g, x)->dim[2];
    const int32_t freqs = mn_gb_freqs_behind(g, at, width);
    mn_gb_begin(g, MN_OP_ROPE);
    mn_gb_in(g, x);
    mn_gb_in(g, g->row_pos);
    mn_gb_in(g, freqs);
    mn_gb_attr(g, MN_ROPE_ADJACENT);
    mn_gb_attr(g, (uint64_t)width);
    return graph_op_end(g, like(g, "rope", x));
}

/* Where keys and values are: rows of which text, the group, the layer in it. */
typedef struct {
    int32_t row_pos, row_slot, seqs;
    uint32_t group, layer;
} kv_place;

static kv_place cache_place(const mn_model_graph *g, bool of_text, bool crosses) {
    const mn_layer_shape *l = mn_g_layer(g);
    const mn_graph_io *io = &g->io;
    return (kv_place){
        .row_pos = of_text ? g->text_row_pos : g->row_pos,
        .row_slot = of_text ? io->text_row_slot : io->row_slot,
        .seqs = of_text ? io->text_seqs : io->seqs,
        .group = crosses ? g->hp.layer[0].kv_group : l->kv_group,
        .layer = crosses ? l->cross_layer : l->kv_layer,
    };
}

static void kv_store(mn_model_graph *g, int32_t k, int32_t v, kv_place p) {
    mn_gb_begin(g, MN_OP_KV_STORE);
    mn_gb_in(g, k);
    mn_gb_in(g, v);
    mn_gb_in(g, p.row_pos);
    mn_gb_in(g, p.row_slot);
    mn_gb_in(g, g->io.pages[p.group]);
    mn_gb_in(g, g->io.kv[p.group]);
    mn_gb_attr(g, p.layer);
    mn_gb_attr(g, p.group);
    mn_gb_end(g);
}

int32_t mn_g_attention_of(mn_model_graph *g, const mn_g_attended *a) {
    const mn_layer_shape *l = mn_g_layer(g);
    const double softcap = g->hp.attn_softcap;
    const bool of_text = g->of_text;
    const bool both_ways = g->hp.bidirectional || of_text;
    const kv_place p = cache_place(g, of_text, a->reads_text);
    const int32_t y = mn_gb_interior(g, "attn", graph_op_rows(g), l->n_head, l->head_dim_v);
    const int32_t slopes = mn_gb_slopes(g, l->n_head);
    if (!l->shares)
        kv_store(g, a->k, a->v, cache_place(g, of_text || a->reads_text, a->reads_text));
    mn_gb_begin(g, MN_OP_ATTENTION);
    mn_gb_in(g, a->q);
    mn_gb_in(g, p.row_pos);
    mn_gb_in(g, p.row_slot);
    mn_gb_in(g, p.seqs);
    mn_gb_in(g, g->io.pages[p.group]);
    mn_gb_in(g, g->io.kv[p.group]);
    mn_gb_in(g, a->sinks);
    const bool is_relative = g->relative_k >= 0 || g->relative_q >= 0;
    const bool joins = a->bias >= 0 || a->reads_text || is_relative;
    if (slopes >= 0 || joins)
        mn_gb_in(g, slopes);
    if (joins) {
        mn_gb_in(g, a->bias);
        mn_gb_in(g, a->reads_text ? g->io.text_length : -1);
    }
    if (is_relative) {
        mn_gb_in(g, -1); /* ancestors */
        mn_gb_in(g, g->relative_k);
        mn_gb_in(g, g->relative_q);
    }
    const bool of_chunks = l->chunked;
    mn_gb_attr_f64(g, l->attn_scale);
    mn_gb_attr(g, of_chunks ? 0 : (uint64_t)l->window);
    mn_gb_attr_f64(g, softcap > 0 ? softcap : 0);
    mn_gb_attr(g, p.layer);
    mn_gb_attr(g, p.group);
    mn_gb_attr(g, (uint64_t)l->n_head_kv);
    mn_gb_attr(g, (uint64_t)l->head_dim_v);
    const bool of_keys = g->hp.latent.n_kv > 0;
    const bool has_more = of_chunks || a->bias >= 0 || is_relative;
    if (both_ways || of_keys || has_more)
        mn_gb_attr(g, both_ways);
    if (of_keys || has_more)
        mn_gb_attr(g, of_keys); /* values are the first elements of keys */
    if (has_more)
        mn_gb_attr(g, of_chunks ? (uint64_t)l->window : 0);
    if (a->bias >= 0 || (is_relative && g->hp.n_buckets))
        mn_gb_attr(g, (uint64_t)g->hp.far_distance);
    return graph_op_end(g, y);
}

int32_t mn_g_attention(mn_model_graph *g, int32_t q, int32_t k, int32_t v, int32_t sinks) {
    const mn_g_attended a = {.q = q, .k = k, .v = v, .sinks = sinks, .bias = g->distance_bias};
    return mn_g_attention_of(g, &a);
}

/* ---- states ---------------------------------------------------------------------------------- */
/* ROW_POS, SEQS, STATES and STATE, in this order in all three. */
static void state_operands(mn_model_graph *g) {
    const uint32_t group = (uint32_t)MN_MAX(g->hp.state_group, 0);
    mn_gb_in(g, g->row_pos);
    mn_gb_in(g, g->io.seqs);
    mn_gb_in(g, g->io.pages[group]);
    mn_gb_in(g, g->io.kv[group]);
}

/* LAYER and GROUP, the first two attributes. A builder that asks for a state where the model has
 * none found a tensor to be missing. */
static void state_attrs(mn_model_graph *g) {
    mn_gb_attr(g, g->n_states++);
    mn_gb_attr(g, (uint64_t)MN_MAX(g->hp.state_group, 0));
}

int32_t mn_g_conv_state(mn_model_graph *g, int32_t x, int32_t weight, int32_t bias) {
    mn_gb_begin(g, MN_OP_CONV_STATE);
    mn_gb_in(g, x);
    mn_gb_in(g, weight);
    state_operands(g);
    mn_gb_in(g, bias);
    state_attrs(g);
    return graph_op_end(g, like(g, "conv", x));
}

int32_t mn_g_ssm_scan(mn_model_graph *g, const mn_g_scan *s) {
    const mn_ssm *h = &g->hp.ssm;
    const int64_t T = MN_DIM(MN_SYM_TOKENS);
    const bool is_one = h->n_group == 1;
    int32_t y;
    if (is_one)
        y = mn_gb_interior(g, "scan", T, h->inner, 0);
    else
        y = mn_gb_interior(g, "scan", T, h->n_group, h->inner / h->n_group);
    mn_gb_begin(g, MN_OP_SSM_SCAN);
    mn_gb_in(g, s->xbc);
    mn_gb_in(g, s->dt);
    mn_gb_in(g, s->a);
    mn_gb_in(g, s->d);
    mn_gb_in(g, s->dt_bias);
    state_operands(g);
    state_attrs(g);
    mn_gb_attr(g, (uint64_t)h->n_group);
    mn_gb_attr(g, s->a_is_log);
    mn_gb_attr_f64(g, h->dt_min);
    mn_gb_attr_f64(g, h->dt_max);
    return graph_op_end(g, y);
}

int32_t mn_g_gated_delta(mn_model_graph *g, const mn_g_delta *d) {
    const double squares_eps = 1e-6; /* of q and k: a constant of the families */
    const mn_ssm *h = &g->hp.ssm;
    const int32_t y = mn_gb_interior(g, "delta", MN_DIM(MN_SYM_TOKENS), d->n_head, d->dim_v);
    mn_gb_begin(g, MN_OP_GATED_DELTA);
    mn_gb_in(g, d->qkv);
    mn_gb_in(g, d->gate);
    mn_gb_in(g, d->beta);
    mn_gb_in(g, d->a);
    mn_gb_in(g, d->dt_bias);
    state_operands(g);
    state_attrs(g);
    mn_gb_attr(g, (uint64_t)h->n_group);
    mn_gb_attr(g, h->heads_in_turn);
    mn_gb_attr(g, d->a_is_log);
    mn_gb_attr_f64(g, squares_eps);
    mn_gb_attr_f64(g, 0);
    mn_gb_attr_f64(g, h->beta_scale);
    return graph_op_end(g, y);
}

/* ---- element by element ---------------------------------------------------------------------- */
int32_t mn_g_act_of(mn_model_graph *g, int32_t x, uint32_t kind) {
    mn_gb_begin(g, MN_OP_ACT);
    mn_gb_in(g, x);
    mn_gb_attr(g, kind);
    return graph_op_end(g, like(g, "act", x));
}

int32_t mn_g_act(mn_model_graph *g, int32_t x) {
    const mn_xielu *n = &mn_g_layer(g)->xielu;
    if (g->hp.act != MN_ACT_XIELU)
        return mn_g_act_of(g, x, g->hp.act);
    mn_gb_begin(g, MN_OP_ACT);
    mn_gb_in(g, x);
    mn_gb_attr(g, MN_ACT_XIELU);
    mn_gb_attr_f64(g, n->alpha_p);
    mn_gb_attr_f64(g, n->alpha_n);
    mn_gb_attr_f64(g, n->beta);
    mn_gb_attr_f64(g, n->eps);
    return graph_op_end(g, like(g, "act", x));
}

int32_t mn_g_glu_of(mn_model_graph *g, int32_t gate, int32_t up, uint32_t kind) {
    mn_gb_begin(g, MN_OP_GLU);
    mn_gb_in(g, gate);
    mn_gb_in(g, up);
    mn_gb_attr(g, kind);
    return graph_op_end(g, like(g, "glu", gate));
}

int32_t mn_g_glu(mn_model_graph *g, int32_t gate, int32_t up, mn_glu_form form) {
    const bool plain = form.alpha == 0 && form.limit == 0 && form.up_offset == 0;
    mn_gb_begin(g, MN_OP_GLU);
    mn_gb_in(g, gate);
    mn_gb_in(g, up);
    mn_gb_attr(g, g->hp.act);
    if (!plain) {
        mn_gb_attr_f64(g, form.alpha);
        mn_gb_attr_f64(g, form.limit);
        mn_gb_attr_f64(g, form.up_offset);
    }
    return graph_op_end(g, like(g, "glu", gate));
}

int32_t mn_g_add(mn_model_graph *g, int32_t a, int32_t b) {
    mn_gb_begin(g, MN_OP_ADD);
    mn_gb_in(g, a);
    mn_gb_in(g, b);
    return graph_op_end(g, like(g, "add", a));
}

int32_t mn_g_mul(mn_model_graph *g, int32_t a, int32_t b) {
    mn_gb_begin(g, MN_OP_MUL);
    mn_gb_in(g, a);
    mn_gb_in(g, b);
    return graph_op_end(g, like(g, "mul", a));
}

static int32_t scale(mn_model_graph *g, int32_t x, double factor, int32_t y) {
    mn_gb_begin(g, MN_OP_SCALE);
    mn_gb_in(g, x);
    mn_gb_attr_f64(g, factor);
    return graph_op_end(g, y);
}

int32_t mn_g_scale(mn_model_graph *g, int32_t x, double factor) {
    return scale(g, x, factor, like(g, "scale", x));
}

/* ---- experts --------------------------------------------------------------------------------- */
void mn_g_moe_route(mn_model_graph *g, int32_t logits, int32_t bias, mn_g_route how,
                    int32_t *experts, int32_t *weights) {
    const int64_t dim[2] = {MN_DIM(MN_SYM_TOKENS), how.n_used};
    *experts = mn_gb_tensor(g, "experts", MN_ROLE_INTERIOR, MN_I32, 2, dim);
    *weights = mn_gb_interior(g, "expert_weights", dim[0], dim[1], 0);
    mn_gb_begin(g, MN_OP_MOE_ROUTE);
    mn_gb_in(g, logits);
    mn_gb_in(g, bias);
    mn_gb_attr(g, how.kind);
    mn_gb_attr(g, how.normalise);
    mn_gb_attr_f64(g, how.scale);
    if (how.n_group) {
        mn_gb_attr(g, (uint64_t)how.n_group);
        mn_gb_attr(g, (uint64_t)how.n_group_used);
        /* of its best expert, where a bias corrects scores of its best two (DeepSeek-AI 2024) */
        mn_gb_attr(g, how.kind == MN_ROUTE_SIGMOID ? 2 : 1);
    }
    if (how.kind == MN_ROUTE_SPARSEMIXER) {
        for (uint32_t i = MN_MOE_ROUTE_ATTR_N_GROUP; i < MN_MOE_ROUTE_ATTR_JITTER; i++)
            mn_gb_attr(g, 0);
        mn_gb_attr_f64(g, how.jitter);
    }
    mn_gb_out(g, *experts);
    mn_gb_out(g, *weights);
    mn_gb_end(g);
}

int32_t mn_g_moe_combine(mn_model_graph *g, int32_t x, int32_t weights) {
    if (g->status)
        return -1;
    const mn_tensor *t = graph_op_tensor(g, x); // [T, n_expert_used, D]
    const int32_t y = mn_gb_interior(g, "moe", t->dim[0], t->dim[2], 0);
    mn_gb_begin(g, MN_OP_MOE_COMBINE);
    mn_gb_in(g, x);
    mn_gb_in(g, weights);
    return graph_op_end(g, y);
}

int32_t mn_g_moe_combine_part(mn_model_graph *g, const mn_g_part_sum *s) {
    if (g->status)
        return -1;
    const mn_tensor *t = graph_op_tensor(g, s->x); // [T, n_expert_used, D]
    const int32_t y = mn_gb_interior(g, "moe_part", t->dim[0], t->dim[2], 0);
    mn_gb_begin(g, MN_OP_MOE_COMBINE);
    mn_gb_in(g, s->x);
    mn_gb_in(g, s->weights);
    mn_gb_in(g, s->experts);
    mn_gb_in(g, s->resident);
    if (s->base >= 0)
        mn_gb_in(g, s->base);
    return graph_op_end(g, y);
}

bool mn_g_divides(mn_model_graph *g) {
    const mn_division *d = &g->division;
    const int64_t n = mn_g_layer(g)->n_expert;
    mn_graph_io *io = &g->io;
    if (g->status || !d->on || g->layer < d->layer_lo || n <= d->n_first)
        return false;
    if (d->n_first && io->resident_rest < 0) {
        io->resident_rest = mn_gb_tensor(g, "resident_rest", MN_ROLE_STATE, MN_I32, 1, &n);
        io->resident_first = mn_gb_tensor(g, "resident_first", MN_ROLE_STATE, MN_I32, 1, &n);
    }
    return !d->n_first || (!g->status && graph_op_tensor(g, io->resident_rest)->dim[0] == n);
}

/* ---- the end --------------------------------------------------------------------------------- */
int32_t mn_g_gather(mn_model_graph *g, int32_t x) {
    const int64_t O = MN_DIM(MN_SYM_OUTPUTS);
    const int32_t rows = mn_gb_interior(g, "out_rows", O, g->hp.n_embd, 0);
    mn_gb_begin(g, MN_OP_GATHER_ROWS);
    mn_gb_in(g, x);
    mn_gb_in(g, g->io.out_row);
    return graph_op_end(g, rows);
}

static int32_t softcap(mn_model_graph *g, int32_t x, int32_t y, double cap) {
    mn_gb_begin(g, MN_OP_SOFTCAP);
    mn_gb_in(g, x);
    mn_gb_attr_f64(g, cap);
    return graph_op_end(g, y);
}

int32_t mn_g_softcap(mn_model_graph *g, int32_t x, double cap) {
    return softcap(g, x, like(g, "softcap", x), cap);
}

/* Behind all other tensors, so that these have the indices that they have in a graph that only
 * draws. */
static void graph_op_add_mask(mn_model_graph *g) {
    const int64_t mask[] = {MN_DIM(MN_SYM_OUTPUTS), MN_MASK_WORDS(g->hp.n_vocab)};
    g->io.mask = mn_gb_tensor(g, "mask", MN_ROLE_INPUT, MN_I32, 2, mask);
}

static void add_scores(mn_model_graph *g) {
    mn_graph_io *io = &g->io;
    const int64_t O = MN_DIM(MN_SYM_OUTPUTS);
    const int64_t bias[] = {MN_DIM(MN_SYM_SLOTS), MN_GRAPH_BIAS};
    const int64_t top[] = {O, MN_GRAPH_TOP};
    io->bias_ids = mn_gb_tensor(g, "bias_ids", MN_ROLE_INPUT, MN_I32, 2, bias);
    io->bias_values = mn_gb_tensor(g, "bias_values", MN_ROLE_INPUT, MN_F32, 2, bias);
    io->target = mn_gb_tensor(g, "target", MN_ROLE_INPUT, MN_I32, 1, &O);
    io->top_ids = mn_gb_tensor(g, "top_ids", MN_ROLE_OUTPUT, MN_I32, 2, top);
    io->top_logprobs = mn_gb_tensor(g, "top_logprobs", MN_ROLE_OUTPUT, MN_F32, 2, top);
    io->logprob = mn_gb_tensor(g, "logprob", MN_ROLE_OUTPUT, MN_F32, 1, &O);
}

static void add_samplers(mn_model_graph *g) {
    mn_graph_io *io = &g->io;
    const int64_t O = MN_DIM(MN_SYM_OUTPUTS);
    const int64_t words[] = {MN_DIM(MN_SYM_SLOTS), MN_MASK_WORDS(g->hp.n_vocab)};
    io->breakers = mn_gb_tensor(g, "breakers", MN_ROLE_INPUT, MN_I32, 2, words);
    io->mu = mn_gb_tensor(g, "mu", MN_ROLE_OUTPUT, MN_F32, 1, &O);
}

static void sample(mn_model_graph *g) {
    mn_graph_io *io = &g->io;
    const int64_t O = MN_DIM(MN_SYM_OUTPUTS);
    io->ids = mn_gb_tensor(g, "ids", MN_ROLE_OUTPUT, MN_I32, 1, &O);
    if (g->masks)
        graph_op_add_mask(g);
    if (g->scores)
        add_scores(g);
    if (g->samplers)
        add_samplers(g);
    if (g->drafts)
        io->draft = mn_gb_tensor(g, "draft", MN_ROLE_INPUT, MN_I32, 1, &O);
    mn_gb_begin(g, MN_OP_SAMPLE);
    mn_gb_in(g, io->logits);
    mn_gb_in(g, io->out_slot);
    mn_gb_in(g, io->params);
    mn_gb_in(g, io->slots);
    mn_gb_in(g, io->history);
    mn_gb_in(g, -1);
    if (g->masks || g->drafts)
        mn_gb_in(g, io->mask);
    if (g->scores || g->drafts) {
        mn_gb_in(g, io->bias_ids);
        mn_gb_in(g, io->bias_values);
        mn_gb_in(g, io->target);
    }
    if (g->drafts || g->samplers)
        mn_gb_in(g, io->draft);
    if (g->samplers)
        mn_gb_in(g, io->breakers);
    mn_gb_out(g, io->ids);
    mn_gb_out(g, io->top_ids);
    mn_gb_out(g, io->top_logprobs);
    if (g->scores)
        mn_gb_out(g, io->logprob);
    if (g->samplers)
        mn_gb_out(g, io->mu);
    mn_gb_end(g);
}

/* The last of the nodes that make the logits writes the output; those before it write interior
 * tensors. */
void mn_g_logits(mn_model_graph *g, int32_t x, int32_t table, int32_t bias) {
    const mn_hparams *h = &g->hp;
    const int64_t dim[] = {MN_DIM(MN_SYM_OUTPUTS), h->n_vocab};
    const bool scaled = h->logit_scale > 0 && h->logit_scale != 1;
    const bool capped = h->logit_softcap > 0;
    const int32_t logits = mn_gb_tensor(g, "logits", MN_ROLE_OUTPUT, MN_F32, 2, dim);
    int32_t sum = logits;
    if (scaled || capped)
        sum = mn_gb_interior(g, "logits.plain", dim[0], dim[1], 0);
    int32_t y = sum;
    if (mn_gb_adapts_next(g, table))
        y = mn_gb_interior(g, "logits.base", dim[0], dim[1], 0);
    const mn_g_product p = {table, bias};
    mn_gb_begin(g, MN_OP_LINEAR);
    mn_gb_in(g, x);
    end_product(g, 1, &p, &y);
    y = mn_gb_adapt(g, x, table, y, sum);
    if (scaled) {
        int32_t to = logits;
        if (capped)
            to = mn_gb_interior(g, "logits.scaled", dim[0], dim[1], 0);
        y = scale(g, y, 1 / h->logit_scale, to);
    }
    if (capped)
        softcap(g, y, logits, g->hp.logit_softcap);
    g->io.logits = logits;
    sample(g);
}

void mn_g_hidden(mn_model_graph *g, int32_t x) {
    g->io.hidden = x;
    mn_gb_make_output(g, x, "hidden");
}

void mn_g_tell_hidden(mn_model_graph *g, int32_t x) {
    g->io.hidden_out = x;
    mn_gb_make_output(g, x, "hidden_out");
}
