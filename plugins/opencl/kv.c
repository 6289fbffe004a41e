/* kv.c -- KV pages: rows of heads are padded to a piece of 16 elements, which kernels read at once
 * (of q8_0 to 32, a block); the padding stays zero, so pages must arrive zeroed. Geometry:
 * common/kv.c. */
#include "backend.h"

const mnp_kv_rules ocl_kv_rules = {OCL_PAGE_TOKENS, OCL_PIECE, OCL_MAX_HEAD};

/* Activations and sums are f32 in every class. */
uint32_t ocl_precision(const mn_compile *c) {
    (void)c;
    return MN_PRECISION_EXACT;
}

mn_status ocl_kv_layout(mn_device *d, const mn_compile *in, uint32_t group, mn_kv_layout *out,
                        mn_error *err) {
    mn_compile c;
    (void)d;
    const mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    const mnp_kv_types types = mnp_kv_types_of(&c, ocl_precision(&c));
    return mnp_kv_layout(&c, group, types, MN_KV_ZEROED, &ocl_kv_rules, out, err);
}

/* The tokens past n_tokens are nobody's: a page is copied whole. */
static mn_status copy_page(mn_queue *q, mn_buffer *kv, uint64_t page_bytes, const mn_page_copy *c,
                           mn_error *err) {
    if (!c->n_tokens || c->src_page == c->dst_page)
        return MN_OK;
    return ocl_check(
        q->dev->cl->EnqueueCopyBuffer(q->cl, kv->mem, kv->mem, c->src_page * page_bytes,
                                      c->dst_page * page_bytes, page_bytes, 0, NULL, NULL),
        err, "kv_copy");
}

mn_status ocl_kv_copy(mn_queue *q, mn_buffer *kv, const mn_kv_layout *l, const mn_page_copy *copies,
                      uint32_t n, uint32_t stride, mn_event **event, mn_error *err) {
    mn_status st = ocl_check_abort(q, err);
    for (uint32_t i = 0; i < n && !st; i++) {
        mn_page_copy c;
        st = mnp_kv_copy_at(l, copies, i, stride, kv->bytes, &c, err);
        if (!st)
            st = copy_page(q, kv, l->page_bytes, &c, err);
    }
    if (st || !event)
        return st;
    return ocl_event_new(q, event, err);
}
