/* queue.c -- requests on their way through a session: the inbox, which any thread fills, the
 * waiting list, and the jobs that have ended. Everything that threads share is under one lock,
 * which is never held while a device works. */
#include "session/requests/requests.h"
#include <time.h>

mn_status mn_requests_init(mn_requests *r, uint32_t n_outputs, mn_error *err) {
    pthread_condattr_t attr;
    r->n_outputs = n_outputs;
    r->inbox_end = &r->inbox;
    r->beat_ns = 0;
    if (pthread_mutex_init(&r->lock, NULL))
        return mn_fail_memory(err, sizeof r->lock);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    const int failed = pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    return failed ? mn_fail_memory(err, sizeof r->changed) : MN_OK;
}

void mn_requests_free(mn_requests *r) {
    if (!r->inbox_end)
        return; /* it was never made */
    while (r->live)
        mn_requests_forget(r, r->live);
    mn_free(r->events);
    mn_arena_free(&r->data);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
}

bool mn_requests_idle(const mn_requests *r) {
    return !r->n_running && !r->waiting;
}

mn_status mn_requests_none(const mn_requests *r, const char *function, mn_error *err) {
    if (mn_requests_idle(r))
        return MN_OK;
    return mn_fail(err, MN_INVALID, "%s: the session runs requests of mn_session_submit", function);
}

/* ---- any thread ------------------------------------------------------------------------------ */
uint64_t mn_requests_deliver(mn_requests *r, mn_job *jobs) {
    pthread_mutex_lock(&r->lock);
    const uint64_t request = ++r->n_requests;
    *r->inbox_end = jobs;
    for (mn_job *job = jobs; job; job = job->next) {
        job->request = request;
        job->order = request;
        job->live_next = r->live;
        if (r->live)
            r->live->live_prev = job;
        r->live = job;
        r->inbox_end = &job->next;
    }
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return request;
}

void mn_requests_abort(mn_requests *r, uint64_t id) {
    pthread_mutex_lock(&r->lock);
    for (mn_job *job = r->live; job; job = job->live_next) {
        if (job->request != id)
            continue;
        atomic_store(&job->aborted, true);
        r->any_aborted = true;
    }
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void mn_requests_wake(mn_requests *r) {
    pthread_mutex_lock(&r->lock);
    r->woken = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

mn_session_load mn_requests_load(mn_requests *r) {
    pthread_mutex_lock(&r->lock);
    mn_session_load load = r->load;
    load.size = sizeof load;
    for (const mn_job *job = r->inbox; job; job = job->next) {
        load.n_waiting++;
        load.queued_tokens += job->n_tokens;
    }
    load.beat_ms = r->beat_ns ? (mn_now_ns() - r->beat_ns) / 1000000 : UINT64_MAX;
    pthread_mutex_unlock(&r->lock);
    return load;
}

/* ---- the thread that steps ------------------------------------------------------------------- */
void mn_requests_publish(mn_requests *r, const mn_session_load *load) {
    pthread_mutex_lock(&r->lock);
    r->load = *load;
    r->beat_ns = mn_now_ns();
    pthread_mutex_unlock(&r->lock);
}

bool mn_requests_receive(mn_requests *r, bool *woken) {
    pthread_mutex_lock(&r->lock);
    mn_job *jobs = r->inbox;
    const bool aborted = r->any_aborted;
    r->inbox = NULL;
    r->inbox_end = &r->inbox;
    r->any_aborted = false;
    *woken = *woken || r->woken;
    r->woken = false;
    r->beat_ns = mn_now_ns();
    pthread_mutex_unlock(&r->lock);
    while (jobs) {
        mn_job *next = jobs->next;
        mn_job_enqueue(r, jobs);
        jobs = next;
    }
    return aborted;
}

void mn_requests_sleep(mn_requests *r, uint64_t deadline_ns) {
    enum { SLICE_NS = 50000000 };
    const uint64_t until_ns = MN_MIN(deadline_ns, mn_now_ns() + SLICE_NS);
    const struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000),
                                .tv_nsec = (long)(until_ns % 1000000000)};
    int failed = 0;
    pthread_mutex_lock(&r->lock);
    while (!r->inbox && !r->woken && !r->any_aborted && !failed)
        failed = pthread_cond_timedwait(&r->changed, &r->lock, &at);
    pthread_mutex_unlock(&r->lock);
}

bool mn_job_precedes(const mn_job *a, const mn_job *b) {
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (a->order != b->order)
        return a->order < b->order;
    return a->choice < b->choice;
}

void mn_job_enqueue(mn_requests *r, mn_job *job) {
    mn_job **at = &r->waiting;
    while (*at && !mn_job_precedes(job, *at))
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    r->n_waiting++;
}

void mn_requests_forget(mn_requests *r, mn_job *job) {
    pthread_mutex_lock(&r->lock);
    if (job->live_prev)
        job->live_prev->live_next = job->live_next;
    else
        r->live = job->live_next;
    if (job->live_next)
        job->live_next->live_prev = job->live_prev;
    pthread_mutex_unlock(&r->lock);
    mn_job_free(job);
}

/* Out of the waiting list, if it is there. */
static void unlink_waiting(mn_requests *r, const mn_job *job) {
    mn_job **at = &r->waiting;
    while (*at && *at != job)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = job->next;
    r->n_waiting--;
}

void mn_job_end(mn_requests *r, mn_job *job, int32_t finish, const mn_error *why) {
    mn_event_finish(r, job, finish, why);
    if (job->slot >= 0)
        r->n_running--;
    else
        unlink_waiting(r, job);
    job->slot = -1;
    mn_adapter_release(job->adapters, job->adapter);
    job->adapter = NULL;
    job->next = r->ended;
    r->ended = job;
}
