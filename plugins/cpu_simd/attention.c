/* attention.c -- ATTENTION over the paged cache.
 * A row's positions are scored in tiles of MNK_TILE with a running softmax; tiles add up to chunks
 * of CHUNK positions, and the chunks are merged in order. Both grids begin at position 0, so a
 * row's result depends neither on the other rows of the step nor on whether its chunks were
 * computed by one worker (many rows) or by several (few rows, long context). */
#include "nodes.h"
#include <math.h>

#define CHUNK 512
#define BLOCK_ROWS 32           /* query rows (row x head) that share a tile of K and V */
#define SPLIT_BYTES (16u << 20) /* for partial results of split rows */
#define SPLIT_ROWS 8

typedef struct {
    const mnc_call *c;
    const mnk_vector *v;
    const int32_t *pos;                                      /* [T] */
    int64_t t, h, hkv, g, dk, dv, window, block, max_chunks; /* block: rows per task */
    bool bidirectional;
    float scale;
    float cap;
    /* worker's scratch: [block*g, dk], tiles, [block*g, MNK_TILE], states [block*g, dv + 2] */
    float *q;
    float *k;
    float *val;
    float *s;
    float *part;
    float *total;
} attn;

static int64_t per_task(int64_t g) {
    return g >= BLOCK_ROWS ? 1 : BLOCK_ROWS / g;
}
static uint64_t up64(uint64_t n) {
    return (n + 63) / 64 * 64;
}
static uint64_t chunks_of(int64_t positions) {
    return (uint64_t)(positions + CHUNK - 1) / CHUNK;
}
static int64_t split_rows(uint64_t row_bytes) {
    uint64_t n = SPLIT_BYTES / row_bytes;
    return n > SPLIT_ROWS ? SPLIT_ROWS : (int64_t)n;
}

static uint64_t lay_out(attn *a, uint8_t *base) { /* base NULL: the size only */
    uint64_t n = (uint64_t)(a->block * a->g);
    uint64_t at = 0;
    const uint64_t need[6] = {
        n * (uint64_t)a->dk, (MNK_TILE + 8) * (uint64_t)a->dk, (MNK_TILE + 8) * (uint64_t)a->dv,
        n * MNK_TILE,        n * (uint64_t)(a->dv + 2),        n * (uint64_t)(a->dv + 2)};
    float **const to[6] = {&a->q, &a->k, &a->val, &a->s, &a->part, &a->total};
    for (int i = 0; i < 6; i++) {
        if (base)
            *to[i] = (float *)(void *)(base + at);
        at += up64(need[i] * sizeof(float));
    }
    return at;
}

/* State of a query row: m, l, acc[dv]. */
static void reset(float *st, int64_t dv) {
    st[0] = -INFINITY;
    memset(st + 1, 0, (size_t)(dv + 1) * sizeof(float));
}
/* What a state with maximum m counts for under the common maximum; NaN and +inf give NaN. */
static float share_of(const attn *a, float m, float top) {
    return m == -INFINITY ? 0 : a->v->exp1(m - top);
}
/* A part whose logits are all -inf counts 0 times, but is added: a NaN among its values stays. */
static void merge(const attn *a, float *into, const float *part) {
    float m = into[0] > part[0] ? into[0] : part[0];
    float x = share_of(a, into[0], m);
    float y = share_of(a, part[0], m);
    a->v->scale(into + 2, a->dv, x);
    a->v->add_scaled(into + 2, part + 2, a->dv, y);
    into[0] = m;
    into[1] = into[1] * x + part[1] * y;
}
static void finish(const attn *a, float *st, int64_t head, float *y) {
    const mnc_weight *sinks =
        MN_ATTENTION_SINKS < a->c->node->n_in ? a->c->in[MN_ATTENTION_SINKS].weight : NULL;
    if (sinks) {
        float sink = mnk_load1(sinks->data, MN_F32, head);
        float m = st[0] > sink ? st[0] : sink;
        float x = a->v->exp1(st[0] - m);
        a->v->scale(st + 2, a->dv, x);
        st[1] = st[1] * x + a->v->exp1(sink - m);
    }
    memcpy(y, st + 2, (size_t)a->dv * sizeof(float));
    a->v->scale(y, a->dv, 1.0f / st[1]);
}

/* n cached elements to f32. */
static void load_cached(const attn *a, uint32_t dtype, const uint8_t *from, int64_t n, float *to) {
    if (dtype == MN_F16)
        a->v->unpack_f16(from, n, to);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

/* Positions [lo, hi) of one tile, head h: K and V to f32 at their place in the tile. */
static void load_tile(const attn *a, int32_t slot, int64_t h, int64_t t0, int64_t lo, int64_t hi) {
    const mnc_kv *kv = &a->c->kv;
    const int64_t pt = kv->geo.page_tokens;
    const int64_t ks_size = mnp_kv_size(kv->geo.k_dtype);
    const int64_t vs_size = mnp_kv_size(kv->geo.v_dtype);
    for (int64_t p = lo; p < hi;) {
        int64_t off = p % pt;
        int64_t n = pt - off < hi - p ? pt - off : hi - p;
        int32_t page = kv->pages[slot * kv->max_pages + p / pt];
        float *k = a->k + (p - t0) * a->dk;
        float *v = a->val + (p - t0) * a->dv;
        if (page < 0) { /* not a page: the host broke the contract; no wild read */
            memset(k, 0, (size_t)(n * a->dk) * sizeof(float));
            memset(v, 0, (size_t)(n * a->dv) * sizeof(float));
        } else {
            const uint8_t *ks = mnc_kv_k(kv, page) + (h * pt + off) * a->dk * ks_size;
            const uint8_t *vs = mnc_kv_v(kv, page) + (h * pt + off) * a->dv * vs_size;
            load_cached(a, kv->geo.k_dtype, ks, n * a->dk, k);
            load_cached(a, kv->geo.v_dtype, vs, n * a->dv, v);
        }
        p += n;
    }
}

static int64_t first_of(const attn *a, int64_t pos) {
    return a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
}

/* Past the last position that row r sees: its own, or of BIDIRECTIONAL the last of its sequence. */
static int64_t end_of(const attn *a, int64_t r) {
    if (!a->bidirectional)
        return a->pos[r] + 1;
    const int32_t *slot = a->c->in[MN_ATTENTION_ROW_SLOT].ptr;
    int64_t last = r;
    while (last + 1 < a->t && slot[last + 1] == slot[r] && a->pos[last + 1] >= 0)
        last++;
    const int64_t end = a->pos[last] + 1;
    if (a->window > 0 && a->pos[r] + a->window < end)
        return a->pos[r] + a->window;
    return end;
}

/* One tile for rows [r0, r0 + nr) and kv head h, into a->part. */
static void tile(const attn *a, int32_t slot, int64_t h, int64_t r0, int64_t nr, int64_t t0,
                 int64_t lo, int64_t hi) {
    int64_t dv = a->dv;
    int64_t b0 = lo - t0;
    load_tile(a, slot, h, t0, lo, hi);
    a->v->scores(a->q, nr * a->g, a->k + b0 * a->dk, hi - lo, a->dk, a->s + b0, MNK_TILE);
    for (int64_t r = 0; r < nr; r++) {
        int64_t pos = a->pos[r0 + r];
        int64_t x = first_of(a, pos) - t0;
        int64_t y = end_of(a, r0 + r) - t0;
        x = x < b0 ? b0 : x;
        y = y > hi - t0 ? hi - t0 : y;
        if (pos < 0 || x >= y)
            continue;
        for (int64_t g = 0; g < a->g; g++) {
            float *s = a->s + (r * a->g + g) * MNK_TILE;
            float *st = a->part + (r * a->g + g) * (dv + 2);
            float sum;
            float m = a->v->softmax(s, x, y, a->scale, a->cap, st[0], &sum);
            float by = share_of(a, st[0], m);
            a->v->scale(st + 2, dv, by);
            st[0] = m;
            st[1] = st[1] * by + sum;
        }
        a->v->weigh(a->s + r * a->g * MNK_TILE, MNK_TILE, a->g, a->val, x, y, dv,
                    a->part + r * a->g * (dv + 2) + 2, dv + 2);
    }
}

/* One chunk of the rows' positions [lo, hi) into a->part. */
static void chunk(const attn *a, int32_t slot, int64_t h, int64_t r0, int64_t nr, int64_t ci,
                  int64_t lo, int64_t hi) {
    int64_t end = (ci + 1) * CHUNK < hi ? (ci + 1) * CHUNK : hi;
    for (int64_t i = 0; i < nr * a->g; i++)
        reset(a->part + i * (a->dv + 2), a->dv);
    for (int64_t t0 = ci * CHUNK; t0 < end; t0 += MNK_TILE) {
        int64_t x = t0 < lo ? lo : t0;
        int64_t y = t0 + MNK_TILE < end ? t0 + MNK_TILE : end;
        if (x < y)
            tile(a, slot, h, r0, nr, t0, x, y);
    }
}

/* Range of positions that rows see; false = none of them has an effect. */
static bool range(const attn *a, int64_t r0, int64_t nr, int64_t *lo, int64_t *hi) {
    *lo = INT64_MAX;
    *hi = 0;
    for (int64_t r = r0; r < r0 + nr; r++) {
        int64_t pos = a->pos[r];
        if (pos < 0 || pos >= a->c->kv.max_pages * a->c->kv.geo.page_tokens)
            continue;
        if (first_of(a, pos) < *lo)
            *lo = first_of(a, pos);
        if (end_of(a, r) > *hi)
            *hi = end_of(a, r);
    }
    return *lo < *hi;
}
static void load_q(const attn *a, int64_t r0, int64_t nr, int64_t h) {
    for (int64_t r = 0; r < nr; r++)
        memcpy(a->q + r * a->g * a->dk,
               (const float *)a->c->in[MN_ATTENTION_Q].ptr + ((r0 + r) * a->h + h * a->g) * a->dk,
               (size_t)(a->g * a->dk) * sizeof(float));
}
static float *out_of(const attn *a, int64_t r, int64_t head) {
    return (float *)a->c->out[0].ptr + (r * a->h + head) * a->dv;
}

/* All chunks of a block of rows. */
static void whole(const attn *a, int32_t slot, int64_t h, int64_t r0, int64_t nr) {
    int64_t lo;
    int64_t hi;
    int64_t st = a->dv + 2;
    if (!range(a, r0, nr, &lo, &hi))
        return;
    load_q(a, r0, nr, h);
    for (int64_t i = 0; i < nr * a->g; i++)
        reset(a->total + i * st, a->dv);
    for (int64_t ci = lo / CHUNK; ci * CHUNK < hi; ci++) {
        chunk(a, slot, h, r0, nr, ci, lo, hi);
        for (int64_t i = 0; i < nr * a->g; i++)
            merge(a, a->total + i * st, a->part + i * st);
    }
    for (int64_t i = 0; i < nr * a->g; i++)
        if (a->pos[r0 + i / a->g] >= 0)
            finish(a, a->total + i * st, h * a->g + i % a->g,
                   out_of(a, r0 + i / a->g, h * a->g + i % a->g));
}

/* Calls whole for every (block of rows, kv head) of this worker, or only counts them. */
static int64_t blocks(const attn *a, const mnc_worker *w) {
    const int32_t *seq = a->c->in[MN_ATTENTION_SEQS].ptr;
    int64_t task = 0;
    for (int64_t i = 0; i < a->c->in[MN_ATTENTION_SEQS].rows; i++, seq += 4)
        for (int64_t r = 0; r < seq[1]; r += a->block)
            for (int64_t h = 0; h < a->hkv; h++, task++)
                if (w && task % w->n == w->i)
                    whole(a, seq[2], h, seq[0] + r, seq[1] - r < a->block ? seq[1] - r : a->block);
    return task;
}

/* Few rows: (row, kv head, chunk) are shared out; after a barrier (row, head) are. */
static void split(const attn *a, mnc_worker *w) {
    const int32_t *slot = a->c->in[MN_ATTENTION_ROW_SLOT].ptr;
    int64_t st = a->dv + 2;
    int64_t lo;
    int64_t hi;
    int64_t task = 0;
    float *shared = a->c->shared;
    for (int64_t r = 0; r < a->t; r++) {
        if (slot[r] < 0 || !range(a, r, 1, &lo, &hi))
            continue;
        for (int64_t h = 0; h < a->hkv; h++)
            for (int64_t ci = lo / CHUNK; ci * CHUNK < hi; ci++, task++) {
                if (task % w->n != w->i)
                    continue;
                load_q(a, r, 1, h);
                chunk(a, slot[r], h, r, 1, ci, lo, hi);
                for (int64_t g = 0; g < a->g; g++)
                    memcpy(shared + ((r * a->h + h * a->g + g) * a->max_chunks + ci) * st,
                           a->part + g * st, (size_t)st * sizeof(float));
            }
    }
    mnc_barrier(w);
    for (int64_t i = w->i; i < a->t * a->h; i += w->n) {
        int64_t r = i / a->h;
        int64_t head = i % a->h;
        if (slot[r] < 0 || !range(a, r, 1, &lo, &hi))
            continue;
        reset(a->total, a->dv);
        for (int64_t ci = lo / CHUNK; ci * CHUNK < hi; ci++)
            merge(a, a->total, shared + (i * a->max_chunks + ci) * st);
        finish(a, a->total, head, out_of(a, r, head));
    }
}

void mnk_attention_node(const mnc_call *c, mnc_worker *w) {
    const mnk_use *use = c->user;
    const mnc_operand *q = &c->in[MN_ATTENTION_Q];
    attn a = {.c = c,
              .v = mnk_find_vector(use->level),
              .pos = c->in[MN_ATTENTION_ROW_POS].ptr,
              .t = q->dim[0],
              .h = q->dim[1],
              .dk = q->dim[2],
              .hkv = mnc_attr_int(c, MN_ATTENTION_ATTR_N_HEAD_KV),
              .dv = mnc_attr_int(c, MN_ATTENTION_ATTR_DIM_V),
              .window = mnc_attr_int(c, MN_ATTENTION_ATTR_WINDOW),
              .bidirectional = mnc_attr_int(c, MN_ATTENTION_ATTR_BIDIRECTIONAL) != 0,
              .scale = (float)mnc_attr_f64(c, MN_ATTENTION_ATTR_SCALE),
              .cap = (float)mnc_attr_f64(c, MN_ATTENTION_ATTR_SOFTCAP)};
    if (!a.dv)
        a.dv = a.dk;
    a.g = a.h / a.hkv;
    a.block = per_task(a.g);
    a.max_chunks = (int64_t)chunks_of(c->kv.max_pages * 64);
    lay_out(&a, w->scratch);
    int64_t tasks = blocks(&a, NULL);
    bool uneven = tasks < w->n || (tasks < 4 * (int64_t)w->n && tasks % w->n);
    bool fits = c->kv.geo.page_tokens <= 64; /* what mnk_attention_scratch counted with */
    if (uneven && fits &&
        a.t <= split_rows((uint64_t)a.h * (uint64_t)a.max_chunks * (uint64_t)(a.dv + 2) *
                          sizeof(float)))
        split(&a, w);
    else
        blocks(&a, w);
}

void mnk_attention_scratch(const mnc_query *q, mnc_op *op) {
    const mn_tensor *qt = mnc_query_in(q, MN_ATTENTION_Q);
    const mn_tensor *pages = mnc_query_in(q, MN_ATTENTION_PAGES);
    const uint64_t *at = q->graph->attrs + q->node->attr_off;
    attn a = {.h = mnc_query_dim(q, qt, 1), .dk = mnc_query_dim(q, qt, 2)};
    a.hkv = MN_ATTENTION_ATTR_N_HEAD_KV < q->node->n_attr ? (int64_t)at[MN_ATTENTION_ATTR_N_HEAD_KV]
                                                          : 0;
    a.dv = MN_ATTENTION_ATTR_DIM_V < q->node->n_attr ? (int64_t)at[MN_ATTENTION_ATTR_DIM_V] : 0;
    if (!a.dv)
        a.dv = a.dk;
    a.g = a.hkv > 0 ? a.h / a.hkv : 1;
    a.block = per_task(a.g);
    op->worker_bytes = lay_out(&a, NULL);
    /* the page size is not known here: 64 tokens is cpu_host's; with larger pages rows are not
     * split */
    uint64_t row = (uint64_t)a.h * chunks_of(mnc_query_dim(q, pages, 1) * 64) *
                   (uint64_t)(a.dv + 2) * sizeof(float);
    int64_t rows = row ? split_rows(row) : 0;
    int64_t t = mnc_query_dim(q, qt, 0);
    op->shared_bytes = (uint64_t)(rows < t ? rows : t) * row;
}
