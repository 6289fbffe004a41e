/* quant_fit.c -- scales and codes of a few values: candidates by rounding, each judged by what it
 * explains, the best one solved for. With the codes q fixed the best d is sum(x q) / sum(q q), and
 * it takes sum(x q)^2 / sum(q q) off the error. */
#include "convert/quant.h"
#include <math.h>

/* To nearest even, by the unit of 1.5 * 2^23; |v| < 2^22. */
static inline float quant_fit_nearest(float v) {
    return (v + 12582912.0f) - 12582912.0f;
}
static inline float quant_fit_clamp(float v, float lo, float hi) {
    const float bounded = v > hi ? hi : v;
    if (v < lo)
        return lo;
    return bounded;
}

/* sum(x q) and sum(q q) of the codes for x * inv. */
static void explained(const float *x, int n, float inv, float lo, float hi, float *xq, float *qq) {
    float a[8] = {0};
    float b[8] = {0};
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++) {
            const float v = x[i + k];
            const float q = quant_fit_nearest(quant_fit_clamp(v * inv, lo, hi));
            a[k] += v * q;
            b[k] += q * q;
        }
    *xq = *qq = 0;
    for (int k = 0; k < 8; k++) {
        *xq += a[k];
        *qq += b[k];
    }
}

float mn_extreme(const float *x, int n) {
    float e = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(e))
            e = x[i];
    return e;
}

float mn_fit_scale(const float *x, int n, int lo, int hi, int steps, int8_t *q) {
    const float top = mn_extreme(x, n);
    float best = 0;
    float inv = 0;
    float d = 0;
    for (int i = 0; i < n; i++)
        q[i] = 0;
    if (fabsf(top) < 1e-30f)
        return 0;
    for (int k = -steps; k <= steps; k++)
        for (int side = 0; side < 2; side++) { /* the extreme value at lo, or at hi */
            const float goal = (float)(side ? hi : lo) + 0.1f * (float)k;
            const float candidate = goal / top;
            float xq;
            float qq;
            explained(x, n, candidate, (float)lo, (float)hi, &xq, &qq);
            if (qq > 0 && xq * xq > best * qq) {
                best = xq * xq / qq;
                inv = candidate;
                d = xq / qq;
            }
        }
    for (int i = 0; i < n; i++) {
        const float bounded = quant_fit_clamp(x[i] * inv, (float)lo, (float)hi);
        q[i] = (int8_t)quant_fit_nearest(bounded);
    }
    return d;
}

/* In eight partial sums, which the compiler keeps in one register of a vector. */
float mn_round_affine(const float *x, int n, float d, float m, int lo, int hi, int8_t *q) {
    const float inv = d != 0 ? 1 / d : 0;
    float e[8] = {0};
    float sum = 0;
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++) {
            const float v = x[i + k];
            const float c = quant_fit_nearest(quant_fit_clamp((v - m) * inv, (float)lo, (float)hi));
            const float r = v - (d * c + m);
            q[i + k] = (int8_t)c;
            e[k] += r * r;
        }
    for (int k = 0; k < 8; k++)
        sum += e[k];
    return sum;
}

typedef struct {
    float d;
    float m;
    float error;
} affine;

/* Eight partial sums, added in order: the loops that fill them are vectorised. */
static inline float total(const float part[8]) {
    float sum = part[0];
    for (int k = 1; k < 8; k++)
        sum += part[k];
    return sum;
}

/* Codes by one scale and offset, then the best scale and offset for these codes. */
static affine solve(const float *x, int n, float inv, float from, float hi, bool below) {
    float q[MN_FIT_MAX];
    float q_parts[8] = {0};
    float qq_parts[8] = {0};
    float x_parts[8] = {0};
    float xq_parts[8] = {0};
    float e_parts[8] = {0};
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++) {
            const float v = x[i + k];
            const float c = quant_fit_nearest(quant_fit_clamp((v - from) * inv, 0, hi));
            q[i + k] = c;
            q_parts[k] += c;
            qq_parts[k] += c * c;
            x_parts[k] += v;
            xq_parts[k] += c * v;
        }
    const float sq = total(q_parts);
    const float sqq = total(qq_parts);
    const float sx = total(x_parts);
    const float sxq = total(xq_parts);
    const float det = (float)n * sqq - sq * sq;
    affine f = {0, 0, INFINITY};
    if (!(det > 0))
        return f;
    f.d = ((float)n * sxq - sq * sx) / det;
    f.m = (sx - f.d * sq) / (float)n;
    if (below && f.m > 0) {
        f.m = 0;
        f.d = sxq / sqq;
    }
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++) {
            const float r = x[i + k] - (f.d * q[i + k] + f.m);
            e_parts[k] += r * r;
        }
    f.error = total(e_parts);
    return f;
}

float mn_fit_affine(const float *x, int n, int hi, int steps, bool below, float *m, uint8_t *q) {
    float lo = x[0];
    float top = x[0];
    for (int i = 1; i < n; i++) {
        lo = fminf(lo, x[i]);
        top = fmaxf(top, x[i]);
    }
    if (below && lo > 0)
        lo = 0;
    affine best = {0, below && lo > 0 ? 0 : lo, INFINITY};
    const float range = top - lo;
    for (int k = -steps; k <= steps && range > 1e-30f; k++) {
        /* A range narrower or wider than that of the values, about the same middle. */
        const float inv = ((float)hi + 0.1f * (float)k) / range;
        float from = lo + 0.05f * (float)k * range / (float)hi;
        if (below && lo >= 0)
            from = 0;
        affine f = solve(x, n, inv, from, (float)hi, below);
        if (f.error < best.error)
            best = f;
    }
    if (best.d > 0) { /* once more, from the best */
        affine f = solve(x, n, 1 / best.d, best.m, (float)hi, below);
        if (f.error < best.error)
            best = f;
    }
    *m = best.m;
    mn_round_affine(x, n, best.d, best.m, 0, hi, (int8_t *)q);
    return best.d;
}

/* Values ascend: how many of the midpoints between neighbours lie below v. */
uint8_t mn_nearest_value(const int8_t *values, float v) {
    int n = 0;
    for (int i = 0; i < 15; i++)
        n += v * 2 > (float)(values[i] + values[i + 1]);
    return (uint8_t)n;
}

/* The values that x * inv comes nearest to, all of them at once: each midpoint that lies below adds
 * a step. */
static void nearest_values(const float *x, int n, float inv, const int8_t *values, float *out) {
    for (int i = 0; i < n; i++)
        out[i] = (float)values[0];
    for (int k = 0; k < 15; k++) {
        const float middle = 0.5f * (float)(values[k] + values[k + 1]);
        const float step = (float)(values[k + 1] - values[k]);
        for (int i = 0; i < n; i++)
            out[i] += x[i] * inv > middle ? step : 0;
    }
}

/* sum(x v) and sum(v v) */
static void quant_fit_products(const float *x, const float *v, int n, float *xv, float *vv) {
    float a[8] = {0};
    float b[8] = {0};
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++) {
            a[k] += x[i + k] * v[i + k];
            b[k] += v[i + k] * v[i + k];
        }
    *xv = total(a);
    *vv = total(b);
}

float mn_fit_values(const float *x, int n, const int8_t *values, int steps, uint8_t *q) {
    const float top = mn_extreme(x, n);
    float best = 0;
    float inv = 0;
    float d = 0;
    float v[MN_FIT_MAX];
    for (int i = 0; i < n; i++)
        q[i] = 0;
    if (fabsf(top) < 1e-30f)
        return 0;
    for (int k = -steps; k <= steps; k++)
        for (int side = 0; side < 2; side++) {
            const float end = (float)values[side ? 15 : 0];
            const float candidate = end * (1 + 0.03f * (float)k) / top;
            float xv;
            float vv;
            nearest_values(x, n, candidate, values, v);
            quant_fit_products(x, v, n, &xv, &vv);
            if (vv > 0 && xv * xv > best * vv) {
                best = xv * xv / vv;
                inv = candidate;
                d = xv / vv;
            }
        }
    for (int i = 0; i < n; i++)
        q[i] = mn_nearest_value(values, x[i] * inv);
    return d;
}
