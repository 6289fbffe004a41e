/* speculate.c -- which sequences verify drafts in the next step, and how many (worth.h says
 * what they are worth and when a sequence rests; worth.c counts). One that makes drafts waits for
 * the host between its steps (host_paced); one that rests goes on as if nobody had asked for
 * drafts. What is decided here changes how many steps a text takes, and never an id. */
#include "session/session.h"
#include <string.h>

/* ---- creation -------------------------------------------------------------------------------- */
static mn_status check(const mn_session_params *p, mn_error *err) {
    const uint32_t known = MN_SPECULATE_LOOKUP | MN_SPECULATE_ALWAYS | MN_SPECULATE_REHEARSE;
    mn_status st = mn_args_flags(err, "mn_session_params.speculate", p->speculate, known);
    if (st || p->n_draft <= MN_MAX_DRAFT)
        return st;
    return mn_fail(err, MN_INVALID, "mn_session_params.n_draft: found %u, expected at most %d",
                   p->n_draft, MN_MAX_DRAFT);
}

/* Keeps a sentence for mn_session_info. */
static void say(mn_session *s, const char *fmt, const char *what) {
    mn_text text = {0};
    mn_text_printf(&text, fmt, what);
    if (!text.failed && text.ptr)
        s->spec.said = mn_arena_strndup(&s->names, text.ptr, text.len);
    mn_text_free(&text);
}

mn_status mn_speculate_create(mn_session *s, const mn_session_params *p, mn_error *err) {
    mn_speculating *x = &s->spec;
    mn_status st = check(p, err);
    x->said = "";
    x->flags = p->speculate;
    x->most = p->n_draft ? p->n_draft : MN_MAX_DRAFT;
    x->guess = p->guess;
    x->guess_arg = p->guess_arg;
    x->wanted = s->draws && (p->guess || p->draft || p->speculate & MN_SPECULATE_LOOKUP);
    if (!st && x->wanted && p->draft)
        st = mn_drafter_create(s, p, err);
    return st;
}

void mn_speculate_free(mn_session *s) {
    mn_drafter_free(s);
    mn_free(s->ready);
    s->ready = NULL;
}

/* What drafts come from, in words. */
static void describe(mn_session *s) {
    const mn_speculating *x = &s->spec;
    const bool looks = x->flags & MN_SPECULATE_LOOKUP;
    if (x->drafter)
        say(s, looks ? "lookup, and a draft model on %s" : "a draft model on %s",
            x->drafter->device);
    else
        say(s, "%s", looks ? "lookup" : "guesses of the caller");
}

mn_status mn_speculate_place(mn_session *s, mn_error *err) {
    mn_speculating *x = &s->spec;
    const mn_model_graph *g = NULL;
    mn_error why = MN_ERROR_INIT;
    x->ready = false;
    x->verifies = true; /* until the device refuses a program that does */
    if (!x->wanted)
        return MN_OK;
    memset(&x->times, 0, sizeof x->times);
    mn_draft_memory_begin(&x->memory);
    mn_status st = mn_model_graph_for(s->model, s->n_ctx, MN_GRAPH_DRAFTS, &g, err);
    if (st)
        return st;
    st = mn_engine_make_program(s->engine, MN_RUN_DRAFTS, g, &why);
    x->ready = !st;
    if (!st) {
        describe(s);
        return MN_OK;
    }
    if (MN_STATUS_CLASS(st) != MN_CLASS_REFUSE)
        return mn_fail(err, st, "%s", why.msg);
    x->verifies = false;
    say(s, "off: %s", why.msg);
    mn_log(MN_LOG_WARN, "no speculative decoding: %s", why.msg);
    return MN_OK;
}

void mn_speculate_without_drafter(mn_session *s) {
    mn_speculating *x = &s->spec;
    x->wanted = x->guess || x->flags & MN_SPECULATE_LOOKUP;
    x->ready = x->ready && x->wanted;
    if (x->wanted)
        describe(s);
    else
        say(s, "%s", "off: no device is left for the draft model");
}

void mn_speculate_begin(mn_session *s, mn_sequence *q) {
    q->spec = (mn_speculation){.n = 0};
    mn_drafting_begin(&q->spec.when, &s->spec.memory);
}

/* ---- how many -------------------------------------------------------------------------------- */
/* Whether the sequence could have drafts in this step: it draws, its last id is known and is all
 * that is not stored, and more than one id is still to come. The engine's sampler verifies none. */
static bool can_draft(const mn_sequence *q) {
    if (!q->used || !q->running || q->elsewhere || q->flags & MN_SAMPLE_PREFILL_ONLY)
        return false;
    if (q->n_enqueued < q->n_literal || q->n_draw_enqueued != q->n_drawn)
        return false;
    return q->n_drawn && q->n_enqueued + 1 == q->n_tokens && q->n_drawn + 1 < q->limit;
}

/* Drafts that pay now. */
static uint32_t count(mn_session *s, mn_sequence *q, const mn_draft_case *usual) {
    mn_speculating *x = &s->spec;
    mn_draft_case c = *usual;
    c.most = MN_MIN(x->most, q->limit - q->n_drawn - 1);
    if (x->flags & MN_SPECULATE_ALWAYS)
        return c.most;
    return mn_drafting_count(&q->spec.when, &x->memory, &x->times, &c, q->n_drawn);
}

/* ---- making drafts --------------------------------------------------------------------------- */
/* Guesses that need no model, behind the tokens of the sequence. */
static uint32_t guess(const mn_session *s, mn_sequence *q, uint32_t k) {
    const mn_speculating *x = &s->spec;
    int32_t *to = q->tokens + q->n_tokens;
    uint32_t n = 0;
    if (x->guess)
        n = x->guess(x->guess_arg, q->tokens, q->n_tokens, to, k);
    if (!n && x->flags & MN_SPECULATE_LOOKUP)
        n = mn_draft_lookup(q->tokens, q->n_tokens, to, k);
    return MN_MIN(n, k);
}

static bool is_stop(const mn_sequence *q, int32_t id) {
    for (int32_t i = 0; i < q->params.n_stop; i++)
        if (q->params.stop[i] == id)
            return true;
    return false;
}

/* Drafts end before the first id that the sequence cannot go on with. */
static void cut(const mn_session *s, mn_sequence *q) {
    int32_t *drafts = q->tokens + q->n_tokens;
    uint32_t n = q->spec.n;
    for (uint32_t i = 0; i < n; i++)
        if (drafts[i] < 0 || drafts[i] >= s->graph->hp.n_vocab || is_stop(q, drafts[i]))
            n = i;
    q->spec.n = n;
    q->spec.forced = 0;
}

/* Whether rows of forced text cost a device less than steps: beside many sequences a step without
 * them is not much longer for one row more, and is in flight before the text is known. */
static bool forcing_pays(const mn_session *s) {
    uint32_t n_draws = 0;
    for (uint32_t i = 0; i < s->n_turns; i++) {
        const mn_sequence *q = &s->seqs[s->turns[i]];
        n_draws += q->running && q->n_enqueued >= q->n_literal;
    }
    return s->spec.verifies && 2 * n_draws <= MN_FEW_ROWS;
}

/* Where a sequence's constraint leaves one text alone, that is drafted, too. */
static void follow_guides(mn_session *s) {
    uint32_t n = 0;
    s->spec.forces = forcing_pays(s);
    for (uint32_t i = 0; i < s->n_turns; i++) {
        mn_sequence *q = &s->seqs[s->turns[i]];
        if (!q->guide)
            continue;
        if (mn_guide_has_noted(q->guide)) {
            q->spec.n = 0;
            continue;
        }
        mn_guided *g = &s->guides.turns[n++];
        *g = (mn_guided){.guide = q->guide,
                         .slot = s->turns[i],
                         .drafts = q->tokens + q->n_tokens,
                         .n = q->spec.n};
        if (can_draft(q) && (s->spec.forces || (s->spec.verifies && q->spec.n)))
            g->most = MN_MIN(MN_MAX_DRAFT, q->limit - q->n_drawn - 1);
    }
    mn_guides_follow(&s->guides, n);
    for (uint32_t i = 0; i < n; i++) {
        const mn_guided *g = &s->guides.turns[i];
        s->seqs[g->slot].spec.n = g->n;
        s->seqs[g->slot].spec.forced = g->forced;
    }
}

/* The draft model's part, for sequences that have no other guess. ask: [n_seq] how many. */
static void ask_drafter(mn_session *s, const uint32_t *seqs, uint32_t *n, uint32_t n_seqs) {
    const uint64_t begin_ns = mn_now_ns();
    uint32_t n_made = 0;
    if (!s->spec.drafter || !n_seqs)
        return;
    const bool usual = mn_drafter_run(s, seqs, n, n_seqs);
    for (uint32_t i = 0; i < n_seqs; i++) {
        s->seqs[seqs[i]].spec.n = n[i];
        n_made += n[i];
    }
    const double ns = (double)(mn_now_ns() - begin_ns);
    s->stats.draft_s += ns * 1e-9;
    if (n_made && usual)
        s->spec.draft_ns += (ns / n_made - s->spec.draft_ns) / (s->spec.draft_ns > 0 ? 8 : 1);
}

/* The caller's guesses in place of the draft model's, which have cost their time. */
static void replace_drafts(mn_session *s, const uint32_t *seqs, uint32_t n_seqs) {
    for (uint32_t i = 0; i < n_seqs; i++) {
        mn_sequence *q = &s->seqs[seqs[i]];
        q->spec.n = guess(s, q, q->spec.n);
    }
}

/* Who draws in the next step, and who of them waits for the host. */
static mn_draft_case begin_step(mn_session *s) {
    mn_draft_case c = {.draft_ns = s->spec.draft_ns};
    for (uint32_t i = 0; i < s->n_turns; i++) {
        mn_sequence *q = &s->seqs[s->turns[i]];
        q->spec.n = 0;
        mn_drafting_wake(&q->spec.when, &s->spec.memory, q->n_drawn);
        q->host_paced = s->spec.ready && q->spec.when.on;
        const bool draws = q->running && q->n_enqueued >= q->n_literal;
        c.n_draws += draws;
        c.n_drafting += draws && s->spec.ready && q->spec.when.on;
    }
    return c;
}

/* Guesses for all that can have some. */
static void guess_all(mn_session *s) {
    const mn_draft_case c = begin_step(s);
    uint32_t asked[64];
    uint32_t wants[64];
    uint32_t n_asked = 0;
    const bool rehearses = s->spec.drafter && s->spec.flags & MN_SPECULATE_REHEARSE;
    for (uint32_t i = 0; i < s->n_turns && s->spec.ready; i++) {
        mn_sequence *q = &s->seqs[s->turns[i]];
        const bool guesses = q->spec.when.on && can_draft(q) && !mn_guide_is_forced(q->guide);
        const uint32_t k = guesses ? count(s, q, &c) : 0;
        if (!k)
            continue;
        q->spec.n = rehearses ? 0 : guess(s, q, k);
        if (!q->spec.n && n_asked < MN_COUNT(asked)) {
            asked[n_asked] = s->turns[i];
            wants[n_asked++] = k;
        }
        if (!s->spec.drafter)
            mn_drafting_found(&q->spec.when, q->spec.n, q->n_drawn);
    }
    ask_drafter(s, asked, wants, n_asked);
    if (rehearses)
        replace_drafts(s, asked, n_asked);
}

void mn_speculate_make(mn_session *s) {
    if (s->spec.wanted)
        guess_all(s);
    for (uint32_t i = 0; i < s->n_turns; i++) {
        mn_sequence *q = &s->seqs[s->turns[i]];
        q->spec.n = s->spec.wanted ? q->spec.n : 0;
        cut(s, q);
        q->host_paced = s->spec.ready && q->spec.when.on;
    }
    follow_guides(s);
}

void mn_speculate_learn(mn_session *s, mn_sequence *q, const mn_draft_result *r) {
    const uint32_t n = r->n - r->n_forced;
    const uint32_t n_held = r->n_held - r->n_forced_held;
    if (n)
        mn_drafting_learn(&q->spec.when, &s->spec.memory, n, n_held);
    s->stats.n_drafted += n;
    s->stats.n_accepted += n_held;
    s->stats.n_forced += r->n_forced_held;
    if (!q->job)
        return;
    q->job->n_drafted += n;
    q->job->n_accepted += n_held;
    q->job->n_forced += r->n_forced_held;
}
