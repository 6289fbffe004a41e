/* pool.c -- the process's CPU threads: a fixed set that runs one function at a time, either all of
 * its tasks at once, or a team's chunks by as many threads as the machine lets run.
 *
 * One 64-bit word, `turn`, starts a run: a counter above, the number of tasks in the low bits. A
 * worker whose index is below that number takes part; the others never look at the job, so they
 * need not be waited for. Waiting is a short spin (a decode step has hundreds of phases), then a
 * futex: a thread that waits leaves its processor to one that was descheduled. */
#include "base/call.h"
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#define MAX_THREADS 4096u
#define TASKS_MASK 0xFFFFu
#define TEAM_FLAG 0x8000u /* in turn: not tasks, but a team that threads may join */
#define MAX_CHUNKS ((1u << 24) - 1)
#define SPIN_NS 50000u
#define SPIN_LEAST_NS 8000u
/* Others went to sleep for a thread that lost so much of its time to other programs, and a part of
 * its chunk that is no less than this. */
#define LATE_NS 200000u
#define LATE_PART 4
#define LOOK_NS 1000000u /* so long after a look at the time that it had comes the next one */
#define HOLD_LEAST_NS 2000000u
#define HOLD_MOST_NS 256000000u

/* team_state.word is phase << LEFT_BITS | SPENT + chunks that nobody has claimed, or OVER where no
 * team is at work. Every thread may claim once in vain, which takes 1 away: there is room for that
 * below both. */
#define LEFT_BITS 26
#define LEFT_MASK ((1u << LEFT_BITS) - 1)
#define OVER MAX_THREADS
#define SPENT (3 * MAX_THREADS)

typedef struct {
    _Alignas(64) _Atomic uint32_t asleep; /* a futex; 1: waits for its turn */
    uint32_t index;
    mn_pool *pool;
    pthread_t thread;
    uint64_t spin_ns; /* how long it looks for the next phase before it sleeps */
    /* at most; 0: there are as many threads as processors without it, and a spin would take time
     * from one of them */
    uint64_t most_spin_ns;
    uint64_t late_ns;   /* its longest chunk of this phase */
    uint64_t looked_ns; /* the time when it last looked, and what it had had of its processor */
    uint64_t had_ns;
} pool_worker;

/* A team. Phases are counted over all teams and never repeat, so that a thread that comes late
 * fails to claim a chunk instead of claiming one of another phase. What a thread reads after it has
 * claimed a chunk stays as it is until that chunk is done. */
typedef struct {
    _Alignas(64) _Atomic uint64_t word;
    _Atomic uint32_t n_chunks[2]; /* by the lowest bit of the phase */
    _Alignas(64) _Atomic uint32_t n_done;
    _Alignas(64) _Atomic uint32_t opened; /* a futex: the low bits of the phase of word */
    _Atomic uint32_t n_asleep;            /* threads at `opened` */
    mn_team team;
    uint32_t next_phase; /* of team */
    mn_status status;
} team_state;

struct mn_pool {
    uint32_t born;                      /* n_forks then */
    _Alignas(64) _Atomic uint64_t turn; /* count << 16 | n tasks; n = TASKS_MASK: leave */
    void (*fn)(void *arg, uint32_t i, uint32_t n);
    void *arg;
    /* tasks of this run that are not done, the caller's apart */
    _Alignas(64) _Atomic uint32_t pending;
    _Atomic uint32_t caller_asleep; /* a futex */
    team_state at_work;
    /* Threads that take part in teams: at most one per processor, fewer while the machine has other
     * work. Narrowed by any thread, widened by the caller between teams. */
    _Alignas(64) _Atomic uint32_t width;
    uint32_t widest;
    _Atomic uint64_t hold_ns;              /* how long a narrowing lasts */
    _Atomic uint64_t widen_at_ns;          /* 0: not narrowed */
    _Alignas(64) pthread_mutex_t run_lock; /* held by the caller of a run */
    uint64_t spin_ns;
    uint32_t n_workers, n_started; /* n_workers counts the caller */
    pool_worker *workers;          /* [n_workers]; [0] is the caller and has no thread */
};

static _Thread_local const mn_pool *inside; /* the pool whose task this thread is in */

/* ---- fork ------------------------------------------------------------------------------------ */

/* How often this process or one that it comes from was forked since the first pool: a pool of
 * another count has no threads here, and whoever waits for them waits for ever. */
static _Atomic uint32_t n_forks;
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int watch_error;

static void before_fork(void) {
    mn_map_fork(true);
}
static void after_fork(void) {
    mn_map_fork(false);
}
static void in_child(void) {
    mn_map_fork(false);
    mn_call_fork();
    atomic_fetch_add(&n_forks, 1);
}
static void watch_forks(void) {
    watch_error = pthread_atfork(before_fork, after_fork, in_child);
}

bool mn_pool_is_stranded(const mn_pool *p) {
    return p && p->born != atomic_load_explicit(&n_forks, memory_order_relaxed);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void pool_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns at once where *word is not `seen`, else when it is woken, or for no reason. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    const int before = errno;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    errno = before;
}

static void futex_wake(_Atomic uint32_t *word, uint32_t n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* The turn that calls worker `index`, once it is another than the last one seen. */
static bool called(mn_pool *p, uint32_t index, uint64_t seen, uint64_t *turn) {
    *turn = atomic_load(&p->turn);
    return *turn != seen && index < (*turn & TASKS_MASK & ~TEAM_FLAG);
}

static uint64_t await_turn(pool_worker *w, uint64_t seen) {
    mn_pool *p = w->pool;
    uint64_t turn;
    const uint64_t until = mn_now_ns() + w->most_spin_ns;
    do {
        for (int i = 0; i < 64; i++) {
            if (called(p, w->index, seen, &turn))
                return turn;
            pool_relax();
        }
    } while (mn_now_ns() < until);
    for (;;) {
        /* before the look at turn; the caller writes turn before it looks here */
        atomic_store(&w->asleep, 1);
        if (called(p, w->index, seen, &turn))
            break;
        futex_wait(&w->asleep, 1);
    }
    atomic_store(&w->asleep, 0);
    return turn;
}

static void start_turn(mn_pool *p, uint32_t n) {
    uint32_t n_called = n & ~TEAM_FLAG;
    atomic_store(&p->turn, ((atomic_load(&p->turn) >> 16) + 1) << 16 | n);
    if (n_called > p->n_started)
        n_called = p->n_started;
    for (uint32_t i = 1; i < n_called; i++) {
        pool_worker *w = &p->workers[i];
        if (atomic_load(&w->asleep) && atomic_exchange(&w->asleep, 0))
            futex_wake(&w->asleep, 1);
    }
}

static void await_done(mn_pool *p) {
    const uint64_t until = mn_now_ns() + p->spin_ns;
    do {
        for (int i = 0; i < 64; i++) {
            if (!atomic_load(&p->pending))
                return;
            pool_relax();
        }
    } while (mn_now_ns() < until);
    for (;;) {
        atomic_store(&p->caller_asleep, 1);
        if (!atomic_load(&p->pending))
            break;
        futex_wait(&p->caller_asleep, 1);
    }
    atomic_store(&p->caller_asleep, 0);
}

/* ---- how many threads a team has ------------------------------------------------------------- */

/* From here on the thread does not sleep by its own will. Returns what it lost since the last
 * look. */
static uint64_t pool_look(pool_worker *w) {
    const uint64_t now = mn_now_ns();
    const uint64_t had = mn_thread_ns();
    const uint64_t passed = now - w->looked_ns;
    const uint64_t own = had - w->had_ns;
    w->looked_ns = now;
    w->had_ns = had;
    return passed > own ? passed - own : 0;
}

/* Called when the worker's part of a phase is over. One that was descheduled in the middle of a
 * chunk, while others had gone to sleep for it, costs the team more than it brings: for some time
 * there is one thread less, for twice as long each time that trying again was no better. */
static void narrow_if_late(mn_pool *p, pool_worker *w) {
    const uint64_t late_ns = w->late_ns;
    const bool is_late = late_ns >= LATE_NS && atomic_load(&p->at_work.n_asleep);
    w->late_ns = 0;
    if (!is_late && mn_now_ns() - w->looked_ns < LOOK_NS)
        return;
    const uint64_t lost_ns = pool_look(w);
    uint32_t width = atomic_load(&p->width);
    if (!is_late || lost_ns < LATE_NS || lost_ns < late_ns / LATE_PART || width < 2)
        return;
    if (!atomic_compare_exchange_strong(&p->width, &width, width - 1))
        return;
    const uint64_t hold_ns = atomic_load(&p->hold_ns);
    atomic_store(&p->widen_at_ns, mn_now_ns() + hold_ns);
    atomic_store(&p->hold_ns, MN_MIN(2 * hold_ns, (uint64_t)HOLD_MOST_NS));
}

/* Before a team begins: one thread more, if the last narrowing is long enough ago. Once it has gone
 * well as long as it was held back, the next narrowing is a shorter one. */
static void widen_if_due(mn_pool *p) {
    const uint64_t at = atomic_load(&p->widen_at_ns);
    if (!at)
        return;
    const uint64_t now = mn_now_ns();
    if (now < at)
        return;
    const uint64_t hold_ns = atomic_load(&p->hold_ns);
    const uint32_t width = atomic_load(&p->width);
    if (width < p->widest) {
        atomic_store(&p->width, width + 1);
        atomic_store(&p->widen_at_ns, now + hold_ns);
        return;
    }
    atomic_store(&p->hold_ns, MN_MAX(hold_ns / 2, (uint64_t)HOLD_LEAST_NS));
    atomic_store(&p->widen_at_ns, hold_ns > HOLD_LEAST_NS ? now + hold_ns : 0);
}

/* ---- teams ----------------------------------------------------------------------------------- */

static uint32_t left_in(uint64_t word) {
    return (uint32_t)word & LEFT_MASK;
}

/* Opens the next phase that has chunks, or one without: the end. Called by one thread at a time. */
static void pool_open_phase(team_state *s) {
    const uint64_t phase = (atomic_load(&s->word) >> LEFT_BITS) + 1;
    uint32_t n = 0;
    while (!n && !s->status && s->next_phase < s->team.n_phases)
        n = s->team.chunks(s->team.arg, s->next_phase++);
    if (n > MAX_CHUNKS) {
        s->status = MN_INVALID;
        n = 0;
    }
    atomic_store(&s->n_done, 0);
    atomic_store(&s->n_chunks[phase & 1], n);
    atomic_store(&s->word, phase << LEFT_BITS | (n ? SPENT + n : OVER));
    atomic_store(&s->opened, (uint32_t)phase);
    /* whoever opens a phase works in it: nobody is woken for a single chunk */
    if (n != 1 && atomic_load(&s->n_asleep))
        futex_wake(&s->opened, n ? MN_MIN(n - 1, MAX_THREADS) : MAX_THREADS);
}

/* Claims a chunk of the phase that is open. False: none is left. *word: what it found. */
static bool pool_claim(team_state *s, uint64_t *word, uint32_t *chunk) {
    *word = atomic_load(&s->word);
    if (left_in(*word) <= SPENT)
        return false;
    *word = atomic_fetch_sub(&s->word, 1);
    const uint32_t left = left_in(*word);
    if (left <= SPENT)
        return false;
    *chunk = atomic_load(&s->n_chunks[*word >> LEFT_BITS & 1]) - (left - SPENT);
    return true;
}

/* Until the phase of `word`, which has no chunks left, is not the open one. A wait that a spin
 * would have covered makes the next spins long, others make them short. */
static void await_phase(team_state *s, pool_worker *w, uint64_t word) {
    const uint64_t phase = word >> LEFT_BITS;
    const uint64_t start = mn_now_ns();
    do {
        for (int i = 0; i < 16; i++) {
            if (atomic_load(&s->word) >> LEFT_BITS != phase)
                return;
            pool_relax();
        }
    } while (mn_now_ns() - start < w->spin_ns);
    atomic_fetch_add(&s->n_asleep, 1);
    while (atomic_load(&s->opened) == (uint32_t)phase)
        futex_wait(&s->opened, (uint32_t)phase);
    atomic_fetch_sub(&s->n_asleep, 1);
    pool_look(w);
    if (mn_now_ns() - start < 2 * SPIN_NS)
        w->spin_ns = MN_MIN(2 * w->spin_ns, w->most_spin_ns);
    else
        w->spin_ns = MN_MIN(MN_MAX(w->spin_ns / 2, SPIN_LEAST_NS), w->most_spin_ns);
}

/* Runs chunks until no team is at work, or the team is narrower than the worker's index. */
static void work_in_team(mn_pool *p, pool_worker *w) {
    team_state *s = &p->at_work;
    uint32_t n_mine = 0;     /* chunks of the open phase that are done but not counted yet */
    bool has_opened = false; /* the phase at work, which nobody else may have woken up for */
    pool_look(w);
    for (;;) {
        uint64_t word = atomic_load(&s->word);
        uint32_t chunk;
        const uint32_t width = atomic_load_explicit(&p->width, memory_order_relaxed);
        const bool stays = has_opened || w->index < width;
        if (stays && pool_claim(s, &word, &chunk)) {
            const uint64_t start = mn_now_ns();
            s->team.run(s->team.arg, s->next_phase - 1, chunk, w->index);
            const uint64_t took = mn_now_ns() - start;
            w->late_ns = MN_MAX(w->late_ns, took);
            n_mine++;
            continue;
        }
        if (n_mine) {
            const uint32_t n = atomic_load(&s->n_chunks[word >> LEFT_BITS & 1]);
            const uint32_t n_others = atomic_fetch_add(&s->n_done, n_mine);
            has_opened = n_others + n_mine == n;
            n_mine = 0;
            narrow_if_late(p, w);
            if (has_opened)
                pool_open_phase(s);
            continue;
        }
        if (left_in(word) <= OVER || !stays)
            return;
        await_phase(s, w, word);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void *worker_main(void *arg) {
    pool_worker *w = arg;
    mn_pool *p = w->pool;
    uint64_t turn = 0;
    inside = p;
    for (;;) {
        turn = await_turn(w, turn);
        uint32_t n = (uint32_t)(turn & TASKS_MASK);
        if (n == TASKS_MASK)
            return NULL;
        if (n & TEAM_FLAG) {
            work_in_team(p, w);
            continue;
        }
        p->fn(p->arg, w->index, n);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_exchange(&p->caller_asleep, 0))
            futex_wake(&p->caller_asleep, 1);
    }
}

mn_status mn_pool_run(mn_pool *p, uint32_t n, void (*fn)(void *arg, uint32_t i, uint32_t n),
                      void *arg) {
    /* from inside a task it would wait for itself */
    if (n > p->n_workers || inside == p || mn_pool_is_stranded(p))
        return MN_INVALID;
    if (!n)
        return MN_OK;
    const mn_pool *outer = inside;
    pthread_mutex_lock(&p->run_lock);
    inside = p;
    p->fn = fn;
    p->arg = arg;
    if (n > 1) {
        atomic_store(&p->pending, n - 1);
        start_turn(p, n);
    }
    fn(arg, 0, n);
    if (n > 1)
        await_done(p);
    inside = outer;
    pthread_mutex_unlock(&p->run_lock);
    return MN_OK;
}

mn_status mn_pool_team(mn_pool *p, const mn_team *team) {
    if (team->size < MN_UP_TO(mn_team, run) || inside == p || mn_pool_is_stranded(p))
        return MN_INVALID;
    const mn_pool *outer = inside;
    pthread_mutex_lock(&p->run_lock);
    inside = p;
    team_state *s = &p->at_work;
    s->team = (mn_team){0};
    memcpy(&s->team, team, MN_MIN(team->size, sizeof s->team)); /* a plugin's may be shorter */
    s->next_phase = 0;
    s->status = MN_OK;
    widen_if_due(p);
    pool_open_phase(s);
    const uint32_t width = atomic_load(&p->width);
    if (width > 1 && left_in(atomic_load(&s->word)) > SPENT)
        start_turn(p, width | TEAM_FLAG);
    work_in_team(p, &p->workers[0]);
    const mn_status st = s->status;
    inside = outer;
    pthread_mutex_unlock(&p->run_lock);
    return st;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* One for each thread, the caller's first. Those beyond the processors do not spin. */
static mn_status make_workers(mn_pool *p, mn_error *err) {
    const uint32_t n = p->n_workers;
    p->workers = mn_alloc_aligned(n * sizeof *p->workers, _Alignof(pool_worker));
    if (!p->workers)
        return mn_fail_memory(err, n * sizeof *p->workers);
    memset(p->workers, 0, n * sizeof *p->workers);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t spin_ns = i < p->widest ? SPIN_NS : 0;
        p->workers[i] =
            (pool_worker){.pool = p, .index = i, .spin_ns = spin_ns, .most_spin_ns = spin_ns};
    }
    return MN_OK;
}

/* The threads of all workers but the caller's; n_started counts those that are there. */
static mn_status start_threads(mn_pool *p, mn_error *err) {
    for (; p->n_started < p->n_workers; p->n_started++) {
        pool_worker *w = &p->workers[p->n_started];
        const int code = pthread_create(&w->thread, NULL, worker_main, w);
        if (code)
            return mn_fail(err, MN_OUT_OF_MEMORY,
                           "cannot start thread %u of %u: out of memory, or too many threads (%s)",
                           p->n_started + 1, p->n_workers, strerror(code));
    }
    return MN_OK;
}

mn_status mn_pool_create(uint32_t n_threads, mn_pool **out, mn_error *err) {
    if (n_threads > MAX_THREADS)
        return mn_fail(err, MN_BAD_INPUT, "threads: found %u, expected at most %u", n_threads,
                       MAX_THREADS);
    const mn_cpus cpus = mn_cpus_read("");
    if (!n_threads)
        n_threads = MN_MIN(mn_cpus_default(&cpus), MAX_THREADS);
    pthread_once(&watch_once, watch_forks);
    if (watch_error)
        return mn_fail(err, MN_OUT_OF_MEMORY, "cannot watch for forks: %s", strerror(watch_error));
    mn_pool *p = mn_alloc_aligned(sizeof *p, _Alignof(mn_pool));
    if (!p)
        return mn_fail_memory(err, sizeof *p);
    memset(p, 0, sizeof *p);
    p->born = atomic_load(&n_forks);
    pthread_mutex_init(&p->run_lock, NULL);
    /* more tasks than processors: a spin takes time from one that works */
    p->spin_ns = n_threads > cpus.processors ? 0 : SPIN_NS;
    p->widest = MN_MIN(n_threads, cpus.processors);
    p->width = p->widest;
    p->hold_ns = HOLD_LEAST_NS;
    p->n_workers = n_threads;
    p->n_started = 1;
    mn_status st = make_workers(p, err);
    if (!st)
        st = start_threads(p, err);
    if (st) {
        mn_pool_free(p);
        return st;
    }
    *out = p;
    return MN_OK;
}

void mn_pool_free(mn_pool *p) {
    if (!p || mn_pool_is_stranded(p)) /* then it is leaked */
        return;
    start_turn(p, TASKS_MASK);
    for (uint32_t i = 1; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_mutex_destroy(&p->run_lock);
    mn_free(p->workers);
    mn_free(p);
}

uint32_t mn_pool_workers(const mn_pool *p) {
    return p->n_workers;
}
