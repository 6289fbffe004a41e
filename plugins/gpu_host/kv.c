/* kv.c -- KV pages: rows of heads are padded as the backend's kernels read them (limits.kv); the
 * padding stays zero, and masked positions may be read, so pages must arrive zeroed. Geometry:
 * common/kv.c. Holds nothing. */
#include "gpu_table.h"

uint32_t mng_precision(const mng_backend *b, const mn_compile *c) {
    return b->precision ? b->precision(c) : (uint32_t)MN_PRECISION_EXACT;
}

mn_status mng_memory_layout(mn_device *dev, const mn_compile *in, uint32_t group,
                            mn_memory_layout *out, mn_error *err) {
    mng_device *d = mng_device_of(dev);
    mn_compile c;
    mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    mn_memory_layout l = {.size = sizeof l};
    st = mnp_memory_layout(&c, group, mng_precision(d->backend, &c), MN_MEMORY_ZEROED,
                           &d->backend->limits.kv, &l, err);
    if (st)
        return st;
    if (d->max_buffer && l.page_bytes > d->max_buffer)
        return mnp_fail(
            err, MN_UNSUPPORTED, ~0u,
            "a page of group %u of the memory has %.1f KiB; the driver gives at most %.1f at once",
            group, (double)l.page_bytes / 1024, (double)d->max_buffer / 1024);
    uint64_t largest = __atomic_load_n(&d->kv_page, __ATOMIC_RELAXED);
    while (largest < l.page_bytes &&
           !__atomic_compare_exchange_n(&d->kv_page, &largest, l.page_bytes, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
    mnp_fill(out, &l, sizeof l);
    return MN_OK;
}

/* A page is copied whole: what is behind n_tokens is not read. */
static mn_status copy_page(mn_queue *q, mn_buffer *kv, uint64_t page_bytes, const mn_page_copy *c,
                           mn_error *err) {
    if (!c->n_tokens || c->src_page == c->dst_page)
        return MN_OK;
    mng_ref src;
    mng_ref dst;
    mng_place_in(kv, c->src_page * page_bytes, &src);
    mng_place_in(kv, c->dst_page * page_bytes, &dst);
    return mng_backend_of(kv->dev)->copy(q, dst, src, page_bytes, err);
}

mn_status mng_memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                          const mn_page_copy *copies, uint32_t n, uint32_t stride, mn_event **event,
                          mn_error *err) {
    mn_status st = mng_check_abort(q, err);
    if (!st)
        st = mng_check_buffer(mng_queue_of(q)->dev, kv, err);
    if (!st)
        st = mng_enter(mng_queue_of(q)->dev, err);
    if (!st)
        st = mng_buffer_pages(kv, l->page_bytes, err);
    for (uint32_t i = 0; i < n && !st; i++) {
        mn_page_copy c;
        st = mnp_memory_copy_at(l, copies, i, stride, kv->bytes, &c, err);
        if (!st)
            st = copy_page(q, kv, l->page_bytes, &c, err);
    }
    if (st || !event)
        return st;
    return mng_event_new(q, event, err);
}
