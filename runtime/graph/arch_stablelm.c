/* arch_stablelm.c -- StableLM (Stability AI 2023): layer norms, partial rotation; the larger ones
 * normalise each head of q and k with weights of its own, and some run attention and MLP side by
 * side. */
#include "graph/arch.h"

static int32_t head_norm(mn_model_graph *g, int i, int32_t x, const char *name, int64_t n_head) {
    const int32_t w = mn_g_matrix(g, name, i, true, n_head, mn_g_layer(g, i)->head_dim_k);
    return w >= 0 ? mn_g_layer_norm(g, i, x, w, -1) : x;
}

static int32_t attention(mn_model_graph *g, int i, int32_t x) {
    int32_t qkv[3];
    mn_b_qkv(g, i, x, qkv);
    qkv[0] = head_norm(g, i, qkv[0], "blk.%d.attn_q_norm.weight", mn_g_layer(g, i)->n_head);
    qkv[1] = head_norm(g, i, qkv[1], "blk.%d.attn_k_norm.weight", mn_g_layer(g, i)->n_head_kv);
    return mn_b_attend(g, i, qkv);
}

mn_status mn_arch_stablelm(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    for (int i = 0; i < g->hp.n_layer; i++) {
        const int32_t normed = mn_b_layer_norm(g, i, x, "blk.%d.attn_norm");
        const bool parallel = !mn_g_has(g, "blk.%d.ffn_norm.weight", i);
        x = mn_g_add(g, i, x, attention(g, i, normed));
        x = mn_g_add(
            g, i, x,
            mn_b_glu(g, i, parallel ? normed : mn_b_layer_norm(g, i, x, "blk.%d.ffn_norm")));
    }
    mn_b_head(g, x, mn_b_layer_norm);
    return g->status;
}
