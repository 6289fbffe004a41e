/* arch_gpt2.c -- layer norms with biases, a plain MLP: GPT-2 (Radford et al. 2019), with learned
 * positions; StarCoder 2 (Lozhkov et al. 2024), which rotates; BLOOM (Le Scao et al. 2022) and MPT
 * (MosaicML 2023), whose heads have slopes. */
#include "graph/arch.h"

void mn_arch_gpt2(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    const int64_t D = h->n_embd;
    const int32_t table = mn_g_matrix(g, "token_embd.weight", false, h->n_vocab, D);
    int32_t positions = -1;
    if (!h->n_rope && !(h->alibi > 0))
        positions = mn_g_matrix(g, "position_embd.weight", false, h->n_ctx_train, D);
    int32_t x = mn_g_embed(g, table, 1, positions);
    mn_g_refuse(g, "attention.clamp_kqv", "bounds on q, k and v");
    if (mn_g_has(g, "token_embd_norm.weight"))
        x = mn_b_layer_norm(g, x, "token_embd_norm");
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_layer_norm(g, x, "blk.%d.attn_norm");
        x = mn_g_add(g, x, mn_b_attention(g, y));
        y = mn_b_layer_norm(g, x, "blk.%d.ffn_norm");
        x = mn_g_add(g, x, mn_b_mlp(g, y));
    }
    mn_b_head(g, x, mn_b_layer_norm);
}
