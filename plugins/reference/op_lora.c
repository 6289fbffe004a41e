/* op_lora.c -- LORA: what each row's adapter adds to a product, summed in double. */
#include "reference.h"
#include <string.h>

/* Row `row` of adapter `a` of the matrices m, [N_A, rows, cols], as f32. */
static void lora_row(const mnc_operand *m, int64_t a, int64_t row, float *out) {
    const int64_t cols = m->dim[2];
    const int64_t at = (a * m->dim[1] + row) * cols;
    const uint16_t *halves = m->ptr;
    if (m->dtype == MN_F32) {
        memcpy(out, (const float *)m->ptr + at, (size_t)cols * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < cols; i++)
        out[i] = mn_f16_to_f32(halves[at + i]);
}

/* The adapter of a row; -1: none. */
static int64_t lora_adapter(const mnc_call *c, int64_t r) {
    const int32_t *adapter = c->in[MN_LORA_ADAPTER].ptr;
    if (adapter[r] < 0 || adapter[r] >= c->in[MN_LORA_A].dim[0])
        return -1;
    return adapter[r];
}

/* Shared: A x of each row, [R, Q]. Scratch: a row of A or B. */
static void lora_shrink(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_LORA_X];
    const mnc_operand *a = &c->in[MN_LORA_A];
    const int64_t rank = a->dim[1];
    double *h = c->shared;
    float *row = w->scratch;
    int64_t lo;
    int64_t hi;
    mnc_range(w, rank, 1, &lo, &hi);
    for (int64_t r = 0; r < x->rows; r++) {
        const int64_t adapter = lora_adapter(c, r);
        for (int64_t q = lo; adapter >= 0 && q < hi; q++) {
            lora_row(a, adapter, q, row);
            h[r * rank + q] = ref_dot((const float *)x->ptr + r * x->cols, row, x->cols);
        }
    }
}

static void lora(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *y = &c->in[MN_LORA_Y];
    const mnc_operand *b = &c->in[MN_LORA_B];
    const int64_t rank = b->dim[2];
    const double *h = c->shared;
    float *row = w->scratch;
    int64_t lo;
    int64_t hi;
    mnc_range(w, y->cols, 1, &lo, &hi);
    for (int64_t r = 0; r < y->rows; r++) {
        const float *from = (const float *)y->ptr + r * y->cols;
        float *to = (float *)c->out[MN_LORA_OUT_Z].ptr + r * y->cols;
        const int64_t adapter = lora_adapter(c, r);
        for (int64_t n = lo; n < hi; n++) {
            double sum = 0;
            to[n] = from[n];
            if (adapter < 0)
                continue;
            lora_row(b, adapter, n, row);
            for (int64_t q = 0; q < rank; q++)
                sum += h[r * rank + q] * row[q];
            to[n] = (float)(from[n] + sum);
        }
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    const mn_tensor *adapter = mnc_query_in(q, MN_LORA_ADAPTER);
    const uint64_t rank = ref_last_dim(q, MN_LORA_B);
    const uint64_t widest = ref_last_dim(q, MN_LORA_A) + rank;
    op->worker_bytes = widest * sizeof(float);
    op->shared_bytes = (uint64_t)mnc_query_dim(q, adapter, 0) * rank * sizeof(double);
}

static bool fits(const mnc_query *q) {
    return mnp_lora_fits(q->graph, q->node);
}

const ref_op ref_op_lora = {
    .first = lora_shrink,
    .fn = lora,
    .size = size,
    .fits = fits,
};
