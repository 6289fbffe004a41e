/* misc.c -- the nodes that move rows about: EMBED, LOOKUP, ROPE, KV_STORE, GATHER_ROWS; and how
 * many parts the nodes have that compute little per element. */
#include "nodes.h"
#include "dtype.h"
#include <math.h>

/* ROWS [N, D]; NULL: the node lacks it. */
static const mnc_operand *given_rows(const mnc_call *c) {
    if (MN_EMBED_ROWS < c->node->n_in && c->in[MN_EMBED_ROWS].ptr)
        return &c->in[MN_EMBED_ROWS];
    return NULL;
}

/* Row t's id, or -2 - n of row n of ROWS, and its position at *pos; both -1 if it is no row. Its
 * slot goes forward. */
static int32_t resolve_row(const mnc_call *c, int64_t t, int32_t *pos) {
    const int32_t *all_src = c->in[MN_EMBED_SRC].ptr;
    const int32_t *all_pos = c->in[MN_EMBED_POS].ptr;
    const int32_t *row_slot = c->in[MN_EMBED_ROW_SLOT].ptr;
    const int32_t src = all_src[t];
    const int32_t given_pos = all_pos[t];
    const int32_t s = row_slot[t];
    int32_t *history = c->in[MN_EMBED_HISTORY].ptr; /* [n_slots, n_ctx] */
    const int64_t n_slots = c->in[MN_EMBED_HISTORY].rows;
    const int64_t n_ctx = c->in[MN_EMBED_HISTORY].cols;
    const int64_t n_vocab = c->in[MN_EMBED_WEIGHT].weight->rows;
    *pos = -1;
    if (s < 0 || s >= n_slots)
        return -1;
    mn_slot *slot = mnc_row_of(&c->in[MN_EMBED_SLOTS], s);
    const mnc_operand *given = given_rows(c);
    const bool is_given = given && src < -n_slots;
    if (src < 0 && !is_given && slot->done)
        return -1;
    int32_t p = given_pos;
    if (given_pos < 0)
        p = slot->pos;
    if (p < 0 || p >= n_ctx)
        return -1;
    int32_t id = src;
    if (src < 0)
        id = slot->last_id;
    if (is_given || id < 0 || id >= n_vocab)
        id = 0;
    *pos = p;
    history[s * n_ctx + p] = id;
    slot->pos = p + 1;
    if (!is_given)
        return id;
    const int64_t row = -n_slots - 1 - src;
    if (row < given->rows)
        return (int32_t)(-2 - row);
    return -2;
}

static void add_row(const mnc_weight *w, int64_t row, float *x) {
    const uint8_t *p = mnc_row(w, row);
    const uint32_t dtype = w->dtype.id;
    for (int64_t i = 0; i < w->cols; i++)
        x[i] += mnk_load1(p, dtype, i);
}

/* One part resolves ids and advances the slots, in row order; then all look up. */
void mnk_embed_resolve(const mnc_call *c, mnc_worker *w) {
    int32_t *ids = c->shared;
    int32_t *row_pos = c->out[MN_EMBED_OUT_ROW_POS].ptr;
    (void)w;
    for (int64_t t = 0; t < c->in[MN_EMBED_SRC].rows; t++)
        ids[t] = resolve_row(c, t, &row_pos[t]);
}

mnc_work mnk_embed_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const int64_t n_rows = c->in[MN_EMBED_SRC].rows;
    (void)n_threads;
    if (stage == MNC_FIRST)
        return (mnc_work){n_rows, 1};
    const int64_t of_row = c->in[MN_EMBED_WEIGHT].weight->cols;
    return (mnc_work){n_rows * of_row, n_rows};
}

/* x: [D], the row of the table. */
static void embed_id(const mnc_weight *table, const mnk_linear *k, int32_t id, float *panel,
                     float *x) {
    const int64_t d = table->cols;
    for (int64_t k0 = 0; k0 < d; k0 += MNK_KC) {
        int64_t n = MNK_KC;
        if (d - k0 < MNK_KC)
            n = d - k0;
        k->unpack(table, id, 1, k0, n, panel);
        memcpy(x + k0, panel, (size_t)n * sizeof(float));
    }
}

void mnk_embed_node(const mnc_call *c, mnc_worker *w) {
    const mnk_use *use = c->user;
    const mnc_weight *wt = c->in[MN_EMBED_WEIGHT].weight;
    const uint32_t dtype = wt->dtype.id;
    const mnk_linear *k = mnk_find_linear(dtype, MN_PRECISION_EXACT, use->level, 1, 0);
    const mnk_vector *v = mnk_find_vector(use->level);
    const int32_t *ids = c->shared;
    const int64_t n_rows = c->in[MN_EMBED_SRC].rows;
    const int64_t d = wt->cols;
    const float by = (float)mnc_attr_f64(c, MN_EMBED_ATTR_SCALE);
    const mnc_weight *positions = c->in[MN_EMBED_POS_WEIGHT].weight;
    const int32_t *row_pos = c->out[MN_EMBED_OUT_ROW_POS].ptr;
    int64_t lo;
    int64_t hi;
    mnc_range(w, n_rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        float *x = (float *)c->out[MN_EMBED_OUT_X].ptr + t * d;
        if (ids[t] == -1) {
            memset(x, 0, (size_t)d * sizeof *x);
            continue;
        }
        if (ids[t] < 0)
            memcpy(x, (const float *)given_rows(c)->ptr + (-2 - ids[t]) * d, (size_t)d * sizeof *x);
        else
            embed_id(wt, k, ids[t], w->scratch, x);
        if (ids[t] >= 0 && by != 0 && by != 1)
            v->scale(x, d, by);
        if (positions) {
            const int64_t last = positions->rows - 1;
            int64_t row = last;
            if (row_pos[t] < last)
                row = row_pos[t];
            add_row(positions, row, x);
        }
    }
}

/* The id at a row's position; 0 where the table has no such row, -1: no row of the step. */
static int64_t id_at(const mnc_call *c, int64_t t) {
    const mnc_operand *history = &c->in[MN_LOOKUP_HISTORY];
    const int32_t *row_pos = c->in[MN_LOOKUP_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_LOOKUP_ROW_SLOT].ptr;
    const int32_t *ids = history->ptr;
    const int64_t n_vocab = c->in[MN_LOOKUP_WEIGHT].weight->rows;
    const int32_t pos = row_pos[t];
    const int32_t slot = row_slot[t];
    if (pos < 0 || pos >= history->cols)
        return -1;
    if (slot < 0 || slot >= history->rows)
        return -1;
    ids += slot * history->cols;
    if (ids[pos] < 0 || ids[pos] >= n_vocab)
        return 0;
    return ids[pos];
}

/* What a LOOKUP reads of a row. */
typedef struct {
    const mnk_linear *kernel;
    const mnc_weight *table;
    int64_t first;
    int64_t end; /* behind the last column */
    float *panel;
} lookup_columns;

/* By whole panels: kernels unpack no other parts of a row. y: column l->first. */
static void copy_columns(const lookup_columns *l, int64_t row, float *y) {
    int64_t at = l->first / MNK_KC * MNK_KC;
    int64_t from = l->first;
    while (from < l->end) {
        int64_t n = l->table->cols - at;
        if (n > MNK_KC)
            n = MNK_KC;
        int64_t to = at + n;
        if (to > l->end)
            to = l->end;
        l->kernel->unpack(l->table, row, 1, at, n, l->panel);
        memcpy(y, l->panel + (from - at), (size_t)(to - from) * sizeof *y);
        y += to - from;
        from = to;
        at += n;
    }
}

void mnk_lookup_node(const mnc_call *c, mnc_worker *w) {
    const mnk_use *use = c->user;
    const mnc_operand *out = &c->out[MN_LOOKUP_OUT_Y];
    const mnk_vector *v = mnk_find_vector(use->level);
    const float by = (float)mnc_attr_f64(c, MN_LOOKUP_ATTR_SCALE);
    const int64_t d = out->cols;
    lookup_columns l = {
        .table = c->in[MN_LOOKUP_WEIGHT].weight,
        .first = mnc_attr_int(c, MN_LOOKUP_ATTR_FIRST),
        .panel = w->scratch,
    };
    const uint32_t dtype = l.table->dtype.id;
    l.kernel = mnk_find_linear(dtype, MN_PRECISION_EXACT, use->level, 1, 0);
    l.end = l.first + d;
    int64_t lo;
    int64_t hi;
    mnc_range(w, c->in[MN_LOOKUP_ROW_POS].rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        float *y = (float *)out->ptr + t * d;
        const int64_t id = id_at(c, t);
        if (id < 0)
            memset(y, 0, (size_t)d * sizeof *y);
        else
            copy_columns(&l, id, y);
        if (by != 0 && by != 1)
            v->scale(y, d, by);
    }
}

/* One head, [d], whose first 2 half elements are rotated; cs: cosines, then sines, [2, half]. x may
 * be y. */
static void rotate(const mnc_call *c, const float *x, float *y, int64_t d, int64_t half,
                   const float *cs) {
    const bool halves = mnc_attr_int(c, MN_ROPE_ATTR_PAIRING) == MN_ROPE_HALVES;
    int64_t step = 2;
    if (halves)
        step = 1;
    int64_t other = 1;
    if (halves)
        other = half;
    for (int64_t i = 0; i < half; i++) {
        const int64_t at = i * step;
        const float a = x[at];
        const float b = x[at + other];
        const float co = cs[i];
        const float si = cs[half + i];
        y[at] = a * co - b * si;
        y[at + other] = a * si + b * co;
    }
    const int64_t n_rot = 2 * half;
    if (y != x)
        memcpy(y + n_rot, x + n_rot, (size_t)(d - n_rot) * sizeof *y);
}

/* The position by which pair i of row t turns: an axis of POS [A, T], where the node has it. */
static int32_t turned_by(const mnc_call *c, int64_t t, int64_t i) {
    const mnc_operand *pos = &c->in[MN_ROPE_POS];
    const mnc_weight *axes = mnc_optional(c, MN_ROPE_AXES);
    const int32_t *row_pos = c->in[MN_ROPE_ROW_POS].ptr;
    const bool has_pos = MN_ROPE_POS < c->node->n_in && pos->ptr;
    int32_t axis = 0;
    if (!has_pos || row_pos[t] < 0)
        return row_pos[t];
    if (axes)
        axis = ((const int32_t *)axes->data)[i];
    if (axis < 0 || axis >= pos->rows)
        axis = 0;
    const int32_t *of_axis = (const int32_t *)pos->ptr + axis * pos->cols;
    return of_axis[t];
}

void mnk_rope_node(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *q = &c->in[MN_ROPE_X];
    const mnc_weight *freqs = c->in[MN_ROPE_FREQS].weight;
    const float *x = q->ptr;  /* [T, H, D] */
    float *y = c->out[0].ptr; /* [T, H, D] */
    const int64_t h = q->dim[1];
    const int64_t d = q->dim[2];
    const int64_t rot = mnc_attr_int(c, MN_ROPE_ATTR_N_ROT);
    const int64_t half = (rot ? rot : d) / 2;
    const double mscale = mnc_attr_f64(c, MN_ROPE_ATTR_MSCALE);
    double m = 1;
    if (mscale != 0)
        m = mscale;
    float *cs = w->scratch;
    int64_t lo;
    int64_t hi;
    int64_t head_lo;
    int64_t head_hi;
    mnc_range_rows(w, q->dim[0], &lo, &hi);
    mnc_range_units(w, h, &head_lo, &head_hi);
    for (int64_t t = lo; t < hi; t++) {
        for (int64_t i = 0; i < half; i++) {
            const double freq = mnk_load1(freqs->data, MN_F32, i);
            const double angle = turned_by(c, t, i) * freq;
            cs[i] = (float)(cos(angle) * m);
            cs[half + i] = (float)(sin(angle) * m);
        }
        for (int64_t j = t * h + head_lo; j < t * h + head_hi; j++)
            rotate(c, x + j * d, y + j * d, d, half, cs);
    }
}

/* Heads [lo, hi) of one row, x: [Hkv, d], at place `off` of a page; bytes: of a head there. */
static void store(const mnk_vector *v, const mnc_kv *kv, uint32_t dtype, const float *x, int64_t d,
                  int64_t lo, int64_t hi, int64_t off, int64_t bytes, uint8_t *heads) {
    const int64_t page_tokens = kv->geo.page_tokens;
    for (int64_t h = lo; h < hi; h++) {
        uint8_t *to = heads + (h * page_tokens + off) * bytes;
        if (dtype == MN_F16)
            v->pack_f16(x + h * d, d, to);
        else
            mn_cached_put(dtype, x + h * d, d, to);
    }
}

void mnk_kv_store_node(const mnc_call *c, mnc_worker *w) {
    const mnk_use *use = c->user;
    const mnk_vector *v = mnk_find_vector(use->level);
    const mnc_kv *kv = &c->kv;
    const mnp_kv *geo = &kv->geo;
    const int32_t page_tokens = (int32_t)geo->page_tokens;
    const int64_t k_row = geo->n_head_kv * geo->dim_k;
    const int64_t v_row = geo->n_head_kv * geo->dim_v;
    const int32_t *pos = c->in[MN_KV_STORE_ROW_POS].ptr;
    const int32_t *slot = c->in[MN_KV_STORE_ROW_SLOT].ptr;
    const float *keys = c->in[MN_KV_STORE_K].ptr;   /* [T, Hkv, Dk] */
    const float *values = c->in[MN_KV_STORE_V].ptr; /* [T, Hkv, Dv] */
    int64_t lo;
    int64_t hi;
    int64_t head_lo;
    int64_t head_hi;
    mnc_range_rows(w, c->in[MN_KV_STORE_ROW_POS].rows, &lo, &hi);
    mnc_range_units(w, geo->n_head_kv, &head_lo, &head_hi);
    for (int64_t t = lo; t < hi; t++) {
        const int32_t index = pos[t] / page_tokens;
        const int32_t off = pos[t] % page_tokens;
        const int64_t first = slot[t] * kv->max_pages;
        if (pos[t] < 0)
            continue;
        if (slot[t] < 0)
            continue;
        if (index >= kv->max_pages)
            continue;
        const int32_t page = kv->pages[first + index];
        if (page < 0)
            continue;
        uint8_t *k_heads = mnc_kv_k(kv, page);
        uint8_t *v_heads = mnc_kv_v(kv, page);
        const float *k = keys + t * k_row;
        store(v, kv, geo->k_dtype, k, geo->dim_k, head_lo, head_hi, off, geo->k_row, k_heads);
        if (!geo->dim_v) /* values are keys */
            continue;
        const float *val = values + t * v_row;
        store(v, kv, geo->v_dtype, val, geo->dim_v, head_lo, head_hi, off, geo->v_row, v_heads);
    }
}

void mnk_gather_node(const mnc_call *c, mnc_worker *w) {
    const int32_t *rows = c->in[MN_GATHER_ROWS_ROWS].ptr;
    const mnc_operand *x = &c->in[0];
    const int64_t d = x->cols;
    const size_t bytes = (size_t)d * sizeof(float);
    int64_t lo;
    int64_t hi;
    mnc_range(w, c->in[MN_GATHER_ROWS_ROWS].rows, 1, &lo, &hi);
    for (int64_t o = lo; o < hi; o++) {
        float *y = (float *)c->out[0].ptr + o * d;
        if (rows[o] >= 0 && rows[o] < x->rows)
            memcpy(y, (const float *)x->ptr + rows[o] * d, bytes);
        else
            memset(y, 0, bytes);
    }
}

/* ---- work ------------------------------------------------------------------------------------ */

/* A cosine and a sine in double for each pair of a row, then its heads. */
mnc_work mnk_rope_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const mnc_operand *x = &c->in[MN_ROPE_X];
    const int64_t angles = x->dim[2] / 2 * 40;
    (void)stage;
    (void)n_threads;
    const int64_t of_row = angles + x->dim[1] * x->dim[2];
    return (mnc_work){x->dim[0] * of_row, x->dim[0]};
}

mnc_work mnk_kv_store_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const mnp_kv *geo = &c->kv.geo;
    const int64_t rows = c->in[MN_KV_STORE_ROW_POS].rows;
    (void)stage;
    (void)n_threads;
    const int64_t of_row = geo->n_head_kv * (geo->dim_k + geo->dim_v);
    return (mnc_work){rows * of_row, rows};
}

/* A row is drawn by one part; each looks at all candidates. */
mnc_work mnk_sample_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const mnc_operand *logits = &c->in[MN_SAMPLE_LOGITS];
    (void)stage;
    (void)n_threads;
    const int64_t n = logits->rows * logits->cols;
    return (mnc_work){n, logits->rows};
}

/* Nodes whose parts are ranges of their first output, about 4 elements in a nanosecond. */
mnc_work mnk_output_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const mnc_operand *y = &c->out[0];
    const int64_t n = y->rows * y->cols;
    (void)stage;
    (void)n_threads;
    return (mnc_work){n / 4, (n + 511) / 512};
}

/* ---- cells ----------------------------------------------------------------------------------- */
int64_t mnk_vector_cells(const mnc_call *c, uint32_t stage) {
    const mnc_operand *x = &c->in[0];
    const int64_t d = x->dim[x->n_dim - 1];
    (void)stage;
    if (!d)
        return 0;
    return x->cols / d;
}

int64_t mnk_head_cells(const mnc_call *c, uint32_t stage) {
    (void)stage;
    return c->in[0].dim[1];
}

/* By lines of the cache. */
int64_t mnk_element_cells(const mnc_call *c, uint32_t stage) {
    const int64_t n = c->in[0].cols;
    (void)stage;
    if (n % 16)
        return 1;
    return n / 16;
}
