/* arch_state.c -- blocks whose layers remember a state (docs/lab/state-families.md): the mixer of
 * Mamba-2 (Dao and Gu 2024), the gated delta rule (Yang et al. 2024), Kimi delta attention (Kimi
 * Team 2025), the short convolution of LFM2 (Liquid AI 2025). Each from x: [T, D], normalised, to
 * [T, D].
 *
 * A convolution's weight is [C, 1, W] in checkpoints and [C, W] in GGUF, vectors of heads are [H]
 * or [H, 1]: they are small, and the graph has them in F32 of one shape. */
#include "graph/arch.h"

/* A number for each head. */
static int32_t of_heads(mn_model_graph *g, const char *name) {
    return mn_g_dense_f32(g, &name, 1, false, 1, &g->hp.ssm.n_head, NULL);
}

/* exp(-A) of checkpoints is stored as A_log, GGUF's as its value; *is_log says which. */
static int32_t decay_rates(mn_model_graph *g, bool *is_log) {
    *is_log = mn_g_has(g, "blk.%d.ssm_a_log");
    if (*is_log)
        return of_heads(g, "blk.%d.ssm_a_log");
    return of_heads(g, "blk.%d.ssm_a");
}

/* x: [T, C]; one weight, or those of q, k and v one behind the other. factors: [C], or NULL. */
static int32_t convolve(mn_model_graph *g, int32_t x, int64_t n_channels, const float *factors) {
    static const char *const apart[] = {"blk.%d.ssm_conv1d_q.weight", "blk.%d.ssm_conv1d_k.weight",
                                        "blk.%d.ssm_conv1d_v.weight"};
    static const char *const whole[] = {"blk.%d.ssm_conv1d.weight"};
    const int64_t dim[] = {n_channels, g->hp.ssm.conv};
    int32_t w;
    if (mn_g_has(g, apart[0]))
        w = mn_g_dense_f32(g, apart, 3, false, 2, dim, NULL);
    else
        w = mn_g_dense_f32(g, whole, 1, false, 2, dim, factors);
    const int32_t bias = mn_g_vector(g, "blk.%d.ssm_conv1d.bias", true, n_channels);
    return mn_g_act_of(g, mn_g_conv_state(g, x, w, bias), MN_ACT_SILU);
}

/* Sizes of heads are there where some layer has such a convolution: else this one lacks it, which
 * is the failure. */
static bool has_sizes(mn_model_graph *g) {
    static const char *const name[] = {"blk.%d.ssm_conv1d.weight"};
    const int64_t none = 0;
    if (g->hp.ssm.inner)
        return true;
    mn_g_dense_f32(g, name, 1, false, 1, &none, NULL);
    return false;
}

static int32_t project_back(mn_model_graph *g, int32_t y, const char *stem, int64_t n_cols) {
    const mn_g_product out = mn_b_product(g, stem, g->hp.n_embd, n_cols);
    int32_t x;
    mn_g_linear(g, y, 1, &out, NULL, &x);
    return x;
}

int32_t mn_b_scale(mn_model_graph *g, int32_t x, double factor) {
    if (factor > 0 && factor != 1)
        return mn_g_scale(g, x, factor);
    return x;
}

/* ---- Mamba-2 --------------------------------------------------------------------------------- */
enum { Z, XBC, DT, N_PARTS };

/* Channels of the convolution. */
static int64_t n_xbc(const mn_ssm *s) {
    return s->inner + 2 * s->n_group * s->state;
}

/* ssm_in [2 K + 2 G N + H, D]: z, then x, B and C side by side, then dt. */
static void mamba_in(mn_model_graph *g, int32_t x, int32_t y[N_PARTS]) {
    const mn_ssm *s = &g->hp.ssm;
    const int64_t n[N_PARTS] = {s->inner, n_xbc(s), s->n_head};
    int64_t by_group[N_PARTS] = {0};
    mn_row_part part = {0};
    mn_g_product p[N_PARTS];
    if (s->n_group > 1)
        by_group[Z] = s->inner / s->n_group;
    for (int i = 0; i < N_PARTS; i++)
        part.total += n[i];
    for (int i = 0; i < N_PARTS; i++) {
        part.n = n[i];
        p[i] = mn_b_part(g, "blk.%d.ssm_in", part, g->hp.n_embd);
        part.lo += part.n;
    }
    mn_g_linear(g, x, N_PARTS, p, by_group, y);
}

/* Falcon-H1 scales what its projection gives. What goes through the convolution is scaled there:
 * x, B and C by their channels' weights. NULL: no factor is stated, or g has failed. */
static const float *channel_factors(mn_model_graph *g) {
    const mn_ssm *s = &g->hp.ssm;
    const int64_t n_bc = s->n_group * s->state;
    if (!(s->parts[0] > 0))
        return NULL;
    float *factors = mn_g_scratch(g, n_xbc(s));
    for (int64_t i = 0; factors && i < n_xbc(s); i++) {
        int64_t part = 1;
        if (i >= s->inner)
            part = 2 + (i - s->inner) / n_bc;
        factors[i] = (float)s->parts[part];
    }
    return factors;
}

/* The weight of the norm over each group's columns; -1: the file has none. */
static int32_t norm_of_groups(mn_model_graph *g) {
    static const char *const name[] = {"blk.%d.ssm_norm.weight"};
    const mn_ssm *s = &g->hp.ssm;
    const int64_t dim[] = {s->n_group, s->inner / s->n_group};
    if (s->n_group == 1)
        return mn_g_dense_f32(g, name, 1, true, 1, &s->inner, NULL);
    return mn_g_dense_f32(g, name, 1, true, 2, dim, NULL);
}

/* y: [T, G, K / G] with the gate z of the same shape; files without a norm have the gate alone. */
static int32_t gate_and_norm(mn_model_graph *g, int32_t y, int32_t z) {
    const double eps = g->hp.norm_eps;
    const int32_t w = norm_of_groups(g);
    const bool first = w >= 0 && g->hp.ssm.norm_first;
    if (first)
        y = mn_g_rms_norm_of(g, y, w, eps);
    y = mn_g_glu_of(g, z, y, MN_ACT_SILU);
    if (w < 0 || first)
        return y;
    return mn_g_rms_norm_of(g, y, w, eps);
}

int32_t mn_b_mamba2(mn_model_graph *g, int32_t x) {
    const mn_ssm *s = &g->hp.ssm;
    int32_t in[N_PARTS];
    mn_g_scan scan = {.n_head = s->n_head};
    if (!has_sizes(g))
        return -1;
    mamba_in(g, mn_b_scale(g, x, s->in_scale), in);
    in[Z] = mn_b_scale(g, in[Z], s->parts[0]);
    scan.xbc = convolve(g, in[XBC], n_xbc(s), channel_factors(g));
    scan.dt = mn_b_scale(g, in[DT], s->parts[4]);
    scan.a = decay_rates(g, &scan.a_is_log);
    scan.d = of_heads(g, "blk.%d.ssm_d");
    scan.dt_bias = of_heads(g, "blk.%d.ssm_dt.bias");
    const int32_t y = gate_and_norm(g, mn_g_ssm_scan(g, &scan), in[Z]);
    return mn_b_scale(g, project_back(g, y, "blk.%d.ssm_out", s->inner), s->out_scale);
}

/* ---- the gated delta rule -------------------------------------------------------------------- */
enum { QKV, GATE, BETA, ALPHA, N_DELTA };

/* Elements of the heads of v that read one head of k. */
static int64_t v_of_group(const mn_ssm *s) {
    return s->inner / s->n_group;
}

/* Rows [lo, lo + n) of each head of k in ssm_in, which has its q, k, v and gate side by side. */
static mn_row_run run_of_heads(const mn_ssm *s, int64_t lo, int64_t n) {
    const int64_t each = 2 * s->state + 2 * v_of_group(s);
    return (mn_row_run){
        .stem = "blk.%d.ssm_in",
        .total = s->n_group * each,
        .lo = lo,
        .n = n,
        .step = each,
        .count = s->n_group,
    };
}

/* All rows of a tensor. */
static mn_row_run whole_run(const char *stem, int64_t n) {
    return (mn_row_run){
        .stem = stem,
        .total = n,
        .n = n,
        .count = 1,
    };
}

/* Of one tensor, of those of q, k and v, or of ssm_in. */
static mn_g_product rows_of_qkv(mn_model_graph *g) {
    static const char own[] = "blk.%d.attn_qkv";
    const mn_ssm *s = &g->hp.ssm;
    const int64_t D = g->hp.n_embd;
    const int64_t n_k = s->n_group * s->state;
    if (mn_g_has(g, "blk.%d.attn_qkv.weight"))
        return mn_b_product(g, own, 2 * n_k + s->inner, D);
    mn_row_run runs[3] = {
        run_of_heads(s, 0, s->state),
        run_of_heads(s, s->state, s->state),
        run_of_heads(s, 2 * s->state, v_of_group(s)),
    };
    if (mn_g_has(g, "blk.%d.ssm_q.weight")) {
        runs[0] = whole_run("blk.%d.ssm_q", n_k);
        runs[1] = whole_run("blk.%d.ssm_k", n_k);
        runs[2] = whole_run("blk.%d.ssm_v", s->inner);
    }
    return mn_b_runs(g, own, runs, 3, D);
}

static mn_g_product rows_of_gate(mn_model_graph *g) {
    static const char own[] = "blk.%d.attn_gate";
    const mn_ssm *s = &g->hp.ssm;
    const int64_t n_v = v_of_group(s);
    const mn_row_run run = run_of_heads(s, 2 * s->state + n_v, n_v);
    if (mn_g_has(g, "blk.%d.attn_gate.weight"))
        return mn_b_product(g, own, s->inner, g->hp.n_embd);
    return mn_b_runs(g, own, &run, 1, g->hp.n_embd);
}

/* ssm_ba: of each head of k the rows of beta, then of alpha, of its heads of v. */
static mn_g_product rows_of_numbers(mn_model_graph *g, const char *own, bool is_alpha) {
    const mn_ssm *s = &g->hp.ssm;
    const int64_t n = s->n_head / s->n_group;
    const mn_row_run run = {
        .stem = "blk.%d.ssm_ba",
        .total = 2 * s->n_head,
        .lo = is_alpha ? n : 0,
        .n = n,
        .step = 2 * n,
        .count = s->n_group,
    };
    if (mn_g_has(g, "blk.%d.ssm_ba.weight"))
        return mn_b_runs(g, own, &run, 1, g->hp.n_embd);
    return mn_b_product(g, own, s->n_head, g->hp.n_embd);
}

int32_t mn_b_delta(mn_model_graph *g, int32_t x, double norm_eps) {
    const mn_ssm *s = &g->hp.ssm;
    if (!has_sizes(g))
        return -1;
    const int64_t head = s->inner / s->n_head;
    const int64_t heads[N_DELTA] = {0, head, 0, 0};
    const mn_g_product p[N_DELTA] = {
        rows_of_qkv(g),
        rows_of_gate(g),
        rows_of_numbers(g, "blk.%d.ssm_beta", false),
        rows_of_numbers(g, "blk.%d.ssm_alpha", true),
    };
    int32_t in[N_DELTA];
    mn_g_delta delta = {
        .n_head = s->n_head,
        .dim_v = head,
    };
    mn_g_linear(g, x, N_DELTA, p, heads, in);
    delta.qkv = convolve(g, in[QKV], 2 * s->n_group * s->state + s->inner, NULL);
    delta.gate = in[ALPHA];
    delta.beta = in[BETA];
    delta.a = decay_rates(g, &delta.a_is_log);
    delta.dt_bias = of_heads(g, "blk.%d.ssm_dt.bias");
    const int32_t norm = mn_g_vector(g, "blk.%d.ssm_norm.weight", false, head);
    int32_t y = mn_g_rms_norm_of(g, mn_g_gated_delta(g, &delta), norm, norm_eps);
    y = mn_g_glu_of(g, in[GATE], y, MN_ACT_SILU);
    return project_back(g, y, "blk.%d.ssm_out", s->inner);
}

/* ---- Kimi delta attention -------------------------------------------------------------------- */
/* The delta rule whose decay is a number for each element of k. Decay and gate are products of low
 * rank; all heads have one width, and each reads its own q and k. */

/* q, k and v of all heads side by side. */
static mn_g_product kda_qkv(mn_model_graph *g) {
    const int64_t n = g->hp.ssm.inner;
    const mn_row_run runs[3] = {
        whole_run("blk.%d.attn_q", n),
        whole_run("blk.%d.attn_k", n),
        whole_run("blk.%d.attn_v", n),
    };
    return mn_b_runs(g, "blk.%d.attn_qkv", runs, 3, g->hp.n_embd);
}

/* x: [T, width of a head] -> [T, heads, width] */
static int32_t kda_widen(mn_model_graph *g, int32_t x, const char *stem) {
    const mn_ssm *s = &g->hp.ssm;
    const mn_g_product p = mn_b_product(g, stem, s->inner, s->state);
    int32_t y;
    mn_g_linear(g, x, 1, &p, &s->state, &y);
    return y;
}

int32_t mn_b_kda(mn_model_graph *g, int32_t x) {
    enum { OF_QKV, OF_DECAY, OF_GATE, OF_BETA, N };
    const mn_ssm *s = &g->hp.ssm;
    const int64_t D = g->hp.n_embd;
    if (!has_sizes(g))
        return -1;
    const mn_g_product p[N] = {
        kda_qkv(g),
        mn_b_product(g, "blk.%d.ssm_f_a", s->state, D),
        mn_b_product(g, "blk.%d.ssm_g_a", s->state, D),
        mn_b_product(g, "blk.%d.ssm_beta", s->n_head, D),
    };
    int32_t in[N];
    mn_g_delta delta = {
        .n_head = s->n_head,
        .dim_v = s->state,
    };
    mn_g_linear(g, x, N, p, NULL, in);
    delta.qkv = convolve(g, in[OF_QKV], 3 * s->inner, NULL);
    delta.gate = kda_widen(g, in[OF_DECAY], "blk.%d.ssm_f_b");
    delta.beta = in[OF_BETA];
    delta.a = decay_rates(g, &delta.a_is_log);
    delta.dt_bias = mn_g_vector_f32(g, "blk.%d.ssm_dt.bias", false, s->inner);
    const int32_t norm = mn_g_vector(g, "blk.%d.ssm_norm.weight", false, s->state);
    const int32_t gate = kda_widen(g, in[OF_GATE], "blk.%d.ssm_g_b");
    int32_t y = mn_g_rms_norm_of(g, mn_g_gated_delta(g, &delta), norm, g->hp.norm_eps);
    y = mn_g_glu_of(g, gate, y, MN_ACT_SIGMOID);
    return project_back(g, y, "blk.%d.attn_output", s->inner);
}

/* ---- LFM2 ------------------------------------------------------------------------------------ */
/* in_proj gives b, c and x; c times the convolution of b times x. */
int32_t mn_b_short_conv(mn_model_graph *g, int32_t x) {
    const int64_t D = g->hp.n_embd;
    const int64_t dim[] = {D, g->hp.ssm.conv};
    static const char *const name[] = {"blk.%d.shortconv.conv.weight"};
    mn_g_product p[3];
    int32_t in[3];
    for (int i = 0; i < 3; i++) {
        const mn_row_part part = {
            .total = 3 * D,
            .lo = i * D,
            .n = D,
        };
        p[i] = mn_b_part(g, "blk.%d.shortconv.in_proj", part, D);
    }
    mn_g_linear(g, x, 3, p, NULL, in);
    const int32_t w = mn_g_dense_f32(g, name, 1, false, 2, dim, NULL);
    const int32_t bias = mn_g_vector(g, "blk.%d.shortconv.conv.bias", true, D);
    const int32_t y = mn_g_conv_state(g, mn_g_mul(g, in[0], in[2]), w, bias);
    return project_back(g, mn_g_mul(g, in[1], y), "blk.%d.shortconv.out_proj", D);
}
