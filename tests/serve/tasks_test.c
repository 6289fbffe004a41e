/* tasks_test.c -- work beside the loop: the loop goes on while a task works, tasks are done in the
 * loop, and all of them are handed back when it ends. */
#include "serve/tasks.h"
#include "serve/loop.h"
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CHECK(ok)                                                                                  \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "tasks_test.c:%d: not so: %s\n", __LINE__, #ok);                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { N_MANY = 200 };

typedef struct {
    task task;
    sem_t *begun, *go_on; /* NULL: it waits for nobody */
    int worked, n_done;
} job;

static void work(task *t) {
    job *j = (job *)(void *)t;
    if (j->begun)
        sem_post(j->begun);
    if (j->go_on)
        sem_wait(j->go_on);
    j->worked = 1;
}

static void done(task *t) {
    ((job *)(void *)t)->n_done++;
}

static job new_job(sem_t *begun, sem_t *go_on) {
    return (job){.task = {.work = work, .done = done}, .begun = begun, .go_on = go_on};
}

static void count(void *arg, uint32_t events) {
    (void)events;
    ++*(int *)arg;
}

/* A task that does not end holds up neither the loop nor the tasks behind it. */
static void test_loop_goes_on(void) {
    sem_t begun, go_on;
    int n_other = 0;
    watch other = {count, &n_other};
    const int set = loop_create();
    const int fd = eventfd(1, EFD_CLOEXEC);
    tasks *p = tasks_create(set, 2);
    CHECK(p && !sem_init(&begun, 0, 0) && !sem_init(&go_on, 0, 0));
    job slow = new_job(&begun, &go_on);
    job quick = new_job(NULL, NULL);
    tasks_add(p, &slow.task);
    sem_wait(&begun);
    CHECK(!loop_add(set, fd, EPOLLIN | EPOLLET, &other));
    tasks_add(p, &quick.task);
    while (!n_other || !quick.n_done)
        loop_wait(set, -1);
    CHECK(quick.worked && !slow.worked && !slow.n_done);
    sem_post(&go_on);
    while (!slow.n_done)
        loop_wait(set, -1);
    CHECK(slow.worked && slow.n_done == 1 && quick.n_done == 1);
    tasks_free(p);
    close(fd);
    close(set);
}

/* The end: what has begun is waited for, the rest is handed back without work. */
static void test_end(void) {
    static job many[N_MANY];
    sem_t begun, go_on;
    const int set = loop_create();
    tasks *p = tasks_create(set, 1);
    CHECK(p && !sem_init(&begun, 0, 0) && !sem_init(&go_on, 0, 0));
    for (int i = 0; i < N_MANY; i++) {
        many[i] = new_job(i ? NULL : &begun, i ? NULL : &go_on);
        tasks_add(p, &many[i].task);
    }
    sem_wait(&begun);
    sem_post(&go_on);
    tasks_free(p);
    CHECK(many[0].worked);
    for (int i = 0; i < N_MANY; i++)
        CHECK(many[i].n_done == 1);
    close(set);
}

static void test_many(void) {
    static job many[N_MANY];
    int n = 0;
    const int set = loop_create();
    tasks *p = tasks_create(set, 3);
    CHECK(p);
    for (int i = 0; i < N_MANY; i++) {
        many[i] = new_job(NULL, NULL);
        tasks_add(p, &many[i].task);
    }
    while (n < N_MANY) {
        loop_wait(set, -1);
        n = 0;
        for (int i = 0; i < N_MANY; i++)
            n += many[i].n_done;
    }
    for (int i = 0; i < N_MANY; i++)
        CHECK(many[i].worked && many[i].n_done == 1);
    tasks_free(p);
    close(set);
}

int main(void) {
    test_loop_goes_on();
    test_end();
    test_many();
    CHECK(!tasks_create(-1, 1));
    tasks_free(NULL);
    return 0;
}
