/* op_kv_store.c -- KV_STORE: keys and values of the rows into the pages of their slots. */
#include "reference.h"
#include <string.h>

static void put(uint32_t dtype, uint8_t *to, const float *from, int64_t n) {
    if (dtype == MN_F32)
        memcpy(to, from, (size_t)n * 4);
    else
        for (int64_t i = 0; i < n; i++) {
            uint16_t h = mn_f32_to_f16(from[i]);
            memcpy(to + 2 * i, &h, 2);
        }
}

static void kv_store(const mnc_call *c, mnc_worker *w) {
    const mnc_kv *kv = &c->kv;
    const float *k = c->in[MN_KV_STORE_K].ptr, *v = c->in[MN_KV_STORE_V].ptr; /* [T, Hkv, D] */
    const int32_t *row_pos = c->in[MN_KV_STORE_ROW_POS].ptr;
    const int32_t *row_slot = c->in[MN_KV_STORE_ROW_SLOT].ptr;
    int64_t lo;
    int64_t hi;
    int64_t n_slots = c->in[MN_KV_STORE_PAGES].rows;
    mnc_range(w, c->in[MN_KV_STORE_K].rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        int64_t pos = row_pos[t];
        int64_t slot = row_slot[t];
        int64_t index = pos / kv->geo.page_tokens;
        int64_t at = pos % kv->geo.page_tokens;
        if (pos < 0 || slot < 0 || slot >= n_slots || index >= kv->max_pages)
            continue;
        int32_t page = kv->pages[slot * kv->max_pages + index];
        if (page < 0 || page >= kv->n_pages)
            continue;
        for (int64_t h = 0; h < kv->geo.n_head_kv; h++) {
            int64_t place = h * kv->geo.page_tokens + at;
            put(kv->geo.k_dtype,
                mnc_kv_k(kv, page) + place * kv->geo.dim_k * mnp_kv_size(kv->geo.k_dtype),
                k + (t * kv->geo.n_head_kv + h) * kv->geo.dim_k, kv->geo.dim_k);
            put(kv->geo.v_dtype,
                mnc_kv_v(kv, page) + place * kv->geo.dim_v * mnp_kv_size(kv->geo.v_dtype),
                v + (t * kv->geo.n_head_kv + h) * kv->geo.dim_v, kv->geo.dim_v);
        }
    }
}

const ref_op ref_op_kv_store = {
    .fn = kv_store,
};
