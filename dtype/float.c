/* float.c -- small floats and codes as f32. Formats: IEEE 754 binary16, bfloat16, OCP MX 1.0 (E2M1,
 * E8M0), OCP FP8 (E4M3 in its finite form). Pure arithmetic, no state. */
#include "dequant.h"
#include <math.h>
#include <string.h>

/* IQ4_NL and IQ4_XS, of the GGUF specification. */
const int8_t mn_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
const int8_t mn_e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

const float mn_nf4_values[16] = {-1,           -0.69619280f, -0.52507305f,  -0.39491749f,
                                 -0.28444138f, -0.18477343f, -0.091050036f, 0,
                                 0.07958030f,  0.16093020f,  0.24611230f,   0.33791524f,
                                 0.44070983f,  0.56261700f,  0.72295684f,   1};
/* Sixteen signed values of 0, 1/192, 1/6, 1/4, 1/3, 1/2, 2/3 and 1. */
const float mn_fp4_values[16] = {
    0, 0.0052083333f,  0.66666667f,  1,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    0, -0.0052083333f, -0.66666667f, -1, -0.33333333f, -0.5f, -0.16666667f, -0.25f};

static float f32_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float mn_f16_to_f32(uint16_t h) {
    const uint32_t sign = (h & 0x8000u) << 16;
    const uint32_t exponent = h >> 10 & 0x1Fu;
    const uint32_t mantissa = h & 0x3FFu;
    if (exponent == 0x1F)
        return f32_of_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent)
        return f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    const float f = (float)mantissa * 0x1p-24f; /* zero or subnormal: exact in f32 */
    return sign ? -f : f;
}

uint16_t mn_f32_to_f16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    bits &= 0x7FFFFFFFu;
    /* NaN stays one, made quiet */
    if (bits > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (bits >> 13 & 0x3FFu));
    /* rounds past 65504 */
    if (bits >= 0x477FF000u)
        return (uint16_t)(sign | 0x7C00u);
    /* subnormal in f16: adding 0.5 leaves units of 2^-24 in the low bits, rounded to even */
    if (bits < 0x38800000u) {
        const float shifted = f32_of_bits(bits) + 0.5f;
        memcpy(&bits, &shifted, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3F000000u));
    }
    /* to nearest even; a carry moves into the exponent as it should */
    bits += 0xFFFu + (bits >> 13 & 1u);
    return (uint16_t)(sign | ((bits >> 13) - (112u << 10)));
}

float mn_bf16_to_f32(uint16_t h) {
    return f32_of_bits((uint32_t)h << 16);
}

float mn_e2m1_to_f32(uint32_t nibble) {
    return 0.5f * (float)mn_e2m1_doubled[nibble & 15];
}

float mn_e8m0_to_f32(uint8_t e) {
    return e == 255 ? NAN : ldexpf(1, (int)e - 127);
}

/* Exponent and mantissa in the place of an f32's; the biases differ by 120. Subnormals come out
 * right, too. */
float mn_e4m3_to_f32(uint8_t b) {
    const uint32_t size = b & 127u;
    const float x = size == 127 ? NAN : f32_of_bits(size << 20) * 0x1p120f;
    return b & 128 ? -x : x;
}

float mn_ue4m3_to_f32(uint8_t b) {
    if (b == 127)
        return 0;
    return f32_of_bits((b & 127u) << 20) * 0x1p120f;
}

float mn_plane_value(uint32_t dtype, const uint8_t *p) {
    float f;
    switch (dtype) {
    case MN_U8:
        return mn_e8m0_to_f32(*p);
    case MN_F8_E4M3:
        return mn_e4m3_to_f32(*p);
    case MN_F16:
        return mn_half_at(p);
    case MN_BF16:
        return mn_bf16_to_f32(mn_u16_at(p));
    default:
        memcpy(&f, p, sizeof f);
        return f;
    }
}

uint32_t mn_mlx_bits(uint32_t dtype) {
    static const uint32_t bits[] = {2, 3, 4, 6, 8, 5}; /* with groups of 32, 64, 128 each */
    if (dtype < MN_MLX2_32 || dtype > MN_MLX5_128)
        return 0;
    return bits[(dtype - MN_MLX2_32) / 3];
}

uint32_t mn_bit_stream(const uint8_t *p, int64_t i, uint32_t bits) {
    const uint64_t at = (uint64_t)i * bits;
    const uint32_t shift = at % 8;
    const uint32_t mask = (1u << bits) - 1;
    uint32_t v = p[at / 8];
    if (shift + bits > 8)
        v |= (uint32_t)p[at / 8 + 1] << 8;
    return v >> shift & mask;
}
