/* arch_t5.c -- an encoder and a decoder in one graph: T5 (Raffel et al. 2020), its version 1.1 with
 * a gated feed-forward part (Shazeer 2020), and those made from them: Flan-T5, mT5.
 *
 * A step has rows of texts, which the encoder reads, and rows of answers. Each layer of the decoder
 * makes its keys and values of the encoder's output, which stay in pages of the text, so that a
 * text is read once: later steps have no rows of it. Logits get a bias by the distance of query and
 * key, the same table in all layers of a half; the products of q and k are not scaled. */
#include "graph/arch.h"

static int32_t rms(mn_model_graph *g, int32_t x, const char *name) {
    return mn_g_rms_norm(g, x, mn_g_vector(g, name, false, g->hp.n_embd));
}

/* The layer's own table, or that of the half's first layer. */
static int32_t distance_bias(mn_model_graph *g, int32_t of_first) {
    static const char name[] = "blk.%d.attn_rel_b.weight";
    const bool is_first = of_first < 0;
    if (!is_first && !mn_g_has(g, name))
        return of_first;
    return mn_g_matrix(g, name, false, g->hp.n_buckets, mn_g_layer(g)->n_head);
}

static mn_g_product product(mn_model_graph *g, const char *name, int64_t rows, int64_t cols) {
    return (mn_g_product){mn_g_matrix(g, name, false, rows, cols), -1};
}

static int32_t project(mn_model_graph *g, int32_t x, const char *name) {
    const mn_layer_shape *l = mn_g_layer(g);
    const mn_g_product p = product(g, name, g->hp.n_embd, l->n_head * l->head_dim_v);
    int32_t y;
    mn_g_linear(g, x, 1, &p, NULL, &y);
    return y;
}

/* x + attention over the rows in front of it, in the encoder over all of the text. */
static int32_t attend(mn_model_graph *g, int32_t x, int32_t bias) {
    static const char *const names[3] = {"blk.%d.attn_q.weight", "blk.%d.attn_k.weight",
                                         "blk.%d.attn_v.weight"};
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t dim[3] = {l->head_dim_k, l->head_dim_k, l->head_dim_v};
    mn_g_product p[3];
    int32_t y[3]; // [T, H, dim] each
    for (int i = 0; i < 3; i++)
        p[i] = product(g, names[i], l->n_head * dim[i], g->hp.n_embd);
    mn_g_linear(g, rms(g, x, "blk.%d.attn_norm.weight"), 3, p, dim, y);
    const mn_g_attended a = {.q = y[0], .k = y[1], .v = y[2], .sinks = -1, .bias = bias};
    return mn_g_add(g, x, project(g, mn_g_attention_of(g, &a), "blk.%d.attn_o.weight"));
}

/* x + attention over the text. */
static int32_t attend_text(mn_model_graph *g, int32_t x, int32_t text) {
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t dim[2] = {l->head_dim_k, l->head_dim_v};
    const mn_g_product q =
        product(g, "blk.%d.cross_attn_q.weight", l->n_head * dim[0], g->hp.n_embd);
    const mn_g_product kv[2] = {
        product(g, "blk.%d.cross_attn_k.weight", l->n_head * dim[0], g->hp.n_embd),
        product(g, "blk.%d.cross_attn_v.weight", l->n_head * dim[1], g->hp.n_embd)};
    mn_g_attended a = {.sinks = -1, .bias = -1, .reads_text = true};
    int32_t y[2];
    mn_g_ignore(g, "blk.%d.cross_attn_rel_b.weight"); /* in old files, where nothing reads it */
    mn_g_linear(g, text, 2, kv, dim, y);
    mn_g_linear(g, rms(g, x, "blk.%d.cross_attn_norm.weight"), 1, &q, dim, &a.q);
    a.k = y[0];
    a.v = y[1];
    return mn_g_add(g, x, project(g, mn_g_attention_of(g, &a), "blk.%d.cross_attn_o.weight"));
}

static int32_t feed_forward(mn_model_graph *g, int32_t x) {
    const int32_t y = rms(g, x, "blk.%d.ffn_norm.weight");
    const bool gated = mn_g_has(g, "blk.%d.ffn_gate.weight");
    return mn_g_add(g, x, gated ? mn_b_glu(g, y) : mn_b_mlp(g, y));
}

static int32_t embed(mn_model_graph *g, bool of_text) {
    g->of_text = of_text;
    const int32_t x = mn_b_embed(g, 1);
    g->of_text = false;
    return x;
}

/* The texts' rows of the encoder's output. */
static int32_t encode(mn_model_graph *g, int32_t x) {
    int32_t bias = -1;
    while (mn_g_next_encoder_layer(g)) {
        bias = distance_bias(g, bias);
        x = feed_forward(g, attend(g, x, bias));
    }
    return rms(g, x, "enc.output_norm.weight");
}

static int32_t norm_output(mn_model_graph *g, int32_t x, const char *stem) {
    (void)stem;
    return rms(g, x, "dec.output_norm.weight");
}

void mn_arch_t5(mn_model_graph *g) {
    int32_t bias = -1;
    mn_g_ignore(g, "encoder.embed_tokens.weight"); /* token_embd again, in some files */
    mn_g_ignore(g, "decoder.embed_tokens.weight");
    const int32_t text = embed(g, true);
    int32_t x = embed(g, false); /* behind that of the text, which moves the slot, too */
    const int32_t read = encode(g, text);
    while (mn_g_next_layer(g)) {
        bias = distance_bias(g, bias);
        x = attend_text(g, attend(g, x, bias), read);
        x = feed_forward(g, x);
    }
    mn_b_head(g, x, norm_output);
}
