/* moves.c -- mn.kv/1: pages in the form that all devices share. Memory is the host's, and a call is
 * complete when it returns. */
#include "moves_table.h"
#include "mnc.h"
#include "dtype.h"
#include "moves.h"

static void row_get(uint32_t dtype, const uint8_t *head, int64_t row_bytes, uint32_t page_tokens,
                    int64_t at, int64_t n, float *x) {
    (void)page_tokens;
    mn_cached_get(dtype, head + at * row_bytes, n, x);
}

static void row_put(uint32_t dtype, const float *x, int64_t row_bytes, uint32_t page_tokens,
                    int64_t at, int64_t n, uint8_t *head) {
    (void)page_tokens;
    mn_cached_put(dtype, x, n, head + at * row_bytes);
}

static const mnp_rows cpu_rows = {row_get, row_put};

static mn_status read_page(mn_queue *q, const mn_kv_page *in, mnp_moves *m, mn_error *err) {
    mn_status st = MN_OK;
    if (atomic_load(&q->aborted))
        st = mnp_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
    if (!st)
        st = mnp_moves_of(in, &mnc_kv_rules, m, err);
    if (!st)
        st = mnp_moves_check(m, m->page.memory->bytes, m->page.host->bytes, err);
    if (!st && m->params.kind == MN_MEMORY_STATE &&
        !(q->dev->plugin->ops->device_flags & MN_DEVICE_ORACLE))
        st = mnp_fail(err, MN_UNSUPPORTED, ~0u,
                      "states lie in an order of this plugin's own, which a group's layers do not "
                      "tell");
    return st;
}

static mn_status get(mn_queue *q, const mn_kv_page *in, mn_event **event, mn_error *err) {
    mnp_moves m;
    const mn_status st = read_page(q, in, &m, err);
    if (event)
        *event = NULL; /* complete already */
    if (!st)
        mnp_moves_get(&m, &cpu_rows, m.page.memory->ptr + m.page.page * m.layout.page_bytes,
                      (float *)(void *)(m.page.host->ptr + m.page.offset));
    return st;
}

static mn_status put(mn_queue *q, const mn_kv_page *in, mn_event **event, mn_error *err) {
    mnp_moves m;
    const mn_status st = read_page(q, in, &m, err);
    if (event)
        *event = NULL;
    if (!st)
        mnp_moves_put(&m, &cpu_rows, (const float *)(void *)(m.page.host->ptr + m.page.offset),
                      m.page.memory->ptr + m.page.page * m.layout.page_bytes);
    return st;
}

const mn_kv_moves mnc_moves = {.size = sizeof(mn_kv_moves), .get = get, .put = put};
