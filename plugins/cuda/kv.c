/* kv.c -- KV pages: rows of heads are padded to 8 elements, so that kernels read 16 bytes at once
 * (of q8_0 to 32, a block); the padding stays zero, and masked positions are read, so pages must
 * arrive zeroed. Geometry: common/kv.c. */
#include "backend.h"

const mnp_kv_rules cu_kv_rules = {CU_PAGE_TOKENS, 8, 256};

uint32_t cu_precision(const mn_compile *c) {
    /* nothing here rounds to 8 bits */
    if (c->precision == MN_PRECISION_A8)
        return MN_PRECISION_A16;
    if (c->precision != MN_PRECISION_AUTO)
        return c->precision;
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        const mn_node *n = mnp_node(c->graph, i);
        int32_t w = mnp_in(c->graph, n, MN_LINEAR_WEIGHT);
        if (n->op == MN_OP_LINEAR && w >= 0 && mnp_tensor(c->graph, w)->dtype.id != MN_F32)
            return MN_PRECISION_A16;
    }
    return MN_PRECISION_EXACT;
}

mn_status cu_kv_layout(mn_device *d, const mn_compile *in, uint32_t group, mn_kv_layout *out,
                       mn_error *err) {
    mn_compile c;
    (void)d;
    mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    const mnp_kv_types types = mnp_kv_types_of(&c, cu_precision(&c));
    return mnp_kv_layout(&c, group, types, MN_KV_ZEROED, &cu_kv_rules, out, err);
}

/* The tokens past n_tokens are nobody's: a page is copied whole. */
mn_status cu_kv_copy(mn_queue *q, mn_buffer *kv, const mn_kv_layout *l, const mn_page_copy *copies,
                     uint32_t n, uint32_t stride, mn_event **event, mn_error *err) {
    mn_status st = cu_check_abort(q, err);
    if (st)
        return st;
    for (uint32_t i = 0; i < n; i++) {
        mn_page_copy c;
        st = mnp_kv_copy_at(l, copies, i, stride, kv->bytes, &c, err);
        if (st)
            return st;
        if (c.n_tokens && c.src_page != c.dst_page) {
            CU_TRY(cudaMemcpyAsync(kv->ptr + c.dst_page * l->page_bytes,
                                   kv->ptr + c.src_page * l->page_bytes, l->page_bytes,
                                   cudaMemcpyDeviceToDevice, q->stream),
                   err, "kv_copy");
        }
    }
    if (event)
        return cu_event_new(q->dev, q->stream, event, err);
    return MN_OK;
}
