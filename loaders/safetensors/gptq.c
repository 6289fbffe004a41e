/* gptq.c -- matrices as GPTQ and AWQ pack them, columns first: X.qweight, X.qzeros, X.scales
 * [groups, N] and, of GPTQ, X.g_idx [K].
 *
 * GPTQ: qweight, words [K * bits / 32, N]: the words of a column are a stream of bits along K;
 * qzeros, words [groups, N * bits / 32]: a stream along N of zero - 1 (gptq_v2: of zero). AWQ:
 * words [K, N / 8] of four bits along N, the nibbles of a word in the order of awq_places; qzeros
 * [groups, N / 8] likewise. Rows of codes are moved (affine.h), no value changes. */
#include "affine.h"
#include <string.h>

/* ---- shapes ---------------------------------------------------------------------------------- */
/* Words of a matrix of two dimensions. */
static bool is_words(const mn_parsed_tensor *t) {
    return t && t->dtype.id == MN_I32 && t->n_dim == 2;
}

/* The tensors that both formats need, and N of the scales. */
static mn_status columns_check(const packed_matrix *x, affine_matrix *m, mn_error *err) {
    const mn_parsed_tensor *s = x->scale;
    if (!s || !x->zero)
        return mnl_fail(err, MN_BAD_FILE, "tensor '%.*s' has no '%.*s.%s'",
                        MN_STR_ARG(x->data->native), MN_STR_ARG(x->stem), s ? "qzeros" : "scales");
    if (!is_words(x->data))
        return packed_bad(x->data, "words of 32 bits, columns first", err);
    if (s->n_dim != 2)
        return packed_bad(s, "scales [groups, rows of the matrix]", err);
    if (!is_words(x->zero) || x->zero->dim[0] != s->dim[0])
        return packed_bad(x->zero, "words of 32 bits, as many groups as of scales", err);
    *m = (affine_matrix){.t = x->data, .scale = s, .zero = x->zero, .rows = s->dim[1]};
    m->scale_row = s->dtype.block_bytes;
    m->scale_col = s->dim[1] * s->dtype.block_bytes;
    return MN_OK;
}

/* Columns in whole groups, of neighbours unless g_idx says others. */
static mn_status columns_groups(const packed_matrix *x, affine_matrix *m, mn_error *err) {
    const int64_t groups = x->scale->dim[0];
    if (m->cols % groups)
        return packed_bad(x->scale, "a number of groups that divides the columns", err);
    m->group = m->cols / groups;
    return packed_in_order(x->order, m, err);
}

/* ---- GPTQ ------------------------------------------------------------------------------------ */
/* Word by word: 16 rows share a line of the cache. */
static void gptq_codes(const affine_matrix *m, int64_t n, int64_t count, uint8_t *to) {
    const int64_t words = m->cols * m->bits / 32;
    for (int64_t w = 0; w < words; w++)
        for (int64_t i = 0; i < count; i++) {
            const uint32_t word = affine_word(m->t, w * m->rows + n + i);
            memcpy(to + (i * words + w) * 4, &word, sizeof word);
        }
}

static double gptq_zero(const affine_matrix *m, int64_t n, int64_t g) {
    const uint8_t *row = (const uint8_t *)m->zero->plane.ptr + g * m->zero->dim[1] * 4;
    return (double)(mn_bit_stream(row, n, m->bits) + m->added);
}

/* Others have planes of bits (gptq_p). */
static bool has_gptq_bits(int64_t bits) {
    return bits == 2 || bits == 3 || bits == 4 || bits == 8;
}

static mn_status gptq_read(mn_parsed *p, const packed_matrix *x, const cJSON *config,
                           mn_error *err) {
    affine_matrix m;
    mn_status status = columns_check(x, &m, err);
    if (status)
        return status;
    const int64_t zero_bits = x->zero->dim[1] > INT64_MAX / 32 ? 0 : x->zero->dim[1] * 32;
    if (zero_bits % m.rows || !has_gptq_bits(zero_bits / m.rows))
        return packed_bad(x->zero, "zeros of 2, 3, 4 or 8 bits for each row of the matrix", err);
    m.bits = (uint32_t)(zero_bits / m.rows);
    if (x->data->dim[1] != m.rows || x->data->dim[0] > INT64_MAX / 32 ||
        x->data->dim[0] * 32 % m.bits)
        return packed_bad(x->data, "a stream of as many bits as its zeros have, for each row", err);
    m.cols = x->data->dim[0] * 32 / m.bits;
    m.codes = gptq_codes;
    m.zero_at = gptq_zero;
    const cJSON *version = json_get(config, "checkpoint_format");
    m.added = !cJSON_IsString(version) || strcmp(version->valuestring, "gptq_v2") != 0;
    status = columns_groups(x, &m, err);
    return status ? status : affine_make(p, &m, err);
}

/* ---- AWQ ------------------------------------------------------------------------------------- */
/* Where in its word the nibble of row i of 8 lies. */
static const uint8_t awq_places[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t awq_nibble(uint32_t word, int64_t row) {
    return word >> 4 * awq_places[row % 8] & 15;
}

/* Two columns make a byte of each row. n: a multiple of 8, as rows are. */
static void awq_codes(const affine_matrix *m, int64_t n, int64_t count, uint8_t *to) {
    const int64_t words = m->rows / 8;
    const int64_t row_bytes = m->cols / 2;
    for (int64_t k = 0; k < m->cols; k += 2)
        for (int64_t i = 0; i < count; i += 8) {
            const uint32_t even = affine_word(m->t, k * words + (n + i) / 8);
            const uint32_t odd = affine_word(m->t, (k + 1) * words + (n + i) / 8);
            for (int64_t r = 0; r < 8; r++)
                to[(i + r) * row_bytes + k / 2] =
                    (uint8_t)(awq_nibble(even, r) | awq_nibble(odd, r) << 4);
        }
}

static double awq_zero(const affine_matrix *m, int64_t n, int64_t g) {
    return awq_nibble(affine_word(m->zero, g * m->zero->dim[1] + n / 8), n);
}

static mn_status awq_read(mn_parsed *p, const packed_matrix *x, mn_error *err) {
    affine_matrix m;
    mn_status status = columns_check(x, &m, err);
    if (status)
        return status;
    if (m.rows % 8 || x->zero->dim[1] != m.rows / 8)
        return packed_bad(x->zero, "zeros of 4 bits for each row of the matrix", err);
    m.bits = 4;
    m.cols = x->data->dim[0];
    if (x->data->dim[1] != m.rows / 8 || m.cols % 2)
        return packed_bad(x->data, "4 bits for each row, in each column", err);
    m.codes = awq_codes;
    m.zero_at = awq_zero;
    status = columns_groups(x, &m, err);
    return status ? status : affine_make(p, &m, err);
}

mn_status columns_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err) {
    return method_is_awq(config) ? awq_read(p, x, err) : gptq_read(p, x, config, err);
}
