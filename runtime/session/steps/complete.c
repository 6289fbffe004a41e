/* complete.c -- takes in what a step drew: waits for the oldest one, hands its ids to jobs and
 * callers, counts drafts that held, lets constraints catch up. Nothing of a step is taken in before
 * all that it gives is checked. */
#include "session/steps/steps.h"
#include <math.h>

static bool is_stop(const mn_sequence *q, int32_t id) {
    for (int32_t i = 0; i < q->params.n_stop; i++)
        if (q->params.stop[i] == id)
            return true;
    return false;
}

/* Takes in one drawn id. */
static void take_id(mn_steps *s, mn_pending_output o, int32_t id, mn_token *out) {
    mn_sequence *q = &s->seqs[o.seq];
    q->tokens[q->n_tokens++] = id;
    q->n_drawn++;
    *out = (mn_token){o.seq, id, MN_FINISH_NONE, 0};
    if (is_stop(q, id))
        out->finish = MN_FINISH_STOP;
    else if (q->n_drawn >= q->limit)
        out->finish = MN_FINISH_LENGTH;
    if (out->finish) {
        q->running = false;
        /* the last one drawn was never stored, nor anything after it */
        mn_slot_go_back(s, (uint32_t)o.seq, q->n_tokens - 1);
    }
    s->stats.n_drawn++;
}

/* SAMPLE gave no id, and the slot is done: the sequence ends. What it has stored is that of its
 * tokens; steps that are ahead store nothing. */
static mn_status end_failed(mn_steps *s, mn_pending_output o, int32_t id, mn_token *out,
                            mn_error *err) {
    mn_sequence *q = &s->seqs[o.seq];
    const char *path = s->model->canonical->path;
    q->running = false;
    mn_slot_go_back(s, (uint32_t)o.seq, q->n_tokens);
    *out = (mn_token){o.seq, MN_ID_NONE, MN_FINISH_FAILED, 0};
    const char *device = mn_engine_logits_name(s->engine);
    if (id == MN_ID_NAN)
        return mn_fail(err, MN_BAD_FILE,
                       "%s: sequence %d ends: a logit at position %u is NaN, expected numbers: the "
                       "device is at fault, or the weights of %s are damaged, or too large for the "
                       "device's types (--precision exact)",
                       device, o.seq, q->n_tokens, path);
    return mn_fail(
        err, MN_BAD_FILE,
        "%s: sequence %d ends: no logit at position %u is finite, expected one at least: "
        "the device is at fault, or the weights of %s are damaged",
        device, o.seq, q->n_tokens, path);
}

/* The id is part of the text that the sequence's constraint watches over; catch_up looks at it. */
static void guide_on(const mn_sequence *q, int32_t id) {
    if (q->guide)
        mn_guide_note(q->guide, id);
}

/* The next id of a job, or its end. */
static void take_for_job(mn_steps *s, mn_pending_output o, int32_t id, const mn_score *score) {
    const mn_sequence *q = &s->seqs[o.seq];
    mn_job *job = q->job;
    if (o.scored) {
        mn_job_score_prompt(job, o.scored, score);
        return;
    }
    mn_error why = MN_ERROR_INIT;
    mn_token token;
    if (id < 0) {
        end_failed(s, o, id, &token, &why);
        mn_slot_end_job(s, job, MN_FINISH_FAILED, &why);
        return;
    }
    take_id(s, o, id, &token);
    job->n_tokens = q->n_tokens;
    job->n_drawn = q->n_drawn;
    job->mu = q->mu;
    const mn_score *told = job->flags & MN_SUBMIT_LOGPROBS ? score : NULL;
    if (mn_event_token(&s->requests, job, &token, told, &why))
        mn_slot_end_job(s, job, MN_FINISH_FAILED, &why);
    else if (token.finish)
        mn_slot_end_job(s, job, token.finish, NULL);
    else
        guide_on(q, id);
}

/* The next id of a sequence of mn_seq_create, or its end. */
static mn_status take_for_caller(mn_steps *s, mn_pending_output o, int32_t id, mn_token *out,
                                 mn_error *err) {
    mn_sequence *q = &s->seqs[o.seq];
    if (id < 0)
        return end_failed(s, o, id, out, err);
    take_id(s, o, id, out);
    if (!out->finish)
        guide_on(q, id);
    return MN_OK;
}

/* A step that is complete, at its place of the ring, and where its tokens go: out may be NULL. */
typedef struct {
    const mn_pending_step *step;
    uint32_t at;
    mn_token *out;
    uint32_t *n;
} mn_taking;

/* Takes in output i; st: an error that an earlier one has told already. */
static mn_status take_output(mn_steps *s, const mn_taking *t, uint32_t i, mn_status st,
                             mn_error *err) {
    const mn_pending_output o = t->step->outs[i];
    const int32_t id = mn_engine_ids(s->engine, t->at)[i];
    mn_token token;
    if (!mn_output_is_awaited(s, o))
        return st;
    mn_score score = {.logprob = NAN};
    if (t->step->scores)
        score = mn_engine_score(s->engine, t->at, i);
    if ((t->step->samplers || o.elsewhere) && !o.scored && id >= 0)
        s->seqs[o.seq].mu = score.mu;
    if (s->seqs[o.seq].job) {
        take_for_job(s, o, id, t->step->scores ? &score : NULL);
        return st;
    }
    const mn_status one = take_for_caller(s, o, id, &token, st ? NULL : err);
    if (t->out)
        t->out[(*t->n)++] = token;
    return st ? st : one;
}

/* Counts the drafts that output i begins: how many there are, and how many are what was drawn. */
static mn_draft_result count_drafts(const mn_steps *s, const mn_taking *t, uint32_t i) {
    const int32_t *ids = mn_engine_ids(s->engine, t->at) + i;
    const mn_pending_output *outs = t->step->outs + i;
    mn_draft_result r = {0};
    for (; outs[r.n].draft >= 0; r.n++) {
        const bool held = r.n_held == r.n && ids[r.n] == outs[r.n].draft;
        r.n_held += held;
        r.n_forced += outs[r.n].forced;
        r.n_forced_held += held && outs[r.n].forced;
    }
    return r;
}

/* A sequence of mn_seq_create whose constraint cannot go on: its last token says so. */
static mn_status end_guided(mn_steps *s, const mn_taking *t, uint32_t seq, const mn_error *why,
                            mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    q->running = false;
    mn_slot_go_back(s, seq, q->n_tokens - 1); /* as take_id has it of a last id */
    for (uint32_t i = t->out ? *t->n : 0; i-- > 0;) {
        if (t->out[i].seq != (int32_t)seq)
            continue;
        t->out[i] = (mn_token){(int32_t)seq, MN_ID_NONE, MN_FINISH_FAILED, 0};
        break;
    }
    return mn_fail(err, why->status, "sequence %u ends: %s", seq, why->msg);
}

/* Whether the sequence's next row can come in a later step. Those of mn_seq_create cannot: their
 * last token says that a constraint failed. */
static bool may_wait(const mn_sequence *q) {
    return q->job && q->running && mn_guide_is_slow(q->guide) && q->n_draw_enqueued == q->n_drawn &&
           q->n_enqueued >= q->n_literal;
}

/* Guides with ids that were drawn learn of them. */
static void catch_up_guides(mn_steps *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_turns; i++) {
        const mn_sequence *q = &s->seqs[s->turns[i]];
        if (mn_guide_has_noted(q->guide))
            s->guides.turns[n++] =
                (mn_guided){.guide = q->guide, .turn = i, .may_wait = may_wait(q)};
    }
    mn_guides_catch_up(&s->guides, n);
}

/* The constraints of all sequences look at what these drew. t NULL: no step is complete, and only
 * requests have something to catch up with. */
static mn_status catch_up_all(mn_steps *s, const mn_taking *t, mn_status st, mn_error *err) {
    catch_up_guides(s);
    for (uint32_t i = 0; i < s->n_seq; i++) {
        const mn_sequence *q = &s->seqs[i];
        const mn_error *why = q->used && q->running ? mn_guide_failure(q->guide) : NULL;
        if (why && q->job) {
            mn_slot_end_job(s, q->job, MN_FINISH_FAILED, why);
        } else if (why && t) {
            const mn_status one = end_guided(s, t, i, why, st ? NULL : err);
            st = st ? st : one;
        }
    }
    return st;
}

/* What became of a sequence's drafts, for it and for its request. */
static void learn_drafts(mn_steps *s, mn_sequence *q, const mn_draft_result *r) {
    mn_drafts_learn(&s->drafts, &q->spec, r);
    if (!q->job)
        return;
    q->job->n_drafted += r->n - r->n_forced;
    q->job->n_accepted += r->n_held - r->n_forced_held;
    q->job->n_forced += r->n_forced_held;
}

/* Hands out what the step drew. The error of the first sequence that failed; the others go on. */
static mn_status take_all(mn_steps *s, const mn_taking *t, mn_error *err) {
    mn_status st = MN_OK;
    mn_draft_result r;
    for (uint32_t i = 0; i < t->step->n_out; i += r.n + 1) {
        const mn_pending_output o = t->step->outs[i];
        mn_sequence *q = &s->seqs[o.seq];
        r = count_drafts(s, t, i);
        if (!mn_output_is_awaited(s, o))
            continue;
        if (q->job && !o.scored)
            q->job->n_steps++;
        if (r.n)
            learn_drafts(s, q, &r);
        for (uint32_t k = 0; k <= r.n_held; k++)
            st = take_output(s, t, i + k, st, err);
        if (!r.n || !mn_output_is_awaited(s, o))
            continue;
        mn_slot_go_back(s, (uint32_t)o.seq, q->n_tokens - 1); /* behind it lie rejected drafts */
        q->n_draw_enqueued = q->n_drawn;
    }
    return catch_up_all(s, t, st, err);
}

/* Positions of a span whose tokens are the sequence's: not those of drafts that did not hold, nor
 * the last id drawn, which is computed later. */
static uint32_t span_length(const mn_sequence *q, const mn_step_span *x) {
    if (x->position + x->n <= q->n_literal)
        return x->n;
    if (x->position + 1 >= q->n_tokens)
        return 0;
    return MN_MIN(x->n, q->n_tokens - 1 - x->position);
}

/* Once it is known which rows count. */
static void tell_hidden(mn_steps *s, const mn_pending_step *step, uint32_t at) {
    const size_t width = (size_t)s->graph->hp.n_embd;
    for (uint32_t i = 0; i < step->n_spans; i++) {
        const mn_step_span *x = &step->spans[i];
        const mn_sequence *q = &s->seqs[x->seq];
        if (!q->used || q->epoch != x->epoch || !span_length(q, x) || !s->hidden.tell)
            continue;
        const mn_hidden_rows told = {
            .slot = x->seq,
            .position = x->position,
            .n = span_length(q, x),
            .n_tokens = q->n_tokens,
            .tokens = q->tokens,
            .rows = mn_engine_hidden(s->engine, at) + x->row * width,
        };
        s->hidden.tell(s->hidden.arg, &told);
    }
}

/* Nothing of a step is taken in before all that it gives can be. */
static mn_status check_outputs(mn_steps *s, const mn_pending_step *step, uint32_t at,
                               mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < step->n_out && !st; i++)
        if (mn_output_is_awaited(s, step->outs[i]))
            st = mn_engine_check_output(s->engine, at, i, step->scores, err);
    return st;
}

/* Sequences that wanted their prompts computed and nothing else. */
static void end_prefilled(mn_steps *s, const mn_pending_step *step) {
    for (uint32_t i = 0; i < step->n_prefilled; i++) {
        const mn_pending_output o = step->prefilled[i];
        mn_sequence *q = &s->seqs[o.seq];
        if (!mn_output_is_awaited(s, o))
            continue;
        q->running = false;
        if (!q->job)
            continue;
        mn_event_prompt(&s->requests, q->job);
        mn_slot_end_job(s, q->job, MN_FINISH_PROMPT, NULL);
    }
}

/* Time counts from the end of the step before: steps overlap. */
static void account_step(mn_steps *s, const mn_pending_step *step) {
    uint64_t now = mn_now_ns();
    uint64_t from = MN_MAX(step->start_ns, s->last_complete_ns);
    double dt = (double)(now - from) * 1e-9;
    s->last_complete_ns = now;
    mn_pace_learn(s, step, now - from);
    s->stats.n_steps++;
    s->stats.n_verifying += step->guesses;
    s->stats.n_prompt += step->n_prompt_rows;
    s->stats.n_restored += step->n_restored_rows;
    if (step->n_restored_rows)
        s->stats.restore_s += dt;
    else if (step->n_prompt_rows)
        s->stats.prompt_s += dt;
    else
        s->stats.decode_s += dt;
}

static mn_status poll_oldest(mn_steps *s, mn_pending_step *step, bool may_cancel, mn_error *err) {
    enum { POLL_NS = 50000000 };
    for (;;) {
        mn_status st = mn_engine_wait(s->engine, &step->event, POLL_NS, err);
        if (st != MN_TIMEOUT)
            return st;
        if (may_cancel && atomic_load(&s->cancelled))
            return mn_fail(err, MN_CANCELLED, "cancelled");
    }
}

/* In slices, so that a cancellation is seen. */
static mn_status wait_oldest(mn_steps *s, mn_pending_step *step, bool may_cancel, mn_error *err) {
    mn_call *call = mn_engine_await(s->engine, step->expected_ns);
    const mn_status st = poll_oldest(s, step, may_cancel, err);
    mn_call_end(call);
    return st;
}

/* Masks are known as far as tokens are: the step that waits for them goes on. st: what the step
 * before it says, which is told first. */
static mn_status finish_next(mn_steps *s, mn_status st, mn_error *err) {
    mn_pending_step *next = &s->ring[s->clock.completed % s->ring_size];
    if (s->clock.completed == s->clock.enqueued || !next->unfinished)
        return st;
    const mn_status own = mn_step_finish(s, next, st ? NULL : err);
    if (!own)
        return st;
    const mn_status worse = mn_step_give_up(s, next, own, st ? NULL : err);
    next->n_prompt_rows = 0; /* it stays in flight, and tells nothing */
    next->n_restored_rows = 0;
    return st && MN_STATUS_CLASS(worse) != MN_CLASS_LOST ? st : worse;
}

/* Sequences whose constraints take long may be all that there are: then nothing is in flight, whose
 * end would let them go on. */
mn_status mn_step_catch_up(mn_steps *s, mn_error *err) {
    if (s->clock.completed < s->clock.enqueued)
        return MN_OK;
    mn_guides_next_step(&s->guides);
    return catch_up_all(s, NULL, MN_OK, err);
}

mn_status mn_step_complete(mn_steps *s, mn_token *out, uint32_t *n, mn_error *err) {
    const uint32_t at = (uint32_t)(s->clock.completed % s->ring_size);
    mn_pending_step *step = &s->ring[at];
    mn_status st = wait_oldest(s, step, out != NULL, err);
    *n = 0;
    if (st == MN_CANCELLED)
        return st;
    s->clock.completed++;
    mn_page_pools_settle(&s->kv);
    st = mn_steps_settle(s, st, err);
    if (!st)
        st = check_outputs(s, step, at, err);
    if (st)
        return mn_step_give_up(s, step, st, err);
    account_step(s, step);
    mn_guides_next_step(&s->guides);
    st = take_all(s, &(mn_taking){step, at, out, n}, err);
    tell_hidden(s, step, at);
    end_prefilled(s, step);
    return finish_next(s, st, err);
}

mn_status mn_step_drain(mn_steps *s, mn_error *err) {
    mn_status st = MN_OK;
    uint32_t n;
    while (s->clock.completed < s->clock.enqueued) {
        mn_status one = mn_step_complete(s, NULL, &n, err);
        if (!st)
            st = one;
    }
    return st;
}
