/* arch_neox.c -- layer norms, a plain MLP, rotation; mostly attention and MLP side by side:
 * GPT-NeoX and Pythia (Black et al. 2022), with a norm for each; Falcon (Almazrouei et al. 2023),
 * with one for both, or attn_norm_2 before attention and attn_norm before the MLP. */
#include "graph/arch.h"

void mn_arch_neox(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        const bool two = mn_g_has(g, "blk.%d.attn_norm_2.weight");
        const bool apart = mn_g_has(g, "blk.%d.ffn_norm.weight");
        const bool parallel = g->hp.parallel_residual || !apart;
        const int32_t first =
            mn_b_layer_norm(g, x, two ? "blk.%d.attn_norm_2" : "blk.%d.attn_norm");
        const int32_t attended = mn_g_add(g, x, mn_b_attention(g, first));
        const int32_t from = parallel ? x : attended;
        int32_t y = first;
        if (two || apart)
            y = mn_b_layer_norm(g, from, two ? "blk.%d.attn_norm" : "blk.%d.ffn_norm");
        x = mn_g_add(g, attended, mn_b_mlp(g, y));
    }
    mn_b_head(g, x, mn_b_layer_norm);
}
