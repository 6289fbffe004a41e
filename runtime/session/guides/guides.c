/* guides.c -- the guides of a step together: what their sequences drew, what their drafts are, and
 * the masks of its outputs. Each guide is on its own, so that the runtime's threads share them, and
 * what comes out does not depend on who does what; grammars that several guides have in common let
 * them read at the same time.
 *
 * A guide that took long for its last ids may take long again. Its sequence gets no row before it
 * has caught up (schedule.c), so that the others need not wait: one such guide, or a few, go on in
 * each step, the rest in later ones. What all guides take of a step is measured here.
 *
 * Rows of masks lie in the engine, which both programs with masks read; a row of no guide has all
 * bits set. */
#include "session/session.h"
#include <string.h>

/* What is left takes at least so long, or threads that wake up take longer; time of a step after
 * which no more guides that take long go on in it. */
enum { WORTH_NS = 200000, LATE_NS = 8000000 };

typedef struct {
    void (*run)(void *arg, uint32_t i);
    void *arg;
    uint32_t from; /* of chunk 0 */
    uint32_t n;
} shared_work;

static uint32_t count_chunks(void *arg, uint32_t phase) {
    (void)phase;
    return ((shared_work *)arg)->n;
}

static void run_chunk(void *arg, uint32_t phase, uint32_t chunk, uint32_t thread) {
    const shared_work *w = arg;
    (void)phase;
    (void)thread;
    w->run(w->arg, w->from + chunk);
}

/* run(arg, i) for all i < n, in any order: by this thread while the rest looks short, measured by
 * what is done, then by the runtime's threads. */
static void share(const mn_session *s, uint32_t n, void (*run)(void *arg, uint32_t i), void *arg) {
    mn_pool *pool = s->model->rt->pool;
    const bool alone = mn_pool_workers(pool) < 2;
    const uint64_t start = mn_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        run(arg, i);
        const uint32_t done = i + 1;
        const uint64_t left = n - done;
        if (alone || !left || (mn_now_ns() - start) * left < (uint64_t)WORTH_NS * done)
            continue;
        shared_work w = {run, arg, done, n - done};
        const mn_team team = {.size = sizeof team,
                              .n_phases = 1,
                              .arg = &w,
                              .chunks = count_chunks,
                              .run = run_chunk};
        if (!mn_pool_team(pool, &team))
            return;
    }
}

static void catch_up(void *arg, uint32_t i) {
    const mn_guided *guided = arg;
    mn_guide_catch_up(guided[i].of->guide);
}

/* ---- time ------------------------------------------------------------------------------------ */
/* Processor time of the thread that steps: it has its part of all work, and what it waits for other
 * programs, or for a pool that computes, is not the grammars'. */
static void count_time(mn_session *s, uint64_t since_ns) {
    mn_form_time *t = &s->forms;
    const uint64_t ns = mn_thread_ns() - since_ns;
    t->step_ns += ns;
    t->all_ns += ns;
    t->most_ns = MN_MAX(t->most_ns, t->step_ns);
}

void mn_guides_next_step(mn_session *s) {
    s->forms.step_ns = 0;
}

/* ---- ids that were drawn --------------------------------------------------------------------- */
/* Whether the sequence's next row can come in a later step. Those of mn_seq_create cannot: their
 * last token says that a constraint failed. */
static bool may_wait(const mn_sequence *q) {
    return q->job && q->running && mn_guide_is_slow(q->guide) && q->n_draw_enqueued == q->n_drawn &&
           q->n_enqueued >= q->n_literal;
}

/* Guides that take long, from another one on each time: as many as there are threads, while they
 * took no more last time than two may at most. */
static void catch_up_late(mn_session *s, uint32_t n_late) {
    const uint32_t first = s->forms.first++ % n_late;
    const uint32_t at_once = MN_MAX(mn_pool_workers(s->model->rt->pool), 1u);
    uint64_t work = 0;
    uint32_t at = 0;
    uint32_t n = 0;
    for (uint32_t turn = 0; turn < 2 * s->n_turns && n < MN_MIN(n_late, at_once); turn++) {
        mn_sequence *q = &s->seqs[s->turns[turn % s->n_turns]];
        if (!mn_guide_has_noted(q->guide) || at++ < first)
            continue;
        work += mn_guide_work(q->guide);
        if (n && work > 2ull * MN_GRAMMAR_WORK_STEP)
            break;
        s->guided[n++] = (mn_guided){.of = q};
    }
    share(s, n, catch_up, s->guided);
}

void mn_guides_catch_up(mn_session *s) {
    const uint64_t start_ns = mn_thread_ns();
    uint32_t n = 0;
    uint32_t n_late = 0;
    for (uint32_t i = 0; i < s->n_turns; i++) {
        mn_sequence *q = &s->seqs[s->turns[i]];
        if (!mn_guide_has_noted(q->guide))
            continue;
        if (may_wait(q))
            n_late++;
        else
            s->guided[n++] = (mn_guided){.of = q};
    }
    if (!n && !n_late)
        return;
    share(s, n, catch_up, s->guided);
    if (n_late && s->forms.step_ns + mn_thread_ns() - start_ns < LATE_NS)
        catch_up_late(s, n_late);
    count_time(s, start_ns);
}

static void follow(void *arg, uint32_t i) {
    mn_guided *d = (mn_guided *)arg + i;
    d->n = mn_guide_follow(d->of->guide, d->drafts, d->n, d->most, &d->forced);
}

void mn_guides_follow(mn_session *s, uint32_t n) {
    const uint64_t start_ns = mn_thread_ns();
    share(s, n, follow, s->guided);
    if (n)
        count_time(s, start_ns);
}

/* ---- masks of a step ------------------------------------------------------------------------- */
mn_status mn_masks_make(mn_session *s, mn_error *err) {
    mn_masks *m = &s->masks;
    if (m->rows)
        return MN_OK;
    m->n_words = mn_engine_mask_words(s->engine);
    m->rows = mn_alloc((size_t)s->n_outputs * m->n_words, sizeof *m->rows);
    m->is_open = mn_calloc(s->n_outputs, sizeof *m->is_open);
    if (m->rows && m->is_open)
        return MN_OK;
    mn_masks_free(s);
    return mn_fail_memory(err, (size_t)s->n_outputs * m->n_words * sizeof *m->rows);
}

void mn_masks_free(mn_session *s) {
    mn_free(s->masks.rows);
    mn_free(s->masks.is_open);
    s->masks = (mn_masks){0};
}

typedef struct {
    const mn_session *s;
    const mn_pending_output *outs; /* of rows `first` and behind */
    uint32_t first;
} row_work;

/* NULL: all ids are allowed. */
static const mn_guide *guide_of(const mn_session *s, const mn_pending_output *o) {
    return o->scored ? NULL : s->seqs[o->seq].guide;
}

static void write_row(void *arg, uint32_t i) {
    const row_work *w = arg;
    const mn_masks *m = &w->s->masks;
    const mn_guide *g = guide_of(w->s, &w->outs[i]);
    uint32_t *row = m->rows + (size_t)(w->first + i) * m->n_words;
    if (g)
        memcpy(row, mn_guide_mask(g, w->outs[i].ahead), m->n_words * sizeof *row);
    else
        memset(row, 0xff, m->n_words * sizeof *row);
}

mn_status mn_masks_write(mn_session *s, const mn_pending_output *outs, uint32_t n, mn_error *err) {
    mn_masks *m = &s->masks;
    uint32_t lo = n;
    uint32_t hi = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_open = !guide_of(s, &outs[i]);
        if (is_open && m->is_open[i])
            continue;
        m->is_open[i] = is_open;
        lo = MN_MIN(lo, i);
        hi = i + 1;
    }
    if (lo >= hi)
        return MN_OK;
    row_work w = {s, outs + lo, lo};
    const uint64_t start_ns = mn_thread_ns();
    share(s, hi - lo, write_row, &w);
    count_time(s, start_ns);
    return mn_engine_write_masks(s->engine, lo, hi - lo, m->rows + (size_t)lo * m->n_words, err);
}
