/* think_tags.c -- see think_tags.h. */
#include "text/chat/think_tags.h"
#include <string.h>

static const char open_tag[] = "<think>", close_tag[] = "</think>";

static bool is_space(char c) {
    return c && strchr(" \t\r\n", c);
}

bool mn_spelled_in(mn_str chat_template) {
    return memmem(chat_template.ptr, chat_template.len, open_tag, sizeof open_tag - 1) ||
           memmem(chat_template.ptr, chat_template.len, close_tag, sizeof close_tag - 1);
}

void mn_spelled_prompt(mn_spelled *s, mn_str end) {
    const size_t n = sizeof open_tag - 1;
    while (end.len && is_space(end.ptr[end.len - 1]))
        end.len--;
    if (end.len >= n && !memcmp(end.ptr + end.len - n, open_tag, n))
        s->state = MN_SPELLED_THINKING, s->trim = true;
}

static void drop(mn_spelled *s, size_t n) {
    memmove(s->held.ptr, s->held.ptr + n, s->held.len - n);
    s->held.len -= n;
}

/* The first n bytes that are held go out. */
static void give(mn_spelled *s, mn_text *text, size_t n) {
    mn_text_put(text, s->held.ptr, n);
    drop(s, n);
}

/* How many bytes at the end of the text may be the beginning of the tag. */
static size_t partial(const mn_text *t, size_t from, const char *tag) {
    size_t n = MN_MIN(t->len - from, strlen(tag) - 1);
    while (n && memcmp(t->ptr + t->len - n, tag, n))
        n--;
    return n;
}

/* The tag, once it is whole, opens a part; anything else begins the answer. */
static void begin(mn_spelled *s, bool last) {
    const size_t n = sizeof open_tag - 1;
    size_t at = 0;
    while (at < s->held.len && is_space(s->held.ptr[at]))
        at++;
    if (s->held.len - at >= n && !memcmp(s->held.ptr + at, open_tag, n)) {
        drop(s, at + n);
        s->state = MN_SPELLED_THINKING;
        s->trim = true;
    } else if (last || partial(&s->held, at, open_tag) < s->held.len - at)
        s->state = MN_SPELLED_ANSWER;
}

static void think(mn_spelled *s, mn_text *text, bool last) {
    const size_t n = sizeof close_tag - 1;
    const char *end = s->held.len ? memmem(s->held.ptr, s->held.len, close_tag, n) : NULL;
    size_t before = end ? (size_t)(end - s->held.ptr)
                        : s->held.len - (last ? 0 : partial(&s->held, 0, close_tag));
    if (!end || before) {
        give(s, text, before);
        return;
    }
    drop(s, n);
    s->state = MN_SPELLED_ANSWER;
    s->trim = true;
}

static void trim(mn_spelled *s) {
    size_t n = 0;
    while (s->trim && n < s->held.len && is_space(s->held.ptr[n]))
        n++;
    s->trim &= n == s->held.len;
    if (n)
        drop(s, n);
}

void mn_spelled_push(mn_spelled *s, mn_text *text, bool last, bool *thinking) {
    int before;
    mn_text_put(&s->held, text->ptr ? text->ptr : "", text->len);
    text->len = 0;
    text->failed |= s->held.failed;
    do {
        before = (int)s->state;
        if (s->state > MN_SPELLED_BEGIN)
            trim(s);
        *thinking = s->state == MN_SPELLED_THINKING;
        if (text->failed || !s->held.len)
            return;
        if (s->state == MN_SPELLED_BEGIN)
            begin(s, last);
        else if (s->state == MN_SPELLED_THINKING)
            think(s, text, last);
        else
            give(s, text, s->held.len);
    } while ((int)s->state != before);
}

void mn_spelled_free(mn_spelled *s) {
    mn_text_free(&s->held);
}
