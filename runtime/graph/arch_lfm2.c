/* arch_lfm2.c -- LFM2 and LFM2 MoE (Liquid AI 2025): short convolutions in most layers, attention
 * in the others; the norm at the end has the name that others give to one of the embeddings. */
#include "graph/arch.h"

static int32_t last_norm(mn_model_graph *g, int32_t x, const char *stem) {
    (void)stem;
    return mn_b_rms(g, x, "token_embd_norm");
}

void mn_arch_lfm2(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        if (mn_g_layer(g)->attends)
            y = mn_b_attention(g, y);
        else
            y = mn_b_short_conv(g, y);
        x = mn_g_add(g, x, y);
        y = mn_b_rms(g, x, "blk.%d.ffn_norm");
        x = mn_g_add(g, x, mn_b_feed_forward(g, y));
    }
    mn_b_head(g, x, last_norm);
}
