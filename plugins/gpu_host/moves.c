/* moves.c -- mn.kv/1: pages in the form that all devices share. A page is copied as it is, and
 * rearranged in memory of the host; a call is complete when it returns. */
#include "gpu_table.h"
#include "page_rows.h"

static const mnp_rows *rows_of(const mng_backend *b) {
    return b->rows ? b->rows : &mnp_page_rows;
}

/* A call on buffers that fit; all work of the queue is complete. */
static mn_status read_page(mn_queue *q, const mn_kv_page *in, mnp_moves *m, mn_error *err) {
    const mn_device *dev = mng_queue_of(q)->dev;
    const mng_backend *b = mng_backend_of(dev);
    mn_status st = mng_check_abort(q, err);
    if (!st)
        st = mnp_moves_of(in, &b->limits.kv, &b->state_cols, m, err);
    if (!st)
        st = mng_check_buffer(dev, m->page.memory, err);
    if (!st)
        st = mnp_moves_check(m, m->page.memory->bytes, m->page.host->bytes, err);
    if (!st && !m->page.host->host)
        st = mnp_fail(err, MN_INVALID, ~0u, "a host's buffer in device memory");
    if (!st)
        st = mng_enter(dev, err);
    if (!st)
        st = mng_buffer_pages(m->page.memory, m->layout.page_bytes, err);
    return st ? st : b->queue_finish(q, err);
}

/* Pinned memory for one page. */
static mn_status alloc_page(mn_queue *q, const mnp_moves *m, mn_buffer **out, mn_error *err) {
    const mn_alloc_params p = {
        .size = sizeof p, .kind = MN_MEM_HOST_PINNED, .bytes = m->layout.page_bytes};
    return mng_alloc(mng_queue_of(q)->dev, &p, out, err);
}

static mn_status get(mn_queue *q, const mn_kv_page *in, mn_event **event, mn_error *err) {
    mnp_moves m;
    mn_buffer *raw = NULL;
    mn_status st = read_page(q, in, &m, err);
    const mng_backend *b = mng_backend_of(mng_queue_of(q)->dev);
    if (event)
        *event = NULL; /* complete already */
    if (!st)
        st = alloc_page(q, &m, &raw, err);
    if (!st)
        st = mng_read(q, m.page.memory, m.page.page * m.layout.page_bytes, raw, 0,
                      m.layout.page_bytes, NULL, err);
    if (!st)
        st = b->queue_finish(q, err);
    if (!st)
        mnp_moves_get(&m, rows_of(b), (const uint8_t *)raw->host,
                      (float *)(void *)(m.page.host->host + m.page.offset));
    mng_buffer_free(raw);
    return st;
}

static mn_status put(mn_queue *q, const mn_kv_page *in, mn_event **event, mn_error *err) {
    mnp_moves m;
    mn_buffer *raw = NULL; /* zeroed: so is what pads rows */
    mn_status st = read_page(q, in, &m, err);
    const mng_backend *b = mng_backend_of(mng_queue_of(q)->dev);
    if (event)
        *event = NULL;
    if (!st)
        st = alloc_page(q, &m, &raw, err);
    if (st)
        return st;
    mnp_moves_put(&m, rows_of(b), (const float *)(void *)(m.page.host->host + m.page.offset),
                  (uint8_t *)raw->host);
    st = mng_write(q, m.page.memory, m.page.page * m.layout.page_bytes, raw->host,
                   m.layout.page_bytes, err);
    mng_buffer_free(raw);
    return st;
}

const mn_kv_moves mng_moves = {.size = sizeof(mn_kv_moves), .get = get, .put = put};
