/* dequant.c -- see dequant.h. A type is one row of the table: a function for one block. */
#include "convert/dequant.h"
#include "convert/tables.h"
#include <math.h>
#include <string.h>

static uint16_t u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static double half(const uint8_t *p) {
    return (double)mn_f16_to_f32(u16(p));
}

/* ---- plain ----------------------------------------------------------------------------------- */
static void f32(const uint8_t *p, float *out) {
    memcpy(out, p, sizeof *out);
}
static void f16(const uint8_t *p, float *out) {
    *out = mn_f16_to_f32(u16(p));
}
static void bf16(const uint8_t *p, float *out) {
    *out = mn_bf16_to_f32(u16(p));
}
static void f8_e5m2(const uint8_t *p, float *out) {
    *out = mn_f16_to_f32((uint16_t)(*p << 8));
}
static void f64(const uint8_t *p, float *out) {
    double d;
    memcpy(&d, p, sizeof d);
    *out = (float)d;
}

/* ---- blocks of 32: element i < 16 is the low nibble of byte i, 16 + i the high one ----------- */
static int nibble(const uint8_t *q, int i) {
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}
static int fifth(const uint8_t *high, int i) {
    return (high[i / 8] >> i % 8 & 1) << 4;
}

static void q8_0(const uint8_t *p, float *out) {
    const float d = (float)half(p);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)p[2 + i];
}
static void q8_1(const uint8_t *p, float *out) {
    const float d = (float)half(p);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)p[4 + i];
}
static void q4_0(const uint8_t *p, float *out) {
    const float d = (float)half(p);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(nibble(p + 2, i) - 8);
}
static void q4_1(const uint8_t *p, float *out) {
    const double d = half(p), m = half(p + 2);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(d * nibble(p + 4, i) + m);
}
static void q5_0(const uint8_t *p, float *out) {
    const float d = (float)half(p);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)((nibble(p + 6, i) | fifth(p + 2, i)) - 16);
}
static void q5_1(const uint8_t *p, float *out) {
    const double d = half(p), m = half(p + 2);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(d * (nibble(p + 8, i) | fifth(p + 4, i)) + m);
}
static void iq4_nl(const uint8_t *p, float *out) {
    const float d = (float)half(p);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)mn_iq4_values[nibble(p + 2, i)];
}
static float e8m0(uint8_t e) {
    return e == 255 ? NAN : ldexpf(1, (int)e - 127);
}
static void mxfp4(const uint8_t *p, float *out) {
    const float d = e8m0(p[0]) * 0.5f;
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)mn_e2m1_doubled[nibble(p + 1, i)];
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */
static void q2_k(const uint8_t *p, float *out) {
    const double d = half(p + 80), m = half(p + 82);
    for (int i = 0; i < 256; i++) {
        const int q = p[16 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3, s = p[i / 16];
        out[i] = (float)(d * ((s & 15) * q) - m * (s >> 4));
    }
}
static void q3_k(const uint8_t *p, float *out) {
    const double d = half(p + 108);
    const uint8_t *s = p + 96;
    for (int i = 0; i < 256; i++) {
        const int j = i / 16, low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        const int scale = (low | (s[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32;
        const int q = (p[32 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3) |
                      (p[i % 32] >> (i / 32) & 1) << 2;
        out[i] = (float)(d * (scale * (q - 4)));
    }
}
static void scale_min(const uint8_t *s, int j, int *scale, int *min) {
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}
static void q4_q5(const uint8_t *p, const uint8_t *high, const uint8_t *q, float *out) {
    const double d = half(p), m = half(p + 2);
    for (int i = 0; i < 256; i++) {
        int scale, min, v = q[i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
        scale_min(p + 4, i / 32, &scale, &min);
        if (high)
            v |= (high[i % 32] >> (i / 32) & 1) << 4;
        out[i] = (float)(d * (scale * v) - m * min);
    }
}
static void q4_k(const uint8_t *p, float *out) {
    q4_q5(p, NULL, p + 16, out);
}
static void q5_k(const uint8_t *p, float *out) {
    q4_q5(p, p + 16, p + 48, out);
}
static void q6_k(const uint8_t *p, float *out) {
    const double d = half(p + 208);
    for (int i = 0; i < 256; i++) {
        const int at = i % 128, low = p[i / 128 * 64 + at % 64] >> 4 * (at / 64) & 15;
        const int high = p[128 + i / 128 * 32 + at % 32] >> 2 * (at / 32) & 3;
        out[i] = (float)(d * ((int8_t)p[192 + i / 16] * ((low | high << 4) - 32)));
    }
}
static void q8_k(const uint8_t *p, float *out) {
    float d;
    memcpy(&d, p, sizeof d);
    for (int i = 0; i < 256; i++)
        out[i] = d * (float)(int8_t)p[4 + i];
}
static void iq4_xs(const uint8_t *p, float *out) {
    const float d = (float)half(p);
    for (int i = 0; i < 256; i++) {
        const int s = i / 32,
                  scale =
                      ((p[4 + s / 2] >> 4 * (s % 2) & 15) | (u16(p + 2) >> 2 * s & 3) << 4) - 32;
        out[i] = d * (float)scale * (float)mn_iq4_values[nibble(p + 8 + 16 * s, i % 32)];
    }
}

static const struct {
    uint32_t dtype;
    void (*block)(const uint8_t *, float *);
} types[] = {
    {MN_F32, f32},   {MN_F16, f16},   {MN_BF16, bf16},     {MN_F64, f64},     {MN_F8_E5M2, f8_e5m2},
    {MN_Q4_0, q4_0}, {MN_Q4_1, q4_1}, {MN_Q5_0, q5_0},     {MN_Q5_1, q5_1},   {MN_Q8_0, q8_0},
    {MN_Q8_1, q8_1}, {MN_Q2_K, q2_k}, {MN_Q3_K, q3_k},     {MN_Q4_K, q4_k},   {MN_Q5_K, q5_k},
    {MN_Q6_K, q6_k}, {MN_Q8_K, q8_k}, {MN_IQ4_NL, iq4_nl}, {MN_MXFP4, mxfp4}, {MN_IQ4_XS, iq4_xs},
};

/* ---- several planes -------------------------------------------------------------------------- */
uint32_t mn_mlx_bits(uint32_t dtype) {
    static const uint32_t bits[] = {2, 3, 4, 6, 8};
    return dtype >= MN_MLX2_32 && dtype <= MN_MLX8_128 ? bits[(dtype - MN_MLX2_32) / 3] : 0;
}

uint32_t mn_mlx_code(const uint8_t *p, int64_t i, uint32_t bits) {
    const uint64_t at = (uint64_t)i * bits;
    uint32_t v = p[at / 8];
    if (at % 8 + bits > 8)
        v |= (uint32_t)p[at / 8 + 1] << 8;
    return v >> (at % 8) & ((1u << bits) - 1);
}

float mn_plane_value(uint32_t dtype, const uint8_t *p) {
    float f;
    if (dtype == MN_U8)
        return e8m0(*p);
    if (dtype == MN_F16)
        return mn_f16_to_f32(u16(p));
    if (dtype == MN_BF16)
        return mn_bf16_to_f32(u16(p));
    return memcpy(&f, p, sizeof f), f;
}

/* OCP FP8, finite form: no infinities, 0x7f is NaN. */
static float f8_e4m3(uint8_t b) {
    const int e = b >> 3 & 15, m = b & 7;
    const float x = (b & 127) == 127 ? NAN
                    : e              ? ldexpf((float)(8 + m), e - 10)
                                     : ldexpf((float)m, -9);
    return b & 128 ? -x : x;
}

static const mn_plane *plane_at(const mn_tensor_info *t, uint32_t part, uint32_t plane) {
    return (const mn_plane *)(const void *)((const char *)t->planes +
                                            ((size_t)part * t->n_planes + plane) * t->plane_stride);
}

static double extra(const mn_tensor_info *t, uint64_t row, uint32_t plane, int64_t block) {
    const mn_row_place p = mn_row_find(t, row, plane);
    return (double)mn_plane_value(plane_at(t, 0, plane)->dtype, p.at + block * p.step);
}

static void planes_block(const mn_tensor_info *t, uint64_t row, int64_t b, const uint8_t *p,
                         const float *f8, float *out) {
    const uint32_t bits = mn_mlx_bits(t->dtype.id);
    const double scale = t->n_planes > 1 ? extra(t, row, 1, b) : 1,
                 bias = bits ? extra(t, row, 2, b) : 0;
    for (int64_t i = 0; i < t->dtype.block_elems; i++) {
        if (bits)
            out[i] = (float)(scale * mn_mlx_code(p, i, bits) + bias);
        else if (f8)
            out[i] = (float)(scale * (double)f8[p[i]]);
        else
            out[i] = (float)(scale * 0.5 * mn_e2m1_doubled[p[i / 2] >> 4 * (i % 2) & 15]);
    }
}

static bool is_f8(uint32_t dtype) {
    return dtype == MN_F8_E4M3 || dtype == MN_F8_E4M3_128;
}

static void planes_row(const mn_tensor_info *t, uint64_t row, float *out) {
    const mn_row_place p = mn_row_find(t, row, 0);
    const int64_t n = t->dim[t->n_dim - 1] / t->dtype.block_elems;
    float f8[256];
    for (int i = 0; i < 256 && is_f8(t->dtype.id); i++)
        f8[i] = f8_e4m3((uint8_t)i);
    if (t->dtype.id != MN_F8_E4M3) {
        for (int64_t b = 0; b < n; b++)
            planes_block(t, row, b, p.at + b * p.step, is_f8(t->dtype.id) ? f8 : NULL,
                         out + b * t->dtype.block_elems);
        return;
    }
    const double scale = t->n_planes > 1 ? extra(t, row, 1, 0) : 1; /* one for the row */
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(scale * (double)f8[p.at[i * p.step]]);
}

/* ---- rows ------------------------------------------------------------------------------------ */
bool mn_dequant_has(uint32_t dtype) {
    for (size_t i = 0; i < MN_COUNT(types); i++)
        if (types[i].dtype == dtype)
            return true;
    return mn_mlx_bits(dtype) || is_f8(dtype) || dtype == MN_MXFP4_SPLIT;
}

uint64_t mn_row_count(const mn_tensor_info *t) {
    uint64_t n = 1;
    for (uint32_t d = 0; d + 1 < t->n_dim; d++)
        n *= (uint64_t)t->dim[d];
    return n;
}

/* Parts stack along the first dimension; a plane with one value along a dimension has it for
 * all. */
mn_row_place mn_row_find(const mn_tensor_info *t, uint64_t row, uint32_t plane) {
    int64_t index[MN_MAX_DIM] = {0};
    uint32_t part = 0;
    for (uint32_t d = t->n_dim - 1; d-- > 0;) {
        index[d] = (int64_t)(row % (uint64_t)t->dim[d]);
        row /= (uint64_t)t->dim[d];
    }
    for (; part + 1 < t->n_parts && index[0] >= plane_at(t, part, 0)->dim[0]; part++)
        index[0] -= plane_at(t, part, 0)->dim[0];
    const mn_plane *p = plane_at(t, part, plane);
    const uint8_t *at = p->ptr;
    /* rows that share a row of scales */
    if (plane && t->dtype.id == MN_F8_E4M3_128)
        index[t->n_dim - 2] /= 128;
    for (uint32_t d = 0; d + 1 < t->n_dim; d++)
        at += (p->dim[d] > 1 ? index[d] : 0) * p->stride[d];
    return (mn_row_place){at, p->stride[t->n_dim - 1]};
}

void mn_dequant_row(const mn_tensor_info *t, uint64_t row, float *out) {
    const mn_row_place p = mn_row_find(t, row, 0);
    const int64_t n = t->dim[t->n_dim - 1] / t->dtype.block_elems;
    for (size_t i = 0; i < MN_COUNT(types); i++) {
        if (types[i].dtype != t->dtype.id)
            continue;
        for (int64_t b = 0; b < n; b++)
            types[i].block(p.at + b * p.step, out + b * t->dtype.block_elems);
        return;
    }
    planes_row(t, row, out);
}
