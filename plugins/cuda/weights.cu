/* weights.cu -- weights stream from the mapped file through the queue's pinned ring into device
 * memory. Rows of matrices are padded to CU_K_ALIGN elements; Q8_0 is parted into quants and
 * scales; vectors become f32, which loses nothing. */
#include "backend.h"

mn_status cu_weights_open(mn_device *d, const mn_compile *in, mn_weights **out, mn_error *err) {
    mn_compile c;
    mn_status s = mnp_read_compile(in, &c, err);
    if (s)
        return s;
    mn_weights *w = (mn_weights *)cu_new(d, sizeof *w);
    if (w)
        w->dev = d, w->graph = c.graph,
        w->w = (cu_weight *)cu_new(d, c.graph->n_tensors * sizeof *w->w);
    if (!w || !w->w) {
        if (w)
            cu_delete(d, w);
        return mnp_fail_memory(err, c.graph->n_tensors * sizeof *w->w, "a weight set");
    }
    mnp_cursor at = {c.node_lo, 0};
    uint32_t node;
    for (int32_t t; (t = mnp_next_weight(c.graph, c.node_hi, &at, &node)) >= 0;)
        w->w[t].wanted = true;
    *out = w;
    return MN_OK;
}

static mn_status check(const mn_weights *w, const mn_weight_src *s, mn_error *err) {
    mn_status st = mnp_check_source(w->graph, s, 2, err);
    if (st)
        return st;
    const mn_tensor *t = mnp_tensor(w->graph, s->tensor);
    if (w->w[s->tensor].put)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s was put before", MNP_NAME(t));
    if (s->n_planes != 1)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: %u planes; cuda takes one", MNP_NAME(t),
                        s->n_planes);
    return MN_OK;
}

/* ---- staging: rows gather in a segment of the ring and leave together ------------------------ */
struct stage {
    mn_queue *q;
    char *to;
    uint64_t n, cap;
    char *buf;
    uint32_t seg;
};

static mn_status begin(stage *s, mn_error *err) {
    mn_queue *q = s->q;
    s->seg = q->next++ % CU_SEGMENTS;
    s->buf = q->ring + (uint64_t)s->seg * CU_SEGMENT_BYTES;
    s->n = 0;
    return q->pending[s->seg] ? cu_check(cudaEventSynchronize(q->used[s->seg]), err, "weights")
                              : MN_OK;
}
static mn_status flush(stage *s, mn_error *err) {
    if (!s->n)
        return MN_OK;
    CU_TRY(cudaMemcpyAsync(s->to, s->buf, s->n, cudaMemcpyHostToDevice, s->q->stream), err,
           "weights");
    CU_TRY(cudaEventRecord(s->q->used[s->seg], s->q->stream), err, "weights");
    s->q->pending[s->seg] = true;
    s->to += s->n;
    return begin(s, err);
}
static mn_status push(stage *s, const char *from, uint64_t n, mn_error *err) {
    while (n) {
        uint64_t m = CU_SEGMENT_BYTES - s->n < n ? CU_SEGMENT_BYTES - s->n : n;
        memcpy(s->buf + s->n, from, m);
        s->n += m, from += m, n -= m;
        if (s->n == CU_SEGMENT_BYTES) {
            mn_status st = flush(s, err);
            if (st)
                return st;
        }
    }
    return MN_OK;
}

static float vector_at(const char *p, uint32_t dtype) {
    uint32_t bits = 0;
    float f;
    if (dtype == MN_F32)
        return memcpy(&f, p, 4), f;
    memcpy(&bits, p, 2);
    if (dtype == MN_BF16)
        return bits <<= 16, memcpy(&f, &bits, 4), f;
    __half h;
    memcpy(&h, p, 2);
    return __half2float(h);
}

static mn_status put_vector(stage *st, const mn_tensor *t, const mn_plane *p, mn_error *err) {
    for (int64_t i = 0; i < p->dim[0]; i++) {
        float f = vector_at((const char *)p->ptr + i * p->stride[0], t->dtype.id);
        mn_status s = push(st, (const char *)&f, 4, err);
        if (s)
            return s;
    }
    return MN_OK;
}

/* One row, dense or by strides; Q8_0: what = 0 quants, 1 scales. */
static mn_status put_row(stage *st, const cu_weight *w, const mn_tensor *t, const mn_plane *p,
                         int64_t row, int what, mn_error *err) {
    static const char zeros[CU_K_ALIGN * 4] = {0};
    const char *from = (const char *)p->ptr + row * p->stride[0];
    const int64_t blocks = w->cols / t->dtype.block_elems, step = p->stride[1],
                  bytes = t->dtype.block_bytes;
    mn_status s = MN_OK;
    if (t->dtype.id == MN_Q8_0) {
        for (int64_t b = 0; b < blocks && !s; b++)
            s = what ? push(st, from + b * step, 2, err) : push(st, from + b * step + 2, 32, err);
        uint64_t pad = (uint64_t)(w->ld - w->cols);
        return s ? s : push(st, zeros, what ? pad / 32 * 2 : pad, err);
    }
    if (step == bytes)
        s = push(st, from, (uint64_t)(blocks * bytes), err);
    else
        for (int64_t b = 0; b < blocks && !s; b++)
            s = push(st, from + b * step, (uint64_t)bytes, err);
    return s ? s : push(st, zeros, (uint64_t)(w->ld - w->cols) * (uint64_t)bytes, err);
}

static mn_status put_matrix(mn_queue *q, const cu_weight *w, const mn_tensor *t,
                            const mn_weight_src *src, int what, mn_error *err) {
    stage st = {q, what ? (char *)w->scale : w->data, 0, 0, NULL, 0};
    mn_status s = begin(&st, err);
    for (uint32_t i = 0; i < src->n_parts && !s; i++)
        for (int64_t r = 0; r < mnp_plane(src, i, 0)->dim[0] && !s; r++)
            if (t->n_dim == 1) {
                s = put_vector(&st, t, mnp_plane(src, i, 0), err);
                break;
            } else
                s = put_row(&st, w, t, mnp_plane(src, i, 0), r, what, err);
    return s ? s : flush(&st, err);
}

mn_status cu_weights_put(mn_weights *set, mn_queue *q, const mn_weight_src *in, mn_event **event,
                         mn_error *err) {
    mn_weight_src s;
    mnp_read(&s, sizeof s, in, in->size);
    if (event)
        *event = NULL;
    mn_status st = check(set, &s, err);
    if (st || !set->w[s.tensor].wanted)
        return st;
    const mn_tensor *t = mnp_tensor(set->graph, s.tensor);
    cu_weight *w = &set->w[s.tensor];
    w->dtype = t->dtype.id, w->vector = t->n_dim == 1;
    w->rows = w->vector ? 1 : t->dim[0], w->cols = w->vector ? t->dim[0] : t->dim[1];
    w->ld = w->vector ? w->cols : mnp_round(w->cols, CU_K_ALIGN);
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)w->rows, (uint64_t)w->ld * 4, &bytes) || bytes >> 46)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", MNP_NAME(t));
    const uint64_t elem = w->vector || w->dtype == MN_F32 ? 4 : w->dtype == MN_Q8_0 ? 1 : 2;
    CU_TRY(cudaSetDevice(set->dev->index), err, "choosing the device");
    CU_TRY(cudaMalloc((void **)&w->data, (uint64_t)w->rows * w->ld * elem + 256), err, "weights");
    st = put_matrix(q, w, t, &s, 0, err);
    if (!st && w->dtype == MN_Q8_0 && !w->vector) {
        st = cu_check(cudaMalloc((void **)&w->scale, (uint64_t)w->rows * w->ld / 32 * 2 + 256), err,
                      "weights");
        if (!st)
            st = put_matrix(q, w, t, &s, 1, err);
    }
    /* the file's bytes were read; what they became is on its way to the device */
    if (!st && event)
        st = cu_event_new(set->dev, q->stream, event, err);
    else if (!st)
        st = cu_check(cudaStreamSynchronize(q->stream), err, "weights");
    w->put = !st;
    return st;
}

mn_status cu_weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->graph->n_tensors; i++) {
        if (w->w[i].wanted && !w->w[i].put)
            return mnp_fail(err, MN_INVALID, ~0u, "weight %.*s is missing",
                            MNP_NAME(mnp_tensor(w->graph, i)));
        if (w->w[i].put)
            kept |= MN_KEPT_COPIED;
        if (w->w[i].scale)
            kept |= MN_KEPT_REPACKED;
    }
    CU_TRY(cudaStreamSynchronize(q->stream), err, "weights");
    if (kept_how)
        *kept_how = kept;
    return MN_OK;
}

void cu_weights_free(mn_weights *w) {
    if (!w)
        return;
    cudaSetDevice(w->dev->index);
    for (uint32_t i = 0; i < w->graph->n_tensors; i++) {
        if (w->w[i].data)
            cudaFree(w->w[i].data);
        if (w->w[i].scale)
            cudaFree(w->w[i].scale);
    }
    cu_delete(w->dev, w->w);
    cu_delete(w->dev, w);
}
