/* case_type.c -- numbers: noise, half floats by arithmetic apart from the plugins' bit tricks,
 * valid blocks of every type. */
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

float case_rand(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(*seed >> 40) * 0x1p-23f - 1;
}

double case_rel_l2(const float *got, const float *want, int64_t n) {
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        if (got[i] == want[i])
            d = 0; /* both infinite */
        diff += d * d;
        if (isfinite(want[i]))
            norm += (double)want[i] * (double)want[i];
    }
    return isnan(diff) ? (double)INFINITY : norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

uint64_t case_plane_bytes(uint32_t dtype, int64_t n) {
    mn_dtype t = case_dtype(dtype);
    return (uint64_t)n / t.block_elems * t.block_bytes;
}

static uint16_t to_f16(float f) {
    int e;
    if (f == 0)
        return signbit(f) ? 0x8000 : 0;
    uint16_t sign = f < 0 ? 0x8000 : 0;
    float a = fabsf(f);
    frexpf(a, &e); /* a = m * 2^e, m in [0.5, 1) */
    int scale = e < -13 ? 24 : 11 - e;
    float m = nearbyintf(ldexpf(a, scale));
    if (e < -13)
        return (uint16_t)(sign | (uint16_t)m);
    if (m == 2048)
        m = 1024, e++;
    if (e > 16)
        return (uint16_t)(sign | 0x7c00);
    return (uint16_t)(sign | (uint16_t)((e + 14) << 10) | ((uint16_t)m & 1023));
}

static float from_f16(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    float a = e == 0    ? ldexpf((float)m, -24)
              : e == 31 ? (m ? NAN : INFINITY)
                        : ldexpf((float)(m + 1024), e - 25);
    return h & 0x8000 ? -a : a;
}

static void quantise_block(uint32_t dtype, const float *x, uint8_t *out) {
    float max = 0;
    for (int i = 0; i < 32; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    uint16_t d = to_f16(max / (dtype == MN_Q8_0 ? 127 : 7));
    float inv = from_f16(d) > 0 ? 1 / from_f16(d) : 0;
    memcpy(out, &d, 2);
    for (int i = 0; dtype == MN_Q8_0 && i < 32; i++)
        out[2 + i] = (uint8_t)(int8_t)fmaxf(-127, fminf(127, nearbyintf(x[i] * inv)));
    for (int i = 0; dtype == MN_Q4_0 && i < 16; i++) {
        int lo = (int)fmaxf(-8, fminf(7, nearbyintf(x[i] * inv))) + 8,
            hi = (int)fmaxf(-8, fminf(7, nearbyintf(x[16 + i] * inv))) + 8;
        out[2 + i] = (uint8_t)(lo | hi << 4);
    }
}

void case_quantise(uint32_t dtype, const float *x, int64_t n, void *out) {
    uint8_t *o = out;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = to_f16(x[i]);
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        if (dtype == MN_F32)
            memcpy(o + 4 * i, &x[i], 4);
        else if (dtype == MN_F16)
            memcpy(o + 2 * i, &h, 2);
        else if (dtype == MN_BF16)
            h = (uint16_t)(bits >> 16), memcpy(o + 2 * i, &h, 2);
        else if (i % 32 == 0)
            quantise_block(dtype, x + i, o + case_plane_bytes(dtype, i));
    }
}

void case_dequantise(uint32_t dtype, const void *x, int64_t n, float *out) {
    const uint8_t *p = x;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        if (dtype == MN_F32) {
            memcpy(&out[i], p + 4 * i, 4);
            continue;
        }
        const uint8_t *b = dtype == MN_Q8_0   ? p + i / 32 * 34
                           : dtype == MN_Q4_0 ? p + i / 32 * 18
                                              : p + 2 * i;
        memcpy(&h, b, 2);
        int j = (int)(i % 32);
        if (dtype == MN_F16)
            out[i] = from_f16(h);
        else if (dtype == MN_BF16)
            out[i] = ldexpf((float)((h & 127) | (h & 0x7f80 ? 128 : 0)),
                            ((h >> 7 & 255) ? (h >> 7 & 255) : 1) - 134) *
                     (h & 0x8000 ? -1.0f : 1.0f);
        else if (dtype == MN_Q8_0)
            out[i] = from_f16(h) * (float)(int8_t)b[2 + j];
        else
            out[i] = from_f16(h) * (float)((j < 16 ? b[2 + j] & 15 : b[2 + j - 16] >> 4) - 8);
    }
}

/* ---- random blocks --------------------------------------------------------------------------- */

static void put_f16(uint8_t *at, float x) {
    uint16_t h = to_f16(x);
    memcpy(at, &h, 2);
}
static uint8_t random_byte(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(*seed >> 33);
}
static float random_scale(uint64_t *seed) {
    return (1.5f + 0.5f * case_rand(seed)) * 0x1p-8f;
}

/* Q8_1 and Q8_K hold sums of their own elements beside them. */
static void put_sums(uint32_t dtype, uint8_t *b, uint64_t *seed) {
    int sum = 0;
    if (dtype == MN_Q8_1) {
        uint16_t d;
        for (int i = 0; i < 32; i++)
            sum += (int8_t)b[4 + i];
        memcpy(&d, b, 2);
        put_f16(b + 2, from_f16(d) * (float)sum);
    } else {
        float d = random_scale(seed);
        memcpy(b, &d, 4);
        for (int g = 0; g < 16; g++, sum = 0) {
            for (int i = 0; i < 16; i++)
                sum += (int8_t)b[4 + 16 * g + i];
            int16_t s = (int16_t)sum;
            memcpy(b + 260 + 2 * g, &s, 2);
        }
    }
}

static void random_block(uint32_t dtype, uint32_t bytes, uint64_t *seed, uint8_t *b) {
    int32_t half[2];
    for (uint32_t i = 0; i < bytes; i++)
        b[i] = random_byte(seed);
    mn_dtype_halves(dtype, half);
    for (int k = 0; k < 2; k++)
        if (half[k] >= 0)
            put_f16(b + half[k], random_scale(seed));
    if (dtype == MN_Q8_1 || dtype == MN_Q8_K)
        put_sums(dtype, b, seed);
    if (dtype == MN_MXFP4)
        b[0] = (uint8_t)(120 + b[0] % 4); /* E8M0: 2^(e - 127) */
    bool e4m3 = dtype == MN_F8_E4M3 || dtype == MN_F8_E4M3_128;
    for (uint32_t i = 0; i < bytes && (e4m3 || dtype == MN_F8_E5M2); i++)
        if (e4m3 ? (b[i] & 0x7f) == 0x7f : (b[i] & 0x7c) == 0x7c)
            b[i] ^= 0x40; /* NaN, Inf */
}

/* Bytes of plane i > 0 of a matrix; room for a value or a row of them per row, since experts of few
 * rows have their own. 0: there is no such plane, or it may be left out. */
static uint64_t extra_bytes(mn_dtype t, uint32_t i, int64_t rows, int64_t cols) {
    mn_plane_spec spec;
    if (i >= t.n_planes || !mn_dtype_plane(t.id, i, &spec))
        return 0;
    const int64_t values = spec.by_block ? cols / t.block_elems : 1;
    return (uint64_t)(rows * values) * case_dtype(spec.dtype).block_bytes;
}

static uint64_t other_planes(mn_dtype t, int64_t rows, int64_t cols) {
    uint64_t bytes = 0;
    for (uint32_t i = 1; i < t.n_planes; i++)
        bytes += extra_bytes(t, i, rows, cols);
    return bytes;
}

uint64_t case_weight_bytes(uint32_t dtype, int64_t rows, int64_t cols) {
    return case_plane_bytes(dtype, rows * cols) + other_planes(case_dtype(dtype), rows, cols);
}

static void noise_weight(uint32_t dtype, int64_t rows, int64_t cols, uint64_t *seed, void *out) {
    float *row = malloc((size_t)(cols + 1) * sizeof *row),
          scale = rows > 1 ? 1 / sqrtf((float)cols) : 1;
    if (!row)
        return;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i++)
            row[i] = scale * (case_rand(seed) + case_rand(seed));
        case_quantise(dtype, row, cols, (uint8_t *)out + case_plane_bytes(dtype, r * cols));
    }
    free(row);
}

/* A scale or bias, as its type writes it: between 2^-8 and 2^-6 in floats. */
static void random_value(const mn_plane_spec *spec, uint64_t *seed, uint8_t *out) {
    float f;
    switch (spec->dtype) {
    case MN_U8: /* E8M0: 2^(e - 127) */
        *out = (uint8_t)(120 + random_byte(seed) % 4);
        break;
    case MN_F8_E4M3: /* from 1/4 to 2 */
        *out = (uint8_t)(0x28 + random_byte(seed) % 24);
        break;
    case MN_F16:
        put_f16(out, random_scale(seed) * (spec->kind == MN_PLANE_BIAS ? -1 : 1));
        break;
    default:
        f = random_scale(seed);
        memcpy(out, &f, sizeof f);
    }
}

void case_random_weight(uint32_t dtype, int64_t rows, int64_t cols, uint64_t *seed, void *out) {
    mn_dtype t = case_dtype(dtype);
    if (dtype <= MN_BF16 || dtype == MN_Q8_0 || dtype == MN_Q4_0) {
        noise_weight(dtype, rows, cols, seed, out);
        return;
    }
    uint8_t *p = out;
    for (uint64_t n = case_plane_bytes(dtype, rows * cols); n; n -= t.block_bytes) {
        random_block(dtype, t.block_bytes, seed, p);
        p += t.block_bytes;
    }
    for (uint32_t i = 1; i < t.n_planes; i++) {
        mn_plane_spec spec;
        if (!mn_dtype_plane(dtype, i, &spec))
            break;
        const uint32_t size = case_dtype(spec.dtype).block_bytes;
        for (uint64_t n = extra_bytes(t, i, rows, cols); n; n -= size) {
            random_value(&spec, seed, p);
            p += size;
        }
    }
}
