/* util.c -- errors, sorting, names of shards. Strings are mn_str: they lie in mapped
 * files, have a length and no NUL. Nothing here allocates. */
#include "common.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Messages quote names of untrusted files and end up on terminals; a cut may also fall inside a
 * character. */
static void scrub(char *msg) {
    uint64_t n = strlen(msg);
    for (uint64_t i = 0; i < n;) {
        unsigned char c = (unsigned char)msg[i];
        int len = mn_utf8_length(msg + i, n - i);
        if (!len || c < 0x20 || c == 0x7F) {
            msg[i] = '?';
            len = 1;
        }
        i += (uint64_t)len;
    }
}

/* err may be of a host that knows fewer fields or a shorter message: only its own size is
 * written. */
mn_status mnl_fail(mn_error *err, mn_status status, const char *fmt, ...) {
    if (!err)
        return status;
    uint32_t cap = (uint32_t)sizeof *err;
    if (err->size)
        cap = err->size;
    mn_error own = {0};
    if (cap < sizeof own)
        own.size = cap;
    else
        own.size = (uint32_t)sizeof own;
    own.status = status;
    own.node = ~0u;
    va_list args;
    va_start(args, fmt);
    vsnprintf(own.msg, sizeof own.msg, fmt, args);
    va_end(args);
    scrub(own.msg);
    memcpy(err, &own, own.size);
    if (own.size > offsetof(mn_error, msg) && own.size < MN_UP_TO(mn_error, msg))
        ((char *)err)[own.size - 1] = 0;
    return status;
}

mn_status mnl_fail_memory(mn_error *err) {
    return mnl_fail(err, MN_OUT_OF_MEMORY, "out of memory while reading the model's headers");
}

/* Restores the heap below `root`, whose children are heaps; n: items in the heap. */
static void sift_down(const void **items, uint64_t root, uint64_t n,
                      int (*cmp)(const void *, const void *)) {
    for (uint64_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && cmp(items[child], items[child + 1]) < 0)
            child++;
        if (cmp(items[root], items[child]) >= 0)
            return;
        const void *t = items[root];
        items[root] = items[child];
        items[child] = t;
    }
}

void mnl_sort(const void **items, uint64_t n, int (*cmp)(const void *, const void *)) {
    for (uint64_t i = n / 2; i-- > 0;)
        sift_down(items, i, n, cmp);
    for (uint64_t end = n; end > 1; end--) {
        const void *t = items[0];
        items[0] = items[end - 1];
        items[end - 1] = t;
        sift_down(items, 0, end - 1, cmp);
    }
}

/* Shards are numbered with five digits, no more and no fewer. */
static bool five_digits(const char *s, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (!mn_is_digit(s[i]))
            return false;
        *out = *out * 10 + (uint32_t)(s[i] - '0');
    }
    return true;
}

bool mnl_shard_name(mn_str name, const char *suffix, mn_str *prefix, uint32_t *no,
                    uint32_t *count) {
    const uint64_t tail = sizeof "-00001-of-00001" - 1;
    if (!mn_str_ends(name, suffix))
        return false;
    if (name.len < strlen(suffix) + tail)
        return false;
    *prefix = (mn_str){name.ptr, name.len - strlen(suffix) - tail};
    const char *s = name.ptr + prefix->len;
    if (s[0] != '-')
        return false;
    if (!five_digits(s + 1, no))
        return false;
    if (memcmp(s + 6, "-of-", 4))
        return false;
    return five_digits(s + 10, count);
}

const mn_file *mnl_file_at(const mn_file *files, uint32_t i, uint32_t stride) {
    return (const mn_file *)(const void *)((const char *)files + (uint64_t)i * stride);
}

const mn_file *mnl_file_named(const mn_file *files, uint32_t n, uint32_t stride) {
    for (uint32_t i = 0; i < n; i++)
        if (mnl_file_at(files, i, stride)->flags & MN_FILE_NAMED)
            return mnl_file_at(files, i, stride);
    return NULL;
}

/* The first field of both is their size in bytes; what is copied is what both know. */
mn_status mnl_out(void *dst, const void *src) {
    uint32_t cap;
    uint32_t own;
    memcpy(&cap, dst, sizeof cap);
    memcpy(&own, src, sizeof own);
    if (cap < sizeof cap)
        return MN_INVALID;
    uint32_t n = own;
    if (cap < own)
        n = cap;
    memcpy(dst, src, n);
    memcpy(dst, &n, sizeof n);
    return MN_OK;
}
