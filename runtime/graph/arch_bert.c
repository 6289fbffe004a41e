/* arch_bert.c -- encoders that embed texts: BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019),
 * XLM-R (Conneau et al. 2020): every row sees the whole text, norms follow the sums, positions are
 * learned; attention of MPNet (Song et al. 2020) has a bias by distance, that of DeBERTa (He et al.
 * 2021) keys and queries of distances, and in large ones a convolution. Nomic's BERT (2024)
 * rotates instead, and has a gated MLP; ModernBERT (Warner et al. 2024) has norms in front of its
 * blocks, and most of its layers see a window. The output is the hidden states. */
#include "graph/arch.h"

/* norm(x + y) */
static int32_t add_norm(mn_model_graph *g, int32_t x, int32_t y, const char *stem) {
    return mn_b_layer_norm(g, mn_g_add(g, x, y), stem);
}

/* Tokens and positions, normalised: [T, width]. */
static int32_t embed_tokens(mn_model_graph *g) {
    int32_t table = mn_g_typed_tokens(g);
    if (table < 0)
        table = mn_g_matrix(g, "token_embd.weight", false, g->hp.n_vocab, g->hp.n_embd);
    const int32_t x = mn_g_embed(g, table, 1, mn_g_positions(g));
    return mn_b_layer_norm(g, x, "token_embd_norm");
}

/* Where embeddings have a width of their own (small ELECTRA), widened to that of the layers. */
static int32_t embed_narrow(mn_model_graph *g) {
    const mn_model_tensor_entry *table = mn_canonical_tensor(g->model, "token_embd.weight");
    const int64_t width = g->hp.n_embd;
    const int64_t narrow = table ? table->info.dim[1] : width;
    int32_t y;
    g->hp.n_embd = narrow;
    const int32_t x = embed_tokens(g);
    g->hp.n_embd = width;
    const mn_g_product p = mn_b_product(g, "token_embd_proj", width, narrow);
    mn_g_linear(g, x, 1, &p, NULL, &y);
    return y;
}

/* Keys and queries of distances in this layer, by matrices of their own or by those of texts. */
static void set_relatives(mn_model_graph *g, const float *distances) {
    const bool own_k = mn_g_has(g, "blk.%d.attn_rel_k.weight");
    const bool own_q = mn_g_has(g, "blk.%d.attn_rel_q.weight");
    if (g->hp.rel_keys)
        g->relative_k = mn_g_relative(g, own_k ? "blk.%d.attn_rel_k" : "blk.%d.attn_k", distances);
    if (g->hp.rel_queries)
        g->relative_q = mn_g_relative(g, own_q ? "blk.%d.attn_rel_q" : "blk.%d.attn_q", distances);
}

/* norm(x + the convolution of the embeddings), behind the first layer of large DeBERTa v2. */
static int32_t join_text_conv(mn_model_graph *g, int32_t x, int32_t embedded) {
    if (!g->hp.n_taps || g->layer > 0)
        return x;
    const int32_t y = mn_g_moe_combine(g, mn_g_text_conv(g, embedded), -1); /* [T, 1, D] as rows */
    return mn_b_layer_norm(g, mn_g_add(g, x, y), "text_conv_norm");
}

void mn_arch_bert(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    const bool is_relative = h->rel_keys || h->rel_queries;
    const bool is_narrow = mn_g_has(g, "token_embd_proj.weight");
    const int32_t embedded = is_narrow ? embed_narrow(g) : embed_tokens(g);
    int32_t x = embedded;
    const float *distances = is_relative ? mn_g_distances(g) : NULL;
    if (h->n_buckets && !is_relative) /* MPNet */
        g->distance_bias =
            mn_g_matrix(g, "attn_rel_b.weight", false, h->n_buckets, h->layer[0].n_head);
    while (mn_g_next_layer(g)) {
        const bool gated = mn_g_has(g, "blk.%d.ffn_gate.weight");
        if (is_relative)
            set_relatives(g, distances);
        x = add_norm(g, x, mn_b_attention(g, x), "blk.%d.attn_output_norm");
        const int32_t y = gated ? mn_b_glu(g, x) : mn_b_mlp(g, x);
        x = add_norm(g, x, y, "blk.%d.layer_output_norm");
        x = join_text_conv(g, x, embedded);
    }
    mn_g_hidden(g, mn_g_gather(g, x));
}

/* What attention reads: the first layer's norm is that of the embeddings. */
static int32_t attention_input(mn_model_graph *g, int32_t x) {
    if (g->layer == 0 && !mn_g_has(g, "blk.%d.attn_norm.weight"))
        return x;
    return mn_b_layer_norm(g, x, "blk.%d.attn_norm");
}

void mn_arch_modern_bert(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    x = mn_b_layer_norm(g, x, "token_embd_norm");
    while (mn_g_next_layer(g)) {
        int32_t y = attention_input(g, x);
        x = mn_g_add(g, x, mn_b_attention(g, y));
        y = mn_b_layer_norm(g, x, "blk.%d.ffn_norm");
        x = mn_g_add(g, x, mn_b_glu(g, y));
    }
    mn_b_head(g, x, mn_b_layer_norm);
}
