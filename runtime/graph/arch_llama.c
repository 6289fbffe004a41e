/* arch_llama.c -- pre-norm decoder with rotary attention and a gated MLP (Touvron et al. 2023): Llama, TinyLlama, Mistral,
 * Qwen2 (biases on q, k, v), Qwen3 (norms on the heads of q and k). What a layer has beyond the common part is what
 * tensors the file holds; shapes are checked against the hyper-parameters. */
#include "graph/arch.h"

/* q, k, v of one layer: projected, normalised per head where the model does, rotated (not v). [T, heads, head_dim] each. */
static void project(mn_model_graph *g, int i, int32_t x, int32_t qkv[3]) {
    const mn_hparams *h = &g->hp;
    const int64_t q = h->n_head * h->head_dim_k, k = h->n_head_kv * h->head_dim_k, v = h->n_head_kv * h->head_dim_v;
    const int32_t w[3] = {mn_g_weight(g, "blk.%d.attn_q.weight", i, false, 2, q, h->n_embd),
                          mn_g_weight(g, "blk.%d.attn_k.weight", i, false, 2, k, h->n_embd),
                          mn_g_weight(g, "blk.%d.attn_v.weight", i, false, 2, v, h->n_embd)};
    const int32_t b[3] = {mn_g_weight(g, "blk.%d.attn_q.bias", i, true, 1, q, 0),
                          mn_g_weight(g, "blk.%d.attn_k.bias", i, true, 1, k, 0),
                          mn_g_weight(g, "blk.%d.attn_v.bias", i, true, 1, v, 0)};
    mn_g_linear(g, i, x, 3, w, b, (int64_t[]){h->head_dim_k, h->head_dim_k, h->head_dim_v}, qkv);
    const int32_t q_norm = mn_g_weight(g, "blk.%d.attn_q_norm.weight", i, true, 1, h->head_dim_k, 0);
    const int32_t k_norm = mn_g_weight(g, "blk.%d.attn_k_norm.weight", i, true, 1, h->head_dim_k, 0);
    if (q_norm >= 0) qkv[0] = mn_g_rms_norm(g, i, qkv[0], q_norm);
    if (k_norm >= 0) qkv[1] = mn_g_rms_norm(g, i, qkv[1], k_norm);
    qkv[0] = mn_g_rope(g, i, qkv[0]);
    qkv[1] = mn_g_rope(g, i, qkv[1]);
}

static int32_t attention(mn_model_graph *g, int i, int32_t x) {
    const mn_hparams *h = &g->hp;
    int32_t qkv[3], y;
    x = mn_g_rms_norm(g, i, x, mn_g_weight(g, "blk.%d.attn_norm.weight", i, false, 1, h->n_embd, 0));
    project(g, i, x, qkv);
    x = mn_g_attention(g, i, qkv[0], qkv[1], qkv[2]);
    const int32_t w = mn_g_weight(g, "blk.%d.attn_output.weight", i, false, 2, h->n_embd, h->n_head * h->head_dim_v);
    const int32_t b = mn_g_weight(g, "blk.%d.attn_output.bias", i, true, 1, h->n_embd, 0);
    mn_g_linear(g, i, x, 1, &w, &b, NULL, &y);
    return y;
}

static int32_t mlp(mn_model_graph *g, int i, int32_t x) {
    const mn_hparams *h = &g->hp;
    int32_t gate_up[2], y;
    x = mn_g_rms_norm(g, i, x, mn_g_weight(g, "blk.%d.ffn_norm.weight", i, false, 1, h->n_embd, 0));
    const int32_t w[2] = {mn_g_weight(g, "blk.%d.ffn_gate.weight", i, false, 2, h->n_ff, h->n_embd),
                          mn_g_weight(g, "blk.%d.ffn_up.weight", i, false, 2, h->n_ff, h->n_embd)};
    const int32_t b[2] = {mn_g_weight(g, "blk.%d.ffn_gate.bias", i, true, 1, h->n_ff, 0),
                          mn_g_weight(g, "blk.%d.ffn_up.bias", i, true, 1, h->n_ff, 0)};
    mn_g_linear(g, i, x, 2, w, b, NULL, gate_up);
    x = mn_g_glu(g, i, gate_up[0], gate_up[1]);
    const int32_t down = mn_g_weight(g, "blk.%d.ffn_down.weight", i, false, 2, h->n_embd, h->n_ff);
    const int32_t down_b = mn_g_weight(g, "blk.%d.ffn_down.bias", i, true, 1, h->n_embd, 0);
    mn_g_linear(g, i, x, 1, &down, &down_b, NULL, &y);
    return y;
}

mn_status mn_arch_llama(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    int32_t table = mn_g_weight(g, "token_embd.weight", -1, false, 2, h->n_vocab, h->n_embd);
    int32_t x = mn_g_embed(g, table, 1);
    for (int i = 0; i < h->n_layer; i++) {
        x = mn_g_add(g, i, x, attention(g, i, x));
        x = mn_g_add(g, i, x, mlp(g, i, x));
    }
    int32_t norm = mn_g_weight(g, "output_norm.weight", -1, false, 1, h->n_embd, 0);
    int32_t output = h->tied ? table : mn_g_weight(g, "output.weight", -1, false, 2, h->n_vocab, h->n_embd);
    mn_g_output(g, x, norm, output, mn_g_weight(g, "output.bias", -1, true, 1, h->n_vocab, 0));
    return g->status;
}
