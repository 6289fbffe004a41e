/* arch_gemma.c -- Gemma, Gemma 2, the text part of Gemma 3 and the dense ones of Gemma 4 (Gemma
 * Team 2024, 2024, 2025, 2026): embeddings scaled by sqrt(D), from Gemma 2 on norms before and
 * after each block, alternating window layers, soft caps (2) or norms on the heads and a local
 * rotary base (3); in 4 values are normalised, too, and full layers have wider and fewer heads,
 * whose keys may be their values. */
#include "graph/arch.h"
#include <math.h>

static int32_t after(mn_model_graph *g, int i, int32_t y, const char *stem) {
    return g->hp.post_norms ? mn_b_rms(g, i, y, stem) : y;
}

mn_status mn_arch_gemma(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    int32_t x = mn_b_embed(g, sqrt((double)h->n_embd));
    for (int i = 0; i < h->n_layer; i++) {
        int32_t y = mn_b_attention(g, i, mn_b_rms(g, i, x, "blk.%d.attn_norm"));
        x = mn_g_add(g, i, x, after(g, i, y, "blk.%d.post_attention_norm"));
        y = mn_b_glu(g, i, mn_b_rms(g, i, x, "blk.%d.ffn_norm"));
        x = mn_g_add(g, i, x, after(g, i, y, "blk.%d.post_ffw_norm"));
    }
    mn_b_head(g, x, mn_b_rms);
    return g->status;
}

/* Without attn_v the keys before their norm are the values. */
static int32_t attention4(mn_model_graph *g, int i, int32_t x) {
    const mn_layer_shape *l = mn_g_layer(g, i);
    const int64_t D = g->hp.n_embd;
    const int64_t kv = l->n_head_kv * l->head_dim_k;
    const bool own = mn_g_has(g, "blk.%d.attn_v.weight", i);
    const int32_t w[3] = {
        mn_g_matrix(g, "blk.%d.attn_q.weight", i, false, l->n_head * l->head_dim_k, D),
        mn_g_matrix(g, "blk.%d.attn_k.weight", i, false, kv, D),
        own ? mn_g_matrix(g, "blk.%d.attn_v.weight", i, false, kv, D) : -1};
    int32_t qkv[3];
    mn_g_linear(g, i, x, own ? 3 : 2, w, NULL,
                (int64_t[]){l->head_dim_k, l->head_dim_k, l->head_dim_k}, qkv);
    const int32_t v = own ? qkv[2] : qkv[1];
    const char *const norms[2] = {"blk.%d.attn_q_norm.weight", "blk.%d.attn_k_norm.weight"};
    for (int k = 0; k < 2; k++)
        qkv[k] = mn_g_rms_norm(g, i, qkv[k], mn_g_vector(g, norms[k], i, false, l->head_dim_k));
    qkv[2] = mn_g_rms_norm(g, i, v, mn_g_ones(g, l->head_dim_k));
    return mn_b_attend(g, i, qkv);
}

mn_status mn_arch_gemma4(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    int32_t x = mn_b_embed(g, sqrt((double)h->n_embd));
    mn_g_refuse(g, "embedding_length_per_layer_input", "embeddings per layer");
    mn_g_refuse(g, "attention.shared_kv_layers", "layers that share their cache");
    mn_g_refuse(g, "expert_count", "experts");
    for (int i = 0; i < h->n_layer; i++) {
        int32_t y = attention4(g, i, mn_b_rms(g, i, x, "blk.%d.attn_norm"));
        x = mn_g_add(g, i, x, mn_b_rms(g, i, y, "blk.%d.post_attention_norm"));
        y = mn_b_glu(g, i, mn_b_rms(g, i, x, "blk.%d.ffn_norm"));
        x = mn_g_add(g, i, x, mn_b_rms(g, i, y, "blk.%d.post_ffw_norm"));
        x = mn_g_scale_by(g, i, x, "blk.%d.layer_output_scale.weight");
    }
    mn_b_head(g, x, mn_b_rms);
    return g->status;
}
