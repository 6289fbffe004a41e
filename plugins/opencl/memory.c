/* memory.c -- buffers. Device memory is a cl_mem; pinned memory is one that the driver allocates on
 * the host, mapped from its creation to its end, so that transfers to it need no copy. */
#include "backend.h"

static size_t rounded(uint64_t bytes) {
    return (size_t)mnp_round((int64_t)(bytes ? bytes : 1), 64); /* OpenCL fills in patterns */
}

static mn_status fill(mn_device *d, cl_mem mem, uint64_t bytes, const char *what, mn_error *err) {
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

static mn_status take(mn_device *d, uint64_t bytes, const char *what, bool fills, cl_mem *out,
                      mn_error *err) {
    cl_int code;
    mn_status st = ocl_start(d, err);
    if (st)
        return st;
    /* where memory is shared, drivers map what they allocated as the host's without a copy */
    const cl_mem_flags where = d->shares_host ? CL_MEM_ALLOC_HOST_PTR : 0;
    cl_mem mem =
        d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE | where, rounded(bytes), NULL, &code);
    if (!mem)
        return ocl_check_room(code, bytes, err, what);
    if (fills)
        st = fill(d, mem, bytes, what, err);
    if (st)
        d->cl->ReleaseMemObject(mem);
    else
        *out = mem;
    return st;
}

mn_status ocl_take_memory(mn_device *d, uint64_t bytes, const char *what, cl_mem *out,
                          mn_error *err) {
    return take(d, bytes, what, true, out, err);
}

mn_status ocl_take_written(mn_device *d, uint64_t bytes, const char *what, cl_mem *out,
                           mn_error *err) {
    return take(d, bytes, what, ocl_option(d->plugin->host, "fill", 1), out, err);
}

static mn_status take_pinned(mn_buffer *b, mn_error *err) {
    mn_device *d = b->dev;
    const size_t n = rounded(b->bytes);
    cl_int code;
    const mn_status st = ocl_start(d, err);
    if (st)
        return st;
    b->mem[0] =
        d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, n, NULL, &code);
    if (!b->mem[0])
        return ocl_check_room(code, b->bytes, err, "pinned memory");
    b->host = d->cl->EnqueueMapBuffer(d->own, b->mem[0], CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, n,
                                      0, NULL, NULL, &code);
    if (!b->host)
        return ocl_check_room(code, b->bytes, err, "pinned memory");
    memset(b->host, 0, n);
    return MN_OK;
}

/* Bytes that a part of a cache has room for, whatever the size of a page. */
static uint64_t least_room(const mn_device *d) {
    const uint64_t most = d->max_buffer;
    const uint64_t page = atomic_load(&d->kv_page);
    if (page < most / 2)
        return most - page;
    return most / 2;
}

/* How many parts a buffer has; 0: too many. Pages are asked about before the cache is made: without
 * any there is none. */
static uint64_t parts_of(const mn_device *d, uint64_t bytes, uint32_t where) {
    const bool has_cache = atomic_load(&d->kv_page) && where == MN_MEM_DEVICE;
    const uint64_t most = has_cache ? d->max_buffer : d->max_alloc;
    if (bytes <= most || !most)
        return 1;
    const uint64_t room = least_room(d);
    const uint64_t n = room ? bytes / room + (bytes % room != 0) : UINT64_MAX;
    if (has_cache && n <= OCL_KV_PARTS)
        return n;
    return 0;
}

static mn_status fail_size(const mn_device *d, uint64_t bytes, mn_error *err) {
    return mnp_fail(err, MN_OUT_OF_MEMORY, ~0u,
                    "a buffer of %.1f MiB; the driver gives at most %.1f at once; a cache of keys "
                    "and values may lie in %d of them",
                    (double)bytes / 1048576, (double)d->max_buffer / 1048576, OCL_KV_PARTS);
}

/* The last part has what the others may have no room for. */
static mn_status take_parts(mn_buffer *b, mn_error *err) {
    mn_device *d = b->dev;
    mn_status st = MN_OK;
    uint64_t left = b->bytes;
    if (b->n_parts > 1) {
        b->part_bytes = d->max_buffer;
        b->least_room = least_room(d);
        b->room = b->least_room;
    }
    for (uint32_t i = 0; i < b->n_parts && !st; i++) {
        const bool is_last = i + 1 == b->n_parts;
        const uint64_t bytes = is_last ? left : b->part_bytes;
        st = ocl_take_memory(d, bytes, "device memory", &b->mem[i], err);
        left -= is_last ? left : b->room;
    }
    return st;
}

uint64_t ocl_place_in(const mn_buffer *b, uint64_t at, ocl_ref *out) {
    if (b->n_parts == 1) {
        *out = (ocl_ref){b->mem[0], at};
        return b->bytes - at;
    }
    *out = (ocl_ref){b->mem[at / b->room], at % b->room};
    return b->room - at % b->room;
}

mn_status ocl_alloc(mn_device *d, uint64_t bytes, uint32_t kind, mn_buffer **out, mn_error *err) {
    const uint32_t where = kind & MN_MEM_KIND;
    if (kind & ~(MN_MEM_KIND | MN_MEM_UNZEROED))
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "memory kind 0x%x is unknown", kind);
    if (where != MN_MEM_DEVICE && where != MN_MEM_HOST_PINNED)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "memory kind %u is unknown", where);
    if (bytes >> 46)
        return mnp_fail_memory(err, bytes, "a buffer");
    const uint64_t n_parts = parts_of(d, bytes, where);
    if (!n_parts)
        return fail_size(d, bytes, err);
    mn_buffer *b = ocl_new(d, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a buffer");
    b->dev = d;
    b->bytes = bytes;
    b->kind = where;
    b->n_parts = (uint32_t)n_parts;
    b->part_bytes = bytes;
    b->room = bytes;
    mn_status st;
    if (where == MN_MEM_HOST_PINNED)
        st = take_pinned(b, err);
    else
        st = take_parts(b, err);
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
        cl->EnqueueUnmapMemObject(b->dev->own, b->mem[0], b->host, 0, NULL, NULL);
        cl->Finish(b->dev->own);
    }
    for (uint32_t i = 0; i < b->n_parts; i++)
        if (b->mem[i])
            cl->ReleaseMemObject(b->mem[i]);
    ocl_delete(b->dev, b);
}

mn_status ocl_map(mn_buffer *b, void **out, mn_error *err) {
    if (b->kind != MN_MEM_HOST_PINNED)
        return mnp_fail(err, MN_INVALID, ~0u, "map: device memory is not the host's");
    *out = b->host;
    return MN_OK;
}
