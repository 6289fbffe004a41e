/* op_norm.c -- RMS_NORM and LAYER_NORM, sums in double. */
#include "reference.h"
#include <math.h>

/* Scratch: weight and bias as f32, [2, D]. LAYER_NORM may have weights [H, D], a row for each
 * head. */
static void rms_norm(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_RMS_NORM_X];
    const float *in = x->ptr;
    float *out = c->out[MN_RMS_NORM_OUT_Y].ptr;
    float *weight = w->scratch;
    double eps = mnc_attr_f64(c, MN_RMS_NORM_ATTR_EPS);
    double offset = mnc_attr_f64(c, MN_RMS_NORM_ATTR_OFFSET);
    int64_t d = ref_last(x);
    int64_t lo;
    int64_t hi;
    ref_row(c->in[MN_RMS_NORM_WEIGHT].weight, 0, weight);
    mnc_range(w, ref_rows(x), 1, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        double sum = 0;
        for (int64_t i = 0; i < d; i++)
            sum += (double)in[r * d + i] * (double)in[r * d + i];
        double scale = 1 / sqrt(sum / (double)d + eps);
        for (int64_t i = 0; i < d; i++)
            out[r * d + i] = (float)((double)in[r * d + i] * scale * ((double)weight[i] + offset));
    }
}

static void layer_norm(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_LAYER_NORM_X];
    const mnc_weight *b = c->in[MN_LAYER_NORM_BIAS].weight;
    const float *in = x->ptr;
    int64_t d = ref_last(x);
    int64_t lo;
    int64_t hi;
    float *out = c->out[MN_LAYER_NORM_OUT_Y].ptr;
    float *weight = w->scratch;
    float *bias = weight + d;
    double eps = mnc_attr_f64(c, MN_LAYER_NORM_ATTR_EPS);
    const mnc_weight *g = c->in[MN_LAYER_NORM_WEIGHT].weight;
    mnc_range(w, ref_rows(x), 1, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        ref_row(g, r % g->rows, weight);
        if (b)
            ref_row(b, r % b->rows, bias);
        double mean = 0;
        double var = 0;
        for (int64_t i = 0; i < d; i++)
            mean += (double)in[r * d + i];
        mean /= (double)d;
        for (int64_t i = 0; i < d; i++)
            var += ((double)in[r * d + i] - mean) * ((double)in[r * d + i] - mean);
        double scale = 1 / sqrt(var / (double)d + eps);
        for (int64_t i = 0; i < d; i++)
            out[r * d + i] = (float)(((double)in[r * d + i] - mean) * scale * (double)weight[i] +
                                     (b ? (double)bias[i] : 0));
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
