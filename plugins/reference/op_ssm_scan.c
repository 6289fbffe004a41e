/* op_ssm_scan.c -- SSM_SCAN, one head of a sequence at a time: the recurrence as docs/ops.md writes
 * it, in double. The state is rounded to f32 behind every row, so that it does not depend on how
 * rows are cut into steps. State: [H, P, N]. */
#include "reference.h"
#include "states.h"
#include <math.h>
#include <string.h>

typedef struct {
    const mnc_call *call;
    mn_ssm_shape shape;
    const float *a; /* [H], as D and DT_BIAS */
    const float *d;
    const float *dt_bias;
} scan;

/* The size of row t's step for head h. NaN stays NaN. */
static double step_size(const scan *v, int64_t t, int64_t h) {
    const float *dt = v->call->in[MN_SSM_SCAN_DT].ptr; /* [T, H] */
    const double least = mnc_attr_f64(v->call, MN_SSM_SCAN_ATTR_DT_MIN);
    const double most = mnc_attr_f64(v->call, MN_SSM_SCAN_ATTR_DT_MAX);
    const double wide = ref_softplus((double)dt[t * v->shape.n_head + h] + v->dt_bias[h]);
    if (wide < least)
        return least;
    if (most != 0 && wide > most)
        return most;
    return wide;
}

/* state: [P, N] of head h, from which row t goes on. */
static void advance_head(const scan *v, int64_t t, int64_t h, float *state) {
    const mn_ssm_shape *s = &v->shape;
    const int64_t width = s->n_head * s->dim;
    const int64_t group = h / (s->n_head / s->n_group);
    const float *xbc = v->call->in[MN_SSM_SCAN_XBC].ptr; /* [T, H P + 2 G N] */
    const float *row = xbc + t * (width + 2 * s->n_group * s->n);
    const float *x = row + h * s->dim;
    const float *b = row + width + group * s->n;
    const float *c = b + s->n_group * s->n;
    float *y = (float *)v->call->out[MN_SSM_SCAN_OUT_Y].ptr + t * width + h * s->dim;
    const double step = step_size(v, t, h);
    const bool a_log = mnc_attr_int(v->call, MN_SSM_SCAN_ATTR_A_LOG);
    const double decay = exp(step * ref_rate(v->a[h], a_log));
    for (int64_t p = 0; p < s->dim; p++) {
        double sum = (double)v->d[h] * x[p];
        for (int64_t n = 0; n < s->n; n++) {
            float *at = state + p * s->n + n;
            const double next = decay * *at + step * x[p] * b[n];
            sum += next * c[n];
            *at = (float)next;
        }
        y[p] = (float)sum;
    }
}

/* Scratch: A, D and DT_BIAS, [3, H]. Work is shared out by sequence and head. */
static void ssm_scan(const mnc_call *c, mnc_worker *w) {
    scan v = {.call = c, .shape = mnc_ssm_of(c)};
    const int64_t n_head = v.shape.n_head;
    const int64_t n_state = v.shape.dim * v.shape.n; /* of a head */
    const int32_t *row_pos = mnc_row_pos(c);
    float *weight = w->scratch;
    int64_t lo;
    int64_t hi;
    for (int64_t i = 0; i < 3; i++)
        ref_row(c->in[MN_SSM_SCAN_A + i].weight, 0, weight + i * n_head);
    v.a = weight;
    v.d = weight + n_head;
    v.dt_bias = weight + 2 * n_head;
    mnc_range(w, mnc_n_sequences(c) * n_head, 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const int64_t h = i % n_head;
        mnc_sequence s;
        if (!mnc_sequence_at(c, i / n_head, &s))
            continue;
        float *state = s.to + h * n_state;
        ref_state_begin(s.from ? s.from + h * n_state : NULL, state, n_state);
        for (int64_t t = s.row_lo; t < s.row_hi; t++)
            if (row_pos[t] >= 0)
                advance_head(&v, t, h, state);
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    const mn_ssm_shape s = mnp_ssm_shape(q->graph, q->node);
    op->worker_bytes = 3 * (uint64_t)s.n_head * sizeof(float);
}

const ref_op ref_op_ssm_scan = {
    .fn = ssm_scan,
    .size = size,
    .fits = ref_has_state,
};
