/* words.c -- the words of a step (mn_step.waits and signals). What a queue does behind a closed
 * gate waits until a thread of the device, the watch, opens the gate: when the words that a step
 * waits for have reached their values, or its queue is aborted. So a wait that no other device ends
 * has an end. Signals are written by the device, behind the step; where the backend has no command
 * for that, and where the device is lost, the watch writes them.
 *
 * A batch is what the watch knows of a step: some words to be waited for, or some to be written,
 * with an event behind the step. Batches are used again, so that a step allocates none. The watch
 * begins with the first batch and ends when the device is closed.
 *
 * Lock: watch->lock, of everything in the watch; the thread holds it while it looks, not while it
 * sleeps. */
#include "gpu_table.h"
#include "words.h"
#include <sched.h>
#include <time.h>

enum { BATCH_WORDS = 8 };

typedef struct {
    const mn_buffer *buffer;
    uint32_t *at;
    uint32_t value;
} word;
typedef struct batch batch;
struct batch {
    batch *next;
    mn_queue *queue;
    uint64_t step; /* the number of the step that it is of */
    word words[BATCH_WORDS];
    uint32_t n;
    mn_event *event; /* of signals: behind the step; NULL: a wait */
    void *gate;      /* opened when the batch is over; NULL: the device goes on by itself */
};

struct mng_watch {
    mn_device *dev;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a first batch, or the end */
    batch *first;           /* under way */
    batch *spare;
    uint64_t n_steps;
    bool runs;
    bool ends;
};

/* ---- what the thread does -------------------------------------------------------------------- */
static bool are_reached(const batch *b) {
    for (uint32_t i = 0; i < b->n; i++) {
        const word *w = &b->words[i];
        if ((int32_t)(__atomic_load_n(w->at, __ATOMIC_ACQUIRE) - w->value) < 0)
            return false;
    }
    return true;
}

static void write_all(const batch *b) {
    for (uint32_t i = 0; i < b->n; i++)
        __atomic_store_n(b->words[i].at, b->words[i].value, __ATOMIC_RELEASE);
}

/* Whether the batch is over; its signals are written then. */
static bool is_over(const mng_watch *watch, const batch *b) {
    const mng_backend *backend = mng_backend_of(watch->dev);
    bool passed = false;
    if (!b->event) /* an aborted queue's words may be gone: they are not read */
        return __atomic_load_n(&mng_queue_of(b->queue)->aborted, __ATOMIC_ACQUIRE) ||
               are_reached(b);
    const mn_status st = backend->event_poll(watch->dev, b->event->native, &passed, NULL);
    if (st || (passed && !backend->word_write))
        write_all(b);
    return st || passed;
}

/* The batch is a spare one. */
static void end_batch(mng_watch *watch, batch *b) {
    if (b->gate)
        mng_backend_of(watch->dev)->gate_open(watch->dev, b->gate);
    mng_event_free(b->event);
    b->next = watch->spare;
    watch->spare = b;
}

/* All that are under way; whether some are over. */
static bool look(mng_watch *watch) {
    bool any = false;
    for (batch **at = &watch->first; *at;) {
        batch *b = *at;
        if (!is_over(watch, b)) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        end_batch(watch, b);
        any = true;
    }
    return any;
}

static void *run_watch(void *arg) {
    mng_watch *watch = arg;
    const mng_device *d = mng_device_of(watch->dev);
    const mn_host *h = d->host;
    uint64_t since = h->now_ns(h->self);
    mng_enter(watch->dev, NULL);
    pthread_mutex_lock(&watch->lock);
    for (uint32_t i = 0; !watch->ends; i++) {
        if (!watch->first) {
            pthread_cond_wait(&watch->changed, &watch->lock);
            since = h->now_ns(h->self);
            continue;
        }
        if (look(watch))
            since = h->now_ns(h->self);
        pthread_mutex_unlock(&watch->lock);
        mng_pause(d, h->now_ns(h->self) - since, i);
        pthread_mutex_lock(&watch->lock);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* ---- the watch of a device ------------------------------------------------------------------- */
/* NULL: out of memory, or no thread. */
static mng_watch *watch_new(mn_device *dev) {
    mng_watch *watch = mng_new(dev, sizeof *watch);
    if (!watch)
        return NULL;
    watch->dev = dev;
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->changed, NULL);
    watch->runs = pthread_create(&watch->thread, NULL, run_watch, watch) == 0;
    if (watch->runs)
        return watch;
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    mng_delete(dev, watch);
    return NULL;
}

/* NULL: there is none yet. */
static mng_watch *find_watch(const mn_device *dev) {
    return __atomic_load_n(&mng_device_of(dev)->watch, __ATOMIC_ACQUIRE);
}

static mng_watch *watch_of(mn_device *dev) {
    mng_device *d = mng_device_of(dev);
    mng_watch *watch = find_watch(dev);
    if (watch)
        return watch;
    pthread_mutex_lock(&d->lock);
    watch = d->watch;
    if (!watch) {
        watch = watch_new(dev);
        __atomic_store_n(&d->watch, watch, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&d->lock);
    return watch;
}

void mng_watch_free(mn_device *dev) {
    mng_watch *watch = find_watch(dev);
    if (!watch)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->ends = true;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    batch *const lists[] = {watch->first, watch->spare};
    for (int i = 0; i < 2; i++)
        for (batch *b = lists[i]; b;) {
            batch *next = b->next;
            mng_delete(dev, b);
            b = next;
        }
    mng_delete(dev, watch);
    mng_device_of(dev)->watch = NULL;
}

/* Whether the batch is of the queue, or, queue NULL, has a word in the buffer. */
static bool concerns(const batch *b, const mn_queue *q, const mn_buffer *buffer) {
    if (q)
        return b->queue == q;
    for (uint32_t i = 0; i < b->n; i++)
        if (b->words[i].buffer == buffer)
            return true;
    return false;
}

/* The queue or buffer ends. Steps that the host has waited for are over but for the thread's look;
 * of a queue that was aborted the device may still write words. */
static void watch_forget(mn_device *dev, const mn_queue *q, const mn_buffer *buffer) {
    mng_watch *watch = find_watch(dev);
    if (!watch)
        return;
    const mng_backend *backend = mng_backend_of(dev);
    pthread_mutex_lock(&watch->lock);
    look(watch); /* opens what aborted queues wait at */
    for (batch **at = &watch->first; *at;) {
        batch *b = *at;
        if (!concerns(b, q, buffer)) {
            at = &b->next;
            continue;
        }
        if (b->event && backend->word_write)
            backend->event_wait(dev, b->event->native, NULL);
        *at = b->next;
        end_batch(watch, b);
    }
    pthread_mutex_unlock(&watch->lock);
}

void mng_watch_forget_queue(const mn_queue *q) {
    watch_forget(mng_queue_of(q)->dev, q, NULL);
}
void mng_watch_forget_buffer(const mn_buffer *b) {
    watch_forget(b->dev, NULL, b);
}

/* ---- a step ---------------------------------------------------------------------------------- */
/* [n] words in pinned memory of the device's. */
static mn_status check_words(const mn_device *own, const mn_word *words, uint32_t n,
                             uint32_t stride, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < n && !st; i++) {
        const mn_word *w = mnp_word(words, i, stride);
        if (!w->buffer || !w->buffer->host)
            return mnp_fail(err, MN_INVALID, ~0u, "word %u is not in pinned memory", i);
        st = mng_check_device(own, w->buffer->dev, "a buffer", err);
        if (!st)
            st = mnp_check_word(w, w->buffer->bytes, err);
    }
    return st;
}

/* A batch for each BATCH_WORDS of n words: a list, which watch_add puts under way or drop_batches
 * frees. */
static mn_status take_batches(mng_watch *watch, mn_queue *q, const mn_word *words, uint32_t n,
                              uint32_t stride, batch **out, mn_error *err) {
    *out = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const mn_word *w = mnp_word(words, i, stride);
        if (!*out || (*out)->n == BATCH_WORDS) {
            batch *b = watch->spare;
            if (b)
                watch->spare = b->next;
            else
                b = mng_new(watch->dev, sizeof *b);
            if (!b)
                return mnp_fail_memory(err, sizeof *b, "the words of a step");
            *b = (batch){.next = *out, .queue = q, .step = watch->n_steps};
            *out = b;
        }
        char *at = w->buffer->host + w->offset;
        (*out)->words[(*out)->n++] = (word){w->buffer, (uint32_t *)(void *)at, w->value};
    }
    return MN_OK;
}

/* Of a step that was not enqueued: gates that it closed are opened. */
static void drop_batches(mng_watch *watch, batch *list) {
    while (list) {
        batch *b = list;
        list = b->next;
        end_batch(watch, b);
    }
}

/* Closes a gate in the queue for each batch whose words are not there yet. */
static mn_status close_gates(mn_queue *q, batch *list, mn_error *err) {
    const mng_backend *backend = mng_backend_of(mng_queue_of(q)->dev);
    mn_status st = MN_OK;
    for (batch *b = list; b && !st; b = b->next)
        if (b->event || !are_reached(b))
            st = backend->gate_close(q, &b->gate, err);
    return st;
}

/* Puts the writing of words behind the step, and an event for the watch. */
static mn_status send_signals(mn_queue *q, batch *list, mn_error *err) {
    const mng_backend *backend = mng_backend_of(mng_queue_of(q)->dev);
    mn_status st = MN_OK;
    for (batch *b = list; b && !st; b = b->next) {
        for (uint32_t i = 0; i < b->n && backend->word_write && !st; i++) {
            const word *w = &b->words[i];
            const uint64_t at = (uint64_t)((char *)w->at - w->buffer->host);
            st = backend->word_write(q, (mng_ref){w->buffer->mem[0], at}, w->value, err);
        }
        if (!st)
            st = mng_event_new(q, &b->event, err);
    }
    if (!st && !backend->word_write)
        st = close_gates(q, list, err);
    return st;
}

/* Under way from now on; batches without a gate and an event are over. */
static void watch_add(mng_watch *watch, batch *list) {
    while (list) {
        batch *b = list;
        list = b->next;
        if (!b->gate && !b->event) {
            end_batch(watch, b);
            continue;
        }
        b->next = watch->first;
        watch->first = b;
    }
    pthread_cond_signal(&watch->changed);
}

mn_status mng_words_check(const mn_context *ctx, const mn_step *step, mn_error *err) {
    const mn_device *d = mng_program_of(mng_context_of(ctx)->prog)->dev;
    mn_status st = check_words(d, step->waits, step->n_waits, step->word_stride, err);
    if (!st)
        st = check_words(d, step->signals, step->n_signals, step->word_stride, err);
    return st;
}

/* The step was not enqueued: what it waits at is open. */
static void cancel_step(mng_watch *watch, uint64_t step) {
    for (batch **at = &watch->first; *at;) {
        batch *b = *at;
        if (b->step != step) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        end_batch(watch, b);
    }
}

/* The batches of a step; *number: its own. */
static mn_status take_step(mng_watch *watch, mn_queue *q, const mn_step *step, uint64_t *number,
                           batch **waits, batch **signals, mn_error *err) {
    pthread_mutex_lock(&watch->lock);
    *number = ++watch->n_steps;
    mn_status st =
        take_batches(watch, q, step->waits, step->n_waits, step->word_stride, waits, err);
    if (!st)
        st =
            take_batches(watch, q, step->signals, step->n_signals, step->word_stride, signals, err);
    pthread_mutex_unlock(&watch->lock);
    return st;
}

/* What was made for one side of a step: under way, or, after an error, the end of the step. */
static void settle(mng_watch *watch, uint64_t number, batch *list, mn_status st) {
    pthread_mutex_lock(&watch->lock);
    if (st) {
        drop_batches(watch, list);
        cancel_step(watch, number);
    } else {
        watch_add(watch, list);
    }
    pthread_mutex_unlock(&watch->lock);
}

mn_status mng_words_around(mn_context *ctx, const mn_step *step,
                           mn_status (*run)(mn_context *, bool, mn_error *), mn_error *err) {
    mn_queue *q = mng_context_of(ctx)->queue;
    mng_watch *watch = watch_of(mng_queue_of(q)->dev);
    batch *waits = NULL;
    batch *signals = NULL;
    uint64_t number = 0;
    if (!watch)
        return mnp_fail_memory(err, sizeof *watch, "the words of a device");
    mn_status st = take_step(watch, q, step, &number, &waits, &signals, err);
    if (!st)
        st = close_gates(q, waits, err);
    settle(watch, number, waits, st);
    if (!st)
        st = run(ctx, false, err);
    if (!st)
        st = send_signals(q, signals, err);
    settle(watch, number, signals, st);
    return st;
}
