/* arch_gemma.c -- Gemma, Gemma 2, the text parts of Gemma 3, 3n and 4 (Gemma Team 2024, 2024, 2025,
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

/* ---- Gemma 3n -------------------------------------------------------------------------------- */
#define TINY 1e-12 /* epsilon of norms whose root is wanted */

/* n streams h_i of hidden states, [T, D]. A layer predicts each from all, computes the active one,
 * and corrects each by what that came to be. Numbers by which rows are multiplied are products as
 * wide as the rows: tanh(..) [T, n] by a matrix whose rows are all one. */
typedef struct {
    int32_t h[MN_MAX_STREAMS];
} streams;

/* The root of the mean square of each row of x: [T, 1]. normed: x by that root, of the same
 * shape. */
static int32_t magnitude(mn_model_graph *g, int32_t x, int32_t normed) {
    const int64_t dim[] = {1, g->hp.n_embd};
    const mn_g_product mean = {mn_g_filled(g, 1 / (double)g->hp.n_embd, 2, dim), -1};
    int32_t y;
    mn_g_linear(g, mn_g_mul(g, normed, x), 1, &mean, NULL, &y);
    return y;
}

/* h_i = proj_i(h_0), as large as h_0 */
static void begin_streams(mn_model_graph *g, int32_t x, streams *s) {
    const int64_t D = g->hp.n_embd;
    const int64_t n = g->hp.altup.n;
    const int32_t ones = mn_g_ones(g, D);
    const int32_t size = magnitude(g, x, mn_g_rms_norm_of(g, x, ones, TINY));
    s->h[0] = x;
    for (int64_t i = 1; i < n; i++) {
        const mn_g_product p = {mn_g_one_of(g, "altup_proj.weight", i - 1, n - 1, D, D), -1};
        int32_t y; // [T, 1, D]
        mn_g_linear(g, x, 1, &p, &D, &y);
        s->h[i] = mn_g_moe_combine(g, mn_g_rms_norm_of(g, y, ones, TINY), size);
    }
}

/* The mean of h_0 and unproj_i(h_i), each as large as h_0 */
static int32_t end_streams(mn_model_graph *g, const streams *s) {
    const int64_t D = g->hp.n_embd;
    const int64_t n = g->hp.altup.n;
    const int32_t ones = mn_g_ones(g, D);
    const int32_t first = mn_g_rms_norm_of(g, s->h[0], ones, TINY);
    const int32_t size = magnitude(g, s->h[0], first);
    int32_t sum = -1; // [T, 1, D]
    for (int64_t i = 1; i < n; i++) {
        const mn_g_product p = {mn_g_one_of(g, "altup_unembd_proj.weight", i - 1, n - 1, D, D), -1};
        int32_t y;
        mn_g_linear(g, s->h[i], 1, &p, &D, &y);
        y = mn_g_rms_norm_of(g, y, ones, TINY);
        sum = i == 1 ? y : mn_g_add(g, sum, y);
    }
    return mn_g_scale(g, mn_g_add(g, s->h[0], mn_g_moe_combine(g, sum, size)), 1 / (double)n);
}

/* tanh(router(norm(x) / D)): [T, n] */
static int32_t modalities(mn_model_graph *g, int32_t x) {
    const mn_g_product router = without_bias(g, "blk.%d.altup_router.weight", g->hp.altup.n);
    int32_t y = mn_b_rms(g, x, "blk.%d.altup_router_norm");
    y = mn_g_scale(g, y, 1 / (double)g->hp.n_embd);
    mn_g_linear(g, y, 1, &router, NULL, &y);
    return mn_g_softcap(g, y, 1);
}

/* to[k], [T, D]: row lo + k of the coefficients times m; that of `own`, 1 more. */
static void spread(mn_model_graph *g, int32_t m, const char *name, int64_t rows, int64_t lo,
                   int64_t own, int32_t to[MN_MAX_STREAMS]) {
    const int64_t D = g->hp.n_embd;
    const int64_t n = g->hp.altup.n;
    for (int64_t k = 0; k < n; k++) {
        const bool more = own < 0 || k == own;
        const mn_g_product p = {mn_g_row_repeated(g, name, rows, n, lo + k, D),
                                more ? mn_g_ones(g, D) : -1};
        mn_g_linear(g, m, 1, &p, NULL, &to[k]);
    }
}

/* P_i = h_i + sum over j of c[i, j] h_j, c = coefficients modalities(h_active) */
static void predict_streams(mn_model_graph *g, const streams *s, streams *to) {
    const int64_t n = g->hp.altup.n;
    const int32_t m = modalities(g, s->h[g->hp.altup.active]);
    int32_t c[MN_MAX_STREAMS];
    for (int64_t i = 0; i < n; i++) {
        spread(g, m, "blk.%d.altup_predict_coef.weight", n * n, i * n, i, c);
        int32_t sum = mn_g_mul(g, s->h[0], c[0]);
        for (int64_t j = 1; j < n; j++)
            sum = mn_g_add(g, sum, mn_g_mul(g, s->h[j], c[j]));
        to->h[i] = sum;
    }
}

/* h_i = P_i + (1 + c_i) (y - P_active), c = coefficients m, m = modalities(y) */
static void correct(mn_model_graph *g, const streams *p, int32_t y, int32_t m, streams *to) {
    const int64_t n = g->hp.altup.n;
    int32_t c[MN_MAX_STREAMS];
    const int32_t new = mn_g_add(g, y, mn_g_scale(g, p->h[g->hp.altup.active], -1));
    spread(g, m, "blk.%d.altup_correct_coef.weight", n, 0, -1, c);
    for (int64_t i = 0; i < n; i++)
        to->h[i] = mn_g_add(g, p->h[i], mn_g_mul(g, new, c[i]));
}

/* A vector of the layer for each row, [T, D], whatever m is. */
static int32_t each_row(mn_model_graph *g, int32_t m, const char *name) {
    const int64_t dim[] = {g->hp.n_embd, g->hp.altup.n};
    const mn_g_product p = {mn_g_filled(g, 0, 2, dim), mn_g_vector(g, name, false, dim[0])};
    int32_t y;
    mn_g_linear(g, m, 1, &p, NULL, &y);
    return y;
}

/* All but the first gain norm(proj(act(gate(h_active)) own)). */
static void add_own_to_others(mn_model_graph *g, streams *s, int32_t m, int32_t own) {
    const int64_t d = g->hp.n_of_layer;
    const char *scale = "blk.%d.altup_correct_scale.weight";
    const mn_g_product gate = without_bias(g, "blk.%d.inp_gate.weight", d);
    const mn_g_product proj = {mn_g_matrix(g, "blk.%d.proj.weight", false, g->hp.n_embd, d), -1};
    int32_t y = s->h[g->hp.altup.active];
    if (g->hp.altup.scales)
        y = mn_g_mul(g, y, each_row(g, m, scale));
    else
        mn_g_ignore(g, scale);
    mn_g_linear(g, y, 1, &gate, NULL, &y);
    y = mn_g_glu(g, y, own, (mn_glu_form){0});
    mn_g_linear(g, y, 1, &proj, NULL, &y);
    y = mn_b_rms(g, y, "blk.%d.post_norm");
    for (int64_t i = 1; i < g->hp.altup.n; i++)
        s->h[i] = mn_g_add(g, s->h[i], y);
}

/* x + norm(right(left(x))), of as low a rank as the file says */
static int32_t laurel(mn_model_graph *g, int32_t x) {
    const int64_t D = g->hp.n_embd;
    const int64_t rank = mn_g_rows_of(g, "blk.%d.laurel_l.weight");
    const mn_g_product left = without_bias(g, "blk.%d.laurel_l.weight", rank);
    const mn_g_product right = {mn_g_matrix(g, "blk.%d.laurel_r.weight", false, D, rank), -1};
    int32_t y;
    mn_g_linear(g, x, 1, &left, NULL, &y);
    mn_g_linear(g, y, 1, &right, NULL, &y);
    return mn_g_add(g, x, mn_b_rms(g, y, "blk.%d.laurel_post_norm"));
}

/* relu(x - mean - spread deviation), x [T, 1, F]: [T, F]. With z = (x - mean) / deviation that is
 * deviation relu(z - spread), and the deviation is the mean of z x. */
static int32_t cut_gate(mn_model_graph *g, int32_t x) {
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t dim[] = {1, l->n_ff};
    const mn_g_product mean = {mn_g_filled(g, 1 / (double)l->n_ff, 2, dim), -1};
    const int32_t ones = mn_g_ones(g, l->n_ff);
    const int32_t less = mn_g_filled(g, -l->spread, 1, dim + 1);
    const int32_t z = mn_g_layer_norm_of(g, x, ones, -1, TINY);
    const int32_t over = mn_g_layer_norm_of(g, x, ones, less, TINY);
    int32_t deviation; // [T, 1]
    mn_g_linear(g, mn_g_mul(g, z, x), 1, &mean, NULL, &deviation);
    return mn_g_moe_combine(g, mn_g_act_of(g, over, MN_ACT_RELU), deviation);
}

static int32_t glu3n(mn_model_graph *g, int32_t x) {
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t D = g->hp.n_embd;
    const int64_t F = l->n_ff;
    const int64_t heads[2] = {F, 0};
    if (!l->sparse)
        return mn_b_glu(g, x);
    const mn_g_product p[2] = {without_bias(g, "blk.%d.ffn_gate.weight", F),
                               without_bias(g, "blk.%d.ffn_up.weight", F)};
    const mn_g_product down = {mn_g_matrix(g, "blk.%d.ffn_down.weight", false, D, F), -1};
    int32_t y[2];
    mn_g_linear(g, x, 2, p, heads, y);
    y[0] = mn_g_glu(g, cut_gate(g, y[0]), y[1], (mn_glu_form){0});
    mn_g_linear(g, y[0], 1, &down, NULL, y);
    return y[0];
}

/* The layer itself, of the active stream. */
static int32_t layer3n(mn_model_graph *g, int32_t x) {
    const int32_t normed = mn_b_rms(g, x, "blk.%d.attn_norm");
    const int32_t beside = laurel(g, normed);
    int32_t y = attention4(g, normed);
    y = mn_g_add(g, x, mn_b_rms(g, y, "blk.%d.post_attention_norm"));
    x = mn_g_scale(g, mn_g_add(g, y, beside), sqrt(0.5));
    y = glu3n(g, mn_b_rms(g, x, "blk.%d.ffn_norm"));
    return mn_g_add(g, x, mn_b_rms(g, y, "blk.%d.post_ffw_norm"));
}

void mn_arch_gemma3n(mn_model_graph *g) {
    int32_t own[MN_MAX_LAYER];
    streams s;
    streams p;
    int32_t x = mn_b_embed(g, sqrt((double)g->hp.n_embd));
    if (!g->hp.altup.n || !g->hp.n_of_layer) {
        mn_g_need(g, g->hp.altup.n ? "embedding_length_per_layer_input" : "altup.num_inputs");
        return;
    }
    embed_layers(g, x, own);
    begin_streams(g, x, &s);
    while (mn_g_next_layer(g)) {
        predict_streams(g, &s, &p);
        x = layer3n(g, p.h[g->hp.altup.active]);
        const int32_t m = modalities(g, x);
        correct(g, &p, x, m, &s);
        add_own_to_others(g, &s, m, own[g->layer]);
    }
    mn_b_head(g, end_streams(g, &s), mn_b_rms);
}
