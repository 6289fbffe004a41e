/* arch_olmo2.c -- OLMo 2 (OLMo Team 2025): norms after the blocks instead of before, and over all
 * heads of q and of k at once. */
#include "graph/arch.h"

/* y: [T, rows] of q or k, normalised over the row -> [T, heads, head_dim] */
static int32_t normed(mn_model_graph *g, int32_t y, const char *name, int64_t rows) {
    const int32_t w = mn_g_vector(g, name, false, rows);
    return mn_g_rms_norm_heads(g, y, w, mn_g_layer(g)->head_dim_k);
}

static int32_t arch_olmo2_attention(mn_model_graph *g, int32_t x) {
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t D = g->hp.n_embd;
    const int64_t q = l->n_head * l->head_dim_k;
    const int64_t k = l->n_head_kv * l->head_dim_k;
    const int64_t v = l->n_head_kv * l->head_dim_v;
    const int64_t heads[3] = {0, 0, l->head_dim_v}; /* q and k become heads behind their norms */
    mn_g_product p[3];
    int32_t qkv[3];
    p[0] = mn_b_product(g, "blk.%d.attn_q", q, D);
    p[1] = mn_b_product(g, "blk.%d.attn_k", k, D);
    p[2] = mn_b_product(g, "blk.%d.attn_v", v, D);
    mn_g_linear(g, x, 3, p, heads, qkv);
    qkv[0] = normed(g, qkv[0], "blk.%d.attn_q_norm.weight", q);
    qkv[1] = normed(g, qkv[1], "blk.%d.attn_k_norm.weight", k);
    return mn_b_attend(g, qkv);
}

void mn_arch_olmo2(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = arch_olmo2_attention(g, x);
        y = mn_b_rms(g, y, "blk.%d.post_attention_norm");
        x = mn_g_add(g, x, y);
        y = mn_b_glu(g, x);
        y = mn_b_rms(g, y, "blk.%d.post_ffw_norm");
        x = mn_g_add(g, x, y);
    }
    mn_b_head(g, x, mn_b_rms);
}
