/* graph_text_conv.c -- a convolution over the rows of a whole text, which mixes all channels
 * (DeBERTa v2 xlarge): y[t] = bias + sum over taps i of W_i x[t + i - middle], zeros beyond the
 * ends of the text.
 *
 * It is a product for each tap, moved by rows. Attention moves rows exactly: a bias by distance
 * leaves one position of the text, with all of the softmax, and where there is no such position a
 * sink has it, so that the sum is 0. Keys and values of a tap are its product, one head as wide as
 * the rows, in a group of caches of their own, which is gone after the step. */
#include "graph/weights.h"
#include <stdio.h>

/* Scores: of the position that a tap reads 0, of the sink, of all others. exp of their differences
 * is 0 in f32. */
#define SINK (-300.0f)
#define OTHERS (-1e4f)

/* Buckets of distances, as DISTANCE_BIAS has them: of each direction the first half is exact. */
static int64_t n_buckets(int64_t n_taps) {
    return 4 * MN_MAX(n_taps / 2 + 1, 2);
}

/* W_i as constants [D, D], of weights [D, D / groups, taps]. false: g has failed. */
static bool unpack_taps(mn_model_graph *g, float **taps) {
    const int64_t D = g->hp.n_embd;
    const int64_t n_taps = g->hp.n_taps;
    const mn_model_tensor_entry *e = mn_gb_find(g, "text_conv.weight", false);
    if (!e)
        return false;
    const int64_t n_in = D / g->hp.n_tap_groups;
    const int64_t n = D * n_in * n_taps;
    if (!mn_gb_check_shape(g, &e->info, 3, (const int64_t[]){D, n_in, n_taps}))
        return false;
    float *all = mn_g_scratch(g, n);
    if (!all || !mn_gb_flat(g, "text_conv.weight", false, all, n))
        return false;
    for (int64_t i = 0; i < n_taps; i++) {
        taps[i] = mn_g_scratch(g, D * D);
        if (!taps[i])
            return false;
        for (int64_t at = 0; at < D * D; at++) {
            const int64_t row = at / D;
            const int64_t col = at % D - row / n_in * n_in; /* among its group's channels */
            const bool in_group = col >= 0 && col < n_in;
            taps[i][at] = in_group ? all[(row * n_in + col) * n_taps + i] : 0;
        }
    }
    return true;
}

/* The scores of a tap that reads the row `from` behind its own: [B, 1]. */
static int32_t tap_scores(mn_model_graph *g, int64_t from) {
    const int64_t dim[] = {n_buckets(g->hp.n_taps), 1};
    float *scores = mn_g_scratch(g, dim[0]);
    char name[MN_GB_NAME];
    if (!scores)
        return -1;
    for (int64_t i = 0; i < dim[0]; i++)
        scores[i] = OTHERS;
    scores[from > 0 ? dim[0] / 2 + from : -from] = 0;
    snprintf(name, sizeof name, "text_conv.%lld.scores", (long long)from);
    return mn_gb_weight(g, name, MN_F32, 2, dim, (mn_graph_weight){.constant = scores});
}

/* Rows of x [T, 1, D], each from the row `from` behind it: a node that stores them as layer `layer`
 * of their group, and one that reads them. */
static int32_t move_rows(mn_model_graph *g, int32_t x, int64_t from, int64_t layer, int32_t sink) {
    const int64_t D = g->hp.n_embd;
    const uint32_t group = (uint32_t)g->hp.taps_group;
    const int32_t y = mn_gb_interior(g, "moved", MN_DIM(MN_SYM_TOKENS), 1, D);
    const int32_t scores = tap_scores(g, from);
    mn_gb_begin(g, MN_OP_KV_STORE);
    mn_gb_in(g, x);
    mn_gb_in(g, x);
    mn_gb_in(g, g->row_pos);
    mn_gb_in(g, g->io.row_slot);
    mn_gb_in(g, g->io.pages[group]);
    mn_gb_in(g, g->io.kv[group]);
    mn_gb_attr(g, (uint64_t)layer);
    mn_gb_attr(g, group);
    mn_gb_end(g);
    mn_gb_begin(g, MN_OP_ATTENTION);
    mn_gb_in(g, x); /* of no weight beside the scores */
    mn_gb_in(g, g->row_pos);
    mn_gb_in(g, g->io.row_slot);
    mn_gb_in(g, g->io.seqs);
    mn_gb_in(g, g->io.pages[group]);
    mn_gb_in(g, g->io.kv[group]);
    mn_gb_in(g, sink);
    mn_gb_in(g, -1); /* slopes */
    mn_gb_in(g, scores);
    mn_gb_attr_f64(g, 1e-30);
    mn_gb_attr(g, 0); /* window */
    mn_gb_attr_f64(g, 0);
    mn_gb_attr(g, (uint64_t)layer);
    mn_gb_attr(g, group);
    mn_gb_attr(g, 1); /* heads */
    mn_gb_attr(g, (uint64_t)D);
    mn_gb_attr(g, 1); /* bidirectional */
    mn_gb_attr(g, 0);
    mn_gb_attr(g, 0);
    mn_gb_attr(g, (uint64_t)n_buckets(g->hp.n_taps)); /* distances have 1 bucket from there on */
    mn_gb_out(g, y);
    mn_gb_end(g);
    return y;
}

/* The taps' products with x, the bias in the middle one: [T, 1, D] each. */
static void tap_products(mn_model_graph *g, int32_t x, int32_t y[MN_MAX_TAPS]) {
    const int64_t D = g->hp.n_embd;
    const int64_t n_taps = g->hp.n_taps;
    const int64_t dim[] = {D, D};
    float *taps[MN_MAX_TAPS];
    mn_g_product p[MN_MAX_TAPS];
    int64_t width[MN_MAX_TAPS];
    if (!unpack_taps(g, taps))
        return;
    for (int64_t i = 0; i < n_taps; i++) {
        const mn_graph_weight w = {.constant = taps[i]};
        char name[MN_GB_NAME];
        snprintf(name, sizeof name, "text_conv.%lld.weight", (long long)(i - n_taps / 2));
        p[i] = (mn_g_product){mn_gb_weight(g, name, MN_F32, 2, dim, w), -1};
        width[i] = D;
    }
    p[n_taps / 2].bias = mn_g_vector(g, "text_conv.bias", false, D);
    mn_g_linear(g, x, (uint32_t)n_taps, p, width, y);
}

int32_t mn_g_text_conv(mn_model_graph *g, int32_t x) {
    const int64_t one = 1;
    const int64_t middle = g->hp.n_taps / 2;
    float *sink = mn_g_scratch(g, one);
    int32_t y[MN_MAX_TAPS];
    tap_products(g, x, y);
    if (g->status || !sink)
        return -1;
    *sink = SINK;
    const mn_graph_weight w = {.constant = sink};
    const int32_t sinks = mn_gb_weight(g, "text_conv.sink", MN_F32, 1, &one, w);
    int32_t sum = y[middle];
    int64_t layer = 0;
    for (int64_t i = 0; i < g->hp.n_taps; i++)
        if (i != middle)
            sum = mn_g_add(g, sum, move_rows(g, y[i], i - middle, layer++, sinks));
    if (g->hp.taps_act == MN_TAPS_TANH)
        return mn_g_softcap(g, sum, 1);
    return mn_g_act_of(g, sum, g->hp.taps_act);
}
