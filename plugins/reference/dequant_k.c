/* dequant_k.c -- blocks of 256 with scales of their own quantised: Q2_K to Q6_K, Q8_K. */
#include "reference.h"
#include <string.h>

static float half(const uint8_t *p) {
    return ref_f16_to_f32(ref_u16(p));
}

/* {u8 scale[16]; u8 q[64]; f16 d, dmin}: 16 groups of 16; x = d (scale & 15) q - dmin (scale >>
 * 4) */
void ref_q2_k(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, p += 84, out += 256) {
        const double d = (double)half(p + 80), dmin = (double)half(p + 82);
        for (int i = 0; i < 256; i++) {
            const uint8_t scale = p[i / 16];
            const int q = p[16 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
            out[i] = (float)(d * (scale & 15) * q - dmin * (scale >> 4));
        }
    }
}

/* The 16 scales of 6 bits in 12 bytes: low four bits in the first eight, high two in the last
 * four. */
static int q3_scale(const uint8_t *s, int i) {
    return ((i < 8 ? s[i] & 15 : s[i - 8] >> 4) | (s[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
}

/* {u8 high[32]; u8 q[64]; u8 scale[12]; f16 d}: x = d scale (q - (high bit set ? 0 : 4)) */
void ref_q3_k(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, p += 110, out += 256)
        for (int i = 0; i < 256; i++) {
            const int q = p[32 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
            const int high = p[i % 32] >> (i / 32) & 1;
            out[i] = half(p + 108) * (float)q3_scale(p + 96, i / 16) * (float)(q - (high ? 0 : 4));
        }
}

/* Scale and minimum j of 8, 6 bits each, in 12 bytes. */
static void scale_min(const uint8_t *s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        *min = s[j + 4] >> 4 | s[j] >> 6 << 4;
    }
}

/* {f16 d, dmin; u8 scale[12]; u8 q[128]}: 8 groups of 32, two to 32 bytes; x = d scale q - dmin
 * min */
void ref_q4_k(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, p += 144, out += 256)
        for (int i = 0; i < 256; i++) {
            int scale, min;
            scale_min(p + 4, i / 32, &scale, &min);
            const int q = p[16 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
            out[i] = (float)((double)half(p) * scale * q - (double)half(p + 2) * min);
        }
}

/* {f16 d, dmin; u8 scale[12]; u8 high[32]; u8 q[128]}: as Q4_K with a fifth bit, bit i/32 of high[i
 * % 32] */
void ref_q5_k(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, p += 176, out += 256)
        for (int i = 0; i < 256; i++) {
            int scale, min;
            scale_min(p + 4, i / 32, &scale, &min);
            const int q = (p[48 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15) |
                          (p[16 + i % 32] >> (i / 32) & 1) << 4;
            out[i] = (float)((double)half(p) * scale * q - (double)half(p + 2) * min);
        }
}

/* {u8 low[128]; u8 high[64]; i8 scale[16]; f16 d}: x = d scale (q - 32); of 128 elements the first
 * 64 are low nibbles */
void ref_q6_k(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, p += 210, out += 256)
        for (int i = 0; i < 256; i++) {
            const int at = i % 128, low = p[i / 128 * 64 + at % 64] >> 4 * (at / 64) & 15;
            const int high = p[128 + i / 128 * 32 + at % 32] >> 2 * (at / 32) & 3;
            out[i] =
                half(p + 208) * (float)(int8_t)p[192 + i / 16] * (float)((low | high << 4) - 32);
        }
}

/* {f32 d; i8 q[256]; i16 sums[16]}: x = d q; the sums serve products alone */
void ref_q8_k(const uint8_t *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, p += 292, out += 256) {
        float d;
        memcpy(&d, p, sizeof d);
        for (int i = 0; i < 256; i++)
            out[i] = d * (float)(int8_t)p[4 + i];
    }
}
