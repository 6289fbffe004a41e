/* host.c -- the mn_host of the tests: threads made per call, counted allocations, injected
 * failures. */
#include "harness.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "host.h"

static uint32_t n_workers = 3;
static const char *option_key, *option_value;
static atomic_llong fail_in = -1, live;

void h_host_workers(uint32_t n) {
    n_workers = n;
}
void h_host_option(const char *key, const char *value) {
    option_key = key;
    option_value = value;
}
void h_host_fail_after(int64_t k) {
    atomic_store(&fail_in, k);
}
int64_t h_host_live(void) {
    return atomic_load(&live);
}

static void log_line(void *self, int32_t level, mn_str msg) {
    (void)self;
    if (level <= MN_LOG_WARN)
        fprintf(stderr, "# plugin: %.*s\n", (int)msg.len, msg.ptr);
}

static void *give(void *self, uint64_t bytes, uint64_t align) {
    void *p = NULL;
    (void)self;
    if (atomic_load(&fail_in) >= 0 &&
        (atomic_load(&fail_in) == 0 || atomic_fetch_sub(&fail_in, 1) == 0))
        return NULL;
    if (bytes > (uint64_t)1 << 36 ||
        posix_memalign(&p, align < sizeof p ? sizeof p : align, bytes ? bytes : 1))
        return NULL;
    memset(p, 0xa5, bytes);
    atomic_fetch_add(&live, 1);
    return p;
}

static void take_back(void *self, void *p) {
    (void)self;
    if (p)
        atomic_fetch_sub(&live, 1);
    free(p);
}

typedef struct {
    void (*fn)(void *, uint32_t, uint32_t);
    void *arg;
    uint32_t i;
    uint32_t n;
} task;
static void *run_task(void *p) {
    task *t = p;
    t->fn(t->arg, t->i, t->n);
    return NULL;
}

static mn_status parallel(void *self, uint32_t n, void (*fn)(void *, uint32_t, uint32_t),
                          void *arg) {
    pthread_t thread[16];
    task tasks[16];
    (void)self;
    if (n > 16)
        return MN_INVALID;
    for (uint32_t i = 0; i < n; i++)
        tasks[i] = (task){fn, arg, i, n};
    for (uint32_t i = 1; i < n; i++)
        if (pthread_create(&thread[i], NULL, run_task, &tasks[i]))
            abort();
    if (n)
        run_task(&tasks[0]);
    for (uint32_t i = 1; i < n; i++)
        pthread_join(thread[i], NULL);
    return MN_OK;
}

static uint32_t workers(void *self) {
    (void)self;
    return n_workers;
}
static int32_t progress(void *self, float done, mn_str what) {
    (void)self;
    (void)done;
    (void)what;
    return 0;
}
static uint64_t now_ns(void *self) {
    struct timespec t;
    (void)self;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static int32_t option(void *self, const char *key, mn_str *value) {
    (void)self;
    if (!option_key || strcmp(key, option_key))
        return 0;
    *value = (mn_str){option_value, strlen(option_value)};
    return 1;
}
/* A team whose threads take chunks under a lock. */
typedef struct {
    const mn_team *team;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    uint32_t phase, n, next, n_done;
} shared_team;

/* The next phase with chunks; behind the last one n is 0. The lock is held. */
static void open_phase(shared_team *s) {
    s->n = s->next = s->n_done = 0;
    while (!s->n && s->phase < s->team->n_phases)
        s->n = s->team->chunks(s->team->arg, s->phase++);
    pthread_cond_broadcast(&s->opened);
}

static void team_task(void *arg, uint32_t i, uint32_t n) {
    shared_team *s = arg;
    (void)n;
    pthread_mutex_lock(&s->lock);
    while (s->n) {
        if (s->next == s->n) {
            pthread_cond_wait(&s->opened, &s->lock);
            continue;
        }
        const uint32_t chunk = s->next++;
        const uint32_t phase = s->phase - 1;
        pthread_mutex_unlock(&s->lock);
        s->team->run(s->team->arg, phase, chunk, i);
        pthread_mutex_lock(&s->lock);
        if (++s->n_done == s->n)
            open_phase(s);
    }
    pthread_mutex_unlock(&s->lock);
}

static mn_status team(void *self, const mn_team *t) {
    shared_team s = {.team = t};
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.opened, NULL);
    open_phase(&s);
    const mn_status st = parallel(self, workers(self), team_task, &s);
    pthread_cond_destroy(&s.opened);
    pthread_mutex_destroy(&s.lock);
    return st;
}

static const void *query(void *self, const char *id) {
    (void)self;
    (void)id;
    return NULL;
}

const mn_host h_host = {sizeof(mn_host), MN_ABI_VERSION, MN_ABI_VERSION, 0,        NULL,
                        log_line,        give,           take_back,      parallel, workers,
                        progress,        now_ns,         option,         query,    team};
