/* text_buffer.c -- the growing text of runtime and tools (text_buffer.h).
 *
 * The owner frees it (mn_text_free) or takes the text (mn_text_take). A failed allocation sets
 * `failed` instead of an error of each call, so that the caller tests once, at the end. */
#include "text_buffer.h"
#include "alloc.h"
#include <stdarg.h>
#include <stdio.h>

/* Room for n more bytes and a NUL. */
static bool text_reserve(mn_text *t, size_t n) {
    if (t->failed || n >= SIZE_MAX - t->len)
        return t->failed = true, false;
    void *ptr = t->ptr;
    if (!mn_grow(&ptr, &t->cap, t->len + n + 1, 1))
        return t->failed = true, false;
    t->ptr = ptr;
    return true;
}

void mn_text_insert(mn_text *t, size_t at, const char *bytes, size_t n) {
    if (!text_reserve(t, n))
        return;
    memmove(t->ptr + at + n, t->ptr + at, t->len - at);
    if (n)
        memcpy(t->ptr + at, bytes, n);
    t->len += n;
    t->ptr[t->len] = 0;
}

void mn_text_put(mn_text *t, const char *bytes, size_t n) {
    if (!text_reserve(t, n))
        return;
    if (n)
        memcpy(t->ptr + t->len, bytes, n);
    t->len += n;
    t->ptr[t->len] = 0;
}

void mn_text_puts(mn_text *t, const char *z) {
    mn_text_put(t, z, strlen(z));
}

void mn_text_printf(mn_text *t, const char *fmt, ...) {
    va_list args;
    va_list again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n < 0)
        t->failed = true;
    if (n >= 0 && text_reserve(t, (size_t)n)) {
        vsnprintf(t->ptr + t->len, (size_t)n + 1, fmt, again);
        t->len += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void mn_text_add(mn_text *t, const mn_text *more) {
    mn_text_put(t, more->ptr, more->len);
    t->failed |= more->failed;
}

void mn_text_remove(mn_text *t, size_t from, size_t to) {
    if (from >= to)
        return;
    memmove(t->ptr + from, t->ptr + to, t->len - to);
    t->len -= to - from;
    t->ptr[t->len] = 0;
}

void mn_text_clear(mn_text *t) {
    t->len = 0;
    if (t->ptr)
        t->ptr[0] = 0;
}

void mn_text_free(mn_text *t) {
    mn_free(t->ptr);
    *t = (mn_text){0};
}

char *mn_text_take(mn_text *t) {
    mn_text_put(t, "", 0);
    char *text = t->ptr;
    if (t->failed) {
        mn_free(text);
        text = NULL;
    }
    *t = (mn_text){0};
    return text;
}
