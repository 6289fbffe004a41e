/* slots.c -- slots and the sequences in them: claimed, woken on an engine, set back to their
 * tokens, released. What a sequence of mn_seq_create owns is sequence.c's; what it borrows of a job
 * is admit.c's. */
#include "session/steps/steps.h"
#include <string.h>

/* ---- programs -------------------------------------------------------------------------------- */
static mn_status make_program(mn_steps *s, uint32_t run, uint32_t end, mn_error *err) {
    const mn_model_graph *g = NULL;
    if (s->graph->tells)
        end += MN_GRAPH_TELLS;
    const mn_status st =
        mn_model_graph_divided(s->model, s->n_ctx, end, s->graph->division, &g, err);
    return st ? st : mn_engine_make_program(s->engine, run, g, err);
}

/* Makes program `run` (MN_RUN_*), which has masks, and verifies drafts where the device can. */
static mn_status need_program(mn_steps *s, uint32_t run, mn_error *err) {
    static const uint32_t ends[] = {
        [MN_RUN_MASKS] = MN_GRAPH_MASKS,
        [MN_RUN_SCORES] = MN_GRAPH_SCORES,
        [MN_RUN_SAMPLERS] = MN_GRAPH_SAMPLERS,
    };
    static const uint32_t with_drafts[] = {
        [MN_RUN_MASKS] = MN_GRAPH_MASKS_DRAFTS,
        [MN_RUN_SCORES] = MN_GRAPH_SCORES_DRAFTS,
        [MN_RUN_SAMPLERS] = MN_GRAPH_SAMPLERS_DRAFTS,
    };
    mn_status st = mn_masks_make(&s->guides, s->engine, s->n_outputs, err);
    if (st || s->engine->programs[run].ready)
        return st;
    if (s->drafts.verifies)
        st = make_program(s, run, with_drafts[run], err);
    if (s->drafts.verifies && MN_STATUS_CLASS(st) != MN_CLASS_REFUSE)
        return st;
    st = make_program(s, run, ends[run], err);
    if (!st)
        s->drafts.verifies = false; /* SAMPLE without contract 3 */
    if (MN_STATUS_CLASS(st) == MN_CLASS_REFUSE)
        atomic_fetch_or(&s->limits.refused, 1u << run);
    return st;
}

/* The biases of the sequence in its slot, or none where an earlier one has left some. */
static mn_status wake_bias(mn_steps *s, uint32_t seq, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    const bool stale = s->engine->scoring.ready && q->biased;
    mn_status st = MN_OK;
    if (q->n_bias || stale)
        st = mn_engine_write_bias(s->engine, seq, q->bias, q->n_bias, err);
    q->biased = q->n_bias > 0;
    return st;
}

/* The programs that the sequence needs, with what they read of its slot. A step runs the last one
 * that any of its sequences needs. */
static mn_status wake_programs(mn_steps *s, uint32_t seq, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    mn_status st = MN_OK;
    q->elsewhere = q->samplers && s->engine->sampler;
    if (q->guide && !q->scores && (!q->samplers || q->elsewhere))
        st = need_program(s, MN_RUN_MASKS, err);
    if (!st && q->scores)
        st = need_program(s, MN_RUN_SCORES, err);
    if (!st && q->elsewhere)
        st = mn_engine_need_sampler(s->engine, err);
    else if (!st && q->samplers)
        st = need_program(s, MN_RUN_SAMPLERS, err);
    if (!st && q->breakers && !q->elsewhere)
        st = mn_engine_write_breakers(s->engine, seq, q->breakers, err);
    return st ? st : wake_bias(s, seq, err);
}

mn_status mn_slot_adapt(mn_steps *s, uint32_t seq, mn_error *err) {
    const mn_adapter *a = s->seqs[seq].adapter;
    if (!a || s->adapted[a->slot] == a->order)
        return MN_OK;
    const mn_status st = mn_engine_write_adapter(s->engine, a->slot, mn_adapter_fill, a, err);
    if (!st)
        s->adapted[a->slot] = a->order;
    return st;
}

mn_status mn_slot_wake(mn_steps *s, uint32_t seq, mn_error *err) {
    const mn_sequence *q = &s->seqs[seq];
    mn_status st = wake_programs(s, seq, err);
    if (!st)
        st = mn_slot_adapt(s, seq, err);
    if (st)
        return st;
    const mn_slot state = {
        .pos = (int32_t)q->n_enqueued, .n_drawn = (int32_t)q->n_drawn, .mu = q->mu};
    return mn_engine_reset_slot(s->engine, seq, &state, &q->params, err);
}

/* ---- life ------------------------------------------------------------------------------------ */
bool mn_slot_claim(mn_steps *s, uint32_t *seq) {
    for (uint32_t i = 0; i < s->n_seq; i++) {
        mn_sequence *q = &s->seqs[i];
        if (q->used)
            continue;
        q->used = true;
        q->running = false;
        q->tokens = q->own_tokens;
        q->text = q->own_text;
        q->n_text = 0;
        q->job = NULL;
        q->flags = 0;
        q->scores = false;
        q->samplers = false;
        q->elsewhere = false;
        q->breakers = NULL;
        q->adapter = NULL;
        q->spec.host_paced = false;
        q->guide = NULL;
        q->n_bias = 0;
        q->n_tokens = 0;
        q->n_literal = 0;
        q->n_enqueued = 0;
        q->n_restore = 0;
        q->order = ++s->n_orders;
        mn_kv_begin(&s->kv, i, false, 0, 0);
        mn_drafts_begin(&s->drafts, &q->spec);
        s->turns[s->n_turns++] = i;
        *seq = i;
        return true;
    }
    return false;
}

void mn_slot_go_back(mn_steps *s, uint32_t seq, uint32_t n_positions) {
    mn_sequence *q = &s->seqs[seq];
    q->n_enqueued = mn_state_settle(&s->kv, seq, n_positions);
    if (q->n_enqueued == n_positions)
        return;
    q->n_restore = MN_MAX(q->n_restore, n_positions);
    q->n_literal = q->n_tokens;
}

/* What it had run is remembered for the statistics. */
void mn_slot_set_back(mn_steps *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    const bool has_drawn = q->running && q->n_drawn;
    const uint32_t run = has_drawn ? q->n_tokens : MN_MIN(q->n_enqueued, q->n_tokens);
    q->n_restore = MN_MAX(q->n_restore, run);
    q->n_enqueued = 0;
    mn_kv_forget(&s->kv, seq);
    if (!q->running)
        return;
    q->n_literal = q->n_tokens;
    q->n_draw_enqueued = q->n_drawn;
}

void mn_slot_untell(mn_steps *s, int32_t seq) {
    uint32_t n = s->n_told;
    for (uint32_t i = s->n_told; i < s->n_ready; i++)
        if (s->ready[i].seq != seq)
            s->ready[n++] = s->ready[i];
    s->n_ready = n;
}

void mn_slot_release(mn_steps *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    uint32_t at = 0;
    while (s->turns[at] != seq)
        at++;
    s->n_turns--;
    memmove(s->turns + at, s->turns + at + 1, (s->n_turns - at) * sizeof *s->turns);
    mn_pages_drop(&s->kv, seq, mn_seq_text(&s->seqs[seq]));
    mn_slot_untell(s, (int32_t)seq);
    mn_guide_free(q->own_guide);
    q->own_guide = NULL;
    q->guide = NULL;
    if (!q->job) /* else the job holds it */
        mn_adapter_release(s->model->adapters, q->adapter);
    q->adapter = NULL;
    q->used = false;
    q->running = false;
    q->job = NULL;
    q->epoch++;
}
