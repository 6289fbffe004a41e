/* stream.c -- the stream: a thread that runs the commands of a ring in their order; and events,
 * places in it. A queue has one thread that pushes; events may be polled and freed by any. */
#include "toy.h"
#include <stdlib.h>
#include <time.h>

/* ---- events ---------------------------------------------------------------------------------- */
static void event_release(toy_event *e) {
    if (!e)
        return;
    const bool own = e->own;
    if (!__atomic_sub_fetch(&e->refs, 1, __ATOMIC_ACQ_REL) && !own)
        free(e);
}

void toy_event_free(mn_device *d, void *event) {
    (void)d;
    event_release(event);
}

static bool is_lost(const mn_device *d) {
    return d->lost_after >= 0 && __atomic_load_n(&d->n_kernels, __ATOMIC_ACQUIRE) >= d->lost_after;
}

static mn_status check_lost(const mn_device *d, mn_error *err) {
    const mng_vendor_error e = {"toy", "the thread fell asleep", 2, MN_DEVICE_LOST};
    return is_lost(d) ? mng_fail_vendor(&e, err, "a step failed") : MN_OK;
}

mn_status toy_event_poll(mn_device *d, void *event, bool *passed, mn_error *err) {
    const mn_status st = toy_check_entered(d, err);
    *passed = __atomic_load_n(&((toy_event *)event)->passed, __ATOMIC_ACQUIRE);
    return st ? st : check_lost(d, err);
}

static void wait_for(const toy_event *e) {
    const struct timespec nap = {0, 20000};
    while (!__atomic_load_n(&e->passed, __ATOMIC_ACQUIRE))
        nanosleep(&nap, NULL);
}

mn_status toy_event_wait(mn_device *d, void *event, mn_error *err) {
    wait_for(event);
    return check_lost(d, err);
}

/* An event with two users, the command and the caller: one of the device's, for execute allocates
 * nothing; another where all of them are in use. */
static toy_event *event_new(mn_device *d) {
    for (int i = 0; i < TOY_EVENTS; i++) {
        int none = 0;
        if (!__atomic_compare_exchange_n(&d->events[i].refs, &none, 2, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        d->events[i].own = true;
        d->events[i].passed = 0;
        return &d->events[i];
    }
    toy_event *e = calloc(1, sizeof *e);
    if (e)
        e->refs = 2;
    return e;
}

mn_status toy_event_record(mn_queue *q, void **event, mn_error *err) {
    const mn_status st = toy_check_entered(q->base.dev, err);
    if (st)
        return st;
    event_release(*event);
    toy_event *e = event_new(q->base.dev);
    *event = e;
    if (!e)
        return mnp_fail_memory(err, sizeof *e, "an event");
    toy_command *c = toy_begin(q);
    c->what = TOY_RECORD;
    c->u.event = e;
    toy_push(q);
    return MN_OK;
}

mn_status toy_event_join(mn_queue *q, void *event, mn_error *err) {
    toy_event *e = event;
    const mn_status st = toy_check_entered(q->base.dev, err);
    if (st)
        return st;
    __atomic_add_fetch(&e->refs, 1, __ATOMIC_RELAXED);
    toy_command *c = toy_begin(q);
    c->what = TOY_WAIT;
    c->u.event = e;
    toy_push(q);
    return MN_OK;
}

mn_status toy_event_tell(mn_device *d, void *event, void (*fn)(void *, mn_status), void *arg,
                         mn_error *err) {
    toy_event *e = event;
    toy_told *t = mng_new(d, sizeof *t);
    if (!t)
        return mnp_fail_memory(err, sizeof *t, "whom to tell of an event");
    pthread_mutex_lock(&d->base.lock);
    const bool passed = __atomic_load_n(&e->passed, __ATOMIC_ACQUIRE);
    if (!passed) {
        __atomic_add_fetch(&e->refs, 1, __ATOMIC_RELAXED);
        *t = (toy_told){d->told, e, fn, arg};
        d->told = t;
    }
    pthread_mutex_unlock(&d->base.lock);
    if (!passed)
        return MN_OK;
    mng_delete(d, t);
    fn(arg, check_lost(d, NULL));
    return MN_OK;
}

/* On the stream's thread: whoever waits for the event is told; those of others stay. */
static void pass(mn_device *d, toy_event *e) {
    toy_told *mine = NULL;
    pthread_mutex_lock(&d->base.lock);
    __atomic_store_n(&e->passed, 1, __ATOMIC_RELEASE);
    for (toy_told **at = &d->told; *at;) {
        toy_told *t = *at;
        if (t->event != e) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        t->next = mine;
        mine = t;
    }
    pthread_mutex_unlock(&d->base.lock);
    while (mine) {
        const toy_told t = *mine;
        mng_delete(d, mine);
        mine = t.next;
        event_release(e);
        t.fn(t.arg, check_lost(d, NULL));
    }
    event_release(e);
}

/* ---- words ----------------------------------------------------------------------------------- */
/* A gate is an event that no queue reaches: gate_open lets it pass. */
mn_status toy_gate_close(mn_queue *q, void **gate, mn_error *err) {
    const mn_status st = toy_check_entered(q->base.dev, err);
    if (st)
        return st;
    toy_event *e = event_new(q->base.dev);
    *gate = e;
    if (!e)
        return mnp_fail_memory(err, sizeof *e, "a gate");
    toy_command *c = toy_begin(q);
    c->what = TOY_WAIT;
    c->u.event = e;
    toy_push(q);
    return MN_OK;
}

void toy_gate_open(mn_device *d, void *gate) {
    toy_event *e = gate;
    (void)d;
    __atomic_store_n(&e->passed, 1, __ATOMIC_RELEASE);
    event_release(e);
}

mn_status toy_word_write(mn_queue *q, mng_ref word, uint32_t value, mn_error *err) {
    const mn_status st = toy_check_entered(q->base.dev, err);
    if (st)
        return st;
    toy_command *c = toy_begin(q);
    c->what = TOY_WORD_WRITE;
    c->u.word = (toy_word){(uint32_t *)(void *)toy_at(word), value};
    toy_push(q);
    return MN_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */
static mn_status push_copy(mn_queue *q, char *to, const char *from, uint64_t n) {
    toy_command *c = toy_begin(q);
    c->what = TOY_COPY;
    c->u.copy = (toy_copy){to, from, n};
    toy_push(q);
    return MN_OK;
}

/* Whether a kernel runs or waits. */
static bool has_kernels(mn_queue *q) {
    bool has = false;
    pthread_mutex_lock(&q->lock);
    for (uint64_t i = q->done; i < q->pushed; i++)
        has |= q->commands[i % TOY_COMMANDS].what == TOY_KERNEL;
    pthread_mutex_unlock(&q->lock);
    return has;
}

mn_status toy_copy_in(mn_queue *q, mng_ref to, const char *host, uint64_t n, void **event,
                      mn_error *err) {
    mn_device *d = q->base.dev;
    if (d->kernel_us > 0 && has_kernels(q))
        __atomic_add_fetch(&d->n_beside, 1, __ATOMIC_RELAXED);
    const mn_status st = push_copy(q, toy_at(to), host, n);
    return st || !event ? st : toy_event_record(q, event, err);
}

mn_status toy_copy_out(mn_queue *q, char *host, mng_ref from, uint64_t n, mn_error *err) {
    (void)err;
    return push_copy(q, host, toy_at(from), n);
}

mn_status toy_copy_on(mn_queue *q, mng_ref to, mng_ref from, uint64_t n, mn_error *err) {
    (void)err;
    return push_copy(q, toy_at(to), toy_at(from), n);
}

/* ---- the thread ------------------------------------------------------------------------------ */
/* A device that is lost computes and copies nothing, as its memory may be freed; its events pass,
 * so that nothing waits for ever. */
static void run_command(mn_queue *q, const toy_command *c) {
    mn_device *d = q->base.dev;
    switch (c->what) {
    case TOY_KERNEL:
        if (d->kernel_us > 0)
            nanosleep(&(struct timespec){0, d->kernel_us * 1000}, NULL);
        if (!is_lost(d))
            toy_run_kernel(&c->u.kernel);
        __atomic_add_fetch(&d->n_kernels, 1, __ATOMIC_RELEASE);
        break;
    case TOY_COPY:
        if (!is_lost(d))
            memmove(c->u.copy.to, c->u.copy.from, c->u.copy.n);
        break;
    case TOY_VIEW:
        if (!is_lost(d))
            toy_run_view(&c->u.view);
        break;
    case TOY_RECORD:
        pass(d, c->u.event);
        break;
    case TOY_WAIT:
        wait_for(c->u.event);
        event_release(c->u.event);
        break;
    case TOY_WORD_WRITE:
        if (!is_lost(d))
            __atomic_store_n(c->u.word.at, c->u.word.value, __ATOMIC_RELEASE);
        break;
    }
}

/* The next command; NULL: the queue ends. */
static const toy_command *next_command(mn_queue *q) {
    pthread_mutex_lock(&q->lock);
    while (q->done == q->pushed && !q->ends)
        pthread_cond_wait(&q->moved, &q->lock);
    const bool ends = q->done == q->pushed;
    const uint64_t at = q->done % TOY_COMMANDS;
    pthread_mutex_unlock(&q->lock);
    return ends ? NULL : &q->commands[at];
}

static void *run_stream(void *queue) {
    mn_queue *q = queue;
    for (;;) {
        const toy_command *c = next_command(q);
        if (!c)
            return NULL;
        run_command(q, c);
        pthread_mutex_lock(&q->lock);
        q->done++;
        pthread_cond_broadcast(&q->moved);
        pthread_mutex_unlock(&q->lock);
    }
}

toy_command *toy_begin(mn_queue *q) {
    pthread_mutex_lock(&q->lock);
    while (q->pushed - q->done == TOY_COMMANDS)
        pthread_cond_wait(&q->moved, &q->lock);
    pthread_mutex_unlock(&q->lock);
    return &q->commands[q->pushed % TOY_COMMANDS];
}

void toy_push(mn_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->pushed++;
    pthread_cond_broadcast(&q->moved);
    pthread_mutex_unlock(&q->lock);
}

mn_status toy_queue_open(mn_queue *q, mn_error *err) {
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->moved, NULL);
    q->commands = mng_new(q->base.dev, TOY_COMMANDS * sizeof *q->commands);
    if (!q->commands)
        return mnp_fail_memory(err, TOY_COMMANDS * sizeof *q->commands, "a stream");
    q->runs = pthread_create(&q->thread, NULL, run_stream, q) == 0;
    return q->runs ? MN_OK : mnp_fail(err, MN_OUT_OF_MEMORY, ~0u, "no thread for a stream");
}

mn_status toy_queue_finish(mn_queue *q, mn_error *err) {
    const mn_status st = toy_check_entered(q->base.dev, err);
    if (st)
        return st;
    pthread_mutex_lock(&q->lock);
    while (q->runs && q->done != q->pushed)
        pthread_cond_wait(&q->moved, &q->lock);
    pthread_mutex_unlock(&q->lock);
    return MN_OK;
}

void toy_queue_close(mn_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->ends = true;
    pthread_cond_broadcast(&q->moved);
    pthread_mutex_unlock(&q->lock);
    if (q->runs)
        pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->moved);
    pthread_mutex_destroy(&q->lock);
    mng_delete(q->base.dev, q->commands);
}
