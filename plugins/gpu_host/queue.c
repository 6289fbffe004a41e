/* queue.c -- queues and transfers. A queue is a stream of the backend with a ring of pinned
 * segments, through which bytes travel whose source may go (write, weights): a segment is used
 * again when the event of its last copy has passed. Nothing waits for a whole queue but its end,
 * and a copy between two pinned buffers. */
#include "gpu_table.h"

mn_status mng_queue_create(mn_device *dev, const mn_queue_params *params, mn_queue **out,
                           mn_error *err) {
    const mng_backend *b = mng_backend_of(dev);
    const uint64_t most = mng_device_of(dev)->max_alloc;
    mn_status st = mnp_check_queue(params, err);
    if (!st)
        st = mng_enter(dev, err);
    if (st)
        return st;
    mn_queue *queue = mng_new(dev, b->queue_bytes);
    if (!queue)
        return mnp_fail_memory(err, b->queue_bytes, "a queue");
    mng_queue *q = mng_queue_of(queue);
    q->dev = dev;
    q->n_segments = mng_segments(b);
    q->segment_bytes = MNG_SEGMENT_BYTES;
    if (most && q->segment_bytes > most / q->n_segments)
        q->segment_bytes = most / q->n_segments;
    if (!q->segment_bytes)
        st = mnp_fail(err, MN_OUT_OF_MEMORY, ~0u,
                      "a queue: its ring has %u segments, and an allocation at most %llu bytes",
                      q->n_segments, (unsigned long long)most);
    const mn_alloc_params ring = {
        .size = sizeof ring, .kind = MN_MEM_HOST_PINNED, .bytes = q->n_segments * q->segment_bytes};
    if (!st)
        st = mng_alloc(dev, &ring, &q->ring, err);
    if (!st) {
        st = b->queue_open(queue, err);
        q->opened = true;
    }
    if (st)
        mng_queue_free(queue);
    else
        *out = queue;
    return st;
}

void mng_queue_free(mn_queue *queue) {
    if (!queue)
        return;
    mng_queue *q = mng_queue_of(queue);
    const mng_backend *b = mng_backend_of(q->dev);
    mng_enter(q->dev, NULL);
    if (q->opened)
        b->queue_finish(queue, NULL);
    mng_watch_forget_queue(queue);
    for (int i = 0; i < MNG_SEGMENTS; i++)
        if (q->used[i])
            b->event_free(q->dev, q->used[i]);
    if (q->opened)
        b->queue_close(queue);
    mng_buffer_free(q->ring);
    mng_delete(q->dev, queue);
}

mn_status mng_check_abort(const mn_queue *q, mn_error *err) {
    if (!__atomic_load_n(&mng_queue_of(q)->aborted, __ATOMIC_ACQUIRE))
        return MN_OK;
    return mnp_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
}

mn_status mng_abort(mn_queue *q) {
    __atomic_store_n(&mng_queue_of(q)->aborted, 1, __ATOMIC_RELEASE);
    return MN_OK;
}

/* ---- through the ring ------------------------------------------------------------------------ */
mn_status mng_segment_begin(mn_queue *queue, mng_segment *s, mn_error *err) {
    mng_queue *q = mng_queue_of(queue);
    s->index = q->next++ % q->n_segments;
    s->host = q->ring->host + s->index * q->segment_bytes;
    s->room = q->segment_bytes;
    const mn_status st = mng_check_abort(queue, err);
    if (st || !q->pending[s->index])
        return st;
    q->pending[s->index] = false;
    return mng_backend_of(q->dev)->event_wait(q->dev, q->used[s->index], err);
}

mn_status mng_segment_send(mn_queue *queue, const mng_segment *s, mng_ref to, uint64_t n,
                           mn_error *err) {
    mng_queue *q = mng_queue_of(queue);
    const mng_backend *b = mng_backend_of(q->dev);
    const mn_status st = b->copy_in(queue, to, s->host, n, &q->used[s->index], err);
    q->pending[s->index] = !st;
    return st;
}

mn_status mng_send(mn_queue *queue, mng_ref to, const void *from, uint64_t n, mn_error *err) {
    const char *src = from;
    mn_status st = MN_OK;
    for (uint64_t done = 0; done < n && !st;) {
        mng_segment s;
        st = mng_segment_begin(queue, &s, err);
        if (st)
            break;
        const uint64_t m = n - done < s.room ? n - done : s.room;
        memcpy(s.host, src + done, m);
        st = mng_segment_send(queue, &s, (mng_ref){to.mem, to.at + done}, m, err);
        done += m;
    }
    return st;
}

/* ---- buffers --------------------------------------------------------------------------------- */
mn_status mng_write(mn_queue *queue, mn_buffer *b, uint64_t off, const void *src, uint64_t n,
                    mn_error *err) {
    mn_status st = mng_check_abort(queue, err);
    if (!st)
        st = mnp_check_range(off, n, b->bytes, "write", err);
    if (!st)
        st = mng_check_buffer(mng_queue_of(queue)->dev, b, err);
    if (st || !n)
        return st;
    st = mng_enter(mng_queue_of(queue)->dev, err);
    for (uint64_t done = 0; done < n && !b->host && !st;) {
        mng_ref to;
        const uint64_t there = mng_place_in(b, off + done, &to);
        const uint64_t m = n - done < there ? n - done : there;
        st = mng_send(queue, to, (const char *)src + done, m, err);
        done += m;
    }
    if (!b->host || st)
        return st;
    st = mng_backend_of(mng_queue_of(queue)->dev)->queue_finish(queue, err);
    if (!st)
        memcpy(b->host + off, src, n);
    return st;
}

/* The first of n bytes, as many as lie in one piece on both sides: *done. */
static mn_status copy_piece(mn_queue *queue, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                            uint64_t src_off, uint64_t n, uint64_t *done, mn_error *err) {
    const mng_backend *b = mng_backend_of(dst->dev);
    mng_ref to;
    mng_ref from;
    const uint64_t there = mng_place_in(dst, dst_off, &to);
    const uint64_t here = mng_place_in(src, src_off, &from);
    const uint64_t both = here < there ? here : there;
    const uint64_t m = n < both ? n : both;
    *done = m;
    if (dst->host)
        return b->copy_out(queue, dst->host + dst_off, from, m, err);
    if (src->host)
        return b->copy_in(queue, to, src->host + src_off, m, NULL, err);
    return b->copy(queue, to, from, m, err);
}

static mn_status copy_all(mn_queue *queue, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                          uint64_t src_off, uint64_t n, mn_error *err) {
    mn_status st = MN_OK;
    if (dst->host && src->host) {
        /* no command may read and write two mapped buffers */
        st = mng_backend_of(dst->dev)->queue_finish(queue, err);
        if (!st)
            memmove(dst->host + dst_off, src->host + src_off, n);
        return st;
    }
    for (uint64_t all = 0; all < n && !st;) {
        uint64_t done = 0;
        st = copy_piece(queue, dst, dst_off + all, src, src_off + all, n - all, &done, err);
        all += done;
    }
    return st;
}

/* Both ranges in their buffers, those in memory of the queue's device; within one buffer of device
 * memory apart: no vendor says what a copy onto itself leaves. */
static mn_status check_copy(mn_queue *queue, const mn_buffer *dst, uint64_t dst_off,
                            const mn_buffer *src, uint64_t src_off, uint64_t n, mn_error *err) {
    const mn_device *own = mng_queue_of(queue)->dev;
    mn_status st = mnp_check_range(dst_off, n, dst->bytes, "copy to", err);
    if (!st)
        st = mnp_check_range(src_off, n, src->bytes, "copy from", err);
    if (!st)
        st = mng_check_buffer(own, dst, err);
    if (!st)
        st = mng_check_buffer(own, src, err);
    const bool apart = dst_off + n <= src_off || src_off + n <= dst_off;
    if (st || dst != src || dst->host || apart || !n)
        return st;
    return mnp_fail(
        err, MN_INVALID, ~0u, "copy: %llu bytes from %llu to %llu of one buffer, which overlap",
        (unsigned long long)n, (unsigned long long)src_off, (unsigned long long)dst_off);
}

mn_status mng_copy(mn_queue *queue, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                   uint64_t src_off, uint64_t n, mn_event **event, mn_error *err) {
    mn_status st = mng_check_abort(queue, err);
    if (!st)
        st = check_copy(queue, dst, dst_off, src, src_off, n, err);
    if (!st)
        st = mng_enter(mng_queue_of(queue)->dev, err);
    if (!st && n)
        st = copy_all(queue, dst, dst_off, src, src_off, n, err);
    if (st || !event)
        return st;
    return mng_event_new(queue, event, err);
}

/* Does not wait: the bytes are there when the event has passed. */
mn_status mng_read(mn_queue *queue, const mn_buffer *b, uint64_t off, mn_buffer *host,
                   uint64_t host_off, uint64_t n, mn_event **event, mn_error *err) {
    mng_queue *q = mng_queue_of(queue);
    if (!host->host)
        return mnp_fail(err, MN_INVALID, ~0u, "read goes to pinned memory");
    const mn_host *h = mng_device_of(q->dev)->host;
    const uint64_t from = h->now_ns(h->self);
    const mn_status st = mng_copy(queue, host, host_off, b, off, n, event, err);
    q->read_ns += h->now_ns(h->self) - from;
    q->n_reads++;
    return st;
}
