/* lora.c -- LORA: two small products for the rows of each adapter, with the kernels of LINEAR in
 * class exact whatever the program's class is: the work is little, and adapters are f32 or f16.
 * First A x of all rows that have an adapter, which all parts share; then B of that, added to Y.
 * Rows of one adapter are multiplied together; a kernel's sum of an output does not depend on how
 * many they are. */
#include "nodes.h"

/* Adapter `a` of the operand [N_A, rows, cols] as a weight. */
static mnc_weight lora_weight(const mnc_operand *m, int32_t a) {
    const uint8_t *all = m->ptr;
    uint32_t size = 4;
    if (m->dtype == MN_F16)
        size = 2;
    mnc_weight w = {0};
    w.dtype.id = m->dtype;
    w.dtype.block_elems = 1;
    w.dtype.block_bytes = size;
    w.dtype.n_planes = 1;
    w.rows = m->dim[1];
    w.cols = m->dim[2];
    w.row_bytes = (uint64_t)w.cols * size;
    w.data = all + (uint64_t)a * (uint64_t)w.rows * w.row_bytes;
    return w;
}

/* The adapter of row r; -1: none. */
static int32_t lora_adapter(const mnc_call *c, int64_t r) {
    const int32_t *adapter = c->in[MN_LORA_ADAPTER].ptr;
    if (adapter[r] < 0 || adapter[r] >= c->in[MN_LORA_A].dim[0])
        return -1;
    return adapter[r];
}

/* Whether r is the first row of its adapter: others are taken with that. */
static bool lora_is_first(const mnc_call *c, int64_t r) {
    const int32_t a = lora_adapter(c, r);
    if (a < 0)
        return false;
    for (int64_t i = 0; i < r; i++)
        if (lora_adapter(c, i) == a)
            return false;
    return true;
}

/* Rows of a matrix of floats, cols apart. */
typedef struct {
    const float *x;
    int64_t x_cols;
    float *y;
    int64_t y_cols;
} lora_rows;

/* A pair for each row of the step, then the panel. */
static uint64_t lora_pairs_bytes(int64_t n_rows) {
    return ((uint64_t)n_rows * sizeof(mnk_pair) + 63) / 64 * 64;
}

/* y = x W^T of rows [lo, hi) of operand m, for all rows of the step with the adapter of row r.
 * Scratch: their pairs, then a panel. */
static void lora_product(const mnc_call *c, mnc_worker *w, const mnc_operand *m, lora_rows at,
                         int64_t r, int64_t lo, int64_t hi) {
    const mnk_use *use = c->user;
    const int32_t a = lora_adapter(c, r);
    const mnc_weight weight = lora_weight(m, a);
    const int64_t n_rows = c->in[MN_LORA_ADAPTER].rows;
    mnk_pair *pair = w->scratch;
    int64_t n = 0;
    for (int64_t i = r; i < n_rows; i++) {
        const float *x = at.x + i * at.x_cols;
        float *y = at.y + i * at.y_cols;
        if (lora_adapter(c, i) == a)
            pair[n++] = (mnk_pair){(const uint8_t *)x, y};
    }
    const mnk_linear *k = mnk_find_plain(m->dtype, MN_PRECISION_EXACT, use->level, n, weight.cols);
    uint8_t *panel = w->scratch;
    panel += lora_pairs_bytes(c->max_rows);
    mnk_linear_rows(k, &weight, pair, n, lo, hi, panel);
}

void mnk_lora_shrink(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *a = &c->in[MN_LORA_A];
    const mnc_operand *x = &c->in[MN_LORA_X];
    const lora_rows at = {x->ptr, x->cols, c->shared, a->dim[1]};
    int64_t lo;
    int64_t hi;
    mnc_range(w, a->dim[1], MNK_STREAMS, &lo, &hi);
    for (int64_t r = 0; r < x->rows && lo < hi; r++)
        if (lora_is_first(c, r))
            lora_product(c, w, a, at, r, lo, hi);
}

/* z[lo, hi) = y, or what is there and y. */
static void lora_add(const float *y, float *z, int64_t lo, int64_t hi, bool sum) {
    if (!sum) {
        memcpy(z + lo, y + lo, (size_t)(hi - lo) * sizeof *z);
        return;
    }
    for (int64_t i = lo; i < hi; i++)
        z[i] += y[i];
}

void mnk_lora_node(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *b = &c->in[MN_LORA_B];
    const mnc_operand *y = &c->in[MN_LORA_Y];
    float *z = c->out[MN_LORA_OUT_Z].ptr;
    const lora_rows at = {c->shared, b->dim[2], z, y->cols};
    int64_t lo;
    int64_t hi;
    mnc_range(w, y->cols, 16, &lo, &hi);
    if (lo >= hi)
        return;
    for (int64_t r = 0; r < y->rows; r++)
        if (lora_is_first(c, r))
            lora_product(c, w, b, at, r, lo, hi);
    const float *from = y->ptr;
    for (int64_t r = 0; r < y->rows; r++) {
        const bool has = lora_adapter(c, r) >= 0;
        lora_add(from, z, lo, hi, has);
        from += y->cols;
        z += y->cols;
    }
}

mnc_work mnk_lora_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const mnc_operand *a = &c->in[MN_LORA_A];
    const mnc_operand *y = &c->in[MN_LORA_Y];
    const int64_t rank = a->dim[1];
    int64_t n = 0;
    mnc_work work = {0, 0};
    (void)n_threads;
    for (int64_t r = 0; r < y->rows; r++)
        n += lora_adapter(c, r) >= 0;
    if (stage != MNC_FIRST) {
        const int64_t copied = y->rows * y->cols / 4;
        const int64_t summed = n * rank * y->cols / 8;
        work = (mnc_work){summed + copied, (y->cols + 15) / 16};
    } else if (n) {
        const int64_t summed = n * rank * a->dim[2] / 16;
        work = (mnc_work){summed, (rank + MNK_STREAMS - 1) / MNK_STREAMS};
    }
    return work;
}

/* The largest panel of a kernel that some number of rows of x of k columns uses. */
static uint64_t lora_panel(uint32_t dtype, int32_t level, int64_t k, int64_t n_rows) {
    uint64_t most = 0;
    for (int64_t r = 1; r && r <= n_rows; r = mnk_next_rows(r)) {
        const mnk_linear *l = mnk_find_plain(dtype, MN_PRECISION_EXACT, level, r, k);
        uint64_t bytes = 0;
        if (l && l->panel_bytes)
            bytes = l->panel_bytes(k);
        if (bytes > most)
            most = bytes;
    }
    return most;
}

void mnk_lora_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    const mn_tensor *a = mnc_query_in(q, MN_LORA_A);
    const int64_t n_rows = mnc_query_dim(q, mnc_query_in(q, MN_LORA_ADAPTER), 0);
    const int64_t k = a->dim[2];
    const int64_t rank = a->dim[1];
    const uint32_t dtype = a->dtype.id;
    const uint64_t of_a = lora_panel(dtype, use->level, k, n_rows);
    const uint64_t of_b = lora_panel(dtype, use->level, rank, n_rows);
    uint64_t panel = of_a;
    if (of_b > panel)
        panel = of_b;
    op->worker_bytes = lora_pairs_bytes(n_rows) + panel;
    op->shared_bytes = (uint64_t)n_rows * (uint64_t)rank * sizeof(float);
}
