/* util.c -- errors, strings, checked arithmetic, sorting. Strings are mn_str: they lie in mapped
 * files, have a length and no NUL. Nothing here allocates. */
#include "common.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of the valid character at s, 0 if there is none. Rejects overlong forms, surrogates and >
 * U+10FFFF. */
static int utf8_char(const unsigned char *s, uint64_t n) {
    if (s[0] < 0x80)
        return 1;
    const int len = 2 + (s[0] >= 0xE0) + (s[0] >= 0xF0);
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 0;
    if (n < (uint64_t)len)
        return 0;
    for (int i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F))
        return 0;
    if (s[0] == 0xF0 && s[1] < 0x90)
        return 0;
    if (s[0] == 0xF4 && s[1] > 0x8F)
        return 0;
    return len;
}

bool mnl_utf8_valid(const char *s, uint64_t n) {
    const unsigned char *u = (const unsigned char *)s;
    for (uint64_t i = 0; i < n;) {
        int len = utf8_char(u + i, n - i);
        if (!len)
            return false;
        i += (uint64_t)len;
    }
    return true;
}

/* Messages quote names of untrusted files and end up on terminals; a cut may also fall inside a
 * character. */
static void scrub(char *msg) {
    uint64_t n = strlen(msg);
    for (uint64_t i = 0; i < n;) {
        unsigned char c = (unsigned char)msg[i];
        int len = utf8_char((unsigned char *)msg + i, n - i);
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

mn_str mnl_str_of(const char *z) {
    return (mn_str){z, strlen(z)};
}
bool mnl_str_eq(mn_str a, mn_str b) {
    if (a.len != b.len)
        return false;
    return !a.len || !memcmp(a.ptr, b.ptr, a.len);
}
bool mnl_str_is(mn_str a, const char *z) {
    return mnl_str_eq(a, mnl_str_of(z));
}

/* An empty string has no address that memcmp may be given. */
bool mnl_str_begins(mn_str a, const char *z) {
    uint64_t n = strlen(z);
    return a.len >= n && (!n || !memcmp(a.ptr, z, n));
}

bool mnl_str_ends(mn_str a, const char *z) {
    uint64_t n = strlen(z);
    return a.len >= n && (!n || !memcmp(a.ptr + a.len - n, z, n));
}

int mnl_str_cmp(mn_str a, mn_str b) {
    uint64_t n = b.len;
    if (a.len < b.len)
        n = a.len;
    int c = 0;
    if (n)
        c = memcmp(a.ptr, b.ptr, n);
    if (c)
        return c;
    return (a.len > b.len) - (a.len < b.len);
}

bool mnl_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (b && a > UINT64_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool mnl_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (a > UINT64_MAX - b)
        return false;
    *out = a + b;
    return true;
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
        if (s[i] < '0' || s[i] > '9')
            return false;
        *out = *out * 10 + (uint32_t)(s[i] - '0');
    }
    return true;
}

bool mnl_shard_name(mn_str name, const char *suffix, mn_str *prefix, uint32_t *no,
                    uint32_t *count) {
    const uint64_t tail = sizeof "-00001-of-00001" - 1;
    if (!mnl_str_ends(name, suffix))
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
