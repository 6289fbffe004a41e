/* weights.c -- weights stream from the mapped file through the queue's pinned ring into device
 * memory. Float matrices go there as they are; packed types go to a staging area on the device, a
 * kernel splits them into planes (rows.cuh), and the next rows follow in the order of the stream. A
 * type without kernels of its own, and everything that is no matrix, is unpacked to f32 by dtype/
 * on the host. Rows of matrices are padded to CU_K_ALIGN elements.
 *
 * Sources are the host's until the event; the ring and the staging area belong to the queue. */
#include "backend.h"
#include "source_rows.h"
#include "types.h"

/* The staging area: stored blocks, then scales and biases as f32. */
enum { STAGE_DATA = 4 << 20, STAGE_EXTRA = 1 << 20 };
_Static_assert(STAGE_DATA + 2 * STAGE_EXTRA == CU_STAGE_BYTES, "the queue's staging area");

bool cu_is_matrix(const mn_node *n, uint32_t i) {
    switch (n->op) {
    case MN_OP_EMBED:
        return i == MN_EMBED_WEIGHT;
    case MN_OP_LINEAR:
        return i >= MN_LINEAR_WEIGHT && (i - MN_LINEAR_WEIGHT) % 2 == 0;
    case MN_OP_MOE_LINEAR:
        return i >= MN_MOE_LINEAR_WEIGHT && (i - MN_MOE_LINEAR_WEIGHT) % 2 == 0;
    default:
        return false;
    }
}

static int64_t rows_of(const mn_tensor *t) {
    int64_t rows = 1;
    for (uint32_t i = 0; i + 1 < t->n_dim; i++)
        rows *= t->dim[i];
    return rows;
}

/* Sizes and planes of a weight; the planes' addresses count from 0. Returns its bytes. */
static uint64_t shape(const mn_tensor *t, bool matrix, cu_weight *w) {
    uint64_t bytes = 0;
    w->flat = !matrix;
    w->type = cu_type_of(matrix ? t->dtype.id : (uint32_t)MN_F32);
    w->rows = rows_of(t);
    w->cols = t->dim[t->n_dim - 1];
    w->group_rows = t->n_dim == 3 ? t->dim[1] : w->rows;
    w->ld = matrix ? mnp_round(w->cols, w->type->align) : w->cols;
    for (int i = 0; i < CU_MAX_PLANES; i++) {
        w->plane[i] = (char *)bytes;
        const int64_t plane = (int64_t)cu_plane_bytes(w->type, i, w->rows, w->ld);
        bytes += (uint64_t)mnp_round(plane, 256);
    }
    return bytes + 256; /* kernels read whole vectors */
}

uint64_t cu_weight_bytes(const mn_tensor *t, bool matrix) {
    cu_weight w = {0};
    return shape(t, matrix, &w);
}

/* Marks what the segment reads, and what of it is a matrix. */
static void mark(mn_weights *w, const mn_compile *c) {
    for (uint32_t node = c->node_lo; node < c->node_hi; node++) {
        const mn_node *n = mnp_node(c->graph, node);
        for (uint32_t i = 0; i < n->n_in; i++) {
            const int32_t t = mnp_in(c->graph, n, i);
            if (t < 0 || mnp_tensor(c->graph, t)->role != MN_ROLE_WEIGHT)
                continue;
            if (!w->w[t].wanted)
                w->w[t].flat = true;
            w->w[t].wanted = true;
            if (cu_is_matrix(n, i))
                w->w[t].flat = false;
        }
    }
}

/* Device memory for all weights that are wanted, and where their planes lie there. One allocation:
 * the driver rounds each up to 2 MiB, which made a tenth more of many matrices. */
static mn_status allocate_weights(mn_weights *set, mn_error *err) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < set->graph->n_tensors; i++) {
        const mn_tensor *t = mnp_tensor(set->graph, i);
        cu_weight *w = &set->w[i];
        if (!w->wanted)
            continue;
        const uint64_t bytes = shape(t, !w->flat, w);
        const bool overflows = (uint64_t)w->rows >> 40 || (uint64_t)w->ld >> 31 || bytes >> 46;
        if (overflows || (all + bytes) >> 46)
            return mnp_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", MNP_NAME(t));
        w->data = (char *)all;
        w->bytes = bytes;
        all += bytes;
    }
    if (!all)
        return MN_OK;
    CU_TRY(cudaSetDevice(set->dev->index), err, "choosing the device");
    mn_status st = cu_check_room(cudaMalloc((void **)&set->data, all), all, err, "weights");
    for (uint32_t i = 0; i < set->graph->n_tensors && !st; i++) {
        cu_weight *w = &set->w[i];
        if (!w->wanted)
            continue;
        w->data = set->data + (uint64_t)w->data;
        for (int k = 0; k < CU_MAX_PLANES; k++)
            w->plane[k] = w->data + (uint64_t)w->plane[k];
    }
    return st;
}

mn_status cu_weights_open(mn_device *d, const mn_compile *in, mn_weights **out, mn_error *err) {
    mn_compile c;
    mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    mn_weights *w = cu_new(d, sizeof *w);
    if (w) {
        w->dev = d;
        w->graph = c.graph;
        w->w = cu_new(d, c.graph->n_tensors * sizeof *w->w);
    }
    if (!w || !w->w) {
        if (w)
            cu_delete(d, w);
        return mnp_fail_memory(err, c.graph->n_tensors * sizeof *w->w, "a weight set");
    }
    mark(w, &c);
    st = allocate_weights(w, err);
    if (st)
        cu_weights_free(w);
    else
        *out = w;
    return st;
}

/* ---- sources --------------------------------------------------------------------------------- */
/* A source against the tensor it is for; puts come once. */
static mn_status check_source(const mn_weights *w, const mn_weight_src *s, mn_error *err) {
    mn_status st = mnp_check_source(w->graph, s, 3, err);
    if (st)
        return st;
    const mn_tensor *t = mnp_tensor(w->graph, s->tensor);
    if (w->w[s->tensor].put)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s was put before", MNP_NAME(t));
    if (s->n_planes < t->dtype.n_planes) {
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: %u planes, the type has %u", MNP_NAME(t),
                        s->n_planes, t->dtype.n_planes);
    }
    for (uint32_t i = 0; i < s->n_parts && !st; i++) {
        for (uint32_t k = 1; k < s->n_planes && !st; k++)
            st = mnp_check_extra_plane(t, mnp_plane(s, i, 0), mnp_plane(s, i, k), k, err);
    }
    return st;
}

/* ---- staging: bytes gather in a segment of the ring and leave together ----------------------- */
typedef struct {
    mn_queue *q;
    char *to;
    uint64_t n;
    char *buf;
    uint32_t seg;
} stage;

/* A free segment of the ring, for bytes that go to `to`: waits until its last copy is over. */
static mn_status stage_begin(stage *s, char *to, mn_error *err) {
    mn_queue *q = s->q;
    s->to = to;
    s->seg = q->next++ % CU_SEGMENTS;
    s->buf = q->ring + (uint64_t)s->seg * CU_SEGMENT_BYTES;
    s->n = 0;
    mn_status st = cu_check_abort(q, err);
    if (st || !q->pending[s->seg])
        return st;
    return cu_check(cudaEventSynchronize(q->used[s->seg]), err, "weights");
}

/* Sends the segment off and begins the next, behind it. */
static mn_status stage_flush(stage *s, mn_error *err) {
    if (!s->n)
        return MN_OK;
    CU_TRY(cudaMemcpyAsync(s->to, s->buf, s->n, cudaMemcpyHostToDevice, s->q->stream), err,
           "weights");
    CU_TRY(cudaEventRecord(s->q->used[s->seg], s->q->stream), err, "weights");
    s->q->pending[s->seg] = true;
    return stage_begin(s, s->to + s->n, err);
}

/* n bytes more, over as many segments as they take. */
static mn_status stage_push(stage *s, const void *from, uint64_t n, mn_error *err) {
    const char *at = (const char *)from;
    while (n) {
        const uint64_t room = CU_SEGMENT_BYTES - s->n;
        const uint64_t m = room < n ? room : n;
        memcpy(s->buf + s->n, at, m);
        s->n += m;
        at += m;
        n -= m;
        mn_status st = s->n == CU_SEGMENT_BYTES ? stage_flush(s, err) : MN_OK;
        if (st)
            return st;
    }
    return MN_OK;
}

static mn_status stage_push_zeros(stage *s, uint64_t n, mn_error *err) {
    static const char zeros[1024] = {0};
    mn_status st = MN_OK;
    for (uint64_t m; n && !st; n -= m) {
        m = n < sizeof zeros ? n : sizeof zeros;
        st = stage_push(s, zeros, m, err);
    }
    return st;
}

/* The stored blocks of a row, dense or by strides. */
static mn_status stage_push_blocks(stage *out, const mnp_source_row *s, mn_error *err) {
    const mn_plane *p = mnp_plane(s->s, s->part, 0);
    const uint8_t *from = mnp_row_at(s, 0, 1);
    const uint32_t last = s->t->n_dim - 1;
    const uint32_t bytes = s->t->dtype.block_bytes;
    const int64_t blocks = p->dim[last] / s->t->dtype.block_elems;
    const int64_t step = p->stride[last];
    if (step == bytes || blocks == 1)
        return stage_push(out, from, (uint64_t)blocks * bytes, err);
    mn_status st = MN_OK;
    for (int64_t b = 0; b < blocks && !st; b++)
        st = stage_push(out, from + b * step, bytes, err);
    return st;
}

/* ---- the three ways of a weight -------------------------------------------------------------- */
/* As stored. */
static mn_status put_float(stage *out, const cu_weight *w, mnp_source_row *s, mn_error *err) {
    const uint64_t pad = (uint64_t)(w->ld - w->cols) * (uint64_t)w->type->block_bytes;
    mn_status st = stage_begin(out, w->plane[0], err);
    for (int64_t r = 0; r < w->rows && !st; r++, mnp_next_row(s)) {
        st = stage_push_blocks(out, s, err);
        if (!st)
            st = stage_push_zeros(out, pad, err);
    }
    if (st)
        return st;
    return stage_flush(out, err);
}

/* Unpacked on the host. */
static mn_status put_unpacked(stage *out, const cu_weight *w, mnp_source_row *s, mn_error *err) {
    const mn_device *d = out->q->dev;
    float *row = cu_new(d, (uint64_t)w->ld * sizeof *row);
    if (!row)
        return mnp_fail_memory(err, (uint64_t)w->ld * sizeof *row, "a row of a weight");
    mn_status st = stage_begin(out, w->plane[0], err);
    for (int64_t r = 0; r < w->rows && !st; r++, mnp_next_row(s)) {
        const mn_stored_row stored = mnp_stored_row(s);
        mn_dequant_row(&stored, w->cols, row);
        st = stage_push(out, row, (uint64_t)w->ld * sizeof *row, err);
    }
    cu_delete(d, row);
    if (st)
        return st;
    return stage_flush(out, err);
}

/* The values of SCALE or BIAS of n rows from s on, as f32. */
static mn_status stage_extra(stage *out, mnp_source_row s, uint32_t plane, char *to, int64_t n,
                             int64_t groups, mn_error *err) {
    mn_status st = stage_begin(out, to, err);
    for (int64_t r = 0; r < n && !st; r++, mnp_next_row(&s)) {
        const mn_plane *p = mnp_plane(s.s, s.part, plane);
        const uint8_t *at = mnp_row_at(&s, plane, 1);
        for (int64_t g = 0; g < groups && !st; g++) {
            const int64_t step = p->stride[s.t->n_dim - 1];
            const float v = mn_plane_value(p->dtype, at + g * step);
            st = stage_push(out, &v, sizeof v, err);
        }
    }
    if (st)
        return st;
    return stage_flush(out, err);
}

/* Through the staging area, as many rows at a time as it holds. */
static mn_status put_packed(stage *out, const cu_weight *w, mnp_source_row *s, mn_error *err) {
    mn_queue *q = out->q;
    const int64_t blocks = w->cols / w->type->block;
    const int64_t bytes = blocks * w->type->block_bytes;
    int64_t most = STAGE_DATA / bytes;
    if (w->type->planes && most > STAGE_EXTRA / 4 / blocks)
        most = STAGE_EXTRA / 4 / blocks;
    if (most < 1) {
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "a row of a weight of %lld bytes, at most %d",
                        (long long)bytes, (int)STAGE_DATA);
    }
    if (!q->staging) {
        const cudaError_t e = cudaMalloc((void **)&q->staging, CU_STAGE_BYTES);
        const mn_status made = cu_check_room(e, CU_STAGE_BYTES, err, "the staging area of weights");
        if (made)
            return made;
    }
    char *scale = q->staging + STAGE_DATA;
    char *bias = scale + STAGE_EXTRA;
    for (int64_t row = 0; row < w->rows; row += most) {
        const int64_t n = w->rows - row < most ? w->rows - row : most;
        const mnp_source_row from = *s;
        mn_status st = stage_begin(out, q->staging, err);
        for (int64_t r = 0; r < n && !st; r++, mnp_next_row(s))
            st = stage_push_blocks(out, s, err);
        if (!st)
            st = stage_flush(out, err);
        if (!st && w->type->planes)
            st = stage_extra(out, from, 1, scale, n, blocks, err);
        if (!st && w->type->planes && from.s->n_planes > 2)
            st = stage_extra(out, from, 2, bias, n, blocks, err);
        if (st)
            return st;
        cu_import im = {0};
        im.data = (const uint8_t *)q->staging;
        im.scale = (const float *)scale;
        im.bias = (const float *)bias;
        for (int i = 0; i < CU_MAX_PLANES; i++)
            im.to.at[i] = w->plane[i] + cu_plane_bytes(w->type, i, row, w->ld);
        im.rows = n;
        im.blocks = (int)blocks;
        im.ld = (int)w->ld;
        w->type->import(q->stream, &im);
        CU_TRY(cudaPeekAtLastError(), err, "weights");
    }
    return MN_OK;
}

mn_status cu_weights_put(mn_weights *set, mn_queue *q, const mn_weight_src *in, mn_event **event,
                         mn_error *err) {
    mn_weight_src src;
    mnp_read(&src, sizeof src, in, in->size);
    if (event)
        *event = NULL;
    mn_status st = check_source(set, &src, err);
    if (st || !set->w[src.tensor].wanted)
        return st;
    const mn_tensor *t = mnp_tensor(set->graph, src.tensor);
    cu_weight *w = &set->w[src.tensor];
    CU_TRY(cudaSetDevice(set->dev->index), err, "choosing the device");
    /* padding of packed rows is written by nobody */
    if (w->type->import && w->ld > w->cols)
        CU_TRY(cudaMemsetAsync(w->data, 0, w->bytes, q->stream), err, "weights");
    mnp_source_row s = mnp_first_row(t, &src);
    stage to = {q, NULL, 0, NULL, 0};
    if (w->type->dtype != t->dtype.id)
        st = put_unpacked(&to, w, &s, err);
    else if (w->type->import)
        st = put_packed(&to, w, &s, err);
    else
        st = put_float(&to, w, &s, err);
    /* the file's bytes were read; what they became is on its way to the device */
    if (!st && event)
        st = cu_event_new(set->dev, q->stream, event, err);
    else if (!st)
        st = cu_check(cudaStreamSynchronize(q->stream), err, "weights");
    w->put = !st;
    return st;
}

/* Everything that is wanted was put, and has arrived; *kept_how: MN_KEPT_* of the set. */
mn_status cu_weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->graph->n_tensors; i++) {
        if (w->w[i].wanted && !w->w[i].put) {
            return mnp_fail(err, MN_INVALID, ~0u, "weight %.*s is missing",
                            MNP_NAME(mnp_tensor(w->graph, i)));
        }
        if (w->w[i].put)
            kept |= MN_KEPT_COPIED;
        if (w->w[i].put && w->w[i].type->import)
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
    if (w->data)
        cudaFree(w->data);
    cu_delete(w->dev, w->w);
    cu_delete(w->dev, w);
}
