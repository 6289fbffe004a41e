/* serve.c -- mn_session_next: the loop of the one thread that steps for requests. It takes what
 * came in, gives slots to those that wait, runs a step, and returns when something can be told. */
#include "session/session.h"
#include <string.h>
#include <time.h>

/* MN_INVALID: a sequence of mn_seq_create runs, and nobody would read its tokens. */
static mn_status check_sequences(const mn_session *s, mn_error *err) {
    for (uint32_t i = 0; i < s->n_seq; i++)
        if (s->seqs[i].running && !s->seqs[i].job)
            return mn_fail(err, MN_INVALID,
                           "mn_session_next: sequence %u of mn_seq_create runs; mn_session_step "
                           "continues it",
                           i);
    return MN_OK;
}

/* Sleeps until something changes, the deadline is over, or a signal handler may have cancelled. */
static void sleep_until(mn_session *s, uint64_t deadline_ns) {
    enum { SLICE_NS = 50000000 };
    mn_serving *v = &s->serve;
    const uint64_t until_ns = MN_MIN(deadline_ns, mn_now_ns() + SLICE_NS);
    const struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000),
                                .tv_nsec = (long)(until_ns % 1000000000)};
    int failed = 0;
    pthread_mutex_lock(&v->lock);
    while (!v->inbox && !v->woken && !v->any_aborted && !failed)
        failed = pthread_cond_timedwait(&v->changed, &v->lock, &at);
    pthread_mutex_unlock(&v->lock);
}

/* Takes what came in since the last call. *woken: by mn_session_wake. */
static bool take_inbox(mn_session *s, bool *woken) {
    mn_serving *v = &s->serve;
    pthread_mutex_lock(&v->lock);
    mn_job *jobs = v->inbox;
    const bool aborted = v->any_aborted;
    v->inbox = NULL;
    v->inbox_end = &v->inbox;
    v->any_aborted = false;
    *woken = *woken || v->woken;
    v->woken = false;
    v->beat_ns = mn_now_ns();
    pthread_mutex_unlock(&v->lock);
    while (jobs) {
        mn_job *next = jobs->next;
        mn_job_enqueue(s, jobs);
        jobs = next;
    }
    return aborted;
}

/* Ends the jobs that were aborted, wherever they are. There is room for their events. */
static void drop_aborted(mn_session *s) {
    mn_job *next;
    for (mn_job *job = s->serve.waiting; job; job = next) {
        next = job->next;
        if (atomic_load(&job->aborted))
            mn_job_end(s, job, MN_FINISH_ABORTED, NULL);
    }
    for (uint32_t i = 0; i < s->n_seq; i++) {
        mn_job *job = s->seqs[i].used ? s->seqs[i].job : NULL;
        if (job && atomic_load(&job->aborted))
            mn_job_end(s, job, MN_FINISH_ABORTED, NULL);
    }
}

/* Requests that an earlier life has completed. */
static void drop_complete(mn_session *s) {
    mn_job *next;
    for (mn_job *job = s->serve.waiting; job; job = next) {
        next = job->next;
        if (job->n_drawn >= job->limit && !(job->sample_flags & MN_SAMPLE_PREFILL_ONLY))
            mn_job_end(s, job, MN_FINISH_LENGTH, NULL);
    }
}

static mn_status take(mn_session *s, bool *woken, mn_error *err) {
    const bool aborted = take_inbox(s, woken);
    const mn_serving *v = &s->serve;
    mn_status st =
        mn_serving_reserve(s, v->n_waiting + v->n_running + 5ull * s->n_seq + s->n_outputs, err);
    if (st)
        return st;
    drop_complete(s);
    if (aborted)
        drop_aborted(s);
    return MN_OK;
}

/* One step, if anything is to be done. */
static mn_status work(mn_session *s, mn_error *err) {
    bool idle = false;
    uint32_t n = 0;
    mn_status st = mn_failover_ready(s, err);
    if (!st)
        st = mn_jobs_admit(s, err);
    if (!st)
        st = mn_session_advance(s, NULL, &n, &idle, err);
    return mn_failover(s, st, err);
}

/* For mn_session_get_load. */
static void publish(mn_session *s) {
    mn_serving *v = &s->serve;
    mn_session_load load = {
        .n_running = v->n_running,
        .n_waiting = v->n_waiting,
        .n_prompt = s->stats.n_prompt,
        .n_drawn = s->stats.n_drawn,
        .n_steps = s->stats.n_steps,
        .n_drafted = s->stats.n_drafted,
        .n_accepted = s->stats.n_accepted,
        .n_verifying = s->stats.n_verifying,
        .n_forced = s->stats.n_forced,
        .forms_ns = s->guides.forms.all_ns,
        .forms_most_ns = s->guides.forms.most_ns,
    };
    load.n_preempted = s->pace.n_preempted;
    load.usual_step_ns = (uint64_t)s->pace.draw_ns;
    mn_kv_count(&s->kv, &load);
    memcpy(load.n_finished, v->n_finished, sizeof load.n_finished);
    for (uint32_t i = 0; i < s->n_seq; i++) {
        const mn_sequence *q = &s->seqs[i];
        if (!q->used || !q->running || q->n_enqueued >= q->n_literal)
            continue;
        load.n_prefilling++;
        load.queued_tokens += q->n_literal - q->n_enqueued;
    }
    for (const mn_job *job = v->waiting; job; job = job->next)
        load.queued_tokens += job->n_tokens;
    pthread_mutex_lock(&v->lock);
    v->load = load;
    v->beat_ns = mn_now_ns();
    pthread_mutex_unlock(&v->lock);
}

/* Until there is an event, or the deadline is over. */
static mn_status run(mn_session *s, uint64_t deadline_ns, mn_error *err) {
    mn_serving *v = &s->serve;
    bool woken = false;
    mn_status st = MN_OK;
    while (!st) {
        st = take(s, &woken, err);
        if (st || v->n_events || woken)
            return st;
        if (atomic_exchange(&s->cancelled, 0))
            return mn_fail(err, MN_CANCELLED, "cancelled");
        if (mn_serving_is_idle(s)) {
            publish(s);
            if (mn_now_ns() < deadline_ns)
                sleep_until(s, deadline_ns);
        } else {
            st = work(s, err);
            mn_events_progress(s);
            publish(s);
        }
        if (mn_now_ns() >= deadline_ns)
            return st;
    }
    return st;
}

mn_status mn_session_next(mn_session *s, uint32_t timeout_ms, mn_request_events *out,
                          mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {"out", out}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = mn_session_draws(s, __func__, err);
    if (st)
        return st;
    mn_request_events given = {.size = sizeof given};
    st = mn_args_take(MN_SIZED_REQUEST_EVENTS, &given, out, err);
    if (!st)
        st = check_sequences(s, err);
    if (st)
        return st;
    mn_serving_clear(s);
    st = run(s, mn_now_ns() + timeout_ms * UINT64_C(1000000), err);
    if (st && st != MN_CANCELLED)
        st = mn_session_settle(s, st, err);
    publish(s);
    given = (mn_request_events){.size = sizeof given,
                                .stride = sizeof *given.events,
                                .n = (uint32_t)s->serve.n_events,
                                .events = s->serve.events};
    mn_args_give(MN_SIZED_REQUEST_EVENTS, out, &given);
    return st;
}
