/* hqq.c -- matrices as HQQ stores them: x = (code - zero) * scale with zeros that are no integers.
 *
 * X.shape, I64 [2]: N, K. X.axis: 1 where a group is of one row, which alone is read. The matrix as
 * [R, group], R = N * K / group, has a scale and a zero for each of its rows: X.scale, X.zero
 * [R, 1]. X.packing, text: "8bit_u8", "4bit_u8", "2bit_u8", "1bit_u8", "3bit_32": X.W_q holds n
 * codes in a byte or ten in a word of 32 bits, the first R / n rows of the matrix in the highest
 * bits. Codes are moved to their rows (affine.h). */
#include "affine.h"
#include <string.h>

enum { PER_WORD = 10 };

/* ---- codes ----------------------------------------------------------------------------------- */
static void hqq_put(uint8_t *row, int64_t k, uint32_t bits, uint32_t code) {
    const int64_t at = k * bits;
    const uint32_t wide = code << at % 8;
    row[at / 8] |= (uint8_t)wide;
    if (wide >> 8)
        row[at / 8 + 1] |= (uint8_t)(wide >> 8);
}

/* Row r of the matrix as [R, group], to the columns of `to` from k on. */
static void hqq_run(const affine_matrix *m, int64_t r, int64_t k, uint8_t *to) {
    const uint8_t *from = m->t->plane.ptr;
    const uint32_t bits = m->stored_bits;
    const uint32_t mask = (1u << bits) - 1;
    const int64_t runs = m->rows * m->cols / m->group;
    const int64_t per = bits == 3 ? PER_WORD : 8 / bits;
    const int64_t step = (runs + per - 1) / per;
    const uint32_t shift = (uint32_t)(per - 1 - r / step) * bits;
    const int64_t first = r % step * m->group;
    for (int64_t i = 0; i < m->group; i++) {
        const uint32_t word = bits == 3 ? affine_word(m->t, first + i) : from[first + i];
        hqq_put(to, k + i, m->bits, word >> shift & mask);
    }
}

static void hqq_codes(const affine_matrix *m, int64_t n, int64_t count, uint8_t *to) {
    const int64_t groups = m->cols / m->group;
    const int64_t row_bytes = m->cols * m->bits / 8;
    memset(to, 0, (size_t)(count * row_bytes));
    for (int64_t i = 0; i < count; i++)
        for (int64_t g = 0; g < groups; g++)
            hqq_run(m, (n + i) * groups + g, g * m->group, to + i * row_bytes);
}

static double hqq_bias(const affine_matrix *m, int64_t n, int64_t g) {
    const int64_t at = n * m->scale_row + g * m->scale_col;
    return -affine_value(m->zero, at) * affine_value(m->scale, at);
}

/* ---- shapes ---------------------------------------------------------------------------------- */
/* By the first character of X.packing; 0: it is none of these. */
static uint32_t bits_of(const mn_parsed_tensor *packing) {
    static const char *const known[] = {"8bit_u8", "4bit_u8", "3bit_32", "2bit_u8", "1bit_u8"};
    const uint64_t n = strlen(known[0]);
    if (!packing || packing->dtype.id != MN_U8 || packing->plane.bytes != n)
        return 0;
    for (size_t i = 0; i < MN_COUNT(known); i++)
        if (!memcmp(packing->plane.ptr, known[i], n))
            return (uint32_t)(known[i][0] - '0');
    return 0;
}

/* N and K of X.shape. */
static mn_status hqq_shape(const packed_matrix *x, affine_matrix *m, mn_error *err) {
    int64_t shape[2];
    const mn_parsed_tensor *t = x->shape;
    if (t->dtype.id != MN_I64 || t->plane.bytes != sizeof shape)
        return packed_bad(t, "two integers of 64 bits, rows and columns", err);
    memcpy(shape, t->plane.ptr, sizeof shape);
    for (int i = 0; i < 2; i++)
        if (shape[i] < 1 || shape[i] > INT32_MAX)
            return packed_bad(t, "rows and columns", err);
    m->rows = shape[0];
    m->cols = shape[1];
    return MN_OK;
}

/* Scales and zeros of whole groups of a row. */
static mn_status hqq_groups(const packed_matrix *x, affine_matrix *m, mn_error *err) {
    const int64_t n = m->rows * m->cols;
    const int64_t es = x->scale->dtype.block_bytes;
    const int64_t scales = (int64_t)x->scale->plane.bytes / es;
    if (scales < 1 || n % scales || m->cols % (n / scales))
        return packed_bad(x->scale, "a scale for each group, and groups that divide rows", err);
    if (x->zero->dtype.id != x->scale->dtype.id || x->zero->plane.bytes != x->scale->plane.bytes)
        return packed_bad(x->zero, "as many zeros as scales, of their type", err);
    m->group = n / scales;
    m->scale_col = es;
    m->scale_row = m->cols / m->group * es;
    return MN_OK;
}

/* X.W_q has the bytes that its packing says. */
static bool hqq_fills(const affine_matrix *m, const mn_parsed_tensor *t) {
    const int64_t bits = m->stored_bits;
    const int64_t runs = m->rows * m->cols / m->group;
    const int64_t bytes = (int64_t)t->plane.bytes;
    if (bits == 3)
        return bytes == (runs + PER_WORD - 1) / PER_WORD * m->group * 4;
    return runs * bits % 8 == 0 && bytes == runs * bits / 8 * m->group;
}

/* 0: groups are of columns, or the tensor is not there. */
static bool is_by_row(const mn_parsed_tensor *axis) {
    int32_t value;
    if (!axis || axis->dtype.id != MN_I32 || axis->plane.bytes != sizeof value)
        return false;
    memcpy(&value, axis->plane.ptr, sizeof value);
    return value == 1;
}

mn_status hqq_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err) {
    (void)config;
    const uint32_t bits = bits_of(x->packing);
    affine_matrix m = {.t = x->data, .scale = x->scale, .zero = x->zero};
    if (!x->scale || !x->zero || !x->shape)
        return packed_bad(x->data,
                          "X.scale, X.zero and X.shape beside it (scales that are quantised "
                          "themselves are not read)",
                          err);
    if (!is_by_row(x->axis))
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s': X.axis is not 1: its groups lie across rows, which no "
                        "type has; expected axis 1 (HqqConfig's default)",
                        MN_STR_ARG(x->data->native));
    if (!bits)
        return packed_bad(x->data, "X.packing of 8bit_u8, 4bit_u8, 3bit_32, 2bit_u8 or 1bit_u8",
                          err);
    mn_status status = hqq_shape(x, &m, err);
    if (!status)
        status = hqq_groups(x, &m, err);
    if (status)
        return status;
    m.stored_bits = bits;
    m.bits = bits < 2 ? 2 : bits; /* no type is narrower */
    m.codes = hqq_codes;
    m.bias_at = hqq_bias;
    if (!hqq_fills(&m, x->data))
        return packed_bad(x->data, "the codes of X.shape in the packing that X.packing names", err);
    return affine_make(p, &m, err);
}
