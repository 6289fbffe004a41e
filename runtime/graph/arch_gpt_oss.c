/* arch_gpt_oss.c -- GPT-OSS (OpenAI 2025): sinks, alternating window layers, YaRN, experts whose
 * gated unit is clamped. */
#include "graph/arch.h"

void mn_arch_gpt_oss(mn_model_graph *g) {
    static const mn_glu_form clamped = {.alpha = 1.702, .limit = 7, .up_offset = 1};
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        x = mn_g_add(g, x, mn_b_attention(g, y));
        y = mn_b_rms(g, x, "blk.%d.post_attention_norm");
        x = mn_g_add(g, x, mn_b_moe(g, y, clamped));
    }
    mn_b_head(g, x, mn_b_rms);
}
