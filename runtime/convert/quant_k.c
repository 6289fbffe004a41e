/* quant_k.c -- blocks of 256 whose groups have scales, and offsets, that are codes themselves: each
 * group is fitted alone, its scale rounded to a code of the block's own scale, and the neighbours
 * of that code are tried. Layouts are those of GGUF (ggml-common.h of llama.cpp). */
#include "convert/quant.h"
#include <math.h>
#include <string.h>

enum { MAX_GROUPS = 16 };

static int code_of(float v, int lo, int hi) {
    const int c = (int)lrintf(v);
    return MN_MAX(lo, MN_MIN(c, hi));
}

/* The code of a group's scale v in units of d; d 0: all values are 0. */
static int code_in(float v, float d, int lo, int hi) {
    if (d != 0)
        return code_of(v / d, lo, hi);
    return 0;
}

/* ---- scale and offset: x ~ d scale q - dmin min ---------------------------------------------- */
typedef struct {
    int n_groups, size, hi, top; /* q to hi, scale and min to top */
    uint8_t scale[MAX_GROUPS];
    uint8_t min[MAX_GROUPS];
    uint8_t q[256];
    float d, dmin; /* as stored */
} affine_block;

/* The codes near (scale, min) of group g, whose values are x, with the least error; leaves the
 * group's q. */
static void choose_codes(affine_block *b, const float *x, const float *w, int g, int reach) {
    float least = INFINITY;
    const int s_lo = MN_MAX(b->scale[g] - reach, 0);
    const int s_hi = MN_MIN(b->scale[g] + reach, b->top);
    const int m_lo = MN_MAX(b->min[g] - reach, 0);
    const int m_hi = MN_MIN(b->min[g] + reach, b->top);
    for (int s = s_lo; s <= s_hi; s++)
        for (int m = m_lo; m <= m_hi; m++) {
            const float scale = b->d * (float)s;
            const float low = -b->dmin * (float)m;
            const float e = mn_affine_error(x, w, b->size, scale, low, 0, b->hi);
            if (!(e < least))
                continue;
            least = e;
            b->scale[g] = (uint8_t)s;
            b->min[g] = (uint8_t)m;
        }
    const float scale = b->d * (float)b->scale[g];
    const float low = -b->dmin * (float)b->min[g];
    mn_round_affine(x, b->size, scale, low, 0, b->hi, (int8_t *)b->q + g * b->size);
}

/* With all codes fixed: the d and dmin of the least error, two equations in f64. */
static void solve_scales(affine_block *b, const float *x, const float *w, float *d, float *dmin) {
    double uu = 0;
    double uv = 0;
    double vv = 0;
    double xu = 0;
    double xv = 0;
    for (int i = 0; i < 256; i++) {
        const int g = i / b->size;
        const double value = (double)x[i];
        const double u = b->scale[g] * b->q[i];
        const double v = -(double)b->min[g];
        const double weight = (double)w[i];
        uu += weight * u * u;
        uv += weight * u * v;
        vv += weight * v * v;
        xu += weight * u * value;
        xv += weight * v * value;
    }
    const double det = uu * vv - uv * uv;
    if (det > 1e-9 * uu * vv && det > 0) {
        *d = (float)((xu * vv - xv * uv) / det);
        *dmin = (float)((xv * uu - xu * uv) / det);
    } else if (uu > 0)
        *d = (float)((xu - (double)*dmin * uv) / uu);
}

/* Fills b for the 256 values of x; its d and dmin are stored at d_at and dmin_at. The groups'
 * scales are rounded once; then d and dmin are solved for, and the codes chosen again. */
static void fit_block(affine_block *b, const float *x, const float *w, int reach, uint8_t *d_at,
                      uint8_t *dmin_at) {
    float scale[MAX_GROUPS];
    float low[MAX_GROUPS];
    float top_scale = 0;
    float top_low = 0;
    const int size = b->size;
    for (int g = 0; g < b->n_groups; g++) {
        const int at = g * size;
        scale[g] = mn_fit_affine(x + at, w + at, size, b->hi, true, &low[g]);
        top_scale = fmaxf(top_scale, scale[g]);
        top_low = fmaxf(top_low, -low[g]);
    }
    float d = top_scale / (float)b->top;
    float dmin = top_low / (float)b->top;
    for (int round = 0; round < 2 && d >= 0 && dmin >= 0; round++) {
        b->d = mn_put_half(d_at, d);
        b->dmin = mn_put_half(dmin_at, dmin);
        for (int g = 0; g < b->n_groups && !round; g++) {
            const int s = code_in(scale[g], b->d, 0, b->top);
            const int m = code_in(-low[g], b->dmin, 0, b->top);
            b->scale[g] = (uint8_t)s;
            b->min[g] = (uint8_t)m;
        }
        for (int g = 0; g < b->n_groups; g++)
            choose_codes(b, x + g * size, w + g * size, g, reach);
        solve_scales(b, x, w, &d, &dmin);
    }
}

void mn_quant_q2_k(const float *x, const float *w, uint8_t *out) {
    affine_block b = {
        .n_groups = 16,
        .size = 16,
        .hi = 3,
        .top = 15,
    };
    fit_block(&b, x, w, 1, out + 80, out + 82);
    for (int g = 0; g < 16; g++)
        out[g] = (uint8_t)(b.scale[g] | b.min[g] << 4);
    memset(out + 16, 0, 64);
    for (int i = 0; i < 256; i++) {
        const int byte = i / 128 * 32 + i % 32;
        const int shift = 2 * (i / 32 % 4);
        mn_put_bits(&out[16 + byte], b.q[i], shift);
    }
}

/* Eight scales and eight minima of 6 bits in 12 bytes. */
static void put_scales(const affine_block *b, uint8_t *out) {
    for (int j = 0; j < 4; j++) {
        const uint8_t scale = b->scale[j + 4];
        const uint8_t min = b->min[j + 4];
        out[j] = b->scale[j];
        out[j + 4] = b->min[j];
        out[j + 8] = scale & 15;
        mn_put_bits(&out[j], scale >> 4, 6);
        mn_put_bits(&out[j + 4], min >> 4, 6);
        mn_put_bits(&out[j + 8], min & 15, 4);
    }
}

/* The low four bits of 256 codes: of each 64, the second 32 above the first. */
static void put_low(const affine_block *b, uint8_t *out) {
    for (int i = 0; i < 256; i += 64)
        for (int k = 0; k < 32; k++) {
            uint8_t *p = &out[i / 2 + k];
            *p = b->q[i + k] & 15;
            mn_put_bits(p, b->q[i + 32 + k] & 15, 4);
        }
}

void mn_quant_q4_k(const float *x, const float *w, uint8_t *out) {
    affine_block b = {
        .n_groups = 8,
        .size = 32,
        .hi = 15,
        .top = 63,
    };
    fit_block(&b, x, w, 1, out, out + 2);
    put_scales(&b, out + 4);
    put_low(&b, out + 16);
}

void mn_quant_q5_k(const float *x, const float *w, uint8_t *out) {
    affine_block b = {
        .n_groups = 8,
        .size = 32,
        .hi = 31,
        .top = 63,
    };
    fit_block(&b, x, w, 1, out, out + 2);
    put_scales(&b, out + 4);
    memset(out + 16, 0, 32);
    for (int i = 0; i < 256; i++) {
        const int fifth = b.q[i] >> 4 & 1;
        mn_put_bits(&out[16 + i % 32], fifth, i / 32);
    }
    put_low(&b, out + 48);
}

/* ---- scale alone: x ~ d scale q -------------------------------------------------------------- */
typedef struct {
    int lo, hi, top; /* q in [lo, hi], scale in [-top - 1, top] */
    int8_t scale[MAX_GROUPS];
    int8_t q[256];
} scaled_block;

/* The code near that of group g, whose values are x, that leaves the least error, with d as stored;
 * sets the group's q. */
static void choose_scale(scaled_block *b, const float *x, const float *w, int g, float d) {
    float least = INFINITY;
    const int s_lo = MN_MAX(b->scale[g] - 1, -b->top - 1);
    const int s_hi = MN_MIN(b->scale[g] + 1, b->top);
    for (int s = s_lo; s <= s_hi; s++) {
        const float scale = d * (float)s;
        const float e = mn_affine_error(x, w, 16, scale, 0, b->lo, b->hi);
        if (!(e < least))
            continue;
        least = e;
        b->scale[g] = (int8_t)s;
    }
    const float scale = d * (float)b->scale[g];
    mn_round_affine(x, 16, scale, 0, b->lo, b->hi, b->q + g * 16);
}

/* With all codes fixed: the d of the least error; d itself where all are 0. */
static float solve_scale(const scaled_block *b, const float *x, const float *w, float d) {
    double xu = 0;
    double uu = 0;
    for (int i = 0; i < 256; i++) {
        const double u = b->scale[i / 16] * b->q[i];
        const double weight = (double)w[i];
        xu += weight * u * (double)x[i];
        uu += weight * u * u;
    }
    if (uu > 0)
        return (float)(xu / uu);
    return d;
}

/* As fit_block. */
static void fit_scaled(scaled_block *b, const float *x, const float *w, uint8_t *d_at) {
    const int lowest = -b->top - 1;
    float scale[MAX_GROUPS];
    for (int g = 0; g < 16; g++)
        scale[g] = mn_fit_scale(x + 16 * g, w + 16 * g, 16, b->lo, b->hi);
    float d = mn_extreme(scale, 16) / (float)lowest;
    for (int round = 0; round < 2; round++) {
        const float stored = mn_put_half(d_at, d);
        for (int g = 0; g < 16 && !round; g++)
            b->scale[g] = (int8_t)code_in(scale[g], stored, lowest, b->top);
        for (int g = 0; g < 16; g++)
            choose_scale(b, x + 16 * g, w + 16 * g, g, stored);
        d = solve_scale(b, x, w, d);
    }
}

void mn_quant_q3_k(const float *x, const float *w, uint8_t *out) {
    scaled_block b = {
        .lo = -4,
        .hi = 3,
        .top = 31,
    };
    fit_scaled(&b, x, w, out + 108);
    memset(out, 0, 108);
    for (int i = 0; i < 256; i++) {
        const int q = b.q[i] + 4;
        const int byte = i / 128 * 32 + i % 32;
        const int shift = 2 * (i / 32 % 4);
        mn_put_bits(&out[32 + byte], q & 3, shift);
        mn_put_bits(&out[i % 32], q >> 2, i / 32);
    }
    /* 6 bits: low four in the first 8 bytes, high two in the last 4 */
    for (int j = 0; j < 16; j++) {
        const int s = b.scale[j] + 32;
        mn_put_bits(&out[96 + j % 8], s & 15, j < 8 ? 0 : 4);
        mn_put_bits(&out[104 + j % 4], s >> 4, 2 * (j / 4));
    }
}

void mn_quant_q6_k(const float *x, const float *w, uint8_t *out) {
    scaled_block b = {
        .lo = -32,
        .hi = 31,
        .top = 127,
    };
    fit_scaled(&b, x, w, out + 208);
    memset(out, 0, 192);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128;
        const int at = i % 128;
        const int q = b.q[i] + 32;
        uint8_t *low = &out[half * 64 + at % 64];
        uint8_t *high = &out[128 + half * 32 + at % 32];
        const int low_shift = 4 * (at / 64);
        const int high_shift = 2 * (at / 32);
        mn_put_bits(low, q & 15, low_shift);
        mn_put_bits(high, q >> 4, high_shift);
    }
    memcpy(out + 192, b.scale, 16);
}

/* ---- IQ4_XS: 8 groups of 32, x ~ d scale values[q] ------------------------------------------- */
/* The scale near `usual` that leaves the least error of 32 values; its codes go to q. */
static int choose_values(const float *x, const float *w, float d, int usual, uint8_t *q) {
    const int lo = MN_MAX(usual - 1, -32);
    const int hi = MN_MIN(usual + 1, 31);
    float least = INFINITY;
    int best = usual;
    for (int s = lo; s <= hi; s++) {
        const float e = mn_values_error(x, w, 32, d * (float)s, mn_iq4_values);
        if (!(e < least))
            continue;
        least = e;
        best = s;
    }
    const float scale = d * (float)best;
    const float inv = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < 32; i++)
        q[i] = mn_nearest_value(mn_iq4_values, x[i] * inv);
    return best;
}

/* out: d, high two bits of 8 scales, their low four, codes: in each group the second half above the
 * first */
void mn_quant_iq4_xs(const float *x, const float *w, uint8_t *out) {
    uint8_t q[32];
    float fitted[8];
    for (int g = 0; g < 8; g++)
        fitted[g] = mn_fit_values(x + 32 * g, w + 32 * g, 32, mn_iq4_values);
    const float d = mn_put_half(out, mn_extreme(fitted, 8) / -32);
    memset(out + 2, 0, 6);
    for (int g = 0; g < 8; g++) {
        const int usual = code_in(fitted[g], d, -32, 31);
        const int scale = choose_values(x + 32 * g, w + 32 * g, d, usual, q);
        const int s = scale + 32;
        uint8_t *high = &out[2 + g / 4];
        uint8_t *low = &out[4 + g / 2];
        mn_put_bits(high, s >> 4, 2 * (g % 4));
        mn_put_bits(low, s & 15, 4 * (g % 2));
        mn_put_nibbles(q, out + 8 + 16 * g);
    }
}
