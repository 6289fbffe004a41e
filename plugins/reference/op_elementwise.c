/* op_elementwise.c -- ACT, GLU, ADD, MUL, SCALE, SOFTCAP: maps over elements, each in double and
 * rounded once. */
#include "reference.h"
#include <math.h>

/* kind: MN_ACT_*. */
static double act(int64_t kind, double x) {
    switch (kind) {
    case MN_ACT_SILU:
        return x / (1 + exp(-x));
    case MN_ACT_GELU_ERF:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case MN_ACT_GELU_TANH: {
        const double cubic = x + 0.044715 * x * x * x;
        const double pi = acos(-1);
        return x / 2 * (1 + tanh(sqrt(2 / pi) * cubic));
    }
    case MN_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case MN_ACT_RELU2:
        return x < 0 ? 0 : x * x;
    default:
        return x < 0 ? 0 : x; /* NaN stays NaN */
    }
}

/* The worker's share of the elements of the first operand. */
typedef struct {
    const float *a;
    const float *b;
    float *y;
    int64_t lo;
    int64_t hi;
} share;

static share elementwise_take(const mnc_call *c, mnc_worker *w) {
    const int64_t n = c->in[0].rows * c->in[0].cols;
    share s = {
        .a = c->in[0].ptr,
        .b = c->in[1].ptr,
        .y = c->out[0].ptr,
    };
    mnc_range(w, n, 16, &s.lo, &s.hi);
    return s;
}

/* With the four numbers of the node. NaN stays NaN. */
static double xielu(const mnc_call *c, double x) {
    const double alpha_n = mnc_attr_f64(c, MN_ACT_ATTR_ALPHA_N);
    const double eps = mnc_attr_f64(c, MN_ACT_ATTR_EPS);
    const double linear = mnc_attr_f64(c, MN_ACT_ATTR_BETA) * x;
    if (x > 0)
        return mnc_attr_f64(c, MN_ACT_ATTR_ALPHA_P) * x * x + linear;
    return alpha_n * expm1(x > eps ? eps : x) - alpha_n * x + linear;
}

static void act_node(const mnc_call *c, mnc_worker *w) {
    const share s = elementwise_take(c, w);
    const int64_t kind = mnc_attr_int(c, MN_ACT_ATTR_KIND);
    for (int64_t i = s.lo; i < s.hi; i++)
        s.y[i] = (float)(kind == MN_ACT_XIELU ? xielu(c, s.a[i]) : act(kind, s.a[i]));
}

/* NaN stays NaN. */
static double elementwise_at_most(double x, double limit) {
    if (x > limit)
        return limit;
    return x;
}

/* y = act(gate) (up + offset). limit > 0 bounds the gate from above and up on both sides; alpha
 * scales the gate inside of the sigmoid of SILU (gpt-oss), 0: by 1. */
static void glu(const mnc_call *c, mnc_worker *w) {
    const share s = elementwise_take(c, w);
    const int64_t kind = mnc_attr_int(c, MN_GLU_ATTR_KIND);
    const double alpha = mnc_attr_f64(c, MN_GLU_ATTR_ALPHA);
    const double limit = mnc_attr_f64(c, MN_GLU_ATTR_LIMIT);
    const double offset = mnc_attr_f64(c, MN_GLU_ATTR_UP_OFFSET);
    for (int64_t i = s.lo; i < s.hi; i++) {
        double gate = s.a[i];
        double up = s.b[i];
        if (limit > 0) {
            gate = elementwise_at_most(gate, limit);
            up = up < -limit ? -limit : elementwise_at_most(up, limit);
        }
        if (kind == MN_ACT_SILU && alpha != 0)
            gate = gate / (1 + exp(-alpha * gate));
        else
            gate = act(kind, gate);
        s.y[i] = (float)(gate * (up + offset));
    }
}

static void add(const mnc_call *c, mnc_worker *w) {
    const share s = elementwise_take(c, w);
    for (int64_t i = s.lo; i < s.hi; i++)
        s.y[i] = s.a[i] + s.b[i];
}

static void mul(const mnc_call *c, mnc_worker *w) {
    const share s = elementwise_take(c, w);
    for (int64_t i = s.lo; i < s.hi; i++)
        s.y[i] = s.a[i] * s.b[i];
}

static void scale(const mnc_call *c, mnc_worker *w) {
    const share s = elementwise_take(c, w);
    const double factor = mnc_attr_f64(c, MN_SCALE_ATTR_FACTOR);
    for (int64_t i = s.lo; i < s.hi; i++)
        s.y[i] = (float)(s.a[i] * factor);
}

static void softcap(const mnc_call *c, mnc_worker *w) {
    const share s = elementwise_take(c, w);
    const double cap = mnc_attr_f64(c, MN_SOFTCAP_ATTR_CAP);
    for (int64_t i = s.lo; i < s.hi; i++) {
        const double x = s.a[i];
        s.y[i] = (float)(cap * tanh(x / cap));
    }
}

const ref_op ref_op_act = {
    .fn = act_node,
};

const ref_op ref_op_glu = {
    .fn = glu,
    .fits = ref_has_second,
};

const ref_op ref_op_add = {
    .fn = add,
    .fits = ref_has_second,
};

const ref_op ref_op_mul = {
    .fn = mul,
    .fits = ref_has_second,
};

const ref_op ref_op_scale = {
    .fn = scale,
};

const ref_op ref_op_softcap = {
    .fn = softcap,
};
