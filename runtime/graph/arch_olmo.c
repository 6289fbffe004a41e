/* arch_olmo.c -- OLMo (Groeneveld et al. 2024): a Llama whose layer norms have no weights. */
#include "graph/arch.h"

static int32_t norm_without_weight(mn_model_graph *g, int32_t x, const char *stem) {
    (void)stem;
    return mn_g_layer_norm(g, x, mn_g_ones(g, g->hp.n_embd), -1);
}

void mn_arch_olmo(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    mn_g_refuse(g, "attention.clamp_kqv", "q, k and v in bounds");
    while (mn_g_next_layer(g)) {
        int32_t y = norm_without_weight(g, x, NULL);
        x = mn_g_add(g, x, mn_b_attention(g, y));
        y = norm_without_weight(g, x, NULL);
        x = mn_g_add(g, x, mn_b_glu(g, y));
    }
    mn_b_head(g, x, norm_without_weight);
}
