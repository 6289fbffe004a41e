/* memory.c -- buffers, the queue, events, weights. Device memory is the host's memory here, and a
 * queue does at once what it is told; each function says what it would do on a device of its
 * own. */
#include "template.h"

/* ---- buffers ------------------------------------------------------------------------------------
 * MN_MEM_DEVICE: where kernels read and write. MN_MEM_HOST_PINNED: host memory that the device can
 * reach, for read(). */

/* Zeroed, also where MN_ALLOC_UNZEROED says that nobody asks for it. numa is a wish. */
mn_status t_alloc(mn_device *d, const mn_alloc_params *in, mn_buffer **out, mn_error *err) {
    mn_alloc_params a;
    t_see(&a, sizeof a, in);
    if (a.kind != MN_MEM_DEVICE && a.kind != MN_MEM_HOST_PINNED)
        return t_fail(err, MN_UNSUPPORTED, ~0u,
                      "memory kind: found 0x%x, expected device or host-pinned", a.kind);
    if (a.align > T_ALIGN)
        return t_fail(err, MN_UNSUPPORTED, ~0u, "alignment: found %llu, expected at most %u",
                      (unsigned long long)a.align, T_ALIGN);
    mn_status s = t_no_flags(a.flags & ~(uint64_t)MN_ALLOC_UNZEROED, "alloc", err);
    if (s)
        return s;
    uint64_t bytes = a.bytes;
    /* the host may promise more than it has */
    if (bytes > t_total_bytes())
        return t_no_memory(err, bytes, "a buffer");
    mn_buffer *b = t_new(d->plugin, sizeof *b);
    if (!b)
        return t_no_memory(err, sizeof *b, "a buffer");
    *b = (mn_buffer){d, t_new(d->plugin, bytes), bytes, true};
    if (!b->ptr) {
        t_delete(d->plugin, b);
        return t_no_memory(err, bytes, "a buffer");
    }
    *out = b;
    return MN_OK;
}

/* Only with MN_DEVICE_WRAPS. A device that cannot returns MN_UNSUPPORTED. */
mn_status t_wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    mn_buffer *b = t_new(d->plugin, sizeof *b);
    if (!b)
        return t_no_memory(err, sizeof *b, "a buffer");
    *b = (mn_buffer){d, host, bytes, false};
    *out = b;
    return MN_OK;
}

void t_buffer_free(mn_buffer *b) {
    if (!b)
        return;
    if (b->owned)
        t_delete(b->dev->plugin, b->ptr);
    t_delete(b->dev->plugin, b);
}

/* without MN_DEVICE_UNIFIED: host-pinned buffers only */
mn_status t_map(mn_buffer *b, void **out, mn_error *err) {
    (void)err;
    *out = b->ptr;
    return MN_OK;
}

/* ---- the queue ----------------------------------------------------------------------------------
 * Work of one queue runs in order. On a device with MN_DEVICE_ASYNC all of this only enqueues. */

mn_status t_queue_create(mn_device *d, const mn_queue_params *in, mn_queue **out, mn_error *err) {
    mn_queue_params p;
    t_see(&p, sizeof p, in);
    mn_status s = t_no_flags(p.flags, "queue_create", err);
    if (s)
        return s;
    mn_queue *q = t_new(d->plugin, sizeof *q);
    if (!q)
        return t_no_memory(err, sizeof *q, "a queue");
    q->dev = d;
    atomic_init(&q->aborted, false);
    *out = q;
    return MN_OK;
}
void t_queue_free(mn_queue *q) {
    if (q)
        t_delete(q->dev->plugin, q);
}

static mn_status check(mn_queue *q, const mn_buffer *b, uint64_t off, uint64_t n, const char *what,
                       mn_error *err) {
    if (atomic_load(&q->aborted))
        return t_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
    if (off <= b->bytes && n <= b->bytes - off)
        return MN_OK; /* no off + n: it may overflow */
    return t_fail(err, MN_INVALID, ~0u, "%s: %llu bytes at %llu leave the buffer of %llu", what,
                  (unsigned long long)n, (unsigned long long)off, (unsigned long long)b->bytes);
}

/* The source may be gone when this returns: an asynchronous device copies it into a ring of pinned
 * memory first. */
mn_status t_write(mn_queue *q, mn_buffer *b, uint64_t off, const void *src, uint64_t n,
                  mn_error *err) {
    mn_status s = check(q, b, off, n, "write", err);
    if (!s && n)
        memcpy(b->ptr + off, src, n);
    return s;
}

mn_status t_copy(mn_queue *q, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                 uint64_t src_off, uint64_t n, mn_event **event, mn_error *err) {
    mn_status s = check(q, src, src_off, n, "copy from", err);
    if (!s)
        s = check(q, dst, dst_off, n, "copy to", err);
    if (s)
        return s;
    if (n)
        memmove(dst->ptr + dst_off, src->ptr + src_off, n);
    if (event)
        *event = NULL; /* complete already */
    return MN_OK;
}

mn_status t_read(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *to, uint64_t to_off,
                 uint64_t n, mn_event **event, mn_error *err) {
    return t_copy(q, to, to_off, b, off, n, event, err);
}

/* An asynchronous device polls or blocks for at most timeout_ns, then says MN_TIMEOUT; a driver's
 * own error comes out here. */
mn_status t_wait(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    (void)e;
    (void)timeout_ns;
    (void)err;
    return MN_OK;
}
/* what comes later on q waits for e */
mn_status t_queue_wait(mn_queue *q, mn_event *e, mn_error *err) {
    (void)q;
    (void)e;
    (void)err;
    return MN_OK;
}
void t_event_free(mn_event *e) {
    (void)e;
}

/* from any thread, also while execute runs: it looks between nodes */
mn_status t_abort(mn_queue *q) {
    atomic_store(&q->aborted, true);
    return MN_OK;
}

/* ---- weights ------------------------------------------------------------------------------------
 * The host opens a set for a segment, puts tensors in any order, and seals it. A tensor is n_parts
 * x n_planes pieces of mapped files with byte strides. Here everything is copied once into dense
 * rows: the place of your upload or repacking. */

mn_status t_weights_open(mn_device *d, const mn_compile *in, mn_weights **out, mn_error *err) {
    mn_compile c;
    mn_status s = t_read_compile(in, &c, err);
    if (s)
        return s;
    uint64_t bytes = sizeof(mn_weights) + (uint64_t)c.graph->n_tensors * sizeof(t_weight);
    mn_weights *set = t_new(d->plugin, bytes);
    if (!set)
        return t_no_memory(err, bytes, "a weight set");
    set->dev = d;
    set->graph = c.graph;
    for (uint32_t i = c.node_lo; i < c.node_hi; i++) {
        const mn_node *n = t_node(c.graph, i);
        for (uint32_t j = 0; j < n->n_in; j++) {
            int32_t t = t_in(c.graph, n, j);
            if (t >= 0 && t_tensor(c.graph, t)->role == MN_ROLE_WEIGHT)
                set->w[t].wanted = true;
        }
    }
    *out = set;
    return MN_OK;
}

/* planes of a part lie side by side */
static const mn_plane *plane_of(const mn_weight_src *s, uint32_t part) {
    return (const mn_plane *)((const char *)s->planes +
                              (uint64_t)part * s->n_planes * s->plane_stride);
}

/* That a part has the shape of rows of t, and that its strides stay inside its bytes. */
static mn_status check_part(const mn_tensor *t, const mn_plane *p, mn_error *err) {
    uint64_t reach = t_elem(p->dtype);
    uint64_t span;
    if (p->kind != MN_PLANE_DATA || p->dtype != t->dtype.id || !p->ptr)
        return t_fail(err, MN_INVALID, ~0u,
                      "%.*s: plane kind %u of type %u, expected data of type %u", T_NAME(t),
                      p->kind, p->dtype, t->dtype.id);
    for (uint32_t i = 0; i < t->n_dim; i++) {
        if (p->dim[i] <= 0 || (i && p->dim[i] != t->dim[i]) || p->stride[i] < 0 ||
            __builtin_mul_overflow((uint64_t)p->dim[i] - 1, (uint64_t)p->stride[i], &span) ||
            __builtin_add_overflow(reach, span, &reach) || reach > p->bytes)
            return t_fail(err, MN_INVALID, ~0u,
                          "%.*s: dim %u of a part: %lld in steps of %lld bytes, %llu bytes in all",
                          T_NAME(t), i, (long long)p->dim[i], (long long)p->stride[i],
                          (unsigned long long)p->bytes);
    }
    return MN_OK;
}

static mn_status check_source(const mn_weights *set, const mn_weight_src *s, mn_error *err) {
    if (s->tensor >= set->graph->n_tensors)
        return t_fail(err, MN_INVALID, ~0u, "weight for tensor %u of %u", s->tensor,
                      set->graph->n_tensors);
    const mn_tensor *t = t_tensor(set->graph, (int32_t)s->tensor);
    if (!set->w[s->tensor].wanted)
        return MN_OK; /* not of this segment: no business of ours */
    if (set->w[s->tensor].data)
        return t_fail(err, MN_INVALID, ~0u, "%.*s was put before", T_NAME(t));
    if (s->n_planes != 1 || !t_elem(s->dtype.id) || !t->n_dim || t->n_dim > 2)
        return t_fail(err, MN_UNSUPPORTED, ~0u,
                      "%.*s: %u planes of type %u, expected one of f32, f16 or bf16", T_NAME(t),
                      s->n_planes, s->dtype.id);
    if (s->dtype.id != t->dtype.id)
        return t_fail(err, MN_INVALID, ~0u, "%.*s: a source of type %u, expected %u", T_NAME(t),
                      s->dtype.id, t->dtype.id);
    if (!s->n_parts || !s->planes || !COVERS(s->plane_stride, mn_plane, stride))
        return t_fail(err, MN_INVALID, ~0u, "%.*s: a source without planes", T_NAME(t));
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        mn_status st = check_part(t, plane_of(s, i), err);
        if (st)
            return st;
        if (__builtin_add_overflow(sum, plane_of(s, i)->dim[0], &sum))
            sum = INT64_MIN;
    }
    if (sum == t->dim[0])
        return MN_OK;
    return t_fail(err, MN_INVALID, ~0u, "%.*s: the parts do not add up to %lld rows", T_NAME(t),
                  (long long)t->dim[0]);
}

static uint8_t *copy_part(const mn_tensor *t, const mn_plane *p, uint8_t *to) {
    int64_t cols = 1;
    if (t->n_dim == 2)
        cols = p->dim[1];
    int64_t step = 0;
    if (t->n_dim == 2)
        step = p->stride[1];
    const uint64_t elem = t_elem(p->dtype);
    for (int64_t r = 0; r < p->dim[0]; r++)
        for (int64_t c = 0; c < cols; c++, to += elem)
            memcpy(to, (const uint8_t *)p->ptr + r * p->stride[0] + c * step, elem);
    return to;
}

/* the source has been read when we return: there is nothing to wait for */
static mn_status done(mn_event **event) {
    if (event)
        *event = NULL;
    return MN_OK;
}

/* An asynchronous device enqueues the upload on q and hands out an event: the source stays valid
 * until it. */
mn_status t_weights_put(mn_weights *set, mn_queue *q, const mn_weight_src *in, mn_event **event,
                        mn_error *err) {
    (void)q;
    mn_weight_src s = {0};
    /* R1, R3: fields that the host does not have are 0 */
    memcpy(&s, in, in->size < sizeof s ? in->size : sizeof s);
    mn_status st = check_source(set, &s, err);
    if (st)
        return st;
    if (!set->w[s.tensor].wanted)
        return done(event);
    const mn_tensor *t = t_tensor(set->graph, (int32_t)s.tensor);
    t_weight w = {.wanted = true, .dtype = t->dtype.id, .elem = t_elem(t->dtype.id)};
    w.rows = 1;
    if (t->n_dim == 2)
        w.rows = t->dim[0];
    w.cols = t->dim[t->n_dim - 1];
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)w.rows * w.elem, (uint64_t)w.cols, &bytes))
        return t_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", T_NAME(t));
    uint8_t *to = w.data = t_new(set->dev->plugin, bytes);
    if (!to)
        return t_no_memory(err, bytes, "a weight");
    for (uint32_t i = 0; i < s.n_parts; i++)
        to = copy_part(t, plane_of(&s, i), to);
    set->w[s.tensor] = w;
    return done(event);
}

mn_status t_weights_seal(mn_weights *set, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    (void)q;
    for (uint32_t i = 0; i < set->graph->n_tensors; i++)
        if (set->w[i].wanted && !set->w[i].data)
            return t_fail(err, MN_INVALID, ~0u, "weight %.*s is missing",
                          T_NAME(t_tensor(set->graph, (int32_t)i)));
    if (kept_how)
        *kept_how = MN_KEPT_COPIED; /* ALIASED would keep the model's files mapped */
    return MN_OK;
}

void t_weights_free(mn_weights *set) {
    if (!set)
        return;
    for (uint32_t i = 0; i < set->graph->n_tensors; i++)
        t_delete(set->dev->plugin, set->w[i].data);
    t_delete(set->dev->plugin, set);
}

/* ---- KV cache: a plugin that says no to KV_STORE and ATTENTION is never asked for these ------ */

mn_status t_memory_layout(mn_device *d, const mn_compile *c, uint32_t group, mn_memory_layout *out,
                          mn_error *err) {
    (void)d;
    (void)c;
    (void)out;
    return t_fail(err, MN_UNSUPPORTED, ~0u, T_ID " keeps no KV cache (asked for group %u)", group);
}
mn_status t_memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                        const mn_page_copy *copies, uint32_t n, uint32_t stride, mn_event **event,
                        mn_error *err) {
    (void)event;
    (void)q;
    (void)kv;
    (void)l;
    (void)copies;
    (void)stride;
    return t_fail(err, MN_UNSUPPORTED, ~0u, T_ID " keeps no KV cache (asked to copy %u pages)", n);
}
