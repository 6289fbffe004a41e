/* guides.c -- the guides of a step together: what their sequences drew, what their drafts are, and
 * the masks of its outputs. Each guide is on its own, so that the runtime's threads share them, and
 * what comes out does not depend on who does what; grammars that several guides have in common let
 * them read at the same time.
 *
 * A guide that took long for its last ids may take long again. Its sequence gets no row before it
 * has caught up (schedule.c), so that the others need not wait: one such guide, or a few, go on in
 * each step, the rest in later ones. What all guides take of a step is measured here.
 *
 * Rows of masks are masks.c's. */
#include "session/guides/guides.h"
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

/* By this thread while the rest looks short, measured by what is done, then by the runtime's
 * threads. */
static void share_work(mn_pool *pool, uint32_t n, void (*run)(void *arg, uint32_t i), void *arg) {
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

/* ---- time ------------------------------------------------------------------------------------ */
/* Processor time of the thread that steps: it has its part of all work, and what it waits for other
 * programs, or for a pool that computes, is not the grammars'. */
static void count_time(mn_guides *g, uint64_t since_ns) {
    mn_form_time *t = &g->forms;
    const uint64_t ns = mn_thread_ns() - since_ns;
    t->step_ns += ns;
    t->all_ns += ns;
    t->most_ns = MN_MAX(t->most_ns, t->step_ns);
}

void mn_guides_share(mn_guides *g, uint32_t n, void (*run)(void *arg, uint32_t i), void *arg) {
    const uint64_t start_ns = mn_thread_ns();
    share_work(g->pool, n, run, arg);
    count_time(g, start_ns);
}

void mn_guides_next_step(mn_guides *g) {
    g->forms.step_ns = 0;
}

/* ---- life ------------------------------------------------------------------------------------ */
mn_status mn_guides_init(mn_guides *g, mn_pool *pool, uint32_t n_seq, mn_error *err) {
    g->pool = pool;
    g->turns = mn_calloc(n_seq, sizeof *g->turns);
    g->work = mn_calloc(n_seq, sizeof *g->work);
    return g->turns && g->work ? MN_OK : mn_fail_memory(err, 2 * n_seq * sizeof *g->work);
}

void mn_guides_free(mn_guides *g) {
    mn_masks_free(g);
    mn_free(g->turns);
    mn_free(g->work);
    *g = (mn_guides){0};
}

/* ---- ids that were drawn --------------------------------------------------------------------- */
static void catch_up_one(void *arg, uint32_t i) {
    const mn_guided *work = arg;
    mn_guide_catch_up(work[i].guide);
}

/* Guides that take long, turns[0, n_late), from another one on each time: as many as there are
 * threads, while they took no more last time than two may at most. */
static void catch_up_late(mn_guides *g, uint32_t n_late) {
    const uint32_t first = g->forms.first++ % n_late;
    const uint32_t at_once = MN_MAX(mn_pool_workers(g->pool), 1u);
    uint64_t work = 0;
    uint32_t n = 0;
    while (n < MN_MIN(n_late, at_once)) {
        const mn_guided next = g->turns[(first + n) % n_late];
        work += mn_guide_work(next.guide);
        if (n && work > 2ull * MN_GRAMMAR_WORK_STEP)
            break;
        g->work[n++] = next;
    }
    share_work(g->pool, n, catch_up_one, g->work);
}

void mn_guides_catch_up(mn_guides *g, uint32_t n) {
    const uint64_t start_ns = mn_thread_ns();
    uint32_t n_now = 0;
    uint32_t n_late = 0;
    if (!n)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (g->turns[i].may_wait)
            g->turns[n_late++] = g->turns[i];
        else
            g->work[n_now++] = g->turns[i];
    share_work(g->pool, n_now, catch_up_one, g->work);
    if (n_late && g->forms.step_ns + mn_thread_ns() - start_ns < LATE_NS)
        catch_up_late(g, n_late);
    count_time(g, start_ns);
}

static void follow_one(void *arg, uint32_t i) {
    mn_guided *d = (mn_guided *)arg + i;
    d->n = mn_guide_follow(d->guide, d->drafts, d->n, d->most, &d->forced);
}

void mn_guides_follow(mn_guides *g, uint32_t n) {
    if (n)
        mn_guides_share(g, n, follow_one, g->turns);
}
