/* arch_mamba.c -- models with the mixer of Mamba-2: Mamba-2 alone (Dao and Gu 2024), Nemotron-H
 * (NVIDIA 2025), whose layers are one block each, Granite 4 H (IBM 2025) and Bamba, which mix with
 * a state in most layers and attend in the others, Falcon-H1 (TII 2025), which does both in every
 * layer. What a layer is follows from its tensors. */
#include "graph/arch.h"

void mn_arch_mamba2(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        const int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        x = mn_g_add(g, x, mn_b_mamba2(g, y));
    }
    mn_b_head(g, x, mn_b_rms);
}

/* ---- Nemotron-H ------------------------------------------------------------------------------ */
/* x: [T, cols] -> [T, rows] */
static int32_t widen(mn_model_graph *g, int32_t x, const char *stem, int64_t rows, int64_t cols) {
    const mn_g_product p = mn_b_product(g, stem, rows, cols);
    int32_t y;
    mn_g_linear(g, x, 1, &p, NULL, &y);
    return y;
}

/* The router and the shared expert read x itself, the experts perhaps a narrower form of it. */
static int32_t latent_experts(mn_model_graph *g, int32_t x) {
    const int64_t D = g->hp.n_embd;
    const int64_t L = g->hp.n_latent;
    const mn_glu_form plain = {0};
    const mn_g_product router = mn_b_product(g, "blk.%d.ffn_gate_inp", mn_g_layer(g)->n_expert, D);
    int32_t logits;
    mn_g_linear(g, x, 1, &router, NULL, &logits);
    int32_t y = x;
    if (L)
        y = widen(g, x, "blk.%d.ffn_latent_down", L, D);
    y = mn_b_experts(g, y, logits, plain);
    if (L)
        y = widen(g, y, "blk.%d.ffn_latent_up", D, L);
    return mn_b_add_shared(g, y, x, plain);
}

static int32_t only_block(mn_model_graph *g, int32_t x) {
    if (mn_g_has(g, "blk.%d.ssm_in.weight"))
        return mn_b_mamba2(g, x);
    if (mn_g_layer(g)->attends)
        return mn_b_attention(g, x);
    if (mn_g_layer(g)->n_expert)
        return latent_experts(g, x);
    return mn_b_mlp(g, x);
}

void mn_arch_nemotron_h(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        const int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        x = mn_g_add(g, x, only_block(g, y));
    }
    mn_b_head(g, x, mn_b_rms);
}

/* ---- Granite 4 H, Bamba ---------------------------------------------------------------------- */
void mn_arch_granite_hybrid(mn_model_graph *g) {
    const double scale = g->hp.embd_scale;
    int32_t x = mn_b_embed(g, scale > 0 ? scale : 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        if (mn_g_layer(g)->attends)
            y = mn_b_attention(g, y);
        else
            y = mn_b_mamba2(g, y);
        x = mn_b_residual(g, x, y);
        y = mn_b_rms(g, x, "blk.%d.ffn_norm");
        x = mn_b_residual(g, x, mn_b_feed_forward(g, y));
    }
    mn_b_head(g, x, mn_b_rms);
}

/* ---- Falcon-H1 ------------------------------------------------------------------------------- */
/* The MLP's gate and output have factors. */
static int32_t scaled_glu(mn_model_graph *g, int32_t x) {
    const int64_t F = mn_g_layer(g)->n_ff;
    const int64_t D = g->hp.n_embd;
    const mn_g_product in[2] = {
        mn_b_product(g, "blk.%d.ffn_gate", F, D),
        mn_b_product(g, "blk.%d.ffn_up", F, D),
    };
    const mn_g_product down = mn_b_product(g, "blk.%d.ffn_down", D, F);
    int32_t y[2]; // [T, F] each
    mn_g_linear(g, x, 2, in, NULL, y);
    y[0] = mn_b_scale(g, y[0], g->hp.gate_scale);
    x = mn_g_glu(g, y[0], y[1], (mn_glu_form){0});
    mn_g_linear(g, x, 1, &down, NULL, y);
    return mn_b_scale(g, y[0], g->hp.down_scale);
}

/* GGUF leaves the ending of this norm's name out. */
static int32_t ffn_norm(mn_model_graph *g, int32_t x) {
    if (!mn_g_has(g, "blk.%d.ffn_norm"))
        return mn_b_rms(g, x, "blk.%d.ffn_norm");
    return mn_g_rms_norm(g, x, mn_g_vector(g, "blk.%d.ffn_norm", false, g->hp.n_embd));
}

void mn_arch_falcon_h1(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    int32_t x = mn_b_embed(g, h->embd_scale > 0 ? h->embd_scale : 1);
    while (mn_g_next_layer(g)) {
        const int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        const int32_t mixed = mn_b_mamba2(g, y);
        int32_t seen = mn_b_attention(g, mn_b_scale(g, y, h->attn_in_scale));
        seen = mn_b_scale(g, seen, h->attn_out_scale);
        x = mn_g_add(g, x, mn_g_add(g, mixed, seen));
        x = mn_g_add(g, x, scaled_glu(g, ffn_norm(g, x)));
    }
    mn_b_head(g, x, mn_b_rms);
}
