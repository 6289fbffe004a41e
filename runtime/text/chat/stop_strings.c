/* stop_strings.c -- see stop_strings.h. The text held back is never longer than the longest string, so that each
 * piece costs its own length times the strings. */
#include "text/chat/stop_strings.h"
#include <string.h>

mn_status mn_stops_set(mn_stops *s, const mn_str *strings, uint32_t n, mn_error *err) {
    mn_stops_free(s);
    if (n > MN_STOPS_MAX)
        return mn_fail(err, MN_INVALID, "%u strings that end an answer, expected at most %d", n,
                       MN_STOPS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        if (!strings[i].len || strings[i].len > MN_STOP_BYTES)
            return mn_fail(err, MN_INVALID,
                           "string %u that ends an answer has %llu bytes, expected 1 to %d", i,
                           (unsigned long long)strings[i].len, MN_STOP_BYTES);
        if (mn_utf8_check(strings[i].ptr, (size_t)strings[i].len) < strings[i].len)
            return mn_fail(err, MN_INVALID, "string %u that ends an answer is not UTF-8", i);
    }
    if (!n)
        return MN_OK;
    s->strings = mn_calloc(n, sizeof *s->strings);
    s->lengths = mn_calloc(n, sizeof *s->lengths);
    bool ok = s->strings && s->lengths;
    for (; ok && s->n < n; s->n++) {
        s->strings[s->n] = mn_strndup(strings[s->n].ptr, (size_t)strings[s->n].len);
        s->lengths[s->n] = (uint32_t)strings[s->n].len;
        ok = s->strings[s->n] != NULL;
    }
    if (ok)
        return MN_OK;
    mn_stops_free(s);
    return mn_fail_memory(err, n * sizeof *s->strings);
}

/* Where the first of the strings begins in text, else where one may begin that goes on behind it;
 * *met says which. */
static size_t cut_of(const mn_stops *s, const char *text, size_t n, bool *met) {
    size_t open = n;
    *met = false;
    for (size_t at = 0; at < n; at++)
        for (uint32_t i = 0; i < s->n; i++) {
            const size_t left = n - at, len = s->lengths[i];
            if (memcmp(text + at, s->strings[i], left < len ? left : len) != 0)
                continue;
            if (left >= len) {
                *met = true;
                return at;
            }
            if (open == n)
                open = at;
        }
    return open;
}

mn_status mn_stops_push(mn_stops *s, mn_str *text, bool last) {
    if (!s->n)
        return MN_OK;
    s->given.len = 0;
    if (!s->met) {
        bool met = false;
        mn_text_put(&s->given, s->held.ptr, s->held.len);
        mn_text_put(&s->given, text->ptr, (size_t)text->len);
        s->held.len = 0;
        size_t cut = s->given.failed ? 0 : cut_of(s, s->given.ptr, s->given.len, &met);
        if (last && !met)
            cut = s->given.len;
        if (!met)
            mn_text_put(&s->held, s->given.ptr + cut, s->given.len - cut);
        s->met = met;
        s->given.len = cut;
    }
    *text = (mn_str){s->given.ptr ? s->given.ptr : "", s->given.len};
    return s->given.failed || s->held.failed ? MN_OUT_OF_MEMORY : MN_OK;
}

void mn_stops_free(mn_stops *s) {
    for (uint32_t i = 0; s->strings && i < s->n; i++)
        mn_free(s->strings[i]);
    mn_free(s->strings);
    mn_free(s->lengths);
    mn_text_free(&s->held);
    mn_text_free(&s->given);
    *s = (mn_stops){0};
}
