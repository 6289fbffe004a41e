/* memory.c -- memory, streams and events of CUDA as gpu_host wants them. Addresses of device memory
 * and of pinned memory are one space: a handle of either is its address. */
#include "cu.h"
#include <unistd.h>

/* ---- memory ---------------------------------------------------------------------------------- */
/* 0 bytes are memory, too. Zeros are there when this returns, for all streams. */
mn_status cu_memory_alloc(mn_device *d, uint64_t bytes, uint32_t how, const char *what, void **mem,
                          mn_error *err) {
    const uint64_t n = bytes ? bytes : 4;
    (void)d;
    mn_status st = cu_check_room(cudaMalloc(mem, n), n, err, what);
    if (st || how != MNG_ZEROED)
        return st;
    st = cu_check(cudaMemset(*mem, 0, n), err, "zeroing");
    if (!st)
        st = cu_check(cudaStreamSynchronize(0), err, "zeroing");
    return st;
}

void cu_memory_free(mn_device *d, void *mem) {
    (void)d;
    cudaFree(mem);
}

mn_status cu_pinned_alloc(mn_device *d, uint64_t bytes, void **mem, char **host, mn_error *err) {
    const uint64_t n = bytes ? bytes : 4;
    (void)d;
    CU_TRY(cudaMallocHost(mem, n), err, "pinned memory");
    memset(*mem, 0, n);
    *host = *mem;
    return MN_OK;
}

void cu_pinned_free(mn_device *d, void *mem, char *host) {
    (void)d;
    (void)host;
    cudaFreeHost(mem);
}

/* The page that an address lies in. */
static char *page_of(const char *at) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return (char *)(uintptr_t)at - (uintptr_t)at % page;
}

/* Whole pages are registered: MN_UNSUPPORTED where a page is registered already, is read-only, or
 * may not be locked. */
mn_status cu_wrap(mn_device *d, char *host, uint64_t bytes, void **mem, mn_error *err) {
    char *first = page_of(host);
    const uint64_t n = (uint64_t)(page_of(host + bytes + sysconf(_SC_PAGESIZE) - 1) - first);
    void *at = NULL;
    (void)d;
    cudaError_t e = cudaHostRegister(first, n, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                        "%llu bytes of host memory at %p: %s (CUDA error %d)",
                        (unsigned long long)bytes, (void *)host, cudaGetErrorString(e), (int)e);
    }
    e = cudaHostGetDevicePointer(&at, first, 0);
    if (e != cudaSuccess) {
        cudaHostUnregister(first);
        return cu_check(e, err, "memory of the host");
    }
    *mem = (char *)at + (host - first);
    return MN_OK;
}

void cu_unwrap(mn_device *d, void *mem, char *host) {
    (void)d;
    (void)mem;
    cudaHostUnregister(page_of(host));
}

/* ---- queues ---------------------------------------------------------------------------------- */
mn_status cu_queue_open(mn_queue *q, mn_error *err) {
    return cu_check(cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking), err, "a stream");
}

void cu_queue_close(mn_queue *q) {
    if (q->staging)
        cudaFree(q->staging);
    if (q->stream)
        cudaStreamDestroy(q->stream);
}

mn_status cu_queue_finish(mn_queue *q, mn_error *err) {
    return cu_check(cudaStreamSynchronize(q->stream), err, "waiting for a queue");
}

static mn_status copy_bytes(mn_queue *q, void *to, const void *from, uint64_t n, mn_error *err) {
    return cu_check(cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, q->stream), err, "a copy");
}

mn_status cu_copy_in(mn_queue *q, mng_ref to, const char *host, uint64_t n, void **event,
                     mn_error *err) {
    mn_status st = copy_bytes(q, (char *)to.mem + to.at, host, n, err);
    if (!st && event)
        st = cu_event_record(q, event, err);
    return st;
}

mn_status cu_copy_out(mn_queue *q, char *host, mng_ref from, uint64_t n, mn_error *err) {
    return copy_bytes(q, host, (char *)from.mem + from.at, n, err);
}

mn_status cu_copy(mn_queue *q, mng_ref to, mng_ref from, uint64_t n, mn_error *err) {
    return copy_bytes(q, (char *)to.mem + to.at, (char *)from.mem + from.at, n, err);
}

/* ---- events ---------------------------------------------------------------------------------- */
mn_status cu_event_make(mn_device *d, void **event, mn_error *err) {
    cudaEvent_t e = NULL;
    (void)d;
    CU_TRY(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), err, "an event");
    *event = e;
    return MN_OK;
}

/* An event is recorded again and again. */
mn_status cu_event_record(mn_queue *q, void **event, mn_error *err) {
    mn_status st = MN_OK;
    if (!*event)
        st = cu_event_make(q->base.dev, event, err);
    if (!st)
        st = cu_check(cudaEventRecord(*event, q->stream), err, "an event");
    return st;
}

mn_status cu_event_poll(mn_device *d, void *event, bool *passed, mn_error *err) {
    const cudaError_t e = cudaEventQuery(event);
    (void)d;
    *passed = e == cudaSuccess;
    if (e == cudaErrorNotReady)
        return MN_OK;
    return cu_check(e, err, "waiting");
}

mn_status cu_event_wait(mn_device *d, void *event, mn_error *err) {
    (void)d;
    return cu_check(cudaEventSynchronize(event), err, "waiting");
}

mn_status cu_event_join(mn_queue *q, void *event, mn_error *err) {
    return cu_check(cudaStreamWaitEvent(q->stream, event, 0), err, "queue_wait");
}

void cu_event_free(mn_device *d, void *event) {
    (void)d;
    cudaEventDestroy(event);
}

/* ---- who is told of an event ----------------------------------------------------------------- */
/* A stream that waits for one event at a time, and calls back behind it: of two events that are
 * under way each has its own, so that none waits for the other. They stay until the device is
 * closed. */
struct cu_teller {
    cu_teller *next;
    cudaStream_t stream;
    void (*fn)(void *arg, mn_status status);
    void *arg;
    int busy; /* atomic */
};

/* On a thread of the driver, where nothing of CUDA may be called. Last of all fn: the host may
 * close the device then. */
static void CUDART_CB tell(cudaStream_t stream, cudaError_t e, void *arg) {
    cu_teller *t = arg;
    const cu_teller told = *t;
    (void)stream;
    __atomic_store_n(&t->busy, 0, __ATOMIC_RELEASE);
    told.fn(told.arg, e == cudaSuccess ? MN_OK : MN_DEVICE_LOST);
}

/* One that is free, or a new one: busy. */
static mn_status take_teller(mn_device *d, cu_teller **out, mn_error *err) {
    mn_status st = MN_OK;
    pthread_mutex_lock(&d->base.lock);
    cu_teller *t = d->tellers;
    while (t && __atomic_load_n(&t->busy, __ATOMIC_ACQUIRE))
        t = t->next;
    if (!t) {
        t = mng_new(d, sizeof *t);
        if (t)
            st = cu_check(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking), err,
                          "a stream");
        else
            st = mnp_fail_memory(err, sizeof *t, "a stream");
        if (st) {
            mng_delete(d, t);
        } else {
            t->next = d->tellers;
            d->tellers = t;
        }
    }
    if (!st) {
        t->busy = 1;
        *out = t;
    }
    pthread_mutex_unlock(&d->base.lock);
    return st;
}

/* cudaLaunchHostFunc would call nobody once a device is lost. */
mn_status cu_event_tell(mn_device *d, void *event, void (*fn)(void *, mn_status), void *arg,
                        mn_error *err) {
    cu_teller *t;
    mn_status st = take_teller(d, &t, err);
    if (st)
        return st;
    t->fn = fn;
    t->arg = arg;
    st = cu_check(cudaStreamWaitEvent(t->stream, event, 0), err, "event_on_ready");
    if (!st)
        st = cu_check(cudaStreamAddCallback(t->stream, tell, t, 0), err, "event_on_ready");
    if (st)
        __atomic_store_n(&t->busy, 0, __ATOMIC_RELEASE);
    return st;
}

void cu_tellers_free(mn_device *d) {
    for (cu_teller *t = d->tellers; t; t = d->tellers) {
        d->tellers = t->next;
        cudaStreamDestroy(t->stream);
        mng_delete(d, t);
    }
}
