/* weights.c -- streams a segment's weights into a device's set. */
#include "program/weights.h"
#include "program/parts.h"
#include <string.h>

enum { IN_FLIGHT = 16 };

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

/* [n_tensors]: what the nodes of the segment read. NULL = out of memory. */
static bool *wanted_by(const mn_graph *g, const mn_compile *c) {
    bool *wanted = mn_calloc(g->n_tensors, sizeof *wanted);
    for (uint32_t i = c->node_lo; wanted && i < c->node_hi; i++)
        for (uint32_t j = 0; j < g->nodes[i].n_in; j++) {
            int32_t t = g->operands[g->nodes[i].in_off + j];
            if (t >= 0)
                wanted[mn_tensor_root(g, (uint32_t)t)] = true;
        }
    return wanted;
}

static mn_status put_all(const mn_backend *b, mn_weights *set, mn_queue *q, const mn_model_graph *g,
                         const bool *wanted, mn_error *err) {
    mn_event *events[IN_FLIGHT] = {0};
    uint32_t n = 0;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < g->n_weights && !st; i++) {
        if (!wanted[g->weights[i].tensor])
            continue;
        mn_event **event = &events[n++ % IN_FLIGHT];
        st = mn_event_settle(b, event, err);
        if (!st)
            MN_RETRY(st, put(b, set, q, g, &g->weights[i], event, err));
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        mn_status s = mn_event_settle(b, &events[i], st ? NULL : err);
        if (!st)
            st = s;
    }
    return st;
}

mn_status mn_weights_import(const mn_backend *b, mn_device *d, mn_queue *q, const mn_compile *c,
                            const mn_model_graph *g, mn_weights **out, uint32_t *kept_how,
                            mn_error *err) {
    mn_weights *set = NULL;
    bool *wanted = wanted_by(&g->abi, c);
    if (!wanted)
        return mn_fail_memory(err, g->abi.n_tensors * sizeof *wanted);
    mn_status st = b->weights_open(d, c, &set, err);
    if (!st)
        st = put_all(b, set, q, g, wanted, err);
    if (!st)
        st = b->weights_seal(set, q, kept_how, err);
    if (st && set)
        b->weights_free(set);
    else
        *out = set;
    mn_free(wanted);
    return st;
}
