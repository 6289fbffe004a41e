/* heads.c -- LINEAR where each head has a matrix of its own (latent attention). Rows of x are read
 * as they are, by the kernels of class exact: a head's matrix is small, and its x is its own, so
 * that packing x would not pay. What a head of x has beyond the matrix is passed on. */
#include "nodes.h"
#include <string.h>

static const mnk_linear *kernel_for(const mnk_use *use, const mnc_weight *w, int64_t r) {
    return mnk_find_plain(w->dtype.id, MN_PRECISION_EXACT, use->level, r, w->cols);
}

static uint64_t pairs_bytes(int64_t r) {
    return ((uint64_t)r * sizeof(mnk_pair) + 63) / 64 * 64;
}

bool mnk_has_heads(const mnc_query *q) {
    if (q->node->op != MN_OP_LINEAR)
        return false;
    const mn_tensor *w = mnc_query_in(q, MN_LINEAR_WEIGHT);
    return w && w->n_dim == 3;
}

/* Rows [lo, hi) of head h's matrix, for all rows of x. */
static void head_rows(const mnc_call *c, mnc_worker *w, uint32_t i, int64_t h, int64_t lo,
                      int64_t hi) {
    const mnc_operand *x = &c->in[MN_LINEAR_X]; /* [R, H, K + M] */
    const mnc_weight *all = c->in[MN_LINEAR_WEIGHT + 2 * i].weight;
    const mnc_weight one = mnc_expert(all, h);
    const int64_t behind = x->dim[2] - one.cols;
    const int64_t width = one.rows + behind; /* of y */
    const mnk_linear *kern = kernel_for(c->user, all, x->rows);
    mnk_pair *pair = w->scratch;
    uint8_t *panel = (uint8_t *)w->scratch + pairs_bytes(c->max_rows);
    for (int64_t r = 0; r < x->rows; r++) {
        const int64_t head = r * x->dim[1] + h;
        const float *from = (const float *)x->ptr + head * x->dim[2];
        float *y = (float *)c->out[i].ptr + head * width;
        pair[r].x = (const uint8_t *)from;
        pair[r].y = y;
        if (lo == 0)
            memcpy(y + one.rows, from + one.cols, (size_t)behind * sizeof *y);
    }
    mnk_linear_rows(kern, &one, pair, x->rows, lo, hi, panel);
}

/* The rows of all heads' matrices are shared out as one run. */
void mnk_heads_node(const mnc_call *c, mnc_worker *w) {
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        const mnc_weight *all = c->in[MN_LINEAR_WEIGHT + 2 * i].weight;
        const int64_t n = all->group_rows;
        int64_t lo;
        int64_t hi;
        mnc_range_guided(w, all->rows, 16, &lo, &hi);
        for (int64_t h = lo / n; c->out[i].ptr && h * n < hi; h++) {
            const int64_t first = lo > h * n ? lo - h * n : 0;
            const int64_t end = hi - h * n < n ? hi - h * n : n;
            head_rows(c, w, i, h, first, end);
        }
    }
}

mnc_work mnk_heads_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    int64_t n = 0;
    (void)n_threads;
    if (stage == MNC_FIRST || !x->rows)
        return (mnc_work){0, 0};
    for (uint32_t i = 0; i < c->node->n_out; i++)
        n += c->in[MN_LINEAR_WEIGHT + 2 * i].weight->rows;
    return mnk_product_work(n, x->dim[2], x->rows);
}

void mnk_heads_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    const int64_t r = mnc_query_dim(q, mnc_query_in(q, MN_LINEAR_X), 0);
    uint64_t panel = 0;
    for (uint32_t i = 0; i < q->node->n_out; i++) {
        const mn_tensor *w = mnc_query_in(q, MN_LINEAR_WEIGHT + 2 * i);
        const int64_t k = mnc_query_dim(q, w, 2);
        for (int64_t rows = 1; rows; rows = mnk_next_rows(rows)) {
            const mnk_linear *kern =
                mnk_find_plain(w->dtype.id, MN_PRECISION_EXACT, use->level, rows, k);
            if (kern && kern->panel_bytes(k) > panel)
                panel = kern->panel_bytes(k);
        }
    }
    op->worker_bytes = pairs_bytes(r) + panel;
}
