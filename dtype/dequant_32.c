/* dequant_32.c -- blocks of 32 to 128 of the GGUF specification: Q4_0 to Q8_1, IQ4_NL, MXFP4, and
 * NVFP4_64, Q2_0, Q1_0 of llama.cpp's ggml-common.h. Of nibbles
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

/* {f16 d; u8 bits[16]}: x = d (2 bit - 1), bit i % 8 of byte i / 8 */
void mn_dequant_q1_0(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 128; b++, out += 128) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p);
        for (int i = 0; i < 128; i++) {
            const uint32_t bit = mn_bit_stream(p + 2, i, 1);
            if (bit)
                out[i] = d;
            else
                out[i] = -d;
        }
    }
}

/* {f16 d; u8 q[16]}: x = d (q - 1), a stream of 2 bits */
void mn_dequant_q2_0(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 64; b++, out += 64) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p);
        for (int i = 0; i < 64; i++) {
            const int q = (int)mn_bit_stream(p + 2, i, 2);
            out[i] = d * (float)(q - 1);
        }
    }
}

/* {u8 d[4]; u8 q[32]}: x = tensor_scale ue4m3(d) e2m1(q); of 16 elements with one d the first 8
 * are the low nibbles of 8 bytes. Rounded once, where there is a tensor_scale. */
void mn_dequant_nvfp4_64(const mn_stored_row *row, int64_t n, float *out) {
    const mn_plane_row *whole = &row->plane[MN_PLANE_TENSOR_SCALE - 1];
    double tensor_scale = 1;
    if (whole->at)
        tensor_scale = mn_plane_value(MN_F32, whole->at);
    for (int64_t b = 0; b < n / 64; b++, out += 64) {
        const uint8_t *p = mn_block(row, b);
        for (int i = 0; i < 64; i++) {
            const int group = i / 16;
            const float d = mn_ue4m3_to_f32(p[group]);
            const uint32_t byte = p[4 + 8 * group + i % 8];
            const uint32_t shift = i % 16 < 8 ? 0 : 4;
            const int q = mn_e2m1_doubled[byte >> shift & 15];
            out[i] = (float)(tensor_scale * d * (0.5 * q));
        }
    }
}
