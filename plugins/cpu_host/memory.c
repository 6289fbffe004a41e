/* memory.c -- buffers are host memory, those that are large and zeroed fresh pages of the system;
 * queues do everything at once; the one event is always over. */
#include "mnc.h"
#include <sys/mman.h>

/* Zeroed buffers from here on are mapped: a page takes memory, and the time to clear it, when it is
 * first used. A cache for a long context is mostly never used. */
#define MAPPED_BYTES (64u << 20)
/* The same of memory that is interleaved. */
#define INTERLEAVED_BYTES (1u << 20)
#define MAPPED_ALIGN 4096u

/* align: 0 to MAPPED_ALIGN. */
static bool memory_allocate(mn_buffer *b, bool zeroed, uint64_t align) {
    const mn_host *h = b->dev->plugin->host;
    mnc_numa *numa = b->dev->plugin->numa;
    b->owned = true;
    if (numa && b->bytes >= INTERLEAVED_BYTES) {
        b->ptr = mnc_numa_pages(numa, b->bytes);
        b->owned = false;
        b->mapped = true;
        return b->ptr != NULL;
    }
    if (!zeroed || b->bytes < MAPPED_BYTES) {
        b->ptr = h->alloc(h->self, b->bytes ? b->bytes : 1, align > MNC_ALIGN ? align : MNC_ALIGN);
        if (b->ptr && zeroed)
            memset(b->ptr, 0, b->bytes);
        return b->ptr != NULL;
    }
    const int how = MAP_PRIVATE | MAP_ANONYMOUS;
    void *pages = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, how, -1, 0);
    if (pages == MAP_FAILED)
        return false;
    b->ptr = pages;
    b->owned = false;
    b->mapped = true;
    return true;
}

/* All kinds of memory are the same here: the host's. */
mn_status mnc_alloc(mn_device *d, const mn_alloc_params *in, mn_buffer **out, mn_error *err) {
    mn_alloc_params a;
    mn_status st = mnp_read_alloc(in, MAPPED_ALIGN, &a, err);
    if (st)
        return st;
    mn_buffer *b = mnc_new(d, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a buffer");
    *b = (mn_buffer){.dev = d, .bytes = a.bytes};
    if (!memory_allocate(b, !(a.flags & MN_ALLOC_UNZEROED), a.align)) {
        mnc_delete(d, b);
        return mnp_fail_memory(err, a.bytes, "a buffer");
    }
    *out = b;
    return MN_OK;
}

/* The caller's bytes; freeing the buffer leaves them alone. */
mn_status mnc_wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    mn_buffer *b = mnc_new(d, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a buffer");
    *b = (mn_buffer){.dev = d, .ptr = host, .bytes = bytes};
    *out = b;
    return MN_OK;
}

void mnc_buffer_free(mn_buffer *b) {
    if (!b)
        return;
    if (b->owned)
        mnc_delete(b->dev, b->ptr);
    if (b->mapped)
        munmap(b->ptr, b->bytes);
    mnc_delete(b->dev, b);
}

mn_status mnc_map(mn_buffer *b, void **out, mn_error *err) {
    (void)err;
    *out = b->ptr;
    return MN_OK;
}

mn_status mnc_queue_create(mn_device *d, const mn_queue_params *params, mn_queue **out,
                           mn_error *err) {
    const mn_status st = mnp_check_queue(params, err);
    if (st)
        return st;
    mn_queue *q = mnc_new(d, sizeof *q);
    if (!q)
        return mnp_fail_memory(err, sizeof *q, "a queue");
    q->dev = d;
    atomic_init(&q->aborted, false);
    *out = q;
    return MN_OK;
}

void mnc_queue_free(mn_queue *q) {
    if (q)
        mnc_delete(q->dev, q);
}

mn_status mnc_check_abort(mn_queue *q, mn_error *err) {
    if (!atomic_load(&q->aborted))
        return MN_OK;
    return mnp_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
}

mn_status mnc_write(mn_queue *q, mn_buffer *b, uint64_t off, const void *src, uint64_t n,
                    mn_error *err) {
    mn_status s = mnc_check_abort(q, err);
    if (!s)
        s = mnp_check_range(off, n, b->bytes, "write", err);
    if (!s && n)
        memcpy(b->ptr + off, src, n);
    return s;
}

/* Ranges may overlap. Done when it returns, like everything here: events are over at once. */
mn_status mnc_copy(mn_queue *q, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                   uint64_t src_off, uint64_t n, mn_event **ev, mn_error *err) {
    mn_status s = mnc_check_abort(q, err);
    if (!s)
        s = mnp_check_range(src_off, n, src->bytes, "copy from", err);
    if (!s)
        s = mnp_check_range(dst_off, n, dst->bytes, "copy to", err);
    if (s)
        return s;
    if (n)
        memmove(dst->ptr + dst_off, src->ptr + src_off, n);
    if (ev)
        *ev = NULL; /* complete already */
    return MN_OK;
}

mn_status mnc_read(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *to, uint64_t to_off,
                   uint64_t n, mn_event **ev, mn_error *err) {
    return mnc_copy(q, to, to_off, b, off, n, ev, err);
}

mn_status mnc_wait(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    (void)e;
    (void)timeout_ns;
    (void)err;
    return MN_OK;
}
mn_status mnc_queue_wait(mn_queue *q, mn_event *e, mn_error *err) {
    (void)q;
    (void)e;
    (void)err;
    return MN_OK;
}
void mnc_event_free(mn_event *e) {
    (void)e;
}
/* Whoever has an event has it after the work. */
mn_status mnc_event_on_ready(mn_event *e, void (*fn)(void *arg, mn_status), void *arg,
                             mn_error *err) {
    (void)e;
    (void)err;
    fn(arg, MN_OK);
    return MN_OK;
}
/* From any thread: the step that runs ends behind the node that it is at, later ones do not
 * begin. */
mn_status mnc_abort(mn_queue *q) {
    atomic_store(&q->aborted, true);
    return MN_OK;
}
