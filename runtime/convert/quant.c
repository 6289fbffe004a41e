/* quant.c -- the table of types that rows can be converted to, and those with blocks of 1 and of
 * 32. Layouts are those of GGUF (ggml-common.h of llama.cpp): the scale in front of its codes. */
#include "convert/quant.h"
#include <math.h>
#include <string.h>

/* ---- plain ----------------------------------------------------------------------------------- */
static void f32(const float *x, const float *w, uint8_t *out) {
    (void)w;
    memcpy(out, x, sizeof *x);
}
static void f16(const float *x, const float *w, uint8_t *out) {
    (void)w;
    mn_put_u16(out, mn_f32_to_f16(*x));
}
static void bf16(const float *x, const float *w, uint8_t *out) { /* to nearest even */
    (void)w;
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    mn_put_u16(out, (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16));
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */
void mn_put_nibbles(const uint8_t *q, uint8_t *out) {
    for (int i = 0; i < 16; i++) {
        out[i] = q[i] & 15;
        mn_put_bits(&out[i], q[16 + i] & 15, 4);
    }
}

/* The fifth bits of 32 codes. */
static void put_fifth(const uint8_t *q, uint8_t *out) {
    memset(out, 0, 4);
    for (int i = 0; i < 32; i++)
        mn_put_bits(&out[i / 8], q[i] >> 4 & 1, i % 8);
}

static void q8_0(const float *x, const float *w, uint8_t *out) {
    (void)w;
    const float top = fabsf(mn_extreme(x, 32));
    const float d = mn_put_half(out, top / 127);
    mn_round_affine(x, 32, d, 0, -127, 127, (int8_t *)out + 2);
}

/* Codes for the scale as it is stored: rounding to f16 may have moved it. */
static void symmetric(const float *x, const float *w, int bits, uint8_t *scale, uint8_t q[32]) {
    int8_t codes[32];
    const int lo = -(1 << (bits - 1));
    const int hi = -lo - 1;
    const float fitted = mn_fit_scale(x, w, 32, lo, hi);
    const float d = mn_put_half(scale, fitted);
    mn_round_affine(x, 32, d, 0, lo, hi, codes);
    for (int i = 0; i < 32; i++)
        q[i] = (uint8_t)(codes[i] - lo);
}

/* The same with an offset, which is stored behind the scale. */
static void offset(const float *x, const float *w, int bits, uint8_t *scale, uint8_t q[32]) {
    float m;
    const int hi = (1 << bits) - 1;
    const float d = mn_fit_affine(x, w, 32, hi, false, &m);
    const float stored = mn_put_half(scale, d);
    const float low = mn_put_half(scale + 2, m);
    mn_round_affine(x, 32, stored, low, 0, hi, (int8_t *)q);
}

static void q4_0(const float *x, const float *w, uint8_t *out) {
    uint8_t q[32];
    symmetric(x, w, 4, out, q);
    mn_put_nibbles(q, out + 2);
}
static void q5_0(const float *x, const float *w, uint8_t *out) {
    uint8_t q[32];
    symmetric(x, w, 5, out, q);
    put_fifth(q, out + 2);
    mn_put_nibbles(q, out + 6);
}
static void q4_1(const float *x, const float *w, uint8_t *out) {
    uint8_t q[32];
    offset(x, w, 4, out, q);
    mn_put_nibbles(q, out + 4);
}
static void q5_1(const float *x, const float *w, uint8_t *out) {
    uint8_t q[32];
    offset(x, w, 5, out, q);
    put_fifth(q, out + 4);
    mn_put_nibbles(q, out + 8);
}
static void iq4_nl(const float *x, const float *w, uint8_t *out) {
    uint8_t q[32];
    const float fitted = mn_fit_values(x, w, 32, mn_iq4_values);
    const float d = mn_put_half(out, fitted);
    const float inv = d != 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++)
        q[i] = mn_nearest_value(mn_iq4_values, x[i] * inv);
    mn_put_nibbles(q, out + 2);
}

/* E2M1 of v: the magnitudes 0 0.5 1 1.5 2 3 4 6 are codes 0 to 7, 8 is the sign. */
static uint8_t e2m1(float v) {
    static const float middle[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    const float a = fabsf(v);
    uint8_t q = 0;
    for (int i = 0; i < 7; i++)
        q = (uint8_t)(q + (a > middle[i]));
    if (q && v < 0)
        return q | 8;
    return q;
}

enum { E4M3_TOP = 126 }; /* 448; what follows is no number */
/* Twice the values of E2M1, ascending. */
static const int8_t e2m1_doubled[16] = {-12, -8, -6, -4, -3, -2, -1, 0, 0, 1, 2, 3, 4, 6, 8, 12};

/* The scale is a power of two: that of the largest value, or a neighbour. */
static void mxfp4(const float *x, const float *w, uint8_t *out) {
    const float top = fabsf(mn_extreme(x, 32));
    const int usual = top > 0 ? ilogbf(top) - 2 : 0;
    float least = INFINITY;
    int best = 0;
    for (int e = MN_MAX(usual - 1, -126); e <= MN_MIN(usual + 1, 125); e++) {
        const float d = ldexpf(0.5f, e);
        const float error = mn_values_error(x, w, 32, d, e2m1_doubled);
        if (error < least) {
            least = error;
            best = e;
        }
    }
    uint8_t q[32];
    for (int i = 0; i < 32; i++)
        q[i] = e2m1(x[i] * ldexpf(1, -best));
    out[0] = (uint8_t)(best + 127);
    mn_put_nibbles(q, out + 1);
}

/* The code of E4M3, without a sign, whose value is nearest to v >= 0. */
static int ue4m3_of(float v) {
    uint32_t bits;
    const int unbiased = 120 << 3; /* exponents of f32 less those of E4M3 */
    if (v < 0x1p-6f)
        return (int)lrintf(v * 0x1p9f);
    memcpy(&bits, &v, sizeof bits);
    const int code = (int)((bits + 0x80000u) >> 20) - unbiased;
    return MN_MIN(code, E4M3_TOP);
}

/* The scale of 16 values: about the one by which the largest becomes 6, below which values are cut
 * off, above which the others fit better. */
static uint8_t nvfp4_scale(const float *x, const float *w) {
    const int usual = ue4m3_of(fabsf(mn_extreme(x, 16)) / 6);
    float least = INFINITY;
    int best = 0;
    for (int c = MN_MAX(usual - 3, 0); c <= MN_MIN(usual + 5, E4M3_TOP); c++) {
        const float d = 0.5f * mn_ue4m3_to_f32((uint8_t)c);
        const float error = mn_values_error(x, w, 16, d, e2m1_doubled);
        if (error < least) {
            least = error;
            best = c;
        }
    }
    return (uint8_t)best;
}

static void nvfp4(const float *x, const float *w, uint8_t *out) {
    for (int i = 0; i < 4; i++, x += 16, w += 16) {
        out[i] = nvfp4_scale(x, w);
        const float d = mn_ue4m3_to_f32(out[i]);
        const float inv = d != 0 ? 1 / d : 0;
        uint8_t *codes = out + 4 + 8 * i;
        for (int k = 0; k < 8; k++) {
            codes[k] = e2m1(x[k] * inv);
            mn_put_bits(&codes[k], e2m1(x[k + 8] * inv), 4);
        }
    }
}

static const struct {
    uint32_t dtype;
    void (*block)(const float *x, const float *w, uint8_t *out);
} types[] = {
    {MN_F32, f32},
    {MN_F16, f16},
    {MN_BF16, bf16},
    {MN_Q8_0, q8_0},
    {MN_Q4_0, q4_0},
    {MN_Q4_1, q4_1},
    {MN_Q5_0, q5_0},
    {MN_Q5_1, q5_1},
    {MN_IQ4_NL, iq4_nl},
    {MN_MXFP4, mxfp4},
    {MN_NVFP4_64, nvfp4},
    {MN_Q2_K, mn_quant_q2_k},
    {MN_Q3_K, mn_quant_q3_k},
    {MN_Q4_K, mn_quant_q4_k},
    {MN_Q5_K, mn_quant_q5_k},
    {MN_Q6_K, mn_quant_q6_k},
    {MN_IQ4_XS, mn_quant_iq4_xs},
    {MN_IQ2_XXS, mn_quant_iq2_xxs},
    {MN_IQ2_XS, mn_quant_iq2_xs},
    {MN_IQ2_S, mn_quant_iq2_s},
    {MN_IQ3_XXS, mn_quant_iq3_xxs},
    {MN_IQ3_S, mn_quant_iq3_s},
    {MN_IQ1_S, mn_quant_iq1_s},
    {MN_IQ1_M, mn_quant_iq1_m},
    {MN_TQ1_0, mn_quant_tq1_0},
    {MN_TQ2_0, mn_quant_tq2_0},
};

bool mn_quant_has(uint32_t dtype) {
    for (size_t i = 0; i < MN_COUNT(types); i++)
        if (types[i].dtype == dtype)
            return true;
    return false;
}

/* The largest block of weights that are all 1. */
#define ONES16 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
#define ONES64 ONES16, ONES16, ONES16, ONES16
static const float ones[256] = {ONES64, ONES64, ONES64, ONES64};

void mn_quant_row(uint32_t dtype, const float *x, const float *w, int64_t n, uint8_t *out) {
    mn_dtype t;
    for (size_t i = 0; i < MN_COUNT(types); i++) {
        if (types[i].dtype != dtype || !mn_dtype_by_id(dtype, &t))
            continue;
        for (int64_t at = 0; at < n; at += t.block_elems) {
            types[i].block(x + at, w ? w + at : ones, out);
            out += t.block_bytes;
        }
        return;
    }
}
