/* memory.c -- buffers: device memory, in several parts where it is a cache that is larger than one
 * allocation may be, or pinned memory of the host. A buffer belongs to the host that asked for
 * it. */
#include "gpu_table.h"

/* Bytes that a part of a cache has room for, whatever the size of a page. */
static uint64_t least_room(const mng_device *d) {
    const uint64_t most = d->max_buffer;
    const uint64_t page = __atomic_load_n(&d->kv_page, __ATOMIC_RELAXED);
    if (page < most / 2)
        return most - page;
    return most / 2;
}

/* How many parts a buffer has; 0: too many. Pages are asked about before the cache is made: without
 * any there is none. */
static uint64_t parts_of(const mng_device *d, uint64_t bytes, uint32_t where) {
    const bool has_cache = __atomic_load_n(&d->kv_page, __ATOMIC_RELAXED) && where == MN_MEM_DEVICE;
    const uint64_t most = has_cache ? d->max_buffer : d->max_alloc;
    if (bytes <= most || !most)
        return 1;
    const uint64_t room = least_room(d);
    const uint64_t n = room ? bytes / room + (bytes % room != 0) : UINT64_MAX;
    if (has_cache && n <= MNG_MAX_PARTS)
        return n;
    return 0;
}

static mn_status fail_size(const mng_device *d, uint64_t bytes, mn_error *err) {
    return mnp_fail(err, MN_OUT_OF_MEMORY, ~0u,
                    "a buffer of %.1f MiB; the driver gives at most %.1f at once; a cache of keys "
                    "and values may lie in %d of them",
                    (double)bytes / 1048576, (double)d->max_buffer / 1048576, MNG_MAX_PARTS);
}

/* The last part has what the others may have no room for. */
static mn_status alloc_parts(mn_buffer *b, uint32_t how, mn_error *err) {
    const mng_device *d = mng_device_of(b->dev);
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
        st = d->backend->memory_alloc(b->dev, bytes, how, "device memory", &b->mem[i], err);
        left -= is_last ? left : b->room;
    }
    return st;
}

mn_status mng_alloc(mn_device *dev, const mn_alloc_params *in, mn_buffer **out, mn_error *err) {
    const mng_backend *backend = mng_backend_of(dev);
    mn_alloc_params a;
    mn_status st = mnp_read_alloc(in, MNG_ALIGN, &a, err);
    if (st)
        return st;
    const uint64_t bytes = a.bytes;
    if (bytes >> 46)
        return mnp_fail_memory(err, bytes, "a buffer");
    const uint64_t n_parts = parts_of(mng_device_of(dev), bytes, a.kind);
    if (!n_parts)
        return fail_size(mng_device_of(dev), bytes, err);
    st = mng_enter(dev, err);
    if (st)
        return st;
    mn_buffer *b = mng_new(dev, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a buffer");
    *b = (mn_buffer){.dev = dev,
                     .bytes = bytes,
                     .kind = a.kind,
                     .n_parts = (uint32_t)n_parts,
                     .part_bytes = bytes,
                     .room = bytes};
    if (a.kind == MN_MEM_HOST_PINNED)
        st = backend->pinned_alloc(dev, bytes, &b->mem[0], &b->host, err);
    else
        st = alloc_parts(b, a.flags & MN_ALLOC_UNZEROED ? MNG_WRITTEN : MNG_ZEROED, err);
    if (st)
        mng_buffer_free(b);
    else
        *out = b;
    return st;
}

mn_status mng_wrap(mn_device *dev, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    const mng_backend *backend = mng_backend_of(dev);
    if (!backend->wrap)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%s takes no host memory as its own",
                        backend->id);
    if ((uintptr_t)host % MNG_ALIGN)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "host memory at %p; a multiple of %d is needed",
                        host, MNG_ALIGN);
    mn_status st = mng_enter(dev, err);
    if (st)
        return st;
    mn_buffer *b = mng_new(dev, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a buffer");
    *b = (mn_buffer){.dev = dev,
                     .bytes = bytes,
                     .kind = MN_MEM_HOST_PINNED,
                     .host = host,
                     .wrapped = true,
                     .n_parts = 1,
                     .part_bytes = bytes,
                     .room = bytes};
    st = backend->wrap(dev, host, bytes, &b->mem[0], err);
    if (st)
        mng_delete(dev, b);
    else
        *out = b;
    return st;
}

void mng_buffer_free(mn_buffer *b) {
    if (!b)
        return;
    const mng_backend *backend = mng_backend_of(b->dev);
    mng_enter(b->dev, NULL);
    if (b->host)
        mng_watch_forget_buffer(b);
    if (b->wrapped)
        backend->unwrap(b->dev, b->mem[0], b->host);
    else if (b->kind == MN_MEM_HOST_PINNED && b->mem[0])
        backend->pinned_free(b->dev, b->mem[0], b->host);
    for (uint32_t i = 0; i < b->n_parts && b->kind == MN_MEM_DEVICE; i++)
        if (b->mem[i])
            backend->memory_free(b->dev, b->mem[i]);
    mng_delete(b->dev, b);
}

mn_status mng_map(mn_buffer *b, void **out, mn_error *err) {
    if (b->kind != MN_MEM_HOST_PINNED)
        return mnp_fail(err, MN_INVALID, ~0u, "map: device memory is not the host's");
    *out = b->host;
    return MN_OK;
}

mn_status mng_check_buffer(const mn_device *own, const mn_buffer *b, mn_error *err) {
    if (b->kind == MN_MEM_HOST_PINNED)
        return MN_OK;
    return mng_check_device(own, b->dev, "a buffer", err);
}

uint64_t mng_place_in(const mn_buffer *b, uint64_t at, mng_ref *out) {
    if (b->n_parts == 1) {
        *out = (mng_ref){b->mem[0], at};
        return b->bytes - at;
    }
    *out = (mng_ref){b->mem[at / b->room], at % b->room};
    return b->room - at % b->room;
}

mn_status mng_buffer_pages(mn_buffer *b, uint64_t page_bytes, mn_error *err) {
    if (b->n_parts == 1)
        return MN_OK;
    const uint64_t room = b->part_bytes / page_bytes * page_bytes;
    if (room < b->least_room)
        return mnp_fail(err, MN_INVALID, ~0u,
                        "pages of %llu bytes, of which buffers of %llu have no room for enough",
                        (unsigned long long)page_bytes, (unsigned long long)b->part_bytes);
    b->room = room;
    return MN_OK;
}
