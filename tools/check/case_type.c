/* case_type.c -- numbers of cases: noise, quantisers of five types, random blocks of every
 * weight type that are valid (bounded scales, no NaN, no Inf). Half floats are converted by
 * arithmetic, not by the bit operations that plugins use, so that a mistake is not made twice.
 * No state: the caller passes the seed and owns all memory. */
#include "case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

mn_dtype case_dtype(uint32_t id) {
    mn_dtype t = {0, 1, 1, 1};
    mn_dtype_by_id(id, &t);
    return t;
}

bool case_is_weight_type(uint32_t id) {
    return mn_dtype_is_weight(id) && id != MN_F64;
}

double case_rel_l2(const float *got, const float *want, int64_t n) {
    double diff = 0;
    double norm = 0;
    for (int64_t i = 0; i < n; i++) {
        const double w = want[i];
        const double d = (double)got[i] - w;
        if (got[i] != want[i]) // equal infinities: their difference is NaN
            diff += d * d;
        if (isfinite(w))
            norm += w * w;
    }
    if (isnan(diff))
        return (double)INFINITY;
    if (norm > 0)
        return sqrt(diff / norm);
    return sqrt(diff);
}

uint64_t case_plane_bytes(uint32_t dtype, int64_t n) {
    mn_dtype t = case_dtype(dtype);
    return (uint64_t)n / t.block_elems * t.block_bytes;
}

static uint16_t to_f16(float f) {
    uint16_t sign = 0;
    if (signbit(f))
        sign = 0x8000;
    int e;
    const float a = fabsf(f);
    if (a == 0)
        return sign;
    frexpf(a, &e); // a = m * 2^e, m in [0.5, 1)
    if (e < -13) { // subnormal
        const float m = nearbyintf(ldexpf(a, 24));
        return (uint16_t)(sign | (uint16_t)m);
    }
    float m = nearbyintf(ldexpf(a, 11 - e)); // [1024, 2048]
    if (m == 2048) {
        m = 1024;
        e++;
    }
    if (e > 16)
        return (uint16_t)(sign | 0x7c00);
    const uint16_t exponent = (uint16_t)((e + 14) << 10);
    return (uint16_t)(sign | exponent | ((uint16_t)m & 1023));
}

static float case_type_from_f16(uint16_t h) {
    const int e = h >> 10 & 31;
    const int m = h & 1023;
    float a = ldexpf((float)(m + 1024), e - 25);
    if (e == 0)
        a = ldexpf((float)m, -24);
    else if (e == 31)
        a = m ? NAN : INFINITY;
    if (h & 0x8000)
        return -a;
    return a;
}

static uint16_t to_bf16(float f) { // truncates
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)(bits >> 16);
}

static float case_type_from_bf16(uint16_t h) { // finite numbers
    const int e = h >> 7 & 255;
    const int m = e ? (h & 127) + 128 : h & 127;
    const float a = ldexpf((float)m, (e ? e : 1) - 134);
    if (h & 0x8000)
        return -a;
    return a;
}

/* The integer nearest to x in [lo, hi]. */
static int case_type_nearest(float x, int lo, int hi) {
    return (int)fmaxf((float)lo, fminf((float)hi, nearbyintf(x)));
}

/* A block of Q8_0 or Q4_0: a scale d in f16, then 32 numbers; Q4_0 has number 16 + i in the
 * upper half of byte i. */
static void quantise_block(uint32_t dtype, const float *x, uint8_t *out) {
    float max = 0;
    for (int i = 0; i < 32; i++)
        max = fmaxf(max, fabsf(x[i]));
    const uint16_t d = to_f16(max / (dtype == MN_Q8_0 ? 127 : 7));
    const float scale = case_type_from_f16(d);
    float inv = 0;
    if (scale > 0)
        inv = 1 / scale;
    memcpy(out, &d, 2);
    for (int i = 0; dtype == MN_Q8_0 && i < 32; i++)
        out[2 + i] = (uint8_t)case_type_nearest(x[i] * inv, -127, 127);
    for (int i = 0; dtype == MN_Q4_0 && i < 16; i++) {
        const int lo = case_type_nearest(x[i] * inv, -8, 7) + 8;
        const int hi = case_type_nearest(x[16 + i] * inv, -8, 7) + 8;
        out[2 + i] = (uint8_t)(lo | hi << 4);
    }
}

/* Element i of plain float types. */
static void put_float(uint32_t dtype, float x, uint8_t *out, int64_t i) {
    uint16_t h = dtype == MN_BF16 ? to_bf16(x) : to_f16(x);
    if (dtype == MN_F32)
        memcpy(out + 4 * i, &x, 4);
    else
        memcpy(out + 2 * i, &h, 2);
}

void case_quantise(uint32_t dtype, const float *x, int64_t n, void *out) {
    uint8_t *o = out;
    const bool has_blocks = dtype == MN_Q8_0 || dtype == MN_Q4_0;
    for (int64_t i = 0; i < n; i++) {
        if (!has_blocks)
            put_float(dtype, x[i], o, i);
        else if (i % 32 == 0)
            quantise_block(dtype, x + i, o + case_plane_bytes(dtype, i));
    }
}

/* Element i of a block of 32. */
static float block_element(uint32_t dtype, const uint8_t *block, int i) {
    uint16_t d;
    memcpy(&d, block, 2);
    const uint8_t *numbers = block + 2;
    if (dtype == MN_Q8_0)
        return case_type_from_f16(d) * (float)(int8_t)numbers[i];
    const int q = i < 16 ? numbers[i] & 15 : numbers[i - 16] >> 4;
    return case_type_from_f16(d) * (float)(q - 8);
}

void case_dequantise(uint32_t dtype, const void *x, int64_t n, float *out) {
    const mn_dtype t = case_dtype(dtype);
    for (int64_t i = 0; i < n; i++) {
        const int64_t block = i / t.block_elems;
        const uint8_t *at = (const uint8_t *)x + block * t.block_bytes;
        uint16_t h;
        memcpy(&h, at, 2);
        if (dtype == MN_F32)
            memcpy(&out[i], at, 4);
        else if (dtype == MN_F16)
            out[i] = case_type_from_f16(h);
        else if (dtype == MN_BF16)
            out[i] = case_type_from_bf16(h);
        else
            out[i] = block_element(dtype, at, (int)(i % 32));
    }
}

/* ---- random blocks --------------------------------------------------------------------------- */
static void put_f16(uint8_t *at, float x) {
    const uint16_t h = to_f16(x);
    memcpy(at, &h, 2);
}

static uint8_t random_byte(uint64_t *seed) {
    return (uint8_t)(case_random_bits(seed) >> 33);
}

/* Between 2^-8 and 2^-7: sums of many products stay small. */
static float random_scale(uint64_t *seed) {
    return (1.5f + 0.5f * case_rand(seed)) * 0x1p-8f;
}

static int case_type_sum_of(const uint8_t *numbers, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += (int8_t)numbers[i];
    return sum;
}

/* Q8_1: d, d * sum of the 32 numbers, the numbers. */
static void put_sum_q8_1(uint8_t *b) {
    uint16_t d;
    memcpy(&d, b, 2);
    put_f16(b + 2, case_type_from_f16(d) * (float)case_type_sum_of(b + 4, 32));
}

/* Q8_K: d in f32, 256 numbers, the sums of each 16. */
static void put_sums_q8_k(uint8_t *b, uint64_t *seed) {
    const float d = random_scale(seed);
    memcpy(b, &d, 4);
    for (int g = 0; g < 16; g++) {
        const int16_t sum = (int16_t)case_type_sum_of(b + 4 + 16 * g, 16);
        memcpy(b + 260 + 2 * g, &sum, 2);
    }
}

/* A block of IQ1_M, whose scale lies in the upper nibbles of four u16. */
static void put_scale_iq1_m(uint8_t *b, float scale) {
    uint8_t half[2];
    put_f16(half, scale);
    for (int i = 0; i < 4; i++) {
        uint8_t *high = b + 49 + 2 * i;
        const int nibble = half[i / 2] >> 4 * (i % 2) & 15;
        *high = (uint8_t)((*high & 15) | nibble << 4);
    }
}

/* A byte of an 8-bit float that is NaN or Inf becomes a number. */
static uint8_t finite_f8(uint32_t dtype, uint8_t b) {
    uint8_t mask = 0x7f;
    if (dtype == MN_F8_E5M2)
        mask = 0x7c;
    if ((b & mask) == mask)
        return b ^ 0x40;
    return b;
}

static void random_block(uint32_t dtype, uint32_t bytes, uint64_t *seed, uint8_t *b) {
    int32_t half[2];
    for (uint32_t i = 0; i < bytes; i++)
        b[i] = random_byte(seed);
    mn_dtype_halves(dtype, half);
    for (int k = 0; k < 2; k++)
        if (half[k] >= 0)
            put_f16(b + half[k], random_scale(seed));
    if (dtype == MN_Q8_1)
        put_sum_q8_1(b);
    if (dtype == MN_Q8_K)
        put_sums_q8_k(b, seed);
    if (dtype == MN_IQ1_M)
        put_scale_iq1_m(b, random_scale(seed));
    for (uint32_t i = 0; i < 4 && dtype == MN_NVFP4_64; i++)
        b[i] = (uint8_t)(0x28 + b[i] % 24); // E4M3 from 1/4 to 2
    if (dtype == MN_MXFP4)
        b[0] = (uint8_t)(120 + b[0] % 4); // E8M0: 2^(e - 127)
    const bool is_f8 = dtype == MN_F8_E4M3 || dtype == MN_F8_E4M3_128 || dtype == MN_F8_E4M3_32 ||
                       dtype == MN_F8_E5M2;
    for (uint32_t i = 0; i < bytes && is_f8; i++)
        b[i] = finite_f8(dtype, b[i]);
}

/* Bytes of plane i > 0 of a matrix: one value, or one row of values, per row of the matrix,
 * since experts of few rows have their own. 0: there is no such plane, or it is optional. */
static uint64_t extra_bytes(mn_dtype t, uint32_t i, int64_t rows, int64_t cols) {
    mn_plane_spec spec;
    if (i >= t.n_planes || !mn_dtype_plane(t.id, i, &spec))
        return 0;
    const int64_t values = mn_plane_values(&spec, t, cols);
    return (uint64_t)(rows * values) * case_dtype(spec.dtype).block_bytes;
}

uint64_t case_weight_bytes(uint32_t dtype, int64_t rows, int64_t cols) {
    const mn_dtype t = case_dtype(dtype);
    uint64_t bytes = case_plane_bytes(dtype, rows * cols);
    for (uint32_t i = 1; i < t.n_planes; i++)
        bytes += extra_bytes(t, i, rows, cols);
    return bytes;
}

/* Noise, quantised; out keeps its zeros where memory runs out. Rows of a matrix have a norm of
 * about 1. */
static void noise_weight(uint32_t dtype, int64_t rows, int64_t cols, uint64_t *seed, void *out) {
    float scale = 1;
    if (rows > 1)
        scale = 1 / sqrtf((float)cols);
    float *row = malloc((size_t)(cols + 1) * sizeof *row);
    if (!row)
        return;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i++) {
            const float first = case_rand(seed);
            row[i] = scale * (first + case_rand(seed));
        }
        case_quantise(dtype, row, cols, (uint8_t *)out + case_plane_bytes(dtype, r * cols));
    }
    free(row);
}

/* A scale or bias, as its type writes it: between 2^-8 and 2^-6 in floats; of PICK one of n. */
static void random_value(const mn_plane_spec *spec, int64_t n, uint64_t *seed, uint8_t *out) {
    float f;
    int32_t pick;
    switch (spec->dtype) {
    case MN_I32:
        pick = (int32_t)(random_byte(seed) % n);
        memcpy(out, &pick, sizeof pick);
        break;
    case MN_U8: /* E8M0: 2^(e - 127) */
        *out = (uint8_t)(120 + random_byte(seed) % 4);
        break;
    case MN_F8_E4M3: /* from 1/4 to 2 */
        *out = (uint8_t)(0x28 + random_byte(seed) % 24);
        break;
    case MN_F16:
        f = random_scale(seed);
        put_f16(out, spec->kind == MN_PLANE_BIAS ? -f : f);
        break;
    default:
        f = random_scale(seed);
        memcpy(out, &f, sizeof f);
    }
}

void case_random_weight(uint32_t dtype, int64_t rows, int64_t cols, uint64_t *seed, void *out) {
    const mn_dtype t = case_dtype(dtype);
    const uint64_t bytes = case_plane_bytes(dtype, rows * cols);
    if (dtype <= MN_BF16 || dtype == MN_Q8_0 || dtype == MN_Q4_0) {
        noise_weight(dtype, rows, cols, seed, out);
        return;
    }
    uint8_t *p = out;
    uint8_t *end = p + bytes;
    for (; p < end; p += t.block_bytes)
        random_block(dtype, t.block_bytes, seed, p);
    for (uint32_t i = 1; i < t.n_planes; i++) {
        mn_plane_spec spec;
        if (!mn_dtype_plane(dtype, i, &spec))
            break;
        const uint32_t size = case_dtype(spec.dtype).block_bytes;
        end = p + extra_bytes(t, i, rows, cols);
        for (; p < end; p += size)
            random_value(&spec, cols / t.block_elems, seed, p);
    }
}
