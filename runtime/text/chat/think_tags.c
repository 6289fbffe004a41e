/* think_tags.c -- <think> and </think> as ordinary text (think_tags.h). The text that may still
 * become a tag is held in the state, at most one tag's length, and before the first tag also the
 * white space in front of it. */
#include "text/chat/think_tags.h"
#include <string.h>

static const char open_tag[] = "<think>";
static const char close_tag[] = "</think>";

static void begin_thinking(mn_think_tags *s) {
    s->state = MN_THINK_INSIDE;
    s->trim = true;
}

bool mn_think_tags_in(mn_str chat_template) {
    return memmem(chat_template.ptr, chat_template.len, open_tag, sizeof open_tag - 1) ||
           memmem(chat_template.ptr, chat_template.len, close_tag, sizeof close_tag - 1);
}

void mn_think_tags_prompt(mn_think_tags *s, mn_str end) {
    while (end.len && mn_is_blank(end.ptr[end.len - 1]))
        end.len--;
    if (mn_str_ends(end, open_tag))
        begin_thinking(s);
}

static void think_tags_drop(mn_think_tags *s, size_t n) {
    memmove(s->held.ptr, s->held.ptr + n, s->held.len - n);
    s->held.len -= n;
}

/* The first n bytes that are held go out. */
static void think_tags_give(mn_think_tags *s, mn_text *text, size_t n) {
    mn_text_put(text, s->held.ptr, n);
    think_tags_drop(s, n);
}

/* How many bytes at the end of the text may be the beginning of the tag. */
static size_t partial(const mn_text *t, size_t from, const char *tag) {
    const char *end = t->ptr + t->len;
    size_t n = MN_MIN(t->len - from, strlen(tag) - 1);
    while (n && memcmp(end - n, tag, n))
        n--;
    return n;
}

/* The tag, once it is whole, opens a part; anything else begins the answer. */
static void think_tags_begin(mn_think_tags *s, bool last) {
    const mn_text *held = &s->held;
    const size_t n = sizeof open_tag - 1;
    size_t at = 0;
    while (at < held->len && mn_is_blank(held->ptr[at]))
        at++;
    const size_t left = held->len - at;
    if (left >= n && !memcmp(held->ptr + at, open_tag, n)) {
        think_tags_drop(s, at + n);
        begin_thinking(s);
        return;
    }
    const bool open = partial(held, at, open_tag) == left;
    if (last || !open)
        s->state = MN_THINK_ANSWER;
}

/* Gives what stands before the closing tag, or once nothing does, takes the tag away. */
static void think(mn_think_tags *s, mn_text *text, bool last) {
    const size_t n = sizeof close_tag - 1;
    const size_t len = s->held.len;
    const char *end = len ? memmem(s->held.ptr, len, close_tag, n) : NULL;
    if (end && end == s->held.ptr) {
        think_tags_drop(s, n);
        s->state = MN_THINK_ANSWER;
        s->trim = true;
    } else if (end)
        think_tags_give(s, text, (size_t)(end - s->held.ptr));
    else
        think_tags_give(s, text, len - (last ? 0 : partial(&s->held, 0, close_tag)));
}

/* Gives what stands before the next tag, or once nothing does, takes the tag away; true: there may
 * be more to give. */
static bool think_tags_answer(mn_think_tags *s, mn_text *text, bool last, bool literal) {
    const char *held = s->held.ptr;
    const size_t len = s->held.len;
    const char *open = memmem(held, len, open_tag, sizeof open_tag - 1);
    const char *close = memmem(held, len, close_tag, sizeof close_tag - 1);
    const bool opens = open && (!close || open < close);
    const char *tag = opens ? open : close;
    const size_t n = opens ? sizeof open_tag - 1 : sizeof close_tag - 1;
    if (!tag) {
        const size_t held_back =
            last ? 0 : MN_MAX(partial(&s->held, 0, open_tag), partial(&s->held, 0, close_tag));
        think_tags_give(s, text, len - held_back);
    } else if (tag > held) {
        think_tags_give(s, text, (size_t)(tag - held));
    } else if (literal) {
        think_tags_give(s, text, n);
    } else {
        think_tags_drop(s, n);
        s->trim = true;
        if (opens)
            begin_thinking(s);
        return true;
    }
    return false;
}

/* White space behind a tag goes, however many pieces bring it. */
static void think_tags_trim(mn_think_tags *s) {
    size_t n = 0;
    while (s->trim && n < s->held.len && mn_is_blank(s->held.ptr[n]))
        n++;
    s->trim &= n == s->held.len;
    if (n)
        think_tags_drop(s, n);
}

void mn_think_tags_push(mn_think_tags *s, mn_text *text, bool last, bool literal, bool *thinking) {
    bool changed = true;
    mn_text_put(&s->held, text->ptr ? text->ptr : "", text->len);
    text->len = 0;
    text->failed |= s->held.failed;
    while (changed) {
        const int before = (int)s->state;
        if (s->state > MN_THINK_BEGIN)
            think_tags_trim(s);
        *thinking = s->state == MN_THINK_INSIDE;
        if (text->failed || !s->held.len)
            return;
        if (s->state == MN_THINK_BEGIN)
            think_tags_begin(s, last);
        else if (s->state == MN_THINK_INSIDE)
            think(s, text, last);
        else if (think_tags_answer(s, text, last, literal))
            continue;
        changed = (int)s->state != before;
    }
}

void mn_think_tags_cut(mn_think_tags *s) {
    if (!s->held.len)
        return;
    const size_t open = partial(&s->held, 0, open_tag);
    const size_t n = MN_MAX(open, partial(&s->held, 0, close_tag));
    if (n > 1)
        s->held.len -= n;
}

void mn_think_tags_free(mn_think_tags *s) {
    mn_text_free(&s->held);
}
