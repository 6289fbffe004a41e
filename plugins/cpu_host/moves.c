/* moves.c -- mn.kv/1: pages in the form that all devices share. Memory is the host's, and a call is
 * complete when it returns. */
#include "moves_table.h"
#include "mnc.h"
#include "page_rows.h"

static mn_status read_page(mn_queue *q, const mn_kv_page *in, mnp_moves *m, mn_error *err) {
    mn_status st = MN_OK;
    if (atomic_load(&q->aborted))
        st = mnp_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
    if (!st)
        st = mnp_moves_of(in, &mnc_kv_rules, &q->dev->plugin->ops->state_cols, m, err);
    if (!st)
        st = mnp_moves_check(m, m->page.memory->bytes, m->page.host->bytes, err);
    return st;
}

static mn_status get(mn_queue *q, const mn_kv_page *in, mn_event **event, mn_error *err) {
    mnp_moves m;
    const mn_status st = read_page(q, in, &m, err);
    if (event)
        *event = NULL; /* complete already */
    if (!st)
        mnp_moves_get(&m, &mnp_page_rows, m.page.memory->ptr + m.page.page * m.layout.page_bytes,
                      (float *)(void *)(m.page.host->ptr + m.page.offset));
    return st;
}

static mn_status put(mn_queue *q, const mn_kv_page *in, mn_event **event, mn_error *err) {
    mnp_moves m;
    const mn_status st = read_page(q, in, &m, err);
    if (event)
        *event = NULL;
    if (!st)
        mnp_moves_put(&m, &mnp_page_rows, (const float *)(void *)(m.page.host->ptr + m.page.offset),
                      m.page.memory->ptr + m.page.page * m.layout.page_bytes);
    return st;
}

const mn_kv_moves mnc_moves = {.size = sizeof(mn_kv_moves), .get = get, .put = put};
