/* arch_gemma.c -- Gemma, Gemma 2, the text parts of Gemma 3 and Gemma 4 (Gemma Team 2024, 2024,
 * 2025, 2026): embeddings scaled by sqrt(D), from Gemma 2 on norms before and after each block,
 * alternating window layers, soft caps (2) or norms on the heads and a local rotary base (3); in 4
 * values are normalised, too, full layers have wider and fewer heads, whose keys may be their
 * values, and experts may stand beside the MLP. */
#include "graph/arch.h"
#include <math.h>

/* The norm behind a block, which Gemma 1 lacks. */
static int32_t after(mn_model_graph *g, int32_t y, const char *stem) {
    if (g->hp.post_norms)
        return mn_b_rms(g, y, stem);
    return y;
}

/* x + norm(GLU(norm(x))) */
static int32_t feed_forward(mn_model_graph *g, int32_t x) {
    int32_t y = mn_b_rms(g, x, "blk.%d.ffn_norm");
    y = mn_b_glu(g, y);
    y = after(g, y, "blk.%d.post_ffw_norm");
    return mn_g_add(g, x, y);
}

void mn_arch_gemma(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, sqrt((double)g->hp.n_embd));
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        y = mn_b_attention(g, y);
        y = after(g, y, "blk.%d.post_attention_norm");
        x = mn_g_add(g, x, y);
        x = feed_forward(g, x);
    }
    mn_b_head(g, x, mn_b_rms);
}

static int32_t normed_heads(mn_model_graph *g, int32_t x, const char *name) {
    const int32_t w = mn_g_vector(g, name, false, mn_g_layer(g)->head_dim_k);
    return mn_g_rms_norm(g, x, w);
}

/* A matrix [rows, D] alone: a bias in the file is an error. */
static mn_g_product without_bias(mn_model_graph *g, const char *name, int64_t rows) {
    return (mn_g_product){mn_g_matrix(g, name, false, rows, g->hp.n_embd), -1};
}

/* q alone: keys and values are another layer's, whatever of them the file has. */
static int32_t attention4_shared(mn_model_graph *g, int32_t x) {
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t head = l->head_dim_k;
    const mn_g_product p = without_bias(g, "blk.%d.attn_q.weight", l->n_head * head);
    int32_t qkv[3] = {-1, -1, -1};
    mn_g_linear(g, x, 1, &p, &head, qkv);
    qkv[0] = normed_heads(g, qkv[0], "blk.%d.attn_q_norm.weight");
    mn_g_ignore(g, "blk.%d.attn_k.weight");
    mn_g_ignore(g, "blk.%d.attn_v.weight");
    mn_g_ignore(g, "blk.%d.attn_k_norm.weight");
    return mn_b_attend(g, qkv);
}

/* Without attn_v the keys before their norm are the values. */
static int32_t attention4(mn_model_graph *g, int32_t x) {
    const mn_layer_shape *l = mn_g_layer(g);
    if (l->shares)
        return attention4_shared(g, x);
    const int64_t head = l->head_dim_k;
    const int64_t kv = l->n_head_kv * head;
    const bool own = mn_g_has(g, "blk.%d.attn_v.weight");
    const int64_t heads[3] = {head, head, head};
    mn_g_product p[3];
    int32_t qkv[3];
    p[0] = without_bias(g, "blk.%d.attn_q.weight", l->n_head * head);
    p[1] = without_bias(g, "blk.%d.attn_k.weight", kv);
    if (own)
        p[2] = without_bias(g, "blk.%d.attn_v.weight", kv);
    mn_g_linear(g, x, own ? 3 : 2, p, heads, qkv);
    const int32_t v = own ? qkv[2] : qkv[1];
    qkv[0] = normed_heads(g, qkv[0], "blk.%d.attn_q_norm.weight");
    qkv[1] = normed_heads(g, qkv[1], "blk.%d.attn_k_norm.weight");
    qkv[2] = mn_g_rms_norm(g, v, mn_g_ones(g, head));
    return mn_b_attend(g, qkv);
}

/* What the experts of Gemma 4 add to x: chosen by a router that has a norm of x of its own. */
static int32_t experts4(mn_model_graph *g, int32_t x) {
    const int64_t D = g->hp.n_embd;
    const int64_t E = mn_g_layer(g)->n_expert;
    const int32_t scale = mn_g_vector(g, "blk.%d.ffn_gate_inp.scale", false, D);
    const mn_g_product router = without_bias(g, "blk.%d.ffn_gate_inp.weight", E);
    int32_t logits; // [T, E]
    mn_g_linear(g, mn_g_rms_norm(g, x, scale), 1, &router, NULL, &logits);
    logits = mn_g_scale(g, logits, 1 / sqrt((double)D));
    const int32_t y = mn_b_rms(g, x, "blk.%d.pre_ffw_norm_2");
    return mn_b_rms(g, mn_b_experts(g, y, logits, (mn_glu_form){0}), "blk.%d.post_ffw_norm_2");
}

/* Beside experts the MLP has a norm behind it, then their sum has one. */
static int32_t feed_forward4(mn_model_graph *g, int32_t x) {
    if (!mn_g_layer(g)->n_expert)
        return feed_forward(g, x);
    int32_t y = mn_b_rms(g, x, "blk.%d.ffn_norm");
    y = mn_b_rms(g, mn_b_glu(g, y), "blk.%d.post_ffw_norm_1");
    y = mn_g_add(g, y, experts4(g, x));
    return mn_g_add(g, x, mn_b_rms(g, y, "blk.%d.post_ffw_norm"));
}

/* ---- E2B, E4B: embeddings of each layer ------------------------------------------------------ */
/* of[i], [T, d], for each layer: (norm(P_i x / sqrt(D)) + sqrt(d) E_i[id]) / sqrt(2), x the scaled
 * embedding, P_i and E_i the layer's rows and columns. The norm takes any factor of its input, if
 * epsilon takes it, too. */
static void embed_layers(mn_model_graph *g, int32_t x, int32_t of[MN_MAX_LAYER]) {
    const mn_hparams *h = &g->hp;
    const int64_t d = h->n_of_layer;
    const int64_t all = h->n_layer * d;
    if (!d)
        return;
    const int32_t table = mn_g_table(g, "per_layer_token_embd.weight", all);
    const int32_t w = mn_g_vector(g, "per_layer_proj_norm.weight", false, d);
    for (int64_t i = 0; i < h->n_layer; i++) {
        const mn_row_part rows = {
            .total = all,
            .lo = i * d,
            .n = d,
        };
        const mn_g_product p = mn_b_part(g, "per_layer_model_proj", rows, h->n_embd);
        int32_t y;
        mn_g_linear(g, x, 1, &p, NULL, &y);
        y = mn_g_rms_norm_of(g, y, w, h->norm_eps * (double)h->n_embd);
        y = mn_g_add(g, y, mn_g_lookup(g, table, i * d, d, sqrt((double)d)));
        of[i] = mn_g_scale(g, y, sqrt(0.5));
    }
}

/* x + norm(proj(act(gate(x)) own)) */
static int32_t add_own(mn_model_graph *g, int32_t x, int32_t own) {
    const int64_t d = g->hp.n_of_layer;
    const mn_g_product gate = without_bias(g, "blk.%d.inp_gate.weight", d);
    const mn_g_product proj = {mn_g_matrix(g, "blk.%d.proj.weight", false, g->hp.n_embd, d), -1};
    int32_t y;
    mn_g_linear(g, x, 1, &gate, NULL, &y);
    y = mn_g_glu(g, y, own, (mn_glu_form){0});
    mn_g_linear(g, y, 1, &proj, NULL, &y);
    return mn_g_add(g, x, mn_b_rms(g, y, "blk.%d.post_norm"));
}

void mn_arch_gemma4(mn_model_graph *g) {
    int32_t own[MN_MAX_LAYER];
    int32_t x = mn_b_embed(g, sqrt((double)g->hp.n_embd));
    embed_layers(g, x, own);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        y = attention4(g, y);
        y = mn_b_rms(g, y, "blk.%d.post_attention_norm");
        x = mn_g_add(g, x, y);
        x = feed_forward4(g, x);
        if (g->hp.n_of_layer)
            x = add_own(g, x, own[g->layer]);
        x = mn_g_scale_by(g, x, "blk.%d.layer_output_scale.weight");
    }
    mn_b_head(g, x, mn_b_rms);
}
