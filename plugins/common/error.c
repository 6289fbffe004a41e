/* error.c -- messages, the host and its memory, structs that the other side may have in another
 * size, ranges of buffers. No state; what mnp_new returns is the caller's. */
#include "common.h"
#include <stdarg.h>
#include <stdio.h>

enum { ALIGN = 64 };

/* err may be of a host that knows fewer fields: only its own size is written, and a shorter
 * message ends in a NUL. */
mn_status mnp_fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...) {
    if (!err)
        return status;
    mn_error e = {sizeof e, status, 0, node, 0, {0}};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e.msg, sizeof e.msg, fmt, ap);
    va_end(ap);
    uint32_t n;
    if (err->size && err->size < sizeof e)
        n = err->size;
    else
        n = (uint32_t)sizeof e;
    e.size = n;
    memcpy(err, &e, n);
    if (n > offsetof(mn_error, msg) && n < MNP_UP_TO(mn_error, msg))
        ((char *)err)[n - 1] = 0;
    return status;
}

mn_status mnp_fail_memory(mn_error *err, uint64_t bytes, const char *what) {
    return mnp_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: %llu bytes for %s",
                    (unsigned long long)bytes, what);
}

mn_status mnp_check_host(const mn_host *h, const char *id, mn_error *err) {
    const bool has_abi = h->size >= MNP_UP_TO(mn_host, abi_min) + sizeof h->pad;
    if (!has_abi || h->abi < MN_ABI_OLDEST || h->abi_min > MN_ABI_VERSION)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "the host's ABI is %u.%u; %s needs %u.%u",
                        h->abi >> 16, h->abi & 0xffff, id, MN_ABI_OLDEST >> 16,
                        MN_ABI_OLDEST & 0xffff);
    if (!MN_HAS(mn_host, h, alloc) || !MN_HAS(mn_host, h, release))
        return mnp_fail(err, MN_INVALID, ~0u, "%s: the host lacks alloc or release", id);
    return MN_OK;
}

/* Zeroed; NULL for sizes that no machine has, before the host sees them. */
void *mnp_new(const mn_host *h, uint64_t bytes) {
    if (bytes >= (uint64_t)1 << 62)
        return NULL;
    void *p = h->alloc(h->self, bytes ? bytes : 1, ALIGN);
    if (p)
        memset(p, 0, bytes);
    return p;
}

void mnp_delete(const mn_host *h, void *p) {
    h->release(h->self, p);
}

/* Of a struct that the other side has longer or shorter; what it lacks is 0. */
void mnp_read(void *to, uint64_t to_bytes, const void *from, uint64_t from_bytes) {
    memset(to, 0, to_bytes);
    memcpy(to, from, from_bytes < to_bytes ? from_bytes : to_bytes);
}

/* Both begin with their size in bytes, `out` with the room that the host has. */
void mnp_fill(void *out, const void *from, uint32_t from_bytes) {
    uint32_t n;
    memcpy(&n, out, sizeof n);
    if (n > from_bytes)
        n = from_bytes;
    memcpy(out, from, n);
    memcpy(out, &n, sizeof n);
}

/* [off, off + n) inside of a buffer of `bytes`, without overflow. */
mn_status mnp_check_range(uint64_t off, uint64_t n, uint64_t bytes, const char *call,
                          mn_error *err) {
    if (off <= bytes && n <= bytes - off)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%s: %llu bytes at %llu of a buffer of %llu", call,
                    (unsigned long long)n, (unsigned long long)off, (unsigned long long)bytes);
}
