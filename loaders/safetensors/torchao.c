/* torchao.c -- matrices as torchao stores them in SafeTensors, a tensor for each array of its
 * tensor classes:
 *
 * Int8Tensor, IntxUnpackedToInt8Tensor: X._weight_qdata, I8 [N, K]; X._weight_scale [N, groups];
 * X._weight_zero_point, I8 likewise: x = (code - zero) * scale. Codes of fewer bits are bytes, too.
 * Int4Tensor: X._weight_qdata, I8 [N, K / 2], two's complement, the first in the low nibble;
 * X._weight_scale, X._weight_zero_point [groups, N]: x = code * scale + zero.
 * Float8Tensor: X._weight_qdata, F8_E4M3 [N, K]; X._weight_scale, one for each row.
 * Tiles of tensor cores (Int4TilePackedTo4dTensor) are not read. */
#include "affine.h"
#include "families.h"
#include <string.h>

/* Two's complement to what has 8 added. */
static void nibble_codes(const affine_matrix *m, int64_t n, int64_t count, uint8_t *to) {
    const int64_t row_bytes = m->cols / 2;
    const uint8_t *from = (const uint8_t *)m->t->plane.ptr + n * row_bytes;
    for (int64_t i = 0; i < count * row_bytes; i++)
        to[i] = from[i] ^ 0x88;
}

static double int4_bias(const affine_matrix *m, int64_t n, int64_t g) {
    const int64_t at = n * m->scale_row + g * m->scale_col;
    return affine_value(m->zero, at) - 8 * affine_value(m->scale, at);
}

static mn_status int4_read(mn_parsed *p, const packed_matrix *x, mn_error *err) {
    const mn_parsed_tensor *s = x->scale;
    const mn_parsed_tensor *t = x->data;
    affine_matrix m = {.t = x->data, .scale = s, .zero = x->zero, .bits = 4};
    m.rows = t->dim[0];
    if (t->dim[1] > INT64_MAX / 2)
        return packed_bad(t, "rows of nibbles", err);
    m.cols = t->dim[1] * 2;
    if (s->n_dim != 2 || s->dim[1] != m.rows || m.cols % s->dim[0])
        return packed_bad(s, "scales [groups, rows of the matrix]", err);
    if (x->zero->dtype.id != s->dtype.id || x->zero->n_dim != 2 ||
        x->zero->plane.bytes != s->plane.bytes)
        return packed_bad(x->zero, "as many zeros as scales, of their type", err);
    m.group = m.cols / s->dim[0];
    m.scale_row = s->dtype.block_bytes;
    m.scale_col = m.rows * m.scale_row;
    m.codes = nibble_codes;
    m.bias_at = int4_bias;
    return affine_make(p, &m, err);
}

/* A row's scale is all that F8 of torchao has here. */
static mn_status float8_read(mn_parsed *p, const packed_matrix *x, mn_error *err) {
    const mn_parsed_tensor *t = x->data;
    if (x->scale->n_dim != 2 || x->scale->dim[1] != 1)
        return packed_bad(x->scale, "one scale, or one for each row", err);
    return f8_read(p, (uint64_t)(t - p->tensors), x->scale, false, err);
}

mn_status torchao_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err) {
    const mn_parsed_tensor *t = x->data;
    if (x->whole)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s': X.%s: activations are multiplied by it, which no graph "
                        "does; expected weights without it",
                        MN_STR_ARG(x->whole->native), "_weight_act_pre_scale");
    if (!x->scale || t->n_dim != 2)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s' (%s, %u dimensions): a packing of torchao that is not read; "
                        "the nearest are its Int8Tensor, IntxUnpackedToInt8Tensor, Float8Tensor "
                        "and Int4Tensor (int4_packing_format=\"plain\")",
                        MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id), t->n_dim);
    if (t->dtype.id == MN_F8_E4M3)
        return float8_read(p, x, err);
    if (t->dtype.id != MN_I8)
        return packed_bad(t, "bytes, or f8_e4m3", err);
    if (x->zero && x->zero->dtype.id != MN_I8)
        return int4_read(p, x, err);
    return bytes_read(p, x, config, err);
}
