/* dequant_iq.c -- blocks of 256 of the GGUF specification with few bits: the IQ types, whose codes
 * are indices of a codebook (grids.h), and the ternary TQ1_0 and TQ2_0. All products are exact in
 * f32. */
#include "dequant.h"

/* What the elements of a codebook's entry stand for. */
static const uint8_t iq2_values[4] = {8, 25, 43};
static const uint8_t iq3_xxs_values[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const uint8_t iq3_s_values[8] = {1, 3, 5, 7, 9, 11, 13, 15};

static uint32_t u32_at(const uint8_t *p) {
    return mn_u16_at(p) | (uint32_t)mn_u16_at(p + 2) << 16;
}

/* Eight signs of which seven are stored: the number of negative ones is even. */
static uint32_t eight_signs(uint32_t seven) {
    seven &= 127;
    return seven | (uint32_t)__builtin_parity(seven) << 7;
}

/* n elements of `bits` bits, the first of them i: out = d * value, negative where signs has bit
 * i. */
static void put_signed(uint32_t entry, uint32_t bits, const uint8_t *values, uint32_t signs, int n,
                       float d, float *out) {
    const uint32_t mask = (1u << bits) - 1;
    for (int i = 0; i < n; i++, entry >>= bits) {
        const float x = values[entry & mask & 7];
        out[i] = d * (signs >> i & 1 ? -x : x);
    }
}
static void put_iq2(uint32_t entry, uint32_t signs, float d, float *out) {
    put_signed(entry, 2, iq2_values, signs, 8, d, out);
}
/* Two entries of four. */
static void put_iq3(const uint32_t entry[2], const uint8_t *values, uint32_t signs, float d,
                    float *out) {
    put_signed(entry[0], 4, values, signs, 4, d, out);
    put_signed(entry[1], 4, values, signs >> 4, 4, d, out + 4);
}

/* {f16 d; {u8 q[4]; u32 s} [8]}: of 32 elements, s has signs of 7 bits for each 8, then a scale of
 * 4 bits; x = d (2 scale + 1) / 8 * value */
void mn_dequant_iq2_xxs(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        for (int i = 0; i < 32; i++, out += 8) {
            const uint8_t *q = p + 2 + 8 * (i / 4);
            const uint32_t s = u32_at(q + 4);
            const float d = mn_half_at(p) * (float)(2 * (s >> 28) + 1) / 8;
            put_iq2(mn_grid_iq2_xxs[q[i % 4]], eight_signs(s >> 7 * (i % 4)), d, out);
        }
    }
}

/* d times scale i of 4 bits, which belongs to 16 elements. */
static float iq2_scale(float d, const uint8_t *scales, int i) {
    const int scale = scales[i / 2] >> 4 * (i % 2) & 15;
    return d * (float)(2 * scale + 1) / 8;
}

/* {f16 d; u16 q[32]; u8 scale[8]}: q: 9 bits of an index, 7 of signs */
void mn_dequant_iq2_xs(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        for (int i = 0; i < 32; i++, out += 8) {
            const uint32_t q = mn_u16_at(p + 2 + 2 * i);
            const float d = iq2_scale(mn_half_at(p), p + 66, i / 2);
            put_iq2(mn_grid_iq2_xs[q & 511], eight_signs(q >> 9), d, out);
        }
    }
}

/* {f16 d; u8 q[32]; u8 sign[32]; u8 high[8]; u8 scale[8]}: high: two bits of each index */
void mn_dequant_iq2_s(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        for (int i = 0; i < 32; i++, out += 8) {
            const int high = p[66 + i / 4] >> 2 * (i % 4) & 3;
            const float d = iq2_scale(mn_half_at(p), p + 74, i / 2);
            put_iq2(mn_grid_iq2_s[p[2 + i] | high << 8], p[34 + i], d, out);
        }
    }
}

/* {f16 d; u8 q[64]; u32 s[8]}: s as in IQ2_XXS; x = d (2 scale + 1) / 4 * value */
void mn_dequant_iq3_xxs(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        for (int i = 0; i < 32; i++, out += 8) {
            const uint8_t *q = p + 2 + 2 * i;
            const uint32_t s = u32_at(p + 66 + 4 * (i / 4));
            const float d = mn_half_at(p) * (float)(2 * (s >> 28) + 1) / 4;
            const uint32_t entry[2] = {mn_grid_iq3_xxs[q[0]], mn_grid_iq3_xxs[q[1]]};
            put_iq3(entry, iq3_xxs_values, eight_signs(s >> 7 * (i % 4)), d, out);
        }
    }
}

/* {f16 d; u8 q[64]; u8 high[8]; u8 sign[32]; u8 scale[4]}: high: a bit of each index; scales of 4
 * bits for 32 elements; x = d (2 scale + 1) value */
void mn_dequant_iq3_s(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        for (int i = 0; i < 32; i++, out += 8) {
            const uint8_t *q = p + 2 + 2 * i;
            const int high = p[66 + i / 4] >> 2 * (i % 4);
            const int scale = p[106 + i / 8] >> 4 * (i / 4 % 2) & 15;
            const float d = mn_half_at(p) * (float)(2 * scale + 1);
            const uint32_t entry[2] = {mn_grid_iq3_s[q[0] | (high & 1) << 8],
                                       mn_grid_iq3_s[q[1] | (high >> 1 & 1) << 8]};
            put_iq3(entry, iq3_s_values, p[74 + i], d, out);
        }
    }
}

/* x = d (element - 1 + 1/8), or - 1/8 where `less`. */
static void put_iq1(uint32_t entry, bool less, float d, float *out) {
    const float delta = less ? -0.125f : 0.125f;
    for (int i = 0; i < 8; i++, entry >>= 2) {
        const int element = (int)(entry & 3) - 1;
        out[i] = d * ((float)element + delta);
    }
}

/* {f16 d; u8 q[32]; u16 high[8]}: high of 32 elements: 3 bits for each index, 3 of a scale, one
 * that says `less`; put_iq1 with d (2 scale + 1) */
void mn_dequant_iq1_s(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        for (int i = 0; i < 32; i++, out += 8) {
            const int high = mn_u16_at(p + 34 + 2 * (i / 4));
            const int upper = high >> 3 * (i % 4) & 7;
            const float d = mn_half_at(p) * (float)(2 * (high >> 12 & 7) + 1);
            put_iq1(mn_grid_iq1[p[2 + i] | upper << 8], high >> 15, d, out);
        }
    }
}

/* {u8 q[32]; u8 high[16]; u16 scale[4]}: high: a nibble for each index, three bits of it and
 * `less`; a scale: 3 bits for each 16 of 64 elements, then a fourth of the f16 d */
void mn_dequant_iq1_m(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        uint32_t bits = 0;
        for (int i = 0; i < 4; i++)
            bits |= (uint32_t)mn_u16_at(p + 48 + 2 * i) >> 12 << 4 * i;
        const float whole = mn_f16_to_f32((uint16_t)bits);
        for (int i = 0; i < 32; i++, out += 8) {
            const int high = p[32 + i / 2] >> 4 * (i % 2) & 15;
            const int scale = mn_u16_at(p + 48 + 2 * (i / 8)) >> 3 * (i / 2 % 4) & 7;
            const float d = whole * (float)(2 * scale + 1);
            put_iq1(mn_grid_iq1[p[i] | (high & 7) << 8], high >> 3, d, out);
        }
    }
}

/* Digit i of five digits to the base 3 in a byte, the first of which is 256 / 3 times as much. */
static int ternary(uint8_t byte, int i) {
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    const uint8_t left = (uint8_t)(byte * powers[i]);
    return left * 3 >> 8;
}

/* {u8 q[48]; u8 last[4]; f16 d}: x = d (digit - 1): digit i of 32 bytes, then of 16, for i < 5; of
 * the last four bytes for i < 4 */
void mn_dequant_tq1_0(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p + 52);
        for (int i = 0; i < 160; i++)
            *out++ = d * (float)(ternary(p[i % 32], i / 32) - 1);
        for (int i = 0; i < 80; i++)
            *out++ = d * (float)(ternary(p[32 + i % 16], i / 16) - 1);
        for (int i = 0; i < 16; i++)
            *out++ = d * (float)(ternary(p[48 + i % 4], i / 4) - 1);
    }
}

/* {u8 q[64]; f16 d}: x = d (q - 1), codes of two bits in the order of Q2_K's */
void mn_dequant_tq2_0(const mn_stored_row *row, int64_t n, float *out) {
    for (int64_t b = 0; b < n / 256; b++, out += 256) {
        const uint8_t *p = mn_block(row, b);
        const float d = mn_half_at(p + 64);
        for (int i = 0; i < 256; i++) {
            const uint8_t byte = p[i / 128 * 32 + i % 32];
            const int q = byte >> 2 * (i / 32 % 4) & 3;
            out[i] = d * (float)(q - 1);
        }
    }
}
