/* op_lookup.c -- LOOKUP: columns of a table's rows by the ids of the step's rows. */
#include "reference.h"
#include <string.h>

/* The id at a row's position; 0 where the table has no such row, -1: no row of the step. */
static int64_t lookup_id(const mnc_call *c, int64_t t, int64_t n_vocab) {
    const mnc_operand *history = &c->in[MN_LOOKUP_HISTORY];
    const int32_t *row_pos = c->in[MN_LOOKUP_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_LOOKUP_ROW_SLOT].ptr;
    const int32_t *ids = history->ptr;
    const int64_t pos = row_pos[t];
    const int64_t slot = row_slot[t];
    if (pos < 0 || pos >= history->cols)
        return -1;
    if (slot < 0 || slot >= history->rows)
        return -1;
    const int64_t id = ids[slot * history->cols + pos];
    if (id < 0 || id >= n_vocab)
        return 0;
    return id;
}

/* Scratch: a row of the table, [E]. */
static void lookup(const mnc_call *c, mnc_worker *w) {
    const mnc_weight *table = c->in[MN_LOOKUP_WEIGHT].weight;
    const mnc_operand *y = &c->out[MN_LOOKUP_OUT_Y];
    const int64_t first = mnc_attr_int(c, MN_LOOKUP_ATTR_FIRST);
    const int64_t d = y->cols;
    float *row = w->scratch;
    double scale = mnc_attr_f64(c, MN_LOOKUP_ATTR_SCALE);
    int64_t lo;
    int64_t hi;
    if (scale == 0)
        scale = 1;
    mnc_range(w, c->in[MN_LOOKUP_ROW_POS].rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        float *to = (float *)y->ptr + t * d;
        const int64_t id = lookup_id(c, t, table->rows);
        if (id < 0) {
            memset(to, 0, (size_t)d * sizeof *to);
            continue;
        }
        ref_row(table, id, row);
        for (int64_t i = 0; i < d; i++)
            to[i] = (float)(scale * row[first + i]);
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    op->worker_bytes = ref_last_dim(q, MN_LOOKUP_WEIGHT) * sizeof(float);
}

static uint32_t weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    (void)q;
    (void)i;
    if (ref_has_type(t->dtype.id))
        return 0;
    return REF_NO_TYPE;
}

static bool fits(const mnc_query *q) {
    return mnp_lookup_fits(q->graph, q->node);
}

const ref_op ref_op_lookup = {
    .fn = lookup,
    .size = size,
    .weight = weight,
    .fits = fits,
};
