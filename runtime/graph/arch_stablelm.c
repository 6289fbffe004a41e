/* arch_stablelm.c -- StableLM (Stability AI 2023): layer norms, partial rotation; the larger ones
 * normalise each head of q and k with weights of its own, and some run attention and MLP side by
 * side. */
#include "graph/arch.h"

/* x: [T, n_head, head_dim]; x itself where the model has no such norm. */
static int32_t head_norm(mn_model_graph *g, int32_t x, const char *name, int64_t n_head) {
    const int32_t w = mn_g_matrix(g, name, true, n_head, mn_g_layer(g)->head_dim_k);
    if (w >= 0)
        return mn_g_layer_norm(g, x, w, -1);
    return x;
}

static int32_t arch_stablelm_attention(mn_model_graph *g, int32_t x) {
    const mn_layer_shape *l = mn_g_layer(g);
    int32_t qkv[3];
    mn_b_qkv(g, x, qkv);
    qkv[0] = head_norm(g, qkv[0], "blk.%d.attn_q_norm.weight", l->n_head);
    qkv[1] = head_norm(g, qkv[1], "blk.%d.attn_k_norm.weight", l->n_head_kv);
    return mn_b_attend(g, qkv);
}

void mn_arch_stablelm(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_layer_norm(g, x, "blk.%d.attn_norm");
        const bool parallel = !mn_g_has(g, "blk.%d.ffn_norm.weight");
        x = mn_g_add(g, x, arch_stablelm_attention(g, y));
        if (!parallel)
            y = mn_b_layer_norm(g, x, "blk.%d.ffn_norm");
        x = mn_g_add(g, x, mn_b_glu(g, y));
    }
    mn_b_head(g, x, mn_b_layer_norm);
}
