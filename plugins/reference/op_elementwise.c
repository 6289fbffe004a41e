/* op_elementwise.c -- ACT, GLU, ADD, MUL, SCALE, SOFTCAP: maps over elements. */
#include "reference.h"
#include <math.h>

static double act(int64_t kind, double x) {
    switch (kind) {
    case MN_ACT_SILU:
        return x / (1 + exp(-x));
    case MN_ACT_GELU_ERF:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case MN_ACT_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
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
static share take(const mnc_call *c, mnc_worker *w) {
    share s = {c->in[0].ptr, c->in[1].ptr, c->out[0].ptr, 0, 0};
    mnc_range(w, c->in[0].rows * c->in[0].cols, 16, &s.lo, &s.hi);
    return s;
}

static void act_node(const mnc_call *c, mnc_worker *w) {
    share s = take(c, w);
    for (int64_t i = s.lo; i < s.hi; i++)
        s.y[i] = (float)act(mnc_attr_int(c, MN_ACT_ATTR_KIND), (double)s.a[i]);
}

static void glu(const mnc_call *c, mnc_worker *w) {
    share s = take(c, w);
    const int64_t kind = mnc_attr_int(c, MN_GLU_ATTR_KIND);
    const double alpha = mnc_attr_f64(c, MN_GLU_ATTR_ALPHA);
    const double limit = mnc_attr_f64(c, MN_GLU_ATTR_LIMIT);
    const double offset = mnc_attr_f64(c, MN_GLU_ATTR_UP_OFFSET);
    for (int64_t i = s.lo; i < s.hi; i++) {
        double gate = (double)s.a[i];
        double up = (double)s.b[i];
        if (limit > 0)
            gate = gate > limit ? limit : gate, up = up > limit ? limit : up < -limit ? -limit : up;
        gate =
            kind == MN_ACT_SILU && alpha != 0 ? gate / (1 + exp(-alpha * gate)) : act(kind, gate);
        s.y[i] = (float)(gate * (up + offset));
    }
}

static void add(const mnc_call *c, mnc_worker *w) {
    share s = take(c, w);
    for (int64_t i = s.lo; i < s.hi; i++)
        s.y[i] = s.a[i] + s.b[i];
}

static void mul(const mnc_call *c, mnc_worker *w) {
    share s = take(c, w);
    for (int64_t i = s.lo; i < s.hi; i++)
        s.y[i] = s.a[i] * s.b[i];
}

static void scale(const mnc_call *c, mnc_worker *w) {
    share s = take(c, w);
    double factor = mnc_attr_f64(c, MN_SCALE_ATTR_FACTOR);
    for (int64_t i = s.lo; i < s.hi; i++)
        s.y[i] = (float)((double)s.a[i] * factor);
}

static void softcap(const mnc_call *c, mnc_worker *w) {
    share s = take(c, w);
    double cap = mnc_attr_f64(c, MN_SOFTCAP_ATTR_CAP);
    for (int64_t i = s.lo; i < s.hi; i++)
        s.y[i] = (float)(cap * tanh((double)s.a[i] / cap));
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
