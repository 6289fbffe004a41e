/* arch_llama.c -- pre-norm decoder with rotary attention and a gated MLP (Touvron et al. 2023):
 * Llama, TinyLlama, Mistral, Qwen2 (biases on q, k, v), Qwen3 (norms on the heads of q and k),
 * SmolLM3 (layers without rotation), Granite (scales), and with experts in place of the MLP Mixtral
 * and Qwen3-MoE. */
#include "graph/arch.h"

void mn_arch_llama(mn_model_graph *g) {
    const double scale = g->hp.embd_scale;
    int32_t x = mn_b_embed(g, scale > 0 ? scale : 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        y = mn_b_attention(g, y);
        x = mn_b_residual(g, x, y);
        const bool usual = mn_g_has(g, "blk.%d.ffn_norm.weight");
        y = mn_b_rms(g, x, usual ? "blk.%d.ffn_norm" : "blk.%d.post_attention_norm");
        x = mn_b_residual(g, x, mn_b_feed_forward(g, y));
    }
    mn_b_head(g, x, mn_b_rms);
}
