/* group_memory.c -- buffers, queues and events of a group. Device memory is there once per member,
 * at the same offsets; what the host writes goes to all that are here, what it reads is the first
 * one's, for results are the same on all. Pinned memory is there once: every card reads it. Events
 * that are freed wait in the group's list of spares, under its lock. */
#include "group.h"

/* ---- buffers --------------------------------------------------------------------------------- */
void cu_group_buffer_free(mn_buffer *buffer) {
    cu_group_buffer *b = (cu_group_buffer *)buffer;
    const cu_group *g = cu_group_of(b->base.dev);
    if (b->n == 1)
        mng_buffer_free(b->of[0]);
    for (uint32_t r = g->lo; r < g->hi && b->n > 1; r++)
        mng_buffer_free(b->of[r]);
    mng_delete(b->base.dev, b);
}

mn_status cu_group_alloc(mn_device *d, const mn_alloc_params *in, mn_buffer **out, mn_error *err) {
    const cu_group *g = cu_group_of(d);
    mn_alloc_params a;
    mn_status st = mnp_read_alloc(in, MNG_ALIGN, &a, err);
    if (st)
        return st;
    cu_group_buffer *b = mng_new(d, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a buffer");
    b->base.dev = d;
    b->base.bytes = a.bytes;
    b->base.kind = a.kind;
    b->n = g->n;
    if (b->base.kind == MN_MEM_HOST_PINNED)
        b->n = 1;
    if (b->n == 1)
        st = cu_group_blame(g, g->lo, mng_alloc(g->of[g->lo], &a, &b->of[0], err), err);
    for (uint32_t r = g->lo; r < g->hi && b->n > 1 && !st; r++)
        st = cu_group_blame(g, r, mng_alloc(g->of[r], &a, &b->of[r], err), err);
    if (st)
        cu_group_buffer_free(&b->base);
    else
        *out = &b->base;
    return st;
}

/* As pinned memory: registered once, for all cards. */
mn_status cu_group_wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    const cu_group *g = cu_group_of(d);
    cu_group_buffer *b = mng_new(d, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a buffer");
    b->base.dev = d;
    b->base.bytes = bytes;
    b->base.kind = MN_MEM_HOST_PINNED;
    b->n = 1;
    const mn_status st = mng_wrap(g->of[g->lo], host, bytes, &b->of[0], err);
    if (st)
        mng_delete(d, b);
    else
        *out = &b->base;
    return st;
}

mn_status cu_group_map(mn_buffer *b, void **out, mn_error *err) {
    return mng_map(cu_member_buffer(b, cu_group_of(b->dev)->lo), out, err);
}

/* ---- queues ---------------------------------------------------------------------------------- */
void cu_group_queue_free(mn_queue *queue) {
    cu_group_queue *q = (cu_group_queue *)queue;
    const cu_group *g = cu_group_of_queue(q);
    CU_EACH_MEMBER (g, r, true)
        mng_queue_free(q->of[r]);
    mng_delete(q->base.base.dev, q);
}

mn_status cu_group_queue_create(mn_device *d, const mn_queue_params *params, mn_queue **out,
                                mn_error *err) {
    const cu_group *g = cu_group_of(d);
    mn_status st = MN_OK;
    cu_group_queue *q = mng_new(d, sizeof *q);
    if (!q)
        return mnp_fail_memory(err, sizeof *q, "a queue");
    q->base.base.dev = d;
    CU_EACH_MEMBER (g, r, !st)
        st = cu_group_blame(g, r, mng_queue_create(g->of[r], params, &q->of[r], err), err);
    if (st)
        cu_group_queue_free(&q->base);
    else
        *out = &q->base;
    return st;
}

mn_status cu_group_abort(mn_queue *queue) {
    cu_group_queue *q = (cu_group_queue *)queue;
    const cu_group *g = cu_group_of_queue(q);
    CU_EACH_MEMBER (g, r, true)
        mng_abort(q->of[r]);
    return MN_OK;
}

mn_status cu_group_write(mn_queue *queue, mn_buffer *b, uint64_t off, const void *from, uint64_t n,
                         mn_error *err) {
    cu_group_queue *q = (cu_group_queue *)queue;
    const cu_group *g = cu_group_of_queue(q);
    mn_status st = MN_OK;
    CU_EACH_MEMBER (g, r, !st)
        st = cu_group_blame(g, r, mng_write(q->of[r], cu_member_buffer(b, r), off, from, n, err),
                            err);
    return st;
}

mn_status cu_group_copy(mn_queue *queue, mn_buffer *to, uint64_t to_off, const mn_buffer *from,
                        uint64_t off, uint64_t n, mn_event **event, mn_error *err) {
    cu_group_queue *q = (cu_group_queue *)queue;
    const cu_group *g = cu_group_of_queue(q);
    const bool once = ((cu_group_buffer *)to)->n == 1; /* memory of the host is written once */
    uint32_t hi = g->hi;
    if (once)
        hi = g->lo + 1;
    mn_status st = MN_OK;
    for (uint32_t r = g->lo; r < hi && !st; r++) {
        st = mng_copy(q->of[r], cu_member_buffer(to, r), to_off, cu_member_buffer(from, r), off, n,
                      NULL, err);
        st = cu_group_blame(g, r, st, err);
    }
    if (st || !event)
        return st;
    return cu_group_event_new(q, event, err);
}

mn_status cu_group_read(mn_queue *queue, const mn_buffer *b, uint64_t off, mn_buffer *to,
                        uint64_t to_off, uint64_t n, mn_event **event, mn_error *err) {
    cu_group_queue *q = (cu_group_queue *)queue;
    cu_group *g = cu_group_of_queue(q);
    cu_group_event *e = NULL;
    mn_status st = MN_OK;
    if (event)
        st = cu_group_event_empty(g, &e, err);
    if (st)
        return st;
    const uint32_t r = g->lo;
    st = mng_read(q->of[r], cu_member_buffer(b, r), off, cu_member_buffer(to, r), to_off, n,
                  event ? &e->of[r] : NULL, err);
    if (st && e)
        cu_group_event_free(&e->base);
    else if (e)
        *event = &e->base;
    return cu_group_blame(g, r, st, err);
}

/* ---- events ---------------------------------------------------------------------------------- */
mn_status cu_group_event_empty(cu_group *g, cu_group_event **out, mn_error *err) {
    pthread_mutex_lock(&g->base.base.lock);
    cu_group_event *e = (cu_group_event *)g->base.base.spare;
    if (e)
        g->base.base.spare = e->base.next;
    pthread_mutex_unlock(&g->base.base.lock);
    if (!e)
        e = mng_new(&g->base, sizeof *e);
    if (!e)
        return mnp_fail_memory(err, sizeof *e, "an event");
    e->base.dev = &g->base;
    *out = e;
    return MN_OK;
}

mn_status cu_group_event_new(cu_group_queue *q, mn_event **out, mn_error *err) {
    cu_group *g = cu_group_of_queue(q);
    cu_group_event *e = NULL;
    mn_status st = cu_group_event_empty(g, &e, err);
    if (st)
        return st;
    CU_EACH_MEMBER (g, r, !st) {
        st = cu_check(cudaSetDevice(g->of[r]->index), err, "choosing the device");
        if (!st)
            st = mng_event_new(q->of[r], &e->of[r], err);
        st = cu_group_blame(g, r, st, err);
    }
    if (st)
        cu_group_event_free(&e->base);
    else
        *out = &e->base;
    return st;
}

void cu_group_event_free(mn_event *event) {
    cu_group_event *e = (cu_group_event *)event;
    cu_group *g = cu_group_of(e->base.dev);
    CU_EACH_MEMBER (g, r, true) {
        mng_event_free(e->of[r]);
        e->of[r] = NULL;
    }
    pthread_mutex_lock(&g->base.base.lock);
    e->base.next = g->base.base.spare;
    g->base.base.spare = &e->base;
    pthread_mutex_unlock(&g->base.base.lock);
}

/* One round: waits a while for the first member that is not done, and asks the others how they
 * are, for one that failed keeps those that wait for it. */
static mn_status wait_round(const cu_group *g, const cu_group_event *e, uint64_t slice_ns,
                            mn_error *err) {
    mn_status all = MN_OK;
    CU_EACH_MEMBER (g, r, true) {
        const mn_status st = mng_wait(e->of[r], all ? 0 : slice_ns, err);
        if (st && st != MN_TIMEOUT)
            return cu_group_blame(g, r, st, err);
        if (st)
            all = st;
    }
    return all;
}

mn_status cu_group_wait_event(mn_event *event, uint64_t timeout_ns, mn_error *err) {
    const cu_group_event *e = (const cu_group_event *)event;
    const cu_group *g = cu_group_of(e->base.dev);
    const mn_host *h = g->base.base.host;
    const uint64_t from = h->now_ns(h->self);
    for (uint64_t past = 0;;) {
        const uint64_t left = timeout_ns - past;
        const uint64_t slice = left < 100000000 ? left : (uint64_t)100000000;
        const mn_status st = wait_round(g, e, slice, err);
        past = h->now_ns(h->self) - from;
        if (st == MN_TIMEOUT && cu_nccl_check(g, err))
            return MN_DEVICE_LOST;
        if (st != MN_TIMEOUT || past >= timeout_ns)
            return st;
    }
}

mn_status cu_group_queue_wait(mn_queue *queue, mn_event *event, mn_error *err) {
    cu_group_queue *q = (cu_group_queue *)queue;
    const cu_group *g = cu_group_of_queue(q);
    const cu_group_event *e = (const cu_group_event *)event;
    mn_status st = MN_OK;
    for (uint32_t r = g->lo; r < g->hi && !st && e; r++)
        st = cu_group_blame(g, r, mng_queue_wait(q->of[r], e->of[r], err), err);
    return st;
}
