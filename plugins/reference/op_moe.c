/* op_moe.c -- MOE_ROUTE, MOE_LINEAR, MOE_COMBINE: which experts, their products, their sum. */
#include "reference.h"
#include <math.h>

static double score(int64_t kind, double logit) {
    return kind == MN_ROUTE_SIGMOID ? 1 / (1 + exp(-logit)) : logit;
}

/* Softmax over n values in place. */
static void softmax(double *v, int64_t n) {
    double max = v[0];
    double sum = 0;
    for (int64_t i = 1; i < n; i++)
        max = v[i] > max ? v[i] : max;
    for (int64_t i = 0; i < n; i++)
        sum += v[i] = exp(v[i] - max);
    for (int64_t i = 0; i < n; i++)
        v[i] /= sum;
}

/* The outcome of a token whose router gives NaN: k experts, since there must be some, and weights
 * of NaN. */
static void route_nowhere(int64_t k, int32_t *experts, float *weights) {
    for (int64_t j = 0; j < k; j++) {
        experts[j] = (int32_t)j;
        weights[j] = NAN;
    }
}

/* One token. p: scores [E]; pick: what the choice goes by [E], then the chosen scores [J]. */
static void route(const mnc_call *c, const float *logits, const float *bias, double *p,
                  double *pick, int32_t *experts, float *weights) {
    const int64_t n = c->in[MN_MOE_ROUTE_LOGITS].cols;
    const int64_t k = ref_last(&c->out[MN_MOE_ROUTE_OUT_EXPERTS]);
    const int64_t kind = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_KIND);
    double scale = mnc_attr_f64(c, MN_MOE_ROUTE_ATTR_SCALE);
    double sum = 0;
    for (int64_t e = 0; e < n; e++)
        p[e] = score(kind, (double)logits[e]);
    if (kind == MN_ROUTE_SOFTMAX)
        softmax(p, n);
    bool is_nan = false;
    for (int64_t e = 0; e < n; e++) {
        pick[e] = p[e] + (bias ? (double)bias[e] : 0);
        is_nan |= isnan(pick[e]);
    }
    if (is_nan) {
        route_nowhere(k, experts, weights);
        return;
    }
    double *chosen = pick + n;
    for (int64_t j = 0; j < k; j++) {
        int64_t best = -1;
        for (int64_t e = 0; e < n; e++)
            if (!isnan(pick[e]) && (best < 0 || pick[e] > pick[best]))
                best = e;
        experts[j] = (int32_t)best;
        chosen[j] = p[best];
        pick[best] = NAN; /* taken */
    }
    if (kind == MN_ROUTE_TOPK_SOFTMAX)
        softmax(chosen, k);
    for (int64_t j = 0; j < k; j++)
        sum += chosen[j];
    if (scale == 0)
        scale = 1;
    if (mnc_attr_int(c, MN_MOE_ROUTE_ATTR_NORMALISE))
        scale /= sum;
    for (int64_t j = 0; j < k; j++)
        weights[j] = (float)(chosen[j] * scale);
}

/* Scratch: scores, what the choice goes by and the chosen, [3, E] double, and the bias, [E]. */
static void moe_route(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_MOE_ROUTE_LOGITS];
    const mnc_weight *b =
        MN_MOE_ROUTE_BIAS < c->node->n_in ? c->in[MN_MOE_ROUTE_BIAS].weight : NULL;
    const int64_t n = x->cols;
    const int64_t k = ref_last(&c->out[MN_MOE_ROUTE_OUT_EXPERTS]);
    double *p = w->scratch;
    float *bias = (float *)(p + 3 * n);
    int64_t lo;
    int64_t hi;
    if (b)
        ref_row(b, 0, bias);
    mnc_range(w, x->rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++)
        route(c, (const float *)x->ptr + t * n, b ? bias : NULL, p, p + n,
              (int32_t *)c->out[MN_MOE_ROUTE_OUT_EXPERTS].ptr + t * k,
              (float *)c->out[MN_MOE_ROUTE_OUT_WEIGHTS].ptr + t * k);
}

/* Scratch: one weight row, [K], then a row of the bias, [N]. Each worker has its share of the N
 * outputs of every expert. */
static void moe_linear(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_MOE_LINEAR_X];
    const mnc_operand *ex = &c->in[MN_MOE_LINEAR_EXPERTS];
    const int32_t *experts = ex->ptr; /* [T, J] */
    const int64_t n_pairs = ex->rows * ex->cols;
    const int64_t k = ref_last(x);
    const int64_t per_x = x->n_dim == 3 ? 1 : ex->cols;
    for (uint32_t i = 0; i < c->node->n_out && n_pairs; i++) {
        const mnc_weight *m = c->in[MN_MOE_LINEAR_WEIGHT + 2 * i].weight;
        const uint32_t at = MN_MOE_LINEAR_BIAS + 2 * i;
        const mnc_weight *b = at < c->node->n_in ? c->in[at].weight : NULL;
        const int64_t n = m->group_rows;
        const int64_t n_expert = m->rows / n;
        float *row = w->scratch, *bias = row + k, *y = c->out[i].ptr; /* [T, J, N] */
        int64_t lo;
        int64_t hi;
        mnc_range(w, n, 1, &lo, &hi);
        for (int64_t e = 0; e < n_expert; e++) {
            bool used = false;
            for (int64_t p = 0; p < n_pairs && !used; p++)
                used = experts[p] == e || (!e && (experts[p] < 0 || experts[p] >= n_expert));
            if (!used)
                continue;
            if (b)
                ref_row(b, e, bias);
            for (int64_t j = lo; j < hi; j++) {
                ref_row(m, e * n + j, row);
                for (int64_t p = 0; p < n_pairs; p++)
                    if (experts[p] == e || (!e && (experts[p] < 0 || experts[p] >= n_expert)))
                        y[p * n + j] =
                            (float)(ref_dot((const float *)x->ptr + p / per_x * k, row, k) +
                                    (b ? (double)bias[j] : 0));
            }
        }
    }
}

static void moe_combine(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_MOE_COMBINE_X];
    const float *in = x->ptr;
    const float *weights = c->in[MN_MOE_COMBINE_WEIGHTS].ptr;
    float *y = c->out[MN_MOE_COMBINE_OUT_Y].ptr;
    const int64_t d = ref_last(x);
    const int64_t k = c->in[MN_MOE_COMBINE_WEIGHTS].cols;
    int64_t lo;
    int64_t hi;
    mnc_range(w, x->rows * d, 16, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += (double)weights[i / d * k + j] * (double)in[(i / d * k + j) * d + i % d];
        y[i] = (float)sum;
    }
}

static void size_route(const mnc_query *q, mnc_op *op) {
    const uint64_t n = ref_last_dim(q, MN_MOE_ROUTE_LOGITS);
    op->worker_bytes = n * (3 * sizeof(double) + sizeof(float));
}

static void size_linear(const mnc_query *q, mnc_op *op) {
    for (uint32_t i = MN_MOE_LINEAR_WEIGHT; i < MN_MOE_LINEAR_WEIGHT + 2 * q->node->n_out; i += 2) {
        const mn_tensor *t = mnc_query_in(q, i);
        const uint64_t n = t && t->n_dim == 3 ? (uint64_t)t->dim[1] : 0;
        const uint64_t bytes = (n + ref_last_dim(q, i)) * sizeof(float);
        if (bytes > op->worker_bytes)
            op->worker_bytes = bytes;
    }
}

static uint32_t linear_weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    (void)q;
    if (i % 2 == 1)
        return ref_vector(t);
    if (t->n_dim != 3)
        return REF_NO_SHAPE;
    return ref_has_type(t->dtype.id) ? 0 : REF_NO_TYPE;
}

static bool route_fits(const mnc_query *q) {
    return q->node->n_out == 2 && mnc_query_out(q, 0) && mnc_query_out(q, 1);
}

static bool linear_fits(const mnc_query *q) {
    return ref_has_second(q) && q->node->n_in >= 2 * q->node->n_out + 1;
}

const ref_op ref_op_moe_route = {
    .fn = moe_route,
    .size = size_route,
    .weight = ref_f32,
    .fits = route_fits,
};

const ref_op ref_op_moe_linear = {
    .fn = moe_linear,
    .size = size_linear,
    .weight = linear_weight,
    .fits = linear_fits,
};

const ref_op ref_op_moe_combine = {
    .fn = moe_combine,
    .fits = ref_has_second,
};
