/* graph_dense.c -- small weights as F32 of the graph's own, whatever shape their file gives them:
 * convolutions of channels, numbers of heads. */
#include "graph/build.h"
#include <stdio.h>
#include <string.h>

float *mn_g_scratch(mn_model_graph *g, int64_t n) {
    if (g->status)
        return NULL;
    float *values = mn_arena_alloc(&g->arena, (size_t)n, sizeof *values);
    if (!values)
        mn_gb_no_memory(g);
    return values;
}

/* "blk.%d.ssm_d" of the layer that g is at. */
static void dense_name(const mn_model_graph *g, const char *name, char full[64]) {
    const char *mark = strstr(name, "%d");
    if (!mark) {
        snprintf(full, 64, "%s", name);
        return;
    }
    const int before = (int)(mark - name);
    snprintf(full, 64, "%.*s%d%s", before, name, g->layer, mark + 2);
}

static int32_t fail_dims(mn_model_graph *g, const char *name, int64_t found, const int64_t *dim,
                         uint32_t n_dim) {
    const long long second = n_dim > 1 ? dim[1] : 1;
    char full[64];
    dense_name(g, name, full);
    mn_status st = mn_fail(g->err, MN_BAD_FILE,
                           "%s: tensor %s has %lld elements; the hyper-parameters say %lld x %lld",
                           g->model->path, full, (long long)found, (long long)dim[0], second);
    mn_gb_fail(g, st);
    return -1;
}

/* The elements that the names have together; 0: one is absent, or g has failed. */
static int64_t count_elements(mn_model_graph *g, const char *const *names, uint32_t n,
                              bool optional) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t more = mn_gb_flat(g, names[i], optional, NULL, 0);
        if (!more)
            return 0;
        sum += more;
    }
    return sum;
}

/* Whether the dims have so many elements; they come from keys, and may be of any size. */
static bool dims_are(const int64_t *dim, uint32_t n_dim, int64_t n) {
    for (uint32_t i = 0; i < n_dim; i++) {
        if (dim[i] < 1 || n % dim[i])
            return false;
        n /= dim[i];
    }
    return n == 1;
}

int32_t mn_g_dense_f32(mn_model_graph *g, const char *const *names, uint32_t n, bool optional,
                       uint32_t n_dim, const int64_t *dim, const float *factors) {
    char full[64];
    const int64_t all = count_elements(g, names, n, optional);
    if (!all)
        return -1;
    if (!dims_are(dim, n_dim, all))
        return fail_dims(g, names[0], all, dim, n_dim);
    float *values = mn_g_scratch(g, all);
    int64_t at = 0;
    for (uint32_t i = 0; i < n && values; i++)
        at += mn_gb_flat(g, names[i], optional, values + at, all - at);
    if (g->status)
        return -1;
    for (int64_t i = 0; factors && i < all; i++)
        values[i] *= factors[i / (all / dim[0])];
    dense_name(g, names[0], full);
    return mn_gb_weight(g, full, MN_F32, n_dim, dim, (mn_graph_weight){.constant = values});
}
