/* compressed.c -- matrices as compressed-tensors packs them. Integers: X.weight_packed, words of 32
 * bits, a stream of the codes of a row, the first in the lowest bits; X.weight_scale, [N, groups],
 * [N, 1] or one; X.weight_shape, [N, K]. Codes and zeros are stored with 2^(bits - 1) added.
 * X.weight_zero_point, where there is one: I32, packed along the rows [N * bits / 32, groups], or
 * I8 [N, groups].
 *
 * int-quantized: X.weight, I8 [N, K]; scales and zeros (I8) as above.
 *
 * E2M1: X.weight_packed, U8 [N, K / 2]; X.weight_scale, [N, K / 32] of E8M0 (mxfp4-pack-quantized),
 * or [N, K / 16] of E4M3 and X.weight_global_scale, one F32 that the scales were multiplied by
 * (nvfp4-pack-quantized). */
#include "affine.h"
#include <string.h>

/* N or K of X.weight_shape; 0: it is not there as it should be. */
static int64_t shape_at(const mn_parsed_tensor *shape, int64_t i) {
    int64_t wide = 0;
    const char *at = shape->plane.ptr;
    if (shape->n_dim != 1 || shape->dim[0] != 2)
        return 0;
    if (shape->dtype.id == MN_I32)
        return (int32_t)affine_word(shape, i);
    if (shape->dtype.id == MN_I64)
        memcpy(&wide, at + 8 * i, sizeof wide);
    return wide;
}

/* The zero of row n and group g, words along the rows. */
static double packed_zero(const affine_matrix *m, int64_t n, int64_t g) {
    const int64_t bit = n * m->bits;
    const int64_t groups = m->zero->dim[1];
    uint64_t words = affine_word(m->zero, bit / 32 * groups + g);
    if (bit % 32 + m->bits > 32)
        words |= (uint64_t)affine_word(m->zero, (bit / 32 + 1) * groups + g) << 32;
    return (double)(words >> bit % 32 & ((1u << m->bits) - 1));
}

static double byte_zero(const affine_matrix *m, int64_t n, int64_t g) {
    const int8_t *at = m->zero->plane.ptr;
    return (double)(at[n * m->zero->dim[1] + g] + m->middle);
}

/* Groups of a row by the scales' shape; 0: the shape is none that they have. */
static int64_t scales_of_rows(const mn_parsed_tensor *s, affine_matrix *m) {
    const int64_t es = s->dtype.block_bytes;
    if (s->n_dim == 1 && s->dim[0] == 1)
        return 1;
    if (s->n_dim > 2 || s->dim[0] != m->rows)
        return 0;
    const int64_t groups = s->n_dim == 2 ? s->dim[1] : 1;
    m->scale_row = groups * es;
    m->scale_col = es;
    return groups;
}

/* Zeros of either form; NULL: the codes' middle. */
static mn_status compressed_zeros(const mn_parsed_tensor *zero, int64_t groups, affine_matrix *m,
                                  mn_error *err) {
    if (!zero)
        return MN_OK;
    const bool words = zero->dtype.id == MN_I32;
    const int64_t rows = words ? (m->rows * m->bits + 31) / 32 : m->rows;
    if ((!words && zero->dtype.id != MN_I8) || zero->n_dim != 2 || zero->dim[0] != rows ||
        zero->dim[1] != groups)
        return packed_bad(zero, "a zero for each scale, packed in words along the rows, or in i8",
                          err);
    m->zero = zero;
    m->zero_at = words ? packed_zero : byte_zero;
    return MN_OK;
}

/* Fills *m by the shapes of all of x; groups: of a row. */
static mn_status compressed_shape(const packed_matrix *x, affine_matrix *m, int64_t *groups,
                                  mn_error *err) {
    const mn_parsed_tensor *t = x->data;
    if (!x->shape || !x->scale)
        return mnl_fail(err, MN_BAD_FILE, "tensor '%.*s' has no '%.*s.weight_%s'",
                        MN_STR_ARG(t->native), MN_STR_ARG(x->stem), x->scale ? "shape" : "scale");
    m->rows = shape_at(x->shape, 0);
    m->cols = shape_at(x->shape, 1);
    if (m->rows < 1 || m->cols < 1)
        return packed_bad(x->shape, "two integers, rows and columns", err);
    if (t->dtype.id != MN_I32 || t->n_dim != 2 || t->dim[0] != m->rows ||
        t->dim[1] > INT64_MAX / 32 || t->dim[1] * 32 % m->cols || t->dim[1] * 32 / m->cols > 8)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s' (%s, %lld words a row): its shape is [%lld, %lld]; expected "
                        "rows of words that whole numbers of bits fill",
                        MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id),
                        (long long)t->dim[t->n_dim - 1], (long long)m->rows, (long long)m->cols);
    m->bits = (uint32_t)(t->dim[1] * 32 / m->cols);
    m->middle = INT64_C(1) << (m->bits - 1);
    *groups = scales_of_rows(x->scale, m);
    if (!*groups || m->cols % *groups)
        return packed_bad(x->scale, "one scale, one for each row, or one for each group of a row",
                          err);
    m->group = m->cols / *groups;
    return MN_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------- */
/* Two's complement to what has 128 added. */
static void byte_codes(const affine_matrix *m, int64_t n, int64_t count, uint8_t *to) {
    const uint8_t *from = (const uint8_t *)m->t->plane.ptr + n * m->cols;
    for (int64_t i = 0; i < count * m->cols; i++)
        to[i] = from[i] ^ 0x80;
}

mn_status bytes_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err) {
    (void)config;
    const mn_parsed_tensor *t = x->data;
    affine_matrix m = {.t = x->data, .scale = x->scale, .bits = 8, .middle = 128};
    if (t->n_dim != 2 || !x->scale)
        return packed_bad(t, "a matrix [rows, columns] with X.weight_scale beside it", err);
    m.rows = t->dim[0];
    m.cols = t->dim[1];
    m.codes = byte_codes;
    const int64_t groups = scales_of_rows(x->scale, &m);
    if (!groups || m.cols % groups)
        return packed_bad(x->scale, "one scale, one for each row, or one for each group of a row",
                          err);
    m.group = m.cols / groups;
    mn_status status = compressed_zeros(x->zero, groups, &m, err);
    if (!status)
        status = packed_in_order(x->order, &m, err);
    return status ? status : affine_make(p, &m, err);
}

/* ---- E2M1 ------------------------------------------------------------------------------------ */
/* 1 / what is stored, rounded to f32: the scale of the tensor as others compute it. */
static mn_status inverse_of(mn_parsed *p, const mn_parsed_tensor *t, mn_parsed_tensor *out,
                            mn_error *err) {
    float *inverse = mn_parsed_alloc(p, 1, sizeof *inverse);
    float stored;
    if (!inverse)
        return mnl_fail_memory(err);
    if (t->dtype.id != MN_F32 || t->plane.bytes != sizeof stored)
        return packed_bad(t, "one f32", err);
    memcpy(&stored, t->plane.ptr, sizeof stored);
    *inverse = 1 / stored;
    *out = *t;
    out->plane.ptr = inverse;
    return MN_OK;
}

/* Bytes of two nibbles, which stay where they are. */
static mn_status e2m1_read(mn_parsed *p, const packed_matrix *x, mn_error *err) {
    mn_parsed_tensor *t = x->data;
    const mn_parsed_tensor *s = x->scale;
    mn_parsed_tensor inverse;
    mn_dtype type;
    if (!s)
        return packed_bad(t, "X.weight_scale beside it", err);
    if (s->dtype.id == MN_F8_E4M3 && x->whole) {
        const mn_status status = inverse_of(p, x->whole, &inverse, err);
        return status ? status : nvfp4_read(p, t, s, &inverse, err);
    }
    if (t->n_dim != 2 || t->dim[1] % 16)
        return packed_bad(t, "rows of whole groups of 32 elements, 16 bytes each", err);
    if (s->dtype.id != MN_U8 || s->n_dim != 2 || s->dim[0] != t->dim[0] ||
        s->dim[1] != t->dim[1] / 16)
        return packed_bad(s,
                          "a scale of e8m0 for each 32 elements, or of f8_e4m3 for each 16 and "
                          "X.weight_global_scale",
                          err);
    mn_plane *planes = mn_tensor_planes(p, t, 1, 2);
    if (!planes || !mn_dtype_by_id(MN_MXFP4_SPLIT, &type))
        return mnl_fail_memory(err);
    planes[0] = t->plane;
    planes[0].dtype = type.id;
    planes[0].dim[1] = t->dim[1] = t->dim[1] * 2;
    planes[0].stride[1] = type.block_bytes;
    planes[1] = s->plane;
    planes[1].kind = MN_PLANE_SCALE;
    t->dtype = type;
    return MN_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */
/* The words of a row are a stream of bits, as those of an affine type: they stay in place. */
mn_status compressed_read(mn_parsed *p, const packed_matrix *x, const cJSON *config,
                          mn_error *err) {
    (void)config;
    int64_t groups = 0;
    if (x->data->dtype.id == MN_U8)
        return e2m1_read(p, x, err);
    affine_matrix m = {.t = x->data, .scale = x->scale};
    mn_status status = compressed_shape(x, &m, &groups, err);
    if (!status)
        status = compressed_zeros(x->zero, groups, &m, err);
    if (!status)
        status = packed_in_order(x->order, &m, err);
    if (status)
        return status;
    return affine_make(p, &m, err);
}
