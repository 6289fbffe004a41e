/* op_attention.c -- ATTENTION over the paged cache, one row and head at a time: all logits first,
 * then the softmax, then the sum, in double. */
#include "reference.h"
#include <math.h>
#include <string.h>

typedef struct {
    const mnc_kv *kv;
    const float *q;                     /* [Dk] */
    int64_t slot, head_kv, first, last; /* positions seen */
    double scale;
    double cap;
    double sink;
    bool has_sink;
} view;

static double element(uint32_t dtype, const uint8_t *p, int64_t i) {
    float f;
    uint16_t h;
    if (dtype == MN_F32)
        return memcpy(&f, p + 4 * i, 4), (double)f;
    return memcpy(&h, p + 2 * i, 2), (double)mn_f16_to_f32(h);
}

/* The key or value of one position: page by page table, then head, then place. NULL where no page
 * is. */
static const uint8_t *at(const view *a, int64_t pos, bool value) {
    const mnc_kv *kv = a->kv;
    int32_t page = kv->pages[a->slot * kv->max_pages + pos / kv->geo.page_tokens];
    if (page < 0 || page >= kv->n_pages)
        return NULL;
    int64_t place = a->head_kv * kv->geo.page_tokens + pos % kv->geo.page_tokens;
    if (value)
        return mnc_kv_v(kv, page) + place * kv->geo.dim_v * mnp_kv_size(kv->geo.v_dtype);
    return mnc_kv_k(kv, page) + place * kv->geo.dim_k * mnp_kv_size(kv->geo.k_dtype);
}

static double logit(const view *a, int64_t pos) {
    const uint8_t *k = at(a, pos, false);
    double sum = 0;
    if (!k)
        return -INFINITY;
    for (int64_t i = 0; i < a->kv->geo.dim_k; i++)
        sum += (double)a->q[i] * element(a->kv->geo.k_dtype, k, i);
    sum *= a->scale;
    return a->cap != 0 ? a->cap * tanh(sum / a->cap) : sum;
}

/* p: scratch, a double per position; acc: [Dv]. */
static void attend(const view *a, double *p, double *acc, float *y) {
    double max = a->has_sink ? a->sink : -INFINITY;
    double sum = 0;
    for (int64_t i = a->first; i <= a->last; i++) {
        p[i] = logit(a, i);
        if (p[i] > max)
            max = p[i];
    }
    memset(acc, 0, (size_t)a->kv->geo.dim_v * sizeof *acc);
    if (a->has_sink)
        sum += exp(a->sink - max);
    for (int64_t i = a->first; i <= a->last; i++) {
        const uint8_t *v = at(a, i, true);
        double e = v ? exp(p[i] - max) : 0;
        sum += e;
        for (int64_t d = 0; v && d < a->kv->geo.dim_v; d++)
            acc[d] += e * element(a->kv->geo.v_dtype, v, d);
    }
    for (int64_t d = 0; d < a->kv->geo.dim_v; d++)
        y[d] = (float)(acc[d] / sum); /* NaN stays NaN */
}

/* The last position that row t sees: its own, or of BIDIRECTIONAL the last of its sequence. */
static int64_t last_seen(const mnc_call *c, int64_t t) {
    const int32_t *row_pos = c->in[MN_ATTENTION_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_ATTENTION_ROW_SLOT].ptr;
    const int64_t window = mnc_attr_int(c, MN_ATTENTION_ATTR_WINDOW);
    if (!mnc_attr_int(c, MN_ATTENTION_ATTR_BIDIRECTIONAL))
        return row_pos[t];
    int64_t last = t;
    while (last + 1 < c->in[MN_ATTENTION_Q].rows && row_slot[last + 1] == row_slot[t] &&
           row_pos[last + 1] >= 0)
        last++;
    if (window > 0 && row_pos[last] > row_pos[t] + window - 1)
        return row_pos[t] + window - 1;
    return row_pos[last];
}

/* Scratch: doubles, one per position of the longest sequence, then [Dv]. Work is shared out by row
 * and head. */
static void attention(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *q = &c->in[MN_ATTENTION_Q]; /* [T, H, Dk] */
    const int32_t *row_pos = c->in[MN_ATTENTION_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_ATTENTION_ROW_SLOT].ptr;
    const mnc_weight *sinks = c->in[MN_ATTENTION_SINKS].weight;
    const mnc_kv *kv = &c->kv;
    float *y = c->out[MN_ATTENTION_OUT_Y].ptr; /* [T, H, Dv] */
    int64_t n_head = q->dim[1];
    int64_t group = n_head / kv->geo.n_head_kv;
    int64_t window = mnc_attr_int(c, MN_ATTENTION_ATTR_WINDOW);
    int64_t lo;
    int64_t hi;
    double *p = w->scratch;
    double *acc = p + kv->max_pages * kv->geo.page_tokens;
    mnc_range(w, q->rows * n_head, 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int64_t t = i / n_head;
        int64_t h = i % n_head;
        int64_t pos = row_pos[t];
        int64_t slot = row_slot[t];
        if (pos < 0 || slot < 0 || slot >= c->in[MN_ATTENTION_PAGES].rows ||
            pos >= kv->max_pages * kv->geo.page_tokens) {
            memset(y + i * kv->geo.dim_v, 0, (size_t)kv->geo.dim_v * sizeof *y);
            continue;
        }
        view a = {kv,
                  (const float *)q->ptr + i * kv->geo.dim_k,
                  slot,
                  h / group,
                  window > 0 && pos >= window ? pos - window + 1 : 0,
                  last_seen(c, t),
                  mnc_attr_f64(c, MN_ATTENTION_ATTR_SCALE),
                  mnc_attr_f64(c, MN_ATTENTION_ATTR_SOFTCAP),
                  0,
                  sinks != NULL};
        if (sinks)
            a.sink = (double)((const float *)sinks->data)[h];
        attend(&a, p, acc, y + i * kv->geo.dim_v);
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    const mn_tensor *y = mnc_query_out(q, MN_ATTENTION_OUT_Y);
    const uint64_t dim_v = y && y->n_dim == 3 ? (uint64_t)mnc_query_dim(q, y, 2) : 0;
    op->worker_bytes = (ref_last_dim(q, MN_ATTENTION_PAGES) * 64 + dim_v) * sizeof(double);
}

static bool fits(const mnc_query *q) {
    const mn_node *n = q->node;
    const mn_tensor *x = mnc_query_in(q, MN_ATTENTION_Q);
    if (x->n_dim != 3 || n->n_attr <= MN_ATTENTION_ATTR_N_HEAD_KV)
        return false;
    const int64_t n_head = mnc_query_dim(q, x, 1);
    const int64_t n_head_kv = (int64_t)q->graph->attrs[n->attr_off + MN_ATTENTION_ATTR_N_HEAD_KV];
    return n_head > 0 && n_head_kv > 0 && n_head % n_head_kv == 0;
}

const ref_op ref_op_attention = {
    .fn = attention,
    .size = size,
    .weight = ref_f32,
    .fits = fits,
};
