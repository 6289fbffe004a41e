/* quant_k.c -- blocks of 256 whose groups have scales, and offsets, that are codes themselves: each
 * group is fitted alone, its scale rounded to a code of the block's own scale, and the neighbours
 * of that code are tried. */
#include "convert/quant.h"
#include <math.h>
#include <string.h>

enum { MAX_GROUPS = 16 };

static int code_of(float v, int lo, int hi) {
    const int c = (int)lrintf(v);
    return c < lo ? lo : c > hi ? hi : c;
}

/* ---- scale and offset: x ~ d scale q - dmin min ---------------------------------------------- */
typedef struct {
    int n_groups, size, hi, top; /* q to hi, scale and min to top */
    uint8_t scale[MAX_GROUPS];
    uint8_t min[MAX_GROUPS];
    uint8_t q[256];
    float d, dmin; /* as stored */
} affine_block;

/* The codes near (scale, min) with the least error; leaves the group's q. */
static void choose_codes(affine_block *b, const float *x, int g, int reach) {
    int8_t q[MN_FIT_MAX];
    float least = INFINITY;
    const int s0 = b->scale[g];
    const int m0 = b->min[g];
    for (int s = s0 - reach; s <= s0 + reach; s++)
        for (int m = m0 - reach; m <= m0 + reach; m++) {
            if (s < 0 || s > b->top || m < 0 || m > b->top)
                continue;
            const float e =
                mn_round_affine(x, b->size, b->d * (float)s, -b->dmin * (float)m, 0, b->hi, q);
            if (!(e < least))
                continue;
            least = e;
            b->scale[g] = (uint8_t)s;
            b->min[g] = (uint8_t)m;
            memcpy(b->q + g * b->size, q, (size_t)b->size);
        }
}

/* With all codes fixed: the d and dmin of the least error, two equations in f64. */
static void solve_scales(affine_block *b, const float *x, float *d, float *dmin) {
    double uu = 0;
    double uv = 0;
    double vv = 0;
    double xu = 0;
    double xv = 0;
    for (int i = 0; i < 256; i++) {
        const double u = b->scale[i / b->size] * b->q[i];
        const double v = -(double)b->min[i / b->size];
        uu += u * u;
        uv += u * v;
        vv += v * v;
        xu += u * (double)x[i];
        xv += v * (double)x[i];
    }
    const double det = uu * vv - uv * uv;
    if (det > 1e-9 * uu * vv && det > 0) {
        *d = (float)((xu * vv - xv * uv) / det);
        *dmin = (float)((xv * uu - xu * uv) / det);
    } else if (uu > 0)
        *d = (float)((xu - (double)*dmin * uv) / uu);
}

static void fit_block(affine_block *b, const float *x, int steps, int reach, uint8_t *d_at,
                      uint8_t *dmin_at) {
    float scale[MAX_GROUPS];
    float low[MAX_GROUPS];
    float top_scale = 0;
    float top_low = 0;
    for (int g = 0; g < b->n_groups; g++) {
        scale[g] = mn_fit_affine(x + g * b->size, b->size, b->hi, steps, true, &low[g],
                                 b->q + g * b->size);
        top_scale = fmaxf(top_scale, scale[g]);
        top_low = fmaxf(top_low, -low[g]);
    }
    float d = top_scale / (float)b->top;
    float dmin = top_low / (float)b->top;
    for (int round = 0; round < 2; round++) {
        b->d = mn_put_half(d_at, d);
        b->dmin = mn_put_half(dmin_at, dmin);
        for (int g = 0; g < b->n_groups; g++) {
            if (!round) {
                b->scale[g] = (uint8_t)(b->d > 0 ? code_of(scale[g] / b->d, 0, b->top) : 0);
                b->min[g] = (uint8_t)(b->dmin > 0 ? code_of(-low[g] / b->dmin, 0, b->top) : 0);
            }
            choose_codes(b, x + g * b->size, g, reach);
        }
        solve_scales(b, x, &d, &dmin);
        if (d < 0 || dmin < 0)
            break;
    }
}

void mn_quant_q2_k(const float *x, uint8_t *out) {
    affine_block b = {.n_groups = 16, .size = 16, .hi = 3, .top = 15};
    fit_block(&b, x, 6, 1, out + 80, out + 82);
    for (int g = 0; g < 16; g++)
        out[g] = (uint8_t)(b.scale[g] | b.min[g] << 4);
    memset(out + 16, 0, 64);
    for (int i = 0; i < 256; i++) {
        uint8_t *p = &out[16 + i / 128 * 32 + i % 32];
        *p = (uint8_t)(*p | b.q[i] << 2 * (i / 32 % 4));
    }
}

/* Eight scales and eight minima of 6 bits in 12 bytes. */
static void put_scales(const affine_block *b, uint8_t *out) {
    memset(out, 0, 12);
    for (int j = 0; j < 4; j++) {
        out[j] = (uint8_t)(b->scale[j] | b->scale[j + 4] >> 4 << 6);
        out[j + 4] = (uint8_t)(b->min[j] | b->min[j + 4] >> 4 << 6);
        out[j + 8] = (uint8_t)((b->scale[j + 4] & 15) | (b->min[j + 4] & 15) << 4);
    }
}

static void put_low(const affine_block *b, uint8_t *out) {
    for (int i = 0; i < 256; i += 64)
        for (int k = 0; k < 32; k++)
            out[i / 2 + k] = (uint8_t)((b->q[i + k] & 15) | (b->q[i + 32 + k] & 15) << 4);
}

void mn_quant_q4_k(const float *x, uint8_t *out) {
    affine_block b = {.n_groups = 8, .size = 32, .hi = 15, .top = 63};
    fit_block(&b, x, 6, 1, out, out + 2);
    put_scales(&b, out + 4);
    put_low(&b, out + 16);
}

void mn_quant_q5_k(const float *x, uint8_t *out) {
    affine_block b = {.n_groups = 8, .size = 32, .hi = 31, .top = 63};
    fit_block(&b, x, 4, 1, out, out + 2);
    put_scales(&b, out + 4);
    memset(out + 16, 0, 32);
    for (int i = 0; i < 256; i++)
        out[16 + i % 32] = (uint8_t)(out[16 + i % 32] | (b.q[i] >> 4 & 1) << (i / 32));
    put_low(&b, out + 48);
}

/* ---- scale alone: x ~ d scale q -------------------------------------------------------------- */
typedef struct {
    int lo, hi, top; /* q in [lo, hi], scale in [-top - 1, top] */
    int8_t scale[MAX_GROUPS];
    int8_t q[256];
} scaled_block;

static float extreme_of(const float *v, int n) {
    float e = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(v[i]) > fabsf(e))
            e = v[i];
    return e;
}

static void choose_scale(scaled_block *b, const float *x, int g, float d) {
    int8_t q[16];
    float least = INFINITY;
    const int s0 = b->scale[g];
    for (int s = s0 - 1; s <= s0 + 1; s++) {
        if (s < -b->top - 1 || s > b->top)
            continue;
        const float e = mn_round_affine(x, 16, d * (float)s, 0, b->lo, b->hi, q);
        if (!(e < least))
            continue;
        least = e;
        b->scale[g] = (int8_t)s;
        memcpy(b->q + g * 16, q, 16);
    }
}

static float solve_scale(const scaled_block *b, const float *x, float d) {
    double xu = 0;
    double uu = 0;
    for (int i = 0; i < 256; i++) {
        const double u = b->scale[i / 16] * b->q[i];
        xu += u * (double)x[i];
        uu += u * u;
    }
    return uu > 0 ? (float)(xu / uu) : d;
}

static void fit_scaled(scaled_block *b, const float *x, int steps, uint8_t *d_at) {
    float scale[MAX_GROUPS];
    for (int g = 0; g < 16; g++)
        scale[g] = mn_fit_scale(x + 16 * g, 16, b->lo, b->hi, steps, b->q + 16 * g);
    float d = extreme_of(scale, 16) / (float)(-b->top - 1);
    for (int round = 0; round < 2; round++) {
        const float stored = mn_put_half(d_at, d);
        for (int g = 0; g < 16; g++) {
            if (!round)
                b->scale[g] =
                    (int8_t)(stored != 0 ? code_of(scale[g] / stored, -b->top - 1, b->top) : 0);
            choose_scale(b, x + 16 * g, g, stored);
        }
        d = solve_scale(b, x, d);
    }
}

void mn_quant_q3_k(const float *x, uint8_t *out) {
    scaled_block b = {.lo = -4, .hi = 3, .top = 31};
    fit_scaled(&b, x, 9, out + 108);
    memset(out, 0, 108);
    for (int i = 0; i < 256; i++) {
        const int q = b.q[i] + 4;
        uint8_t *low = &out[32 + i / 128 * 32 + i % 32];
        *low = (uint8_t)(*low | (q & 3) << 2 * (i / 32 % 4));
        out[i % 32] = (uint8_t)(out[i % 32] | q >> 2 << (i / 32));
    }
    /* 6 bits: low four in the first 8 bytes, high two in the last 4 */
    for (int j = 0; j < 16; j++) {
        const int s = b.scale[j] + 32;
        out[96 + j % 8] = (uint8_t)(out[96 + j % 8] | (s & 15) << (j < 8 ? 0 : 4));
        out[104 + j % 4] = (uint8_t)(out[104 + j % 4] | s >> 4 << 2 * (j / 4));
    }
}

void mn_quant_q6_k(const float *x, uint8_t *out) {
    scaled_block b = {.lo = -32, .hi = 31, .top = 127};
    fit_scaled(&b, x, 4, out + 208);
    memset(out, 0, 192);
    for (int i = 0; i < 256; i++) {
        const int at = i % 128;
        const int q = b.q[i] + 32;
        uint8_t *low = &out[i / 128 * 64 + at % 64];
        uint8_t *high = &out[128 + i / 128 * 32 + at % 32];
        *low = (uint8_t)(*low | (q & 15) << 4 * (at / 64));
        *high = (uint8_t)(*high | q >> 4 << 2 * (at / 32));
    }
    memcpy(out + 192, b.scale, 16);
}

/* ---- IQ4_XS: 8 groups of 32, x ~ d scale values[q] ------------------------------------------- */
static float values_error(const float *x, float d, uint8_t *q) {
    const float inv = d != 0 ? 1 / d : 0;
    float error = 0;
    for (int i = 0; i < 32; i++) {
        q[i] = mn_nearest_value(mn_iq4_values, x[i] * inv);
        const float r = x[i] - d * (float)mn_iq4_values[q[i]];
        error += r * r;
    }
    return error;
}

void mn_quant_iq4_xs(const float *x, uint8_t *out) {
    uint8_t q[256];
    uint8_t tried[32];
    int scale[8];
    float fitted[8];
    float d;
    for (int g = 0; g < 8; g++)
        fitted[g] = mn_fit_values(x + 32 * g, 32, mn_iq4_values, 5, q + 32 * g);
    d = extreme_of(fitted, 8) / -32;
    d = mn_put_half(out, d);
    memset(out + 2, 0, 6);
    for (int g = 0; g < 8; g++) {
        const int near = d != 0 ? code_of(fitted[g] / d, -32, 31) : 0;
        float least = INFINITY;
        for (int s = near - 1; s <= near + 1; s++) {
            if (s < -32 || s > 31)
                continue;
            const float e = values_error(x + 32 * g, d * (float)s, tried);
            if (!(e < least))
                continue;
            least = e;
            scale[g] = s;
            memcpy(q + 32 * g, tried, 32);
        }
        const unsigned s = (unsigned)(scale[g] + 32);
        mn_put_u16(out + 2, (uint16_t)((out[2] | out[3] << 8) | s >> 4 << 2 * g));
        out[4 + g / 2] = (uint8_t)(out[4 + g / 2] | (s & 15) << 4 * (g % 2));
    }
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 16; i++)
            out[8 + 16 * g + i] = (uint8_t)(q[32 * g + i] | q[32 * g + 16 + i] << 4);
}
