/* arch_arcee.c -- a Llama with a plain MLP: ArceeAI (2025), whose activation is relu squared;
 * Apertus (Swiss AI Initiative 2025), whose activation is xIELU, and which normalises the heads of
 * q and k. */
#include "graph/arch.h"

void mn_arch_arcee(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        x = mn_g_add(g, x, mn_b_attention(g, y));
        y = mn_b_rms(g, x, "blk.%d.ffn_norm");
        x = mn_g_add(g, x, mn_b_mlp(g, y));
    }
    mn_b_head(g, x, mn_b_rms);
}
