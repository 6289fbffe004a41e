/* tasks.c -- a queue of work, threads that take from it, and a list of what is done, which the loop
 * empties when an eventfd wakes it. Both lists are under one lock; a task belongs to its thread
 * while it is in neither. */
#include "serve/tasks.h"
#include "serve/loop.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MAX_THREADS = 8 };

typedef struct {
    task *first, **end;
} task_list;

struct tasks {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    task_list queue, ready;
    pthread_t threads[MAX_THREADS];
    unsigned n_threads;
    int stop;
    int fd, set;
    watch watch;
};

static void tasks_append(task_list *l, task *t) {
    t->next = NULL;
    *l->end = t;
    l->end = &t->next;
}

/* Empties the list; its tasks are linked by next. */
static task *tasks_take_all(task_list *l) {
    task *first = l->first;
    l->first = NULL;
    l->end = &l->first;
    return first;
}

/* The next task of the queue; NULL: the thread is to end. */
static task *next_task(tasks *p) {
    pthread_mutex_lock(&p->lock);
    while (!p->queue.first && !p->stop)
        pthread_cond_wait(&p->wake, &p->lock);
    task *t = p->stop ? NULL : p->queue.first;
    if (t)
        p->queue.first = t->next;
    if (!p->queue.first)
        p->queue.end = &p->queue.first;
    pthread_mutex_unlock(&p->lock);
    return t;
}

static void *run_thread(void *arg) {
    tasks *p = arg;
    const uint64_t one = 1;
    for (task *t = next_task(p); t; t = next_task(p)) {
        t->work(t);
        pthread_mutex_lock(&p->lock);
        tasks_append(&p->ready, t);
        pthread_mutex_unlock(&p->lock);
        (void)!write(p->fd, &one, sizeof one); /* it cannot be full */
    }
    return NULL;
}

static void call_done(task *t) {
    while (t) {
        task *next = t->next;
        t->done(t);
        t = next;
    }
}

static void tasks_on_ready(void *arg, uint32_t events) {
    tasks *p = arg;
    uint64_t n;
    (void)events;
    if (read(p->fd, &n, sizeof n) != (ssize_t)sizeof n)
        return;
    pthread_mutex_lock(&p->lock);
    task *t = tasks_take_all(&p->ready);
    pthread_mutex_unlock(&p->lock);
    call_done(t);
}

tasks *tasks_create(int set, unsigned n_threads) {
    tasks *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->queue.end = &p->queue.first;
    p->ready.end = &p->ready.first;
    p->set = set;
    p->watch = (watch){tasks_on_ready, p};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int ok = p->fd >= 0 && !loop_add(set, p->fd, EPOLLIN, &p->watch);
    for (unsigned i = 0; i < n_threads && i < MAX_THREADS && ok; i++) {
        ok = !pthread_create(&p->threads[i], NULL, run_thread, p);
        p->n_threads += (unsigned)ok;
    }
    if (ok)
        return p;
    tasks_free(p);
    return NULL;
}

void tasks_add(tasks *p, task *t) {
    pthread_mutex_lock(&p->lock);
    tasks_append(&p->queue, t);
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void tasks_free(tasks *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    call_done(tasks_take_all(&p->ready));
    call_done(tasks_take_all(&p->queue));
    if (p->fd >= 0) {
        loop_remove(p->set, p->fd);
        close(p->fd);
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
