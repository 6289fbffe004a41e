/* call.c -- which thread is in which plugin's function, and a thread that waits for those that
 * hang.
 *
 * The calls in flight lie in one table of the process, for two readers that have no handle: a
 * signal handler, and the thread of a runtime's watch. A call takes a place of the table by one
 * compare-and-swap and writes it by atomic stores; the watch looks at the table a few times per
 * limit and measures by what it sees there twice. So a call needs no clock, no lock and no system
 * call, but to wake a watch that has slept because there was nothing to see. */
#include "base/call.h"
#include "base/call_limit.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { N_PLACES = 64 };
#define MIN_TICK_NS 10000000ull
#define MAX_TICK_NS 1000000000ull
#define MAX_EXPECTED_NS (1ull << 50) /* 13 days: a hundred of them can be added up */

struct mn_call {
    _Alignas(64) _Atomic uintptr_t thread; /* that is in the call; 0 = the place is free */
    _Atomic uint64_t number; /* grows with every call; odd: the rest is being written */
    const mn_callee *_Atomic callee;
    mn_watch *_Atomic watch; /* the callee's, which may be freed when its last call is over */
    const char *_Atomic what;
    _Atomic uint64_t expected_ns;
};
static mn_call places[N_PLACES];

/* What the watch has seen of a place. */
typedef struct {
    uint64_t number;
    uint64_t since_ns;
    bool named;
    bool told;
} sighting;

struct mn_watch {
    mn_watch_params p;
    uint64_t tick_ns;
    pthread_t thread;
    pthread_mutex_t lock; /* of over, and of falling asleep */
    pthread_cond_t wake;
    bool over;
    _Atomic bool asleep; /* until the next call */
    sighting seen[N_PLACES];
};

/* ---- announcing ------------------------------------------------------------------------------ */

static uintptr_t this_thread(void) {
    return (uintptr_t)pthread_self();
}

/* A free place, the same one for a thread as far as possible; NULL = there is none. */
static mn_call *call_watch_take_place(uintptr_t thread) {
    const uint32_t first = (uint32_t)((thread >> 12) * 0x9E3779B1u) >> 16;
    for (uint32_t i = 0; i < N_PLACES; i++) {
        mn_call *c = &places[(first + i) % N_PLACES];
        uintptr_t nobody = 0;
        if (atomic_compare_exchange_strong(&c->thread, &nobody, thread))
            return c;
    }
    return NULL;
}

static void wake(mn_watch *w) {
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->asleep, false);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

mn_call *mn_call_begin(const mn_callee *callee, const char *what, uint64_t expected_ns) {
    mn_call *c = callee ? call_watch_take_place(this_thread()) : NULL;
    if (!c)
        return NULL;
    const uint64_t number = atomic_load_explicit(&c->number, memory_order_relaxed);
    atomic_store_explicit(&c->number, number + 1, memory_order_relaxed);
    atomic_store_explicit(&c->callee, callee, memory_order_release);
    atomic_store_explicit(&c->watch, callee->watch, memory_order_release);
    atomic_store_explicit(&c->what, what, memory_order_release);
    atomic_store_explicit(&c->expected_ns, expected_ns, memory_order_release);
    /* before the look at asleep, as in fall_asleep: one of the two sees the other */
    atomic_store(&c->number, number + 2);
    if (callee->watch && atomic_load(&callee->watch->asleep))
        wake(callee->watch);
    return c;
}

void mn_call_end(mn_call *c) {
    if (c)
        atomic_store_explicit(&c->thread, 0, memory_order_release);
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct {
    mn_call_seen is;
    uintptr_t thread;
    uint64_t number;
    const mn_watch *watch;
} snapshot;

/* The call at place i; false = none, or it changes just now. */
static bool read_place(uint32_t i, snapshot *out) {
    mn_call *c = &places[i];
    out->number = atomic_load(&c->number);
    out->thread = atomic_load(&c->thread);
    out->is.callee = atomic_load(&c->callee);
    out->watch = atomic_load(&c->watch);
    out->is.what = atomic_load(&c->what);
    out->is.expected_ns = atomic_load(&c->expected_ns);
    const bool steady = atomic_load(&c->number) == out->number && out->number % 2 == 0;
    return steady && out->thread && out->is.callee;
}

bool mn_call_now(const mn_callee **callee, const char **what, bool *alone) {
    const uintptr_t self = this_thread();
    bool found = false;
    bool same = true;
    for (uint32_t i = 0; i < N_PLACES; i++) {
        snapshot c;
        if (!read_place(i, &c))
            continue;
        const bool mine = c.thread == self;
        same = mine || (same && (!found || c.is.callee == *callee));
        if (mine || !found) {
            *callee = c.is.callee;
            *what = c.is.what;
        }
        found = true;
        if (mine)
            break;
    }
    if (alone)
        *alone = same;
    return found;
}

void mn_call_fork(void) {
    for (uint32_t i = 0; i < N_PLACES; i++) {
        atomic_store(&places[i].thread, 0);
        atomic_store(&places[i].number, 0);
    }
}

/* ---- watching -------------------------------------------------------------------------------- */

/* limit_ns, and `times` what the call is expected to take. */
static uint64_t grant(uint64_t limit_ns, uint64_t times, uint64_t expected_ns) {
    return limit_ns + times * MN_MIN(expected_ns, MAX_EXPECTED_NS);
}

uint64_t mn_call_limit_ns(uint64_t limit, const char *what) {
    static const struct {
        const char *what;
        uint64_t part;
        uint64_t least_s;
    } quick[] = {{"entry", 10, 30},       {"query", 10, 30},    {"device_count", 10, 30},
                 {"device_info", 10, 30}, {"shutdown", 30, 10}, {"its destructors", 30, 10}};
    for (size_t i = 0; i < MN_COUNT(quick); i++) {
        const uint64_t least = quick[i].least_s * UINT64_C(1000000000);
        if (!strcmp(quick[i].what, what))
            return MN_MIN(limit, MN_MAX(limit / quick[i].part, least));
    }
    return limit;
}

static void call_watch_tell(const mn_watch *w, sighting *s, mn_call_seen *c) {
    const uint64_t limit =
        c->expected_ns ? w->p.step_limit_ns : mn_call_limit_ns(w->p.limit_ns, c->what);
    c->limit_ns = grant(limit, 100, c->expected_ns);
    if (!s->named && c->waited_ns >= grant(w->p.say_ns, 10, c->expected_ns)) {
        s->named = true;
        mn_log(MN_LOG_WARN, "plugin %s (%s): its call %s is waited for, %.0f s by now",
               c->callee->id, c->callee->path, c->what, (double)c->waited_ns * 1e-9);
    }
    if (!s->told && limit && w->p.stuck && c->waited_ns >= c->limit_ns) {
        s->told = true;
        w->p.stuck(w->p.arg, c);
    }
}

/* One look at all places; whether anything was called since the last one. */
static bool call_watch_look(mn_watch *w) {
    const uint64_t now = mn_now_ns();
    bool busy = false;
    for (uint32_t i = 0; i < N_PLACES; i++) {
        sighting *s = &w->seen[i];
        snapshot c;
        const bool in_call = read_place(i, &c) && c.watch == w;
        busy = busy || in_call;
        if (c.number != s->number)
            *s = (sighting){.number = c.number, .since_ns = now};
        c.is.waited_ns = now - s->since_ns;
        if (in_call)
            call_watch_tell(w, s, &c.is);
    }
    return busy;
}

static bool any_call(void) {
    for (uint32_t i = 0; i < N_PLACES; i++)
        if (atomic_load(&places[i].thread))
            return true;
    return false;
}

/* The lock is held. */
static void sleep_until_call(mn_watch *w) {
    atomic_store(&w->asleep, true);
    if (any_call())
        atomic_store(&w->asleep, false);
    while (!w->over && atomic_load(&w->asleep))
        pthread_cond_wait(&w->wake, &w->lock);
}

/* The lock is held. */
static void sleep_tick(mn_watch *w) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t ns = (uint64_t)until.tv_nsec + w->tick_ns;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    while (!w->over && !pthread_cond_timedwait(&w->wake, &w->lock, &until))
        continue;
}

static void *watch(void *arg) {
    mn_watch *w = arg;
    uint32_t idle = 0; /* looks in a row that saw nothing */
    pthread_mutex_lock(&w->lock);
    while (!w->over) {
        pthread_mutex_unlock(&w->lock);
        idle = call_watch_look(w) ? 0 : idle + 1;
        pthread_mutex_lock(&w->lock);
        if (idle > 4 && !w->over) {
            sleep_until_call(w);
            idle = 0;
        }
        sleep_tick(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static uint64_t tick_of(const mn_watch_params *p) {
    uint64_t least = p->say_ns;
    if (p->limit_ns)
        least = MN_MIN(least, p->limit_ns);
    if (p->step_limit_ns)
        least = MN_MIN(least, p->step_limit_ns);
    return MN_MAX(MN_MIN(least / 4, MAX_TICK_NS), MIN_TICK_NS);
}

static bool init_sync(mn_watch *w) {
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr))
        return false;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    const int failed = pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    return !failed && !pthread_mutex_init(&w->lock, NULL);
}

mn_watch *mn_watch_create(const mn_watch_params *p) {
    sigset_t all;
    sigset_t old;
    mn_watch *w = mn_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->p = *p;
    w->tick_ns = tick_of(p);
    int failed = !init_sync(w);
    sigfillset(&all); /* signals belong to the application's threads */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!failed)
        failed = pthread_create(&w->thread, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed)
        return w;
    mn_log(MN_LOG_DEBUG, "no thread could be started to watch the calls of plugins");
    mn_free(w);
    return NULL;
}

void mn_watch_free(mn_watch *w) {
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    mn_free(w);
}
