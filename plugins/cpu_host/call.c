/* call.c -- what ops, prepare and verdict call: operands and attributes, shares of work. Holds
 * nothing: a call belongs to its context, a worker to the stack of its thread. */
#include "mnc.h"

const mn_tensor *mnc_query_in(const mnc_query *q, uint32_t i) {
    return mnp_in_tensor(q->graph, q->node, i);
}
const mn_tensor *mnc_query_out(const mnc_query *q, uint32_t i) {
    return mnp_out_tensor(q->graph, q->node, i);
}
/* Dimension i for the symbol values of the query; 1 behind the last. */
int64_t mnc_query_dim(const mnc_query *q, const mn_tensor *t, uint32_t i) {
    if (i < t->n_dim)
        return mnp_dim(q->graph, q->symbol, t->dim[i]);
    return 1;
}

int64_t mnc_query_attr(const mnc_query *q, uint32_t i) {
    const uint64_t *attr = q->graph->attrs + q->node->attr_off;
    if (i < q->node->n_attr)
        return (int64_t)attr[i];
    return 0;
}

int64_t mnc_attr_int(const mnc_call *c, uint32_t i) {
    if (i < c->n_attr)
        return (int64_t)c->attr[i];
    return 0;
}

double mnc_attr_f64(const mnc_call *c, uint32_t i) {
    double v = 0;
    if (i < c->n_attr)
        memcpy(&v, &c->attr[i], sizeof v);
    return v;
}

/* [lo, hi) = shares [first, last) of `of`, in grains; the last grain may be short. */
static void host_call_share(int64_t total, int64_t grain, int64_t first, int64_t last, int64_t of,
                            int64_t *lo, int64_t *hi) {
    const int64_t units = (total + grain - 1) / grain;
    *lo = units * first / of * grain;
    *hi = units * last / of * grain;
    if (*lo > total)
        *lo = total;
    if (*hi > total)
        *hi = total;
}

void mnc_range(const mnc_worker *w, int64_t total, int64_t grain, int64_t *lo, int64_t *hi) {
    host_call_share(total, grain, w->i, w->i + 1, w->n, lo, hi);
}

mnc_spans mnc_range_cells(const mnc_worker *w, int64_t rows, int64_t cols, int64_t grain) {
    mnc_spans s = {.n = 1};
    if (!w->in_cells) {
        mnc_range(w, rows * cols, grain, &s.lo, &s.hi);
        return s;
    }
    s.lo = w->row_lo * cols;
    s.hi = w->row_hi * cols;
    if (w->unit_hi - w->unit_lo == w->n_units)
        return s;
    mnc_range_units(w, cols, &s.lo, &s.hi);
    s.lo += w->row_lo * cols;
    s.hi += w->row_lo * cols;
    s.step = cols;
    s.n = w->row_hi - w->row_lo;
    return s;
}

void mnc_range_rows(const mnc_worker *w, int64_t rows, int64_t *lo, int64_t *hi) {
    *lo = w->row_lo;
    *hi = w->row_hi;
    if (!w->in_cells)
        mnc_range(w, rows, 1, lo, hi);
}

void mnc_range_units(const mnc_worker *w, int64_t n, int64_t *lo, int64_t *hi) {
    *lo = 0;
    *hi = n;
    if (!w->in_cells)
        return;
    *lo = n / w->n_units * w->unit_lo;
    *hi = n / w->n_units * w->unit_hi;
}

/* Rounds of one part per thread, of 4, 2, 1 and 1 eighths of the work of a node. */
void mnc_range_guided(const mnc_worker *w, int64_t total, int64_t grain, int64_t *lo, int64_t *hi) {
    static const uint32_t begin[MNC_GUIDED] = {0, 4, 6, 7};
    static const uint32_t size[MNC_GUIDED] = {4, 2, 1, 1};
    const bool even = w->n_nodes < 2 || w->n_threads % w->n_nodes == 0;
    if (w->n != MNC_GUIDED * w->n_threads || !even) {
        mnc_range(w, total, grain, lo, hi);
        return;
    }
    const uint32_t n_nodes = w->n_nodes > 1 ? w->n_nodes : 1;
    const uint32_t n_threads = w->n_threads / n_nodes;
    const uint32_t node = w->i / (MNC_GUIDED * n_threads);
    const uint32_t i = w->i % (MNC_GUIDED * n_threads);
    const uint32_t round = i / n_threads;
    uint32_t first = begin[round] * n_threads + size[round] * (i % n_threads);
    first += 8 * n_threads * node;
    host_call_share(total, grain, first, first + size[round], 8 * (int64_t)w->n_threads, lo, hi);
}

#define PART_NS 2000
uint32_t mnc_parts(mnc_work work, uint32_t n_threads) {
    const int64_t most = (int64_t)n_threads * MNC_GUIDED;
    int64_t n = work.ns / PART_NS;
    if (!work.units)
        return 0;
    if (n > work.units)
        n = work.units;
    if (n > most)
        n = most;
    if (n < 2 || n_threads == 1)
        return 1;
    return (uint32_t)n;
}
