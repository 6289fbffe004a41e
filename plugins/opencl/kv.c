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
    mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    const mnp_kv_types types = mnp_kv_types_of(&c, ocl_precision(&c));
    mn_kv_layout l = {.size = sizeof l};
    st = mnp_kv_layout(&c, group, types, MN_KV_ZEROED, &ocl_kv_rules, &l, err);
    if (st)
        return st;
    if (l.page_bytes > d->max_buffer)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                        "a page of KV group %u has %.1f KiB; the driver gives at most %.1f at once",
                        group, (double)l.page_bytes / 1024, (double)d->max_buffer / 1024);
    unsigned long long largest = atomic_load(&d->kv_page);
    while (largest < l.page_bytes &&
           !atomic_compare_exchange_weak(&d->kv_page, &largest, l.page_bytes)) {
    }
    mnp_fill(out, &l, sizeof l);
    return MN_OK;
}

mn_status ocl_kv_pages(mn_buffer *b, uint64_t page_bytes, mn_error *err) {
    if (b->n_parts == 1)
        return MN_OK;
    const uint64_t room = b->part_bytes / page_bytes * page_bytes;
    if (room < b->least_room)
        return mnp_fail(err, MN_INVALID, ~0u,
                        "pages of %llu bytes, of which buffers of %llu have no room for enough",
                        (unsigned long long)page_bytes, (unsigned long long)b->part_bytes);
    b->room = room;
    return MN_OK;
}

/* The tokens past n_tokens are nobody's: a page is copied whole. */
static mn_status copy_page(mn_queue *q, mn_buffer *kv, uint64_t page_bytes, const mn_page_copy *c,
                           mn_error *err) {
    if (!c->n_tokens || c->src_page == c->dst_page)
        return MN_OK;
    ocl_ref src;
    ocl_ref dst;
    ocl_place_in(kv, c->src_page * page_bytes, &src);
    ocl_place_in(kv, c->dst_page * page_bytes, &dst);
    return ocl_check(q->dev->cl->EnqueueCopyBuffer(q->cl, src.mem, dst.mem, src.at, dst.at,
                                                   page_bytes, 0, NULL, NULL),
                     err, "kv_copy");
}

mn_status ocl_kv_copy(mn_queue *q, mn_buffer *kv, const mn_kv_layout *l, const mn_page_copy *copies,
                      uint32_t n, uint32_t stride, mn_event **event, mn_error *err) {
    mn_status st = ocl_check_abort(q, err);
    if (!st)
        st = ocl_kv_pages(kv, l->page_bytes, err);
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
