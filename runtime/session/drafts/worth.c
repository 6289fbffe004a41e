/* worth.c -- the arithmetic of worth.h: times of steps, how often drafts hold, how many pay
 * and when, and the guess by lookup. Pure functions. */
#include "session/drafts/worth.h"
#include "base/base.h"

/* ---- times of steps -------------------------------------------------------------------------- */
enum { FORGOTTEN = 256 };
#define UNKNOWN_ROW 0.05 /* of a step: what one more row is taken for until it is measured */

void mn_step_times_learn(mn_step_times *t, uint32_t n_rows, double ns) {
    if (!n_rows || n_rows > MN_TIMED_ROWS || !(ns > 0))
        return;
    double *at = &t->ns[n_rows];
    t->n_steps++;
    if (t->n_steps - t->last[n_rows] > FORGOTTEN)
        t->n[n_rows] = 0;
    t->last[n_rows] = t->n_steps;
    t->n[n_rows]++;
    if (t->n[n_rows] == 1)
        *at = ns;
    else if (t->n[n_rows] == 2)
        *at = MN_MIN(*at, ns);
    else
        *at += (MN_MIN(ns, 3 * *at) - *at) / 8; /* one slow step does not decide */
}

static bool is_known(const mn_step_times *t, int64_t n_rows) {
    return t->n[n_rows] >= 2 && t->n_steps - t->last[n_rows] <= FORGOTTEN;
}

/* The nearest known number of rows from `from` on, by steps of `by`; 0 = none. */
static uint32_t nearest(const mn_step_times *t, int64_t from, int by) {
    for (int64_t i = from; i >= 1 && i <= MN_TIMED_ROWS; i += by)
        if (is_known(t, i))
            return (uint32_t)i;
    return 0;
}

bool mn_step_times_known(const mn_step_times *t, uint32_t n_rows) {
    return nearest(t, MN_MIN(n_rows, MN_TIMED_ROWS), -1) > 0;
}

/* At n_rows, on the line through two known numbers of rows. */
static double on_line(const mn_step_times *t, uint32_t a, uint32_t b, double n_rows) {
    const double slope = (t->ns[b] - t->ns[a]) / (b - a);
    return t->ns[a] + MN_MAX(slope, 0) * (n_rows - a);
}

double mn_step_times_of(const mn_step_times *t, double n_rows) {
    const int64_t at = (int64_t)MN_MIN(n_rows, MN_TIMED_ROWS);
    const uint32_t lo = nearest(t, at, -1);
    const uint32_t hi = nearest(t, MN_MAX(at, 1), 1);
    if (lo && hi && lo < hi)
        return on_line(t, lo, hi, n_rows);
    if (lo && lo == hi && n_rows <= lo)
        return t->ns[lo];
    if (!lo)
        return hi ? t->ns[hi] : 0;
    const uint32_t below = nearest(t, (int64_t)lo - 1, -1);
    if (below)
        return MN_MAX(on_line(t, below, lo, n_rows), t->ns[lo]);
    return t->ns[lo] * (1 + UNKNOWN_ROW * (n_rows - lo));
}

/* ---- how often drafts hold ------------------------------------------------------------------- */
#define FORGET 0.95 /* what a step before counts against the last one */

void mn_acceptance_learn(mn_acceptance *a, uint32_t n_drafts, uint32_t n_held) {
    const uint32_t n_tried = MN_MIN(n_held + 1, n_drafts); /* the first that fails ends the row */
    a->held = FORGET * a->held + n_held;
    a->tried = FORGET * a->tried + n_tried;
}

double mn_acceptance_of(const mn_acceptance *a) {
    return a->tried > 0 ? a->held / a->tried : 0;
}

/* ---- how many pay ---------------------------------------------------------------------------- */
#define WORTH 1.05 /* what drafts must gain, since a sequence that makes some waits for the host */

double mn_draft_yield(double a, uint32_t k) {
    double yield = 0;
    double chance = 1;
    for (uint32_t i = 0; i <= k; i++) {
        yield += chance;
        chance *= a;
    }
    return yield;
}

/* Drafts that make a power of two with the row that draws: devices compute rows in such blocks, and
 * each number of rows is measured before it is believed, in steps which on a GPU are slow the first
 * time. */
uint32_t mn_draft_count(const mn_step_times *t, double a, const mn_draft_case *c) {
    uint32_t best = 0;
    double most = 0;
    for (uint32_t k = 0; k <= c->most; k = 2 * k + 1) {
        const double n_more = (double)c->n_drafting * k;
        const double ids = c->n_draws + c->n_drafting * (mn_draft_yield(a, k) - 1);
        const double ns = mn_step_times_of(t, c->n_draws + n_more) + n_more * c->draft_ns;
        const double sure = k ? WORTH : 1;
        const double rate = (ns > 0 ? ids / ns : ids) / sure;
        if (rate <= most)
            continue;
        most = rate;
        best = k;
    }
    return best;
}

/* ---- when ------------------------------------------------------------------------------------ */
enum { FIRST_REST = 32, MOST_REST = 1024, MISSES = 8, PLAIN_EVERY = 64, PAYS = 8, TRY_EVERY = 8 };
#define HOPE 0.75 /* a of a source that nothing is known of; what must pay for a try */
#define DOUBT 0.25

void mn_draft_memory_begin(mn_draft_memory *m) {
    *m = (mn_draft_memory){.acceptance = {.held = 2 * HOPE, .tried = 2}};
}

/* What the session has learned counts as one draft of the sequence's own: where it is good two in a
 * row have to fail, where it is bad one. */
static void begin_try(mn_drafting *d, const mn_draft_memory *m) {
    const double known = mn_acceptance_of(&m->acceptance);
    d->acceptance.held = MN_MIN(MN_MAX(known, DOUBT), HOPE);
    d->acceptance.tried = 1;
    d->on = true;
    d->n_steps = 0;
    d->n_tries = 0;
    d->n_hits = 0;
}

static void rest_for(mn_drafting *d, uint32_t n, uint32_t n_drawn) {
    d->on = false;
    d->until = n_drawn + n;
    d->n_missed = 0;
}

void mn_drafting_begin(mn_drafting *d, mn_draft_memory *m) {
    *d = (mn_drafting){.rest = m->rest};
    begin_try(d, m);
    m->n_begun++;
    if (m->rest && m->n_begun % TRY_EVERY)
        rest_for(d, m->rest, 0);
}

void mn_drafting_wake(mn_drafting *d, const mn_draft_memory *m, uint32_t n_drawn) {
    if (d->on || n_drawn < d->until)
        return;
    if (d->rest)
        begin_try(d, m);
    d->on = true;
}

static void give_up(mn_drafting *d, mn_draft_memory *m, uint32_t n_drawn) {
    const uint32_t n = MN_MAX(d->rest, FIRST_REST / 2u);
    d->rest = MN_MIN(2 * n, MOST_REST);
    m->rest = d->rest;
    m->n_begun = 0;
    rest_for(d, d->rest, n_drawn);
}

uint32_t mn_drafting_count(mn_drafting *d, mn_draft_memory *m, const mn_step_times *t,
                           const mn_draft_case *c, uint32_t n_drawn) {
    const double a = d->n_tries ? mn_acceptance_of(&d->acceptance) : HOPE;
    d->n_steps++;
    /* so that the time of a step without drafts is known, and that of now */
    if (d->n_steps % PLAIN_EVERY == 0 || !mn_step_times_known(t, c->n_draws))
        return 0;
    const uint32_t k = mn_draft_count(t, a, c);
    if (!k)
        give_up(d, m, n_drawn);
    return d->n_hits ? k : MN_MIN(k, 1);
}

void mn_drafting_found(mn_drafting *d, uint32_t n_drafts, uint32_t n_drawn) {
    d->n_missed = n_drafts ? 0 : d->n_missed + 1;
    if (d->n_missed >= MISSES)
        rest_for(d, MISSES, n_drawn);
}

void mn_drafting_learn(mn_drafting *d, mn_draft_memory *m, uint32_t n_drafts, uint32_t n_held) {
    mn_acceptance_learn(&d->acceptance, n_drafts, n_held);
    mn_acceptance_learn(&m->acceptance, n_drafts, n_held);
    d->n_tries++;
    d->n_hits += n_held > 0;
    if (d->n_tries < PAYS)
        return; /* one that held says little */
    d->rest = 0;
    m->rest = 0;
}

/* ---- lookup ---------------------------------------------------------------------------------- */
enum { LEAST_MATCH = 2, MOST_MATCH = 8 };

/* How many ids before `end` are those before n. */
static uint32_t match(const int32_t *ids, uint32_t n, uint32_t end) {
    uint32_t len = 0;
    while (len < end && len < MOST_MATCH && ids[end - 1 - len] == ids[n - 1 - len])
        len++;
    return len;
}

uint32_t mn_draft_lookup(const int32_t *ids, uint32_t n, int32_t *to, uint32_t k) {
    uint32_t longest = LEAST_MATCH - 1;
    uint32_t from = 0;
    for (uint32_t end = n; end-- > LEAST_MATCH && longest < MOST_MATCH;) {
        const uint32_t len = match(ids, n, end);
        if (len <= longest)
            continue;
        longest = len;
        from = end;
    }
    if (!from)
        return 0;
    for (uint32_t i = 0; i < k; i++)
        to[i] = from + i < n ? ids[from + i] : to[from + i - n];
    return k;
}
