/* test_rows_small.c -- test_rows: the vector functions of an instruction set, and the small
 * operations that are made of them. */
#include "test_rows.h"
#include <math.h>
#include <stdlib.h>

static void halves(const mnk_vector *v) {
    uint8_t *h = malloc(2 * 65536 + 1);
    float *f = malloc(65536 * sizeof *f);
    int bad = 0;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t u = (uint16_t)i;
        memcpy(h + 1 + 2 * i, &u, 2);
    }
    v->unpack_f16(h + 1, 65536, f);
    for (uint32_t i = 0; i < 65536; i++) {
        const double want = rows_f16((uint16_t)i);
        const bool both_nan = isnan(f[i]) && isnan(want);
        bad += f[i] != want && !both_nan;
    }
    rows_check(bad == 0, "f16 to f32", v->name, 0, 0, 0, bad);
    for (int i = 0; i < 65536; i++)
        f[i] = rows_uniform() * ldexpf(1, (int)(rows_u32() % 44) - 27);
    v->pack_f16(f, 65535, h);
    for (int i = 0; i < 65535; i++)
        bad += mnk_u16(h + 2 * i) != mnk_to_f16(f[i]);
    for (int i = 0; i < 65535; i++) { /* nearest: no neighbour is nearer */
        uint16_t u = mnk_u16(h + 2 * i);
        double e = fabs(rows_f16(u) - f[i]);
        bad += (u & 0x7fff) < 0x7c00 &&
               (fabs(rows_f16((uint16_t)(u + 1)) - f[i]) < e ||
                ((u & 0x7fff) && fabs(rows_f16((uint16_t)(u - 1)) - f[i]) < e));
    }
    rows_check(bad == 0, "f32 to f16", v->name, 0, 0, 0, bad);
    free(h);
    free(f);
}
static void exps(const mnk_vector *v) {
    double worst = 0;
    for (int i = 0; i < (rows_quick ? 10000 : 100000); i++) {
        float x = rows_uniform() * 87;
        worst = fmax(worst, fabs((double)v->exp1(x) / exp(x) - 1));
    }
    rows_check(worst < 2.4e-7, "exp", v->name, 0, 0, 0, worst);
    rows_check(v->exp1(0) == 1 && v->exp1(-INFINITY) == 0 && isnan(v->exp1(NAN)),
               "exp at 0, -inf, NaN", v->name, 0, 0, 0, v->exp1(-INFINITY));
    rows_check(v->exp1(INFINITY) == INFINITY, "exp at infinity", v->name, 0, 0, 0,
               v->exp1(INFINITY));
}
/* NaN is never passed over, and -inf is a logit like another one. */
static void softmaxes(const mnk_vector *v) {
    float s[MNK_TILE];
    float sum;
    float top;
    for (int at = 3; at < 20; at++) {
        for (int i = 0; i < MNK_TILE; i++)
            s[i] = i == at ? NAN : rows_uniform();
        v->softmax(s, 3, 20, 0.5f, 0, -INFINITY, &sum);
        rows_check(isnan(sum), "softmax of NaN", v->name, at, 0, 0, sum);
    }
    for (int i = 0; i < MNK_TILE; i++)
        s[i] = i == 5 || i == 40 ? NAN : -INFINITY; /* masked */
    top = v->softmax(s, 6, 20, 0.5f, 0, -INFINITY, &sum);
    rows_check(top == -INFINITY && sum == 0, "softmax of -inf", v->name, 0, 0, 0, sum);
    for (int i = 0; i < MNK_TILE; i++)
        s[i] = -INFINITY;
    top = v->softmax(s, 0, 2, 1, 30, -INFINITY, &sum);
    rows_check(top == -30 && sum == 2, "softmax of -inf under a soft cap", v->name, 0, 0, 0, sum);
    s[0] = INFINITY;
    s[1] = 1;
    v->softmax(s, 0, 2, 1, 0, -INFINITY, &sum);
    rows_check(isnan(sum), "softmax of +inf", v->name, 0, 0, 0, sum);
}
static double act_of(double x, int64_t kind) {
    switch (kind) {
    case MN_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case MN_ACT_RELU2:
        return x < 0 ? 0 : x * x;
    case MN_ACT_SILU:
        return x / (1 + exp(-x));
    case MN_ACT_GELU_ERF:
        return x / 2 * erfc(-x / sqrt(2));
    case MN_ACT_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    default:
        return x < 0 ? 0 : x;
    }
}
/* NaN and infinities come out of an activation as its formula says; squares beyond f32 do not make
 * zeros of a norm. */
static void bad_values(const mnk_vector *v) {
    enum { D = 35 };
    float x[D];
    float y[D];
    float g[D];
    uint64_t attr[2] = {0};
    const mn_node node = {.n_in = 3, .n_out = 1};
    const mnc_weight wg = {
        .dtype = {MN_F32, 1, 4, 1},
        .data = (void *)g,
        .rows = 1,
        .cols = D,
    };
    mnc_call c = {
        .node = &node,
        .attr = attr,
        .n_attr = 1,
    };
    for (int i = 0; i < D; i++) {
        static const float odd[] = {NAN, INFINITY, -INFINITY};
        x[i] = odd[i % 3];
        g[i] = 1;
    }
    c.in[0] = (mnc_operand){
        .ptr = x,
        .dim = {1, D},
        .n_dim = 2,
        .rows = 1,
        .cols = D,
    };
    c.out[0] = c.in[0];
    c.out[0].ptr = y;
    for (attr[0] = 0; attr[0] < 6; attr[0]++) {
        rows_run(v->act, &c, 1);
        for (int i = 0; i < D; i++) {
            const double want = act_of((double)x[i], (int64_t)attr[0]);
            rows_check(isnan(want) ? isnan(y[i]) : y[i] == want, "act of NaN and infinity", v->name,
                       i, (int64_t)attr[0], 0, y[i]);
        }
    }
    for (int i = 0; i < D; i++)
        x[i] = i % 2 ? 1e30f : -1e30f;
    attr[0] = rows_bits(1e-5);
    c.in[1] = (mnc_operand){.weight = &wg};
    rows_run(v->rms_norm, &c, 1);
    rows_check(fabs(y[3] - 1.0) < 1e-5 && fabs(y[4] + 1.0) < 1e-5, "rms_norm of 1e30", v->name, 0,
               0, 0, y[3]);
    rows_run(v->layer_norm, &c, 1);
    rows_check(fabs(y[3] - y[4] - 2.0) < 1e-2, "layer_norm of 1e30", v->name, 0, 0, 0, y[3]);
    x[7] = NAN;
    rows_run(v->rms_norm, &c, 1);
    rows_check(isnan(y[0]) && isnan(y[34]), "rms_norm of NaN", v->name, 0, 0, 0, y[0]);
    rows_run(v->layer_norm, &c, 1);
    rows_check(isnan(y[0]) && isnan(y[34]), "layer_norm of NaN", v->name, 0, 0, 0, y[0]);
}

static void small_ops(const mnk_vector *v, int64_t r, int64_t d) {
    int64_t n = r * d;
    float *a = malloc(sizeof *a * (size_t)n);
    float *b = malloc(sizeof *b * (size_t)n);
    float *y = malloc(sizeof *y * (size_t)n);
    float *g = malloc(sizeof *g * (size_t)d);
    double *want = malloc(sizeof *want * (size_t)n);
    mn_node node = {.n_in = 3, .n_out = 1};
    mnc_weight wg = {
        .dtype = {MN_F32, 1, 4, 1},
        .data = g,
        .rows = 1,
        .cols = d,
    };
    uint64_t attr[2] = {0};
    for (int64_t i = 0; i < n; i++) {
        a[i] = 8 * rows_uniform() + 1;
        b[i] = rows_uniform();
    }
    for (int64_t i = 0; i < d; i++)
        g[i] = rows_uniform();
    mnc_call c = {
        .node = &node,
        .attr = attr,
        .n_attr = 2,
    };
    c.in[0] = (mnc_operand){
        .ptr = a,
        .dim = {r, d},
        .n_dim = 2,
        .rows = r,
        .cols = d,
    };
    c.in[1] = c.in[0];
    c.in[1].ptr = b;
    c.out[0] = c.in[0];
    c.out[0].ptr = y;
#define EACH(fn, what, tol, expr)                                                                  \
    memset(y, 0xff, sizeof *y *(size_t)n);                                                         \
    rows_run(fn, &c, 2);                                                                           \
    for (int64_t i = 0; i < n; i++)                                                                \
        want[i] = expr;                                                                            \
    rows_check(rows_rel_l2(y, want, n) < tol, what, v->name, d, 0, r, rows_rel_l2(y, want, n))
    for (uint64_t kind = 0; kind < 6; kind++) {
        attr[0] = kind;
        EACH(v->act, "act", 1e-6, act_of(a[i], (int64_t)kind));
        EACH(v->glu, "glu", 1e-6, act_of(a[i], (int64_t)kind) * b[i]);
    }
    EACH(v->add, "add", 1e-6, (double)a[i] + b[i]);
    EACH(v->mul, "mul", 1e-6, (double)a[i] * b[i]);
    attr[0] = rows_bits(0.37);
    EACH(v->scale_op, "scale", 1e-6, 0.37 * a[i]);
    attr[0] = rows_bits(5);
    EACH(v->softcap, "softcap", 1e-6, 5 * tanh(a[i] / 5.0));
    c.in[1] = (mnc_operand){.weight = &wg};
    c.in[2] = c.in[1];
    attr[0] = rows_bits(1e-5);
    attr[1] = rows_bits(1);
    double *ms = calloc((size_t)r, sizeof *ms);
    double *mean = calloc((size_t)r, sizeof *mean);
    for (int64_t i = 0; i < n; i++) {
        ms[i / d] += (double)a[i] * a[i] / (double)d;
        mean[i / d] += (double)a[i] / (double)d;
    }
    EACH(v->rms_norm, "rms_norm", 1e-6, a[i] / sqrt(ms[i / d] + 1e-5) * ((double)g[i % d] + 1));
    EACH(v->layer_norm, "layer_norm", 5e-6,
         (a[i] - mean[i / d]) / sqrt(ms[i / d] - mean[i / d] * mean[i / d] + 1e-5) * g[i % d] +
             g[i % d]);
    free(a);
    free(b);
    free(y);
    free(g);
    free(want);
    free(ms);
    free(mean);
}

void rows_small(const mnk_vector *v) {
    halves(v);
    exps(v);
    softmaxes(v);
    bad_values(v);
    small_ops(v, 3, 64);
    small_ops(v, 2, 1111);
    small_ops(v, 5, 7);
}
