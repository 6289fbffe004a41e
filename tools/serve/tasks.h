/* tasks.h -- work that would hold up the loop, in a few threads of its own. */
#ifndef MINERVA_SERVE_TASKS_H
#define MINERVA_SERVE_TASKS_H

/* Part of what the work is about; zero but for the functions. */
typedef struct task {
    struct task *next;
    void (*work)(struct task *t); /* in one of the threads */
    void (*done)(struct task *t); /* in the loop, after the work; may free t */
} task;

typedef struct tasks tasks;

/* set: of loop.h, which calls `done`. NULL: the system has no descriptor or thread for it. */
tasks *tasks_create(int set, unsigned n_threads);
/* Tasks begin in the order in which they are added; a short one may be done before a long one. */
void tasks_add(tasks *p, task *t);
/* Waits for the work that has begun; `done` of all is called, also where no work was. */
void tasks_free(tasks *p);
#endif
