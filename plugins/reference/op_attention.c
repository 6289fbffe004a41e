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
    double slope; /* of the distance (ALiBi) */
    int64_t pos;  /* of the row */
    double sink;
    bool has_sink;
    float *row; /* a stored key or value as f32: scratch, [longer of Dk and Dv] */
} view;

/* The key or value of one position: page by page table, then head, then place. NULL where no page
 * is. */
static const uint8_t *attention_at(const view *a, int64_t pos, bool value) {
    const mnc_kv *kv = a->kv;
    const int32_t *table = kv->pages + a->slot * kv->max_pages;
    const int64_t page_tokens = kv->geo.page_tokens;
    const int32_t page = table[pos / page_tokens];
    if (page < 0 || page >= kv->n_pages)
        return NULL;
    const int64_t place = a->head_kv * page_tokens + pos % page_tokens;
    if (value)
        return mnc_kv_v(kv, page) + place * kv->geo.v_row;
    return mnc_kv_k(kv, page) + place * kv->geo.k_row;
}

/* The scaled and capped product of the query with the key of one position, and the slope times how
 * far behind the row it is; -inf where no page is. */
static double logit(const view *a, int64_t pos) {
    const uint8_t *k = attention_at(a, pos, false);
    double sum = 0;
    if (!k)
        return -INFINITY;
    const mnp_kv *geo = &a->kv->geo;
    mn_cached_get(geo->k_dtype, k, geo->dim_k, a->row);
    for (int64_t i = 0; i < geo->dim_k; i++)
        sum += (double)a->q[i] * a->row[i];
    sum *= a->scale;
    if (a->cap != 0)
        sum = a->cap * tanh(sum / a->cap);
    return sum + a->slope * (double)(pos - a->pos);
}

/* y: [Dv], the values that row's query attends to. p: scratch, a double per position; acc: [Dv]. */
static void attention_attend(const view *a, double *p, double *acc, float *y) {
    const uint32_t v_dtype = a->kv->geo.v_dtype;
    const int64_t dim_v = a->kv->geo.dim_v;
    double max = -INFINITY;
    if (a->has_sink)
        max = a->sink;
    double sum = 0;
    for (int64_t i = a->first; i <= a->last; i++) {
        p[i] = logit(a, i);
        if (p[i] > max)
            max = p[i];
    }
    memset(acc, 0, (size_t)dim_v * sizeof *acc);
    if (a->has_sink)
        sum += exp(a->sink - max);
    for (int64_t i = a->first; i <= a->last; i++) {
        const uint8_t *v = attention_at(a, i, true);
        if (!v)
            continue;
        const double e = exp(p[i] - max);
        sum += e;
        mn_cached_get(v_dtype, v, dim_v, a->row);
        for (int64_t d = 0; d < dim_v; d++)
            acc[d] += e * a->row[d];
    }
    for (int64_t d = 0; d < dim_v; d++)
        y[d] = (float)(acc[d] / sum); /* NaN stays NaN */
}

/* The last position that row t sees: its own, or of BIDIRECTIONAL the last of its sequence. */
static int64_t attention_last_seen(const mnc_call *c, int64_t t) {
    const int32_t *row_pos = c->in[MN_ATTENTION_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_ATTENTION_ROW_SLOT].ptr;
    const int64_t window = mnc_attr_int(c, MN_ATTENTION_ATTR_WINDOW);
    if (!mnc_attr_int(c, MN_ATTENTION_ATTR_BIDIRECTIONAL))
        return row_pos[t];
    const int64_t n_rows = c->in[MN_ATTENTION_Q].rows;
    int64_t last = t;
    while (last + 1 < n_rows && row_slot[last + 1] == row_slot[t] && row_pos[last + 1] >= 0)
        last++;
    if (window > 0 && row_pos[last] > row_pos[t] + window - 1)
        return row_pos[t] + window - 1;
    return row_pos[last];
}

/* The first position that a row at pos sees. */
static int64_t attention_first_seen(const mnc_call *c, int64_t pos) {
    const int64_t window = mnc_attr_int(c, MN_ATTENTION_ATTR_WINDOW);
    const int64_t chunk = mnc_attr_int(c, MN_ATTENTION_ATTR_CHUNK);
    int64_t first = 0;
    if (window > 0 && pos >= window)
        first = pos - window + 1;
    if (chunk > 0 && pos - pos % chunk > first)
        first = pos - pos % chunk;
    return first;
}

/* Scratch: doubles, one per position of the longest sequence, then [Dv], then a row in f32. Work is
 * shared out by row and head. */
static void attention(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *q = &c->in[MN_ATTENTION_Q]; /* [T, H, Dk] */
    const int32_t *row_pos = c->in[MN_ATTENTION_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_ATTENTION_ROW_SLOT].ptr;
    const int64_t n_slots = c->in[MN_ATTENTION_PAGES].rows;
    const mnc_weight *sinks = mnc_optional(c, MN_ATTENTION_SINKS);
    const mnc_weight *slopes = mnc_optional(c, MN_ATTENTION_ALIBI);
    const mnc_kv *kv = &c->kv;
    float *y = c->out[MN_ATTENTION_OUT_Y].ptr; /* [T, H, Dv] */
    const int64_t n_head = q->dim[1];
    const int64_t dim_v = kv->geo.dim_v;
    const int64_t max_pos = kv->max_pages * kv->geo.page_tokens;
    double *p = w->scratch;
    double *acc = p + max_pos;
    view a = {
        .kv = kv,
        .scale = mnc_attr_f64(c, MN_ATTENTION_ATTR_SCALE),
        .cap = mnc_attr_f64(c, MN_ATTENTION_ATTR_SOFTCAP),
        .has_sink = sinks != NULL,
        .row = (float *)(acc + dim_v),
    };
    int64_t lo;
    int64_t hi;
    mnc_range(w, q->rows * n_head, 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const int64_t t = i / n_head;
        const int64_t h = i % n_head;
        const int64_t pos = row_pos[t];
        a.slot = row_slot[t];
        if (pos < 0 || pos >= max_pos || a.slot < 0 || a.slot >= n_slots) {
            memset(y + i * dim_v, 0, (size_t)dim_v * sizeof *y);
            continue;
        }
        a.q = (const float *)q->ptr + i * kv->geo.dim_k;
        a.head_kv = h * kv->geo.n_head_kv / n_head;
        a.pos = pos;
        a.first = attention_first_seen(c, pos);
        a.last = attention_last_seen(c, t);
        if (slopes)
            a.slope = ((const float *)slopes->data)[h];
        if (sinks)
            a.sink = ((const float *)sinks->data)[h];
        attention_attend(&a, p, acc, y + i * dim_v);
    }
}

/* The last dim of a [T, H, D]; 0 where it is none. */
static uint64_t head_dim(const mnc_query *q, const mn_tensor *t) {
    if (t && t->n_dim == 3)
        return (uint64_t)mnc_query_dim(q, t, 2);
    return 0;
}

/* The page table's columns are pages of 64 positions. */
static void size(const mnc_query *q, mnc_op *op) {
    const uint64_t dim_k = head_dim(q, mnc_query_in(q, MN_ATTENTION_Q));
    const uint64_t dim_v = head_dim(q, mnc_query_out(q, MN_ATTENTION_OUT_Y));
    const uint64_t n_pages = ref_last_dim(q, MN_ATTENTION_PAGES);
    const uint64_t row = dim_k > dim_v ? dim_k : dim_v;
    op->worker_bytes = (n_pages * 64 + dim_v) * sizeof(double) + row * sizeof(float);
}

static bool fits(const mnc_query *q) {
    const mn_node *n = q->node;
    const mn_tensor *x = mnc_query_in(q, MN_ATTENTION_Q);
    if (x->n_dim != 3)
        return false;
    if (n->n_attr <= MN_ATTENTION_ATTR_N_HEAD_KV)
        return false;
    const int64_t n_head = mnc_query_dim(q, x, 1);
    const uint64_t *attr = &q->graph->attrs[n->attr_off];
    const int64_t n_head_kv = (int64_t)attr[MN_ATTENTION_ATTR_N_HEAD_KV];
    return n_head > 0 && n_head_kv > 0 && n_head % n_head_kv == 0;
}

const ref_op ref_op_attention = {
    .fn = attention,
    .size = size,
    .weight = ref_f32,
    .fits = fits,
};
