/* dequant_32.c -- blocks of 32 of the GGUF specification: Q4_0 to Q8_1, IQ4_NL, MXFP4. Of nibbles
 * element i < 16 is the low one of byte i, element 16 + i the high one. Products with an f16 scale
 * are exact in f32; sums with a minimum are rounded once, from double. */
#include "dequant.h"

static int nibble(const uint8_t *q, int i) {
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

/* The fifth bit of element i: bit i of 32. */
static int fifth(const uint8_t *high, int i) {
    return (high[i / 8] >> i % 8 & 1) << 4;
}

/* {f16 d; u8 q[16]}: x = d (q - 8) */
void mn_dequant_q4_0(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, out += 32) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p);
        for (int i = 0; i < 32; i++) {
            const int q = nibble(p + 2, i) - 8;
            out[i] = d * (float)q;
        }
    }
}

/* {f16 d, m; u8 q[16]}: x = d q + m */
void mn_dequant_q4_1(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, out += 32) {
        const uint8_t *p = mn_block(row, b);
        const double d = mn_half_at(p);
        const double m = mn_half_at(p + 2);
        for (int i = 0; i < 32; i++) {
            const int q = nibble(p + 4, i);
            out[i] = (float)(d * q + m);
        }
    }
}

/* {f16 d; u32 high; u8 q[16]}: x = d (q - 16) */
void mn_dequant_q5_0(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, out += 32) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p);
        for (int i = 0; i < 32; i++) {
            const int q = nibble(p + 6, i) | fifth(p + 2, i);
            out[i] = d * (float)(q - 16);
        }
    }
}

/* {f16 d, m; u32 high; u8 q[16]}: x = d q + m */
void mn_dequant_q5_1(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, out += 32) {
        const uint8_t *p = mn_block(row, b);
        const double d = mn_half_at(p);
        const double m = mn_half_at(p + 2);
        for (int i = 0; i < 32; i++) {
            const int q = nibble(p + 8, i) | fifth(p + 4, i);
            out[i] = (float)(d * q + m);
        }
    }
}

/* x = d q: f16 d in front, the codes are bytes from `first` on. */
static void bytes(const mn_stored_row *row, int64_t n, int first, float *out) {
    for (int64_t b = 0; b < n / 32; b++, out += 32) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p);
        for (int i = 0; i < 32; i++) {
            const int8_t q = (int8_t)p[first + i];
            out[i] = d * q;
        }
    }
}

/* {f16 d; i8 q[32]} */
void mn_dequant_q8_0(const mn_stored_row *row, int64_t n, float *out) {
    bytes(row, n, 2, out);
}

/* {f16 d, s; i8 q[32]}; s = d * sum of q serves products alone */
void mn_dequant_q8_1(const mn_stored_row *row, int64_t n, float *out) {
    bytes(row, n, 4, out);
}

/* {f16 d; u8 q[16]}: x = d table[q] */
void mn_dequant_iq4_nl(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, out += 32) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p);
        for (int i = 0; i < 32; i++) {
            const int q = nibble(p + 2, i);
            out[i] = d * mn_iq4_values[q];
        }
    }
}

/* {u8 e; u8 q[16]}: x = 2^(e - 127) e2m1(q) */
void mn_dequant_mxfp4(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 32; b++, out += 32) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_e8m0_to_f32(p[0]);
        for (int i = 0; i < 32; i++) {
            const int q = nibble(p + 1, i);
            out[i] = d * mn_e2m1_to_f32((uint32_t)q);
        }
    }
}
