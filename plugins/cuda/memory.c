/* memory.c -- buffers, queues, events. A queue is a stream with a ring of pinned segments, through
 * which pageable bytes travel (cu_write, weights.c): a segment is taken again when the event
 * behind its last copy has passed. Events that are freed wait in the device's list of spares, under
 * its lock; they may be freed by any thread. */
#include "backend.h"
#include <sched.h>
#include <time.h>

/* Zeroed unless the kind says otherwise; 0 bytes are a buffer, too. */
mn_status cu_alloc(mn_device *d, uint64_t bytes, uint32_t kind, mn_buffer **out, mn_error *err) {
    const bool zeroed = !(kind & MN_MEM_UNZEROED);
    if (kind & ~(MN_MEM_KIND | MN_MEM_UNZEROED))
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "memory kind 0x%x is unknown", kind);
    kind &= MN_MEM_KIND;
    if (kind != MN_MEM_DEVICE && kind != MN_MEM_HOST_PINNED)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "memory kind %u is unknown", kind);
    mn_buffer *b = bytes >> 46 ? NULL : (mn_buffer *)cu_new(d, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, bytes, "a buffer");
    const uint64_t n = bytes ? bytes : 4;
    b->dev = d;
    b->bytes = bytes;
    b->kind = kind;
    mn_status st = cu_check(cudaSetDevice(d->index), err, "choosing the device");
    if (!st) {
        if (kind == MN_MEM_HOST_PINNED)
            st = cu_check(cudaMallocHost((void **)&b->ptr, n), err, "pinned memory");
        else
            st = cu_check_room(cudaMalloc((void **)&b->ptr, n), n, err, "device memory");
    }
    if (!st && zeroed && kind == MN_MEM_HOST_PINNED)
        memset(b->ptr, 0, n);
    if (!st && zeroed && kind != MN_MEM_HOST_PINNED)
        st = cu_check(cudaMemset(b->ptr, 0, n), err, "zeroing");
    if (!st && zeroed && kind != MN_MEM_HOST_PINNED)
        st = cu_check(cudaStreamSynchronize(0), err, "zeroing");
    if (st)
        cu_buffer_free(b);
    else
        *out = b;
    return st;
}

mn_status cu_wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    (void)d, (void)host, (void)bytes, (void)out;
    return mnp_fail(err, MN_UNSUPPORTED, ~0u, "cuda takes no host memory as its own");
}

void cu_buffer_free(mn_buffer *b) {
    if (!b)
        return;
    cudaSetDevice(b->dev->index);
    if (b->ptr && b->kind == MN_MEM_HOST_PINNED)
        cudaFreeHost(b->ptr);
    else if (b->ptr)
        cudaFree(b->ptr);
    cu_delete(b->dev, b);
}

mn_status cu_map(mn_buffer *b, void **out, mn_error *err) {
    if (b->kind != MN_MEM_HOST_PINNED)
        return mnp_fail(err, MN_INVALID, ~0u, "map: device memory is not the host's");
    *out = b->ptr;
    return MN_OK;
}

mn_status cu_queue_create(mn_device *d, mn_queue **out, mn_error *err) {
    mn_queue *q = cu_new(d, sizeof *q);
    if (!q)
        return mnp_fail_memory(err, sizeof *q, "a queue");
    q->dev = d;
    mn_status st = cu_check(cudaSetDevice(d->index), err, "choosing the device");
    if (!st) {
        st =
            cu_check(cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking), err, "a stream");
    }
    if (!st) {
        st = cu_check(cudaMallocHost((void **)&q->ring, (size_t)CU_SEGMENTS * CU_SEGMENT_BYTES),
                      err, "pinned memory of a queue");
    }
    for (int i = 0; i < CU_SEGMENTS && !st; i++) {
        st = cu_check(cudaEventCreateWithFlags(&q->used[i], cudaEventDisableTiming), err,
                      "an event");
    }
    if (st)
        cu_queue_free(q);
    else
        *out = q;
    return st;
}

void cu_queue_free(mn_queue *q) {
    if (!q)
        return;
    cudaSetDevice(q->dev->index);
    if (q->stream)
        cudaStreamSynchronize(q->stream);
    for (int i = 0; i < CU_SEGMENTS; i++) {
        if (q->used[i])
            cudaEventDestroy(q->used[i]);
    }
    if (q->ring)
        cudaFreeHost(q->ring);
    if (q->staging)
        cudaFree(q->staging);
    if (q->stream)
        cudaStreamDestroy(q->stream);
    cu_delete(q->dev, q);
}

/* What abort promises: later calls are refused. */
mn_status cu_check_abort(const mn_queue *q, mn_error *err) {
    if (!__atomic_load_n(&q->aborted, __ATOMIC_ACQUIRE))
        return MN_OK;
    return mnp_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
}

/* src may go when this returns: it lies in the ring by then. */
mn_status cu_write(mn_queue *q, mn_buffer *b, uint64_t off, const void *src, uint64_t n,
                   mn_error *err) {
    mn_status st = cu_check_abort(q, err);
    if (!st)
        st = mnp_check_range(off, n, b->bytes, "write", err);
    if (st)
        return st;
    CU_TRY(cudaSetDevice(q->dev->index), err, "choosing the device");
    for (uint64_t at = 0; at < n;) {
        const uint32_t k = q->next++ % CU_SEGMENTS;
        const uint64_t m = n - at < CU_SEGMENT_BYTES ? n - at : (uint64_t)CU_SEGMENT_BYTES;
        char *seg = q->ring + (uint64_t)k * CU_SEGMENT_BYTES;
        if (q->pending[k])
            CU_TRY(cudaEventSynchronize(q->used[k]), err, "write");
        memcpy(seg, (const char *)src + at, m);
        CU_TRY(cudaMemcpyAsync(b->ptr + off + at, seg, m, cudaMemcpyDefault, q->stream), err,
               "write");
        CU_TRY(cudaEventRecord(q->used[k], q->stream), err, "write");
        q->pending[k] = true;
        at += m;
    }
    return MN_OK;
}

/* Not recorded yet. */
static mn_status new_event(mn_device *d, mn_event **out, mn_error *err) {
    mn_event *e = cu_new(d, sizeof *e);
    if (!e)
        return mnp_fail_memory(err, sizeof *e, "an event");
    e->dev = d;
    mn_status st =
        cu_check(cudaEventCreateWithFlags(&e->ev, cudaEventDisableTiming), err, "an event");
    if (st)
        cu_delete(d, e);
    else
        *out = e;
    return st;
}

/* At least n spares, so that a step need not make one. */
mn_status cu_events_reserve(mn_device *d, uint32_t n, mn_error *err) {
    mn_status st = MN_OK;
    pthread_mutex_lock(&d->lock);
    for (const mn_event *e = d->spare; e && n; e = e->next)
        n--;
    pthread_mutex_unlock(&d->lock);
    for (mn_event *e = NULL; n && !st; n--) {
        st = new_event(d, &e, err);
        if (!st)
            cu_event_free(e);
    }
    return st;
}

/* An event behind everything in the stream; a spare one if there is any. */
mn_status cu_event_new(mn_device *d, cudaStream_t s, mn_event **out, mn_error *err) {
    pthread_mutex_lock(&d->lock);
    mn_event *e = d->spare;
    if (e)
        d->spare = e->next;
    pthread_mutex_unlock(&d->lock);
    mn_status st = e ? MN_OK : new_event(d, &e, err);
    if (st)
        return st;
    st = cu_check(cudaEventRecord(e->ev, s), err, "an event");
    if (st)
        cu_event_free(e);
    else
        *out = e;
    return st;
}

void cu_event_free(mn_event *e) {
    if (!e)
        return;
    pthread_mutex_lock(&e->dev->lock);
    e->next = e->dev->spare;
    e->dev->spare = e;
    pthread_mutex_unlock(&e->dev->lock);
}

mn_status cu_copy(mn_queue *q, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                  uint64_t src_off, uint64_t n, mn_event **event, mn_error *err) {
    mn_status st = cu_check_abort(q, err);
    if (!st)
        st = mnp_check_range(dst_off, n, dst->bytes, "copy to", err);
    if (!st)
        st = mnp_check_range(src_off, n, src->bytes, "copy from", err);
    if (st)
        return st;
    CU_TRY(cudaSetDevice(q->dev->index), err, "choosing the device");
    CU_TRY(cudaMemcpyAsync(dst->ptr + dst_off, src->ptr + src_off, n, cudaMemcpyDefault, q->stream),
           err, "copy");
    if (event)
        return cu_event_new(q->dev, q->stream, event, err);
    return MN_OK;
}

/* Does not wait: the bytes are there when the event has passed. */
mn_status cu_read(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *host, uint64_t host_off,
                  uint64_t n, mn_event **event, mn_error *err) {
    if (host->kind != MN_MEM_HOST_PINNED)
        return mnp_fail(err, MN_INVALID, ~0u, "read goes to pinned memory");
    const mn_host *h = q->dev->plugin->host;
    const uint64_t from = h->now_ns(h->self);
    mn_status st = cu_copy(q, host, host_off, b, off, n, event, err);
    q->read_ns += h->now_ns(h->self) - from;
    q->n_reads++;
    return st;
}

/* Polls hard at first, since a step is short, then gives the core away. */
mn_status cu_wait_event(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    if (!e)
        return MN_OK;
    const mn_host *h = e->dev->plugin->host;
    const uint64_t from = h->now_ns(h->self);
    for (uint32_t i = 0;; i++) {
        cudaError_t r = cudaEventQuery(e->ev);
        if (r != cudaErrorNotReady)
            return cu_check(r, err, "waiting");
        const uint64_t past = h->now_ns(h->self) - from;
        if (past >= timeout_ns)
            return MN_TIMEOUT;
        if (past > 2000000) {
            struct timespec t = {0, 20000};
            nanosleep(&t, NULL);
        } else if (i % 16 == 15) {
            sched_yield();
        }
    }
}

mn_status cu_queue_wait(mn_queue *q, mn_event *e, mn_error *err) {
    if (e)
        return cu_check(cudaStreamWaitEvent(q->stream, e->ev, 0), err, "queue_wait");
    return MN_OK;
}

mn_status cu_abort(mn_queue *q) {
    __atomic_store_n(&q->aborted, 1, __ATOMIC_RELEASE);
    return MN_OK;
}
