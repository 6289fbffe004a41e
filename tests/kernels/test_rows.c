/* test_rows.c -- every row of cpu_simd's table that this CPU can run against double arithmetic.
 * Stands alone: links the row units and the drivers, the oracle's dequantisation, not cpu_host (its
 * few helpers are here) and no plugin, so that it also runs cross-built. */
#include "../../plugins/cpu_simd/nodes.h"
#include "../../plugins/reference/reference.h"
#include "case.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define UNSANITIZED __attribute__((no_sanitize("address", "undefined")))

static int n_failed, n_checks;
static bool quick; /* under an emulator: fewer shapes, and the best set alone */
static void check(bool ok, const char *what, const char *row, int64_t k, int64_t n, int64_t r,
                  double got) {
    n_checks++;
    if (ok)
        return;
    n_failed++;
    printf("FAILED %s: %s K %lld N %lld R %lld: %g\n", what, row, (long long)k, (long long)n,
           (long long)r, got);
}

/* ---- the helpers of cpu_host, over threads of this program ----------------------------------- */
void mnc_range(const mnc_worker *w, int64_t total, int64_t grain, int64_t *lo, int64_t *hi) {
    int64_t units = (total + grain - 1) / grain;
    *lo = units * w->i / w->n * grain;
    *hi = units * (w->i + 1) / w->n * grain;
    if (*hi > total)
        *hi = total;
    if (*lo > total)
        *lo = total;
}
void mnc_range_guided(const mnc_worker *w, int64_t total, int64_t grain, int64_t *lo, int64_t *hi) {
    mnc_range(w, total, grain, lo, hi);
}
int64_t mnc_attr_int(const mnc_call *c, uint32_t i) {
    return i < c->n_attr ? (int64_t)c->attr[i] : 0;
}
double mnc_attr_f64(const mnc_call *c, uint32_t i) {
    double d = 0;
    if (i < c->n_attr)
        memcpy(&d, &c->attr[i], 8);
    return d;
}
const mn_tensor *mnc_query_in(const mnc_query *q, uint32_t i) {
    (void)q;
    (void)i;
    return NULL;
}
int64_t mnc_query_dim(const mnc_query *q, const mn_tensor *t, uint32_t i) {
    (void)q;
    (void)t;
    (void)i;
    return 0;
}
mnc_weight mnc_expert(const mnc_weight *w, int64_t e) {
    (void)e;
    return *w;
}

typedef struct {
    mnc_fn fn;
    const mnc_call *c;
    mnc_worker w;
} job;
/* Every n_threads-th part from its first one on. */
static void *job_main(void *p) {
    job *j = p;
    for (; j->w.i < j->w.n; j->w.i += j->w.n_threads)
        j->fn(j->c, &j->w);
    return NULL;
}
#define SCRATCH (4u << 20)
static void run_stage(mnc_fn fn, const mnc_call *c, uint32_t n_parts, uint32_t n_threads) {
    job j[4];
    pthread_t t[4];
    for (uint32_t i = 0; i < n_threads; i++) {
        j[i] = (job){fn, c, {i, n_parts, n_threads, aligned_alloc(64, SCRATCH)}};
        memset(j[i].w.scratch, 0xff, SCRATCH);
        pthread_create(&t[i], NULL, job_main, &j[i]);
    }
    for (uint32_t i = 0; i < n_threads; i++) {
        pthread_join(t[i], NULL);
        free(j[i].w.scratch);
    }
}
static void run(mnc_fn fn, mnc_call *c, uint32_t n) {
    c->shared = aligned_alloc(64, SCRATCH);
    memset(c->shared, 0xff, SCRATCH); /* NaN */
    run_stage(fn, c, n, n);
    free(c->shared);
}
static void run_attention(mnc_call *c, uint32_t n) {
    c->shared = aligned_alloc(64, SCRATCH);
    memset(c->shared, 0xff, SCRATCH);
    const uint32_t first = mnk_attention_parts(c, MNC_FIRST, n);
    if (first)
        run_stage(mnk_attention_split, c, first, n);
    run_stage(mnk_attention_node, c, mnk_attention_parts(c, MNC_MAIN, n), n);
    free(c->shared);
}

/* ---- numbers --------------------------------------------------------------------------------- */
static uint64_t seed = 1;
static uint32_t next_u32(void) {
    return (uint32_t)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 32);
}
static float uniform(void) {
    return (float)next_u32() / 2147483648.0f - 1;
}
static double f16_value(uint16_t h) {
    int e = h >> 10 & 31;
    int m = h & 1023;
    double v = ldexp(1024 + m, e - 25);
    if (e == 0)
        v = ldexp(m, -24);
    if (e == 31)
        v = m ? NAN : INFINITY;
    return h & 0x8000 ? -v : v;
}
static double rel_l2(const float *a, const double *b, int64_t n) {
    double e = 0;
    double s = 0;
    for (int64_t i = 0; i < n; i++) {
        e += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += b[i] * b[i];
    }
    return s > 0 ? sqrt(e / s) : sqrt(e);
}
static double norm(const double *a, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += a[i] * a[i];
    return sqrt(s);
}

/* ---- LINEAR ---------------------------------------------------------------------------------- */

/* The F16 values of a scale or bias plane, as MLX stores them too: in another type, moved up to the
 * next place in memory. */
static uint8_t *as_dtype(mnc_extra *e, uint32_t dtype, int64_t n, uint8_t *to) {
    for (int64_t i = 0; i < n; i++) {
        const float f = (float)f16_value(mnk_u16(e->data + 2 * i));
        uint32_t u = mnk_f32_bits(f);
        uint16_t h = (uint16_t)(u >> 16);
        memcpy(to + i * (dtype == MN_F32 ? 4 : 2), dtype == MN_F32 ? (void *)&u : (void *)&h,
               dtype == MN_F32 ? 4 : 2);
    }
    const uint64_t step = dtype == MN_F32 ? 4 : 2;
    *e = (mnc_extra){
        .data = to,
        .row_bytes = e->row_bytes / e->step * step,
        .step = step,
        .dtype = dtype,
    };
    return to + (uint64_t)n * step;
}

static mnc_extra *extra_of(mnc_weight *w, uint32_t kind) {
    return kind == MN_PLANE_SCALE ? &w->scale : kind == MN_PLANE_BIAS ? &w->bias : &w->tensor_scale;
}

/* A random weight [n, k]; its planes lie behind one another, the last of them at an odd address
 * where the type allows it. */
static mnc_weight random_weight(uint32_t type, int64_t n, int64_t k, uint8_t **memory) {
    const mn_dtype t = case_dtype(type);
    const uint64_t bytes = case_plane_bytes(type, n * k);
    const uint64_t blocks = (uint64_t)k / t.block_elems;
    mnc_weight w = {
        .dtype = t,
        .rows = n,
        .cols = k,
        .row_bytes = case_plane_bytes(type, k),
    };
    mn_plane_spec spec;
    const bool floats = t.n_planes == 3 && mn_dtype_plane(type, 1, &spec) && spec.is_float;
    uint8_t *p = *memory =
        malloc(case_weight_bytes(type, n, k) + (type == MN_F8_E4M3 ? (uint64_t)n * 4 : 0) +
               (floats ? 8 * blocks * (uint64_t)n : 0) + 2);
    uint64_t s = next_u32();
    p += type == MN_F32 ? 0 : 2;
    case_random_weight(type, n, k, &s, p);
    w.data = p;
    p += bytes;
    for (uint32_t i = 1; i < t.n_planes && mn_dtype_plane(type, i, &spec); i++) {
        const uint64_t step = case_dtype(spec.dtype).block_bytes;
        const uint64_t row = spec.by_block ? blocks * step : step;
        *extra_of(&w, spec.kind) = (mnc_extra){
            .data = p,
            .row_bytes = spec.rows == 1 ? row : 0,
            .step = spec.by_block ? step : 0,
            .dtype = spec.dtype,
        };
        p += (uint64_t)n * row;
    }
    for (int i = 0; floats && i < 2 && n % 3; i++)
        p = as_dtype(i ? &w.bias : &w.scale, n % 3 == 1 ? MN_BF16 : MN_F32, (int64_t)blocks * n, p);
    if (type == MN_F8_E4M3 && n % 2) { /* with and without scales */
        w.scale = (mnc_extra){
            .data = p,
            .row_bytes = 4,
            .step = 0,
            .dtype = MN_F32,
        };
        for (int64_t i = 0; i < n; i++) {
            float f = 0.01f + 0.002f * (float)i;
            memcpy(p + 4 * i, &f, 4);
        }
    }
    return w;
}

enum { MOST_ROWS = 33, QUICK_ROWS = 7 };

/* The most rows of a case. */
static int64_t most_rows(void) {
    return quick ? QUICK_ROWS : MOST_ROWS;
}

/* The inputs of a case as a kernel reads them, and what the weight makes of them in double
 * arithmetic: want [MOST_ROWS, n]. */
typedef struct {
    uint8_t *rows;
    int64_t ldx;   /* bytes from row to row */
    double *value; /* [k, MOST_ROWS] */
    double *want;
} linear_inputs;

/* A weight [n, k] and most_rows() random rows, for all numbers of rows. */
typedef struct {
    uint32_t type, precision;
    int32_t level;
    int64_t k, n;
    mnc_weight w;
    uint8_t *memory;
    float *wv, *x;
    linear_inputs in[2]; /* as they are; as blocks of int8. Those that were needed. */
} linear_case;

static linear_case linear_open(uint32_t type, uint32_t precision, int32_t level, int64_t k,
                               int64_t n) {
    linear_case c = {
        .type = type,
        .precision = precision,
        .level = level,
        .k = k,
        .n = n,
    };
    c.w = random_weight(type, n, k, &c.memory);
    c.wv = malloc(sizeof *c.wv * (size_t)(k * n));
    c.x = malloc(sizeof *c.x * (size_t)(k * MOST_ROWS));
    for (int64_t i = 0; i < n; i++)
        ref_row(&c.w, i, c.wv + i * k);
    for (int64_t i = 0; i < k * most_rows(); i++)
        c.x[i] = uniform();
    return c;
}

static void linear_close(linear_case *c) {
    for (int i = 0; i < 2; i++) {
        free(c->in[i].rows);
        free(c->in[i].value);
        free(c->in[i].want);
    }
    free(c->memory);
    free(c->wv);
    free(c->x);
}

/* The rows in one of the two forms, and their values. */
static void put_rows(const linear_case *c, bool quantised, linear_inputs *in) {
    const int64_t k = c->k;
    in->ldx = quantised ? mnk_quant_bytes(k) : 4 * k;
    in->rows = aligned_alloc(64, (size_t)((MOST_ROWS * in->ldx + 63) / 64 * 64));
    in->value = malloc(sizeof *in->value * (size_t)(k * MOST_ROWS));
    for (int64_t i = 0; i < most_rows(); i++) {
        uint8_t *row = in->rows + i * in->ldx;
        const float *x = c->x + i * k;
        if (quantised)
            mnk_quantise(x, k, row);
        else
            memcpy(row, x, (size_t)(4 * k));
        for (int64_t j = 0; j < k; j++) {
            double value = x[j];
            if (quantised)
                value = (double)mnk_quant_d(row, k)[j / 32] * (int8_t)row[j];
            in->value[j * MOST_ROWS + i] = value;
        }
    }
}

/* Most of the time under sanitizers, which pass it over. */
UNSANITIZED static void add_scaled(double *sum, const double *value, double by, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        sum[i] += value[i] * by;
}

static const linear_inputs *linear_inputs_of(linear_case *c, bool quantised) {
    linear_inputs *in = &c->in[quantised];
    if (in->rows)
        return in;
    put_rows(c, quantised, in);
    in->want = malloc(sizeof *in->want * (size_t)(c->n * MOST_ROWS));
    const int64_t n_rows = most_rows();
    for (int64_t j = 0; j < c->n; j++) {
        const float *weight = c->wv + j * c->k;
        const double *value = in->value;
        double sum[MOST_ROWS] = {0};
        for (int64_t l = 0; l < c->k; l++) {
            add_scaled(sum, value, weight[l], n_rows);
            value += MOST_ROWS;
        }
        for (int64_t i = 0; i < n_rows; i++)
            in->want[i * c->n + j] = sum[i];
    }
    return in;
}

/* The size of one output where inputs and weights do not cancel. */
static double usual_output(const linear_case *c, const linear_inputs *in, int64_t r) {
    double nx = 0;
    double nw = 0;
    for (int64_t l = 0; l < c->k; l++) {
        const double *value = in->value + l * MOST_ROWS;
        for (int64_t i = 0; i < r; i++)
            nx += value[i] * value[i];
    }
    for (int64_t i = 0; i < c->k * c->n; i++) {
        const double weight = c->wv[i];
        nw += weight * weight;
    }
    return sqrt(nx * nw / (double)c->k);
}

static void multiply_rows(const mnk_linear *kern, const mnc_weight *w, const uint8_t *x,
                          int64_t ldx, int64_t r, float *y, void *panel, uint64_t panel_bytes) {
    mnk_pair pair[MOST_ROWS];
    for (int64_t i = 0; i < r; i++)
        pair[i] = (mnk_pair){x + i * ldx, y + i * w->rows};
    memset(panel, 0xff, panel_bytes);
    mnk_linear_rows(kern, w, pair, r, 0, w->rows, panel);
}

/* The first r rows: near the double ones; the first and the last of them as they come out alone. */
static void linear_rows_case(linear_case *c, int64_t r) {
    const mnk_linear *kern = mnk_find_linear(c->type, c->precision, c->level, r);
    const mnk_linear *few = mnk_find_linear(c->type, c->precision, c->level, 1);
    const linear_inputs *in = linear_inputs_of(c, kern->quantised_x);
    const int64_t n = c->n;
    const uint64_t pb = (kern->panel_bytes ? kern->panel_bytes(c->k) : 0) / 64 * 64 + 64;
    float *y = malloc(sizeof *y * (size_t)(n * r));
    float *one = malloc(sizeof *one * (size_t)n);
    void *panel = aligned_alloc(64, pb);
    memset(y, 0xff, sizeof *y * (size_t)(n * r));
    multiply_rows(kern, &c->w, in->rows, in->ldx, r, y, panel, pb);
    const double e = rel_l2(y, in->want, n * r) * norm(in->want, n * r);
    const double by = usual_output(c, in, r); /* a single output may cancel */
    /* by is 0: all weights are */
    check(e <= 2e-6 * by, "error", kern->name, c->k, n, r, e / by);
    for (int64_t i = 0; i < r && !few->quantised_x; i += r > 1 ? r - 1 : 1) {
        multiply_rows(few, &c->w, in->rows + i * in->ldx, in->ldx, 1, one, panel, pb);
        check(!memcmp(one, y + i * n, sizeof *one * (size_t)n), "bits depend on R", kern->name,
              c->k, n, r, (double)i);
    }
    free(y);
    free(one);
    free(panel);
}

static void linear_row(uint32_t type, uint32_t precision, int32_t level) {
    static const int64_t blocks[] = {1, 3, 9, 33, 65};
    static const int64_t floats[] = {1, 7, 33, 64, 1030, 2083};
    static const int64_t ns[] = {1, 3, 17, 50, 70};
    static const int64_t rs[] = {1, 2, 4, QUICK_ROWS, MOST_ROWS};
    const int64_t grain = mnk_find_linear(type, precision, level, 1)->grain;
    int64_t e = case_dtype(type).block_elems;
    e = e > grain ? e : grain;
    const int64_t most = e > 128 ? 3 : e > 32 ? 4 : 5;
    for (int64_t i = quick; i < (e > 1 ? most : 6 - quick); i++) {
        for (int j = 0; j < 5; j += 1 + quick) {
            linear_case c =
                linear_open(type, precision, level, e > 1 ? e * blocks[i] : floats[i], ns[j]);
            for (int l = quick; l < 5; l += 1 + quick)
                linear_rows_case(&c, rs[l]);
            linear_close(&c);
        }
    }
}

/* ---- vectors and small ops ------------------------------------------------------------------- */
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
        const double want = f16_value((uint16_t)i);
        const bool both_nan = isnan(f[i]) && isnan(want);
        bad += f[i] != want && !both_nan;
    }
    check(bad == 0, "f16 to f32", v->name, 0, 0, 0, bad);
    for (int i = 0; i < 65536; i++)
        f[i] = uniform() * ldexpf(1, (int)(next_u32() % 44) - 27);
    v->pack_f16(f, 65535, h);
    for (int i = 0; i < 65535; i++)
        bad += mnk_u16(h + 2 * i) != mnk_to_f16(f[i]);
    for (int i = 0; i < 65535; i++) { /* nearest: no neighbour is nearer */
        uint16_t u = mnk_u16(h + 2 * i);
        double e = fabs(f16_value(u) - f[i]);
        bad += (u & 0x7fff) < 0x7c00 &&
               (fabs(f16_value((uint16_t)(u + 1)) - f[i]) < e ||
                ((u & 0x7fff) && fabs(f16_value((uint16_t)(u - 1)) - f[i]) < e));
    }
    check(bad == 0, "f32 to f16", v->name, 0, 0, 0, bad);
    free(h);
    free(f);
}
static void exps(const mnk_vector *v) {
    double worst = 0;
    for (int i = 0; i < (quick ? 10000 : 100000); i++) {
        float x = uniform() * 87;
        worst = fmax(worst, fabs((double)v->exp1(x) / exp(x) - 1));
    }
    check(worst < 2.4e-7, "exp", v->name, 0, 0, 0, worst);
    check(v->exp1(0) == 1 && v->exp1(-INFINITY) == 0 && isnan(v->exp1(NAN)), "exp at 0, -inf, NaN",
          v->name, 0, 0, 0, v->exp1(-INFINITY));
    check(v->exp1(INFINITY) == INFINITY, "exp at infinity", v->name, 0, 0, 0, v->exp1(INFINITY));
}
/* NaN is never passed over, and -inf is a logit like another one. */
static void softmaxes(const mnk_vector *v) {
    float s[MNK_TILE];
    float sum;
    float top;
    for (int at = 3; at < 20; at++) {
        for (int i = 0; i < MNK_TILE; i++)
            s[i] = i == at ? NAN : uniform();
        v->softmax(s, 3, 20, 0.5f, 0, -INFINITY, &sum);
        check(isnan(sum), "softmax of NaN", v->name, at, 0, 0, sum);
    }
    for (int i = 0; i < MNK_TILE; i++)
        s[i] = i == 5 || i == 40 ? NAN : -INFINITY; /* masked */
    top = v->softmax(s, 6, 20, 0.5f, 0, -INFINITY, &sum);
    check(top == -INFINITY && sum == 0, "softmax of -inf", v->name, 0, 0, 0, sum);
    for (int i = 0; i < MNK_TILE; i++)
        s[i] = -INFINITY;
    top = v->softmax(s, 0, 2, 1, 30, -INFINITY, &sum);
    check(top == -30 && sum == 2, "softmax of -inf under a soft cap", v->name, 0, 0, 0, sum);
    s[0] = INFINITY;
    s[1] = 1;
    v->softmax(s, 0, 2, 1, 0, -INFINITY, &sum);
    check(isnan(sum), "softmax of +inf", v->name, 0, 0, 0, sum);
}
static double act_of(double x, int64_t kind) {
    switch (kind) {
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
static uint64_t bits(double d) {
    uint64_t u;
    memcpy(&u, &d, 8);
    return u;
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
        x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
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
    for (attr[0] = 0; attr[0] < 4; attr[0]++) {
        run(v->act, &c, 1);
        for (int i = 0; i < D; i++) {
            const double want = act_of((double)x[i], (int64_t)attr[0]);
            check(isnan(want) ? isnan(y[i]) : y[i] == want, "act of NaN and infinity", v->name, i,
                  (int64_t)attr[0], 0, y[i]);
        }
    }
    for (int i = 0; i < D; i++)
        x[i] = i % 2 ? 1e30f : -1e30f;
    attr[0] = bits(1e-5);
    c.in[1] = (mnc_operand){.weight = &wg};
    run(v->rms_norm, &c, 1);
    check(fabs(y[3] - 1.0) < 1e-5 && fabs(y[4] + 1.0) < 1e-5, "rms_norm of 1e30", v->name, 0, 0, 0,
          y[3]);
    run(v->layer_norm, &c, 1);
    check(fabs(y[3] - y[4] - 2.0) < 1e-2, "layer_norm of 1e30", v->name, 0, 0, 0, y[3]);
    x[7] = NAN;
    run(v->rms_norm, &c, 1);
    check(isnan(y[0]) && isnan(y[34]), "rms_norm of NaN", v->name, 0, 0, 0, y[0]);
    run(v->layer_norm, &c, 1);
    check(isnan(y[0]) && isnan(y[34]), "layer_norm of NaN", v->name, 0, 0, 0, y[0]);
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
        a[i] = 8 * uniform() + 1;
        b[i] = uniform();
    }
    for (int64_t i = 0; i < d; i++)
        g[i] = uniform();
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
    run(fn, &c, 2);                                                                                \
    for (int64_t i = 0; i < n; i++)                                                                \
        want[i] = expr;                                                                            \
    check(rel_l2(y, want, n) < tol, what, v->name, d, 0, r, rel_l2(y, want, n))
    for (uint64_t kind = 0; kind < 4; kind++) {
        attr[0] = kind;
        EACH(v->act, "act", 1e-6, act_of(a[i], (int64_t)kind));
        EACH(v->glu, "glu", 1e-6, act_of(a[i], (int64_t)kind) * b[i]);
    }
    EACH(v->add, "add", 1e-6, (double)a[i] + b[i]);
    EACH(v->mul, "mul", 1e-6, (double)a[i] * b[i]);
    attr[0] = bits(0.37);
    EACH(v->scale_op, "scale", 1e-6, 0.37 * a[i]);
    attr[0] = bits(5);
    EACH(v->softcap, "softcap", 1e-6, 5 * tanh(a[i] / 5.0));
    c.in[1] = (mnc_operand){.weight = &wg};
    c.in[2] = c.in[1];
    attr[0] = bits(1e-5);
    attr[1] = bits(1);
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

/* ---- ATTENTION with KV_STORE ----------------------------------------------------------------- */
typedef struct {
    int64_t h;
    int64_t hkv;
    int64_t dk;
    int64_t dv;
    int64_t window;
    double cap;
    bool sinks;
    uint32_t kv;
    const char *name;
    int32_t level;
} shape;
#define SLOTS 3
#define PAGES 12
#define PAGE 64
typedef struct {
    float *q;
    float *k;
    float *v;
    float *k_kept; /* as the cache has them */
    float *v_kept;
    float *y;
    float *sink;
    uint8_t *kv;
    int32_t *pos;
    int32_t *slot;
    int32_t *seqs;
    int32_t *pages;
    int64_t t;
} att;

/* Bytes of a head's row of n elements. */
static int64_t cached_bytes(const shape *s, int64_t n) {
    const int64_t block = mnp_kv_block(s->kv);
    return (n + block - 1) / block * mnp_kv_block_bytes(s->kv);
}

/* Runs a step over the given slots' whole sequences (len[slot] tokens), or only their last row. */
static void attend(const shape *s, att *a, const int64_t *len, bool last_only, uint32_t workers) {
    static mnk_use use;
    mn_node node = {.n_in = 7, .n_out = 1};
    const int64_t places = s->hkv * PAGE;
    const int64_t k_row = cached_bytes(s, s->dk);
    const int64_t v_row = cached_bytes(s, s->dv);
    const uint64_t page_bytes = (uint64_t)(places * (k_row + v_row));
    uint64_t attr[7] = {bits(0.3), (uint64_t)s->window, bits(s->cap),   0,
                        0,         (uint64_t)s->hkv,    (uint64_t)s->dv};
    uint64_t none[2] = {0, 0};
    mnc_weight sinks = {.dtype = {MN_F32, 1, 4, 1}, .data = a->sink};
    use = (mnk_use){MN_PRECISION_EXACT, s->level, false};
    mnc_call c = {
        .node = &node,
        .attr = attr,
        .n_attr = 7,
        .user = &use,
    };
    c.kv = (mnc_kv){
        .geo.k_dtype = s->kv,
        .geo.v_dtype = s->kv,
        .geo.page_tokens = PAGE,
        .geo.n_layers = 1,
        .geo.n_head_kv = s->hkv,
        .geo.dim_k = s->dk,
        .geo.dim_v = s->dv,
        .geo.page_bytes = page_bytes,
        .geo.layer_bytes = page_bytes,
        .geo.k_row = k_row,
        .geo.v_row = v_row,
        .geo.v_offset = (uint64_t)(places * k_row),
        .pages = a->pages,
        .max_pages = PAGES,
        .n_pages = SLOTS * PAGES,
        .base = a->kv,
    };
    int64_t t = 0;
    int64_t from = 0;
    int64_t row = 0;
    memset(a->seqs, 0, SLOTS * 4 * sizeof *a->seqs);
    float *q = malloc(sizeof *q * (size_t)(a->t * s->h * s->dk));
    for (int32_t i = 0; i < SLOTS; from += len[i], i++) {
        int64_t n = last_only ? len[i] > 0 : len[i];
        int64_t skip = len[i] - n;
        a->seqs[4 * i] = (int32_t)t;
        a->seqs[4 * i + 1] = (int32_t)n;
        a->seqs[4 * i + 2] = i;
        for (int64_t j = 0; j < n; j++, t++) {
            a->pos[t] = (int32_t)(skip + j);
            a->slot[t] = i;
            row = from + skip + j;
            memcpy(q + t * s->h * s->dk, a->q + row * s->h * s->dk,
                   sizeof *q * (size_t)(s->h * s->dk));
        }
    }
    c.in[MN_ATTENTION_Q] = (mnc_operand){
        .ptr = q,
        .dim = {t, s->h, s->dk},
        .n_dim = 3,
        .rows = t,
    };
    c.in[MN_ATTENTION_ROW_POS] = (mnc_operand){.ptr = a->pos, .rows = t};
    c.in[MN_ATTENTION_ROW_SLOT] = (mnc_operand){.ptr = a->slot, .rows = t};
    c.in[MN_ATTENTION_SEQS] = (mnc_operand){.ptr = a->seqs, .rows = SLOTS};
    if (s->sinks)
        c.in[MN_ATTENTION_SINKS].weight = &sinks;
    c.out[0].ptr = a->y;
    if (!last_only) { /* store all first */
        mnc_call st = c;
        st.attr = none;
        st.n_attr = 2;
        memset(a->kv, 0xff, SLOTS * PAGES * page_bytes);
        st.in[MN_KV_STORE_K] = (mnc_operand){.ptr = a->k, .rows = t};
        st.in[MN_KV_STORE_V] = (mnc_operand){.ptr = a->v, .rows = t};
        st.in[MN_KV_STORE_ROW_POS] = c.in[MN_ATTENTION_ROW_POS];
        st.in[MN_KV_STORE_ROW_SLOT] = c.in[MN_ATTENTION_ROW_SLOT];
        run(mnk_kv_store_node, &st, workers);
    }
    memset(a->y, 0xff, sizeof *a->y * (size_t)(t * s->h * s->dv));
    run_attention(&c, workers);
    free(q);
}
/* Copies rows of n elements each as the cache rounds them. */
static float *as_kept(const shape *s, const float *x, int64_t rows, int64_t n) {
    float *to = malloc(sizeof *to * (size_t)(rows * n));
    uint8_t kept[34];
    if (s->kv == MN_F32)
        memcpy(to, x, sizeof *to * (size_t)(rows * n));
    if (s->kv == MN_F16) {
        for (int64_t i = 0; i < rows * n; i++)
            to[i] = (float)f16_value(mnk_to_f16(x[i]));
    }
    if (s->kv != MN_Q8_0)
        return to;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t end = (i + 1) * n;
        int64_t j = i * n;
        while (j < end) {
            const int64_t left = end - j < 32 ? end - j : 32;
            mn_cached_put(MN_Q8_0, x + j, left, kept);
            mn_cached_get(MN_Q8_0, kept, left, to + j);
            j += left;
        }
    }
    return to;
}

/* y: [dv], one query against positions [lo, p] of the keys and values of its head, hkv heads
 * apart. */
static void oracle_row(const shape *s, const float *q, const float *k, const float *v, int64_t lo,
                       int64_t p, const float *sink, double *y) {
    const int64_t k_row = s->hkv * s->dk;
    const int64_t v_row = s->hkv * s->dv;
    double logit[PAGES * PAGE];
    double top = sink ? *sink : -INFINITY;
    for (int64_t j = lo; j <= p; j++) {
        const float *key = k + j * k_row;
        double l = 0;
        for (int64_t d = 0; d < s->dk; d++)
            l += (double)q[d] * (double)key[d];
        l *= 0.3;
        logit[j] = s->cap != 0 ? s->cap * tanh(l / s->cap) : l;
        top = fmax(top, logit[j]);
    }
    double sum = sink ? exp(*sink - top) : 0;
    memset(y, 0, sizeof *y * (size_t)s->dv);
    for (int64_t j = lo; j <= p; j++) {
        const float *value = v + j * v_row;
        const double e = exp(logit[j] - top);
        sum += e;
        for (int64_t d = 0; d < s->dv; d++)
            y[d] += e * (double)value[d];
    }
    for (int64_t d = 0; d < s->dv; d++)
        y[d] /= sum;
}

static void oracle(const shape *s, const att *a, const int64_t *len, double *want) {
    const int64_t g = s->h / s->hkv;
    int64_t from = 0;
    for (int i = 0; i < SLOTS; from += len[i], i++) {
        for (int64_t p = 0; p < len[i]; p++) {
            for (int64_t h = 0; h < s->h; h++) {
                const int64_t lo = s->window && p >= s->window ? p - s->window + 1 : 0;
                const int64_t head = (from + p) * s->h + h;
                const int64_t head_kv = from * s->hkv + h / g;
                const float *k = a->k_kept + head_kv * s->dk;
                const float *v = a->v_kept + head_kv * s->dv;
                const float *sink = s->sinks ? &a->sink[h] : NULL;
                double *y = want + head * s->dv;
                oracle_row(s, a->q + head * s->dk, k, v, lo, p, sink, y);
            }
        }
    }
}

static void attention_case(const shape *s, const int64_t len[SLOTS]) {
    int64_t t = len[0] + len[1] + len[2];
    int64_t row = 0;
    att a = {.t = t};
    size_t nq = (size_t)(t * s->h * s->dk);
    size_t nk = (size_t)(t * s->hkv * s->dk);
    size_t nv = (size_t)(t * s->hkv * s->dv);
    size_t ny = (size_t)(t * s->h * s->dv);
    a.q = malloc(4 * nq);
    a.k = malloc(4 * nk);
    a.v = malloc(4 * nv);
    a.y = malloc(4 * ny);
    a.sink = malloc(4 * (size_t)s->h);
    a.kv = malloc((size_t)(SLOTS * PAGES * PAGE * s->hkv * (s->dk + s->dv)) * 4);
    a.pos = malloc(4 * (size_t)t);
    a.slot = malloc(4 * (size_t)t);
    a.seqs = malloc(SLOTS * 16);
    a.pages = malloc(SLOTS * PAGES * 4);
    double *want = malloc(sizeof *want * ny);
    float *all = malloc(4 * ny);
    for (size_t i = 0; i < nq; i++)
        a.q[i] = 2 * uniform();
    for (size_t i = 0; i < nk; i++)
        a.k[i] = 2 * uniform();
    for (size_t i = 0; i < nv; i++)
        a.v[i] = uniform();
    for (int64_t i = 0; i < s->h; i++)
        a.sink[i] = 3 * uniform();
    for (int i = 0; i < SLOTS * PAGES; i++)
        a.pages[i] = (i * 7 + 5) % (SLOTS * PAGES);
    a.k_kept = as_kept(s, a.k, t * s->hkv, s->dk);
    a.v_kept = as_kept(s, a.v, t * s->hkv, s->dv);
    oracle(s, &a, len, want);
    attend(s, &a, len, false, 2);
    memcpy(all, a.y, 4 * ny);
    double e = rel_l2(all, want, (int64_t)ny);
    check(e < 2e-6, "attention", s->name, s->dk, s->h, t, e);
    size_t hv = (size_t)(s->h * s->dv);
    /* last rows alone: maybe split over the chunks */
    for (uint32_t workers = 1; workers <= 3; workers++) {
        for (int only = -1; only < SLOTS; only++) {
            int64_t l[SLOTS];
            int64_t y = 0;
            for (int i = 0; i < SLOTS; i++)
                l[i] = only < 0 || only == i ? len[i] : 0;
            float *q = a.q;
            for (int i = 0; i < only; i++)
                a.q += len[i] * s->h * s->dk;
            attend(s, &a, l, true, workers);
            a.q = q;
            row = 0;
            for (int i = 0; i < SLOTS; i++) {
                row += len[i];
                if (l[i]) {
                    check(!memcmp(a.y + (size_t)y++ * hv, all + (size_t)(row - 1) * hv, 4 * hv),
                          "attention's bits depend on the step", s->name, s->dk, s->h, workers,
                          only);
                }
            }
        }
    }
    free(a.q);
    free(a.k);
    free(a.v);
    free(a.k_kept);
    free(a.v_kept);
    free(a.y);
    free(a.sink);
    free(a.kv);
    free(a.pos);
    free(a.slot);
    free(a.seqs);
    free(a.pages);
    free(want);
    free(all);
}
static void attention(int32_t level, const char *name) {
    /* the last crosses a chunk */
    static const int64_t len[][SLOTS] = {{1, 5, 70}, {130, 1, 1}, {3, 600, 64}};
    static const shape shapes[] = {
        {8, 2, 64, 64, 0, 0, false, MN_F32, 0, 0},   {8, 1, 64, 64, 0, 0, false, MN_F16, 0, 0},
        {3, 3, 20, 12, 0, 0, false, MN_F32, 0, 0},   {4, 2, 48, 48, 17, 0, true, MN_F16, 0, 0},
        {4, 2, 32, 80, 100, 4, false, MN_F32, 0, 0}, {33, 1, 16, 16, 0, 0, true, MN_F32, 0, 0},
        {4, 2, 64, 80, 0, 0, false, MN_Q8_0, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int j = 0; j < (quick && i ? 1 : 3); j++) {
            shape s = shapes[i];
            s.name = name;
            s.level = level;
            attention_case(&s, len[j]);
        }
    }
}

static void caps(void) {
    static const int32_t levels[] = {MNK_GENERIC, MNK_AVX2, MNK_AVX512,  MNK_AVX512VNNI,
                                     MNK_AMX,     MNK_NEON, MNK_NEON_DOT};
    uint32_t n;
    const mnk_set *sets = mnk_sets(&n);
    for (int l = 0; l < 7; l++) {
        for (uint32_t t = 1; t < MNK_N_TYPES; t++) {
            for (uint32_t p = MN_PRECISION_EXACT; p <= MN_PRECISION_A8 && case_is_weight_type(t);
                 p++) {
                for (int64_t r = 1; r < 100; r += 90) {
                    const mnk_linear *k = mnk_find_linear(t, p, levels[l], r);
                    bool ok = k && (p == MN_PRECISION_A8 || !k->quantised_x) && (r == 1 || k->gemm);
                    bool mine = false;
                    for (uint32_t i = 0; i < n; i++) {
                        mine |= sets[i].linear[t] == k && sets[i].isa <= levels[l] &&
                                (sets[i].isa == MNK_GENERIC ||
                                 (sets[i].isa >= MNK_NEON) == (levels[l] >= MNK_NEON));
                    }
                    check(ok && mine, "choice", mnk_isa_name(levels[l]), t, p, r, 0);
                }
            }
        }
    }
    check(mnk_isa_cap(MNK_AVX512VNNI, MNK_NEON_DOT) == MNK_GENERIC &&
              mnk_isa_cap(MNK_NEON_DOT, MNK_AVX2) == MNK_GENERIC,
          "cap of another family", "", 0, 0, 0, 0);
    check(mnk_isa_cap(MNK_AVX512, MNK_AMX) == MNK_AVX512 &&
              mnk_isa_cap(MNK_AMX, MNK_AVX2) == MNK_AVX2,
          "cap", "", 0, 0, 0, 0);
    check(mnk_isa_by_name("avx512", 6) == MNK_AVX512 && mnk_isa_by_name("avx", 3) < 0, "names", "",
          0, 0, 0, 0);
}

int main(int argc, char **argv) {
    uint32_t n;
    quick = argc > 1 && !strcmp(argv[1], "quick");
    const mnk_set *sets = mnk_sets(&n);
    int32_t level = mnk_cpu_level();
    caps();
    for (uint32_t i = 0; i < n; i++) {
        /* under an emulator the others are tested where they are the best */
        if (sets[i].isa > level || (quick && sets[i].isa != level))
            continue;
        for (uint32_t t = 0; t < MNK_N_TYPES; t++) {
            if (sets[i].linear[t]) {
                linear_row(t, sets[i].precision ? sets[i].precision : MN_PRECISION_EXACT,
                           sets[i].isa);
            }
        }
        const mnk_vector *v = sets[i].vector;
        if (!v)
            continue;
        halves(v);
        exps(v);
        softmaxes(v);
        bad_values(v);
        small_ops(v, 3, 64);
        small_ops(v, 2, 1111);
        small_ops(v, 5, 7);
        attention(sets[i].isa, v->name);
    }
    printf("test_rows: level %s, %d checks, %d failed\n", mnk_isa_name(level), n_checks, n_failed);
    return n_failed > 0;
}
