/* op_kv_store.c -- KV_STORE: keys and values of the rows into the pages of their slots. */
#include "reference.h"

/* Row t's position of its slot, split into a page and a place in it: the page, or -1 if it has
 * none. */
static int32_t page_of_row(const mnc_call *c, int64_t t, int64_t *at) {
    const mnc_kv *kv = &c->kv;
    const int32_t *row_pos = c->in[MN_KV_STORE_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_KV_STORE_ROW_SLOT].ptr;
    const int64_t pos = row_pos[t];
    const int64_t slot = row_slot[t];
    const int64_t n_slots = c->in[MN_KV_STORE_PAGES].rows;
    const int64_t index = pos / kv->geo.page_tokens;
    if (pos < 0)
        return -1;
    if (slot < 0)
        return -1;
    if (slot >= n_slots)
        return -1;
    if (index >= kv->max_pages)
        return -1;
    const int32_t page = kv->pages[slot * kv->max_pages + index];
    *at = pos % kv->geo.page_tokens;
    if (page < kv->n_pages)
        return page;
    return -1;
}

static void kv_store(const mnc_call *c, mnc_worker *w) {
    const mnc_kv *kv = &c->kv;
    const mnp_kv *geo = &kv->geo;
    const float *k = c->in[MN_KV_STORE_K].ptr; /* [T, Hkv, Dk] */
    const float *v = c->in[MN_KV_STORE_V].ptr; /* [T, Hkv, Dv] */
    int64_t lo;
    int64_t hi;
    mnc_range(w, c->in[MN_KV_STORE_K].rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        int64_t at = 0;
        const int32_t page = page_of_row(c, t, &at);
        if (page < 0)
            continue;
        for (int64_t h = 0; h < geo->n_head_kv; h++) {
            const int64_t place = h * geo->page_tokens + at;
            const int64_t row = t * geo->n_head_kv + h;
            uint8_t *to_k = mnc_kv_k(kv, page) + place * geo->k_row;
            mn_cached_put(geo->k_dtype, k + row * geo->dim_k, geo->dim_k, to_k);
            if (!geo->dim_v) /* values are keys */
                continue;
            uint8_t *to_v = mnc_kv_v(kv, page) + place * geo->v_row;
            mn_cached_put(geo->v_dtype, v + row * geo->dim_v, geo->dim_v, to_v);
        }
    }
}

const ref_op ref_op_kv_store = {
    .fn = kv_store,
};
