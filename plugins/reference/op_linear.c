/* op_linear.c -- LINEAR: rows times matrices, summed in double. */
#include "reference.h"

/* Eight sums side by side, so that the compiler can keep them in registers; added up in a fixed
 * order. */
double ref_dot(const float *a, const float *b, int64_t n) {
    double s[8] = {0};
    double sum = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            s[j] += (double)a[i + j] * (double)b[i + j];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    for (int j = 0; j < 8; j++)
        sum += s[j];
    return sum;
}

/* Scratch: one weight row, [K], then the one row of a bias, [N]. */
static void linear(const mnc_call *c, mnc_worker *w) {
    const float *x = c->in[MN_LINEAR_X].ptr; /* [R, K] */
    int64_t n_rows = c->in[MN_LINEAR_X].rows;
    for (uint32_t i = 0; i < c->node->n_out && n_rows; i++) {
        const mnc_weight *m = c->in[MN_LINEAR_WEIGHT + 2 * i].weight;
        const mnc_weight *b =
            MN_LINEAR_BIAS + 2 * i < c->node->n_in ? c->in[MN_LINEAR_BIAS + 2 * i].weight : NULL;
        float *row = w->scratch, *bias = row + m->cols, *y = c->out[i].ptr; /* [R, N] */
        int64_t lo;
        int64_t hi;
        int64_t k = m->cols;
        if (b)
            ref_row(b, 0, bias);
        mnc_range(w, m->rows, 1, &lo, &hi);
        for (int64_t n = lo; n < hi; n++) {
            ref_row(m, n, row);
            for (int64_t r = 0; r < n_rows; r++)
                y[r * m->rows + n] =
                    (float)(ref_dot(x + r * k, row, k) + (b ? (double)bias[n] : 0));
        }
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    for (uint32_t i = MN_LINEAR_WEIGHT; i < MN_LINEAR_WEIGHT + 2 * q->node->n_out; i += 2) {
        const uint64_t bytes = (ref_first_dim(q, i) + ref_last_dim(q, i)) * sizeof(float);
        if (bytes > op->worker_bytes)
            op->worker_bytes = bytes;
    }
}

static uint32_t weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    (void)q;
    if (i % 2 == 0)
        return ref_vector(t);
    if (t->n_dim != 2)
        return REF_NO_SHAPE;
    return ref_has_type(t->dtype.id) ? 0 : REF_NO_TYPE;
}

static bool fits(const mnc_query *q) {
    return q->node->n_in >= 1 + 2 * q->node->n_out - 1;
}

const ref_op ref_op_linear = {
    .fn = linear,
    .size = size,
    .weight = weight,
    .fits = fits,
};
