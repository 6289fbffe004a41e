/* step.c -- builds a step from what the sequences need, and enqueues it; complete.c takes in what
 * an older one drew.
 *
 * A step first continues every sequence that draws, one row each, then fills up with rows of
 * prompts. Its inputs are one packed block (engine.h says where each lies), written only where it
 * differs from the one before: a steady decode writes nothing. */
#include "session/steps/steps.h"
#include <string.h>

void mn_step_hear(mn_steps *s, uint32_t seq, uint32_t row, uint32_t position, uint32_t n) {
    const size_t width = (size_t)s->graph->hp.n_embd;
    for (uint32_t i = 0; i < n && s->hidden_in; i++) {
        const float *known = NULL;
        float *to = s->hidden_in + (row + i) * width;
        if (s->hidden.hear)
            known = s->hidden.hear(s->hidden.arg, seq, position + i);
        if (known)
            memcpy(to, known, width * sizeof *to);
        else
            memset(to, 0, width * sizeof *to);
    }
}

/* Where the rows that are added next have their hidden states. */
static void note_span(mn_step_builder *b, uint32_t seq, uint32_t n) {
    const mn_sequence *q = &b->s->seqs[seq];
    mn_step_hear(b->s, seq, b->size.n_rows, q->n_enqueued, n);
    if (b->s->hidden.tell)
        b->step->spans[b->step->n_spans++] = (mn_step_span){.seq = seq,
                                                            .epoch = q->epoch,
                                                            .position = q->n_enqueued,
                                                            .row = b->size.n_rows,
                                                            .n = n};
}

void mn_step_add_rows(mn_step_builder *b, uint32_t seq, uint32_t n, bool literal) {
    mn_steps *s = b->s;
    mn_step_size *size = &b->size;
    const mn_sequence *q = &s->seqs[seq];
    const mn_input_layout *l = &s->engine->in;
    mn_state_step(&s->kv, seq, q->n_enqueued, n, literal);
    note_span(b, seq, n);
    int32_t *seqs = s->packed + l->seqs + 4 * (size_t)size->n_seqs; // [n_seqs, 4]
    seqs[0] = (int32_t)size->n_rows;
    seqs[1] = (int32_t)n;
    seqs[2] = (int32_t)seq;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = size->n_rows + i;
        const uint32_t pos = q->n_enqueued + i;
        s->packed[l->src + row] = literal ? q->tokens[pos] : ~(int32_t)seq;
        s->packed[l->pos + row] = literal ? (int32_t)pos : -1;
        s->packed[l->row_slot + row] = (int32_t)seq;
        mn_step_adapt_row(s, row, q);
    }
    if (q->n_text)
        s->packed[l->text_length + seq] = (int32_t)q->n_text;
    size->n_seqs++;
    size->n_rows += n;
    size->max_rows = MN_MAX(size->max_rows, n);
    size->longest = MN_MAX(size->longest, MN_MAX(q->n_enqueued + n, q->n_text));
}

void mn_step_add_text(mn_step_builder *b, uint32_t seq) {
    mn_steps *s = b->s;
    mn_step_size *size = &b->size;
    const mn_sequence *q = &s->seqs[seq];
    const mn_input_layout *l = &s->engine->in;
    int32_t *seqs = s->packed + l->text_seqs + 4 * (size_t)size->n_texts; // [n_texts, 4]
    seqs[0] = (int32_t)size->n_text;
    seqs[1] = (int32_t)q->n_text;
    seqs[2] = (int32_t)seq;
    for (uint32_t i = 0; i < q->n_text; i++) {
        const uint32_t row = size->n_text + i;
        s->packed[l->text_src + row] = q->text[i];
        s->packed[l->text_pos + row] = (int32_t)i;
        s->packed[l->text_row_slot + row] = (int32_t)seq;
    }
    size->n_texts++;
    size->n_text += q->n_text;
    size->max_rows = MN_MAX(size->max_rows, q->n_text);
    s->kv.slots[seq].has_text = true;
}

void mn_step_add_output(mn_step_builder *b, uint32_t seq) {
    mn_steps *s = b->s;
    mn_sequence *q = &s->seqs[seq];
    const mn_input_layout *l = &s->engine->in;
    const uint32_t at = b->size.n_out++;
    s->packed[l->out_row + at] = (int32_t)b->size.n_rows - 1;
    s->packed[l->out_slot + at] = q->elsewhere ? -1 : (int32_t)seq;
    mn_step_adapt_output(s, at, q);
    b->step->outs[at] = (mn_pending_output){
        .seq = (int32_t)seq, .epoch = q->epoch, .draft = -1, .elsewhere = q->elsewhere};
    b->scores = b->scores || q->scores;
    b->samplers = b->samplers || (q->samplers && !q->elsewhere);
    b->elsewhere = b->elsewhere || q->elsewhere;
    b->masks = b->masks || q->guide;
    q->n_draw_enqueued++;
}

void mn_step_add_drafts(mn_step_builder *b, uint32_t seq) {
    mn_steps *s = b->s;
    const mn_sequence *q = &s->seqs[seq];
    const mn_input_layout *l = &s->engine->in;
    const uint32_t first = b->size.n_rows;
    const uint32_t n = q->spec.n;
    mn_step_add_rows(b, seq, n + 1, true);
    for (uint32_t i = 0; i <= n; i++) {
        const uint32_t at = b->size.n_out;
        mn_step_add_output(b, seq);
        s->packed[l->out_row + at] = (int32_t)(first + i);
        b->step->outs[at].ahead = i;
        if (i == n)
            continue;
        b->step->outs[at].draft = q->tokens[q->n_tokens + i];
        b->step->outs[at].forced = q->spec.forced >> i & 1;
        b->guesses = b->guesses || !b->step->outs[at].forced;
        s->packed[l->draft + at] = b->step->outs[at].draft;
    }
    b->drafts = b->drafts || n;
}

void mn_step_add_scores(mn_step_builder *b, uint32_t seq, uint32_t n) {
    mn_steps *s = b->s;
    const mn_sequence *q = &s->seqs[seq];
    const mn_input_layout *l = &s->engine->in;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = b->size.n_rows - n + i;
        const uint32_t behind = (uint32_t)s->packed[l->pos + row] + 1;
        if (behind >= q->n_literal)
            return;
        const uint32_t at = b->size.n_out++;
        s->packed[l->out_row + at] = (int32_t)row;
        s->packed[l->target + at] = q->tokens[behind];
        mn_step_adapt_output(s, at, q);
        b->step->outs[at] = (mn_pending_output){
            .seq = (int32_t)seq, .epoch = q->epoch, .scored = behind, .draft = -1};
        b->scores = true;
    }
}

/* Inputs [from, to) of the packed block as bytes of one value. */
static void set_inputs(mn_steps *s, uint32_t from, uint32_t to, int byte) {
    memset(s->packed + from, byte, (to - from) * sizeof *s->packed);
}

void mn_step_clear(mn_steps *s) {
    const mn_input_layout *l = &s->engine->in;
    set_inputs(s, l->src, l->out_row, 0);
    set_inputs(s, l->row_slot, l->seqs, 0xff);
    set_inputs(s, l->out_row, l->head, 0xff);
    if (!s->graph->hp.n_encoder)
        return;
    set_inputs(s, l->text_src, l->text_row_slot, 0);
    set_inputs(s, l->text_seqs, l->head, 0);
}

/* What of the inputs differs from what was written last: s->ranges; how many. head: bytes. */
static uint32_t input_changes(mn_steps *s, size_t head) {
    uint32_t n = 0;
    if (memcmp(s->packed, s->sent, head))
        s->ranges[n++] = (mn_input_range){0, s->engine->in.head};
    return n + mn_tables_changes(&s->kv, s->ranges + n);
}

/* The program that the step needs, MN_RUN_*. */
static uint32_t choose_program(const mn_step_builder *b) {
    if (b->samplers)
        return MN_RUN_SAMPLERS;
    if (b->scores)
        return MN_RUN_SCORES;
    if (b->masks)
        return MN_RUN_MASKS;
    return b->drafts ? MN_RUN_DRAFTS : MN_RUN_PLAIN;
}

static void tell_profile(const mn_steps *s, const mn_pending_step *step) {
    const mn_step_profile profile = {.n_rows = step->n_rows,
                                     .n_prompt = step->n_prompt_rows + step->n_restored_rows,
                                     .n_outputs = step->n_out};
    mn_steps_tell(s, profile, step->start_ns);
}

/* The rows that the engine's sampler draws for. Of a sequence that has ended since nothing is
 * drawn. */
static void set_sampler_rows(mn_steps *s, mn_pending_step *step) {
    const mn_masks *m = &s->guides.masks;
    uint32_t n = 0;
    for (uint32_t i = 0; i < step->n_out; i++) {
        const mn_pending_output o = step->outs[i];
        const mn_sequence *q = &s->seqs[o.seq];
        if (!o.elsewhere || !mn_output_is_awaited(s, o))
            continue;
        s->sampler_rows[n++] = (mn_sampler_row){
            .row = i,
            .slot = (uint32_t)o.seq,
            .params = &q->params,
            .mask = q->guide ? m->rows + (size_t)i * m->n_words : NULL,
            .breakers = q->breakers,
            .bias = q->bias,
            .n_bias = q->n_bias,
        };
    }
    step->exec.sampler_rows = s->sampler_rows;
    step->exec.n_sampler_rows = n;
}

/* The masks of the step's outputs, by what their sequences may draw. */
static mn_status write_masks(mn_steps *s, const mn_pending_step *step, mn_error *err) {
    mn_mask_of *of = s->guides.masks.of;
    for (uint32_t i = 0; i < step->n_out; i++) {
        const mn_pending_output *o = &step->outs[i];
        of[i] = (mn_mask_of){o->scored ? NULL : s->seqs[o->seq].guide, o->ahead};
    }
    return mn_masks_write(&s->guides, s->engine, step->n_out, err);
}

mn_status mn_step_finish(mn_steps *s, mn_pending_step *step, mn_error *err) {
    step->unfinished = false;
    mn_status st = write_masks(s, step, err);
    set_sampler_rows(s, step);
    if (!st)
        st = mn_engine_finish(s->engine, &step->exec, &step->event, err);
    if (!st)
        tell_profile(s, step);
    return st;
}

/* All of it, or what can be enqueued before the step in front of it tells what its masks are. */
static mn_status run_step(mn_step_builder *b, mn_error *err) {
    mn_steps *s = b->s;
    mn_pending_step *step = b->step;
    mn_status st;
    set_sampler_rows(s, step);
    if (step->exec.run < MN_RUN_MASKS) {
        st = mn_engine_submit(s->engine, &step->exec, &step->event, err);
        if (!st)
            tell_profile(s, step);
        return st;
    }
    step->unfinished = b->masks && s->clock.completed < s->clock.enqueued;
    st = mn_engine_begin(s->engine, &step->exec, err);
    if (st || step->unfinished)
        return st;
    return mn_step_finish(s, step, err);
}

/* Enqueues the step; what it wrote is kept, to be compared with the next. */
static mn_status submit_step(mn_step_builder *b, mn_error *err) {
    mn_steps *s = b->s;
    mn_pending_step *step = b->step;
    const size_t bytes = s->engine->in.head * sizeof *s->packed;
    mn_engine_describe(s->engine, &b->size, s->packed);
    mn_engine_step *exec = &step->exec;
    mn_engine_symbols(s->engine, &b->size, exec->symbols);
    const uint32_t n_ranges = input_changes(s, bytes);
    const bool same = s->sent_valid && !n_ranges;
    exec->inputs = same ? NULL : s->packed;
    exec->ranges = s->ranges;
    exec->n_ranges = s->sent_valid ? n_ranges : 0;
    exec->at = (uint32_t)(s->clock.enqueued % s->ring_size);
    exec->run = choose_program(b);
    exec->profile = s->profile != NULL;
    exec->hidden = s->hidden.tell != NULL;
    exec->hidden_in = s->hidden_in;
    exec->n_hidden_in = b->size.n_rows;
    step->number = s->clock.enqueued;
    step->n_out = b->size.n_out;
    step->n_rows = b->size.n_rows + b->size.n_text;
    step->start_ns = mn_now_ns();
    step->expected_ns = mn_engine_step_ns(s->engine, exec->symbols);
    step->scores = b->scores || b->samplers || b->elsewhere;
    step->samplers = b->samplers;
    step->guesses = b->guesses;
    s->sent_valid = false; /* until it is written */
    step->is_new = mn_pace_is_new(s, step);
    const mn_status st = run_step(b, err);
    if (st)
        return st;
    memcpy(s->sent, s->packed, bytes);
    mn_tables_written(&s->kv);
    s->sent_valid = true;
    s->clock.enqueued++;
    return MN_OK;
}

mn_status mn_step_give_up(mn_steps *s, const mn_pending_step *step, mn_status st, mn_error *err) {
    mn_step_forget(s, step);
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST)
        return st;
    const mn_status worse = mn_distrust(s, NULL);
    if (MN_STATUS_CLASS(worse) != MN_CLASS_LOST)
        return st;
    return mn_fail(err, worse, "%s", "the device was lost after a step failed");
}

mn_status mn_step_enqueue(mn_steps *s, bool *enqueued, mn_error *err) {
    *enqueued = false;
    if (!mn_schedule_may_enqueue(s))
        return MN_OK;
    const uint64_t begin_ns = mn_now_ns();
    mn_pending_step *step = &s->ring[s->clock.enqueued % s->ring_size];
    mn_step_builder b = {.s = s, .step = step};
    step->event = NULL;
    step->unfinished = false;
    step->n_prompt_rows = 0;
    step->n_restored_rows = 0;
    step->n_prefilled = 0;
    step->n_spans = 0;
    mn_step_clear(s);
    mn_status st = mn_schedule_fill(&b, err);
    if (st || !b.size.n_rows)
        return st;
    st = submit_step(&b, err);
    if (st)
        st = mn_step_give_up(s, step, st, err);
    s->stats.host_s += (double)(mn_now_ns() - begin_ns) * 1e-9;
    *enqueued = !st;
    return st;
}

void mn_step_forget(mn_steps *s, const mn_pending_step *step) {
    s->stats.n_prompt += step->n_prompt_rows;
}
