/* graph_dense.c -- small weights as F32 of the graph's own, whatever shape their file gives them:
 * convolutions of channels, numbers of heads. */
#include "graph/build.h"
#include <stdio.h>
#include <string.h>

float *mn_g_scratch(mn_model_graph *g, int64_t n) {
    float *values = mn_arena_alloc(&g->arena, (size_t)n, sizeof *values);
    if (!values)
        mn_gb_no_memory(g);
    return values;
}

static int32_t fail_count(mn_model_graph *g, const char *name, int64_t found, int64_t wanted) {
    mn_status st = mn_fail(g->err, MN_BAD_FILE,
                           "%s: tensor %s (layer %d) has %lld elements; the hyper-parameters say "
                           "%lld",
                           g->model->path, name, g->layer, (long long)found, (long long)wanted);
    mn_gb_fail(g, st);
    return -1;
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

int32_t mn_g_dense_f32(mn_model_graph *g, const char *const *names, uint32_t n, bool optional,
                       uint32_t n_dim, const int64_t *dim, const float *factors) {
    int64_t wanted = 1;
    int64_t found = 0;
    char full[64];
    for (uint32_t i = 0; i < n_dim; i++)
        wanted *= dim[i];
    float *values = mn_g_scratch(g, wanted);
    for (uint32_t i = 0; i < n && !g->status; i++) {
        const int64_t more = mn_gb_flat(g, names[i], optional, values + MN_MIN(found, wanted),
                                        wanted - MN_MIN(found, wanted));
        if (!more)
            return -1;
        found += more;
    }
    if (g->status)
        return -1;
    if (found != wanted)
        return fail_count(g, names[0], found, wanted);
    for (int64_t i = 0; factors && i < wanted; i++)
        values[i] *= factors[i / (wanted / dim[0])];
    dense_name(g, names[0], full);
    return mn_gb_weight(g, full, MN_F32, n_dim, dim, (mn_graph_weight){.constant = values});
}
