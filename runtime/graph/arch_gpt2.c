/* arch_gpt2.c -- GPT-2 (Radford et al. 2019): learned positions, layer norms with biases, a plain
 * MLP. */
#include "graph/arch.h"

mn_status mn_arch_gpt2(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    const int32_t table = mn_g_matrix(g, "token_embd.weight", -1, false, h->n_vocab, h->n_embd);
    int32_t x = mn_g_embed(
        g, table, 1, mn_g_matrix(g, "position_embd.weight", -1, false, h->n_ctx_train, h->n_embd));
    for (int i = 0; i < h->n_layer; i++) {
        x = mn_g_add(g, i, x, mn_b_attention(g, i, mn_b_layer_norm(g, i, x, "blk.%d.attn_norm")));
        x = mn_g_add(g, i, x, mn_b_mlp(g, i, mn_b_layer_norm(g, i, x, "blk.%d.ffn_norm")));
    }
    mn_b_head(g, x, mn_b_layer_norm);
    return g->status;
}
