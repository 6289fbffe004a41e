/* op_gated_delta.c -- GATED_DELTA, one head of a sequence at a time: the recurrence as docs/ops.md
 * writes it, in double, the state rounded to f32 behind every row as in op_ssm_scan.c. State: [Hv,
 * Dk, Dv]. */
#include "reference.h"
#include "states.h"
#include <math.h>

typedef struct {
    const mnc_call *call;
    mn_delta_shape shape;
    const float *a;       /* [Hv] */
    const float *dt_bias; /* [Hv], or [Hv, Dk] with a decay per element */
    double *q;            /* [Dk] of the row and head, scaled */
    double *k;            /* [Dk] */
    double *decay;        /* [Dk] */
    double *state;        /* [Dk] a column, decayed */
} delta;

/* A head of q or k, divided by its length where EPS says so. */
static void delta_normalise(const float *x, int64_t n, double eps, double factor, double *out) {
    double sum = eps;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    if (eps != 0)
        factor /= sqrt(sum);
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] * factor;
}

/* q, k and decay of row t for head h of v. */
static void prepare_row(const delta *v, int64_t t, int64_t h) {
    const mn_delta_shape *s = &v->shape;
    const mnc_call *c = v->call;
    const int64_t n_k = s->n_head_k * s->dim_k;
    const float *gate = c->in[MN_GATED_DELTA_GATE].ptr; /* [T, Hv] or [T, Hv, Dk] */
    const float *qkv = c->in[MN_GATED_DELTA_QKV].ptr;   /* [T, 2 Hk Dk + Hv Dv] */
    const float *row = qkv + t * (2 * n_k + s->n_head_v * s->dim_v);
    const bool in_turn = mnc_attr_int(c, MN_GATED_DELTA_ATTR_HEADS);
    const int64_t head = in_turn ? h % s->n_head_k : h / (s->n_head_v / s->n_head_k);
    const double eps = mnc_attr_f64(c, MN_GATED_DELTA_ATTR_EPS);
    const double rate = ref_rate(v->a[h], mnc_attr_int(c, MN_GATED_DELTA_ATTR_A_LOG));
    double scale = mnc_attr_f64(c, MN_GATED_DELTA_ATTR_SCALE);
    if (scale == 0)
        scale = 1 / sqrt((double)s->dim_k);
    delta_normalise(row + head * s->dim_k, s->dim_k, eps, scale, v->q);
    delta_normalise(row + n_k + head * s->dim_k, s->dim_k, eps, 1, v->k);
    for (int64_t i = 0; i < s->dim_k; i++) {
        const int64_t own = s->per_element ? h * s->dim_k + i : h;
        const int64_t n_gate = s->per_element ? s->n_head_v * s->dim_k : s->n_head_v;
        v->decay[i] = exp(rate * ref_softplus((double)gate[t * n_gate + own] + v->dt_bias[own]));
    }
}

/* state: [Dk, Dv] of head h, from which row t goes on. */
static void delta_row(const delta *v, int64_t t, int64_t h, float *state) {
    const mn_delta_shape *s = &v->shape;
    const mnc_call *c = v->call;
    const int64_t n_k = s->n_head_k * s->dim_k;
    const int64_t n_v = s->n_head_v * s->dim_v;
    const float *beta = c->in[MN_GATED_DELTA_BETA].ptr; /* [T, Hv] */
    const float *qkv = c->in[MN_GATED_DELTA_QKV].ptr;
    const float *value = qkv + t * (2 * n_k + n_v) + 2 * n_k + h * s->dim_v;
    float *y = (float *)c->out[MN_GATED_DELTA_OUT_Y].ptr + t * n_v + h * s->dim_v;
    double write = mnc_attr_f64(c, MN_GATED_DELTA_ATTR_BETA_SCALE);
    if (write == 0)
        write = 1;
    write /= 1 + exp(-(double)beta[t * s->n_head_v + h]);
    prepare_row(v, t, h);
    for (int64_t j = 0; j < s->dim_v; j++) {
        double known = 0;
        double sum = 0;
        for (int64_t i = 0; i < s->dim_k; i++) {
            v->state[i] = v->decay[i] * state[i * s->dim_v + j];
            known += v->state[i] * v->k[i];
        }
        const double u = write * (value[j] - known);
        for (int64_t i = 0; i < s->dim_k; i++) {
            const double next = v->state[i] + v->k[i] * u;
            sum += next * v->q[i];
            state[i * s->dim_v + j] = (float)next;
        }
        y[j] = (float)sum;
    }
}

/* Numbers of DT_BIAS. */
static int64_t n_bias(const mn_delta_shape *s) {
    return s->per_element ? s->n_head_v * s->dim_k : s->n_head_v;
}

/* Scratch: doubles, [4, Dk], then A and DT_BIAS in f32. Work is shared out by sequence and head. */
static void gated_delta(const mnc_call *c, mnc_worker *w) {
    delta v = {.call = c, .shape = mnc_delta_of(c), .q = w->scratch};
    const mn_delta_shape *shape = &v.shape;
    const int64_t n_state = shape->dim_k * shape->dim_v; /* of a head */
    const int32_t *row_pos = mnc_row_pos(c);
    int64_t lo;
    int64_t hi;
    v.k = v.q + shape->dim_k;
    v.decay = v.k + shape->dim_k;
    v.state = v.decay + shape->dim_k;
    float *a = (float *)(v.state + shape->dim_k);
    float *dt_bias = a + shape->n_head_v;
    ref_row(c->in[MN_GATED_DELTA_A].weight, 0, a);
    ref_row(c->in[MN_GATED_DELTA_DT_BIAS].weight, 0, dt_bias);
    v.a = a;
    v.dt_bias = dt_bias;
    mnc_range(w, mnc_n_sequences(c) * shape->n_head_v, 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const int64_t h = i % shape->n_head_v;
        mnc_sequence s;
        if (!mnc_sequence_at(c, i / shape->n_head_v, &s))
            continue;
        float *state = s.to + h * n_state;
        ref_state_begin(s.from ? s.from + h * n_state : NULL, state, n_state);
        for (int64_t t = s.row_lo; t < s.row_hi; t++)
            if (row_pos[t] >= 0)
                delta_row(&v, t, h, state);
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    const mn_delta_shape s = mnp_delta_shape(q->graph, q->node);
    op->worker_bytes = 4 * (uint64_t)s.dim_k * sizeof(double);
    op->worker_bytes += (uint64_t)(s.n_head_v + n_bias(&s)) * sizeof(float);
}

const ref_op ref_op_gated_delta = {
    .fn = gated_delta,
    .size = size,
    .fits = ref_has_state,
};
