/* arch_blocks.c -- blocks that several families share, each from x: [T, D] to a new tensor.
 *
 * Weights are looked up by GGUF's names; "%d" in a name is the layer that g is at. What a file may
 * leave out (biases, norms on heads, sinks) is asked for as optional, so that one builder serves
 * every model of a family. */
#include "graph/arch.h"
#include <stdio.h>

enum { NAME = 64 };

/* stem and ending as one name. */
static const char *block_named(char full[NAME], const char *stem, const char *ending) {
    snprintf(full, NAME, "%s%s", stem, ending);
    return full;
}

/* ---- norms and products ---------------------------------------------------------------------- */
int32_t mn_b_rms(mn_model_graph *g, int32_t x, const char *stem) {
    char name[NAME];
    block_named(name, stem, ".weight");
    const int32_t w = mn_g_vector(g, name, false, g->hp.n_embd);
    return mn_g_rms_norm(g, x, w);
}

int32_t mn_b_layer_norm(mn_model_graph *g, int32_t x, const char *stem) {
    char name[NAME];
    const double offset = g->hp.norm_offset;
    const int64_t D = g->hp.n_embd;
    block_named(name, stem, ".weight");
    const int32_t w =
        offset > 0 ? mn_g_vector_plus(g, name, D, offset) : mn_g_vector(g, name, false, D);
    block_named(name, stem, ".bias");
    const int32_t b = mn_g_vector(g, name, true, D);
    return mn_g_layer_norm(g, x, w, b);
}

mn_g_product mn_b_product(mn_model_graph *g, const char *stem, int64_t rows, int64_t cols) {
    mn_g_product p;
    char name[NAME];
    block_named(name, stem, ".weight");
    p.weight = mn_g_matrix(g, name, false, rows, cols);
    block_named(name, stem, ".bias");
    p.bias = mn_g_vector(g, name, true, rows);
    return p;
}

mn_g_product mn_b_part(mn_model_graph *g, const char *stem, mn_row_part part, int64_t cols) {
    mn_g_product p;
    char name[NAME];
    block_named(name, stem, ".weight");
    p.weight = mn_g_part_matrix(g, name, false, part, cols);
    block_named(name, stem, ".bias");
    p.bias = mn_g_part_vector(g, name, true, part);
    return p;
}

mn_g_product mn_b_runs(mn_model_graph *g, const char *own, const mn_row_run *runs, uint32_t n,
                       int64_t cols) {
    mn_g_product p;
    p.weight = mn_g_runs(g, own, ".weight", false, runs, n, cols);
    p.bias = mn_g_runs(g, own, ".bias", true, runs, n, 0);
    return p;
}

/* x: [T, cols] -> [T, rows] */
static int32_t linear(mn_model_graph *g, int32_t x, const char *stem, int64_t rows, int64_t cols) {
    const mn_g_product p = mn_b_product(g, stem, rows, cols);
    int32_t y;
    mn_g_linear(g, x, 1, &p, NULL, &y);
    return y;
}

/* ---- attention ------------------------------------------------------------------------------- */
void mn_b_qkv(mn_model_graph *g, int32_t x, int32_t qkv[3]) {
    static const char *const apart[3] = {"blk.%d.attn_q", "blk.%d.attn_k", "blk.%d.attn_v"};
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t head_dim[3] = {l->head_dim_k, l->head_dim_k, l->head_dim_v};
    const int64_t n_head[3] = {l->n_head, l->n_head_kv, l->n_head_kv};
    const bool fused = mn_g_has(g, "blk.%d.attn_qkv.weight");
    mn_row_part part = {0};
    for (int i = 0; i < 3; i++)
        part.total += n_head[i] * head_dim[i];
    /* rows that are normalised whole become heads behind their norms */
    const int64_t whole[3] = {0, 0, l->head_dim_v};
    mn_g_product p[3];
    for (int i = 0; i < 3; i++) {
        part.n = n_head[i] * head_dim[i];
        if (fused)
            p[i] = mn_b_part(g, "blk.%d.attn_qkv", part, g->hp.n_embd);
        else
            p[i] = mn_b_product(g, apart[i], part.n, g->hp.n_embd);
        part.lo += part.n;
    }
    mn_g_linear(g, x, 3, p, g->hp.row_norms ? whole : head_dim, qkv);
}

int32_t mn_b_norm_heads(mn_model_graph *g, int32_t y, const char *name) {
    const int64_t width = mn_g_layer(g)->head_dim_k;
    const int32_t w = mn_g_vector(g, name, !g->hp.head_norms, width);
    if (w < 0)
        return y;
    return mn_g_rms_norm(g, y, w);
}

int32_t mn_b_attend(mn_model_graph *g, const int32_t qkv[3]) {
    const mn_layer_shape *l = mn_g_layer(g);
    int32_t q = mn_g_rope(g, qkv[0]);
    int32_t k = -1;
    if (!l->shares)
        k = mn_g_rope(g, qkv[1]);
    if (g->hp.rotate_first) {
        q = mn_b_norm_heads(g, q, "blk.%d.attn_q_norm.weight");
        k = mn_b_norm_heads(g, k, "blk.%d.attn_k_norm.weight");
    }
    if (g->hp.unit_norms && l->rope >= 0) {
        const int32_t ones = mn_g_ones(g, l->head_dim_k);
        q = mn_g_rms_norm(g, q, ones);
        k = mn_g_rms_norm(g, k, ones);
    }
    const int32_t sinks = mn_g_vector_f32(g, "blk.%d.attn_sinks.weight", true, l->n_head);
    const int32_t y = mn_g_attention(g, q, k, qkv[2], sinks);
    const int64_t cols = l->n_head * l->head_dim_v;
    return linear(g, y, "blk.%d.attn_output", g->hp.n_embd, cols);
}

/* y: [T, rows] of q or k, normalised over the row -> [T, heads, head_dim]. */
static int32_t norm_row(mn_model_graph *g, int32_t y, const char *name) {
    if (g->status)
        return -1;
    const int32_t w = mn_g_vector(g, name, false, g->abi.tensors[y].dim[1]);
    return mn_g_rms_norm_heads(g, y, w, mn_g_layer(g)->head_dim_k);
}

int32_t mn_b_attention(mn_model_graph *g, int32_t x) {
    int32_t qkv[3];
    mn_b_qkv(g, x, qkv);
    if (g->hp.row_norms) {
        qkv[0] = norm_row(g, qkv[0], "blk.%d.attn_q_norm.weight");
        qkv[1] = norm_row(g, qkv[1], "blk.%d.attn_k_norm.weight");
    } else if (!g->hp.rotate_first) {
        qkv[0] = mn_b_norm_heads(g, qkv[0], "blk.%d.attn_q_norm.weight");
        qkv[1] = mn_b_norm_heads(g, qkv[1], "blk.%d.attn_k_norm.weight");
    }
    return mn_b_attend(g, qkv);
}

/* ---- feed-forward ---------------------------------------------------------------------------- */
int32_t mn_b_glu(mn_model_graph *g, int32_t x) {
    const int64_t F = mn_g_layer(g)->n_ff;
    const int64_t D = g->hp.n_embd;
    mn_g_product p[2];
    if (mn_g_has(g, "blk.%d.ffn_gate.weight")) {
        p[0] = mn_b_product(g, "blk.%d.ffn_gate", F, D);
        p[1] = mn_b_product(g, "blk.%d.ffn_up", F, D);
    } else { /* Phi-3: gate, then up */
        const mn_row_part gate = {
            .total = 2 * F,
            .n = F,
        };
        const mn_row_part up = {
            .total = 2 * F,
            .lo = F,
            .n = F,
        };
        p[0] = mn_b_part(g, "blk.%d.ffn_up", gate, D);
        p[1] = mn_b_part(g, "blk.%d.ffn_up", up, D);
    }
    int32_t y[2]; // [T, F] each
    mn_g_linear(g, x, 2, p, NULL, y);
    x = mn_g_glu(g, y[0], y[1], (mn_glu_form){0});
    return linear(g, x, "blk.%d.ffn_down", D, F);
}

int32_t mn_b_mlp(mn_model_graph *g, int32_t x) {
    const int64_t n_ff = mn_g_layer(g)->n_ff;
    x = linear(g, x, "blk.%d.ffn_up", n_ff, g->hp.n_embd);
    x = mn_g_act(g, x);
    return linear(g, x, "blk.%d.ffn_down", g->hp.n_embd, n_ff);
}

/* Which experts of a layer products are of: of a divided layer the first ones, or the rest, whose
 * weights are those of all. */
typedef enum { ALL_EXPERTS, FIRST_EXPERTS, OTHER_EXPERTS } expert_half;

static int64_t experts_in(const mn_model_graph *g, expert_half half) {
    if (half == FIRST_EXPERTS)
        return g->division.n_first;
    return mn_g_layer(g)->n_expert;
}

/* The rows of the part of each expert, [n, part.n, cols]. */
static int32_t expert_rows(mn_model_graph *g, const char *name, expert_half half, mn_row_part part,
                           int64_t cols) {
    const int64_t n_expert = mn_g_layer(g)->n_expert;
    if (half == FIRST_EXPERTS)
        return mn_g_first_experts(g, name, n_expert, experts_in(g, half), part, cols);
    if (part.n < part.total)
        return mn_g_part_experts(g, name, n_expert, part, cols);
    return mn_g_experts(g, name, false, n_expert, part.n, cols);
}

/* Weights [n, rows, cols] and biases [n, rows] of the half's experts. */
static mn_g_product find_experts(mn_model_graph *g, const char *stem, expert_half half,
                                 int64_t rows, int64_t cols) {
    const mn_row_part first = {mn_g_layer(g)->n_expert, 0, experts_in(g, half)};
    mn_g_product p;
    char name[NAME];
    block_named(name, stem, ".weight");
    p.weight = expert_rows(g, name, half, (mn_row_part){rows, 0, rows}, cols);
    block_named(name, stem, ".bias");
    if (half == FIRST_EXPERTS)
        p.bias = mn_g_part_matrix(g, name, true, first, rows);
    else
        p.bias = mn_g_matrix(g, name, true, first.total, rows);
    return p;
}

/* The experts that every token uses, as one gated unit; weighted by the sigmoid of
 * ffn_gate_inp_shexp's product where the file has it, as the only choice of a router. */
static int32_t shared_experts(mn_model_graph *g, int32_t x, mn_glu_form form) {
    const int64_t F = mn_g_layer(g)->n_ff_shared;
    const int64_t D = g->hp.n_embd;
    const bool gated = mn_g_has(g, "blk.%d.ffn_gate_inp_shexp.weight");
    const bool is_glu = mn_g_has(g, "blk.%d.ffn_gate_shexp.weight");
    mn_g_product p[2];
    int32_t y[2]; // [T, F] each
    if (is_glu) {
        p[0] = mn_b_product(g, "blk.%d.ffn_gate_shexp", F, D);
        p[1] = mn_b_product(g, "blk.%d.ffn_up_shexp", F, D);
        mn_g_linear(g, x, 2, p, NULL, y);
        y[0] = mn_g_glu(g, y[0], y[1], form);
    } else {
        p[0] = mn_b_product(g, "blk.%d.ffn_up_shexp", F, D);
        mn_g_linear(g, x, 1, p, NULL, y);
        y[0] = mn_g_act(g, y[0]);
    }
    p[0] = mn_b_product(g, "blk.%d.ffn_down_shexp", D, F);
    mn_g_linear(g, y[0], 1, p, gated ? &D : NULL, y); // [T, 1, D] of the only choice
    if (!gated)
        return y[0];
    const mn_g_route one = {
        .kind = MN_ROUTE_SIGMOID,
        .n_used = 1,
    };
    const int32_t logits = linear(g, x, "blk.%d.ffn_gate_inp_shexp", 1, D);
    int32_t experts;
    int32_t weights;
    mn_g_moe_route(g, logits, -1, one, &experts, &weights);
    return mn_g_moe_combine(g, y[0], weights);
}

/* What a layer's router has chosen. */
typedef struct {
    int32_t logits, experts, weights; // [T, E], [T, J], [T, J]
    mn_glu_form form;
} expert_choice;

/* Of the states of a graph with divided experts, which experts the half has; -1: all. */
static int32_t residents_of(const mn_model_graph *g, expert_half half) {
    if (half == OTHER_EXPERTS)
        return g->io.resident_rest;
    return -1; /* the first are all that their weights have */
}

/* [T, J, F] of the chosen experts: gate and up, stored as two tensors or as one, or up and the
 * activation alone. x: [T, D], for each expert times its factor where the model weighs inputs */
static int32_t expert_gates(mn_model_graph *g, int32_t x, int64_t D, const expert_choice *c,
                            expert_half half) {
    const int64_t F = mn_g_layer(g)->n_ff_expert;
    const int32_t factors = g->hp.weigh_inputs ? c->weights : -1;
    const int32_t resident = residents_of(g, half);
    int32_t y[2] = {-1, -1};
    static const char both[] = "blk.%d.ffn_gate_up_exps.weight";
    mn_g_product p[2] = {{-1, -1}, {-1, -1}};
    if (mn_g_has(g, both)) {
        p[0].weight = expert_rows(g, both, half, (mn_row_part){2 * F, 0, F}, D);
        p[1].weight = expert_rows(g, both, half, (mn_row_part){2 * F, F, F}, D);
    } else if (mn_g_has(g, "blk.%d.ffn_gate_exps.weight")) {
        p[0] = find_experts(g, "blk.%d.ffn_gate_exps", half, F, D);
        p[1] = find_experts(g, "blk.%d.ffn_up_exps", half, F, D);
    } else {
        p[0] = find_experts(g, "blk.%d.ffn_up_exps", half, F, D);
        mn_g_moe_linear_of(g, x, c->experts, 1, p, factors, resident, y);
        return mn_g_act(g, y[0]);
    }
    mn_g_moe_linear_of(g, x, c->experts, 2, p, factors, resident, y);
    return mn_g_glu(g, y[0], y[1], c->form);
}

/* y: [T, J, F] of the chosen experts, each times its factor where the file has one: a product with
 * matrices of one column, whose input, the only weight of one choice, is 1. */
static int32_t scale_chosen(mn_model_graph *g, int32_t y, const expert_choice *c,
                            expert_half half) {
    const mn_layer_shape *l = mn_g_layer(g);
    const mn_g_product factors = {
        mn_g_expert_factors(g, "blk.%d.ffn_down_exps.scale", l->n_expert, l->n_ff_expert), -1};
    const mn_g_route one = {
        .kind = MN_ROUTE_SOFTMAX,
        .normalise = true,
        .n_used = 1,
    };
    int32_t best;
    int32_t ones; // [T, 1]
    int32_t wide; // [T, J, F]
    if (factors.weight < 0)
        return y;
    mn_g_moe_route(g, c->logits, -1, one, &best, &ones);
    mn_g_moe_linear_of(g, ones, c->experts, 1, &factors, -1, residents_of(g, half), &wide);
    return mn_g_mul(g, y, wide);
}

static expert_choice choose_experts(mn_model_graph *g, int32_t logits, mn_glu_form form) {
    const mn_layer_shape *l = mn_g_layer(g);
    const mn_g_route route = {
        .kind = g->hp.route,
        .normalise = g->hp.route_normalise,
        .scale = g->hp.route_scale,
        .n_used = l->n_expert_used,
        .n_group = g->hp.route_groups,
        .n_group_used = g->hp.route_groups_used,
        .jitter = g->hp.route_jitter,
    };
    expert_choice c = {.logits = logits, .form = form};
    const int32_t bias = mn_g_vector_f32(g, "blk.%d.exp_probs_b.bias", true, l->n_expert);
    mn_g_moe_route(g, logits, bias, route, &c.experts, &c.weights);
    return c;
}

/* [T, J, D], what each of the half's chosen experts makes of x. */
static int32_t expert_products(mn_model_graph *g, int32_t x, const expert_choice *c,
                               expert_half half) {
    const int64_t D = g->hp.n_latent ? g->hp.n_latent : g->hp.n_embd;
    const int64_t F = mn_g_layer(g)->n_ff_expert;
    int32_t y = expert_gates(g, x, D, c, half);
    y = scale_chosen(g, y, c, half);
    const mn_g_product down = find_experts(g, "blk.%d.ffn_down_exps", half, D, F);
    mn_g_moe_linear_of(g, y, c->experts, 1, &down, -1, residents_of(g, half), &y);
    return y;
}

/* Of a divided layer, the products of the first experts; -1: it has none. */
static int32_t first_products(mn_model_graph *g, int32_t x, const expert_choice *c) {
    if (!mn_g_divides(g) || !g->division.n_first)
        return -1;
    return expert_products(g, x, c, FIRST_EXPERTS);
}

/* The sum over all chosen experts; first: of first_products, which are added last. */
static int32_t sum_experts(mn_model_graph *g, int32_t x, const expert_choice *c, int32_t first) {
    const int32_t weights = g->hp.weigh_inputs ? -1 : c->weights;
    if (first < 0)
        return mn_g_moe_combine(g, expert_products(g, x, c, ALL_EXPERTS), weights);
    mn_g_part_sum s = {
        .x = expert_products(g, x, c, OTHER_EXPERTS),
        .weights = weights,
        .experts = c->experts,
        .resident = g->io.resident_rest,
        .base = -1,
    };
    s.base = mn_g_moe_combine_part(g, &s);
    s.x = first;
    s.resident = g->io.resident_first;
    return mn_g_moe_combine_part(g, &s);
}

int32_t mn_b_experts(mn_model_graph *g, int32_t x, int32_t logits, mn_glu_form form) {
    const expert_choice c = choose_experts(g, logits, form);
    const int32_t first = first_products(g, x, &c);
    return sum_experts(g, x, &c, first);
}

int32_t mn_b_add_shared(mn_model_graph *g, int32_t sum, int32_t x, mn_glu_form form) {
    if (!mn_g_layer(g)->n_ff_shared)
        return sum;
    return mn_g_add(g, sum, shared_experts(g, x, form));
}

/* Of a divided layer the shared experts are in front of those that another device has. */
int32_t mn_b_moe(mn_model_graph *g, int32_t x, mn_glu_form form) {
    const mn_layer_shape *l = mn_g_layer(g);
    const int32_t logits = linear(g, x, "blk.%d.ffn_gate_inp", l->n_expert, g->hp.n_embd);
    if (!mn_g_divides(g))
        return mn_b_add_shared(g, mn_b_experts(g, x, logits, form), x, form);
    const expert_choice c = choose_experts(g, logits, form);
    const int32_t first = first_products(g, x, &c);
    int32_t shared = -1;
    if (l->n_ff_shared)
        shared = shared_experts(g, x, form);
    const int32_t sum = sum_experts(g, x, &c, first);
    return shared < 0 ? sum : mn_g_add(g, sum, shared);
}

int32_t mn_b_feed_forward(mn_model_graph *g, int32_t x) {
    const mn_glu_form plain = {0};
    if (!mn_g_layer(g)->n_expert)
        return mn_b_glu(g, x);
    return mn_b_moe(g, x, plain);
}

/* ---- begin, end ------------------------------------------------------------------------------ */
int32_t mn_b_residual(mn_model_graph *g, int32_t x, int32_t y) {
    const double scale = g->hp.residual_scale;
    if (scale > 0 && scale != 1)
        y = mn_g_scale(g, y, scale);
    return mn_g_add(g, x, y);
}

/* The name if the layer that g is at has such a tensor, else the model's own. */
static const char *own_or(const mn_model_graph *g, const char *own, const char *usual) {
    return mn_g_has(g, own) ? own : usual;
}

/* What a draft head's layer reads (DeepSeek-AI 2024, "DeepSeek-V3", 2.2): the product of [norm(e) |
 * norm(h)], e the embedding of the row's id, h the state of the row before, as two products. */
static int32_t join_hidden(mn_model_graph *g, int32_t e) {
    const int64_t D = g->hp.n_embd;
    const char *name = "blk.%d.nextn.eh_proj.weight";
    int32_t part[2] = {mn_b_rms(g, e, "blk.%d.nextn.enorm"),
                       mn_b_rms(g, g->io.hidden_in, "blk.%d.nextn.hnorm")};
    for (int64_t i = 0; i < 2; i++) {
        const mn_g_product p = {mn_g_columns(g, name, D, 2 * D, i * D, D), -1};
        mn_g_linear(g, part[i], 1, &p, NULL, &part[i]);
    }
    return mn_g_add(g, part[0], part[1]);
}

static int32_t embed_by(mn_model_graph *g, const char *name, double scale) {
    const mn_hparams *h = &g->hp;
    return mn_g_embed(g, mn_g_matrix(g, name, false, h->n_vocab, h->n_embd), scale, -1);
}

int32_t mn_b_embed(mn_model_graph *g, double scale) {
    if (!g->head)
        return embed_by(g, "token_embd.weight", scale);
    mn_g_next_layer(g);
    const int32_t e =
        embed_by(g, own_or(g, "blk.%d.nextn.embed_tokens.weight", "token_embd.weight"), scale);
    const int32_t x = join_hidden(g, e);
    g->layer = -1;
    return x;
}

/* Behind a draft head's layer: its own norm and output matrix where the file has them. All rows are
 * normalised, since the next step of the head reads them. */
static void end_head(mn_model_graph *g, int32_t x, const char *output) {
    const mn_hparams *h = &g->hp;
    const char *norm = "blk.%d.nextn.shared_head_norm.weight";
    mn_g_next_layer(g);
    norm = own_or(g, norm, "output_norm.weight");
    x = mn_g_rms_norm(g, x, mn_g_vector(g, norm, false, h->n_embd));
    output = own_or(g, "blk.%d.nextn.shared_head_head.weight", output);
    const int32_t w = mn_g_matrix(g, output, false, h->n_vocab, h->n_embd);
    g->layer = -1;
    mn_g_tell_hidden(g, x);
    mn_g_logits(g, mn_g_gather(g, x), w, -1);
}

void mn_b_head(mn_model_graph *g, int32_t x,
               int32_t (*norm)(mn_model_graph *g, int32_t x, const char *stem)) {
    const mn_hparams *h = &g->hp;
    const char *name = "output.weight";
    if (h->tied)
        name = "token_embd.weight";
    if (g->head) {
        end_head(g, x, name);
        return;
    }
    int32_t y;
    if (g->tells) {
        x = norm(g, x, "output_norm");
        mn_g_tell_hidden(g, x);
        y = mn_g_gather(g, x);
    } else {
        y = norm(g, mn_g_gather(g, x), "output_norm");
    }
    if (g->embeds) {
        mn_g_hidden(g, y);
        return;
    }
    const int32_t w = mn_g_matrix(g, name, false, h->n_vocab, h->n_embd);
    const int32_t b = mn_g_vector(g, "output.bias", true, h->n_vocab);
    mn_g_logits(g, y, w, b);
}
