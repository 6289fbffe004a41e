/* rows_ops.c -- attention's inner loops and the small ops on the vocabulary of vec_*.h. */
#include "vec.h"
#ifndef V_SUMS
#include "f32_panel.h"
#endif
#include <float.h>
#include <math.h>

static void unpack_kv(const uint8_t *src, int64_t n, float *dst) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(dst + i, v_f16(src + 2 * i));
    for (; i < n; i++)
        dst[i] = mnk_f16(mnk_u16(src + 2 * i));
}
static void pack_kv(const float *src, int64_t n, uint8_t *dst) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store_f16(dst + 2 * i, v_load(src + i));
    for (; i < n; i++) {
        uint16_t h = mnk_to_f16(src[i]);
        memcpy(dst + 2 * i, &h, 2);
    }
}

static float dot(const float *x, const float *y, int64_t d) {
    VF acc = v_set1(0);
    float tail = 0;
    int64_t i = 0;
    for (; i + VL <= d; i += VL)
        acc = v_fma(v_load(y + i), v_load(x + i), acc);
    for (; i < d; i++)
        tail += x[i] * y[i];
    return v_sum(acc) + tail;
}

#ifdef V_SUMS
/* s[j] = q . k[j] for j < n and VL; what lies behind n is multiplied, too, and dropped. */
INLINE void score_some(const float *q, const float *k, int64_t n, int64_t d, float *s) {
    VF acc[VL];
#pragma GCC unroll 16
    for (int j = 0; j < VL; j++)
        acc[j] = v_set1(0);
    for (int64_t i = 0; i < d; i += VL) {
        const VF x = v_load(q + i);
#pragma GCC unroll 16
        for (int j = 0; j < VL; j++)
            acc[j] = v_fma(v_load(k + j * d + i), x, acc[j]);
    }
    if (n >= VL) {
        v_store(s, v_sums(acc));
        return;
    }
    float sums[VL];
    v_store(sums, v_sums(acc));
    memcpy(s, sums, (size_t)n * sizeof *s);
}
INLINE void score_rows(const float *q, int64_t r, const float *k, int64_t n, int64_t d, float *s,
                       int64_t lds) {
    for (int64_t j = 0; j < n; j += VL)
        for (int64_t a = 0; a < r; a++)
            score_some(q + a * d, k + j * d, n - j, d, s + a * lds + j);
}
/* Lengths that are known to the compiler need no addresses in registers. */
static void scores_whole(const float *q, int64_t r, const float *k, int64_t n, int64_t d, float *s,
                         int64_t lds) {
    if (d == 64)
        score_rows(q, r, k, n, 64, s, lds);
    else if (d == 128)
        score_rows(q, r, k, n, 128, s, lds);
    else
        score_rows(q, r, k, n, d, s, lds);
}
#else
/* k is a panel as it is, and sums of what lies behind n are dropped. */
static void scores_whole(const float *q, int64_t r, const float *k, int64_t n, int64_t d, float *s,
                         int64_t lds) {
    mnk_pair pair[32];
    for (int64_t a = 0; a < r; a += 32) {
        const int64_t some = r - a < 32 ? r - a : 32;
        for (int64_t i = 0; i < some; i++) {
            const float *x = q + (a + i) * d;
            pair[i].x = (const uint8_t *)x;
            pair[i].y = s + (a + i) * lds;
        }
        f32_multiply(k, d, n, d, pair, 0, some, 0, true);
    }
}
#endif

/* s[a, j] = q[a] . k[j] for r rows of q and n of k, d long; rows of s are lds apart. */
static void scores(const float *q, int64_t r, const float *k, int64_t n, int64_t d, float *s,
                   int64_t lds) {
    if (d % VL == 0) {
        scores_whole(q, r, k, n, d, s, lds);
        return;
    }
    for (int64_t a = 0; a < r; a++)
        for (int64_t j = 0; j < n; j++)
            s[a * lds + j] = dot(q + a * d, k + j * d, d);
}

/* Scores of a tile as exp(scaled and capped - the new maximum), 0 outside of [lo, hi). m: the
 * maximum so far; returns the new one. */
static float softmax(float *s, int64_t lo, int64_t hi, float scale, float cap, float m,
                     float *sum) {
    VF top = v_set1(m);
    VF total = v_set1(0);
    for (int i = 0; i < MNK_TILE; i += VL) {
        VF v = v_mul(v_load(s + i), v_set1(scale));
        if (cap != 0) {
            const VF capped = v_tanh(v_div(v, v_set1(cap)));
            v = v_mul(v_set1(cap), capped);
        }
        v_store(s + i, v);
    }
    for (int64_t i = 0; i < lo; i++)
        s[i] = -INFINITY;
    for (int64_t i = hi; i < MNK_TILE; i++)
        s[i] = -INFINITY;
    for (int i = 0; i < MNK_TILE; i += VL)
        top = v_max(top, v_load(s + i));
    m = v_top(top);
    const float base = m == -INFINITY ? 0 : m; /* -inf - -inf is not a number */
    for (int i = 0; i < MNK_TILE; i += VL) {
        VF e = v_exp(v_sub(v_load(s + i), v_set1(base)));
        v_store(s + i, e);
        total = v_add(total, e);
    }
    *sum = v_sum(total);
    return m;
}
/* Columns [i, i + n VL) of g rows: g n chains of sums. */
INLINE void weigh_columns(const float *p, int64_t ldp, const float *v, int64_t lo, int64_t hi,
                          int64_t dv, float *acc, int64_t lda, int64_t i, const int g,
                          const int n) {
    VF a[4][2];
#pragma GCC unroll 4
    for (int h = 0; h < g; h++)
#pragma GCC unroll 2
        for (int c = 0; c < n; c++)
            a[h][c] = v_load(acc + h * lda + i + c * VL);
    for (int64_t j = lo; j < hi; j++) {
        VF x[2];
#pragma GCC unroll 2
        for (int c = 0; c < n; c++)
            x[c] = v_load(v + j * dv + i + c * VL);
#pragma GCC unroll 4
        for (int h = 0; h < g; h++) {
            const VF by = v_set1(p[h * ldp + j]);
#pragma GCC unroll 2
            for (int c = 0; c < n; c++)
                a[h][c] = v_fma(by, x[c], a[h][c]);
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < g; h++)
#pragma GCC unroll 2
        for (int c = 0; c < n; c++)
            v_store(acc + h * lda + i + c * VL, a[h][c]);
}
INLINE void weigh_tile(const float *p, int64_t ldp, const float *v, int64_t lo, int64_t hi,
                       int64_t dv, float *acc, int64_t lda, const int g) {
    int64_t i = 0;
    for (; i + 2 * VL <= dv; i += 2 * VL)
        weigh_columns(p, ldp, v, lo, hi, dv, acc, lda, i, g, 2);
    if (i < dv)
        weigh_columns(p, ldp, v, lo, hi, dv, acc, lda, i, g, 1);
}

/* acc[h] += p[h, j] v[j] over j in [lo, hi) for g heads. */
static void weigh(const float *p, int64_t ldp, int64_t g, const float *v, int64_t lo, int64_t hi,
                  int64_t dv, float *acc, int64_t lda) {
    if (dv % VL) {
        for (int64_t h = 0; h < g; h++)
            for (int64_t j = lo; j < hi; j++) {
                float *y = acc + h * lda;
                const float *x = v + j * dv;
                const float by = p[h * ldp + j];
                for (int64_t i = 0; i < dv; i++)
                    y[i] += by * x[i];
            }
        return;
    }
    int64_t h = 0;
    for (; h + 4 <= g; h += 4)
        weigh_tile(p + h * ldp, ldp, v, lo, hi, dv, acc + h * lda, lda, 4);
    for (; h < g; h++)
        weigh_tile(p + h * ldp, ldp, v, lo, hi, dv, acc + h * lda, lda, 1);
}

static void scale_by(float *x, int64_t n, float by) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(x + i, v_mul(v_load(x + i), v_set1(by)));
    for (; i < n; i++)
        x[i] *= by;
}

static void add_scaled(float *x, const float *y, int64_t n, float by) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        const VF sum = v_fma(v_load(y + i), v_set1(by), v_load(x + i));
        v_store(x + i, sum);
    }
    for (; i < n; i++)
        x[i] += y[i] * by;
}

static float exp1(float x) {
    float f[VL];
    v_store(f, v_exp(v_set1(x)));
    return f[0];
}

/* ---- nodes ----------------------------------------------------------------------------------- */
static inline VF v_weight(const mnc_weight *w, const uint8_t *row, int64_t i) {
    switch (w->dtype.id) {
    case MN_F16:
        return v_f16(row + 2 * i);
    case MN_BF16:
        return v_bf16(row + 2 * i);
    default:
        return v_load(row + 4 * i);
    }
}
static inline float weight1(const mnc_weight *w, const uint8_t *row, int64_t i) {
    return mnk_load1(row, w->dtype.id, i);
}

/* Rows whose sums leave the range of f32 are computed again in double: 1 / infinity would make
 * zeros of them. Such rows are rare, or hold an infinity or a NaN, which stay. */
static void rms_norm_wide(const float *x, float *y, int64_t d, const mnc_weight *g,
                          const uint8_t *row, double eps, float offset) {
    double sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += (double)x[i] * x[i];
    const double by = 1 / sqrt(sum / (double)d + eps);
    for (int64_t i = 0; i < d; i++) {
        const float gain = weight1(g, row, i) + offset;
        y[i] = (float)(x[i] * by * gain);
    }
}

/* shift: the row of b, where there is one */
static void layer_norm_wide(const float *x, float *y, int64_t d, const mnc_weight *g,
                            const uint8_t *gain, const mnc_weight *b, const uint8_t *shift,
                            double eps) {
    double mean = 0;
    double var = 0;
    for (int64_t i = 0; i < d; i++)
        mean += x[i];
    mean /= (double)d;
    for (int64_t i = 0; i < d; i++) {
        const double off = x[i] - mean;
        var += off * off;
    }
    const double by = 1 / sqrt(var / (double)d + eps);
    for (int64_t i = 0; i < d; i++) {
        const double add = b ? weight1(b, shift, i) : 0;
        const double normal = (x[i] - mean) * by;
        const double scaled = normal * weight1(g, gain, i);
        y[i] = (float)(scaled + add);
    }
}

static float sum_of_squares(const float *x, int64_t d) {
    VF s0 = v_set1(0);
    VF s1 = v_set1(0);
    int64_t i = 0;
    for (; i + 2 * VL <= d; i += 2 * VL) {
        const VF x0 = v_load(x + i);
        const VF x1 = v_load(x + i + VL);
        s0 = v_fma(x0, x0, s0);
        s1 = v_fma(x1, x1, s1);
    }
    float sum = v_sum(v_add(s0, s1));
    for (; i < d; i++)
        sum += x[i] * x[i];
    return sum;
}

static float sum_of(const float *x, int64_t d) {
    VF s = v_set1(0);
    int64_t i = 0;
    for (; i + VL <= d; i += VL)
        s = v_add(s, v_load(x + i));
    float sum = v_sum(s);
    for (; i < d; i++)
        sum += x[i];
    return sum;
}

/* The sum of (x - mean)^2. */
static float deviation(const float *x, float mean, int64_t d) {
    VF s = v_set1(0);
    int64_t i = 0;
    for (; i + VL <= d; i += VL) {
        const VF off = v_sub(v_load(x + i), v_set1(mean));
        s = v_fma(off, off, s);
    }
    float sum = v_sum(s);
    for (; i < d; i++) {
        const float off = x[i] - mean;
        sum += off * off;
    }
    return sum;
}

/* Vectors [d] of the last dimension in a row of dimension 0. */
static int64_t per_row(const mnc_operand *o, int64_t d) {
    return d ? o->cols / d : 0;
}

static void rms_norm(const mnc_call *c, mnc_worker *w) {
    const int64_t d = c->in[0].dim[c->in[0].n_dim - 1];
    const mnc_weight *g = c->in[MN_RMS_NORM_WEIGHT].weight;
    const int64_t n = g->cols; /* of d, which are normalised; the others are passed on */
    const double eps = mnc_attr_f64(c, MN_RMS_NORM_ATTR_EPS);
    const float offset = (float)mnc_attr_f64(c, MN_RMS_NORM_ATTR_OFFSET);
    mnc_spans s = mnc_range_cells(w, c->in[0].rows, per_row(&c->in[0], d), 1);
    for (; s.n; mnc_next_span(&s))
        for (int64_t r = s.lo; r < s.hi; r++) {
            const float *x = (const float *)c->in[0].ptr + r * d;
            float *y = (float *)c->out[0].ptr + r * d;
            const uint8_t *gain = mnc_row(g, r % g->rows); /* [H, D]: by head */
            memcpy(y + n, x + n, (size_t)(d - n) * sizeof *y);
            const float sum = sum_of_squares(x, n);
            if (!(sum <= FLT_MAX)) {
                rms_norm_wide(x, y, n, g, gain, eps, offset);
                continue;
            }
            const float by = (float)(1.0 / sqrt(sum / (double)n + eps));
            int64_t i = 0;
            for (; i + VL <= n; i += VL) {
                const VF normal = v_mul(v_load(x + i), v_set1(by));
                const VF weight = v_add(v_weight(g, gain, i), v_set1(offset));
                v_store(y + i, v_mul(normal, weight));
            }
            for (; i < n; i++) {
                const float weight = weight1(g, gain, i) + offset;
                y[i] = x[i] * by * weight;
            }
        }
}

static void layer_norm(const mnc_call *c, mnc_worker *w) {
    const int64_t d = c->in[0].dim[c->in[0].n_dim - 1];
    const mnc_weight *g = c->in[MN_LAYER_NORM_WEIGHT].weight;
    const mnc_weight *b = c->in[MN_LAYER_NORM_BIAS].weight;
    const double eps = mnc_attr_f64(c, MN_LAYER_NORM_ATTR_EPS);
    mnc_spans s = mnc_range_cells(w, c->in[0].rows, per_row(&c->in[0], d), 1);
    for (; s.n; mnc_next_span(&s))
        for (int64_t r = s.lo; r < s.hi; r++) {
            const float *x = (const float *)c->in[0].ptr + r * d;
            float *y = (float *)c->out[0].ptr + r * d;
            const uint8_t *gain = mnc_row(g, r % g->rows); /* [H, D]: by head */
            const uint8_t *shift = b ? mnc_row(b, r % b->rows) : NULL;
            const float mean = sum_of(x, d) / (float)d;
            const float var = deviation(x, mean, d);
            if (!(var <= FLT_MAX)) {
                layer_norm_wide(x, y, d, g, gain, b, shift, eps);
                continue;
            }
            const float by = (float)(1.0 / sqrt(var / (double)d + eps));
            int64_t i = 0;
            for (; i + VL <= d; i += VL) {
                const VF off = v_sub(v_load(x + i), v_set1(mean));
                const VF normal = v_mul(off, v_set1(by));
                const VF add = b ? v_weight(b, shift, i) : v_set1(0);
                v_store(y + i, v_fma(normal, v_weight(g, gain, i), add));
            }
            for (; i < d; i++) {
                const float normal = (x[i] - mean) * by;
                const float add = b ? weight1(b, shift, i) : 0;
                y[i] = normal * weight1(g, gain, i) + add;
            }
        }
}

static inline VF v_neg(VF x) {
    return v_sub(v_set1(0), x);
}

/* x / (1 + e^u) */
static inline VF v_logistic(VF x, VF u) {
    return v_div(x, v_add(v_set1(1), v_exp(u)));
}

static inline VF v_act(VF x, int64_t kind) {
    switch (kind) {
    case MN_ACT_SILU:
        return v_logistic(x, v_neg(x));
    case MN_ACT_GELU_TANH: { /* 1 + tanh(u) = 2 / (1 + exp(-2u)) */
        const VF cubic = v_fma(v_mul(x, x), v_set1(0.044715f), v_set1(1));
        const VF linear = v_mul(x, v_set1(-1.5957691216f));
        return v_logistic(x, v_mul(linear, cubic));
    }
    case MN_ACT_GELU_ERF: {
        float f[VL];
        v_store(f, x);
        for (int i = 0; i < VL; i++)
            f[i] = 0.5f * f[i] * erfcf(-0.70710678f * f[i]);
        return v_load(f);
    }
    case MN_ACT_SIGMOID:
        return v_logistic(v_set1(1), v_neg(x));
    case MN_ACT_RELU2: {
        const VF above = v_max(v_set1(0), x);
        return v_mul(above, above);
    }
    default:
        return v_max(v_set1(0), x);
    }
}
/* The numbers of an ACT of xielu, in their order. */
typedef struct {
    float alpha_p;
    float alpha_n;
    float beta;
    float eps;
} xielu_numbers;
static xielu_numbers xielu_of(const mnc_call *c) {
    xielu_numbers n;
    n.alpha_p = (float)mnc_attr_f64(c, MN_ACT_ATTR_ALPHA_P);
    n.alpha_n = (float)mnc_attr_f64(c, MN_ACT_ATTR_ALPHA_N);
    n.beta = (float)mnc_attr_f64(c, MN_ACT_ATTR_BETA);
    n.eps = (float)mnc_attr_f64(c, MN_ACT_ATTR_EPS);
    return n;
}
static inline VF v_xielu(VF x, const xielu_numbers *n) {
    const VF linear = v_mul(v_set1(n->beta), x);
    const VF least = v_min(v_set1(n->eps), x);
    const VF bent = v_add(v_exp_rest(least), v_sub(least, x));
    const VF low = v_fma(v_set1(n->alpha_n), bent, linear);
    const VF high = v_fma(v_mul(v_set1(n->alpha_p), x), x, linear);
    return v_sel_lt(v_set1(0), x, high, low);
}
/* limit: infinity for none. A NaN stays one: min and max give their second operand then. */
static inline VF v_glu(VF gate, VF up, int64_t kind, VF alpha, VF limit, VF offset) {
    gate = v_min(limit, gate);
    up = v_max(v_neg(limit), v_min(limit, up));
    VF a;
    if (kind == MN_ACT_SILU)
        a = v_logistic(gate, v_neg(v_mul(alpha, gate)));
    else
        a = v_act(gate, kind);
    return v_mul(a, v_add(up, offset));
}
static inline float or_else(double x, float none) {
    return x > 0 || x < 0 ? (float)x : none;
}
/* y[i] = f(a[i], b[i]) over this worker's share; a tail goes through the same vectors. */
#define MAP(name, two, setup, expr)                                                                \
    static void name(const mnc_call *c, mnc_worker *w) {                                           \
        const float *pa = c->in[0].ptr;                                                            \
        const float *pb = two ? c->in[1].ptr : pa;                                                 \
        float *py = c->out[0].ptr;                                                                 \
        int64_t i;                                                                                 \
        setup;                                                                                     \
        const mnc_operand *x = &c->in[0];                                                          \
        mnc_spans s = mnc_range_cells(w, x->rows, x->cols, 512);                                   \
        for (; s.n; mnc_next_span(&s)) {                                                           \
            for (i = s.lo; i + VL <= s.hi; i += VL) {                                              \
                VF a = v_load(pa + i);                                                             \
                VF b = v_load(pb + i);                                                             \
                (void)b;                                                                           \
                v_store(py + i, expr);                                                             \
            }                                                                                      \
            if (i < s.hi) {                                                                        \
                float ta[VL] = {0};                                                                \
                float tb[VL] = {0};                                                                \
                size_t left = (size_t)(s.hi - i) * sizeof(float);                                  \
                memcpy(ta, pa + i, left);                                                          \
                memcpy(tb, pb + i, left);                                                          \
                VF a = v_load(ta);                                                                 \
                VF b = v_load(tb);                                                                 \
                (void)b;                                                                           \
                v_store(ta, expr);                                                                 \
                memcpy(py + i, ta, left);                                                          \
            }                                                                                      \
        }                                                                                          \
    }
MAP(act, 0, int64_t kind = mnc_attr_int(c, MN_ACT_ATTR_KIND);
    xielu_numbers numbers = xielu_of(c),
    kind == MN_ACT_XIELU ? v_xielu(a, &numbers) : v_act(a, kind))
MAP(glu, 1, int64_t kind = mnc_attr_int(c, MN_GLU_ATTR_KIND);
    VF alpha = v_set1(or_else(mnc_attr_f64(c, MN_GLU_ATTR_ALPHA), 1));
    VF limit = v_set1(or_else(mnc_attr_f64(c, MN_GLU_ATTR_LIMIT), INFINITY));
    VF offset = v_set1((float)mnc_attr_f64(c, MN_GLU_ATTR_UP_OFFSET)),
    v_glu(a, b, kind, alpha, limit, offset))
MAP(add, 1, , v_add(a, b))
MAP(mul, 1, , v_mul(a, b))
MAP(scale_op, 0, VF by = v_set1((float)mnc_attr_f64(c, MN_SCALE_ATTR_FACTOR)), v_mul(a, by))
MAP(softcap, 0, VF cap = v_set1((float)mnc_attr_f64(c, MN_SOFTCAP_ATTR_CAP)),
    v_mul(cap, v_tanh(v_div(a, cap))))

extern const mnk_state V_ID(mnk_state); /* rows_state.c */
const mnk_vector V_ID(mnk_ops) = {
    V_NAME,   unpack_kv,  pack_kv, scores, softmax, weigh, scale_by, add_scaled, exp1,
    rms_norm, layer_norm, act,     glu,    add,     mul,   scale_op, softcap,    &V_ID(mnk_state)};
