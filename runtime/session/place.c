/* place.c -- what a session has per engine: the choice of devices, the engine, page tables, the
 * ring of steps. */
#include "session/session.h"
#include <string.h>

static mn_status allocate(mn_session *s, mn_error *err) {
    const uint32_t total = s->engine->in.total;
    s->ring = mn_calloc(s->ring_size, sizeof *s->ring);
    s->packed = mn_calloc(total, sizeof *s->packed);
    s->sent = mn_calloc(total, sizeof *s->sent);
    bool ok = s->ring && s->packed && s->sent;
    for (uint32_t i = 0; ok && i < s->ring_size; i++)
        ok = (s->ring[i].outs = mn_alloc(s->n_outputs, sizeof(mn_step_out))) != NULL;
    return ok ? mn_pages_create(s, err) : mn_fail_memory(err, total * 8ull);
}

static void add_device(mn_text *list, const mn_placement *p, uint32_t segment) {
    for (uint32_t i = 0; i < segment; i++)
        if (p->segments[i].offer == p->segments[segment].offer)
            return;
    mn_text_printf(list, "%s%s", list->len ? "," : "",
                   p->offers[p->segments[segment].offer].record->name);
}

static mn_status describe(mn_session *s, mn_error *err) {
    const mn_placement *p = &s->placement;
    const mn_device_info *info = &p->offers[p->chosen].record->info;
    mn_text list = {0};
    for (uint32_t i = 0; i < p->n_segments; i++)
        add_device(&list, p, i);
    s->device = list.failed ? NULL : mn_arena_strndup(&s->names, list.ptr, list.len);
    s->description =
        mn_arena_strndup(&s->names, info->name, strnlen(info->name, sizeof info->name));
    s->why = mn_arena_strndup(&s->names, p->why, strlen(p->why));
    mn_text_free(&list);
    return s->device && s->description && s->why ? MN_OK : mn_fail_memory(err, 128);
}

/* Several segments leave nothing to run ahead of (engine.h). */
static uint32_t ring_size(const mn_session *s) {
    const mn_placement *p = &s->placement;
    if (p->n_segments > 1)
        return 1;
    return mn_steps_ahead(p->offers[p->chosen].record, &s->request);
}

mn_status mn_session_place(mn_session *s, const mn_device_record **fault, mn_error *err) {
    *fault = NULL;
    s->n_placed++;
    mn_status st = mn_negotiate(s->model->rt->registry, s->graph, &s->request, &s->placement, err);
    if (!st)
        st = describe(s, err);
    if (st)
        return st;
    s->ring_size = ring_size(s);
    st = mn_engine_create(&s->placement, s->graph, s->ring_size, &s->engine, fault, err);
    st = mn_canonical_settle(s->model->canonical, true, st, err); /* all weights were read */
    if (st == MN_IO_ERROR)
        *fault = NULL; /* no other device can do better */
    return st ? st : allocate(s, err);
}

/* Its tokens are all that is left of a sequence; what it had run is remembered for the
 * statistics. */
static void set_back(mn_sequence *q) {
    const uint32_t run =
        q->running && q->n_drawn ? q->n_tokens : MN_MIN(q->n_enqueued, q->n_tokens);
    q->n_restore = MN_MAX(q->n_restore, run);
    q->n_enqueued = 0;
    memset(q->pages, 0, sizeof q->pages);
    if (!q->running)
        return;
    q->n_literal = q->n_tokens;
    q->n_draw_enqueued = q->n_drawn;
}

void mn_session_unplace(mn_session *s) {
    for (; s->ring && s->completed < s->enqueued; s->completed++) {
        mn_step *step = &s->ring[s->completed % s->ring_size];
        mn_step_forget(s, step);
        mn_engine_drop(s->engine, &step->event);
    }
    for (uint32_t i = 0; s->seqs && i < s->n_seq; i++)
        set_back(&s->seqs[i]);
    mn_engine_free(s->engine);
    for (uint32_t i = 0; s->ring && i < s->ring_size; i++)
        mn_free(s->ring[i].outs);
    mn_free(s->ring);
    mn_free(s->packed);
    mn_free(s->sent);
    mn_pages_free(s);
    s->engine = NULL;
    s->ring = NULL;
    s->packed = s->sent = NULL;
    s->sent_valid = false;
    mn_placement_free(&s->placement);
}
