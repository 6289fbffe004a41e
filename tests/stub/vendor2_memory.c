/* vendor2_memory.c -- see vendor2.h: buffers, queues and weights, all of them memory of the host's
 * allocator. */
#include "vendor2.h"
#include <string.h>

/* ---- memory and queues ----------------------------------------------------------------------- */
static mn_status buffer_alloc(mn_device *d, const mn_alloc_params *a, mn_buffer **out,
                              mn_error *err) {
    mn_alloc_params p;
    v2_read(&p, sizeof p, a);
    const uint64_t bytes = p.bytes;
    if (p.kind != MN_MEM_DEVICE && p.kind != MN_MEM_HOST_PINNED)
        return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: memory kind 0x%x", p.kind);
    if (p.flags & ~(uint64_t)MN_ALLOC_UNZEROED || p.align > 64)
        return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: unknown flag, or alignment");
    mn_buffer *b = v2_make(d->host, sizeof *b);
    if (!b)
        return v2_no_memory(err);
    *b = (mn_buffer){d, bytes, v2_make(d->host, bytes)};
    if (!b->ptr) {
        v2_drop(d->host, b);
        return v2_no_memory(err);
    }
    *out = b;
    return MN_OK;
}
static mn_status buffer_wrap(mn_device *d, void *ptr, uint64_t bytes, mn_buffer **out,
                             mn_error *err) {
    (void)d;
    (void)ptr;
    (void)bytes;
    (void)out;
    return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: buffers are its own");
}
static void buffer_free(mn_buffer *b) {
    if (!b)
        return;
    v2_drop(b->dev->host, b->ptr);
    v2_drop(b->dev->host, b);
}
static mn_status map(mn_buffer *b, void **out, mn_error *err) {
    (void)err;
    *out = b->ptr;
    return MN_OK;
}
static mn_status queue_create(mn_device *d, const mn_queue_params *params, mn_queue **out,
                              mn_error *err) {
    mn_queue_params p;
    v2_read(&p, sizeof p, params);
    if (p.flags)
        return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: unknown flag");
    mn_queue *q = v2_make(d->host, sizeof *q);
    if (!q)
        return v2_no_memory(err);
    q->dev = d;
    *out = q;
    return MN_OK;
}
static void queue_free(mn_queue *q) {
    if (q)
        v2_drop(q->dev->host, q);
}

bool v2_inside(const mn_buffer *b, uint64_t off, uint64_t n) {
    return off <= b->bytes && n <= b->bytes - off;
}

static mn_status queue_write(mn_queue *q, mn_buffer *b, uint64_t off, const void *from, uint64_t n,
                             mn_error *err) {
    (void)q;
    if (!v2_inside(b, off, n))
        return v2_fail(err, MN_INVALID, ~0u, "vendor2: a write leaves its buffer");
    if (n)
        memcpy(b->ptr + off, from, n);
    return MN_OK;
}
static mn_status queue_copy(mn_queue *q, mn_buffer *to, uint64_t to_off, const mn_buffer *from,
                            uint64_t off, uint64_t n, mn_event **event, mn_error *err) {
    if (!v2_inside(from, off, n) || !v2_inside(to, to_off, n))
        return v2_fail(err, MN_INVALID, ~0u, "vendor2: a copy leaves its buffer");
    if (n)
        memmove(to->ptr + to_off, from->ptr + off, n);
    if (event)
        *event = &q->dev->done;
    return MN_OK;
}
static mn_status queue_read(mn_queue *q, const mn_buffer *from, uint64_t off, mn_buffer *to,
                            uint64_t to_off, uint64_t n, mn_event **event, mn_error *err) {
    return queue_copy(q, to, to_off, from, off, n, event, err);
}
static mn_status event_wait(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    (void)e;
    (void)timeout_ns;
    (void)err;
    return MN_OK;
}
static mn_status queue_wait(mn_queue *q, mn_event *e, mn_error *err) {
    (void)q;
    (void)e;
    (void)err;
    return MN_OK;
}
static void event_free(mn_event *e) {
    (void)e;
}

/* ---- weights: copied once, as stored --------------------------------------------------------- */
static mn_status weights_open(mn_device *d, const mn_compile *in, mn_weights **out, mn_error *err) {
    mn_compile c;
    mn_status s = v2_read_question(in, &c, err);
    if (s)
        return s;
    mn_weights *w = v2_make(d->host, sizeof *w + c.graph->n_tensors * sizeof w->data[0]);
    if (!w)
        return v2_no_memory(err);
    w->dev = d;
    w->graph = c.graph;
    w->lo = c.node_lo;
    w->hi = c.node_hi;
    *out = w;
    return MN_OK;
}

/* One plane of a part: rows by columns, with any strides that stay inside its bytes. */
static uint8_t *copy_part(const mn_tensor *t, const mn_plane *p, uint8_t *to) {
    uint64_t rows = (uint64_t)p->dim[0];
    uint64_t cols = t->n_dim > 1 ? (uint64_t)p->dim[1] : 1;
    uint64_t size = t->dtype.block_bytes;
    uint64_t down = (uint64_t)p->stride[0];
    uint64_t right = t->n_dim > 1 ? (uint64_t)p->stride[1] : 0;
    if (p->kind != MN_PLANE_DATA || p->dtype != t->dtype.id || p->dim[0] <= 0 ||
        p->dim[0] > t->dim[0] || p->stride[0] < 0 ||
        (t->n_dim > 1 && (p->dim[1] != t->dim[1] || p->stride[1] < 0)) || down > p->bytes ||
        right > p->bytes || (rows - 1) * down + (cols - 1) * right + size > p->bytes)
        return NULL;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < cols; i++, to += size)
            memcpy(to, (const uint8_t *)p->ptr + r * down + i * right, size);
    return to;
}

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *in, mn_event **event,
                             mn_error *err) {
    const mn_host *h = w->dev->host;
    mn_weight_src s = {0};
    (void)q;
    memcpy(&s, in, in->size < sizeof s ? in->size : sizeof s);
    if (event)
        *event = NULL;
    if (s.tensor >= w->graph->n_tensors ||
        v2_tensor(w->graph, (int32_t)s.tensor)->role != MN_ROLE_WEIGHT)
        return v2_fail(err, MN_INVALID, ~0u, "vendor2: tensor %u is not a weight", s.tensor);
    if (!v2_takes(w->graph, w->lo, w->hi, (int32_t)s.tensor))
        return MN_OK;
    const mn_tensor *t = v2_tensor(w->graph, (int32_t)s.tensor);
    uint64_t left = (uint64_t)t->dim[0];
    uint64_t bytes = v2_count(w->graph, NULL, t, 0) * t->dtype.block_bytes;
    if (w->data[s.tensor] || s.n_planes != 1 || s.dtype.id != t->dtype.id || !s.planes)
        return v2_fail(err, MN_INVALID, ~0u,
                       "vendor2: weight %u: put twice, or not of the graph's type", s.tensor);
    uint8_t *data = v2_make(h, bytes);
    uint8_t *to = data;
    if (!data)
        return v2_no_memory(err);
    for (uint32_t i = 0; i < s.n_parts && to; i++) {
        const mn_plane *p =
            (const mn_plane *)((const char *)s.planes + (uint64_t)i * s.plane_stride);
        to = p->dim[0] > 0 && (uint64_t)p->dim[0] <= left ? copy_part(t, p, to) : NULL;
        left -= to ? (uint64_t)p->dim[0] : 0;
    }
    if (!to || left) {
        v2_drop(h, data);
        return v2_fail(err, MN_INVALID, ~0u, "vendor2: weight %u: its parts are not [%lld, ...]",
                       s.tensor, (long long)t->dim[0]);
    }
    w->data[s.tensor] = data;
    return MN_OK;
}

static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    (void)q;
    for (uint32_t i = w->lo; i < w->hi; i++)
        for (uint32_t j = 1; j < v2_node(w->graph, i)->n_in; j++) {
            int32_t t = v2_in(w->graph, v2_node(w->graph, i), j);
            if (t < 0 || w->data[t])
                continue;
            mn_str name = v2_tensor(w->graph, t)->name;
            return v2_fail(err, MN_INVALID, i, "vendor2: weight %.*s is missing", (int)name.len,
                           name.ptr ? name.ptr : "");
        }
    if (kept_how)
        *kept_how = MN_KEPT_COPIED;
    return MN_OK;
}

static void weights_free(mn_weights *w) {
    if (!w)
        return;
    const mn_host *h = w->dev->host;
    for (uint32_t i = 0; i < w->graph->n_tensors; i++)
        v2_drop(h, w->data[i]);
    v2_drop(h, w);
}

void v2_add_memory(mn_backend *b) {
    b->alloc = buffer_alloc;
    b->wrap = buffer_wrap;
    b->buffer_free = buffer_free;
    b->map = map;
    b->queue_create = queue_create;
    b->queue_free = queue_free;
    b->write = queue_write;
    b->read = queue_read;
    b->copy = queue_copy;
    b->wait = event_wait;
    b->queue_wait = queue_wait;
    b->event_free = event_free;
    b->weights_open = weights_open;
    b->weights_put = weights_put;
    b->weights_seal = weights_seal;
    b->weights_free = weights_free;
}
