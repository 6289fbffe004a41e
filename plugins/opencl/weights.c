/* weights.c -- how weights lie on the device: rows of blocks as stored, padded to whole pieces of
 * 16; scales beside them as f32, or as stored where they stood in front of blocks. A type without a
 * row in the table, and everything that is no matrix, is unpacked to f32 by dtype/ on the host. */
#include "types.h"

enum { DATA, SCALES, BIASES }; /* planes of a part */

static mn_dtype dtype_of(const mng_weight *w) {
    mn_dtype t = {0};
    mn_dtype_by_id(w->type->dtype, &t);
    return t;
}

/* Values of a plane beside DATA in a row; 0: the type has none. */
static int blocks_of(const mng_weight *w) {
    const mn_dtype t = dtype_of(w);
    if (t.n_planes < 2 && !w->type->head)
        return 0;
    return (int)(w->cols / t.block_elems);
}

/* Bytes of a row of the plane of scales. */
static uint64_t value_bytes(const mng_weight *w) {
    const uint64_t each = w->type->head ? w->type->head : sizeof(float);
    return (uint64_t)blocks_of(w) * each;
}

enum { SLACK = 256 /* behind a weight: kernels read whole vectors */ };

/* Where the planes of a part lie, and its bytes. */
static void shape_part(mng_weight *w) {
    const uint64_t data = w->row_bytes * (uint64_t)w->part_rows;
    const uint64_t plane = value_bytes(w) * (uint64_t)w->part_rows;
    w->plane[SCALES] = (uint64_t)mnp_round((int64_t)data, 64);
    w->plane[BIASES] = (uint64_t)mnp_round((int64_t)(w->plane[SCALES] + plane), 64);
    w->part_bytes = w->plane[BIASES] + plane + SLACK;
}

/* Parts of at most so many bytes, where rows are no longer than that. together: rows that stay in
 * one part. */
static void split(mng_weight *w, int64_t together, uint64_t most) {
    const uint64_t one = (w->row_bytes + 2 * value_bytes(w)) * (uint64_t)together;
    const uint64_t room = most > 2 * SLACK ? most - 2 * SLACK : 0;
    const int64_t all = w->rows / together;
    int64_t fit = one ? (int64_t)(room / one) : all;
    if (fit < 1)
        fit = 1;
    const int64_t n = (all + fit - 1) / fit;
    w->part_rows = (all + n - 1) / n * together;
    w->n_parts = (uint32_t)((w->rows + w->part_rows - 1) / w->part_rows);
    shape_part(w);
}

void ocl_weight_shape(const mn_device *d, const mn_tensor *t, mng_weight *w) {
    w->type = ocl_type_of(w->flat ? (uint32_t)MN_F32 : t->dtype.id);
    const mn_dtype type = dtype_of(w);
    if (!w->flat && type.block_elems < OCL_PIECE)
        w->ld = mnp_round(w->cols, OCL_PIECE);
    w->row_bytes = (uint64_t)w->ld / type.block_elems * (type.block_bytes - w->type->head);
    shape_part(w);
    if (!w->flat && w->part_bytes > d->base.max_buffer)
        split(w, t->n_dim > 2 ? t->dim[t->n_dim - 2] : 1, d->base.max_buffer);
}

/* ---- rows ------------------------------------------------------------------------------------ */
/* The codes of blocks whose scales stand in front of them, and those scales. */
static void write_codes(const mng_weight *w, const mnp_source_row *s, uint8_t *to) {
    const mn_plane *p = mnp_plane(s->s, s->part, 0);
    const uint8_t *from = mnp_row_at(s, 0, 1);
    const uint32_t last = s->t->n_dim - 1;
    const uint32_t head = w->type->head;
    const uint32_t bytes = s->t->dtype.block_bytes - head;
    const int64_t blocks = p->dim[last] / s->t->dtype.block_elems;
    for (int64_t b = 0; b < blocks; b++)
        memcpy(to + b * bytes, from + b * p->stride[last] + head, bytes);
}

static void write_heads(const mng_weight *w, const mnp_source_row *s, uint8_t *to) {
    const mn_plane *p = mnp_plane(s->s, s->part, 0);
    const uint8_t *from = mnp_row_at(s, 0, 1);
    const int64_t step = p->stride[s->t->n_dim - 1];
    for (int i = 0; i < blocks_of(w); i++)
        memcpy(to + i * w->type->head, from + i * step, w->type->head);
}

static mng_row_fn writer_of(const mng_weight *w, const mn_tensor *t) {
    if (w->flat || w->type->dtype != t->dtype.id)
        return mng_write_unpacked;
    return w->type->head ? write_codes : mng_write_blocks;
}

mn_status ocl_weight_put(mn_queue *q, const mng_weight *w, const mnp_source_row *s, mn_error *err) {
    const uint64_t values = value_bytes(w);
    const mng_row_fn scales = w->type->head ? write_heads : mng_write_scales;
    mn_status st = mng_put_plane(q, w, writer_of(w, s->t), w->plane[DATA], w->row_bytes, *s, err);
    if (!st && values)
        st = mng_put_plane(q, w, scales, w->plane[SCALES], values, *s, err);
    if (!st && values && s->s->n_planes > 2)
        st = mng_put_plane(q, w, mng_write_biases, w->plane[BIASES], values, *s, err);
    return st;
}

/* ---- for kernels ----------------------------------------------------------------------------- */
ocl_matrix ocl_matrix_of(const mng_weight *w) {
    return (ocl_matrix){.row_bytes = w->row_bytes,
                        .scale_at = w->plane[SCALES],
                        .bias_at = w->plane[BIASES],
                        .blocks = blocks_of(w),
                        .pieces = (int)((w->cols + OCL_PIECE - 1) / OCL_PIECE)};
}
