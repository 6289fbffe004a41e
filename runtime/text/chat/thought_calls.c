/* thought_calls.c -- thinking is read as an answer would be, strictly (calls.h): its text is given
 * as thinking up to the first call, then both the bytes and what they mean are held, and one of the
 * two is given. All of it belongs to one stream. Interface: thought_calls.h. */
#include "text/chat/thought_calls.h"
#include <string.h>

static bool thought_calls_is_blank(mn_str s) {
    for (uint64_t i = 0; i < s.len; i++)
        if (!strchr(" \t\r\n", s.ptr[i]))
            return false;
    return true;
}

/* As for the first text of a thinking; the buffers stay. */
static void begin_anew(mn_thought *t) {
    const mn_call_family *family = t->calls.family;
    const struct cJSON *tools = t->calls.tools;
    mn_calls_free(&t->calls);
    t->calls = (mn_calls){.family = family, .tools = tools, .strict = true};
    mn_events_clear(&t->found);
    mn_events_clear(&t->pending);
    t->raw.len = 0;
    t->holds = false;
    t->closed = false;
}

void mn_thought_release(mn_thought *t, mn_events *out) {
    mn_events_put(out, MN_EVENT_THINKING, 0, (mn_str){t->raw.ptr, t->raw.len});
    begin_anew(t);
}

/* The first n bytes that were not given are. */
static void thought_calls_give(mn_thought *t, size_t n, mn_events *out) {
    mn_text *raw = &t->raw;
    n = MN_MIN(n, raw->len);
    mn_events_put(out, MN_EVENT_THINKING, 0, (mn_str){raw->ptr, n});
    raw->len -= n;
    memmove(raw->ptr, raw->ptr + n, raw->len);
}

/* Text up to the first call is given, the rest waits. */
static void thought_calls_sort(mn_thought *t, mn_events *out) {
    mn_events *found = &t->found;
    if (mn_events_done(found))
        out->failed = true;
    for (uint32_t i = 0; i < found->n && !out->failed; i++) {
        const mn_stream_event *e = &found->list[i];
        t->holds |= e->kind != MN_EVENT_TEXT;
        if (t->holds)
            mn_events_put(&t->pending, e->kind, e->call, e->text);
        else
            thought_calls_give(t, (size_t)e->text.len, out);
    }
    mn_events_clear(found);
}

void mn_thought_push(mn_thought *t, mn_str text, mn_events *out) {
    if (!text.len)
        return;
    if (t->closed)
        mn_thought_release(t, out);
    mn_text_put(&t->raw, text.ptr, (size_t)text.len);
    out->failed |= t->raw.failed;
    mn_calls_push(&t->calls, text, &t->found);
    thought_calls_sort(t, out);
    if (t->raw.len > MN_THOUGHT_HELD)
        mn_thought_release(t, out);
}

/* Calls alone, the last of them whole. */
static bool thought_calls_is_whole(const mn_thought *t) {
    return t->holds && t->calls.state != MN_CALLS_INSIDE && t->calls.state != MN_CALLS_BEHIND;
}

static bool is_bare(mn_thought *t) {
    if (mn_events_done(&t->pending))
        return false;
    for (uint32_t i = 0; i < t->pending.n; i++)
        if (t->pending.list[i].kind == MN_EVENT_TEXT &&
            !thought_calls_is_blank(t->pending.list[i].text))
            return false;
    return true;
}

void mn_thought_close(mn_thought *t, mn_events *out) {
    if (t->closed)
        return;
    const bool whole = thought_calls_is_whole(t);
    mn_calls_finish(&t->calls, MN_CALLS_ENDED, &t->found);
    thought_calls_sort(t, out);
    t->closed = whole && is_bare(t);
    if (!t->closed)
        mn_thought_release(t, out);
}

uint32_t mn_thought_finish(mn_thought *t, uint32_t n_calls, mn_events *out) {
    const bool whole = t->closed || thought_calls_is_whole(t);
    uint32_t n = 0;
    if (!t->closed)
        mn_calls_finish(&t->calls, MN_CALLS_ENDED, &t->found);
    thought_calls_sort(t, out);
    if (!whole) {
        mn_thought_release(t, out);
        return 0;
    }
    if (mn_events_done(&t->pending))
        out->failed = true;
    for (uint32_t i = 0; i < t->pending.n && !out->failed; i++) {
        const mn_stream_event *e = &t->pending.list[i];
        const bool text = e->kind == MN_EVENT_TEXT;
        n += e->kind == MN_EVENT_CALL;
        mn_events_put(out, e->kind, text ? 0 : n_calls + e->call, e->text);
    }
    begin_anew(t);
    return n;
}

void mn_thought_free(mn_thought *t) {
    mn_calls_free(&t->calls);
    mn_events_free(&t->found);
    mn_events_free(&t->pending);
    mn_text_free(&t->raw);
}
