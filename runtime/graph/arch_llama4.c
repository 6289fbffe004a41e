/* arch_llama4.c -- Llama 4 (Meta 2025): three layers of four attend in chunks, rotate and normalise
 * the heads of q and k without weights; the fourth attends to everything without rotation, its
 * queries grow with their position (Nakanishi 2025). Experts get their input times their weight,
 * beside one that every token uses; layers between may be dense. Mistral 3 and Ministral 3 (Mistral
 * AI 2025): a Llama whose queries grow in all layers. */
#include "graph/arch.h"

/* Attention whose queries are products of by times x: a factor of q, which has no bias. */
static int32_t growing_attention(mn_model_graph *g, int32_t x, int32_t by) {
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t D = g->hp.n_embd;
    const int64_t head_dim[2] = {l->head_dim_k, l->head_dim_v};
    const int64_t q_rows = l->n_head * l->head_dim_k;
    const mn_g_product q = {mn_g_matrix(g, "blk.%d.attn_q.weight", false, q_rows, D), -1};
    const mn_g_product kv[2] = {mn_b_product(g, "blk.%d.attn_k", l->n_head_kv * l->head_dim_k, D),
                                mn_b_product(g, "blk.%d.attn_v", l->n_head_kv * l->head_dim_v, D)};
    int32_t qkv[3];
    mn_g_linear(g, mn_g_mul(g, x, by), 1, &q, head_dim, qkv);
    mn_g_linear(g, x, 2, kv, head_dim, qkv + 1);
    return mn_b_attend(g, qkv);
}

void mn_arch_llama4(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    const int32_t by = mn_g_growth(g, g->hp.n_embd); // [T, D]
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        if (by >= 0 && (g->hp.q_growth.in_all || mn_g_layer(g)->rope < 0))
            y = growing_attention(g, y, by);
        else
            y = mn_b_attention(g, y);
        x = mn_g_add(g, x, y);
        y = mn_b_rms(g, x, "blk.%d.ffn_norm");
        x = mn_g_add(g, x, mn_b_feed_forward(g, y));
    }
    mn_b_head(g, x, mn_b_rms);
}
