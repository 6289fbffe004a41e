/* arch_llama.c -- pre-norm decoder with rotary attention and a gated MLP (Touvron et al. 2023):
 * Llama, TinyLlama, Mistral, Qwen2 (biases on q, k, v), Qwen3 (norms on the heads of q and k),
 * SmolLM3 (layers without rotation), Granite (scales), and with experts in place of the MLP Mixtral
 * and Qwen3-MoE. */
#include "graph/arch.h"

mn_status mn_arch_llama(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    int32_t x = mn_b_embed(g, h->embd_scale > 0 ? h->embd_scale : 1);
    for (int i = 0; i < h->n_layer; i++) {
        int32_t y = mn_b_attention(g, i, mn_b_rms(g, i, x, "blk.%d.attn_norm"));
        x = mn_b_residual(g, i, x, y);
        y = mn_b_rms(g, i, x, "blk.%d.ffn_norm");
        /* some layers may be dense */
        const bool experts = mn_g_layer(g, i)->n_expert > 0;
        y = experts ? mn_b_moe(g, i, y, (mn_glu_form){0}) : mn_b_glu(g, i, y);
        x = mn_b_residual(g, i, x, y);
    }
    mn_b_head(g, x, mn_b_rms);
    return g->status;
}
