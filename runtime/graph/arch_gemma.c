/* arch_gemma.c -- Gemma, Gemma 2 and the text part of Gemma 3 (Gemma Team 2024, 2024, 2025):
 * embeddings scaled by sqrt(D), from Gemma 2 on norms before and after each block, alternating
 * window layers, soft caps (2) or norms on the heads and a local rotary base (3). */
#include "graph/arch.h"
#include <math.h>

static int32_t after(mn_model_graph *g, int i, int32_t y, const char *stem) {
    return g->hp.post_norms ? mn_b_rms(g, i, y, stem) : y;
}

mn_status mn_arch_gemma(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    int32_t x = mn_b_embed(g, sqrt((double)h->n_embd));
    for (int i = 0; i < h->n_layer; i++) {
        int32_t y = mn_b_attention(g, i, mn_b_rms(g, i, x, "blk.%d.attn_norm"));
        x = mn_g_add(g, i, x, after(g, i, y, "blk.%d.post_attention_norm"));
        y = mn_b_glu(g, i, mn_b_rms(g, i, x, "blk.%d.ffn_norm"));
        x = mn_g_add(g, i, x, after(g, i, y, "blk.%d.post_ffw_norm"));
    }
    mn_b_head(g, x, mn_b_rms);
    return g->status;
}
