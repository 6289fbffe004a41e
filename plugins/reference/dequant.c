/* dequant.c -- weight types: the table, and the plain ones. A new one is a function and a row.
 * Layouts are those of the GGUF specification (ggml), a block at a time; values in f32, exact where
 * product and sum fit, else rounded once from double. */
#include "reference.h"
#include <string.h>

float ref_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 1023, bits;
    float f;
    if (e == 0) { /* zero or subnormal: m * 2^-24 */
        f = (float)m * 0x1p-24f;
        memcpy(&bits, &f, 4);
    } else
        bits = e == 31 ? 0x7f800000u | m << 13 : (e + 112) << 23 | m << 13;
    bits |= sign;
    memcpy(&f, &bits, 4);
    return f;
}

uint16_t ref_f32_to_f16(float f) {
    uint32_t x;
    memcpy(&x, &f, 4);
    uint32_t sign = x >> 16 & 0x8000u, a = x & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u); /* 65520 and above round to infinity */
    if (a < 0x33000001u)
        return (uint16_t)sign; /* up to 2^-25 rounds to zero */
    uint32_t e = a >> 23, m = (a & 0x7fffffu) | 0x800000u, shift = e < 113 ? 126 - e : 13;
    uint32_t half = m >> shift, rest = m & ((1u << shift) - 1), mid = 1u << (shift - 1);
    half += rest > mid || (rest == mid && (half & 1));
    return (uint16_t)(sign | (e < 113 ? half : half + ((e - 113) << 10)));
}

static void f32(const uint8_t *p, int64_t n, float *out) {
    memcpy(out, p, (size_t)n * 4);
}
static void f16(const uint8_t *p, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = ref_f16_to_f32(ref_u16(p + 2 * i));
}
static void bf16(const uint8_t *p, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)ref_u16(p + 2 * i) << 16;
        memcpy(&out[i], &bits, 4);
    }
}
static void q8_0(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, p += 34)
        for (int i = 0; i < 32; i++)
            out[32 * b + i] = ref_f16_to_f32(ref_u16(p)) * (float)(int8_t)p[2 + i];
}
static void q4_0(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, p += 18)
        for (int i = 0; i < 16; i++) {
            out[32 * b + i] = ref_f16_to_f32(ref_u16(p)) * (float)((p[2 + i] & 15) - 8);
            out[32 * b + 16 + i] = ref_f16_to_f32(ref_u16(p)) * (float)((p[2 + i] >> 4) - 8);
        }
}

/* Types with several planes have one function for all, in dequant_planes.c. */
static const struct {
    uint32_t dtype;
    void (*fn)(const uint8_t *, int64_t, float *);
} types[] = {
    {MN_F32, f32},
    {MN_F16, f16},
    {MN_BF16, bf16},
    {MN_Q8_0, q8_0},
    {MN_Q4_0, q4_0},
    {MN_Q4_1, ref_q4_1},
    {MN_Q5_0, ref_q5_0},
    {MN_Q5_1, ref_q5_1},
    {MN_Q8_1, ref_q8_1},
    {MN_Q2_K, ref_q2_k},
    {MN_Q3_K, ref_q3_k},
    {MN_Q4_K, ref_q4_k},
    {MN_Q5_K, ref_q5_k},
    {MN_Q6_K, ref_q6_k},
    {MN_Q8_K, ref_q8_k},
    {MN_MXFP4, ref_mxfp4},
    {MN_IQ4_NL, ref_iq4_nl},
    {MN_IQ4_XS, ref_iq4_xs},
    {MN_F8_E5M2, ref_f8_e5m2},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

bool ref_has_type(uint32_t dtype) {
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == dtype)
            return true;
    return ref_has_planes_type(dtype);
}

void ref_row(const mnc_weight *w, int64_t row, float *out) {
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == w->dtype.id) {
            types[i].fn(mnc_row(w, row), w->cols, out);
            return;
        }
    ref_planes_row(w, row, out);
}
