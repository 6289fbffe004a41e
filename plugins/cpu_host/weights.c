/* weights.c -- weight sets: used in place where the file's bytes are rows that an op can read, else copied once. */
#include "mnc.h"

mn_status mnc_weights_open(mn_device *d, const mn_compile *in, mn_weights **out, mn_error *err) {
    mn_compile c;
    mn_status s = mnc_read_compile(in, &c, err);
    if (s) return s;
    uint64_t bytes = sizeof(mn_weights) + (uint64_t)c.graph->n_tensors * sizeof(mnc_kept);
    mn_weights *w = mnc_new(d, bytes);
    if (!w) return mnc_fail_memory(err, bytes, "a weight set");
    w->dev = d, w->graph = c.graph, w->n = c.graph->n_tensors, w->precision = mnc_precision(d, &c);
    for (uint32_t i = c.node_lo; i < c.node_hi; i++) {
        const mn_node *n = mnc_node(c.graph, i);
        for (uint32_t j = 0; j < n->n_in; j++) {
            int32_t t = mnc_in(c.graph, n, j);
            if (t >= 0 && mnc_tensor(c.graph, (uint32_t)t)->role == MN_ROLE_WEIGHT) w->kept[t].wanted = true;
        }
    }
    *out = w;
    return MN_OK;
}

static const mn_plane *part(const mn_weight_src *s, uint32_t i) {
    return (const mn_plane *)((const char *)s->planes + (uint64_t)i * s->n_planes * s->plane_stride);
}

/* The part's dims against the tensor's (dim 0 of the parts adds up), and that its strides stay within its bytes. */
static mn_status check_part(const mn_tensor *t, const mn_plane *p, uint32_t index, mn_error *err) {
    if (p->kind != MN_PLANE_DATA)
        return mnc_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: plane kind %u", MNC_NAME(t), p->kind);
    if (p->dtype != t->dtype.id)
        return mnc_fail(err, MN_INVALID, ~0u, "%.*s: type %u, the graph expects %u", MNC_NAME(t), p->dtype,
                        t->dtype.id);
    uint64_t last = 0;
    for (uint32_t i = 0; i < t->n_dim; i++) {
        if (p->dim[i] <= 0 || (i > 0 && p->dim[i] != t->dim[i]))
            return mnc_fail(err, MN_INVALID, ~0u, "%.*s: dim %u of part %u is %lld, the graph expects %lld",
                            MNC_NAME(t), i, index, (long long)p->dim[i], (long long)t->dim[i]);
        uint64_t steps = (uint64_t)(i + 1 == t->n_dim ? p->dim[i] / t->dtype.block_elems : p->dim[i]) - 1, span;
        if (i + 1 == t->n_dim && p->dim[i] % t->dtype.block_elems)
            return mnc_fail(err, MN_INVALID, ~0u, "%.*s: rows of %lld elements in blocks of %u", MNC_NAME(t),
                            (long long)p->dim[i], t->dtype.block_elems);
        if (p->stride[i] < 0 || __builtin_mul_overflow(steps, (uint64_t)p->stride[i], &span) ||
            __builtin_add_overflow(last, span, &last))
            return mnc_fail(err, MN_INVALID, ~0u, "%.*s: stride %lld of dim %u", MNC_NAME(t), (long long)p->stride[i],
                            i);
    }
    if (!p->ptr || __builtin_add_overflow(last, (uint64_t)t->dtype.block_bytes, &last) || last > p->bytes)
        return mnc_fail(err, MN_INVALID, ~0u, "%.*s: part %u has %llu bytes, its strides reach %llu", MNC_NAME(t),
                        index, (unsigned long long)p->bytes, (unsigned long long)last);
    return MN_OK;
}

static mn_status check_source(const mn_weights *w, const mn_weight_src *s, mn_error *err) {
    if (s->tensor >= w->n) return mnc_fail(err, MN_INVALID, ~0u, "weight for tensor %u of %u", s->tensor, w->n);
    const mn_tensor *t = mnc_tensor(w->graph, s->tensor);
    if (t->role != MN_ROLE_WEIGHT) return mnc_fail(err, MN_INVALID, ~0u, "%.*s is not a weight", MNC_NAME(t));
    if (w->kept[s->tensor].put) return mnc_fail(err, MN_INVALID, ~0u, "%.*s was put before", MNC_NAME(t));
    if (s->dtype.id != t->dtype.id)
        return mnc_fail(err, MN_INVALID, ~0u, "%.*s: type %u, the graph expects %u", MNC_NAME(t), s->dtype.id,
                        t->dtype.id);
    if (s->n_planes != 1)
        return mnc_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: %u planes; this plugin takes one", MNC_NAME(t), s->n_planes);
    if (!s->n_parts || !s->planes || s->plane_stride < MNC_UP_TO(mn_plane, stride) || !t->n_dim ||
        t->n_dim > MN_MAX_DIM || !t->dtype.block_elems)
        return mnc_fail(err, MN_INVALID, ~0u, "%.*s: no parts or no dimensions", MNC_NAME(t));
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        mn_status st = check_part(t, part(s, i), i, err);
        if (st) return st;
        if (__builtin_add_overflow(sum, part(s, i)->dim[0], &sum)) sum = -1;
    }
    if (sum != t->dim[0])
        return mnc_fail(err, MN_INVALID, ~0u, "%.*s: %lld rows, the graph expects %lld", MNC_NAME(t), (long long)sum,
                        (long long)t->dim[0]);
    return MN_OK;
}

/* Elements of one row are dense; for a vector the whole is one row. */
static bool row_is_dense(const mn_tensor *t, const mn_plane *p) {
    int64_t step = t->dtype.block_bytes;
    uint32_t first = t->n_dim > 1 ? 1 : 0;
    for (uint32_t i = t->n_dim; i-- > first;) {
        if (p->dim[i] > 1 && p->stride[i] != step) return false;
        step *= i + 1 == t->n_dim ? p->dim[i] / t->dtype.block_elems : p->dim[i];
    }
    return true;
}

static uint64_t alignment(uint32_t dtype) { return dtype == MN_F32 ? 4 : dtype == MN_F64 ? 8 : 2; }

/* All parts lie behind one another with one row distance: no copy is needed. */
static bool is_alias(const mn_tensor *t, const mn_weight_src *s, const mnc_weight *w, uint64_t *row_bytes) {
    const mn_plane *first = part(s, 0);
    uint64_t align = alignment(t->dtype.id);
    *row_bytes = t->n_dim > 1 && first->dim[0] > 1 ? (uint64_t)first->stride[0] : w->row_bytes;
    if (*row_bytes < w->row_bytes || *row_bytes % align || (uintptr_t)first->ptr % align) return false;
    if (t->n_dim == 1) return s->n_parts == 1 && row_is_dense(t, first);
    const char *next = first->ptr;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        const mn_plane *p = part(s, i);
        if (!row_is_dense(t, p) || p->ptr != (const void *)next) return false;
        if (p->dim[0] > 1 && (uint64_t)p->stride[0] != *row_bytes) return false;
        next += (uint64_t)p->dim[0] * *row_bytes;
    }
    return true;
}

static uint8_t *copy_part(const mn_tensor *t, const mn_plane *p, uint8_t *to) {
    uint64_t blocks = 1, n[MN_MAX_DIM], at[MN_MAX_DIM] = {0};
    for (uint32_t i = 0; i < t->n_dim; i++) {
        n[i] = (uint64_t)(i + 1 == t->n_dim ? p->dim[i] / t->dtype.block_elems : p->dim[i]);
        blocks *= n[i];
    }
    const uint8_t *from = p->ptr;
    for (uint64_t b = 0; b < blocks; b++, to += t->dtype.block_bytes) {
        uint64_t off = 0;
        for (uint32_t i = 0; i < t->n_dim; i++) off += at[i] * (uint64_t)p->stride[i];
        memcpy(to, from + off, t->dtype.block_bytes);
        for (uint32_t i = t->n_dim; i-- > 0;) {
            if (++at[i] < n[i]) break;
            at[i] = 0;
        }
    }
    return to;
}

mn_status mnc_weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *in, mn_event **event, mn_error *err) {
    (void)q;
    mn_weight_src s = {0};
    memcpy(&s, in, in->size < sizeof s ? in->size : sizeof s);
    if (event) *event = NULL;
    mn_status st = check_source(w, &s, err);
    if (st) return st;
    mnc_kept *k = &w->kept[s.tensor];
    if (!k->wanted) return MN_OK;
    const mn_tensor *t = mnc_tensor(w->graph, s.tensor);
    uint64_t bytes, stride;
    if (!mnc_bytes(w->graph, t, NULL, &bytes))
        return mnc_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", MNC_NAME(t));
    mnc_weight *o = &k->w;
    *o = (mnc_weight){.dtype = t->dtype, .rows = t->n_dim > 1 ? t->dim[0] : 1};
    o->cols = 1;
    for (uint32_t i = t->n_dim > 1; i < t->n_dim; i++) o->cols *= t->dim[i];
    o->row_bytes = bytes / (uint64_t)o->rows;
    if (is_alias(t, &s, o, &stride)) {
        o->data = part(&s, 0)->ptr;
        o->row_bytes = stride;
        w->kept_how |= MN_KEPT_ALIASED;
    } else {
        uint8_t *to = k->copy = mnc_new(w->dev, bytes);
        if (!to) return mnc_fail_memory(err, bytes, "a copy of a weight");
        for (uint32_t i = 0; i < s.n_parts; i++) to = copy_part(t, part(&s, i), to);
        o->data = k->copy;
        w->kept_how |= MN_KEPT_COPIED;
    }
    mnc_plugin *p = w->dev->plugin;
    if (p->ops->repack && (st = p->ops->repack(p->self, p->host, o, w->precision, &o->repacked, err))) {
        mnc_delete(w->dev, k->copy);
        *k = (mnc_kept){.wanted = true};
        return st;
    }
    if (o->repacked) w->kept_how |= MN_KEPT_REPACKED;
    k->put = true;
    return MN_OK;
}

mn_status mnc_weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    (void)q;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->kept[i].wanted && !w->kept[i].put)
            return mnc_fail(err, MN_INVALID, ~0u, "weight %.*s is missing", MNC_NAME(mnc_tensor(w->graph, i)));
    if (kept_how) *kept_how = w->kept_how;
    return MN_OK;
}

void mnc_weights_free(mn_weights *w) {
    if (!w) return;
    for (uint32_t i = 0; i < w->n; i++) {
        mnc_delete(w->dev, w->kept[i].w.repacked);
        mnc_delete(w->dev, w->kept[i].copy);
    }
    mnc_delete(w->dev, w);
}
