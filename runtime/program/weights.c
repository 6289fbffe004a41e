/* weights.c -- streams the graph's weights into a device's set. */
#include "program/weights.h"
#include <string.h>

enum { IN_FLIGHT = 16, BOUND_NS = 1000000000 };

/* A constant of the host: one dense F32 plane. */
static void describe_constant(const mn_tensor *t, const void *data, mn_plane *plane) {
    int64_t stride = 4;
    *plane = (mn_plane){.ptr = data, .kind = MN_PLANE_DATA, .dtype = MN_F32};
    for (uint32_t d = t->n_dim; d-- > 0;) {
        plane->dim[d] = t->dim[d];
        plane->stride[d] = stride;
        stride *= t->dim[d];
    }
    plane->bytes = (uint64_t)stride;
}

static mn_status put(const mn_backend *b, mn_weights *set, mn_queue *q, const mn_model_graph *g,
                     const mn_graph_weight *w, mn_event **event, mn_error *err) {
    mn_plane plane;
    mn_weight_src src = {.size = sizeof src,
                         .tensor = (uint32_t)w->tensor,
                         .n_parts = 1,
                         .n_planes = 1,
                         .plane_stride = sizeof plane,
                         .planes = &plane,
                         .dtype = g->abi.tensors[w->tensor].dtype};
    if (w->source) {
        const mn_tensor_info *t = &w->source->info;
        src.n_parts = t->n_parts;
        src.n_planes = t->n_planes;
        src.plane_stride = t->plane_stride;
        src.planes = t->planes;
        src.dtype = t->dtype;
    } else
        describe_constant(&g->abi.tensors[w->tensor], w->constant, &plane);
    return b->weights_put(set, q, &src, event, err);
}

static mn_status settle(const mn_backend *b, mn_event **event, mn_error *err) {
    mn_status st = MN_OK;
    if (!*event) return MN_OK;
    do st = b->wait(*event, BOUND_NS, err);
    while (st == MN_TIMEOUT);
    b->event_free(*event);
    *event = NULL;
    return st;
}

mn_status mn_weights_import(const mn_backend *b, mn_device *d, mn_queue *q, const mn_compile *c,
                            const mn_model_graph *g, mn_weights **out, uint32_t *kept_how, mn_error *err) {
    mn_event *events[IN_FLIGHT] = {0};
    mn_weights *set = NULL;
    mn_status st = b->weights_open(d, c, &set, err);
    for (uint32_t i = 0; i < g->n_weights && !st; i++) {
        st = settle(b, &events[i % IN_FLIGHT], err);
        if (!st) st = put(b, set, q, g, &g->weights[i], &events[i % IN_FLIGHT], err);
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        mn_status s = settle(b, &events[i], st ? NULL : err);
        if (!st) st = s;
    }
    if (!st) st = b->weights_seal(set, q, kept_how, err);
    if (st && set)
        b->weights_free(set);
    else
        *out = set;
    return st;
}
