/* op_conv_state.c -- CONV_STATE, one channel of a sequence at a time, sums in double. State: the
 * last W - 1 inputs, [W - 1, C], the oldest first. */
#include "reference.h"
#include "states.h"
#include <string.h>

typedef struct {
    const mnc_call *call;
    mn_conv_shape shape;
    float *weight; /* [W] of the channel */
    float *window; /* [W]: the inputs before the row, then the row's */
} conv;

/* Rows of channel c. */
static void convolve(const conv *v, const mnc_sequence *s, int64_t c, double bias) {
    const float *x = v->call->in[MN_CONV_STATE_X].ptr; /* [T, C] */
    float *y = v->call->out[MN_CONV_STATE_OUT_Y].ptr;  /* [T, C] */
    const int32_t *row_pos = mnc_row_pos(v->call);
    const int64_t n_channel = v->shape.channels;
    const int64_t past = v->shape.width - 1;
    for (int64_t j = 0; j < past; j++)
        v->window[j] = s->from ? s->from[j * n_channel + c] : 0;
    for (int64_t t = s->row_lo; t < s->row_hi; t++) {
        double sum = bias;
        if (row_pos[t] < 0)
            continue;
        v->window[past] = x[t * n_channel + c];
        for (int64_t j = 0; j <= past; j++)
            sum += (double)v->weight[j] * v->window[j];
        y[t * n_channel + c] = (float)sum;
        memmove(v->window, v->window + 1, (size_t)past * sizeof *v->window);
    }
    for (int64_t j = 0; j < past; j++)
        s->to[j * n_channel + c] = v->window[j];
}

/* Scratch: weight and window of a channel, [2, W], then the bias, [C]. Work is shared out by
 * sequence and channel. */
static void conv_state(const mnc_call *c, mnc_worker *w) {
    const mnc_weight *bias = mnc_optional(c, MN_CONV_STATE_BIAS);
    conv v = {.call = c, .shape = mnc_conv_of(c), .weight = w->scratch};
    v.window = v.weight + v.shape.width;
    float *offset = v.window + v.shape.width;
    int64_t lo;
    int64_t hi;
    if (bias)
        ref_row(bias, 0, offset);
    mnc_range(w, mnc_n_sequences(c) * v.shape.channels, 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const int64_t channel = i % v.shape.channels;
        mnc_sequence s;
        if (!mnc_sequence_at(c, i / v.shape.channels, &s))
            continue;
        ref_row(c->in[MN_CONV_STATE_WEIGHT].weight, channel, v.weight);
        convolve(&v, &s, channel, bias ? offset[channel] : 0);
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    const mn_conv_shape s = mnp_conv_shape(q->graph, q->node);
    op->worker_bytes = (uint64_t)(2 * s.width + s.channels) * sizeof(float);
}

const ref_op ref_op_conv_state = {
    .fn = conv_state,
    .size = size,
    .fits = ref_has_state,
};
