/* op_norm.c -- RMS_NORM and LAYER_NORM over the last dimension, sums in double. */
#include "reference.h"
#include <math.h>
#include <string.h>

/* y = x (weight + offset) / sqrt(mean of x^2 + eps) */
static void rms_norm_row(const float *x, const float *weight, double eps, double offset, int64_t d,
                         float *y) {
    double sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += (double)x[i] * x[i];
    const double scale = 1 / sqrt(sum / (double)d + eps);
    for (int64_t i = 0; i < d; i++)
        y[i] = (float)(x[i] * scale * (weight[i] + offset));
}

/* Scratch: a row of the weight as f32, [D]. The weight may be [H, D], a row for each head, or
 * shorter than a row: what is behind it is passed on. */
static void rms_norm(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_RMS_NORM_X];
    const mnc_weight *g = c->in[MN_RMS_NORM_WEIGHT].weight;
    const float *in = x->ptr;
    float *out = c->out[MN_RMS_NORM_OUT_Y].ptr;
    float *weight = w->scratch;
    const double eps = mnc_attr_f64(c, MN_RMS_NORM_ATTR_EPS);
    const double offset = mnc_attr_f64(c, MN_RMS_NORM_ATTR_OFFSET);
    const int64_t d = ref_last(x);
    const int64_t n = g->cols;
    int64_t lo;
    int64_t hi;
    mnc_range(w, ref_rows(x), 1, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        ref_row(g, r % g->rows, weight);
        rms_norm_row(in + r * d, weight, eps, offset, n, out + r * d);
        memcpy(out + r * d + n, in + r * d + n, (size_t)(d - n) * sizeof *out);
    }
}

/* y = (x - mean) weight / sqrt(variance + eps) + bias; bias may be NULL. */
static void layer_norm_row(const float *x, const float *weight, const float *bias, double eps,
                           int64_t d, float *y) {
    double mean = 0;
    double var = 0;
    for (int64_t i = 0; i < d; i++)
        mean += x[i];
    mean /= (double)d;
    for (int64_t i = 0; i < d; i++) {
        const double off = x[i] - mean;
        var += off * off;
    }
    const double scale = 1 / sqrt(var / (double)d + eps);
    for (int64_t i = 0; i < d; i++) {
        const double normal = (x[i] - mean) * scale;
        double offset = 0;
        if (bias)
            offset = bias[i];
        y[i] = (float)(normal * weight[i] + offset);
    }
}

/* Scratch: weight and bias as f32, [2, D]. Both may be [H, D], a row for each head. */
static void layer_norm(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_LAYER_NORM_X];
    const mnc_weight *b = c->in[MN_LAYER_NORM_BIAS].weight;
    const float *in = x->ptr;
    const mnc_weight *g = c->in[MN_LAYER_NORM_WEIGHT].weight;
    const double eps = mnc_attr_f64(c, MN_LAYER_NORM_ATTR_EPS);
    const int64_t d = ref_last(x);
    float *out = c->out[MN_LAYER_NORM_OUT_Y].ptr;
    float *weight = w->scratch;
    float *bias = NULL;
    if (b)
        bias = weight + d;
    int64_t lo;
    int64_t hi;
    mnc_range(w, ref_rows(x), 1, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        ref_row(g, r % g->rows, weight);
        if (b)
            ref_row(b, r % b->rows, bias);
        layer_norm_row(in + r * d, weight, bias, eps, d, out + r * d);
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    op->worker_bytes = 2 * ref_last_dim(q, MN_RMS_NORM_X) * sizeof(float);
}

const ref_op ref_op_rms_norm = {
    .fn = rms_norm,
    .size = size,
};

const ref_op ref_op_layer_norm = {
    .fn = layer_norm,
    .size = size,
};
