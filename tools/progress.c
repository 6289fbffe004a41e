/* progress.c -- a line on the terminal for work of more than a second, redrawn every second by a
 * thread.
 *
 * The caller owns the progress from progress_begin to progress_end. done and total are atomic:
 * the caller sets them on its thread, the drawing thread reads them. Signals stay with the main
 * thread. Without a terminal, or if no thread can be started, progress_begin returns NULL, which
 * the other functions accept. */
#include "app.h"
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct progress {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int over;
    const char *what;
    double begin;
    _Atomic uint64_t done, total;
    char says[64]; /* under the lock */
};

static void progress_draw(progress *p) {
    uint64_t done = atomic_load(&p->done), total = atomic_load(&p->total);
    fprintf(stderr, "\r\033[Kminerva: %s ... %.0f s", p->what, seconds() - p->begin);
    if (total)
        fprintf(stderr, ", %" PRIu64 " %%", done * 100 / total);
    if (p->says[0])
        fprintf(stderr, ", %s", p->says);
    fflush(stderr);
}

/* The thread: draws once a second until p->over, then wipes the line. */
static void *progress_run(void *arg) {
    progress *p = arg;
    struct timespec until;
    int drawn = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    pthread_mutex_lock(&p->lock);
    while (!p->over) {
        until.tv_sec += 1;
        while (!p->over && pthread_cond_timedwait(&p->wake, &p->lock, &until) == 0)
            continue;
        if (!p->over) {
            progress_draw(p);
            drawn = 1;
        }
    }
    pthread_mutex_unlock(&p->lock);
    if (drawn)
        fputs("\r\033[K", stderr);
    return NULL;
}

progress *progress_begin(const char *what) {
    sigset_t all, old;
    if (!isatty(STDERR_FILENO))
        return NULL;
    progress *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->what = what;
    p->begin = seconds();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    sigfillset(&all); // signals belong to the main thread
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&p->thread, NULL, progress_run, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed)
        return p;
    free(p);
    return NULL;
}

void progress_at(progress *p, uint64_t done, uint64_t total) {
    if (!p)
        return;
    atomic_store(&p->done, done);
    atomic_store(&p->total, total);
}

void progress_says(progress *p, const char *text) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    snprintf(p->says, sizeof p->says, "%s", text);
    pthread_mutex_unlock(&p->lock);
}

void progress_end(progress *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->over = 1;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    free(p);
}
