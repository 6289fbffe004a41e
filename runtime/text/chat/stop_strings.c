/* stop_strings.c -- strings that end an answer (stop_strings.h). What is held back is never longer
 * than the longest string, so that each piece costs its own length times the strings. The strings
 * are copies; the text that a call gives lives until the next. */
#include "text/chat/stop_strings.h"
#include <string.h>

static mn_status stops_check(mn_str string, uint32_t i, mn_error *err) {
    if (!string.len || string.len > MN_STOP_BYTES)
        return mn_fail(err, MN_INVALID,
                       "string %u that ends an answer has %llu bytes, expected 1 to %d", i,
                       (unsigned long long)string.len, MN_STOP_BYTES);
    if (mn_utf8_check(string.ptr, (size_t)string.len) < string.len)
        return mn_fail(err, MN_INVALID, "string %u that ends an answer is not UTF-8", i);
    return MN_OK;
}

/* false: out of memory */
static bool stops_copy_all(mn_stops *s, const mn_str *strings, uint32_t n) {
    s->strings = mn_calloc(n, sizeof *s->strings);
    s->lengths = mn_calloc(n, sizeof *s->lengths);
    if (!s->strings || !s->lengths)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        s->strings[i] = mn_strndup(strings[i].ptr, (size_t)strings[i].len);
        s->lengths[i] = (uint32_t)strings[i].len;
        s->n++;
        if (!s->strings[i])
            return false;
    }
    return true;
}

mn_status mn_stops_set(mn_stops *s, const mn_str *strings, uint32_t n, mn_error *err) {
    mn_status st = MN_OK;
    mn_stops_free(s);
    if (n > MN_STOPS_MAX)
        return mn_fail(err, MN_INVALID, "%u strings that end an answer, expected at most %d", n,
                       MN_STOPS_MAX);
    for (uint32_t i = 0; !st && i < n; i++)
        st = stops_check(strings[i], i, err);
    if (st || !n || stops_copy_all(s, strings, n))
        return st;
    mn_stops_free(s);
    return mn_fail_memory(err, n * sizeof *s->strings);
}

/* Where the first of the strings begins in text, else where one may begin that goes on behind it;
 * s->met says which. */
static size_t cut_of(mn_stops *s, const char *text, size_t n) {
    size_t open = n;
    for (size_t at = 0; at < n; at++)
        for (uint32_t i = 0; i < s->n; i++) {
            const size_t left = n - at;
            const size_t len = s->lengths[i];
            if (memcmp(text + at, s->strings[i], MN_MIN(left, len)) != 0)
                continue;
            if (left >= len && s->off)
                continue;
            if (left >= len) {
                s->met = true;
                s->which = i;
                return at;
            }
            if (open == n)
                open = at;
        }
    return open;
}

/* What was held and what is new: s->given becomes what can be given, s->held the rest. */
static void stops_give(mn_stops *s, mn_str text, bool last) {
    mn_text *given = &s->given;
    mn_text_put(given, s->held.ptr, s->held.len);
    mn_text_put(given, text.ptr, (size_t)text.len);
    s->held.len = 0;
    const size_t n = given->failed ? 0 : given->len;
    size_t cut = cut_of(s, given->ptr, n);
    if (last && !s->met)
        cut = n;
    if (!s->met)
        mn_text_put(&s->held, given->ptr + cut, n - cut);
    given->len = cut;
}

mn_status mn_stops_push(mn_stops *s, mn_str *text, bool last) {
    mn_text *given = &s->given;
    if (!s->n)
        return MN_OK;
    given->len = 0;
    if (!s->met)
        stops_give(s, *text, last);
    *text = (mn_str){given->ptr ? given->ptr : "", given->len};
    const bool failed = given->failed || s->held.failed;
    return failed ? MN_OUT_OF_MEMORY : MN_OK;
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
