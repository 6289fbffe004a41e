/* graph_relative.c -- relative keys and queries of disentangled attention (DeBERTa):
 * a table of embeddings of distances, normalised, times the matrices of a layer. They depend on no
 * text, so that the host multiplies them while the graph is built, and they are its constants. */
#include "graph/weights.h"
#include "model/rows.h"
#include <math.h>
#include <stdio.h>

/* Rows that distances share, or two for each distance. */
static int64_t n_places(const mn_hparams *h) {
    return 2 * (h->n_buckets ? h->n_buckets : h->far_distance);
}

/* x [n] normalised as LAYER_NORM does it, times w, plus b. */
static void layer_normalise(float *x, int64_t n, const float *w, const float *b, double eps) {
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double by = 1 / sqrt(squares / (double)n + eps);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(((double)x[i] - mean) * by * (double)w[i] + (b ? (double)b[i] : 0));
}

/* Rows [0, n) of a matrix [., cols] as F32 in the graph's memory; NULL: g has failed. */
static float *unpacked_rows(mn_model_graph *g, const mn_tensor_info *t, int64_t n) {
    const int64_t cols = t->dim[1];
    float *rows = mn_g_scratch(g, n * cols);
    for (int64_t i = 0; i < n && rows; i++) {
        const mn_status st =
            mn_row_unpack(g->model->types, t, (uint64_t)i, rows + i * cols, g->err);
        if (st) {
            mn_gb_fail(g, st);
            return NULL;
        }
    }
    return rows;
}

const float *mn_g_distances(mn_model_graph *g) {
    static const char norm[] = "rel_embd_norm.weight";
    const int64_t D = g->hp.n_embd;
    const int64_t n = n_places(&g->hp);
    const mn_model_tensor_entry *e = mn_gb_find(g, "rel_embd.weight", false);
    if (!e)
        return NULL;
    const int64_t dim[] = {e->info.dim[0] < n ? n : e->info.dim[0], D};
    if (!mn_gb_fits(g, &e->info, 2, dim))
        return NULL;
    float *rows = unpacked_rows(g, &e->info, n);
    if (!rows || !mn_g_has(g, norm))
        return rows;
    const float *w = mn_gb_widen(g, norm, false, D);
    const float *b = w ? mn_gb_widen(g, "rel_embd_norm.bias", true, D) : NULL;
    for (int64_t i = 0; i < n && !g->status; i++)
        layer_normalise(rows + i * D, D, w, b, g->hp.norm_eps);
    return g->status ? NULL : rows;
}

/* In lanes, which compilers compute at once. */
static float dot_in_lanes(const float *a, const float *b, int64_t n) {
    enum { LANES = 8 };
    float lane[LANES] = {0};
    double sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (int j = 0; j < LANES; j++)
        sum += (double)lane[j];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

int32_t mn_g_relative(mn_model_graph *g, const char *stem, const float *distances) {
    const mn_layer_shape *l = mn_g_layer(g);
    const int64_t D = g->hp.n_embd;
    const int64_t n_out = l->n_head * l->head_dim_k;
    const int64_t dim[] = {n_places(&g->hp), l->n_head, l->head_dim_k};
    char name[MN_GB_NAME];
    char full[MN_GB_NAME];
    snprintf(name, sizeof name, "%s.weight", stem);
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, false);
    if (!distances || !e || !mn_gb_fits(g, &e->info, 2, (const int64_t[]){n_out, D}))
        return -1;
    const float *w = unpacked_rows(g, &e->info, n_out);
    float *to = mn_g_scratch(g, dim[0] * n_out);
    snprintf(name, sizeof name, "%s.bias", stem);
    mn_gb_full_name(g, name, full);
    const float *bias = mn_gb_widen(g, full, true, n_out);
    if (g->status)
        return -1;
    for (int64_t i = 0; i < dim[0]; i++)
        for (int64_t k = 0; k < n_out; k++)
            to[i * n_out + k] =
                dot_in_lanes(distances + i * D, w + k * D, D) + (bias ? bias[k] : 0);
    snprintf(name, sizeof name, "%s.relative", stem);
    mn_gb_full_name(g, name, full);
    return mn_gb_weight(g, full, MN_F32, 3, dim, (mn_graph_weight){.constant = to});
}
