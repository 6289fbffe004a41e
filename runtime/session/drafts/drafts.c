/* drafts.c -- which sequences verify drafts in the next step, and how many (worth.h says what they
 * are worth and when a sequence rests; worth.c counts). One that makes drafts waits for the host
 * between its steps (host_paced); one that rests goes on as if nobody had asked for drafts. */
#include "session/drafts/drafts.h"
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */
static mn_status check_params(const mn_session_params *p, mn_error *err) {
    const uint32_t known =
        MN_SPECULATE_LOOKUP | MN_SPECULATE_ALWAYS | MN_SPECULATE_REHEARSE | MN_SPECULATE_HEAD;
    mn_status st = mn_args_flags(err, "mn_session_params.speculate", p->speculate, known);
    if (!st && p->draft && p->speculate & MN_SPECULATE_HEAD)
        st = mn_fail(err, MN_INVALID,
                     "mn_session_params.speculate: found MN_SPECULATE_HEAD beside a draft model, "
                     "expected one of them");
    if (st || p->n_draft <= MN_MAX_DRAFT)
        return st;
    return mn_fail(err, MN_INVALID, "mn_session_params.n_draft: found %u, expected at most %d",
                   p->n_draft, MN_MAX_DRAFT);
}

/* Keeps a sentence for mn_session_info. */
static void say(mn_drafts *d, const char *fmt, const char *what) {
    mn_text text = {0};
    mn_text_printf(&text, fmt, what);
    if (!text.failed && text.ptr)
        d->said = mn_arena_strndup(d->names, text.ptr, text.len);
    mn_text_free(&text);
}

mn_status mn_drafts_init(mn_drafts *d, const mn_session_params *p, bool draws, uint32_t n_seq,
                         mn_error *err) {
    const mn_status st = check_params(p, err);
    d->said = "";
    d->flags = p->speculate;
    d->most = p->n_draft ? p->n_draft : MN_MAX_DRAFT;
    d->guess = p->guess;
    d->guess_arg = p->guess_arg;
    d->wanted =
        draws && (p->guess || p->draft || p->speculate & (MN_SPECULATE_LOOKUP | MN_SPECULATE_HEAD));
    if (st)
        return st;
    d->turns = mn_calloc(n_seq, sizeof *d->turns);
    return d->turns ? MN_OK : mn_fail_memory(err, n_seq * sizeof *d->turns);
}

void mn_drafts_free(mn_drafts *d) {
    mn_free(d->turns);
    d->turns = NULL;
}

/* What drafts come from, in words. */
static void describe_drafts(mn_drafts *d) {
    const bool looks = d->flags & MN_SPECULATE_LOOKUP;
    if (d->source.run && d->flags & MN_SPECULATE_HEAD)
        say(d, looks ? "lookup, and the model's draft head on %s" : "the model's draft head on %s",
            d->source.device(d->source.arg));
    else if (d->source.run)
        say(d, looks ? "lookup, and a draft model on %s" : "a draft model on %s",
            d->source.device(d->source.arg));
    else
        say(d, "%s", looks ? "lookup" : "guesses of the caller");
}

mn_status mn_drafts_place(mn_drafts *d, mn_engine *e, mn_model *m, uint32_t n_ctx, mn_error *err) {
    const mn_model_graph *g = NULL;
    mn_error why = MN_ERROR_INIT;
    d->ready = false;
    d->verifies = true; /* until the device refuses a program that does */
    if (!d->wanted)
        return MN_OK;
    memset(&d->times, 0, sizeof d->times);
    mn_draft_memory_begin(&d->memory);
    const uint32_t end = MN_GRAPH_DRAFTS + (e->graph->tells ? MN_GRAPH_TELLS : 0);
    mn_status st = mn_model_graph_divided(m, n_ctx, end, e->graph->division, &g, err);
    if (st)
        return st;
    st = mn_engine_make_program(e, MN_RUN_DRAFTS, g, &why);
    d->ready = !st;
    if (!st) {
        describe_drafts(d);
        return MN_OK;
    }
    if (MN_STATUS_CLASS(st) != MN_CLASS_REFUSE)
        return mn_fail(err, st, "%s", why.msg);
    d->verifies = false;
    say(d, "off: %s", why.msg);
    mn_log(MN_LOG_WARN, "no speculative decoding: %s", why.msg);
    return MN_OK;
}

void mn_drafts_lose_source(mn_drafts *d) {
    d->source = (mn_draft_source){0};
    d->wanted = d->guess || d->flags & MN_SPECULATE_LOOKUP;
    d->ready = d->ready && d->wanted;
    if (d->wanted)
        describe_drafts(d);
    else
        say(d, "%s", "off: no device is left for the draft model");
}

void mn_drafts_begin(mn_drafts *d, mn_speculation *spec) {
    *spec = (mn_speculation){.n = 0};
    mn_drafting_begin(&spec->when, &d->memory);
}

/* ---- how many -------------------------------------------------------------------------------- */
/* Ids that it may still draw behind the next one. */
static uint32_t ids_left(const mn_draft_turn *q) {
    return q->limit - q->n_drawn - 1;
}

/* Drafts that pay now. */
static uint32_t count_drafts(mn_drafts *d, const mn_draft_turn *q, const mn_draft_case *usual) {
    mn_draft_case c = *usual;
    c.most = MN_MIN(d->most, ids_left(q));
    if (d->flags & MN_SPECULATE_ALWAYS)
        return c.most;
    return mn_drafting_count(&q->spec->when, &d->memory, &d->times, &c, q->n_drawn);
}

/* ---- making drafts --------------------------------------------------------------------------- */
/* Guesses that need no model, behind the tokens of the sequence. */
static uint32_t guess_without_model(const mn_drafts *d, const mn_draft_turn *q, uint32_t k) {
    int32_t *to = q->tokens + q->n_tokens;
    uint32_t n = 0;
    if (d->guess)
        n = d->guess(d->guess_arg, q->tokens, q->n_tokens, to, k);
    if (!n && d->flags & MN_SPECULATE_LOOKUP)
        n = mn_draft_lookup(q->tokens, q->n_tokens, to, k);
    return MN_MIN(n, k);
}

static bool ends_text(const mn_draft_turn *q, int32_t id) {
    for (int32_t i = 0; i < q->params->n_stop; i++)
        if (q->params->stop[i] == id)
            return true;
    return false;
}

/* Drafts end before the first id that the sequence cannot go on with. */
static void cut_drafts(const mn_drafts *d, const mn_draft_turn *q) {
    const int32_t *drafts = q->tokens + q->n_tokens;
    uint32_t n = q->spec->n;
    for (uint32_t i = 0; i < n; i++)
        if (drafts[i] < 0 || drafts[i] >= d->n_vocab || ends_text(q, drafts[i]))
            n = i;
    q->spec->n = n;
    q->spec->forced = 0;
}

/* Whether rows of forced text cost a device less than steps: beside many sequences a step without
 * them is not much longer for one row more, and is in flight before the text is known. */
static bool forcing_pays(const mn_drafts *d, uint32_t n_turns) {
    uint32_t n_draws = 0;
    for (uint32_t i = 0; i < n_turns; i++)
        n_draws += d->turns[i].draws;
    return d->verifies && 2 * n_draws <= MN_FEW_ROWS;
}

/* Where a sequence's constraint leaves one text alone, that is drafted, too. */
static void follow_guides(mn_drafts *d, mn_guides *guides, uint32_t n_turns) {
    uint32_t n = 0;
    d->forces = forcing_pays(d, n_turns);
    for (uint32_t i = 0; i < n_turns; i++) {
        const mn_draft_turn *q = &d->turns[i];
        if (!q->guide)
            continue;
        if (mn_guide_has_noted(q->guide)) {
            q->spec->n = 0;
            continue;
        }
        mn_guided *g = &guides->turns[n++];
        *g = (mn_guided){
            .guide = q->guide, .turn = i, .drafts = q->tokens + q->n_tokens, .n = q->spec->n};
        if (q->can && (d->forces || (d->verifies && q->spec->n)))
            g->most = MN_MIN(MN_MAX_DRAFT, ids_left(q));
    }
    mn_guides_follow(guides, n);
    for (uint32_t i = 0; i < n; i++) {
        const mn_guided *g = &guides->turns[i];
        mn_speculation *spec = d->turns[g->turn].spec;
        spec->n = g->n;
        spec->forced = g->forced;
    }
}

/* The draft model's part, for turns that have no other guess. n: [n_of] how many. */
static void ask_source(mn_drafts *d, const uint32_t *of, uint32_t *n, uint32_t n_of) {
    const uint64_t begin_ns = mn_now_ns();
    uint32_t n_made = 0;
    if (!d->source.run || !n_of)
        return;
    const bool usual = d->source.run(d->source.arg, d->turns, of, n, n_of);
    for (uint32_t i = 0; i < n_of; i++) {
        d->turns[of[i]].spec->n = n[i];
        n_made += n[i];
    }
    const double ns = (double)(mn_now_ns() - begin_ns);
    d->stats->draft_s += ns * 1e-9;
    if (n_made && usual)
        d->draft_ns += (ns / n_made - d->draft_ns) / (d->draft_ns > 0 ? 8 : 1);
}

/* The caller's guesses in place of the draft model's, which have cost their time. */
static void replace_drafts(mn_drafts *d, const uint32_t *of, uint32_t n_of) {
    for (uint32_t i = 0; i < n_of; i++) {
        const mn_draft_turn *q = &d->turns[of[i]];
        q->spec->n = guess_without_model(d, q, q->spec->n);
    }
}

/* Who draws in the next step, and who of them waits for the host. */
static mn_draft_case begin_step(mn_drafts *d, uint32_t n_turns) {
    mn_draft_case c = {.draft_ns = d->draft_ns};
    for (uint32_t i = 0; i < n_turns; i++) {
        const mn_draft_turn *q = &d->turns[i];
        q->spec->n = 0;
        mn_drafting_wake(&q->spec->when, &d->memory, q->n_drawn);
        c.n_draws += q->draws;
        c.n_drafting += q->draws && d->ready && q->spec->when.on;
    }
    return c;
}

/* Guesses for all that can have some. */
static void guess_all(mn_drafts *d, uint32_t n_turns) {
    const mn_draft_case c = begin_step(d, n_turns);
    uint32_t asked[64];
    uint32_t wants[64];
    uint32_t n_asked = 0;
    const bool rehearses = d->source.run && d->flags & MN_SPECULATE_REHEARSE;
    for (uint32_t i = 0; i < n_turns && d->ready; i++) {
        const mn_draft_turn *q = &d->turns[i];
        const bool guesses = q->spec->when.on && q->can && !mn_guide_is_forced(q->guide);
        const uint32_t k = guesses ? count_drafts(d, q, &c) : 0;
        if (!k)
            continue;
        q->spec->n = rehearses ? 0 : guess_without_model(d, q, k);
        if (!q->spec->n && n_asked < MN_COUNT(asked)) {
            asked[n_asked] = i;
            wants[n_asked++] = k;
        }
        if (!d->source.run)
            mn_drafting_found(&q->spec->when, q->spec->n, q->n_drawn);
    }
    ask_source(d, asked, wants, n_asked);
    if (rehearses)
        replace_drafts(d, asked, n_asked);
}

void mn_drafts_make(mn_drafts *d, mn_guides *guides, uint32_t n_turns) {
    if (d->wanted)
        guess_all(d, n_turns);
    for (uint32_t i = 0; i < n_turns; i++) {
        const mn_draft_turn *q = &d->turns[i];
        q->spec->n = d->wanted ? q->spec->n : 0;
        cut_drafts(d, q);
        q->spec->host_paced = d->paced || (d->ready && q->spec->when.on);
    }
    follow_guides(d, guides, n_turns);
}

void mn_drafts_learn(mn_drafts *d, mn_speculation *spec, const mn_draft_result *r) {
    const uint32_t n = r->n - r->n_forced;
    const uint32_t n_held = r->n_held - r->n_forced_held;
    if (n)
        mn_drafting_learn(&spec->when, &d->memory, n, n_held);
    d->stats->n_drafted += n;
    d->stats->n_accepted += n_held;
    d->stats->n_forced += r->n_forced_held;
}
