/* op_attention.c -- ATTENTION over the paged cache, one row and head at a time: all logits first,
 * then the softmax, then the sum, in double. */
#include "attend_verdict.h"
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
    double sink;
    bool has_sink;
    float *row;  /* a stored key or value as f32: scratch, [longer of Dk and Dv] */
    int64_t pos; /* of the row */
    int64_t head;
    const mnc_weight *biases; /* [B, H], by distance; NULL: none */
    int64_t max_distance;
    bool both_ways;
    const mnc_weight *rel_k, *rel_q; /* [B, n_head, Dk], by place of the distance; NULL: none */
    int64_t n_head;
    /* which rows of its sequence in this step, from position `past` on, a row sees: bits, [n_bits];
     * NULL: all of [first, last] */
    const int32_t *ancestors;
    int64_t past;
    int64_t n_bits;
} view;

/* The bucket of a distance m >= 0 among n. */
static int64_t bucket_among(int64_t m, int64_t n, int64_t max_distance) {
    const int64_t exact = n / 2;
    if (m < exact)
        return m;
    const double from = (double)exact;
    const double share = log((double)m / from) / log((double)max_distance / from);
    const int64_t bucket = exact + (int64_t)floor(share * (double)(n - exact));
    return bucket < n - 1 ? bucket : n - 1;
}

/* The bucket of the key at p for the row's query; later keys have a half of their own where both
 * directions are seen. */
static int64_t bucket_of(const view *a, int64_t p) {
    int64_t n = a->biases->rows;
    int64_t from = 0;
    int64_t m = a->pos - p;
    if (a->both_ways)
        n /= 2;
    if (a->both_ways && m < 0) {
        from = n;
        m = -m;
    }
    if (m < 0)
        m = 0;
    return from + bucket_among(m, n, a->max_distance);
}

/* The bias of the key at p for the row's query. */
static double distance_bias(const view *a, int64_t p) {
    const mnc_weight *w = a->biases;
    const uint8_t *row = mnc_row(w, bucket_of(a, p));
    if (w->dtype.id == MN_F32)
        return ((const float *)(const void *)row)[a->head];
    const uint16_t half = ((const uint16_t *)(const void *)row)[a->head];
    return w->dtype.id == MN_F16 ? mn_f16_to_f32(half) : mn_bf16_to_f32(half);
}

/* Which of n rows is the distance d's, of a query behind its key; far 0: each has its own. */
static int64_t relative_place(int64_t d, int64_t n, int64_t far) {
    const int64_t mid = n / 4;
    const int64_t m = d < 0 ? -d : d;
    int64_t l = m;
    if (far && m > mid) {
        const double from = (double)mid;
        const double share = log((double)m / from) / log((double)(far - 1) / from);
        l = mid + (int64_t)ceil(share * (from - 1));
    }
    const int64_t at = n / 2 + (d < 0 ? -l : l);
    if (at < 0)
        return 0;
    return at < n ? at : n - 1;
}

/* The row's head of the table by the distance to p, times x [Dk]; 0 where there is no table. */
static double relative(const view *a, const mnc_weight *w, int64_t p, const float *x) {
    double sum = 0;
    if (!w)
        return 0;
    const int64_t place = relative_place(a->pos - p, w->rows / a->n_head, a->max_distance);
    const float *row = (const float *)(const void *)mnc_row(w, place * a->n_head + a->head);
    for (int64_t i = 0; i < a->kv->geo.dim_k; i++)
        sum += (double)row[i] * x[i];
    return sum;
}

static bool attention_sees(const view *a, int64_t p) {
    const int64_t j = p - a->past;
    if (!a->ancestors || j < 0)
        return true;
    return j < a->n_bits && (uint32_t)a->ancestors[j / 32] >> j % 32 & 1;
}

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

/* The scaled and capped product of the query with the key of one position and what joins it by the
 * distance, its bias, and the slope times how far behind the row it is; -inf where no page is. */
static double logit(const view *a, int64_t pos) {
    const uint8_t *k = attention_at(a, pos, false);
    double sum = 0;
    if (!k)
        return -INFINITY;
    const mnp_kv *geo = &a->kv->geo;
    mn_cached_get(geo->k_dtype, k, geo->dim_k, a->row);
    for (int64_t i = 0; i < geo->dim_k; i++)
        sum += (double)a->q[i] * a->row[i];
    sum += relative(a, a->rel_k, pos, a->q) + relative(a, a->rel_q, pos, a->row);
    sum *= a->scale;
    if (a->cap != 0)
        sum = a->cap * tanh(sum / a->cap);
    if (a->biases)
        sum += distance_bias(a, pos);
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
        if (!attention_sees(a, i))
            continue;
        p[i] = logit(a, i);
        if (p[i] > max)
            max = p[i];
    }
    memset(acc, 0, (size_t)dim_v * sizeof *acc);
    if (a->has_sink)
        sum += exp(a->sink - max);
    for (int64_t i = a->first; i <= a->last; i++) {
        if (!attention_sees(a, i))
            continue;
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

/* The values of an optional I32 operand; NULL: the node lacks it. */
static const int32_t *attention_ints(const mnc_call *c, uint32_t in) {
    return in < c->node->n_in ? c->in[in].ptr : NULL;
}

/* The last position that row t sees: its own, or of BIDIRECTIONAL the last of its sequence; the
 * last one of another text. */
static int64_t attention_last_seen(const mnc_call *c, int64_t t) {
    const int32_t *row_pos = c->in[MN_ATTENTION_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_ATTENTION_ROW_SLOT].ptr;
    const int32_t *lengths = attention_ints(c, MN_ATTENTION_LENGTHS);
    const int64_t window = mnc_attr_int(c, MN_ATTENTION_ATTR_WINDOW);
    if (lengths)
        return lengths[row_slot[t]] - 1;
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

/* Which rows of its own sequence row t sees, and the last of these. */
static void take_ancestors(const mnc_call *c, int64_t t, view *a) {
    const int32_t *row_pos = c->in[MN_ATTENTION_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_ATTENTION_ROW_SLOT].ptr;
    const int32_t *all = attention_ints(c, MN_ATTENTION_ANCESTORS); /* [T, W] */
    if (!all)
        return;
    const int64_t n_words = c->in[MN_ATTENTION_ANCESTORS].cols;
    const int64_t n_rows = c->in[MN_ATTENTION_Q].rows;
    int64_t first = t;
    int64_t last = t;
    while (first > 0 && row_slot[first - 1] == row_slot[t] && row_pos[first - 1] >= 0)
        first--;
    while (last + 1 < n_rows && row_slot[last + 1] == row_slot[t] && row_pos[last + 1] >= 0)
        last++;
    a->ancestors = all + t * n_words;
    a->n_bits = 32 * n_words;
    a->past = row_pos[first];
    a->last = row_pos[last];
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
        .biases = mnc_optional(c, MN_ATTENTION_DISTANCE_BIAS),
        .max_distance = mnc_attr_int(c, MN_ATTENTION_ATTR_MAX_DISTANCE),
        .both_ways = mnc_attr_int(c, MN_ATTENTION_ATTR_BIDIRECTIONAL) != 0,
        .rel_k = mnc_optional(c, MN_ATTENTION_RELATIVE_K),
        .rel_q = mnc_optional(c, MN_ATTENTION_RELATIVE_Q),
        .n_head = n_head,
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
        a.head = h;
        a.last = attention_last_seen(c, t);
        take_ancestors(c, t, &a);
        if (a.last >= max_pos)
            a.last = max_pos - 1; /* the host broke the contract; no wild read */
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

/* SINKS is f32; the biases of distances may be narrower. */
static uint32_t attention_weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    return i == MN_ATTENTION_DISTANCE_BIAS ? ref_vector(t) : ref_f32(q, i, t);
}

static bool fits(const mnc_query *q) {
    const mn_node *n = q->node;
    const mn_tensor *x = mnc_query_in(q, MN_ATTENTION_Q);
    if (x->n_dim != 3 || !mnc_attention_fits(q))
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
    .weight = attention_weight,
    .fits = fits,
};
