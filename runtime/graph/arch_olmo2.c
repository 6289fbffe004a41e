/* arch_olmo2.c -- OLMo 2 (OLMo Team 2025): norms after the blocks instead of before, and over all
 * heads of q and of k at once. */
#include "graph/arch.h"

static int32_t attention(mn_model_graph *g, int i, int32_t x) {
    const mn_hparams *h = &g->hp;
    const mn_layer_shape *l = mn_g_layer(g, i);
    const int64_t q = l->n_head * l->head_dim_k;
    const int64_t k = l->n_head_kv * l->head_dim_k;
    const int64_t v = l->n_head_kv * l->head_dim_v;
    const int32_t w[3] = {mn_g_matrix(g, "blk.%d.attn_q.weight", i, false, q, h->n_embd),
                          mn_g_matrix(g, "blk.%d.attn_k.weight", i, false, k, h->n_embd),
                          mn_g_matrix(g, "blk.%d.attn_v.weight", i, false, v, h->n_embd)};
    const int32_t b[3] = {mn_g_vector(g, "blk.%d.attn_q.bias", i, true, q),
                          mn_g_vector(g, "blk.%d.attn_k.bias", i, true, k),
                          mn_g_vector(g, "blk.%d.attn_v.bias", i, true, v)};
    int32_t qkv[3];
    mn_g_linear(g, i, x, 3, w, b, (int64_t[]){0, 0, l->head_dim_v}, qkv);
    qkv[0] = mn_g_rms_norm_heads(
        g, i, qkv[0], mn_g_vector(g, "blk.%d.attn_q_norm.weight", i, false, q), l->head_dim_k);
    qkv[1] = mn_g_rms_norm_heads(
        g, i, qkv[1], mn_g_vector(g, "blk.%d.attn_k_norm.weight", i, false, k), l->head_dim_k);
    return mn_b_attend(g, i, qkv);
}

mn_status mn_arch_olmo2(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    for (int i = 0; i < g->hp.n_layer; i++) {
        x = mn_g_add(g, i, x, mn_b_rms(g, i, attention(g, i, x), "blk.%d.post_attention_norm"));
        x = mn_g_add(g, i, x, mn_b_rms(g, i, mn_b_glu(g, i, x), "blk.%d.post_ffw_norm"));
    }
    mn_b_head(g, x, mn_b_rms);
    return g->status;
}
