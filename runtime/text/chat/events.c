/* events.c -- collects the events of one push (events.h). One buffer has all texts, so that a push
 * allocates nothing once the buffers have grown; it moves while it grows, therefore the pointers of
 * the events are computed at the end, from their lengths. */
#include "text/chat/events.h"

void mn_events_clear(mn_events *e) {
    e->n = 0;
    e->text.len = 0;
    e->failed = false;
}

static bool continues(const mn_events *e, uint32_t kind, uint32_t call) {
    if (!e->n || kind == MN_EVENT_CALL)
        return false;
    const mn_stream_event *last = &e->list[e->n - 1];
    return last->kind == kind && last->call == call;
}

void mn_events_put(mn_events *e, uint32_t kind, uint32_t call, mn_str text) {
    if (!text.len || e->failed)
        return;
    if (!continues(e, kind, call)) {
        if (!mn_grow((void **)&e->list, &e->cap, (size_t)e->n + 1, sizeof *e->list)) {
            e->failed = true;
            return;
        }
        e->list[e->n++] = (mn_stream_event){.kind = kind, .call = call, .text = {NULL, 0}};
    }
    mn_text_put(&e->text, text.ptr, (size_t)text.len);
    e->failed = e->text.failed;
    e->list[e->n - 1].text.len += text.len;
}

mn_status mn_events_done(mn_events *e) {
    const char *at = e->text.ptr;
    if (e->failed)
        return MN_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < e->n; i++) {
        e->list[i].text.ptr = at;
        at += e->list[i].text.len;
    }
    return MN_OK;
}

void mn_events_free(mn_events *e) {
    mn_free(e->list);
    mn_text_free(&e->text);
    *e = (mn_events){0};
}
