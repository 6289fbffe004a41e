/* schedule.c -- who is in the next step. First one row for every sequence that draws, then rows of
 * prompts, both in turn: by priority, then by arrival.
 *
 * Beside sequences that draw, a step has only as many rows of prompts as keep it below three
 * times the time of a step that only draws, by measured times: rows cost less the more of them
 * are in a step, and where most steps only draw, the slowest hundredth of all gaps between
 * tokens is within three times the middle one. Where many sequences wait for their prompts, it
 * may be longer: else half of all users wait, for what the others gain by a millisecond; but not
 * longer than three times what a step takes once they draw, too, or what the middle one of the
 * last steps took. Where the fewest rows are too many for that (a device that has slower kernels
 * for such steps), it is twice the time of a step with the fewest rows: else prompts would
 * be computed a row at a time, for nothing. When pages run out, the last in turn is preempted
 * (preempt.c) until the first have theirs: the very first always gets on. */
#include "session/steps/steps.h"
#include <math.h>

enum { LEAST_ROWS = 2, AHEAD_NS = 5000000, LEAST_MIXED = 3, MOST_MIXED = 16, FEW_ROWS = 16 };
enum { FEW_FORCED = 2 };
enum { LATE_STEPS = 4, OPEN_ROWS = 32, OPEN_STEPS = 64, FIT_STEPS = 32 };
/* Of the usual time: what a mixed step is to take where steps of one kind take the same, less where
 * they do not; and what one more row may not make of it. */
#define SHARE 2.6
#define LEAST_SHARE 2.0
#define SHARE_OF_NOISE 4
/* The same of the time of a step with the fewest rows. */
#define OPEN_SHARE 1.8
#define MOST 2.7
/* From here on a step is late whatever its rows are. */
#define LATE 3.0
/* By how many times a step may be longer for each sequence that waits behind another one, as a
 * share of those that draw. */
#define PATIENCE 4.0
#define MOST_PATIENCE 8.0

/* ---- measured times -------------------------------------------------------------------------- */
/* The usual time of a step in which n sequences draw. While prompts wait, few steps only draw: what
 * more or fewer sequences cost than drew at the last such step is told by the rows of mixed steps.
 * Fewer never cost less than their share. */
static double usual_ns(const mn_pace *p, double n) {
    const double ns = p->draw_ns + (n - p->n_draws) * p->row_ns;
    return n < p->n_draws ? MN_MAX(ns, p->draw_ns * n / p->n_draws) : ns;
}

/* Rows of prompts beside n sequences that draw, where no more than n wait. Where few rows are
 * allowed, one more is much: so what a row costs limits them, too. Of many it says little: kernels
 * that have tiles take about as long for more. */
static double rows_beside(const mn_pace *p, double n) {
    double rows = p->n_rows;
    if (p->n_open)
        return p->open_rows;
    if (p->row_ns > 0 && rows < FEW_ROWS)
        rows = MN_MIN(rows, ((MOST - 1) * usual_ns(p, n) - p->any_ns) / p->row_ns);
    return MN_MAX(rows, LEAST_ROWS);
}

/* The same where `patience` times as many wait: the step may be longer by as many times more. */
static double rows_of_patience(const mn_pace *p, double n, double patience) {
    const double usual = usual_ns(p, n);
    const double rows = rows_beside(p, n);
    if (patience <= 1)
        return rows;
    if (p->n_open || p->row_ns <= 0)
        return patience * rows;
    const double least = usual + p->any_ns + LEAST_ROWS * p->row_ns;
    if (least > MOST * usual) /* what any row costs is more than is allowed */
        return patience * (MOST - 1) * least / p->row_ns;
    return rows + (patience - 1) * (MOST - 1) * usual / p->row_ns;
}

/* Rows of prompts in a step that is not longer than it may be whoever waits. */
static double rows_at_most(const mn_pace *p, double n_draws, double n_waiting) {
    const double most = MOST * MN_MAX(usual_ns(p, n_draws + n_waiting), p->middle_ns);
    if (p->n_open || p->row_ns <= 0)
        return UINT16_MAX;
    return MN_MAX((most - usual_ns(p, n_draws) - p->any_ns) / p->row_ns, LEAST_ROWS);
}

/* The middle of what steps take in which sequences draw: as many of the last ones took longer as
 * did not. */
static void learn_middle(mn_pace *p, double ns) {
    const double step = 1.04;
    if (p->middle_ns <= 0)
        p->middle_ns = ns;
    else
        p->middle_ns *= ns > p->middle_ns ? step : 1 / step;
}

/* What rows cost, by a step that took ns: exponentially weighted least squares. */
static void learn_row(mn_pace *p, double ns, double n_rows) {
    const double rows = n_rows - p->n_draws;
    const double more = ns - p->draw_ns;
    if (rows < 1 || more <= 0)
        return;
    p->n_fit += p->n_fit < FIT_STEPS;
    const double weight = 1.0 / p->n_fit;
    const double to_rows = rows - p->fit_rows;
    const double to_more = more - p->fit_ns;
    p->fit_rows += weight * to_rows;
    p->fit_ns += weight * to_more;
    p->fit_variance = (1 - weight) * (p->fit_variance + weight * to_rows * to_rows);
    p->fit_covariance = (1 - weight) * (p->fit_covariance + weight * to_rows * to_more);
    const double most = p->fit_ns / p->fit_rows; /* the line goes through 0 */
    const double spread = p->fit_rows / 8;
    if (p->fit_variance < spread * spread)
        return; /* nothing tells the two costs apart */
    p->row_ns = MN_MIN(MN_MAX(p->fit_covariance / p->fit_variance, most / 64), most);
    p->any_ns = p->fit_ns - p->row_ns * p->fit_rows;
}

/* A budget follows the time that mixed steps take: by half of what they miss, so that one slow step
 * of a busy machine does not decide. */
static double adjusted(double rows, double ns, double usual, double share) {
    const double factor = 1 + (share * usual / ns - 1) / 2;
    rows *= MN_MIN(MN_MAX(factor, 0.5), 1.5);
    return MN_MIN(MN_MAX(rows, LEAST_ROWS), UINT16_MAX);
}

/* A step with the fewest rows: whether it took too long whatever its rows are. */
static void learn_least(mn_pace *p, double ns, double n_draws) {
    if (ns <= LATE * usual_ns(p, n_draws)) {
        p->n_late = 0;
        return;
    }
    p->late_ns += (ns - p->late_ns) / ++p->n_late;
    if (p->n_late < LATE_STEPS)
        return;
    p->n_open = OPEN_STEPS;
    p->n_late = 0;
    if (p->open_rows <= 0)
        p->open_rows = OPEN_ROWS;
}

/* A step that goes by the time of the fewest rows. From time to time it is tried again whether
 * those take long. */
static void learn_open(mn_pace *p, double ns, double n_prompt) {
    if (n_prompt >= p->open_rows / 2)
        p->open_rows = adjusted(p->open_rows, ns, p->late_ns, OPEN_SHARE);
    if (--p->n_open)
        return;
    p->n_rows = MN_FIRST_ROWS;
    p->row_ns = 0;
    p->n_fit = 0;
}

/* A step of more patience is taken for one of 1, with as many times fewer rows, until it is known
 * what rows cost: then it says no more than that. */
static void learn_mixed(mn_pace *p, double ns, double n_prompt, double n_draws, double patience) {
    const double usual = usual_ns(p, n_draws);
    const double rows = n_prompt / patience;
    const double one_ns = usual + (ns - usual) / patience;
    if (p->n_open) {
        learn_open(p, ns, patience > 1 ? 0 : n_prompt);
        return;
    }
    if (rows <= LEAST_ROWS)
        learn_least(p, one_ns, n_draws);
    learn_row(p, ns, n_prompt + n_draws);
    const double budget = rows_beside(p, n_draws);
    if (rows < budget / 2 || (patience > 1 && p->row_ns > 0))
        return; /* it says little about a step that is full */
    const double share = MN_MAX(SHARE - SHARE_OF_NOISE * p->noise, LEAST_SHARE);
    p->n_rows = adjusted(budget, one_ns, usual, share);
}

/* Whether what a step of other draws took says little of one of n. */
static bool are_others(const mn_pace *p, double n) {
    return fabs(n - p->n_draws) > p->n_draws / 4;
}

static void learn_draws(mn_pace *p, double ns, double n_draws) {
    double weight = p->draw_ns > 0 ? 8 : 1;
    if (p->draw_ns > 0 && are_others(p, n_draws))
        weight = 2;
    else if (p->draw_ns > 0)
        p->noise += (fabs(ns / p->draw_ns - 1) - p->noise) / 32;
    p->draw_ns += (ns - p->draw_ns) / weight;
    p->n_draws += (n_draws - p->n_draws) / weight;
    p->n_mixed = 0;
}

bool mn_schedule_is_new(mn_steps *s, const mn_pending_step *step) {
    uint64_t hash = step->exec.run;
    if (!mn_engine_rounds(s->engine))
        return false;
    for (uint32_t i = 0; i < MN_SYM_COUNT; i++) {
        hash = (hash ^ (uint64_t)step->exec.symbols[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    uint64_t *word = &s->pace.sizes[hash / 64 % MN_COUNT(s->pace.sizes)];
    const uint64_t bit = UINT64_C(1) << hash % 64;
    const bool is_new = !(*word & bit);
    *word |= bit;
    return is_new;
}

/* Nothing is learned from the first step of its sizes: what the device prepared for it counts in
 * its time. */
void mn_schedule_learn(mn_steps *s, const mn_pending_step *step, uint64_t ns) {
    mn_pace *p = &s->pace;
    const uint32_t n_prompt = step->n_prompt_rows + step->n_restored_rows;
    const double now = (double)ns;
    if (step->is_new)
        return;
    if (step->n_rows > n_prompt)
        learn_middle(p, now);
    if (!n_prompt && s->drafts.ready)
        mn_step_times_learn(&s->drafts.times, step->n_rows, now);
    if (!n_prompt) {
        learn_draws(p, now, step->n_rows);
    } else if (p->draw_ns > 0 && step->n_rows > n_prompt) {
        p->n_mixed++;
        learn_mixed(p, now, n_prompt, step->n_rows - n_prompt, MN_MAX(step->patience, 1));
    }
}

/* What the steps in flight should take together, the one that runs included. */
static double in_flight_ns(const mn_steps *s) {
    double ns = 0;
    for (uint64_t i = s->clock.completed; i < s->clock.enqueued; i++) {
        const mn_pending_step *step = &s->ring[i % s->ring_size];
        ns += usual_ns(&s->pace, step->n_rows);
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

static bool is_prefilling(const mn_sequence *q) {
    return q->running && q->n_enqueued < q->n_literal;
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
static uint32_t chunk_of(const mn_steps *s, const mn_sequence *q, uint32_t room, bool first) {
    const uint32_t left = q->n_literal - q->n_enqueued;
    const uint32_t n = MN_MIN(left, room);
    const uint32_t block = s->kv.prefix.block;
    if (n == left || !block || !q->job)
        return n;
    const uint32_t end = (q->n_enqueued + n) / block * block;
    if (end > q->n_enqueued)
        return end - q->n_enqueued;
    return first ? n : 0;
}

/* Whether the next step is to have no prompts: what a step takes that only draws is not known yet;
 * or not well, since others draw now, or where prompts get few rows: a step that is late and one in
 * which more sequences draw than before look alike. */
static bool is_in_doubt(const mn_pace *p, uint32_t n_draws) {
    return p->draw_ns <= 0 || (p->n_mixed >= LEAST_MIXED && are_others(p, n_draws)) ||
           (p->n_mixed >= MOST_MIXED && p->n_rows < FEW_ROWS);
}

/* Rows that prompts may have in this step. patience: by how many times it may be longer than beside
 * one that waits. */
static uint32_t prompt_room(const mn_steps *s, double *patience) {
    uint32_t n_draws = 0;
    uint32_t n_waiting = 0;
    for (uint32_t i = 0; i < s->n_turns; i++) {
        n_draws += draws_next(s, &s->seqs[s->turns[i]]);
        n_waiting += is_prefilling(&s->seqs[s->turns[i]]);
    }
    const uint32_t room = s->n_batch - n_draws;
    *patience = 1;
    if (!n_draws || mn_requests_idle(&s->requests))
        return room;
    if (is_in_doubt(&s->pace, n_draws))
        return 0;
    if (n_waiting > 1)
        *patience = MN_MAX(PATIENCE * (n_waiting - 1) / n_draws, 1);
    *patience = MN_MIN(*patience, MOST_PATIENCE);
    const double rows = MN_MAX(rows_beside(&s->pace, n_draws),
                               MN_MIN(rows_of_patience(&s->pace, n_draws, *patience),
                                      rows_at_most(&s->pace, n_draws, n_waiting)));
    return (uint32_t)MN_MIN(room, rows);
}

/* Rows that drafts may have in this step, beside one of each sequence and those of prompts. */
static uint32_t draft_room(const mn_steps *s, uint32_t prompt_rows) {
    uint32_t n = s->n_turns;
    bool any = false;
    for (uint32_t i = 0; i < s->n_turns; i++)
        any = any || is_prefilling(&s->seqs[s->turns[i]]);
    if (any)
        n += prompt_rows;
    return s->n_batch - MN_MIN(n, s->n_batch);
}

/* Rows for the sequence's next id and its drafts, as many as there are pages for without anybody's
 * giving way; 0: none, or it has no drafts. */
static uint32_t reserve_drafts(mn_steps *s, uint32_t seq, uint32_t room) {
    const mn_sequence *q = &s->seqs[seq];
    const uint32_t n = 1 + MN_MIN(q->spec.n, room);
    if (n == 1 || !draws_next(s, q) || !mn_pages_reserve(&s->kv, seq, q->n_enqueued + n))
        return 0;
    return n;
}

/* In turn: who gives way to one of them comes behind it, and has no rows yet. */
static mn_status plan(mn_steps *s, double *patience, mn_error *err) {
    const uint32_t all = prompt_room(s, patience);
    uint32_t room = all;
    uint32_t outputs = s->n_outputs - MN_MIN(s->n_turns, s->n_outputs); /* beside one of each */
    uint32_t drafts = draft_room(s, all);
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < s->n_turns && !st;) {
        const uint32_t seq = s->turns[i];
        mn_sequence *q = &s->seqs[seq];
        uint32_t n = draws_next(s, q);
        const bool prompt = is_prefilling(q) && room && !waits_for_prompt(s, i);
        bool got = false;
        if (prompt) {
            st = skip_known(s, seq, err);
            n = chunk_of(s, q, room, room == all);
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
        if (s->seqs[s->turns[i]].planned && !is_prefilling(&s->seqs[s->turns[i]]))
            continue_sequence(b, s->turns[i]);
    for (uint32_t i = 0; i < s->n_turns; i++)
        if (s->seqs[s->turns[i]].planned && is_prefilling(&s->seqs[s->turns[i]]))
            feed_prompt(b, s->turns[i], s->seqs[s->turns[i]].planned);
    return MN_OK;
}
