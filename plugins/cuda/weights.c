/* weights.c -- how weights lie on the device, and the way there. Float matrices go there as they
 * are; packed types go to a staging area on the device, a kernel splits them into planes
 * (rows.cuh), and the next rows follow in the order of the stream. A type without kernels of its
 * own, rows that are no whole blocks of it, and everything that is no matrix, is unpacked to f32
 * on the host. Rows of matrices are padded to CU_K_ALIGN elements. The staging area belongs to the
 * queue. */
#include "cu.h"

/* The staging area: stored blocks, then scales and biases as f32. */
enum { STAGE_DATA = 4 << 20, STAGE_EXTRA = 1 << 20 };
_Static_assert(STAGE_DATA + 2 * STAGE_EXTRA == CU_STAGE_BYTES, "the queue's staging area");

/* Planes begin at 256 bytes; kernels read whole vectors behind the last. */
void cu_weight_shape(const mn_device *d, const mn_tensor *t, mng_weight *w) {
    const cu_type *type = cu_type_of(MN_F32);
    uint64_t bytes = 0;
    (void)d;
    if (!w->flat)
        type = cu_type_for(t->dtype.id, w->cols);
    w->type = (const mng_type *)(const void *)type;
    w->ld = w->flat ? w->cols : mnp_round(w->cols, type->align);
    w->row_bytes = cu_plane_bytes(type, 0, 1, w->ld);
    for (int i = 0; i < CU_MAX_PLANES; i++) {
        const int64_t plane = cu_plane_bytes(type, i, w->rows, w->ld);
        w->plane[i] = bytes;
        bytes += mnp_round(plane, 256);
    }
    w->part_bytes = bytes + 256;
}

uint32_t cu_weight_kept(const mng_weight *w) {
    if (cu_row_of(w)->import)
        return MN_KEPT_COPIED | MN_KEPT_REPACKED;
    return MN_KEPT_COPIED;
}

/* ---- packed types ---------------------------------------------------------------------------- */
static mn_status make_staging(mn_queue *q, mn_error *err) {
    if (q->staging)
        return MN_OK;
    const cudaError_t e = cudaMalloc((void **)&q->staging, CU_STAGE_BYTES);
    return cu_check_room(e, CU_STAGE_BYTES, err, "the staging area of weights");
}

/* Values of a row in SCALE and BIAS, as import reads them: one for each so many elements, also
 * where a row or a matrix has one. */
static int64_t values_of_row(const mng_weight *w) {
    const int of = cu_row_of(w)->planes;
    if (!of)
        return 0;
    return (w->cols + of - 1) / of;
}

/* Of a plane that is not there each is 1. */
static void write_plane(const mng_weight *w, const mn_plane_row *p, uint8_t *to) {
    float *values = (float *)(void *)to;
    const int64_t n = values_of_row(w);
    for (int64_t i = 0; i < n; i++) {
        values[i] = 1;
        if (p->at)
            values[i] = mn_plane_value(p->dtype, p->at + i * p->step);
    }
}
/* Of NVFP4_64, whose other scales are in its blocks, the scale of the tensor. */
static void write_scales(const mng_weight *w, const mnp_source_row *s, uint8_t *to) {
    const mn_stored_row stored = mnp_stored_row(s);
    const mn_plane_row *scale = &stored.plane[MN_PLANE_SCALE - 1];
    const mn_plane_row *tensor = &stored.plane[MN_PLANE_TENSOR_SCALE - 1];
    write_plane(w, scale->at ? scale : tensor, to);
}
/* Of NVFP4 the scale of the tensor. */
static void write_biases(const mng_weight *w, const mnp_source_row *s, uint8_t *to) {
    const mn_stored_row stored = mnp_stored_row(s);
    const mn_plane_row *bias = &stored.plane[MN_PLANE_BIAS - 1];
    const mn_plane_row *tensor = &stored.plane[MN_PLANE_TENSOR_SCALE - 1];
    write_plane(w, bias->at ? bias : tensor, to);
}

/* n rows from *s on, into the staging area: blocks, and what lies in planes beside them. */
static mn_status stage_rows(mn_queue *q, const mng_weight *w, mnp_source_row *s, int64_t n,
                            mn_error *err) {
    const cu_type *type = cu_row_of(w);
    const uint64_t blocks = w->cols / type->block;
    const mng_ref data = {q->staging, 0};
    const mng_ref scale = {q->staging, STAGE_DATA};
    const mng_ref bias = {q->staging, STAGE_DATA + STAGE_EXTRA};
    const uint64_t bytes = blocks * type->block_bytes;
    const uint64_t values = (uint64_t)values_of_row(w) * 4;
    const bool biases = type->planes && s->s->n_planes > 2;
    mnp_source_row again = *s;
    mnp_source_row once_more = *s;
    mn_status st = mng_send_rows(q, w, mng_write_blocks, bytes, s, n, data, err);
    if (!st && type->planes)
        st = mng_send_rows(q, w, write_scales, values, &again, n, scale, err);
    if (!st && biases)
        st = mng_send_rows(q, w, write_biases, values, &once_more, n, bias, err);
    return st;
}

/* Rows [row, row + n) of the staging area into the weight's planes. */
static mn_status import_rows(mn_queue *q, const mng_weight *w, int64_t row, int64_t n,
                             mn_error *err) {
    const cu_type *type = cu_row_of(w);
    cu_import im = {0};
    im.data = (const uint8_t *)q->staging;
    im.scale = (const float *)(q->staging + STAGE_DATA);
    im.bias = (const float *)(q->staging + STAGE_DATA + STAGE_EXTRA);
    for (int i = 0; i < CU_MAX_PLANES; i++)
        im.to.at[i] = cu_plane(w, i) + cu_plane_bytes(type, i, row, w->ld);
    im.rows = n;
    im.blocks = (int)(w->cols / type->block);
    im.values = (int)values_of_row(w);
    im.cols = (int)w->cols;
    im.ld = (int)w->ld;
    type->import(q->stream, &im);
    return cu_check(cudaPeekAtLastError(), err, "weights");
}

/* As many rows at a time as the staging area holds. */
static mn_status put_packed(mn_queue *q, const mng_weight *w, mnp_source_row *s, mn_error *err) {
    const cu_type *type = cu_row_of(w);
    const int64_t blocks = w->cols / type->block;
    const int64_t bytes = blocks * type->block_bytes;
    const int64_t values = values_of_row(w);
    int64_t most = STAGE_DATA / bytes;
    if (values && most > STAGE_EXTRA / 4 / values)
        most = STAGE_EXTRA / 4 / values;
    if (most < 1)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "a row of a weight of %lld bytes, at most %d",
                        (long long)bytes, (int)STAGE_DATA);
    mn_status st = make_staging(q, err);
    for (int64_t row = 0; row < w->rows && !st; row += most) {
        int64_t n = w->rows - row;
        if (most < n)
            n = most;
        st = stage_rows(q, w, s, n, err);
        if (!st)
            st = import_rows(q, w, row, n, err);
    }
    return st;
}

/* ---- all ------------------------------------------------------------------------------------- */
mn_status cu_weight_put(mn_queue *q, const mng_weight *w, const mnp_source_row *first,
                        mn_error *err) {
    const cu_type *type = cu_row_of(w);
    mnp_source_row s = *first;
    if (type->dtype != s.t->dtype.id)
        return mng_put_plane(q, w, mng_write_unpacked, 0, w->row_bytes, s, err);
    if (!type->import)
        return mng_put_plane(q, w, mng_write_blocks, 0, w->row_bytes, s, err);
    /* padding of packed rows is written by nobody */
    if (w->ld > w->cols)
        CU_TRY(cudaMemsetAsync(cu_plane(w, 0), 0, w->part_bytes, q->stream), err, "weights");
    return put_packed(q, w, &s, err);
}
