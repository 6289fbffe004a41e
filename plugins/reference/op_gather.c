/* op_gather.c -- GATHER_ROWS: rows by index, zeros for those out of range (the rows of a step whose
 * logits nobody asked for). */
#include "reference.h"
#include <string.h>

static void gather_rows(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_GATHER_ROWS_X];
    const int32_t *rows = c->in[MN_GATHER_ROWS_ROWS].ptr;
    const int64_t d = x->cols;
    const size_t bytes = (size_t)d * sizeof(float);
    int64_t lo;
    int64_t hi;
    mnc_range(w, c->in[MN_GATHER_ROWS_ROWS].rows, 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        float *y = (float *)c->out[MN_GATHER_ROWS_OUT_Y].ptr + i * d; /* of [O, D] */
        if (rows[i] < 0 || rows[i] >= x->rows)
            memset(y, 0, bytes);
        else
            memcpy(y, (const float *)x->ptr + rows[i] * d, bytes);
    }
}

const ref_op ref_op_gather_rows = {
    .fn = gather_rows,
};
