/* arch_glm4.c -- GLM-4 (GLM Team 2024; Zhipu AI 2025): neighbouring elements of the first half of a
 * head rotate; gate and up are stored as one; the models of 2025 have norms behind the blocks,
 * too. */
#include "graph/arch.h"

/* The norm behind a block, which the first models lack. */
static int32_t norm_behind(mn_model_graph *g, int32_t y, const char *stem, const char *weight) {
    return mn_g_has(g, weight) ? mn_b_rms(g, y, stem) : y;
}

void mn_arch_glm4(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        y = mn_b_attention(g, y);
        y = norm_behind(g, y, "blk.%d.post_attention_norm", "blk.%d.post_attention_norm.weight");
        x = mn_g_add(g, x, y);
        y = mn_b_rms(g, x, "blk.%d.ffn_norm");
        y = mn_b_glu(g, y);
        y = norm_behind(g, y, "blk.%d.post_ffw_norm", "blk.%d.post_ffw_norm.weight");
        x = mn_g_add(g, x, y);
    }
    mn_b_head(g, x, mn_b_rms);
}
