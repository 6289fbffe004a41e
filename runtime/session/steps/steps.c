/* steps.c -- the life of the room: slots, which stay; the ring of steps and the packed inputs,
 * which come and go with an engine; and one turn of the loop, which enqueues and completes. */
#include "session/steps/steps.h"
#include <string.h>

/* Tokens of sequences are allocated as they come. */
mn_status mn_steps_init(mn_steps *s, mn_error *err) {
    s->seqs = mn_calloc(s->n_seq, sizeof *s->seqs);
    s->turns = mn_calloc(s->n_seq, sizeof *s->turns);
    s->ready = mn_alloc(s->n_outputs, sizeof *s->ready);
    if (!s->seqs || !s->turns || !s->ready)
        return mn_fail_memory(err, s->n_seq * sizeof *s->seqs);
    mn_status st = mn_guides_init(&s->guides, s->model->rt->pool, s->n_seq, err);
    return st ? st : mn_requests_init(&s->requests, s->n_outputs, err);
}

void mn_steps_free(mn_steps *s) {
    for (uint32_t i = 0; s->seqs && i < s->n_seq; i++) {
        mn_free(s->seqs[i].own_tokens);
        mn_free(s->seqs[i].own_text);
        mn_free(s->seqs[i].own_bias);
        mn_free(s->seqs[i].own_breakers);
        mn_guide_free(s->seqs[i].own_guide);
        if (s->seqs[i].used && !s->seqs[i].job)
            mn_adapter_release(s->model->adapters, s->seqs[i].adapter);
    }
    mn_kv_free(&s->kv);
    mn_free(s->seqs);
    mn_free(s->ready);
    mn_free(s->turns);
    mn_guides_free(&s->guides);
}

/* ---- with an engine -------------------------------------------------------------------------- */
mn_status mn_steps_place(mn_steps *s, uint32_t ring_size, mn_error *err) {
    const uint32_t total = s->engine->in.total;
    const mn_lora_room *room = s->model->canonical->room;
    s->adapted = mn_calloc(room ? room->n : 1, sizeof *s->adapted);
    s->ring_size = ring_size;
    s->ring = mn_calloc(s->ring_size, sizeof *s->ring);
    s->packed = mn_calloc(total, sizeof *s->packed);
    s->sent = mn_calloc(s->engine->in.head, sizeof *s->sent);
    const size_t n_rows = (size_t)s->graph->hp.n_kv * s->n_seq;
    s->ranges = mn_alloc(n_rows + 1, sizeof *s->ranges);
    s->sampler_rows = mn_alloc(s->n_outputs, sizeof *s->sampler_rows);
    bool ok = s->adapted && s->ring && s->packed && s->sent && s->ranges && s->sampler_rows;
    for (uint32_t i = 0; ok && i < s->ring_size; i++) {
        mn_pending_step *step = &s->ring[i];
        step->outs = mn_alloc(s->n_outputs, sizeof *step->outs);
        step->prefilled = mn_alloc(s->n_seq, sizeof *step->prefilled);
        step->spans = mn_alloc(s->n_seq, sizeof *step->spans);
        ok = step->outs && step->prefilled && step->spans;
    }
    if (s->graph->head) {
        const size_t width = (size_t)s->graph->hp.n_embd;
        s->hidden_in = mn_calloc(s->n_batch * width, sizeof *s->hidden_in);
        ok = ok && s->hidden_in;
    }
    return ok ? mn_kv_place(&s->kv, s->engine, s->packed, err) : mn_fail_memory(err, total * 8ull);
}

void mn_steps_unplace(mn_steps *s) {
    for (; s->ring && s->clock.completed < s->clock.enqueued; s->clock.completed++) {
        mn_pending_step *step = &s->ring[s->clock.completed % s->ring_size];
        mn_step_forget(s, step);
        mn_engine_drop(s->engine, &step->event);
    }
    for (uint32_t i = 0; s->seqs && i < s->n_seq; i++)
        mn_slot_set_back(s, i);
    mn_engine_free(s->engine);
    for (uint32_t i = 0; s->ring && i < s->ring_size; i++) {
        mn_free(s->ring[i].outs);
        mn_free(s->ring[i].prefilled);
        mn_free(s->ring[i].spans);
    }
    mn_free(s->adapted);
    mn_free(s->ring);
    mn_free(s->packed);
    mn_free(s->sent);
    mn_free(s->ranges);
    mn_free(s->sampler_rows);
    mn_free(s->hidden_in);
    mn_kv_unplace(&s->kv);
    mn_masks_free(&s->guides);
    s->engine = NULL;
    s->adapted = NULL;
    s->ring = NULL;
    s->packed = NULL;
    s->sent = NULL;
    s->ranges = NULL;
    s->sampler_rows = NULL;
    s->hidden_in = NULL;
    s->sent_valid = false;
    memset(s->pace.sizes, 0, sizeof s->pace.sizes);
}

mn_status mn_steps_wake(mn_steps *s, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; s->seqs && i < s->n_seq && !st; i++)
        if (s->seqs[i].running)
            st = mn_slot_wake(s, i, err);
    return st;
}

/* ---- a turn of the loop ---------------------------------------------------------------------- */
mn_status mn_steps_settle(const mn_steps *s, mn_status st, mn_error *err) {
    const bool aliased = s->engine && (s->engine->kept_how & MN_KEPT_ALIASED);
    return mn_canonical_settle(s->model->canonical, aliased, st, err);
}

void mn_steps_tell(const mn_steps *s, mn_step_profile step, uint64_t begin_ns) {
    if (!s->profile)
        return;
    step.size = sizeof step;
    step.unit_stride = sizeof *step.units;
    step.n_units = (uint32_t)s->engine->n_units;
    step.units = s->engine->units;
    step.time_ns = mn_now_ns() - begin_ns;
    s->profile(s->profile_arg, &step);
}

/* With nothing in flight a step always finds its pages (mn_kv_pages): else this says so, not
 * silence. Sequences whose constraints take long have their rows in a later one. */
static mn_status check_idle(const mn_steps *s, mn_error *err) {
    for (uint32_t i = 0; i < s->n_seq; i++)
        if (s->seqs[i].running && !mn_guide_has_noted(s->seqs[i].guide))
            return mn_fail(err, MN_OUT_OF_MEMORY,
                           "the KV cache has no free page for sequence %u (of %u at once)", i,
                           s->n_seq);
    return MN_OK;
}

mn_status mn_steps_advance(mn_steps *s, mn_token *out, uint32_t *n, bool *idle, mn_error *err) {
    bool more = true;
    mn_status st = mn_step_catch_up(s, err);
    if (!st)
        st = mn_step_move_files(s, err);
    while (more && !st)
        st = mn_step_enqueue(s, &more, err);
    if (st)
        return st;
    *idle = s->clock.completed == s->clock.enqueued;
    if (*idle && mn_step_await_files(s)) {
        *idle = false;
        return MN_OK;
    }
    if (*idle)
        return check_idle(s, err);
    st = mn_step_complete(s, out, n, err);
    if (st == MN_CANCELLED)
        atomic_store(&s->cancelled, 0);
    return st;
}
