/* kv.c -- pages of the memory of sequences: keys and values as dense rows of heads, of any length
 * (of Q8_0: whole blocks), 64 tokens to a page; states as common/memory.c has them. The buffer is
 * the host's; common/kv.c has the geometry. */
#include "mnc.h"

const mnp_kv_rules mnc_kv_rules = {MNC_PAGE_TOKENS, 1, 0};

mn_status mnc_memory_layout(mn_device *d, const mn_compile *in, uint32_t group,
                            mn_memory_layout *out, mn_error *err) {
    mn_compile c;
    mn_status st = mnc_read_compile(in, &c, err);
    if (st)
        return st;
    return mnp_memory_layout(&c, group, mnc_precision(d, &c), 0, &mnc_kv_rules, out, err);
}

/* The tokens past n_tokens are nobody's: a page is copied whole. */
mn_status mnc_memory_copy(mn_queue *q, mn_buffer *b, const mn_memory_layout *l,
                          const mn_page_copy *copies, uint32_t n, uint32_t stride, mn_event **event,
                          mn_error *err) {
    (void)q;
    if (event)
        *event = NULL; /* complete already */
    for (uint32_t i = 0; i < n; i++) {
        mn_page_copy c;
        mn_status st = mnp_memory_copy_at(l, copies, i, stride, b->bytes, &c, err);
        if (st)
            return st;
        if (c.n_tokens)
            memmove(b->ptr + c.dst_page * l->page_bytes, b->ptr + c.src_page * l->page_bytes,
                    l->page_bytes);
    }
    return MN_OK;
}
