/* dequant_planes.c -- types whose scales lie apart from their data: MLX's affine groups, MXFP4 as
 * released, F8 with scales. */
#include "reference.h"
#include <math.h>
#include <string.h>

/* Bits of MLXb_g, or 0. */
static int mlx_bits(uint32_t dtype) {
    static const int bits[] = {2, 3, 4, 6, 8};
    return dtype >= MN_MLX2_32 && dtype <= MN_MLX8_128 ? bits[(dtype - MN_MLX2_32) / 3] : 0;
}

bool ref_has_planes_type(uint32_t dtype) {
    return mlx_bits(dtype) || dtype == MN_MXFP4_SPLIT || dtype == MN_F8_E4M3 ||
           dtype == MN_F8_E4M3_128;
}

float ref_f8_e4m3(uint8_t b) {
    const int e = b >> 3 & 15, m = b & 7;
    const float x = (b & 127) == 127 ? NAN
                    : e              ? ldexpf((float)(8 + m), e - 10)
                                     : ldexpf((float)m, -9);
    return b & 128 ? -x : x;
}

/* The value of block b in a row of a SCALE or BIAS plane. */
static double extra(const mnc_weight *w, const mnc_extra *x, int64_t row, int64_t b) {
    const uint8_t *p = mnc_extra_row(w, x, row) + (uint64_t)b * x->step;
    uint32_t bits;
    float f;
    switch (x->dtype) {
    case MN_U8:
        return (double)ref_e8m0(*p);
    case MN_F16:
        return (double)ref_f16_to_f32(ref_u16(p));
    case MN_BF16:
        bits = (uint32_t)ref_u16(p) << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    default:
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
}

/* Element i of a little-endian stream of values of `bits` bits. */
static uint32_t stream(const uint8_t *p, int64_t i, int bits) {
    const int64_t at = i * bits;
    uint32_t v = p[at / 8];
    if (at % 8 + bits > 8)
        v |= (uint32_t)p[at / 8 + 1] << 8;
    return v >> (at % 8) & ((1u << bits) - 1);
}

void ref_planes_row(const mnc_weight *w, int64_t row, float *out) {
    const uint8_t *p = mnc_row(w, row);
    const int bits = mlx_bits(w->dtype.id);
    const int64_t block = w->dtype.block_elems;
    const bool scaled = w->scale.data || w->scale.groups;
    for (int64_t i = 0; i < w->cols; i++) {
        const double s = scaled ? extra(w, &w->scale, row, i / block) : 1;
        if (bits)
            out[i] = (float)(s * stream(p, i, bits) + extra(w, &w->bias, row, i / block));
        else if (w->dtype.id == MN_MXFP4_SPLIT)
            out[i] = (float)(s * (double)ref_e2m1(p[i / 2] >> 4 * (i % 2) & 15));
        else
            out[i] = (float)(s * (double)ref_f8_e4m3(p[i]));
    }
}
