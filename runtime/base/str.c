/* str.c -- strings with a length, and text that grows. */
#include "base/base.h"
#include <stdio.h>
#include <string.h>

bool mn_str_eq(mn_str a, mn_str b) {
    return a.len == b.len && (!a.len || !memcmp(a.ptr, b.ptr, a.len));
}

bool mn_str_is(mn_str a, const char *z) {
    return mn_str_eq(a, mn_str_of(z));
}

bool mn_str_ends(mn_str a, const char *z) {
    mn_str end = mn_str_of(z);
    return a.len >= end.len && (!end.len || !memcmp(a.ptr + (a.len - end.len), end.ptr, end.len));
}

static bool text_reserve(mn_text *t, size_t n) {
    if (t->failed || n >= SIZE_MAX - t->len)
        return t->failed = true, false;
    void *ptr = t->ptr;
    if (!mn_grow(&ptr, &t->cap, t->len + n + 1, 1))
        return t->failed = true, false;
    t->ptr = ptr;
    return true;
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

static void put_escape(mn_text *t, unsigned char c) {
    static const char short_of[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* pairs: byte, letter */
    for (size_t i = 0; i + 1 < sizeof short_of; i += 2)
        if ((unsigned char)short_of[i] == c) {
            mn_text_put(t, (char[]){'\\', short_of[i + 1]}, 2);
            return;
        }
    mn_text_printf(t, "\\u%04x", c);
}

void mn_text_json(mn_text *t, mn_str s) {
    mn_text_put(t, "\"", 1);
    for (size_t i = 0, plain = 0;; i++) {
        unsigned char c = i < s.len ? (unsigned char)s.ptr[i] : 0;
        uint32_t code;
        int n = c < 0x80 ? 1 : mn_utf8_decode(s.ptr + i, (size_t)s.len - i, &code);
        if (i < s.len && n && c >= 0x20 && c != '"' && c != '\\') {
            i += (size_t)n - 1;
            continue;
        }
        /* what went before needs no escape */
        if (i > plain)
            mn_text_put(t, s.ptr + plain, i - plain);
        plain = i + 1;
        if (i >= s.len)
            break;
        if (n)
            put_escape(t, c);
        else
            mn_text_put(t, "\xEF\xBF\xBD", 3);
    }
    mn_text_put(t, "\"", 1);
}

void mn_text_free(mn_text *t) {
    mn_free(t->ptr);
    *t = (mn_text){0};
}
