/* linear.c -- LINEAR: who computes which rows of which weight, by which kernel of the table. */
#include "nodes.h"
#ifdef MNC_OPENBLAS
#include <cblas.h>
#endif

#define FEW_ROWS                                                                                                       \
    4 /* up to here each weight row, in cache after the first, is multiplied by one x row after the other */
#define SOME_ROWS 48 /* up to here small panels, still in the first cache when they are used */
#define BLAS_ROWS                                                                                                      \
    64 /* from here on sgemm takes f32 weights outside class exact, unless there are AVX-512 rows: those are as fast */

bool mnk_blas_rows(const mnc_weight *w, const float *x, int64_t r, float *y, int64_t ldy, int64_t lo, int64_t hi) {
#ifdef MNC_OPENBLAS
    const int64_t most = 1 << 30;
    if (hi <= lo || (uintptr_t)w->data % sizeof(float) || r > most || w->cols > most || ldy > most) return hi <= lo;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)r, (int)(hi - lo), (int)w->cols, 1.0f, x, (int)w->cols,
                (const float *)w->data + lo * w->cols, (int)w->cols, 0.0f, y + lo, (int)ldy);
    return true;
#else
    (void)w, (void)x, (void)r, (void)y, (void)ldy, (void)lo, (void)hi;
    return false;
#endif
}

/* Few rows: MNK_STREAMS parts of [lo, hi) are read side by side, each from start to end. */
static void few_rows(const mnk_linear *k, const mnc_weight *w, const uint8_t *x, int64_t ldx, int64_t r, float *y,
                     int64_t ldy, int64_t lo, int64_t hi) {
    int64_t part = (hi - lo) / MNK_STREAMS, rest = lo + part * MNK_STREAMS;
    const uint8_t *base = w->data, *p[MNK_STREAMS];
    float out[MNK_STREAMS];
    for (int64_t j = 0; j < part; j++) {
        for (int s = 0; s < MNK_STREAMS; s++) p[s] = base + (uint64_t)(lo + s * part + j) * w->row_bytes;
        for (int64_t i = 0; i < r; i++) {
            k->dot(p, x + i * ldx, w->cols, out);
            for (int s = 0; s < MNK_STREAMS; s++) y[i * ldy + lo + s * part + j] = out[s];
        }
    }
    if (rest == hi) return;
    for (int s = 0; s < MNK_STREAMS; s++) p[s] = base + (uint64_t)(rest + s < hi ? rest + s : hi - 1) * w->row_bytes;
    for (int64_t i = 0; i < r; i++) {
        k->dot(p, x + i * ldx, w->cols, out);
        for (int64_t j = rest; j < hi; j++) y[i * ldy + j] = out[j - rest];
    }
}

void mnk_linear_rows(const mnk_linear *k, const mnc_weight *w, const uint8_t *x, int64_t ldx, int64_t r, float *y,
                     int64_t ldy, int64_t lo, int64_t hi, void *panel) {
    int64_t kc = k->kc ? k->kc : w->cols;
    if (lo >= hi) return;
    if (r <= FEW_ROWS) {
        few_rows(k, w, x, ldx, r, y, ldy, lo, hi);
        return;
    }
    int64_t step = r <= SOME_ROWS && k->few_panel_rows ? k->few_panel_rows : k->panel_rows;
    for (int64_t j = lo; j < hi; j += step) {
        int64_t n = hi - j < step ? hi - j : step;
        const uint8_t *rows = (const uint8_t *)w->data + (uint64_t)j * w->row_bytes;
        for (int64_t k0 = 0; k0 < w->cols; k0 += kc) {
            int64_t span = w->cols - k0 < kc ? w->cols - k0 : kc;
            k->unpack(rows, w->row_bytes, n, k0, span, panel);
            k->gemm(panel, n, span, x + (k->quantised_x ? 0 : 4 * k0), ldx, r, y + j, ldy, k0 == 0);
        }
    }
}

static void add_bias(const mnc_weight *b, float *y, int64_t r, int64_t ldy, int64_t lo, int64_t hi) {
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = lo; j < hi; j++) y[i * ldy + j] += mnk_load1(b->data, b->dtype.id, j);
}

static const mnk_linear *kernel_of(const mnk_use *use, uint32_t dtype) {
    const mnk_row *row = mnk_find(MN_OP_LINEAR, dtype, use->precision, use->level);
    return row ? row->linear : NULL;
}

void mnk_linear_node(const mnc_call *c, mnc_worker *w) {
    const mnk_use *use = c->user;
    int64_t r = c->in[0].rows, k = c->in[0].cols, lo, hi, ldq = mnk_quant_bytes(k);
    const uint8_t *x = c->in[0].ptr;
    bool quantised = false;
    if (r == 0) return;
    for (uint32_t i = 0; i < c->node->n_out; i++)
        quantised |= kernel_of(use, c->in[1 + 2 * i].weight->dtype.id)->quantised_x;
    if (quantised) { /* once for all weights, by all workers */
        mnc_range(w, r, 1, &lo, &hi);
        for (int64_t i = lo; i < hi; i++)
            mnk_quantise((const float *)c->in[0].ptr + i * k, k, (uint8_t *)c->shared + i * ldq);
        mnc_barrier(w);
    }
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        const mnc_weight *wt = c->in[1 + 2 * i].weight,
                         *bias = 2 + 2 * i < c->node->n_in ? c->in[2 + 2 * i].weight : NULL;
        const mnk_linear *kern = kernel_of(use, wt->dtype.id);
        float *y = c->out[i].ptr;
        if (!y) continue;
        mnc_range(w, wt->rows, 16, &lo, &hi);
        bool blas = wt->dtype.id == MN_F32 && use->precision != MN_PRECISION_EXACT && r >= BLAS_ROWS &&
                    (use->level < MNK_AVX512 || use->level >= MNK_NEON);
        bool done = blas && mnk_blas_rows(wt, c->in[0].ptr, r, y, wt->rows, lo, hi);
        if (!done)
            mnk_linear_rows(kern, wt, kern->quantised_x ? c->shared : x, kern->quantised_x ? ldq : 4 * k, r, y,
                            wt->rows, lo, hi, w->scratch);
        if (bias) add_bias(bias, y, r, wt->rows, lo, hi);
    }
}

void mnk_linear_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    const mn_tensor *x = mnc_query_in(q, 0);
    int64_t r = mnc_query_dim(q, x, 0), k = 1;
    for (uint32_t i = 1; i < x->n_dim; i++) k *= mnc_query_dim(q, x, i);
    for (uint32_t i = 0; i < q->node->n_out; i++) {
        const mnk_linear *kern = kernel_of(use, mnc_query_in(q, 1 + 2 * i)->dtype.id);
        if (!kern) continue;
        uint64_t bytes = kern->panel_bytes(k);
        if (bytes > op->worker_bytes) op->worker_bytes = bytes;
        if (kern->quantised_x) op->shared_bytes = (uint64_t)r * (uint64_t)mnk_quant_bytes(k);
    }
}
