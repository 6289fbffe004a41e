/* dequant_k.c -- blocks of 256 of the GGUF specification, with scales of their own quantised: Q2_K
 * to Q6_K, Q8_K, IQ4_XS. Sums with a minimum are rounded once, from double; the other products are
 * exact in f32. */
#include "dequant.h"
#include <string.h>

/* Element i of 256 codes of two bits: 32 bytes hold 128, the first 32 in the lowest bits. */
static int two_bits(const uint8_t *q, int i) {
    const uint8_t byte = q[i / 128 * 32 + i % 32];
    return byte >> 2 * (i / 32 % 4) & 3;
}

/* Element i of 256 codes of four bits: 32 bytes hold 64, the first 32 in the low nibbles. */
static int four_bits(const uint8_t *q, int i) {
    const uint8_t byte = q[i / 64 * 32 + i % 32];
    return byte >> 4 * (i / 32 % 2) & 15;
}

/* Element i of 256 codes of one bit: bit i / 32 of byte i % 32. */
static int one_bit(const uint8_t *q, int i) {
    return q[i % 32] >> (i / 32) & 1;
}

/* {u8 scale[16]; u8 q[64]; f16 d, dmin}: 16 groups of 16;
 * x = d (scale & 15) q - dmin (scale >> 4) */
void mn_dequant_q2_k(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        const double d = mn_half_at(p + 80);
        const double dmin = mn_half_at(p + 82);
        for (int i = 0; i < 256; i++) {
            const int scale = p[i / 16] & 15;
            const int min = p[i / 16] >> 4;
            const int q = two_bits(p + 16, i);
            out[i] = (float)(d * scale * q - dmin * min);
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
            const int q = two_bits(p + 32, i) | one_bit(p, i) << 2;
            const int scale = q3_scale(p + 96, i / 16);
            out[i] = d * (float)scale * (float)(q - 4);
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

/* Q4_K and Q5_K, x = d scale q - dmin min: {f16 d, dmin; u8 scale[12]; codes}, 8 groups of 32. The
 * low four bits of the codes begin at byte `low`, the fifth ones at byte `high`, 0: there are
 * none. */
static void four_or_five_bits(const mn_stored_row *row, int64_t n, int low, int high, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        const double d = mn_half_at(p);
        const double dmin = mn_half_at(p + 2);
        for (int i = 0; i < 256; i++) {
            int scale;
            int min;
            scale_min(p + 4, i / 32, &scale, &min);
            int q = four_bits(p + low, i);
            if (high)
                q |= one_bit(p + high, i) << 4;
            out[i] = (float)(d * scale * q - dmin * min);
        }
    }
}

/* {f16 d, dmin; u8 scale[12]; u8 q[128]} */
void mn_dequant_q4_k(const mn_stored_row *row, int64_t n, float *out) {
    four_or_five_bits(row, n, 16, 0, out);
}

/* {f16 d, dmin; u8 scale[12]; u8 high[32]; u8 q[128]} */
void mn_dequant_q5_k(const mn_stored_row *row, int64_t n, float *out) {
    four_or_five_bits(row, n, 48, 16, out);
}

/* {u8 low[128]; u8 high[64]; i8 scale[16]; f16 d}: x = d scale (q - 32); of 128 elements the first
 * 64 are low nibbles */
void mn_dequant_q6_k(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p + 208);
        for (int i = 0; i < 256; i++) {
            const int at = i % 128;
            const uint8_t byte = p[i / 128 * 64 + at % 64];
            const int low = byte >> 4 * (at / 64) & 15;
            const int q = low | two_bits(p + 128, i) << 4;
            const int8_t scale = (int8_t)p[192 + i / 16];
            out[i] = d * scale * (float)(q - 32);
        }
    }
}

/* {f32 d; i8 q[256]; i16 sums[16]}: x = d q; the sums serve products alone */
void mn_dequant_q8_k(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        float d;
        memcpy(&d, p, sizeof d);
        for (int i = 0; i < 256; i++) {
            const int8_t q = (int8_t)p[4 + i];
            out[i] = d * q;
        }
    }
}

/* {f16 d; u16 high; u8 low[4]; u8 q[128]}: 8 scales of 6 bits, x = d (s - 32) table[q] */
void mn_dequant_iq4_xs(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        const uint16_t highs = mn_u16_at(p + 2);
        for (int s = 0; s < 8; s++, out += 32) {
            const uint8_t *q = p + 8 + 16 * s;
            const int low = p[4 + s / 2] >> 4 * (s % 2) & 15;
            const int high = highs >> 2 * s & 3;
            const int scale = (low | high << 4) - 32;
            const float d = mn_half_at(p) * (float)scale;
            for (int i = 0; i < 16; i++) {
                out[i] = d * mn_iq4_values[q[i] & 15];
                out[16 + i] = d * mn_iq4_values[q[i] >> 4];
            }
        }
    }
}
