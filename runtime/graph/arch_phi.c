/* arch_phi.c -- Phi-2 (attention and MLP side by side behind one layer norm, partial rotation,
 * biases everywhere), Phi-3/3.5 (a Llama with q, k, v and gate, up stored as one, longrope) and
 * Phi-3.5-MoE (layer norms, experts). Javaheripi et al. 2023; Abdin et al. 2024. */
#include "graph/arch.h"

void mn_arch_phi2(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        const int32_t y = mn_b_layer_norm(g, x, "blk.%d.attn_norm");
        x = mn_g_add(g, x, mn_b_attention(g, y));
        x = mn_g_add(g, x, mn_b_mlp(g, y));
    }
    mn_b_head(g, x, mn_b_layer_norm);
}

void mn_arch_phi3(mn_model_graph *g) {
    mn_arch_llama(g);
}

void mn_arch_phimoe(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_layer_norm(g, x, "blk.%d.attn_norm");
        x = mn_g_add(g, x, mn_b_attention(g, y));
        y = mn_b_layer_norm(g, x, "blk.%d.ffn_norm");
        x = mn_g_add(g, x, mn_b_moe(g, y, (mn_glu_form){0}));
    }
    mn_b_head(g, x, mn_b_layer_norm);
}
