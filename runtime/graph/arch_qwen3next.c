/* arch_qwen3next.c -- models with the gated delta rule in most layers: Qwen3-Next, Qwen3.5 and 3.6
 * (Qwen Team 2025, 2026), whose attention has a gate, dense and with experts; OLMo hybrid (Ai2
 * 2026), whose layers with attention are OLMo 3's. */
#include "graph/arch.h"

/* attn_q: of each head its rows of q, then those of its gate. */
static mn_g_product half_of_heads(mn_model_graph *g, const char *own, bool is_gate) {
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t n = l->head_dim_k;
    mn_row_run run = {
        .stem = "blk.%d.attn_q",
        .n = n,
        .step = 2 * n,
        .count = l->n_head,
    };
    run.total = run.count * run.step;
    if (is_gate)
        run.lo = n;
    return mn_b_runs(g, own, &run, 1, g->hp.n_embd);
}

static int32_t gated_attention(mn_model_graph *g, int32_t x) {
    enum { Q, GATE, K, V, N };
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t D = g->hp.n_embd;
    const int64_t width = l->n_head * l->head_dim_v;
    const int64_t heads[N] = {l->head_dim_k, l->head_dim_k, l->head_dim_k, l->head_dim_v};
    const mn_g_product p[N] = {
        half_of_heads(g, "blk.%d.attn_q", false),
        half_of_heads(g, "blk.%d.attn_q_gate", true),
        mn_b_product(g, "blk.%d.attn_k", l->n_head_kv * l->head_dim_k, D),
        mn_b_product(g, "blk.%d.attn_v", l->n_head_kv * l->head_dim_v, D),
    };
    const mn_g_product out = mn_b_product(g, "blk.%d.attn_output", D, width);
    int32_t in[N];
    mn_g_linear(g, x, N, p, heads, in);
    const int32_t q = mn_b_norm_heads(g, in[Q], "blk.%d.attn_q_norm.weight");
    const int32_t k = mn_b_norm_heads(g, in[K], "blk.%d.attn_k_norm.weight");
    int32_t y = mn_g_attention(g, mn_g_rope(g, q), mn_g_rope(g, k), in[V], -1);
    y = mn_g_glu_of(g, in[GATE], y, MN_ACT_SIGMOID);
    mn_g_linear(g, y, 1, &out, NULL, &x);
    return x;
}

void mn_arch_qwen3next(mn_model_graph *g) {
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y = mn_b_rms(g, x, "blk.%d.attn_norm");
        if (mn_g_layer(g)->attends)
            y = gated_attention(g, y);
        else
            y = mn_b_delta(g, y, g->hp.norm_eps);
        x = mn_g_add(g, x, y);
        y = mn_b_rms(g, x, "blk.%d.post_attention_norm");
        x = mn_g_add(g, x, mn_b_feed_forward(g, y));
    }
    mn_b_head(g, x, mn_b_rms);
}

/* The norm behind attention, or in front of the MLP: published files call it so in the one kind of
 * layers and otherwise in the other, those that Transformers wrote have one name in both. */
static const char *middle_norm(const mn_model_graph *g) {
    const bool usual = mn_g_has(g, "blk.%d.ffn_norm.weight");
    if (usual)
        return "blk.%d.ffn_norm";
    return "blk.%d.post_attention_norm";
}

/* Layers with a state have norms in front, those with attention behind, over the whole of q and
 * k. */
void mn_arch_olmo_hybrid(mn_model_graph *g) {
    const double delta_eps = 1e-5; /* whatever the others' is */
    int32_t x = mn_b_embed(g, 1);
    while (mn_g_next_layer(g)) {
        int32_t y;
        if (mn_g_layer(g)->attends) {
            y = mn_b_rms(g, mn_b_attention(g, x), middle_norm(g));
            x = mn_g_add(g, x, y);
            y = mn_b_rms(g, mn_b_glu(g, x), "blk.%d.post_ffw_norm");
        } else {
            y = mn_b_delta(g, mn_b_rms(g, x, "blk.%d.attn_norm"), delta_eps);
            x = mn_g_add(g, x, y);
            y = mn_b_glu(g, mn_b_rms(g, x, middle_norm(g)));
        }
        x = mn_g_add(g, x, y);
    }
    mn_b_head(g, x, mn_b_rms);
}
