/* misc.c -- the nodes that move rows about. */
#include "nodes.h"
#include <math.h>

/* Worker 0 resolves ids and advances the slots, in row order; then all look up. */
static void resolve(const mnc_call *c, int32_t *ids) {
    const int32_t *src = c->in[MN_EMBED_SRC].ptr;
    const int32_t *pos = c->in[MN_EMBED_POS].ptr;
    const int32_t *row_slot = c->in[MN_EMBED_ROW_SLOT].ptr;
    int32_t *history = c->in[MN_EMBED_HISTORY].ptr;
    int32_t *row_pos = c->out[MN_EMBED_OUT_ROW_POS].ptr;
    int64_t n_slots = c->in[MN_EMBED_HISTORY].rows;
    int64_t n_ctx = c->in[MN_EMBED_HISTORY].cols;
    int64_t vocab = c->in[MN_EMBED_WEIGHT].weight->rows;
    for (int64_t t = 0; t < c->in[MN_EMBED_SRC].rows; t++) {
        const int32_t s = row_slot[t];
        ids[t] = row_pos[t] = -1;
        if (s < 0 || s >= n_slots)
            continue;
        mn_slot *slot = mnc_row_of(&c->in[MN_EMBED_SLOTS], s);
        if (src[t] < 0 && slot->done)
            continue;
        const int32_t id = src[t] < 0 ? slot->last_id : src[t];
        const int32_t p = pos[t] < 0 ? slot->pos : pos[t];
        if (p < 0 || p >= n_ctx)
            continue;
        ids[t] = id < 0 || id >= vocab ? 0 : id;
        row_pos[t] = p;
        history[s * n_ctx + p] = ids[t];
        slot->pos = p + 1;
    }
}

static void add_row(const mnc_weight *w, int64_t row, float *x) {
    const uint8_t *p = mnc_row(w, row);
    for (int64_t i = 0; i < w->cols; i++)
        x[i] += mnk_load1(p, w->dtype.id, i);
}

void mnk_embed_node(const mnc_call *c, mnc_worker *w) {
    const mnk_use *use = c->user;
    const mnc_weight *wt = c->in[MN_EMBED_WEIGHT].weight;
    const mnk_linear *k = mnk_find_linear(wt->dtype.id, MN_PRECISION_EXACT, use->level, 1);
    const mnk_vector *v = mnk_find_vector(use->level);
    int32_t *ids = c->shared;
    int64_t lo;
    int64_t hi;
    int64_t d = wt->cols;
    float by = (float)mnc_attr_f64(c, MN_EMBED_ATTR_SCALE);
    const mnc_weight *positions = c->in[MN_EMBED_POS_WEIGHT].weight;
    const int32_t *row_pos = c->out[MN_EMBED_OUT_ROW_POS].ptr;
    if (w->i == 0)
        resolve(c, ids);
    mnc_barrier(w);
    mnc_range(w, c->in[MN_EMBED_SRC].rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        float *x = (float *)c->out[MN_EMBED_OUT_X].ptr + t * d;
        if (ids[t] < 0) {
            memset(x, 0, (size_t)d * sizeof *x);
            continue;
        }
        for (int64_t k0 = 0; k0 < d; k0 += MNK_KC) {
            int64_t n = d - k0 < MNK_KC ? d - k0 : MNK_KC;
            k->unpack(wt, ids[t], 1, k0, n, w->scratch);
            memcpy(x + k0, w->scratch, (size_t)n * sizeof(float));
        }
        if (by != 0 && by != 1)
            v->scale(x, d, by);
        if (positions)
            add_row(positions, row_pos[t] < positions->rows ? row_pos[t] : positions->rows - 1, x);
    }
}

static void turn(const mnc_call *c, const float *x, float *y, int64_t d, int64_t half,
                 const float *cs) {
    bool halves = mnc_attr_int(c, MN_ROPE_ATTR_PAIRING) == MN_ROPE_HALVES;
    int64_t step = halves ? 1 : 2;
    int64_t other = halves ? half : 1;
    for (int64_t i = 0; i < half; i++) {
        float a = x[i * step];
        float b = x[i * step + other];
        float co = cs[i];
        float si = cs[half + i];
        y[i * step] = a * co - b * si;
        y[i * step + other] = a * si + b * co;
    }
    if (y != x)
        memcpy(y + 2 * half, x + 2 * half, (size_t)(d - 2 * half) * sizeof(float));
}

void mnk_rope_node(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *q = &c->in[MN_ROPE_X];
    const mnc_weight *freqs = c->in[MN_ROPE_FREQS].weight;
    const int32_t *pos = c->in[MN_ROPE_ROW_POS].ptr;
    int64_t h = q->dim[1];
    int64_t d = q->dim[2];
    int64_t rot = mnc_attr_int(c, MN_ROPE_ATTR_N_ROT);
    int64_t half = (rot ? rot : d) / 2;
    int64_t lo;
    int64_t hi;
    double mscale = mnc_attr_f64(c, MN_ROPE_ATTR_MSCALE);
    float *cs = w->scratch;
    mnc_range(w, q->dim[0], 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)pos[t] * (double)mnk_load1(freqs->data, MN_F32, i);
            double m = mscale != 0 ? mscale : 1;
            cs[i] = (float)(cos(angle) * m);
            cs[half + i] = (float)(sin(angle) * m);
        }
        for (int64_t j = 0; j < h; j++)
            turn(c, (const float *)q->ptr + (t * h + j) * d,
                 (float *)c->out[0].ptr + (t * h + j) * d, d, half, cs);
    }
}

static void store(const mnk_vector *v, const mnc_kv *kv, uint32_t dtype, const float *x, int64_t d,
                  int64_t off, uint8_t *heads) {
    for (int64_t h = 0; h < kv->geo.n_head_kv; h++, x += d) {
        int64_t at = (h * (int64_t)kv->geo.page_tokens + off) * d;
        if (dtype == MN_F16)
            v->pack_f16(x, d, heads + 2 * at);
        else
            memcpy(heads + 4 * at, x, (size_t)d * sizeof(float));
    }
}

void mnk_kv_store_node(const mnc_call *c, mnc_worker *w) {
    const mnk_use *use = c->user;
    const mnk_vector *v = mnk_find_vector(use->level);
    const mnc_kv *kv = &c->kv;
    const int32_t *pos = c->in[MN_KV_STORE_ROW_POS].ptr;
    const int32_t *slot = c->in[MN_KV_STORE_ROW_SLOT].ptr;
    int64_t lo;
    int64_t hi;
    mnc_range(w, c->in[MN_KV_STORE_ROW_POS].rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        if (pos[t] < 0 || slot[t] < 0 || pos[t] / (int32_t)kv->geo.page_tokens >= kv->max_pages)
            continue;
        int32_t page = kv->pages[slot[t] * kv->max_pages + pos[t] / (int32_t)kv->geo.page_tokens];
        int64_t off = pos[t] % (int32_t)kv->geo.page_tokens;
        if (page < 0)
            continue;
        store(v, kv, kv->geo.k_dtype,
              (const float *)c->in[MN_KV_STORE_K].ptr + t * kv->geo.n_head_kv * kv->geo.dim_k,
              kv->geo.dim_k, off, mnc_kv_k(kv, page));
        store(v, kv, kv->geo.v_dtype,
              (const float *)c->in[MN_KV_STORE_V].ptr + t * kv->geo.n_head_kv * kv->geo.dim_v,
              kv->geo.dim_v, off, mnc_kv_v(kv, page));
    }
}

void mnk_gather_node(const mnc_call *c, mnc_worker *w) {
    const int32_t *rows = c->in[MN_GATHER_ROWS_ROWS].ptr;
    int64_t d = c->in[0].cols;
    int64_t lo;
    int64_t hi;
    mnc_range(w, c->in[MN_GATHER_ROWS_ROWS].rows, 1, &lo, &hi);
    for (int64_t o = lo; o < hi; o++) {
        float *y = (float *)c->out[0].ptr + o * d;
        if (rows[o] >= 0 && rows[o] < c->in[0].rows)
            memcpy(y, (const float *)c->in[0].ptr + rows[o] * d, (size_t)d * sizeof(float));
        else
            memset(y, 0, (size_t)d * sizeof(float));
    }
}
