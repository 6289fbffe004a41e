/* op_linear.c -- LINEAR: rows times matrices, summed in double. A weight row is unpacked once and
 * multiplied with every row of the step. */
#include "reference.h"
#include <string.h>

#define UNSANITIZED __attribute__((no_sanitize("address", "undefined")))

enum { SUMS = 8 };

/* Adds the products of blocks of SUMS to as many sums, side by side, so that the compiler can keep
 * them in registers. Sanitizers pass it over: it is most of what tests of whole models take. */
UNSANITIZED static void linear_add_products(const float *a, const float *b, int64_t n,
                                            double *sums) {
    for (int64_t i = 0; i < n; i += SUMS)
        for (int64_t j = 0; j < SUMS; j++)
            sums[j] += (double)a[i + j] * b[i + j];
}

/* The sums are added up in a fixed order. The last block is read here, where sanitizers look. */
double ref_dot(const float *a, const float *b, int64_t n) {
    double sums[SUMS] = {0};
    double sum = 0;
    int64_t i = n < SUMS ? 0 : (n / SUMS - 1) * SUMS;
    linear_add_products(a, b, i, sums);
    for (; i + SUMS <= n; i += SUMS)
        for (int64_t j = 0; j < SUMS; j++)
            sums[j] += (double)a[i + j] * b[i + j];
    for (; i < n; i++)
        sum += (double)a[i] * b[i];
    for (int64_t j = 0; j < SUMS; j++)
        sum += sums[j];
    return sum;
}

/* Output i of the node. Scratch: one weight row, [K], then the one row of a bias, [N]. */
static void linear_multiply(const mnc_call *c, mnc_worker *w, uint32_t i) {
    const mnc_weight *m = c->in[MN_LINEAR_WEIGHT + 2 * i].weight;
    const mnc_weight *b = mnc_optional(c, MN_LINEAR_BIAS + 2 * i);
    const float *x = c->in[MN_LINEAR_X].ptr; /* [R, K] */
    const int64_t k = m->cols;
    float *y = c->out[i].ptr; /* [R, N] */
    float *row = w->scratch;
    float *bias = row + k;
    int64_t lo;
    int64_t hi;
    if (b)
        ref_row(b, 0, bias);
    mnc_range(w, m->rows, 1, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        double offset = 0;
        if (b)
            offset = bias[n];
        ref_row(m, n, row);
        for (int64_t r = 0; r < c->in[MN_LINEAR_X].rows; r++)
            y[r * m->rows + n] = (float)(ref_dot(x + r * k, row, k) + offset);
    }
}

/* Output i of the node, where each head has a matrix [N, K] of its own; what a head of x has beyond
 * K is passed on. */
static void multiply_heads(const mnc_call *c, mnc_worker *w, uint32_t i) {
    const mnc_weight *m = c->in[MN_LINEAR_WEIGHT + 2 * i].weight; /* [H N, K] */
    const mnc_operand *x = &c->in[MN_LINEAR_X];                   /* [R, H, K + M] */
    const int64_t n = m->group_rows;
    const int64_t k = m->cols;
    const int64_t n_behind = x->dim[2] - k;
    float *row = w->scratch;
    int64_t lo;
    int64_t hi;
    mnc_range(w, m->rows, 1, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        ref_row(m, j, row);
        for (int64_t r = 0; r < x->rows; r++) {
            const int64_t head = r * x->dim[1] + j / n;
            const float *from = (const float *)x->ptr + head * x->dim[2];
            float *y = (float *)c->out[i].ptr + head * (n + n_behind);
            y[j % n] = (float)ref_dot(from, row, k);
            if (j % n == 0)
                memcpy(y + n, from + k, (size_t)n_behind * sizeof *y);
        }
    }
}

static void linear(const mnc_call *c, mnc_worker *w) {
    if (!c->in[MN_LINEAR_X].rows)
        return;
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        if (c->in[MN_LINEAR_WEIGHT + 2 * i].n_dim == 3)
            multiply_heads(c, w, i);
        else
            linear_multiply(c, w, i);
    }
}

/* Operands: x, then weight and bias of each output. */
static void size(const mnc_query *q, mnc_op *op) {
    const uint32_t end = MN_LINEAR_WEIGHT + 2 * q->node->n_out;
    for (uint32_t i = MN_LINEAR_WEIGHT; i < end; i += 2) {
        const uint64_t n = ref_first_dim(q, i) + ref_last_dim(q, i);
        const uint64_t bytes = n * sizeof(float);
        if (bytes > op->worker_bytes)
            op->worker_bytes = bytes;
    }
}

static uint32_t weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    if (i % 2 == 0)
        return ref_vector(t);
    const mn_tensor *x = mnc_query_in(q, MN_LINEAR_X);
    if (t->n_dim != 2 && (t->n_dim != 3 || !x || x->n_dim != 3))
        return REF_NO_SHAPE;
    if (ref_has_type(t->dtype.id))
        return 0;
    return REF_NO_TYPE;
}

static bool fits(const mnc_query *q) {
    return q->node->n_in >= 2 * q->node->n_out;
}

const ref_op ref_op_linear = {
    .fn = linear,
    .size = size,
    .weight = weight,
    .fits = fits,
};
