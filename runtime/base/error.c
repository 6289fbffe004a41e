/* error.c -- filling mn_error. */
#include "base/base.h"
#include <stdio.h>
#include <string.h>

/* How many bytes of msg the owner of err has: its size may be of an older or newer struct. */
static size_t msg_cap(const mn_error *err) {
    size_t size = err->size ? err->size : sizeof *err;
    size_t at = offsetof(mn_error, msg);
    return size > at ? MN_MIN(size - at, sizeof err->msg) : 0;
}

static void set_msg(mn_error *err, const char *text, size_t len) {
    const size_t cap = msg_cap(err);
    if (cap)
        mn_plain(err->msg, cap, (mn_str){text, len});
}

/* Through a buffer of our own: the arguments may point into err->msg. */
static void set_msgv(mn_error *err, const char *fmt, va_list args) {
    char text[sizeof err->msg + 8];
    int n = vsnprintf(text, sizeof text, fmt, args);
    set_msg(err, text, n < 0 ? 0 : MN_MIN((size_t)n, sizeof text - 1));
}

static void error_set_status(mn_error *err, mn_status status, uint32_t node) {
    err->status = status;
    err->vendor_code = 0;
    err->node = node;
    err->part = 0;
}

/* err may be NULL. */
static void fail_at(mn_error *err, mn_status status, uint32_t node, const char *fmt, va_list args) {
    if (!err)
        return;
    set_msgv(err, fmt, args);
    error_set_status(err, status, node);
}

mn_status mn_fail(mn_error *err, mn_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail_at(err, status, ~0u, fmt, args);
    va_end(args);
    return status;
}

mn_status mn_fail_node(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail_at(err, status, node, fmt, args);
    va_end(args);
    return status;
}

mn_status mn_fail_in(mn_error *err, mn_status status, const char *fmt, ...) {
    if (!err)
        return status;
    char text[2 * sizeof err->msg];
    char old[sizeof err->msg];
    size_t cap = msg_cap(err);
    size_t old_len = err->status == MN_OK ? 0 : strnlen(err->msg, cap);
    if (old_len)
        memcpy(old, err->msg, old_len);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text / 2, fmt, args);
    va_end(args);
    size_t len = n < 0 ? 0 : MN_MIN((size_t)n, sizeof text / 2 - 1);
    if (old_len) {
        n = snprintf(text + len, sizeof text - len, ": %.*s", (int)old_len, old);
        if (n > 0)
            len = MN_MIN(len + (size_t)n, sizeof text - 1);
    }
    set_msg(err, text, len);
    if (err->status == MN_OK)
        error_set_status(err, status, ~0u);
    return err->status;
}

mn_status mn_fail_memory(mn_error *err, uint64_t bytes) {
    if (!bytes)
        return mn_fail(err, MN_OUT_OF_MEMORY, "out of memory");
    return mn_fail(err, MN_OUT_OF_MEMORY, "out of memory: %llu bytes", (unsigned long long)bytes);
}

void mn_fail_plain(mn_error *err) {
    const size_t cap = msg_cap(err);
    if (cap)
        mn_plain_array(err->msg, cap);
}
