/* op_gather.c -- GATHER_ROWS: rows by index, zeros for those out of range. */
#include "reference.h"
#include <string.h>

static void gather_rows(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_GATHER_ROWS_X];
    const int32_t *rows = c->in[MN_GATHER_ROWS_ROWS].ptr;
    float *y = c->out[MN_GATHER_ROWS_OUT_Y].ptr; /* [O, D] */
    int64_t lo;
    int64_t hi;
    int64_t d = x->cols;
    mnc_range(w, c->in[MN_GATHER_ROWS_ROWS].rows, 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        if (rows[i] < 0 || rows[i] >= x->rows)
            memset(y + i * d, 0, (size_t)d * sizeof *y);
        else
            memcpy(y + i * d, (const float *)x->ptr + rows[i] * d, (size_t)d * sizeof *y);
    }
}

const ref_op ref_op_gather_rows = {
    .fn = gather_rows,
};
