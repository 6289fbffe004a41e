/* arch_olmo2.c -- norms behind the blocks instead of before: OLMo 2 and 3 (OLMo Team 2025), which
 * normalise q and k over all heads at once; EXAONE 4 (LG AI Research 2025), which does it by heads,
 * and whose full layers have no rotation where others slide. */
#include "graph/arch.h"

void mn_arch_olmo2(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_attention(g, x);
        y = mn_b_rms(g, y, "blk.%d.post_attention_norm");
        x = mn_g_add(g, x, y);
        y = mn_b_glu(g, x);
        y = mn_b_rms(g, y, "blk.%d.post_ffw_norm");
        x = mn_g_add(g, x, y);
    }
    mn_b_head(g, x, mn_b_rms);
}
