/* quant_fit.c -- scales and codes of a few values: candidates by rounding, each judged by what it
 * explains, the best one solved for. With the codes q fixed the best d is sum(w x q) / sum(w q q),
 * and it takes sum(w x q)^2 / sum(w q q) off the error; w are the weights of the squares.
 *
 * The search is most of a conversion's time: it works on vectors of eight values, which the
 * compiler splits where registers are smaller, and codes are stored for the chosen candidate alone.
 * Sums are made of eight parts in order, so that every CPU has the same bits. */
#include "convert/quant.h"
#include <math.h>
#include <string.h>

typedef float eight __attribute__((vector_size(32)));
typedef int32_t eight_masks __attribute__((vector_size(32)));
typedef int8_t eight_codes __attribute__((vector_size(8)));
enum { STEP = 8, MAX_STEPS = MN_FIT_MAX / STEP, MAX_ROUNDS = 6 };

static inline eight eight_load(const float *x) {
    eight v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline eight eight_of(float v) {
    return (eight){v, v, v, v, v, v, v, v};
}

static inline eight choose_each(eight_masks m, eight yes, eight no) {
    return (eight)(((eight_masks)yes & m) | ((eight_masks)no & ~m));
}

static inline eight clamp_each(eight v, eight lo, eight hi) {
    const eight bounded = choose_each(v > hi, hi, v);
    return choose_each(v < lo, lo, bounded);
}

/* To nearest even, by the unit of 1.5 * 2^23; |v| < 2^22. */
static inline eight nearest_each(eight v) {
    const eight unit = eight_of(12582912.0f);
    return (v + unit) - unit;
}

static inline float total(eight part) {
    float sum = part[0];
    for (int k = 1; k < STEP; k++)
        sum += part[k];
    return sum;
}

/* n values, their weights, and their products. */
typedef struct {
    int steps;
    eight x[MAX_STEPS], w[MAX_STEPS], wx[MAX_STEPS];
} weighted;

static inline weighted weighted_load(const float *x, const float *w, int n) {
    weighted v;
    v.steps = n / STEP;
    for (int i = 0; i < v.steps; i++) {
        v.x[i] = eight_load(x + STEP * i);
        v.w[i] = eight_load(w + STEP * i);
        v.wx[i] = v.w[i] * v.x[i];
    }
    return v;
}

float mn_extreme(const float *x, int n) {
    float e = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(e))
            e = x[i];
    return e;
}

/* ---- a scale --------------------------------------------------------------------------------- */
/* sum(w x q) and sum(w q q) of the codes for x * inv. */
static inline void explained(const weighted *v, float inv, float lo, float hi, float *xq,
                             float *qq) {
    eight a = eight_of(0);
    eight b = eight_of(0);
    for (int i = 0; i < v->steps; i++) {
        const eight scaled = v->x[i] * eight_of(inv);
        const eight q = nearest_each(clamp_each(scaled, eight_of(lo), eight_of(hi)));
        a += v->wx[i] * q;
        b += v->w[i] * q * q;
    }
    *xq = total(a);
    *qq = total(b);
}

/* How far beyond its code the extreme value is tried, in codes: it is cut off where that serves the
 * others. */
static const float beyond[] = {-0.3f, 0, 0.3f, 0.8f};

MN_FAST float mn_fit_scale(const float *x, const float *w, int n, int lo, int hi) {
    const float top = mn_extreme(x, n);
    const weighted v = weighted_load(x, w, n);
    float best = 0;
    float d = 0;
    float xq;
    float qq;
    if (fabsf(top) < 1e-30f)
        return 0;
    for (size_t k = 0; k < 2 * MN_COUNT(beyond); k++) { /* the extreme value at lo, or at hi */
        const float more = beyond[k / 2];
        const float goal = k % 2 ? (float)hi + more : (float)lo - more;
        explained(&v, goal / top, (float)lo, (float)hi, &xq, &qq);
        if (qq > 0 && xq * xq > best * qq) {
            best = xq * xq / qq;
            d = xq / qq;
        }
    }
    for (int i = 0; i < MAX_ROUNDS; i++) { /* again, from the best */
        explained(&v, 1 / d, (float)lo, (float)hi, &xq, &qq);
        if (!(qq > 0 && xq * xq > best * qq))
            break;
        best = xq * xq / qq;
        d = xq / qq;
    }
    return d;
}

/* ---- a scale and an offset ------------------------------------------------------------------- */
MN_FAST float mn_affine_error(const float *x, const float *w, int n, float d, float m, int lo,
                              int hi) {
    const eight inv = eight_of(d != 0 ? 1 / d : 0);
    const eight low = eight_of((float)lo);
    const eight high = eight_of((float)hi);
    eight e = eight_of(0);
    for (int i = 0; i < n; i += STEP) {
        const eight v = eight_load(x + i);
        const eight c = nearest_each(clamp_each((v - eight_of(m)) * inv, low, high));
        const eight r = v - (eight_of(d) * c + eight_of(m));
        e += eight_load(w + i) * r * r;
    }
    return total(e);
}

MN_FAST void mn_round_affine(const float *x, int n, float d, float m, int lo, int hi, int8_t *q) {
    const eight inv = eight_of(d != 0 ? 1 / d : 0);
    for (int i = 0; i < n; i += STEP) {
        const eight v = (eight_load(x + i) - eight_of(m)) * inv;
        const eight c = nearest_each(clamp_each(v, eight_of((float)lo), eight_of((float)hi)));
        const eight_codes codes = __builtin_convertvector(c, eight_codes);
        memcpy(q + i, &codes, sizeof codes);
    }
}

typedef struct {
    float d;
    float m;
    float error;
} affine;

/* Codes by one scale and offset, then the best scale and offset for these codes. */
static inline affine solve(const weighted *v, float inv, float from, float hi, bool below) {
    eight q[MAX_STEPS];
    eight w_parts = eight_of(0);
    eight q_parts = eight_of(0);
    eight qq_parts = eight_of(0);
    eight x_parts = eight_of(0);
    eight xq_parts = eight_of(0);
    eight e_parts = eight_of(0);
    for (int i = 0; i < v->steps; i++) {
        const eight scaled = (v->x[i] - eight_of(from)) * eight_of(inv);
        q[i] = nearest_each(clamp_each(scaled, eight_of(0), eight_of(hi)));
        const eight wq = v->w[i] * q[i];
        w_parts += v->w[i];
        q_parts += wq;
        qq_parts += wq * q[i];
        x_parts += v->wx[i];
        xq_parts += v->wx[i] * q[i];
    }
    const float sw = total(w_parts);
    const float sq = total(q_parts);
    const float sqq = total(qq_parts);
    const float sx = total(x_parts);
    const float sxq = total(xq_parts);
    const float det = sw * sqq - sq * sq;
    affine f = {0, 0, INFINITY};
    if (!(det > 0))
        return f;
    f.d = (sw * sxq - sq * sx) / det;
    f.m = (sx - f.d * sq) / sw;
    if (below && f.m > 0) {
        f.m = 0;
        f.d = sxq / sqq;
    }
    for (int i = 0; i < v->steps; i++) {
        const eight r = v->x[i] - (eight_of(f.d) * q[i] + eight_of(f.m));
        e_parts += v->w[i] * r * r;
    }
    f.error = total(e_parts);
    return f;
}

/* How far the ends of the range of codes are tried inside of the values' range, in codes: outer
 * values of small weight may be cut off. */
static const float inside[] = {-0.2f, 0.3f, 1.0f};
enum { ENDS = 3 };

MN_FAST float mn_fit_affine(const float *x, const float *w, int n, int hi, bool below, float *m) {
    const weighted v = weighted_load(x, w, n);
    float lo = x[0];
    float top = x[0];
    for (int i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        top = x[i] > top ? x[i] : top;
    }
    if (below && lo > 0)
        lo = 0;
    affine best = {0, lo, INFINITY};
    const float range = top - lo;
    const float unit = range / (float)hi;
    for (int k = 0; k < ENDS * ENDS && range > 1e-30f; k++) {
        const float from = below && lo >= 0 ? 0 : lo + unit * inside[k % ENDS];
        const float to = top - unit * inside[k / ENDS];
        const affine f = solve(&v, (float)hi / (to - from), from, (float)hi, below);
        if (f.error < best.error)
            best = f;
    }
    for (int i = 0; i < MAX_ROUNDS && best.d > 0; i++) { /* again, from the best */
        const affine f = solve(&v, 1 / best.d, best.m, (float)hi, below);
        if (!(f.error < best.error))
            break;
        best = f;
    }
    *m = best.m;
    return best.d;
}

/* ---- a scale of given values ----------------------------------------------------------------- */
/* Values ascend: how many of the midpoints between neighbours lie below v. */
uint8_t mn_nearest_value(const int8_t *values, float v) {
    int n = 0;
    for (int i = 0; i < 15; i++)
        n += v * 2 > (float)(values[i] + values[i + 1]);
    return (uint8_t)n;
}

/* The values that x comes nearest to: each midpoint that lies below adds a step. */
static inline eight nearest_values(eight x, const int8_t *values) {
    eight out = eight_of((float)values[0]);
    for (int k = 0; k < 15; k++) {
        const float middle = 0.5f * (float)(values[k] + values[k + 1]);
        const float step = (float)(values[k + 1] - values[k]);
        out += choose_each(x > eight_of(middle), eight_of(step), eight_of(0));
    }
    return out;
}

MN_FAST float mn_values_error(const float *x, const float *w, int n, float d,
                              const int8_t *values) {
    const eight inv = eight_of(d != 0 ? 1 / d : 0);
    eight e = eight_of(0);
    for (int i = 0; i < n; i += STEP) {
        const eight v = eight_load(x + i);
        const eight r = v - eight_of(d) * nearest_values(v * inv, values);
        e += eight_load(w + i) * r * r;
    }
    return total(e);
}

/* sum(w x v) and sum(w v v) of the values v nearest to x * inv. */
static inline void explained_by(const weighted *v, float inv, const int8_t *values, float *xv,
                                float *vv) {
    eight a = eight_of(0);
    eight b = eight_of(0);
    for (int i = 0; i < v->steps; i++) {
        const eight q = nearest_values(v->x[i] * eight_of(inv), values);
        a += v->wx[i] * q;
        b += v->w[i] * q * q;
    }
    *xv = total(a);
    *vv = total(b);
}

/* As mn_fit_scale: the extreme value at times these of the first or last value. */
static const float of_ends[] = {0.95f, 1.01f, 1.08f, 1.2f};

MN_FAST float mn_fit_values(const float *x, const float *w, int n, const int8_t *values) {
    const float top = mn_extreme(x, n);
    const weighted v = weighted_load(x, w, n);
    float best = 0;
    float d = 0;
    float xv;
    float vv;
    if (fabsf(top) < 1e-30f)
        return 0;
    for (size_t k = 0; k < 2 * MN_COUNT(of_ends); k++) {
        const float end = (float)values[k % 2 ? 15 : 0];
        explained_by(&v, end * of_ends[k / 2] / top, values, &xv, &vv);
        if (vv > 0 && xv * xv > best * vv) {
            best = xv * xv / vv;
            d = xv / vv;
        }
    }
    for (int i = 0; i < MAX_ROUNDS; i++) { /* again, from the best */
        explained_by(&v, 1 / d, values, &xv, &vv);
        if (!(vv > 0 && xv * xv > best * vv))
            break;
        best = xv * xv / vv;
        d = xv / vv;
    }
    return d;
}
