/* typed.c -- a vendor's backend with a type of its own, toy.b8, of which its plugin's id is another
 * one than the loader's (loaders/toy_loader.c, -DTYPED): blocks of 16 numbers, a float and 16 bytes
 * that it multiplies. It computes as the reference plugin does, which is built in and never sees
 * the type: it gets graphs with f32 in its place, and weights unpacked.
 * -DOTHER_BLOCKS: its blocks have other sizes than the loader's. */
#include "stub.h"
#include <stdlib.h>

MN_PLUGIN_NOTE(STUB_ID, MN_KIND_BACKEND, "");

#ifdef OTHER_BLOCKS
enum { ELEMS = 32, BYTES = 36 };
#else
enum { ELEMS = 16, BYTES = 20 };
#endif
#define OWN_ID (MN_VENDOR | 77u)

/* What it has made lives until the process ends: it is reached from here. */
static struct made {
    struct made *next;
    void *memory;
} * made;
static void *make(size_t bytes) {
    struct made *m = malloc(sizeof *m);
    m->memory = malloc(bytes);
    m->next = made;
    made = m;
    return m->memory;
}

/* The graph as the reference gets it, without the type. */
static const mn_graph *plain_graph(const mn_graph *g) {
    mn_graph *copy = make(sizeof *copy);
    mn_tensor *t = make(g->n_tensors * sizeof *t);
    *copy = *g;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        t[i] = *(const mn_tensor *)(const void *)((const char *)g->tensors +
                                                  (size_t)i * g->tensor_stride);
        if (t[i].dtype.id == OWN_ID)
            t[i].dtype = (mn_dtype){MN_F32, 1, 4, 1};
    }
    copy->tensors = t;
    copy->tensor_stride = sizeof *t;
    return copy;
}
static mn_compile plain(const mn_compile *c) {
    mn_compile own = *c;
    own.graph = plain_graph(c->graph);
    return own;
}

static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    const mn_compile own = plain(c);
    return stub_inner->supports(d, &own, v, stride, err);
}
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *e, mn_error *err) {
    const mn_compile own = plain(c);
    return stub_inner->estimate(d, &own, e, err);
}
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **w, mn_error *err) {
    const mn_compile own = plain(c);
    return stub_inner->weights_open(d, &own, w, err);
}
static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *l, mn_error *err) {
    const mn_compile own = plain(c);
    return stub_inner->memory_layout(d, &own, group, l, err);
}
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **p, mn_error *err) {
    const mn_compile own = plain(c);
    return stub_inner->compile(d, &own, p, err);
}

static void unpack(const char *block, float *to) {
    float scale;
    memcpy(&scale, block, sizeof scale);
    for (int i = 0; i < ELEMS; i++)
        to[i] = scale * (float)(signed char)block[4 + i];
}

/* Matrices of one part are all that the toy loader has. */
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    const mn_plane *p = src->planes;
    if (src->dtype.id != OWN_ID)
        return stub_inner->weights_put(w, q, src, ev, err);
    if (p->dtype != OWN_ID || src->n_parts != 1)
        return stub_fail(err, MN_INVALID, ~0u, "a plane of toy.b8 has another type");
    float *to = make((size_t)(p->dim[0] * p->dim[1]) * sizeof *to);
    for (int64_t r = 0; r < p->dim[0]; r++)
        for (int64_t b = 0; b < p->dim[1] / ELEMS; b++)
            unpack((const char *)p->ptr + r * p->stride[0] + b * p->stride[1],
                   to + r * p->dim[1] + b * ELEMS);
    const mn_plane plane = {.ptr = to,
                            .bytes = (uint64_t)(p->dim[0] * p->dim[1]) * sizeof *to,
                            .kind = MN_PLANE_DATA,
                            .dtype = MN_F32,
                            .dim = {p->dim[0], p->dim[1]},
                            .stride = {p->dim[1] * 4, 4}};
    const mn_weight_src own = {.size = sizeof own,
                               .tensor = src->tensor,
                               .n_parts = 1,
                               .n_planes = 1,
                               .plane_stride = sizeof plane,
                               .planes = &plane,
                               .dtype = {MN_F32, 1, 4, 1}};
    return stub_inner->weights_put(w, q, &own, ev, err);
}

static mn_status type_at(void *self, uint32_t i, mn_type *out, mn_error *err) {
    const mn_type t = {.size = sizeof t, .name = {"toy.b8", 6}, .dtype = {OWN_ID, ELEMS, BYTES, 1}};
    const uint32_t room = out->size;
    (void)self;
    (void)err;
    if (i)
        return MN_END;
    memcpy(out, &t, room < sizeof t ? room : sizeof t);
    out->size = room < sizeof t ? room : (uint32_t)sizeof t;
    return MN_OK;
}
static const mn_types types = {sizeof types, 0, type_at};

static const void *(*inner_query)(void *self, const char *id);
static const void *typed_query(void *self, const char *id) {
    if (!strcmp(id, MN_TYPES_ID))
        return &types;
    return inner_query(self, id);
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    mn_plugin *p = (mn_plugin *)(uintptr_t)stub_enter(host, err, STUB_ID);
    if (!p)
        return NULL;
    inner_query = p->query;
    p->query = typed_query;
    stub_table.device_info = stub_boast;
    stub_table.supports = supports;
    stub_table.estimate = estimate;
    stub_table.weights_open = weights_open;
    stub_table.weights_put = weights_put;
    stub_table.memory_layout = memory_layout;
    stub_table.compile = compile;
    return p;
}
