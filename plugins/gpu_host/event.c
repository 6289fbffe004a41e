/* event.c -- events: places in a queue that can be waited for. Freed ones wait in the device's list
 * of spares, under its lock, so that a step makes none; any thread may free one. */
#include "gpu_table.h"
#include <sched.h>
#include <time.h>

/* A spare one, or a new one; NULL: out of memory. */
static mn_event *take_event(mn_device *dev) {
    mng_device *d = mng_device_of(dev);
    pthread_mutex_lock(&d->lock);
    mn_event *e = d->spare;
    if (e)
        d->spare = e->next;
    pthread_mutex_unlock(&d->lock);
    if (!e)
        e = mng_new(dev, sizeof *e);
    if (e)
        e->dev = dev;
    return e;
}

mn_status mng_events_reserve(mn_device *dev, uint32_t n, mn_error *err) {
    mng_device *d = mng_device_of(dev);
    mn_status st = MN_OK;
    pthread_mutex_lock(&d->lock);
    for (const mn_event *e = d->spare; e && n; e = e->next)
        n--;
    pthread_mutex_unlock(&d->lock);
    for (; n && !st; n--) {
        mn_event *e = mng_new(dev, sizeof *e);
        if (!e)
            return mnp_fail_memory(err, sizeof *e, "an event");
        e->dev = dev;
        if (d->backend->event_make)
            st = d->backend->event_make(dev, &e->native, err);
        mng_event_free(e);
    }
    return st;
}

mn_status mng_event_new(mn_queue *q, mn_event **out, mn_error *err) {
    mn_device *dev = mng_queue_of(q)->dev;
    mn_event *e = take_event(dev);
    if (!e)
        return mnp_fail_memory(err, sizeof *e, "an event");
    const mn_status st = mng_backend_of(dev)->event_record(q, &e->native, err);
    if (st)
        mng_event_free(e);
    else
        *out = e;
    return st;
}

void mng_event_free(mn_event *e) {
    if (!e)
        return;
    mng_device *d = mng_device_of(e->dev);
    if (e->native && d->backend->events_once) {
        mng_enter(e->dev, NULL);
        d->backend->event_free(e->dev, e->native);
        e->native = NULL;
    }
    pthread_mutex_lock(&d->lock);
    e->next = d->spare;
    d->spare = e;
    pthread_mutex_unlock(&d->lock);
}

void mng_events_drop(mn_device *dev) {
    mng_device *d = mng_device_of(dev);
    for (mn_event *e = d->spare; e;) {
        mn_event *next = e->next;
        if (e->native)
            d->backend->event_free(dev, e->native);
        mng_delete(dev, e);
        e = next;
    }
    d->spare = NULL;
}

void mng_pause(const mng_device *d, uint64_t past_ns, uint32_t i) {
    const uint64_t patience = d->patience_ns ? d->patience_ns : 2000000;
    if (past_ns > patience) {
        const struct timespec t = {0, 20000};
        nanosleep(&t, NULL);
    } else if (i % 16 == 15) {
        sched_yield();
    }
}

mn_status mng_wait(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    if (!e)
        return MN_OK;
    const mng_device *d = mng_device_of(e->dev);
    const mn_host *h = d->host;
    const uint64_t from = h->now_ns(h->self);
    mn_status st = mng_enter(e->dev, err);
    for (uint32_t i = 0; !st; i++) {
        bool passed = false;
        st = d->backend->event_poll(e->dev, e->native, &passed, err);
        if (st || passed)
            return st;
        const uint64_t past = h->now_ns(h->self) - from;
        if (past >= timeout_ns)
            return MN_TIMEOUT;
        mng_pause(d, past, i);
    }
    return st;
}

mn_status mng_queue_wait(mn_queue *q, mn_event *e, mn_error *err) {
    if (!e)
        return MN_OK;
    const mn_status st = mng_enter(mng_queue_of(q)->dev, err);
    return st ? st : mng_backend_of(e->dev)->event_join(q, e->native, err);
}

/* One that has passed, or whose device is lost, is told here and now. */
mn_status mng_event_on_ready(mn_event *e, void (*fn)(void *arg, mn_status), void *arg,
                             mn_error *err) {
    if (!e) {
        fn(arg, MN_OK);
        return MN_OK;
    }
    const mng_backend *b = mng_backend_of(e->dev);
    bool passed = false;
    if (!b->event_tell)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%s calls nobody back", b->id);
    mn_status st = mng_enter(e->dev, err);
    if (!st)
        st = b->event_poll(e->dev, e->native, &passed, NULL);
    if (!st && !passed)
        return b->event_tell(e->dev, e->native, fn, arg, err);
    fn(arg, st);
    return MN_OK;
}
