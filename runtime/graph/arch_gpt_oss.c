/* arch_gpt_oss.c -- GPT-OSS (OpenAI 2025): sinks, alternating window layers, YaRN, experts whose
 * gated unit is clamped. */
#include "graph/arch.h"

mn_status mn_arch_gpt_oss(mn_model_graph *g) {
    static const mn_glu_form clamped = {.alpha = 1.702, .limit = 7, .up_offset = 1};
    int32_t x = mn_b_embed(g, 1);
    for (int i = 0; i < g->hp.n_layer; i++) {
        x = mn_g_add(g, i, x, mn_b_attention(g, i, mn_b_rms(g, i, x, "blk.%d.attn_norm")));
        x = mn_g_add(g, i, x,
                     mn_b_moe(g, i, mn_b_rms(g, i, x, "blk.%d.post_attention_norm"), clamped));
    }
    mn_b_head(g, x, mn_b_rms);
    return g->status;
}
