/* threads.c -- see threads.h. A team's state lies on the stack of the call that runs it; its lock
 * guards every field. One thread per task, so that barriers between tasks work with any number of
 * processors. */
#include "threads.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- tasks ----------------------------------------------------------------------------------- */
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

mn_status check_run_tasks(uint32_t n, void (*fn)(void *, uint32_t, uint32_t), void *arg) {
    pthread_t thread[CHECK_MAX_THREADS];
    task tasks[CHECK_MAX_THREADS];
    if (n > CHECK_MAX_THREADS)
        return MN_INVALID;
    for (uint32_t i = 0; i < n; i++)
        tasks[i] = (task){fn, arg, i, n};
    for (uint32_t i = 1; i < n; i++)
        if (pthread_create(&thread[i], NULL, run_task, &tasks[i])) {
            fprintf(stderr, "minerva: error: cannot create a thread\n");
            _Exit(1); // the threads that have started may wait for this one at a barrier
        }
    if (n)
        run_task(&tasks[0]);
    for (uint32_t i = 1; i < n; i++)
        pthread_join(thread[i], NULL);
    return MN_OK;
}

/* ---- a team ---------------------------------------------------------------------------------- */
/* Threads take the chunks of the open phase. */
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

mn_status check_run_team(uint32_t n, const mn_team *t) {
    shared_team s = {.team = t};
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.opened, NULL);
    open_phase(&s);
    const mn_status st = check_run_tasks(n, team_task, &s);
    pthread_cond_destroy(&s.opened);
    pthread_mutex_destroy(&s.lock);
    return st;
}
