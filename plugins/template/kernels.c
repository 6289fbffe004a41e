/* kernels.c -- one function per operation. The contracts are in docs/ops.md; the names of operands
 * are positions there.
 *
 * Kernels are pure: no allocation, no globals, no I/O. Worker i of n takes its share of rows or
 * outputs, so that each result is summed by one worker in one order: a row has the same bits in any
 * batch, which is what MN_ESTIMATE_DETERMINISTIC says. Sums run in double: class exact asks for a
 * relative L2 error of at most 1e-5 against the plugin `reference`. */
#include "template.h"

const char *const t_reasons[T_N_REASONS] = {
    [T_YES] = "",
    [T_OP] = "no kernel for this operation",
    [T_CONTRACT] = "the node follows a newer contract than this plugin",
    [T_ACTIVATION] = "an operand must be an f32 activation",
    [T_WEIGHT] = "weights must be f32, f16 or bf16",
    [T_VECTOR] = "norm weights and biases must be vectors of f32, f16 or bf16",
    [T_SHAPE] = "the shapes of the operands do not fit together",
    [T_VIEW] = "views are not supported",
    [T_ACT] = "the only activation is silu",
    [T_EXTRA] = "the node has an operand or attribute that this plugin does not know",
};

/* ---- what a node looks like before it runs --------------------------------------------------- */

/* 0 = a dense f32 activation. Interior tensors are ours to store, whatever logical type they have:
 * here f32. */
static uint32_t judge_activation(const mn_graph *g, int32_t i) {
    if (i < 0)
        return T_ACTIVATION;
    const mn_tensor *t = t_tensor(g, i);
    if (t->alias_of >= 0)
        return T_VIEW;
    if (t->role != MN_ROLE_INPUT && t->role != MN_ROLE_OUTPUT && t->role != MN_ROLE_INTERIOR)
        return T_ACTIVATION;
    if (!t->n_dim || t->n_dim > MN_MAX_DIM)
        return T_ACTIVATION;
    bool half = t->dtype.id == MN_F16 || t->dtype.id == MN_BF16;
    if (t->dtype.id == MN_F32 || (half && t->role == MN_ROLE_INTERIOR))
        return T_YES;
    return T_ACTIVATION;
}

static uint32_t judge_vector(const mn_graph *g, int32_t i, int64_t n) {
    const mn_tensor *t = NULL;
    if (i >= 0)
        t = t_tensor(g, i);
    if (!t || t->role != MN_ROLE_WEIGHT || !t_elem(t->dtype.id) || t->n_dim != 1)
        return T_VECTOR;
    if (n > 0 && t->dim[0] == n)
        return T_YES;
    return T_SHAPE;
}

static bool same_shape(const mn_tensor *a, const mn_tensor *b) {
    if (a->n_dim != b->n_dim)
        return false;
    /* symbols are negative numbers: the same symbol is the same size */
    for (uint32_t i = 0; i < a->n_dim; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

/* Product of all dims but the first; -1 if one of them is a symbol or it overflows. */
static int64_t width(const mn_tensor *t) {
    int64_t n = 1;
    for (uint32_t i = 1; i < t->n_dim; i++)
        if (t->dim[i] <= 0 || __builtin_mul_overflow(n, t->dim[i], &n))
            return -1;
    return n;
}

static int64_t attr_int(const uint64_t *attr, uint32_t n, uint32_t i) {
    if (i < n)
        return (int64_t)attr[i];
    return 0;
}
static double attr_f64(const t_call *c, uint32_t i) { /* a missing attribute is 0 */
    double v = 0;
    if (i < c->n_attr)
        memcpy(&v, &c->attr[i], sizeof v);
    return v;
}

/* ---- numbers. Written out so that the plugin links with nothing but the C library ------------ */

static float from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t e = h >> 10 & 31;
    uint32_t m = h & 1023;
    uint32_t bits;
    float f = (float)m * 0x1p-24f; /* zero and subnormals */
    memcpy(&bits, &f, 4);
    if (e)
        bits = e == 31 ? 0x7f800000u | m << 13 : (e + 112) << 23 | m << 13;
    bits |= sign;
    memcpy(&f, &bits, 4);
    return f;
}
static float from_bf16(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static double square_root(double v) { /* Newton, from a guess that halves the exponent */
    uint64_t bits;
    double y;
    if (!(v > 0) || v - v != 0)
        return v; /* 0, negative, NaN, infinity */
    memcpy(&bits, &v, 8);
    bits = (bits >> 1) + 0x1ff8000000000000u;
    memcpy(&y, &bits, 8);
    for (int i = 0; i < 6; i++)
        y = (y + v / y) / 2;
    return y;
}

static double power_of_two(int k) { /* -1022 <= k <= 1023 */
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double v;
    memcpy(&v, &bits, 8);
    return v;
}
static double exponential(double x) { /* x = k ln 2 + r, |r| <= 0.35; Taylor in r to below 1e-17 */
    if (x != x)
        return x;
    if (x < -745)
        return 0;
    if (x > 709.7)
        return power_of_two(1023) * 2;
    int k = (int)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
    double r = x - k * 0x1.62e42fefap-1 - k * 0x1.cf79abc9e3b3ap-40;
    double y = 1;
    for (int i = 13; i > 0; i--)
        y = 1 + y * r / i;
    return y * power_of_two(k / 2) * power_of_two(k - k / 2);
}

static double weight_at(const t_weight *w, int64_t i) {
    const void *data = w->data;
    const float *f = data;
    const uint16_t *h = data;
    if (w->dtype == MN_F32)
        return f[i];
    if (w->dtype == MN_F16)
        return from_f16(h[i]);
    return from_bf16(h[i]);
}

static double dot(const t_weight *w, int64_t row, const float *x) {
    const void *at = w->data + (uint64_t)(row * w->cols) * w->elem;
    const float *f = at;
    const uint16_t *h = at;
    double sum = 0;
    switch (w->dtype) { /* outside of the loop: one type per weight */
    case MN_F32:
        for (int64_t i = 0; i < w->cols; i++)
            sum += (double)f[i] * x[i];
        break;
    case MN_F16:
        for (int64_t i = 0; i < w->cols; i++)
            sum += (double)from_f16(h[i]) * x[i];
        break;
    default:
        for (int64_t i = 0; i < w->cols; i++)
            sum += (double)from_bf16(h[i]) * x[i];
    }
    return sum;
}

/* ---- RMS_NORM: y = x / sqrt(mean(x^2) + eps) * (weight + offset) over the last dimension ----- */

static uint32_t judge_rms_norm(const mn_graph *g, const mn_node *n) {
    int32_t x = t_in(g, n, MN_RMS_NORM_X);
    int32_t y = t_out(g, n, MN_RMS_NORM_OUT_Y);
    uint32_t no = judge_activation(g, x);
    if (!no)
        no = judge_activation(g, y);
    if (no)
        return no;
    const mn_tensor *t = t_tensor(g, x);
    if (!same_shape(t, t_tensor(g, y)))
        return T_SHAPE;
    return judge_vector(g, t_in(g, n, MN_RMS_NORM_WEIGHT), t->dim[t->n_dim - 1]);
}

static void rms_norm(const t_call *c, uint32_t i, uint32_t n) {
    const t_operand *x = &c->in[MN_RMS_NORM_X];
    const t_weight *w = c->in[MN_RMS_NORM_WEIGHT].w;
    double eps = attr_f64(c, MN_RMS_NORM_ATTR_EPS);
    double offset = attr_f64(c, MN_RMS_NORM_ATTR_OFFSET);
    int64_t d = x->last;
    int64_t rows = x->n / d;
    for (int64_t r = rows * i / n; r < rows * (i + 1) / n; r++) {
        const float *in = x->x + r * d;
        float *out = c->out[MN_RMS_NORM_OUT_Y].x + r * d;
        double sum = 0;
        for (int64_t j = 0; j < d; j++)
            sum += (double)in[j] * in[j];
        double scale = 1 / square_root(sum / (double)d + eps);
        for (int64_t j = 0; j < d; j++) {
            double weight = weight_at(w, j) + offset;
            out[j] = (float)(in[j] * scale * weight);
        }
    }
}

/* ---- LINEAR: y_k = x * W_k^T + b_k for several k that share x: [R, K] x [N_k, K] -> [R, N_k]
 * ---- */

static uint32_t judge_linear(const mn_graph *g, const mn_node *n) {
    int32_t xi = t_in(g, n, MN_LINEAR_X);
    uint32_t no = judge_activation(g, xi);
    if (no)
        return no;
    if (!n->n_out)
        return T_SHAPE;
    for (uint32_t i = 1 + 2 * n->n_out; i < n->n_in; i++)
        if (t_in(g, n, i) >= 0)
            return T_EXTRA; /* what comes behind the groups one day */
    const mn_tensor *x = t_tensor(g, xi);
    for (uint32_t k = 0; k < n->n_out; k++) {
        int32_t wi = t_in(g, n, MN_LINEAR_WEIGHT + 2 * k);
        int32_t bi = t_in(g, n, MN_LINEAR_BIAS + 2 * k);
        int32_t yi = t_out(g, n, k);
        const mn_tensor *w = NULL;
        if (wi >= 0)
            w = t_tensor(g, wi);
        if (!w || w->role != MN_ROLE_WEIGHT || !t_elem(w->dtype.id))
            return T_WEIGHT;
        no = judge_activation(g, yi);
        if (no)
            return no;
        const mn_tensor *y = t_tensor(g, yi);
        if (w->n_dim != 2 || w->dim[0] <= 0 || w->dim[1] != width(x))
            return T_SHAPE;
        if (y->dim[0] != x->dim[0] || width(y) != w->dim[0])
            return T_SHAPE;
        if (bi >= 0)
            no = judge_vector(g, bi, w->dim[0]);
        if (no)
            return no;
    }
    return T_YES;
}

/* Shares are of outputs, not of rows: a decode step has one row. */
static void linear(const t_call *c, uint32_t i, uint32_t n) {
    const t_operand *x = &c->in[MN_LINEAR_X];
    for (uint32_t k = 0; k < c->n_out; k++) {
        const t_weight *w = c->in[MN_LINEAR_WEIGHT + 2 * k].w;
        const t_weight *b = c->in[MN_LINEAR_BIAS + 2 * k].w;
        float *y = c->out[k].x;
        int64_t end = w->rows * (i + 1) / n;
        for (int64_t o = w->rows * i / n; o < end; o++) {
            double bias = 0;
            if (b)
                bias = weight_at(b, o);
            for (int64_t r = 0; r < x->first; r++) {
                double sum = dot(w, o, x->x + r * w->cols);
                y[r * w->rows + o] = (float)(sum + bias);
            }
        }
    }
}

/* ---- ADD and GLU: element by element --------------------------------------------------------- */

static uint32_t judge_pair(const mn_graph *g, const mn_node *n) {
    int32_t a = t_in(g, n, 0);
    int32_t b = t_in(g, n, 1);
    int32_t y = t_out(g, n, 0);
    uint32_t no = judge_activation(g, a);
    if (!no)
        no = judge_activation(g, b);
    if (!no)
        no = judge_activation(g, y);
    if (no)
        return no;
    const mn_tensor *t = t_tensor(g, a);
    bool same = same_shape(t, t_tensor(g, b)) && same_shape(t, t_tensor(g, y));
    if (same)
        return T_YES;
    return T_SHAPE;
}

static void add(const t_call *c, uint32_t i, uint32_t n) {
    const float *a = c->in[MN_ADD_A].x;
    const float *b = c->in[MN_ADD_B].x;
    float *y = c->out[MN_ADD_OUT_Y].x;
    int64_t all = c->in[MN_ADD_A].n;
    for (int64_t j = all * i / n; j < all * (i + 1) / n; j++)
        y[j] = a[j] + b[j];
}

static uint32_t judge_glu(const mn_graph *g, const mn_node *n) {
    int64_t kind = attr_int(g->attrs + n->attr_off, n->n_attr, MN_GLU_ATTR_KIND);
    if (kind == MN_ACT_SILU)
        return judge_pair(g, n);
    return T_ACT;
}

/* NaN stays NaN. */
static double at_most(double x, double limit) {
    if (x > limit)
        return limit;
    return x;
}

/* y = silu(gate) * (up + up_offset), both clamped by limit */
static void glu(const t_call *c, uint32_t i, uint32_t n) {
    const float *gate = c->in[MN_GLU_GATE].x;
    const float *up = c->in[MN_GLU_UP].x;
    float *y = c->out[MN_GLU_OUT_Y].x;
    double alpha = attr_f64(c, MN_GLU_ATTR_ALPHA);
    double limit = attr_f64(c, MN_GLU_ATTR_LIMIT);
    double offset = attr_f64(c, MN_GLU_ATTR_UP_OFFSET);
    int64_t all = c->in[MN_GLU_GATE].n;
    if (alpha == 0)
        alpha = 1;
    int64_t end = all * (i + 1) / n;
    for (int64_t j = all * i / n; j < end; j++) {
        double a = gate[j];
        double u = up[j];
        if (limit > 0) {
            a = at_most(a, limit);
            u = -at_most(-at_most(u, limit), limit);
        }
        double silu = a / (1 + exponential(-alpha * a));
        y[j] = (float)(silu * (u + offset));
    }
}

/* ---- the table ------------------------------------------------------------------------------- */
const t_kernel t_kernels[T_N_KERNELS] = {
    {MN_OP_RMS_NORM, 1, 2, 1, 2, judge_rms_norm, rms_norm},
    {MN_OP_LINEAR, 1, T_MAX_IN, T_MAX_LINEAR, 0, judge_linear, linear},
    {MN_OP_GLU, 1, 2, 1, 4, judge_glu, glu},
    {MN_OP_ADD, 1, 2, 1, 0, judge_pair, add},
};

const t_kernel *t_kernel_of(uint32_t op) {
    for (uint32_t i = 0; i < T_N_KERNELS; i++)
        if (t_kernels[i].op == op)
            return &t_kernels[i];
    return NULL;
}
