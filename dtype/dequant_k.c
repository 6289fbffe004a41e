/* dequant_k.c -- blocks of 256 of the GGUF specification, with scales of their own quantised: Q2_K
 * to Q6_K, Q8_K, IQ4_XS. Sums with a minimum are rounded once, from double; the other products are
 * exact in f32. */
#include "dequant.h"
#include <string.h>

/* {u8 scale[16]; u8 q[64]; f16 d, dmin}: 16 groups of 16;
 * x = d (scale & 15) q - dmin (scale >> 4) */
void mn_dequant_q2_k(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        const double d = (double)mn_half_at(p + 80);
        const double dmin = (double)mn_half_at(p + 82);
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
    const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
    const int high = s[8 + i % 4] >> 2 * (i / 4) & 3;
    return (low | high << 4) - 32;
}

/* {u8 high[32]; u8 q[64]; u8 scale[12]; f16 d}: x = d scale (q - (high bit set ? 0 : 4)) */
void mn_dequant_q3_k(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p + 108);
        for (int i = 0; i < 256; i++) {
            const int q = p[32 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
            const int high = p[i % 32] >> (i / 32) & 1;
            out[i] = d * (float)q3_scale(p + 96, i / 16) * (float)(q - (high ? 0 : 4));
        }
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

/* {f16 d, dmin; u8 scale[12]; u8 q[128]}: 8 groups of 32, two to 32 bytes;
 * x = d scale q - dmin min */
void mn_dequant_q4_k(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        const double d = (double)mn_half_at(p);
        const double dmin = (double)mn_half_at(p + 2);
        for (int i = 0; i < 256; i++) {
            int scale;
            int min;
            scale_min(p + 4, i / 32, &scale, &min);
            const int q = p[16 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
            out[i] = (float)(d * scale * q - dmin * min);
        }
    }
}

/* {f16 d, dmin; u8 scale[12]; u8 high[32]; u8 q[128]}: as Q4_K with a fifth bit, bit i/32 of
 * high[i % 32] */
void mn_dequant_q5_k(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        const double d = (double)mn_half_at(p);
        const double dmin = (double)mn_half_at(p + 2);
        for (int i = 0; i < 256; i++) {
            int scale;
            int min;
            scale_min(p + 4, i / 32, &scale, &min);
            const int low = p[48 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
            const int high = p[16 + i % 32] >> (i / 32) & 1;
            out[i] = (float)(d * scale * (low | high << 4) - dmin * min);
        }
    }
}

/* {u8 low[128]; u8 high[64]; i8 scale[16]; f16 d}: x = d scale (q - 32); of 128 elements the first
 * 64 are low nibbles */
void mn_dequant_q6_k(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p + 208);
        for (int i = 0; i < 256; i++) {
            const int at = i % 128;
            const int low = p[i / 128 * 64 + at % 64] >> 4 * (at / 64) & 15;
            const int high = p[128 + i / 128 * 32 + at % 32] >> 2 * (at / 32) & 3;
            out[i] = d * (float)(int8_t)p[192 + i / 16] * (float)((low | high << 4) - 32);
        }
    }
}

/* {f32 d; i8 q[256]; i16 sums[16]}: x = d q; the sums serve products alone */
void mn_dequant_q8_k(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        float d;
        memcpy(&d, p, sizeof d);
        for (int i = 0; i < 256; i++)
            out[i] = d * (float)(int8_t)p[4 + i];
    }
}

/* {f16 d; u16 high; u8 low[4]; u8 q[128]}: 8 scales of 6 bits, x = d (s - 32) table[q] */
void mn_dequant_iq4_xs(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        for (int s = 0; s < 8; s++, out += 32) {
            const uint8_t *q = p + 8 + 16 * s;
            const int low = p[4 + s / 2] >> 4 * (s % 2) & 15;
            const int high = mn_u16_at(p + 2) >> 2 * s & 3;
            const float d = mn_half_at(p) * (float)((low | high << 4) - 32);
            for (int i = 0; i < 16; i++) {
                out[i] = d * (float)mn_iq4_values[q[i] & 15];
                out[16 + i] = d * (float)mn_iq4_values[q[i] >> 4];
            }
        }
    }
}
