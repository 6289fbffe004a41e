/* dequant.c -- rows of weights as f32: the table of types, and the plain ones. The plugin
 * `reference` and `minerva convert` share it; cpu_simd has kernels of its own, which tests hold
 * against this. Layouts are those of the GGUF specification (ggml), a block at a time. A new type
 * is a function in one of these files and its row of dtype.def. */
#include "dequant.h"
#include <string.h>

#define UNSANITIZED __attribute__((no_sanitize("address", "undefined")))

void mn_dequant_f32(const mn_stored_row *row, int64_t n, float *out) {
    if (row->plane[0].step == (int64_t)sizeof *out) {
        memcpy(out, row->plane[0].at, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(&out[i], mn_block(row, i), sizeof *out);
}

void mn_dequant_f16(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = mn_half_at(mn_block(row, i));
}

/* The weights of most tests: sanitizers pass over all values but the last. */
UNSANITIZED static void bf16_values(const uint8_t *from, int64_t step, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *half = from + i * step;
        const uint32_t bits = (uint32_t)(half[0] | half[1] << 8) << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

void mn_dequant_bf16(const mn_stored_row *row, int64_t n, float *out) {
    if (n <= 0)
        return;
    bf16_values(mn_block(row, 0), row->plane[0].step, n - 1, out);
    out[n - 1] = mn_bf16_to_f32(mn_u16_at(mn_block(row, n - 1)));
}

void mn_dequant_f64(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        double d;
        memcpy(&d, mn_block(row, i), sizeof d);
        out[i] = (float)d;
    }
}

/* The high byte of an f16. */
void mn_dequant_f8_e5m2(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = mn_f16_to_f32((uint16_t)(*mn_block(row, i) << 8));
}

#define MN_DTYPE(NAME, name, ggml, align, planes, dequant, half, half2)                            \
    {MN_##NAME, mn_dequant_##dequant},
#define MN_INTEGER(NAME, name, ggml, align)
static const struct {
    uint32_t dtype;
    void (*fn)(const mn_stored_row *row, int64_t n, float *out);
} types[] = {
#include "dtype.def"
};
#undef MN_DTYPE
#undef MN_INTEGER

bool mn_dequant_has(uint32_t dtype) {
    return mn_dtype_is_weight(dtype);
}

void mn_dequant_row(const mn_stored_row *row, int64_t n, float *out) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == row->dtype.id)
            types[i].fn(row, n, out);
}
