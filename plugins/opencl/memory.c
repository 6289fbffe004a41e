/* memory.c -- buffers. Device memory is a cl_mem; pinned memory is one that the driver allocates on
 * the host, mapped from its creation to its end, so that transfers to it need no copy. */
#include "backend.h"

/* Zeroed. OpenCL fills in patterns: sizes are rounded up to one. */
mn_status ocl_take_memory(mn_device *d, uint64_t bytes, const char *what, cl_mem *out,
                          mn_error *err) {
    const cl_uint zero = 0;
    const size_t n = (size_t)mnp_round((int64_t)(bytes ? bytes : 1), 64);
    cl_int code;
    cl_event filled = NULL;
    mn_status st = ocl_start(d, err);
    if (st)
        return st;
    cl_mem mem = d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE, n, NULL, &code);
    if (!mem)
        return ocl_check_room(code, bytes, err, what);
    code = d->cl->EnqueueFillBuffer(d->own, mem, &zero, sizeof zero, 0, n, 0, NULL, &filled);
    st = ocl_check_room(code, bytes, err, what);
    if (!st) {
        st = ocl_check_room(d->cl->WaitForEvents(1, &filled), bytes, err, what);
        d->cl->ReleaseEvent(filled);
    }
    if (st)
        d->cl->ReleaseMemObject(mem);
    else
        *out = mem;
    return st;
}

static mn_status take_pinned(mn_buffer *b, mn_error *err) {
    mn_device *d = b->dev;
    const size_t n = (size_t)mnp_round((int64_t)(b->bytes ? b->bytes : 1), 64);
    cl_int code;
    const mn_status st = ocl_start(d, err);
    if (st)
        return st;
    b->mem =
        d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, n, NULL, &code);
    if (!b->mem)
        return ocl_check_room(code, b->bytes, err, "pinned memory");
    b->host = d->cl->EnqueueMapBuffer(d->own, b->mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, n, 0,
                                      NULL, NULL, &code);
    if (!b->host)
        return ocl_check_room(code, b->bytes, err, "pinned memory");
    memset(b->host, 0, n);
    return MN_OK;
}

mn_status ocl_alloc(mn_device *d, uint64_t bytes, uint32_t kind, mn_buffer **out, mn_error *err) {
    const uint32_t where = kind & MN_MEM_KIND;
    if (kind & ~(MN_MEM_KIND | MN_MEM_UNZEROED))
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "memory kind 0x%x is unknown", kind);
    if (where != MN_MEM_DEVICE && where != MN_MEM_HOST_PINNED)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "memory kind %u is unknown", where);
    if (bytes >> 46)
        return mnp_fail_memory(err, bytes, "a buffer");
    if (d->max_alloc && bytes > d->max_alloc)
        return mnp_fail(err, MN_OUT_OF_MEMORY, ~0u,
                        "a buffer of %.1f MiB; the driver gives at most %.1f at once",
                        (double)bytes / 1048576, (double)d->max_alloc / 1048576);
    mn_buffer *b = ocl_new(d, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a buffer");
    b->dev = d;
    b->bytes = bytes;
    b->kind = where;
    mn_status st;
    if (where == MN_MEM_HOST_PINNED)
        st = take_pinned(b, err);
    else
        st = ocl_take_memory(d, bytes, "device memory", &b->mem, err);
    if (st)
        ocl_buffer_free(b);
    else
        *out = b;
    return st;
}

mn_status ocl_wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    (void)d;
    (void)host;
    (void)bytes;
    (void)out;
    return mnp_fail(err, MN_UNSUPPORTED, ~0u, "opencl takes no host memory as its own");
}

/* Whoever gets the handle again has to find the count raised: arguments that are kept name
 * handles. */
void ocl_buffer_free(mn_buffer *b) {
    if (!b)
        return;
    const ocl_icd *cl = b->dev->cl;
    atomic_fetch_add(&b->dev->freed, 1);
    if (b->host) {
        cl->EnqueueUnmapMemObject(b->dev->own, b->mem, b->host, 0, NULL, NULL);
        cl->Finish(b->dev->own);
    }
    if (b->mem)
        cl->ReleaseMemObject(b->mem);
    ocl_delete(b->dev, b);
}

mn_status ocl_map(mn_buffer *b, void **out, mn_error *err) {
    if (b->kind != MN_MEM_HOST_PINNED)
        return mnp_fail(err, MN_INVALID, ~0u, "map: device memory is not the host's");
    *out = b->host;
    return MN_OK;
}
