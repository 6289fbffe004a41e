/* graph_rope.c -- what says positions, as constants of the graph: the angles of the rotary
 * embedding, the slopes of ALiBi. */
#include "graph/build.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

bool mn_model_graph_differs(const mn_model_graph *g, uint32_t n_ctx) {
    const int64_t orig = g->hp.rope_orig_ctx;
    if (mn_grows(&g->hp, g->n_ctx) != mn_grows(&g->hp, n_ctx))
        return true;
    const bool is_long = (int64_t)g->n_ctx > orig;
    const bool would_be_long = (int64_t)n_ctx > orig;
    return g->hp.rope_scaling == MN_ROPE_SCALING_LONGROPE && is_long != would_be_long;
}

/* longrope's factors as a key: {arch}.rope.scaling.long_factor, an array of numbers. NULL = the key
 * is absent, or g failed. */
static const float *factors_of_key(mn_model_graph *g, const char *which, int64_t n) {
    char key[128];
    const void *array = NULL;
    uint64_t found = 0;
    snprintf(key, sizeof key, "%s.rope.scaling.%s_factor", g->hp.arch, which);
    mn_status st = mn_meta_array(&g->model->meta, key, MN_VALUE_FLOAT, &array, &found, g->err);
    if (st == MN_END)
        return NULL;
    if (!st && found != (uint64_t)n)
        st = mn_fail(g->err, MN_BAD_FILE, "%s: key %s has %llu numbers; expected %lld",
                     g->model->path, key, (unsigned long long)found, (long long)n);
    if (st) {
        mn_gb_fail(g, st);
        return NULL;
    }
    float *copy = mn_arena_alloc(&g->arena, (size_t)n, sizeof *copy);
    if (!copy) {
        mn_gb_no_memory(g);
        return NULL;
    }
    for (int64_t i = 0; i < n; i++)
        copy[i] = (float)((const double *)array)[i];
    return copy;
}

/* [n] divisors of the angles: a tensor, or of longrope also a key. NULL = the model has none, or g
 * failed. */
static const float *factors(mn_model_graph *g, int64_t n) {
    if (g->hp.rope_scaling != MN_ROPE_SCALING_LONGROPE)
        return mn_gb_widen(g, "rope_freqs.weight", true, n);
    const char *which = "short";
    if ((int64_t)g->n_ctx > g->hp.rope_orig_ctx)
        which = "long";
    char name[64];
    snprintf(name, sizeof name, "rope_factors_%s.weight", which);
    const float *f = mn_gb_widen(g, name, true, n);
    if (!f && !g->status)
        f = factors_of_key(g, which, n);
    if (f || g->status)
        return f;
    mn_fail(g->err, MN_BAD_FILE, "%s: longrope without its factors (tensor %s)", g->model->path,
            name);
    mn_gb_fail(g, MN_BAD_FILE);
    return NULL;
}

/* One constant per table; the model's factors are those of its scaled ones, which are of one
 * width. */
void mn_gb_freqs(mn_model_graph *g) {
    const mn_hparams *h = &g->hp;
    const float *divisors = NULL;
    int64_t width = 0;
    for (uint32_t i = 0; i < h->n_rope && !g->status; i++) {
        const mn_rope_table *t = &h->rope[i];
        const int64_t n = t->n_rot / 2;
        if (t->scaled && n != width) {
            divisors = factors(g, n);
            width = n;
        }
        if (g->status)
            return;
        float *freqs = mn_arena_alloc(&g->arena, (size_t)n, sizeof *freqs);
        if (!freqs) {
            mn_gb_no_memory(g);
            return;
        }
        mn_rope_freqs(h, t, divisors, freqs, &g->rope_mscale[i]);
        const char *name = "rope.freqs_swa";
        if (t->scaled)
            name = "rope.freqs";
        const mn_graph_weight w = {.constant = freqs};
        g->freqs[i] = mn_gb_weight(g, name, MN_F32, 1, &n, w);
    }
}

/* Press et al. 2022: a geometric sequence where n is a power of 2, else that of the power below it
 * and every other number of the one above. */
int32_t mn_gb_slopes(mn_model_graph *g, int64_t n) {
    char name[32];
    int64_t power = 1;
    if (g->status || !(g->hp.alibi > 0))
        return -1;
    snprintf(name, sizeof name, "slopes.%lld", (long long)n);
    const int32_t known = mn_gb_constant(g, name);
    if (known >= 0)
        return known;
    float *slopes = mn_g_scratch(g, n);
    while (2 * power <= n)
        power *= 2;
    for (int64_t h = 0; slopes && h < n; h++) {
        const double step = h < power ? (double)(h + 1) : (double)(h - power) + 0.5;
        slopes[h] = (float)exp2(-g->hp.alibi * step / (double)power);
    }
    return slopes ? mn_gb_weight(g, name, MN_F32, 1, &n, (mn_graph_weight){.constant = slopes})
                  : -1;
}

/* The values of a constant of the graph. */
static const float *values_of(const mn_model_graph *g, int32_t tensor) {
    uint32_t i = 0;
    while (g->weights[i].tensor != tensor)
        i++;
    return g->weights[i].constant;
}

/* What rotates has no magnitude of its own: what stands in front of it would have it, too. */
static bool check_magnitude(mn_model_graph *g, int32_t at) {
    if (g->rope_mscale[at] > 1 - 1e-9 && g->rope_mscale[at] < 1 + 1e-9)
        return true;
    mn_status st =
        mn_fail(g->err, MN_UNSUPPORTED,
                "%s: its rotary scaling multiplies sin and cos by %g; expected 1 (mscale "
                "as mscale_all_dim), where a part of each head rotates",
                g->model->path, g->rope_mscale[at]);
    return mn_gb_fail(g, st);
}

int32_t mn_gb_freqs_behind(mn_model_graph *g, int32_t at, int64_t width) {
    char name[48];
    const int64_t n = width / 2;
    const int64_t n_rot = g->hp.rope[at].n_rot / 2;
    snprintf(name, sizeof name, "rope.freqs.behind.%lld", (long long)width);
    if (g->status || !check_magnitude(g, at))
        return -1;
    const int32_t known = mn_gb_constant(g, name);
    if (known >= 0)
        return known;
    float *freqs = mn_g_scratch(g, n);
    if (!freqs)
        return -1;
    memcpy(freqs + n - n_rot, values_of(g, g->freqs[at]), (size_t)n_rot * sizeof *freqs);
    return mn_gb_weight(g, name, MN_F32, 1, &n, (mn_graph_weight){.constant = freqs});
}

int32_t mn_gb_growth(mn_model_graph *g, int64_t n) {
    const mn_q_growth *q = &g->hp.q_growth;
    if (g->status || !mn_grows(&g->hp, g->n_ctx))
        return -1;
    const int32_t known = mn_gb_constant(g, "q.growth");
    if (known >= 0)
        return known;
    const int64_t dim[] = {mn_growth_rows(&g->hp), n};
    float *rows = mn_g_scratch(g, dim[0] * n);
    for (int64_t i = 0; rows && i < dim[0] * n; i++)
        rows[i] = (float)(1 + q->scale * log1p((double)(i / n)));
    if (!rows)
        return -1;
    return mn_gb_weight(g, "q.growth", MN_F32, 2, dim, (mn_graph_weight){.constant = rows});
}
