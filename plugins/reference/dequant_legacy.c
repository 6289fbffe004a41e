/* dequant_legacy.c -- blocks of 32: Q4_1, Q5_0, Q5_1, Q8_1, IQ4_NL, MXFP4, and F8_E5M2. Element i <
 * 16 is the low nibble of byte i, element 16 + i the high one. */
#include "reference.h"
#include <math.h>
#include <string.h>

/* {f16 d, m; u8 q[16]}: x = d q + m */
void ref_q4_1(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, p += 20, out += 32) {
        const double d = (double)ref_f16_to_f32(ref_u16(p)),
                     m = (double)ref_f16_to_f32(ref_u16(p + 2));
        for (int i = 0; i < 16; i++) {
            out[i] = (float)(d * (p[4 + i] & 15) + m);
            out[16 + i] = (float)(d * (p[4 + i] >> 4) + m);
        }
    }
}

/* Nibbles with a fifth bit each: bit i of high belongs to element i. */
static int five(const uint8_t *q, uint32_t high, int i) {
    return (i < 16 ? q[i] & 15 : q[i - 16] >> 4) | (int)(high >> i & 1) << 4;
}

static uint32_t u32(const uint8_t *p) {
    return (uint32_t)ref_u16(p) | (uint32_t)ref_u16(p + 2) << 16;
}

/* {f16 d; u32 high; u8 q[16]}: x = d (q - 16) */
void ref_q5_0(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, p += 22, out += 32)
        for (int i = 0; i < 32; i++)
            out[i] = ref_f16_to_f32(ref_u16(p)) * (float)(five(p + 6, u32(p + 2), i) - 16);
}

/* {f16 d, m; u32 high; u8 q[16]}: x = d q + m */
void ref_q5_1(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, p += 24, out += 32) {
        const double d = (double)ref_f16_to_f32(ref_u16(p)),
                     m = (double)ref_f16_to_f32(ref_u16(p + 2));
        for (int i = 0; i < 32; i++)
            out[i] = (float)(d * five(p + 8, u32(p + 4), i) + m);
    }
}

/* {f16 d, s; i8 q[32]}: x = d q; s = d * sum of q serves products alone */
void ref_q8_1(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, p += 36, out += 32)
        for (int i = 0; i < 32; i++)
            out[i] = ref_f16_to_f32(ref_u16(p)) * (float)(int8_t)p[4 + i];
}

static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

/* {f16 d; u8 q[16]}: x = d table[q] */
void ref_iq4_nl(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, p += 18, out += 32)
        for (int i = 0; i < 16; i++) {
            out[i] = ref_f16_to_f32(ref_u16(p)) * (float)iq4[p[2 + i] & 15];
            out[16 + i] = ref_f16_to_f32(ref_u16(p)) * (float)iq4[p[2 + i] >> 4];
        }
}

/* 256: {f16 d; u16 high; u8 low[4]; u8 q[128]}: 8 scales of 6 bits, x = d (s - 32) table[q] */
void ref_iq4_xs(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, p += 136)
        for (int s = 0; s < 8; s++, out += 32) {
            const int scale = (p[4 + s / 2] >> 4 * (s % 2) & 15) | (ref_u16(p + 2) >> 2 * s & 3)
                                                                       << 4;
            const float d = ref_f16_to_f32(ref_u16(p)) * (float)(scale - 32);
            for (int i = 0; i < 16; i++) {
                out[i] = d * (float)iq4[p[8 + 16 * s + i] & 15];
                out[16 + i] = d * (float)iq4[p[8 + 16 * s + i] >> 4];
            }
        }
}

float ref_e2m1(uint32_t nibble) {
    static const float value[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return nibble & 8 ? -value[nibble & 7] : value[nibble & 7];
}

float ref_e8m0(uint8_t e) {
    return e == 255 ? NAN : ldexpf(1, (int)e - 127);
}

/* {u8 e; u8 q[16]}: x = 2^(e - 127) e2m1(q) */
void ref_mxfp4(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, p += 17, out += 32)
        for (int i = 0; i < 16; i++) {
            out[i] = ref_e8m0(p[0]) * ref_e2m1(p[1 + i] & 15);
            out[16 + i] = ref_e8m0(p[0]) * ref_e2m1(p[1 + i] >> 4);
        }
}

/* The high byte of an f16. */
void ref_f8_e5m2(const uint8_t *p, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = ref_f16_to_f32((uint16_t)(p[i] << 8));
}
