/* kv.c -- KV pages: dense rows of heads, of any length (of Q8_0: whole blocks), 64 tokens to a
 * page. The buffer is the host's; common/kv.c has the geometry. */
#include "mnc.h"

const mnp_kv_rules mnc_kv_rules = {MNC_PAGE_TOKENS, 1, 0};

mn_status mnc_kv_layout(mn_device *d, const mn_compile *in, uint32_t group, mn_kv_layout *out,
                        mn_error *err) {
    mn_compile c;
    mn_status st = mnc_read_compile(in, &c, err);
    if (st)
        return st;
    const mnp_kv_types types = mnp_kv_types_of(&c, mnc_precision(d, &c));
    return mnp_kv_layout(&c, group, types, 0, &mnc_kv_rules, out, err);
}

/* The tokens past n_tokens are nobody's: a page is copied whole. */
mn_status mnc_kv_copy(mn_queue *q, mn_buffer *kv, const mn_kv_layout *l, const mn_page_copy *copies,
                      uint32_t n, uint32_t stride, mn_event **event, mn_error *err) {
    (void)q;
    if (event)
        *event = NULL; /* complete already */
    for (uint32_t i = 0; i < n; i++) {
        mn_page_copy c;
        mn_status st = mnp_kv_copy_at(l, copies, i, stride, kv->bytes, &c, err);
        if (st)
            return st;
        if (c.n_tokens)
            memmove(kv->ptr + c.dst_page * l->page_bytes, kv->ptr + c.src_page * l->page_bytes,
                    l->page_bytes);
    }
    return MN_OK;
}
