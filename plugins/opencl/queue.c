/* queue.c -- queues, transfers, events. A queue is an in-order command queue with a ring of host
 * segments, through which bytes travel whose source may go (write, weights): a segment is taken
 * again when the event of its last copy has passed. Nothing waits for a whole queue but its end. */
#include "backend.h"
#include <sched.h>
#include <time.h>

mn_status ocl_queue_create(mn_device *d, mn_queue **out, mn_error *err) {
    cl_int code;
    mn_queue *q = ocl_new(d, sizeof *q);
    if (!q)
        return mnp_fail_memory(err, sizeof *q, "a queue");
    q->dev = d;
    atomic_init(&q->aborted, false);
    q->segment_bytes = OCL_SEGMENT_BYTES;
    if (d->max_alloc && q->segment_bytes > d->max_alloc / OCL_SEGMENTS)
        q->segment_bytes = d->max_alloc / OCL_SEGMENTS;
    mn_status st = ocl_alloc(d, OCL_SEGMENTS * q->segment_bytes, MN_MEM_HOST_PINNED, &q->ring, err);
    if (!st) {
        q->cl = d->cl->CreateCommandQueue(d->context, d->id, 0, &code);
        st = ocl_check(code, err, "a queue");
    }
    if (st)
        ocl_queue_free(q);
    else
        *out = q;
    return st;
}

void ocl_queue_free(mn_queue *q) {
    if (!q)
        return;
    const ocl_icd *cl = q->dev->cl;
    if (q->cl)
        cl->Finish(q->cl);
    ocl_step_forget(q);
    for (int i = 0; i < OCL_SEGMENTS; i++)
        if (q->used[i])
            cl->ReleaseEvent(q->used[i]);
    if (q->cl)
        cl->ReleaseCommandQueue(q->cl);
    ocl_buffer_free(q->ring);
    ocl_delete(q->dev, q);
}

mn_status ocl_check_abort(const mn_queue *q, mn_error *err) {
    if (!atomic_load(&q->aborted))
        return MN_OK;
    return mnp_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
}

mn_status ocl_abort(mn_queue *q) {
    atomic_store(&q->aborted, true);
    return MN_OK;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* A free segment of the ring: waits until its last copy is over. */
static mn_status next_segment(mn_queue *q, uint32_t *seg, mn_error *err) {
    *seg = q->next++ % OCL_SEGMENTS;
    cl_event last = q->used[*seg];
    if (!last)
        return MN_OK;
    q->used[*seg] = NULL;
    const cl_int code = q->dev->cl->WaitForEvents(1, &last);
    q->dev->cl->ReleaseEvent(last);
    return ocl_check(code, err, "a transfer");
}

mn_status ocl_send(mn_queue *q, cl_mem to, uint64_t at, const void *from, uint64_t n,
                   mn_error *err) {
    const ocl_icd *cl = q->dev->cl;
    const char *src = from;
    mn_status st = MN_OK;
    for (uint64_t done = 0; done < n && !st;) {
        const uint64_t left = n - done;
        const uint64_t m = left < q->segment_bytes ? left : q->segment_bytes;
        uint32_t seg;
        st = next_segment(q, &seg, err);
        if (st)
            break;
        char *place = q->ring->host + seg * q->segment_bytes;
        memcpy(place, src + done, m);
        const cl_int code = cl->EnqueueWriteBuffer(q->cl, to, CL_FALSE, at + done, m, place, 0,
                                                   NULL, &q->used[seg]);
        st = ocl_check(code, err, "a transfer");
        done += m;
    }
    return st;
}

mn_status ocl_write(mn_queue *q, mn_buffer *b, uint64_t off, const void *src, uint64_t n,
                    mn_error *err) {
    mn_status st = ocl_check_abort(q, err);
    if (!st)
        st = mnp_check_range(off, n, b->bytes, "write", err);
    if (st || !n)
        return st;
    for (uint64_t done = 0; done < n && !b->host && !st;) {
        ocl_ref to;
        const uint64_t there = ocl_place_in(b, off + done, &to);
        const uint64_t m = n - done < there ? n - done : there;
        st = ocl_send(q, to.mem, to.at, (const char *)src + done, m, err);
        done += m;
    }
    if (!b->host || st)
        return st;
    OCL_TRY(q->dev->cl->Finish(q->cl), err, "write");
    memcpy(b->host + off, src, n);
    return MN_OK;
}

/* Between two pinned buffers, which no command may read and write while they are mapped. */
static mn_status copy_pinned(mn_queue *q, char *to, const char *from, uint64_t n, mn_error *err) {
    OCL_TRY(q->dev->cl->Finish(q->cl), err, "copy");
    memmove(to, from, n);
    return MN_OK;
}

/* The first of n bytes, as many as lie in one piece on both sides: *done. */
static cl_int enqueue_piece(mn_queue *q, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                            uint64_t src_off, uint64_t n, uint64_t *done) {
    const ocl_icd *cl = q->dev->cl;
    ocl_ref to;
    ocl_ref from;
    const uint64_t there = ocl_place_in(dst, dst_off, &to);
    const uint64_t here = ocl_place_in(src, src_off, &from);
    const uint64_t both = here < there ? here : there;
    const uint64_t m = n < both ? n : both;
    *done = m;
    if (dst->host)
        return cl->EnqueueReadBuffer(q->cl, from.mem, CL_FALSE, from.at, m, dst->host + dst_off, 0,
                                     NULL, NULL);
    if (src->host)
        return cl->EnqueueWriteBuffer(q->cl, to.mem, CL_FALSE, to.at, m, src->host + src_off, 0,
                                      NULL, NULL);
    return cl->EnqueueCopyBuffer(q->cl, from.mem, to.mem, from.at, to.at, m, 0, NULL, NULL);
}

static mn_status enqueue_copy(mn_queue *q, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                              uint64_t src_off, uint64_t n, mn_error *err) {
    if (dst->host && src->host)
        return copy_pinned(q, dst->host + dst_off, src->host + src_off, n, err);
    for (uint64_t all = 0; all < n;) {
        uint64_t done = 0;
        OCL_TRY(enqueue_piece(q, dst, dst_off + all, src, src_off + all, n - all, &done), err,
                "copy");
        all += done;
    }
    return MN_OK;
}

mn_status ocl_copy(mn_queue *q, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                   uint64_t src_off, uint64_t n, mn_event **event, mn_error *err) {
    mn_status st = ocl_check_abort(q, err);
    if (!st)
        st = mnp_check_range(dst_off, n, dst->bytes, "copy to", err);
    if (!st)
        st = mnp_check_range(src_off, n, src->bytes, "copy from", err);
    if (!st && n)
        st = enqueue_copy(q, dst, dst_off, src, src_off, n, err);
    if (st || !event)
        return st;
    return ocl_event_new(q, event, err);
}

/* Does not wait: the bytes are there when the event has passed. */
mn_status ocl_read(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *host,
                   uint64_t host_off, uint64_t n, mn_event **event, mn_error *err) {
    if (!host->host)
        return mnp_fail(err, MN_INVALID, ~0u, "read goes to pinned memory");
    return ocl_copy(q, host, host_off, b, off, n, event, err);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* A spare one, or a new one; NULL = out of memory. */
static mn_event *take_event(mn_device *d) {
    pthread_mutex_lock(&d->lock);
    mn_event *e = d->spare;
    if (e)
        d->spare = e->next;
    pthread_mutex_unlock(&d->lock);
    if (!e)
        e = ocl_new(d, sizeof *e);
    if (e)
        e->dev = d;
    return e;
}

mn_status ocl_events_reserve(mn_device *d, uint32_t n, mn_error *err) {
    pthread_mutex_lock(&d->lock);
    for (const mn_event *e = d->spare; e && n; e = e->next)
        n--;
    pthread_mutex_unlock(&d->lock);
    for (; n; n--) {
        mn_event *e = ocl_new(d, sizeof *e);
        if (!e)
            return mnp_fail_memory(err, sizeof *e, "an event");
        e->dev = d;
        ocl_event_free(e);
    }
    return MN_OK;
}

mn_status ocl_event_new(mn_queue *q, mn_event **out, mn_error *err) {
    mn_device *d = q->dev;
    mn_event *e = take_event(d);
    if (!e)
        return mnp_fail_memory(err, sizeof *e, "an event");
    cl_int code = d->cl->EnqueueMarkerWithWaitList(q->cl, 0, NULL, &e->ev);
    if (code == CL_SUCCESS)
        code = d->cl->Flush(q->cl);
    const mn_status st = ocl_check(code, err, "an event");
    if (st)
        ocl_event_free(e);
    else
        *out = e;
    return st;
}

void ocl_event_free(mn_event *e) {
    if (!e)
        return;
    if (e->ev)
        e->dev->cl->ReleaseEvent(e->ev);
    e->ev = NULL;
    pthread_mutex_lock(&e->dev->lock);
    e->next = e->dev->spare;
    e->dev->spare = e;
    pthread_mutex_unlock(&e->dev->lock);
}

/* Polls hard at first, since a step is short, then gives the core away: at once where the device is
 * the CPU itself. */
static void pause_after(const mn_device *d, uint64_t past_ns, uint32_t i) {
    const uint64_t patience = d->is_cpu ? 20000 : 2000000;
    if (past_ns > patience) {
        const struct timespec t = {0, 20000};
        nanosleep(&t, NULL);
    } else if (i % 16 == 15) {
        sched_yield();
    }
}

mn_status ocl_wait(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    if (!e)
        return MN_OK;
    const mn_host *h = e->dev->plugin->host;
    const uint64_t from = h->now_ns(h->self);
    for (uint32_t i = 0;; i++) {
        cl_int state = CL_COMPLETE;
        OCL_TRY(e->dev->cl->GetEventInfo(e->ev, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state,
                                         &state, NULL),
                err, "waiting");
        if (state < 0)
            return mnp_fail(err, MN_DEVICE_LOST, ~0u,
                            "a step failed: %s (OpenCL error %d); the device is lost to this "
                            "process",
                            ocl_code_name(state), (int)state);
        if (state == CL_COMPLETE)
            return MN_OK;
        const uint64_t past = h->now_ns(h->self) - from;
        if (past >= timeout_ns)
            return MN_TIMEOUT;
        pause_after(e->dev, past, i);
    }
}

mn_status ocl_queue_wait(mn_queue *q, mn_event *e, mn_error *err) {
    if (!e)
        return MN_OK;
    return ocl_check(q->dev->cl->EnqueueBarrierWithWaitList(q->cl, 1, &e->ev, NULL), err,
                     "queue_wait");
}
