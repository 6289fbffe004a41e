/* schedule.c -- who is in the next step. First one row for every sequence that draws, then rows of
 * prompts (how many: pace.c), both in turn: by priority, then by arrival. When pages run out, the
 * last in turn is preempted (preempt.c) until the first have theirs: the very first always gets
 * on. */
#include "session/steps/steps.h"

enum { AHEAD_NS = 5000000, FEW_FORCED = 2 };

/* ---- ahead ----------------------------------------------------------------------------------- */
/* What the steps in flight should take together, the one that runs included. */
static double in_flight_ns(const mn_steps *s) {
    double ns = 0;
    for (uint64_t i = s->clock.completed; i < s->clock.enqueued; i++) {
        const mn_pending_step *step = &s->ring[i % s->ring_size];
        ns += mn_pace_usual_ns(&s->pace, step->n_rows);
        if (step->n_prompt_rows && s->pace.row_ns > 0)
            ns += s->pace.any_ns;
    }
    return ns;
}

/* Whether the next row of a sequence depends on what the host makes of its last draw: none is
 * enqueued before that is read, and the others do not wait for it. It verifies drafts, or is to
 * have some; or its constraint forces so many ids that one step with all of them is worth it, or
 * takes long. */
static bool awaits_host(const mn_steps *s, const mn_sequence *q) {
    const uint32_t in_flight = q->n_draw_enqueued - q->n_drawn;
    if (q->running && !in_flight && mn_guide_has_noted(q->guide))
        return true;
    if (!q->running || !in_flight)
        return false;
    if (q->spec.host_paced)
        return true;
    if (!q->guide)
        return false;
    return in_flight > 1 || mn_guide_is_slow(q->guide) ||
           (s->drafts.forces && mn_guide_n_forced(q->guide) > FEW_FORCED);
}

/* Steps that may be in flight when one more is enqueued, where sequences wait for the host: their
 * next rows stand behind whatever is enqueued meanwhile. If most wait, none; else one. */
static uint64_t most_ahead(const mn_steps *s) {
    uint32_t n_running = 0;
    uint32_t n_waiting = 0;
    for (uint32_t i = 0; i < s->n_seq; i++) {
        n_running += s->seqs[i].used && s->seqs[i].running;
        n_waiting += s->seqs[i].used && awaits_host(s, &s->seqs[i]);
    }
    if (!n_waiting)
        return s->ring_size;
    return 2 * n_waiting > n_running ? 1 : 2;
}

bool mn_schedule_may_enqueue(const mn_steps *s) {
    const uint64_t in_flight = s->clock.enqueued - s->clock.completed;
    if (in_flight && s->ring[(s->clock.enqueued - 1) % s->ring_size].unfinished)
        return false;
    if (in_flight >= MN_MIN(s->ring_size, most_ahead(s)))
        return false;
    /* requests come at any time: the next one's prompt stands behind what is in flight */
    if (mn_requests_idle(&s->requests) || in_flight < 2)
        return true;
    return s->pace.draw_ns > 0 && in_flight_ns(s) + s->pace.draw_ns < AHEAD_NS;
}

/* ---- turns ----------------------------------------------------------------------------------- */
/* Finished sequences come last: their pages are a convenience. */
static uint32_t rank(const mn_sequence *q) {
    if (!q->running)
        return MN_PRIORITY_LOW + 1;
    return q->job ? q->job->priority : MN_PRIORITY_NORMAL;
}

static bool precedes(const mn_sequence *a, const mn_sequence *b) {
    if (rank(a) != rank(b))
        return rank(a) < rank(b);
    if (a->job && b->job)
        return mn_job_precedes(a->job, b->job);
    return a->order < b->order;
}

/* Insertion: nearly sorted from the step before. */
static void sort_turns(mn_steps *s) {
    for (uint32_t i = 1; i < s->n_turns; i++) {
        const uint32_t seq = s->turns[i];
        uint32_t k = i;
        for (; k > 0 && precedes(&s->seqs[seq], &s->seqs[s->turns[k - 1]]); k--)
            s->turns[k] = s->turns[k - 1];
        s->turns[k] = seq;
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */
/* The last in turn that holds pages. seq itself, if nobody behind it does. */
static uint32_t victim(const mn_steps *s, uint32_t seq) {
    for (uint32_t i = s->n_turns; i-- > 0;) {
        const uint32_t at = s->turns[i];
        if (at == seq)
            break;
        if (mn_pages_any(&s->kv, at))
            return at;
    }
    return seq;
}

/* Pages for the sequence, now (*got) or when steps in flight are complete; those behind it give
 * way. At worst it gives way itself. Whoever gives way has no row in this step yet, or none at
 * all. */
static mn_status reserve(mn_steps *s, uint32_t seq, uint32_t n_positions, bool *got,
                         mn_error *err) {
    mn_status st = MN_OK;
    *got = mn_pages_reserve(&s->kv, seq, n_positions);
    while (!*got && !st && !mn_pages_will_come(&s->kv, seq, n_positions)) {
        const uint32_t last = victim(s, seq);
        st = mn_preempt(s, last, err);
        if (last == seq)
            return st;
        if (!st)
            *got = mn_pages_reserve(&s->kv, seq, n_positions);
    }
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */
static bool draws_next(const mn_steps *s, const mn_sequence *q) {
    return q->running && q->n_enqueued >= q->n_literal && q->n_draw_enqueued < q->limit &&
           !(q->flags & MN_SAMPLE_PREFILL_ONLY) && !awaits_host(s, q);
}

/* Not while it loads what others have computed. */
static bool is_prefilling(const mn_steps *s, uint32_t seq) {
    const mn_sequence *q = &s->seqs[seq];
    return q->running && q->n_enqueued < q->n_literal && !mn_files_loading(&s->kv, seq);
}

/* A row for a sequence that draws, and one for each of its drafts. */
static void continue_sequence(mn_step_builder *b, uint32_t seq) {
    mn_sequence *q = &b->s->seqs[seq];
    if (q->planned > 1) {
        q->spec.n = q->planned - 1;
        mn_step_add_drafts(b, seq);
    } else {
        mn_step_add_rows(b, seq, 1, false);
        mn_step_add_output(b, seq);
    }
    q->n_enqueued += q->planned;
}

/* Whether each row of the prompt is an output. */
static bool scores_prompt(const mn_sequence *q) {
    return q->job && q->job->prompt_logprobs && !q->job->told_prompt;
}

/* Rows of literal tokens; the last of them all draws. */
static void feed_prompt(mn_step_builder *b, uint32_t seq, uint32_t n) {
    mn_sequence *q = &b->s->seqs[seq];
    mn_pending_step *step = b->step;
    uint32_t again = 0; /* rows that ran before a device was lost */
    if (q->n_restore > q->n_enqueued)
        again = MN_MIN(n, q->n_restore - q->n_enqueued);
    if (mn_kv_lacks_text(&b->s->kv, seq)) {
        mn_step_add_text(b, seq);
        if (again)
            step->n_restored_rows += q->n_text;
        else
            step->n_prompt_rows += q->n_text;
    }
    mn_step_add_rows(b, seq, n, true);
    if (scores_prompt(q))
        mn_step_add_scores(b, seq, n);
    q->n_enqueued += n;
    step->n_prompt_rows += n - again;
    step->n_restored_rows += again;
    if (q->n_enqueued < q->n_literal)
        return;
    if (q->flags & MN_SAMPLE_PREFILL_ONLY)
        step->prefilled[step->n_prefilled++] =
            (mn_pending_output){.seq = (int32_t)seq, .epoch = q->epoch, .draft = -1};
    else if (q->limit)
        mn_step_add_output(b, seq);
}

/* ---- the plan: rows of each sequence, for which it has pages --------------------------------- */
/* Pages that another sequence has computed meanwhile are not computed again; their tokens go into
 * the history, which penalties read. */
static mn_status skip_known(mn_steps *s, uint32_t seq, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    if (!q->job || !mn_job_may_share(q->job))
        return MN_OK;
    const uint32_t n = mn_prefix_continue(&s->kv, seq, mn_seq_text(q));
    if (!n)
        return MN_OK;
    q->n_enqueued += n;
    if (!q->job->n_preempted)
        q->job->n_cached += n;
    return mn_engine_write_history(s->engine, seq, q->tokens, q->n_enqueued, err);
}

/* Whether the sequence is a later choice of the same request as the one before it in turn, which is
 * still computing the prompt that they will share. */
static bool waits_for_prompt(const mn_steps *s, uint32_t turn) {
    const mn_sequence *q = &s->seqs[s->turns[turn]];
    if (!turn || !q->job || !q->job->choice || q->n_literal <= s->kv.prefix.block)
        return false;
    const mn_sequence *before = &s->seqs[s->turns[turn - 1]];
    if (!before->job || before->job->request != q->job->request || !s->kv.prefix.block)
        return false;
    return before->running && (before->n_enqueued < before->n_literal || before->planned > 1);
}

/* Rows of a prompt, up to `room`. A chunk that is not the last one ends where a block of the prefix
 * cache does, so that others can go on from there. first: no other prompt has rows yet. */
static uint32_t chunk_of(mn_steps *s, uint32_t seq, uint32_t room, bool first) {
    const mn_sequence *q = &s->seqs[seq];
    const uint32_t left = q->n_literal - q->n_enqueued;
    const uint32_t most = MN_MIN(left, room);
    const uint32_t n = mn_state_chunk(&s->kv, seq, q->n_enqueued, most, q->n_literal);
    const uint32_t block = s->kv.prefix.block;
    if (n == left || !block || !q->job)
        return n;
    const uint32_t end = (q->n_enqueued + n) / block * block;
    if (end > q->n_enqueued)
        return end - q->n_enqueued;
    return first ? n : 0;
}

/* Rows that prompts may have in this step. patience: by how many times it may be longer than beside
 * one that waits. */
static uint32_t prompt_room(const mn_steps *s, double *patience) {
    uint32_t n_draws = 0;
    uint32_t n_waiting = 0;
    for (uint32_t i = 0; i < s->n_turns; i++) {
        n_draws += draws_next(s, &s->seqs[s->turns[i]]);
        n_waiting += is_prefilling(s, s->turns[i]);
    }
    const uint32_t room = s->n_batch - n_draws;
    *patience = 1;
    if (!n_draws || mn_requests_idle(&s->requests))
        return room;
    if (mn_pace_in_doubt(&s->pace, n_draws))
        return 0;
    const double rows = mn_pace_rows(&s->pace, n_draws, n_waiting, patience);
    return (uint32_t)MN_MIN(room, rows);
}

/* Rows that drafts may have in this step, beside one of each sequence and those of prompts. */
static uint32_t draft_room(const mn_steps *s, uint32_t prompt_rows) {
    uint32_t n = s->n_turns;
    bool any = false;
    for (uint32_t i = 0; i < s->n_turns; i++)
        any = any || is_prefilling(s, s->turns[i]);
    if (any)
        n += prompt_rows;
    return s->n_batch - MN_MIN(n, s->n_batch);
}

/* Rows for the sequence's next id and its drafts, as many as there are pages for without anybody's
 * giving way; 0: none, or it has no drafts. */
static uint32_t reserve_drafts(mn_steps *s, uint32_t seq, uint32_t room) {
    const mn_sequence *q = &s->seqs[seq];
    const uint32_t n = 1 + MN_MIN(q->spec.n, room);
    if (n == 1 || !draws_next(s, q))
        return 0;
    mn_state_keep(&s->kv, seq, true);
    if (mn_pages_reserve(&s->kv, seq, q->n_enqueued + n))
        return n;
    mn_state_keep(&s->kv, seq, false);
    return 0;
}

/* Whether rows of texts have room for the sequence's, which then takes its share: an encoder reads
 * a text in one step. */
static bool takes_text(const mn_steps *s, uint32_t seq, uint32_t *text_room) {
    const mn_sequence *q = &s->seqs[seq];
    if (!mn_kv_lacks_text(&s->kv, seq))
        return true;
    if (q->n_text > *text_room)
        return false;
    *text_room -= q->n_text;
    return true;
}

/* In turn: who gives way to one of them comes behind it, and has no rows yet. */
static mn_status plan(mn_steps *s, double *patience, mn_error *err) {
    const uint32_t all = prompt_room(s, patience);
    uint32_t room = all;
    uint32_t outputs = s->n_outputs - MN_MIN(s->n_turns, s->n_outputs); /* beside one of each */
    uint32_t drafts = draft_room(s, all);
    uint32_t text_room = s->n_batch;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < s->n_turns && !st;) {
        const uint32_t seq = s->turns[i];
        mn_sequence *q = &s->seqs[seq];
        uint32_t n = draws_next(s, q);
        const bool prompt = is_prefilling(s, seq) && room && !waits_for_prompt(s, i) &&
                            takes_text(s, seq, &text_room);
        bool got = false;
        if (prompt) {
            st = skip_known(s, seq, err);
            n = chunk_of(s, seq, room, room == all);
        }
        if (prompt && scores_prompt(q))
            n = MN_MIN(n, outputs + 1);
        const uint32_t tied = reserve_drafts(s, seq, MN_MIN(drafts, outputs));
        if (tied) {
            n = tied;
            got = true;
            drafts -= n - 1;
            outputs -= n - 1;
        }
        if (n && !got && !st)
            st = reserve(s, seq, q->n_enqueued + n, &got, err);
        if (got)
            q->planned = n;
        if (got && prompt && scores_prompt(q))
            outputs -= n - 1;
        if (prompt)
            room = got ? room - n : 0; /* nobody passes it */
        if (i < s->n_turns && s->turns[i] == seq)
            i++; /* else it gave way, and the next one has its place */
    }
    return st;
}

/* Whether the sequence could have drafts in this step (mn_draft_turn). */
static bool can_draft(const mn_sequence *q) {
    if (!q->used || !q->running || q->elsewhere || q->flags & MN_SAMPLE_PREFILL_ONLY)
        return false;
    if (q->n_enqueued < q->n_literal || q->n_draw_enqueued != q->n_drawn)
        return false;
    return q->n_drawn && q->n_enqueued + 1 == q->n_tokens && q->n_drawn + 1 < q->limit;
}

/* What drafts are made by. */
static mn_draft_turn draft_turn(mn_steps *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    return (mn_draft_turn){.spec = &q->spec,
                           .tokens = q->tokens,
                           .n_tokens = q->n_tokens,
                           .n_drawn = q->n_drawn,
                           .limit = q->limit,
                           .slot = seq,
                           .order = q->order,
                           .draws = q->running && q->n_enqueued >= q->n_literal,
                           .can = can_draft(q),
                           .guide = q->guide,
                           .params = &q->params};
}

mn_status mn_schedule_fill(mn_step_builder *b, mn_error *err) {
    mn_steps *s = b->s;
    sort_turns(s);
    for (uint32_t i = 0; i < s->n_turns; i++) {
        mn_pages_trim(&s->kv, s->turns[i], mn_seq_text(&s->seqs[s->turns[i]]));
        s->seqs[s->turns[i]].planned = 0;
    }
    for (uint32_t i = 0; i < s->n_turns; i++)
        s->drafts.turns[i] = draft_turn(s, s->turns[i]);
    mn_drafts_make(&s->drafts, &s->guides, s->n_turns);
    mn_status st = plan(s, &b->step->patience, err);
    if (st)
        return st;
    for (uint32_t i = 0; i < s->n_turns; i++)
        if (s->seqs[s->turns[i]].planned && !is_prefilling(s, s->turns[i]))
            continue_sequence(b, s->turns[i]);
    for (uint32_t i = 0; i < s->n_turns; i++)
        if (s->seqs[s->turns[i]].planned && is_prefilling(s, s->turns[i]))
            feed_prompt(b, s->turns[i], s->seqs[s->turns[i]].planned);
    return MN_OK;
}
