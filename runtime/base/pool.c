/* pool.c -- the process's CPU threads: a fixed set that runs one function at a time, all of its
 * tasks at once.
 *
 * One 64-bit word, `turn`, starts a run: a counter above, the number of tasks in the low bits. A
 * worker whose index is below that number takes part and counts `pending` down; the others never
 * look at the job, so they need not be waited for. Waiting is a short spin (a decode step calls
 * many times per millisecond), then a condition variable. */
#include "base/call.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#define MAX_THREADS 4096u
#define TASKS_MASK 0xFFFFu
#define TEAM_FLAG 0x8000u /* in turn: not tasks, but a team that threads may join */
#define CHUNK_BITS 24
#define CHUNK_MASK ((1u << CHUNK_BITS) - 1)
#define SPIN_NS 50000u

typedef struct {
    mn_pool *pool;
    uint32_t index;
    pthread_t thread;
} pool_worker;

/* A team. `word` is phase << 24 | next chunk; phases are counted over all teams and never repeat,
 * so that a thread that comes late fails to claim a chunk instead of claiming one of another phase.
 * A phase without chunks means that no team is at work. What a thread reads after it has claimed a
 * chunk stays as it is until that chunk is done. */
typedef struct {
    _Alignas(64) _Atomic uint64_t word;
    _Atomic uint32_t n_chunks[2]; /* by the lowest bit of the phase */
    _Alignas(64) _Atomic uint32_t n_done;
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
    _Atomic uint32_t n_asleep; /* workers at `wake` */
    _Atomic bool caller_asleep;
    team_state at_work;
    _Alignas(64) pthread_mutex_t run_lock; /* held by the caller of a run */
    pthread_mutex_t sleep_lock;
    pthread_cond_t wake;
    pthread_cond_t done;
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

/* ---- runs ------------------------------------------------------------------------------------ */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The turn that calls worker `index`, once it is another than the last one seen. */
static bool called(mn_pool *p, uint32_t index, uint64_t seen, uint64_t *turn) {
    *turn = atomic_load(&p->turn);
    return *turn != seen && index < (*turn & TASKS_MASK & ~TEAM_FLAG);
}

static uint64_t await_turn(mn_pool *p, uint32_t index, uint64_t seen) {
    uint64_t turn;
    uint64_t until = mn_now_ns() + p->spin_ns;
    do {
        for (int i = 0; i < 64; i++) {
            if (called(p, index, seen, &turn))
                return turn;
            relax();
        }
    } while (mn_now_ns() < until);
    pthread_mutex_lock(&p->sleep_lock);
    /* before the look at turn; the caller writes turn before it looks here */
    atomic_fetch_add(&p->n_asleep, 1);
    while (!called(p, index, seen, &turn))
        pthread_cond_wait(&p->wake, &p->sleep_lock);
    atomic_fetch_sub(&p->n_asleep, 1);
    pthread_mutex_unlock(&p->sleep_lock);
    return turn;
}

/* Opens the next phase that has chunks, or one without: the end. Called by one thread at a time. */
static void open_phase(team_state *s) {
    const uint64_t phase = (atomic_load(&s->word) >> CHUNK_BITS) + 1;
    uint32_t n = 0;
    while (!n && !s->status && s->next_phase < s->team.n_phases)
        n = s->team.chunks(s->team.arg, s->next_phase++);
    if (n > CHUNK_MASK) {
        s->status = MN_INVALID;
        n = 0;
    }
    atomic_store(&s->n_done, 0);
    atomic_store(&s->n_chunks[phase & 1], n);
    atomic_store(&s->word, phase << CHUNK_BITS);
}

/* Runs chunks until no team is at work. */
static void work_in_team(mn_pool *p, uint32_t thread) {
    team_state *s = &p->at_work;
    uint64_t until = mn_now_ns() + p->spin_ns;
    for (;;) {
        uint64_t word = atomic_load(&s->word);
        const uint32_t n = atomic_load(&s->n_chunks[word >> CHUNK_BITS & 1]);
        const uint32_t chunk = (uint32_t)word & CHUNK_MASK;
        if (chunk >= n) {
            if (atomic_load(&s->word) != word)
                continue;
            if (!n)
                return;
            if (mn_now_ns() < until)
                relax();
            else
                sched_yield();
            continue;
        }
        if (!atomic_compare_exchange_strong(&s->word, &word, word + 1))
            continue;
        s->team.run(s->team.arg, s->next_phase - 1, chunk, thread);
        if (atomic_fetch_add(&s->n_done, 1) + 1 == n)
            open_phase(s);
        until = mn_now_ns() + p->spin_ns;
    }
}

static void *worker_main(void *arg) {
    pool_worker *w = arg;
    mn_pool *p = w->pool;
    uint64_t turn = 0;
    inside = p;
    for (;;) {
        turn = await_turn(p, w->index, turn);
        uint32_t n = (uint32_t)(turn & TASKS_MASK);
        if (n == TASKS_MASK)
            return NULL;
        if (n & TEAM_FLAG) {
            work_in_team(p, w->index);
            continue;
        }
        p->fn(p->arg, w->index, n);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->caller_asleep)) {
            pthread_mutex_lock(&p->sleep_lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->sleep_lock);
        }
    }
}

static void start_turn(mn_pool *p, uint32_t n) {
    atomic_store(&p->turn, ((atomic_load(&p->turn) >> 16) + 1) << 16 | n);
    if (!atomic_load(&p->n_asleep))
        return;
    pthread_mutex_lock(&p->sleep_lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->sleep_lock);
}

static void await_done(mn_pool *p) {
    uint64_t until = mn_now_ns() + p->spin_ns;
    do {
        for (int i = 0; i < 64; i++) {
            if (!atomic_load(&p->pending))
                return;
            relax();
        }
    } while (mn_now_ns() < until);
    pthread_mutex_lock(&p->sleep_lock);
    atomic_store(&p->caller_asleep, true);
    while (atomic_load(&p->pending))
        pthread_cond_wait(&p->done, &p->sleep_lock);
    atomic_store(&p->caller_asleep, false);
    pthread_mutex_unlock(&p->sleep_lock);
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
    if (team->size < MN_UP_TO(mn_team, run) || inside == p)
        return MN_INVALID;
    const mn_pool *outer = inside;
    pthread_mutex_lock(&p->run_lock);
    inside = p;
    team_state *s = &p->at_work;
    s->team = *team;
    s->next_phase = 0;
    s->status = MN_OK;
    open_phase(s);
    if (p->n_workers > 1)
        start_turn(p, p->n_workers | TEAM_FLAG);
    work_in_team(p, 0);
    const mn_status st = s->status;
    inside = outer;
    pthread_mutex_unlock(&p->run_lock);
    return st;
}

/* ---- how many threads ------------------------------------------------------------------------ */

/* Processors of the quota in a cgroup file of "quota period" (v2); 0 = no limit or no such file. */
static uint32_t quota_of(const char *path) {
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    long long quota = 0;
    long long period = 0;
    int n = fscanf(f, "%lld %lld", &quota, &period); /* "max 100000" matches nothing: no limit */
    fclose(f);
    if (n != 2 || quota <= 0 || period <= 0)
        return 0;
    return (uint32_t)MN_MIN((quota + period - 1) / period, (long long)MAX_THREADS);
}

/* The tightest quota of our cgroup (v2) and those above it; 0 = none. */
static uint32_t cgroup_cpus(void) {
    char line[1024] = "";
    char path[1200];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f) && strncmp(line, "0::", 3) != 0)
        line[0] = 0;
    fclose(f);
    if (strncmp(line, "0::/", 4) != 0)
        return 0;
    char *group = line + 3;
    group[strcspn(group, "\n")] = 0;
    uint32_t least = 0;
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        uint32_t cpus = quota_of(path);
        if (cpus && (!least || cpus < least))
            least = cpus;
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

static uint32_t usable_cpus(void) {
    unsigned long mask[16384 / (8 * sizeof(unsigned long))] = {0}; /* cpu_set_t ends at 1024 */
    int n = 0;
    if (!sched_getaffinity(0, sizeof mask, (cpu_set_t *)(void *)mask))
        n = CPU_COUNT_S(sizeof mask, (cpu_set_t *)(void *)mask);
    uint32_t cpus = n > 0 ? (uint32_t)n : 1;
    uint32_t quota = cgroup_cpus();
    return MN_MIN(quota && quota < cpus ? quota : cpus, MAX_THREADS);
}

/* ---- life ------------------------------------------------------------------------------------ */

mn_status mn_pool_create(uint32_t n_threads, mn_pool **out, mn_error *err) {
    if (n_threads > MAX_THREADS)
        return mn_fail(err, MN_BAD_INPUT, "threads: found %u, expected at most %u", n_threads,
                       MAX_THREADS);
    uint32_t cpus = usable_cpus();
    if (!n_threads)
        n_threads = cpus;
    pthread_once(&watch_once, watch_forks);
    if (watch_error)
        return mn_fail(err, MN_OUT_OF_MEMORY, "cannot watch for forks: %s", strerror(watch_error));
    mn_pool *p = mn_alloc_aligned(sizeof *p, _Alignof(mn_pool));
    if (!p)
        return mn_fail_memory(err, sizeof *p);
    memset(p, 0, sizeof *p);
    p->born = atomic_load(&n_forks);
    pthread_mutex_init(&p->run_lock, NULL);
    pthread_mutex_init(&p->sleep_lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    /* more threads than processors: a spin takes time from one that works */
    p->spin_ns = n_threads > cpus ? 0 : SPIN_NS;
    p->n_workers = n_threads;
    p->n_started = 1;
    p->workers = mn_calloc(n_threads, sizeof *p->workers);
    if (!p->workers) {
        mn_pool_free(p);
        return mn_fail_memory(err, n_threads * sizeof *p->workers);
    }
    for (; p->n_started < n_threads; p->n_started++) {
        pool_worker *w = &p->workers[p->n_started];
        *w = (pool_worker){.pool = p, .index = p->n_started};
        int code = pthread_create(&w->thread, NULL, worker_main, w);
        if (!code)
            continue;
        uint32_t started = p->n_started;
        mn_pool_free(p);
        return mn_fail(err, MN_OUT_OF_MEMORY, "cannot start thread %u of %u: %s", started + 1,
                       n_threads, strerror(code));
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
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->sleep_lock);
    pthread_mutex_destroy(&p->run_lock);
    mn_free(p->workers);
    mn_free(p);
}

uint32_t mn_pool_workers(const mn_pool *p) {
    return p->n_workers;
}
