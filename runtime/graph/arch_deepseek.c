/* arch_deepseek.c -- latent attention (DeepSeek-AI 2024, 2.1): DeepSeek V2 and V3, Kimi K2,
 * GLM-4.7-Flash, dense and with experts; Kimi Linear, most of whose layers have Kimi delta
 * attention instead, and no layer a rotation.
 *
 * Per position the cache keeps one row: c, from which keys and values of all heads are products,
 * and behind it a part that rotates, which all heads share. Neither keys nor values are made: since
 * q . (U c) = (U^T q) . c, the product U of a head goes to its query, and that of its values behind
 * the sum. So attention has one head of keys, whose first elements are the values. */
#include "graph/arch.h"

/* The norms of q and c have an epsilon of their own, whatever the layers' is. */
static int32_t latent_norm(mn_model_graph *g, int32_t x, const char *name, int64_t n) {
    const double eps = 1e-6;
    return mn_g_rms_norm_of(g, x, mn_g_vector(g, name, false, n), eps);
}

/* q [T, H, dim_k] and the row that is kept [T, 1, n_kv + n_rot], as they are before norm and
 * rotation. */
static void latent_inputs(mn_model_graph *g, int32_t x, int32_t *q, int32_t *row) {
    const mn_latent *l = &g->hp.latent;
    const int64_t D = g->hp.n_embd;
    const int64_t H = mn_g_layer(g)->n_head;
    const int64_t kept = l->n_kv + l->n_rot;
    const mn_g_product kv_a = mn_b_product(g, "blk.%d.attn_kv_a_mqa", kept, D);
    int32_t y[2];
    if (!l->n_q) {
        const mn_g_product p[2] = {mn_b_product(g, "blk.%d.attn_q", H * l->dim_k, D), kv_a};
        mn_g_linear(g, x, 2, p, (const int64_t[]){l->dim_k, kept}, y);
        *q = y[0];
        *row = y[1];
        return;
    }
    const mn_g_product p[2] = {mn_b_product(g, "blk.%d.attn_q_a", l->n_q, D), kv_a};
    const mn_g_product q_b = mn_b_product(g, "blk.%d.attn_q_b", H * l->dim_k, l->n_q);
    mn_g_linear(g, x, 2, p, (const int64_t[]){0, kept}, y);
    *row = y[1];
    y[0] = latent_norm(g, y[0], "blk.%d.attn_q_a_norm.weight", l->n_q);
    mn_g_linear(g, y[0], 1, &q_b, &l->dim_k, q);
}

static int32_t latent_attention(mn_model_graph *g, int32_t x) {
    const mn_latent *l = &g->hp.latent;
    const int64_t H = mn_g_layer(g)->n_head;
    const int64_t nope = l->dim_k - l->n_rot;
    const mn_g_product out = mn_b_product(g, "blk.%d.attn_output", g->hp.n_embd, H * l->dim_v);
    const int32_t to_k = mn_g_experts(g, "blk.%d.attn_k_b.weight", false, H, l->n_kv, nope);
    const int32_t to_v = mn_g_experts(g, "blk.%d.attn_v_b.weight", false, H, l->dim_v, l->n_kv);
    int32_t q;
    int32_t k;
    latent_inputs(g, x, &q, &k);
    q = mn_g_heads(g, mn_g_rope_behind(g, q), to_k);
    k = latent_norm(g, k, "blk.%d.attn_kv_a_norm.weight", l->n_kv);
    int32_t y = mn_g_attention(g, q, mn_g_rope_behind(g, k), -1, -1);
    y = mn_g_heads(g, y, to_v);
    mn_g_linear(g, y, 1, &out, NULL, &x);
    return x;
}

void mn_arch_deepseek(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        const bool attends = mn_g_layer(g)->attends;
        x = mn_g_add(g, x, attends ? latent_attention(g, y) : mn_b_kda(g, y));
        y = mn_b_rms(g, x, "blk.%d.ffn_norm");
        x = mn_g_add(g, x, mn_b_feed_forward(g, y));
    }
    mn_b_head(g, x, mn_b_rms);
}
