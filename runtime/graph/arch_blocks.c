/* arch_blocks.c -- blocks that several families share. */
#include "graph/arch.h"
#include <stdio.h>

enum { NAME = 64 };

static const char *named(char full[NAME], const char *stem, const char *ending) {
    snprintf(full, NAME, "%s%s", stem, ending);
    return full;
}

int32_t mn_b_rms(mn_model_graph *g, int layer, int32_t x, const char *stem) {
    char name[NAME];
    return mn_g_rms_norm(g, layer, x,
                         mn_g_vector(g, named(name, stem, ".weight"), layer, false, g->hp.n_embd));
}

int32_t mn_b_layer_norm(mn_model_graph *g, int layer, int32_t x, const char *stem) {
    char name[NAME];
    int32_t w = mn_g_vector(g, named(name, stem, ".weight"), layer, false, g->hp.n_embd);
    return mn_g_layer_norm(g, layer, x, w,
                           mn_g_vector(g, named(name, stem, ".bias"), layer, true, g->hp.n_embd));
}

/* One product of a matrix [rows, columns of x] with an optional bias. */
static int32_t linear(mn_model_graph *g, int layer, int32_t x, const char *stem, int64_t rows,
                      int64_t cols) {
    char name[NAME];
    int32_t y;
    const int32_t w = mn_g_matrix(g, named(name, stem, ".weight"), layer, false, rows, cols);
    const int32_t b = mn_g_vector(g, named(name, stem, ".bias"), layer, true, rows);
    mn_g_linear(g, layer, x, 1, &w, &b, NULL, &y);
    return y;
}

void mn_b_qkv(mn_model_graph *g, int layer, int32_t x, int32_t qkv[3]) {
    static const char *const apart[3] = {"blk.%d.attn_q", "blk.%d.attn_k", "blk.%d.attn_v"};
    const mn_layer_shape *l = mn_g_layer(g, layer);
    const int64_t n_embd = g->hp.n_embd;
    const int64_t rows[3] = {l->n_head * l->head_dim_k, l->n_head_kv * l->head_dim_k,
                             l->n_head_kv * l->head_dim_v};
    const int64_t total = rows[0] + rows[1] + rows[2];
    const bool fused = mn_g_has(g, "blk.%d.attn_qkv.weight", layer);
    int32_t w[3];
    int32_t b[3];
    char name[NAME];
    for (int64_t i = 0, lo = 0; i < 3; lo += rows[i++]) {
        const mn_row_part part = {total, lo, rows[i]};
        w[i] =
            fused ? mn_g_part_matrix(g, "blk.%d.attn_qkv.weight", layer, false, part, n_embd)
                  : mn_g_matrix(g, named(name, apart[i], ".weight"), layer, false, rows[i], n_embd);
        b[i] = fused ? mn_g_part_vector(g, "blk.%d.attn_qkv.bias", layer, true, part)
                     : mn_g_vector(g, named(name, apart[i], ".bias"), layer, true, rows[i]);
    }
    mn_g_linear(g, layer, x, 3, w, b, (int64_t[]){l->head_dim_k, l->head_dim_k, l->head_dim_v},
                qkv);
}

int32_t mn_b_attend(mn_model_graph *g, int layer, const int32_t qkv[3]) {
    const mn_layer_shape *l = mn_g_layer(g, layer);
    const int32_t q = mn_g_rope(g, layer, qkv[0]);
    const int32_t k = mn_g_rope(g, layer, qkv[1]);
    const int32_t sinks = mn_g_vector_f32(g, "blk.%d.attn_sinks.weight", layer, true, l->n_head);
    return linear(g, layer, mn_g_attention(g, layer, q, k, qkv[2], sinks), "blk.%d.attn_output",
                  g->hp.n_embd, l->n_head * l->head_dim_v);
}

int32_t mn_b_attention(mn_model_graph *g, int layer, int32_t x) {
    const bool may_lack = !g->hp.head_norms;
    const int64_t width = mn_g_layer(g, layer)->head_dim_k;
    int32_t qkv[3];
    mn_b_qkv(g, layer, x, qkv);
    const int32_t q_norm = mn_g_vector(g, "blk.%d.attn_q_norm.weight", layer, may_lack, width);
    const int32_t k_norm = mn_g_vector(g, "blk.%d.attn_k_norm.weight", layer, may_lack, width);
    if (q_norm >= 0)
        qkv[0] = mn_g_rms_norm(g, layer, qkv[0], q_norm);
    if (k_norm >= 0)
        qkv[1] = mn_g_rms_norm(g, layer, qkv[1], k_norm);
    return mn_b_attend(g, layer, qkv);
}

int32_t mn_b_glu(mn_model_graph *g, int layer, int32_t x) {
    const int64_t n_ff = mn_g_layer(g, layer)->n_ff;
    const int64_t n_embd = g->hp.n_embd;
    int32_t w[2];
    int32_t b[2];
    int32_t y[2];
    if (mn_g_has(g, "blk.%d.ffn_gate.weight", layer)) {
        w[0] = mn_g_matrix(g, "blk.%d.ffn_gate.weight", layer, false, n_ff, n_embd);
        w[1] = mn_g_matrix(g, "blk.%d.ffn_up.weight", layer, false, n_ff, n_embd);
        b[0] = mn_g_vector(g, "blk.%d.ffn_gate.bias", layer, true, n_ff);
        b[1] = mn_g_vector(g, "blk.%d.ffn_up.bias", layer, true, n_ff);
    } else
        for (int i = 0; i < 2; i++) { /* Phi-3: gate, then up */
            const mn_row_part part = {2 * n_ff, i * n_ff, n_ff};
            w[i] = mn_g_part_matrix(g, "blk.%d.ffn_up.weight", layer, false, part, n_embd);
            b[i] = mn_g_part_vector(g, "blk.%d.ffn_up.bias", layer, true, part);
        }
    mn_g_linear(g, layer, x, 2, w, b, NULL, y);
    return linear(g, layer, mn_g_glu(g, layer, y[0], y[1], (mn_glu_form){0}), "blk.%d.ffn_down",
                  n_embd, n_ff);
}

int32_t mn_b_mlp(mn_model_graph *g, int layer, int32_t x) {
    const int64_t n_ff = mn_g_layer(g, layer)->n_ff;
    const int64_t n_embd = g->hp.n_embd;
    x = mn_g_act(g, layer, linear(g, layer, x, "blk.%d.ffn_up", n_ff, n_embd));
    return linear(g, layer, x, "blk.%d.ffn_down", n_embd, n_ff);
}

int32_t mn_b_moe(mn_model_graph *g, int layer, int32_t x, mn_glu_form form) {
    const mn_layer_shape *l = mn_g_layer(g, layer);
    const int64_t E = l->n_expert;
    const int64_t F = l->n_ff_expert;
    const int64_t D = g->hp.n_embd;
    int32_t experts;
    int32_t weights;
    int32_t y[2];
    const int32_t logits = linear(g, layer, x, "blk.%d.ffn_gate_inp", E, D);
    mn_g_moe_route(g, layer, logits, mn_g_vector_f32(g, "blk.%d.exp_probs_b.bias", layer, true, E),
                   &experts, &weights);
    const int32_t w[2] = {mn_g_experts(g, "blk.%d.ffn_gate_exps.weight", layer, false, E, F, D),
                          mn_g_experts(g, "blk.%d.ffn_up_exps.weight", layer, false, E, F, D)};
    const int32_t b[2] = {mn_g_matrix(g, "blk.%d.ffn_gate_exps.bias", layer, true, E, F),
                          mn_g_matrix(g, "blk.%d.ffn_up_exps.bias", layer, true, E, F)};
    mn_g_moe_linear(g, layer, x, experts, 2, w, b, y);
    x = mn_g_glu(g, layer, y[0], y[1], form);
    const int32_t down = mn_g_experts(g, "blk.%d.ffn_down_exps.weight", layer, false, E, D, F);
    const int32_t down_b = mn_g_matrix(g, "blk.%d.ffn_down_exps.bias", layer, true, E, D);
    mn_g_moe_linear(g, layer, x, experts, 1, &down, &down_b, y);
    return mn_g_moe_combine(g, layer, y[0], weights);
}

int32_t mn_b_residual(mn_model_graph *g, int layer, int32_t x, int32_t y) {
    const double scale = g->hp.residual_scale;
    return mn_g_add(g, layer, x, scale > 0 && scale != 1 ? mn_g_scale(g, layer, y, scale) : y);
}

int32_t mn_b_embed(mn_model_graph *g, double scale) {
    return mn_g_embed(
        g, mn_g_matrix(g, "token_embd.weight", -1, false, g->hp.n_vocab, g->hp.n_embd), scale, -1);
}

void mn_b_head(mn_model_graph *g, int32_t x,
               int32_t (*norm)(mn_model_graph *g, int layer, int32_t x, const char *stem)) {
    const mn_hparams *h = &g->hp;
    const int32_t y = norm(g, -1, mn_g_gather(g, x), "output_norm");
    const int32_t w = mn_g_matrix(g, h->tied ? "token_embd.weight" : "output.weight", -1, false,
                                  h->n_vocab, h->n_embd);
    mn_g_logits(g, y, w, mn_g_vector(g, "output.bias", -1, true, h->n_vocab));
}
