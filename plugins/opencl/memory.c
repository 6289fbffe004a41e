/* memory.c -- memory of the device and of the host. Device memory is a cl_mem; pinned memory is one
 * that the driver allocates on the host, mapped from its creation to its end, so that transfers to
 * it need no copy. Where the device's memory is the host's, memory that the host already has can be
 * pinned memory, too. */
#include "opencl.h"

static size_t rounded(uint64_t bytes) {
    return (size_t)mnp_round((int64_t)(bytes ? bytes : 1), 64); /* OpenCL fills in patterns */
}

static mn_status memory_fill(mn_device *d, cl_mem mem, uint64_t bytes, const char *what,
                             mn_error *err) {
    const cl_uint zero = 0;
    cl_event filled = NULL;
    const cl_int code = d->cl->EnqueueFillBuffer(d->own, mem, &zero, sizeof zero, 0, rounded(bytes),
                                                 0, NULL, &filled);
    mn_status st = ocl_check_room(code, bytes, err, what);
    if (!st) {
        st = ocl_check_room(d->cl->WaitForEvents(1, &filled), bytes, err, what);
        d->cl->ReleaseEvent(filled);
    }
    return st;
}

static mn_status memory_take(mn_device *d, uint64_t bytes, const char *what, bool fills,
                             cl_mem *out, mn_error *err) {
    cl_int code;
    mn_status st = ocl_start(d, err);
    if (st)
        return st;
    /* where memory is shared, drivers map what they allocated as the host's without a copy */
    const cl_mem_flags where = d->base.maps ? CL_MEM_ALLOC_HOST_PTR : 0;
    cl_mem mem =
        d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE | where, rounded(bytes), NULL, &code);
    if (!mem)
        return ocl_check_room(code, bytes, err, what);
    if (fills)
        st = memory_fill(d, mem, bytes, what, err);
    if (st)
        d->cl->ReleaseMemObject(mem);
    else
        *out = mem;
    return st;
}

mn_status ocl_take_memory(mn_device *d, uint64_t bytes, const char *what, cl_mem *out,
                          mn_error *err) {
    return memory_take(d, bytes, what, true, out, err);
}

mn_status ocl_take_written(mn_device *d, uint64_t bytes, const char *what, cl_mem *out,
                           mn_error *err) {
    return memory_take(d, bytes, what, mng_option(d->base.host, "fill", 1), out, err);
}

mn_status ocl_memory_alloc(mn_device *d, uint64_t bytes, uint32_t how, const char *what, void **mem,
                           mn_error *err) {
    cl_mem made;
    mn_status st;
    if (how == MNG_WRITTEN)
        st = ocl_take_written(d, bytes, what, &made, err);
    else
        st = ocl_take_memory(d, bytes, what, &made, err);
    if (!st)
        *mem = made;
    return st;
}

/* The count is raised before the handle may be used again: arguments that are kept name handles. */
void ocl_memory_free(mn_device *d, void *mem) {
    atomic_fetch_add(&d->freed, 1);
    d->cl->ReleaseMemObject(mem);
}

mn_status ocl_pinned_alloc(mn_device *d, uint64_t bytes, void **mem, char **host, mn_error *err) {
    const size_t n = rounded(bytes);
    cl_int code;
    const mn_status st = ocl_start(d, err);
    if (st)
        return st;
    cl_mem made =
        d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, n, NULL, &code);
    if (!made)
        return ocl_check_room(code, bytes, err, "pinned memory");
    *host = d->cl->EnqueueMapBuffer(d->own, made, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, n, 0,
                                    NULL, NULL, &code);
    if (!*host) {
        d->cl->ReleaseMemObject(made);
        return ocl_check_room(code, bytes, err, "pinned memory");
    }
    *mem = made;
    memset(*host, 0, n);
    return MN_OK;
}

void ocl_pinned_free(mn_device *d, void *mem, char *host) {
    d->cl->EnqueueUnmapMemObject(d->own, mem, host, 0, NULL, NULL);
    d->cl->Finish(d->own);
    ocl_memory_free(d, mem);
}

/* ---- memory of the host's own ---------------------------------------------------------------- */
/* Drivers of GPUs use whole pages in place, and copy others. */
static bool is_in_place(const mn_device *d, const char *host, uint64_t bytes) {
    enum { PAGE = 4096, LINE = 64 };
    if (!d->base.maps)
        return false;
    return d->is_cpu || ((uintptr_t)host % PAGE == 0 && bytes % LINE == 0);
}

mn_status ocl_wrap(mn_device *d, char *host, uint64_t bytes, void **mem, mn_error *err) {
    cl_int code;
    if (!is_in_place(d, host, bytes))
        return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                        "%s does not use %llu bytes of host memory at %p in place", d->base.name,
                        (unsigned long long)bytes, (void *)host);
    const mn_status st = ocl_start(d, err);
    if (st)
        return st;
    cl_mem made = d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes,
                                      host, &code);
    if (!made)
        return ocl_check_room(code, bytes, err, "memory of the host");
    const char *at = d->cl->EnqueueMapBuffer(d->own, made, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                             bytes, 0, NULL, NULL, &code);
    if (at == host) {
        *mem = made;
        return MN_OK;
    }
    d->cl->ReleaseMemObject(made);
    return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%s maps host memory elsewhere", d->base.name);
}

void ocl_unwrap(mn_device *d, void *mem, char *host) {
    ocl_pinned_free(d, mem, host);
}
