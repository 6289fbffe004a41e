/* serve.c -- mn_session_next: the loop of the one thread that steps for requests. It takes what
 * came in, gives slots to those that wait, runs a step, and returns when something can be told. */
#include "session/session.h"
#include <string.h>

/* MN_INVALID: a sequence of mn_seq_create runs, and nobody would read its tokens. */
static mn_status check_sequences(const mn_session *s, mn_error *err) {
    for (uint32_t i = 0; i < s->steps.n_seq; i++)
        if (s->steps.seqs[i].running && !s->steps.seqs[i].job)
            return mn_fail(err, MN_INVALID,
                           "mn_session_next: sequence %u of mn_seq_create runs; mn_session_step "
                           "continues it",
                           i);
    return MN_OK;
}

/* Ends the jobs that were aborted, wherever they are. There is room for their events. */
static void drop_aborted(mn_session *s) {
    mn_job *next;
    for (mn_job *job = s->steps.requests.waiting; job; job = next) {
        next = job->next;
        if (atomic_load(&job->aborted))
            mn_slot_end_job(&s->steps, job, MN_FINISH_ABORTED, NULL);
    }
    for (uint32_t i = 0; i < s->steps.n_seq; i++) {
        mn_job *job = s->steps.seqs[i].used ? s->steps.seqs[i].job : NULL;
        if (job && atomic_load(&job->aborted))
            mn_slot_end_job(&s->steps, job, MN_FINISH_ABORTED, NULL);
    }
}

/* Requests that an earlier life has completed. */
static void drop_complete(mn_session *s) {
    mn_job *next;
    for (mn_job *job = s->steps.requests.waiting; job; job = next) {
        next = job->next;
        if (job->n_drawn >= job->limit && !(job->sample_flags & MN_SAMPLE_PREFILL_ONLY))
            mn_slot_end_job(&s->steps, job, MN_FINISH_LENGTH, NULL);
    }
}

static mn_status take_requests(mn_session *s, bool *woken, mn_error *err) {
    mn_requests *r = &s->steps.requests;
    const bool aborted = mn_requests_receive(r, woken);
    mn_status st = mn_requests_reserve(
        r, r->n_waiting + r->n_running + 5ull * s->steps.n_seq + s->steps.n_outputs, err);
    if (st)
        return st;
    drop_complete(s);
    if (aborted)
        drop_aborted(s);
    return MN_OK;
}

/* One step, if anything is to be done. */
static mn_status work_once(mn_session *s, mn_error *err) {
    bool idle = false;
    uint32_t n = 0;
    mn_status st = mn_failover_ready(s, err);
    if (!st)
        st = mn_jobs_admit(&s->steps, err);
    if (!st)
        st = mn_steps_advance(&s->steps, NULL, &n, &idle, err);
    return mn_failover(s, st, err);
}

/* For mn_session_get_load. */
static void publish(mn_session *s) {
    mn_requests *v = &s->steps.requests;
    mn_session_load load = {
        .n_running = v->n_running,
        .n_waiting = v->n_waiting,
        .n_prompt = s->steps.stats.n_prompt,
        .n_drawn = s->steps.stats.n_drawn,
        .n_steps = s->steps.stats.n_steps,
        .n_drafted = s->steps.stats.n_drafted,
        .n_accepted = s->steps.stats.n_accepted,
        .n_verifying = s->steps.stats.n_verifying,
        .n_forced = s->steps.stats.n_forced,
        .forms_ns = s->steps.guides.forms.all_ns,
        .forms_most_ns = s->steps.guides.forms.most_ns,
    };
    load.n_preempted = s->steps.pace.n_preempted;
    load.usual_step_ns = (uint64_t)s->steps.pace.draw_ns;
    mn_kv_count(&s->steps.kv, &load);
    memcpy(load.n_finished, v->n_finished, sizeof load.n_finished);
    for (uint32_t i = 0; i < s->steps.n_seq; i++) {
        const mn_sequence *q = &s->steps.seqs[i];
        if (!q->used || !q->running || q->n_enqueued >= q->n_literal)
            continue;
        load.n_prefilling++;
        load.queued_tokens += q->n_literal - q->n_enqueued;
    }
    for (const mn_job *job = v->waiting; job; job = job->next)
        load.queued_tokens += job->n_tokens;
    mn_requests_publish(&s->steps.requests, &load);
}

/* How far the prompts are that are being computed, of the jobs that ask for it. There is room. */
static void tell_progress(mn_session *s) {
    for (uint32_t i = 0; i < s->steps.n_seq; i++) {
        const mn_sequence *q = &s->steps.seqs[i];
        if (q->used && q->running && q->job)
            mn_event_progress(&s->steps.requests, q->job, q->n_enqueued);
    }
}

/* Nothing is computed: what is still to be kept is. When to go on with it; UINT64_MAX: nothing is.
 * */
static uint64_t save_idle(mn_session *s) {
    enum { PAUSE_NS = 2000000 };
    mn_kv *kv = &s->steps.kv;
    if (!kv->files.disk || s->steps.clock.completed < s->steps.clock.enqueued)
        return UINT64_MAX;
    mn_files_save(kv, 1);
    return mn_files_saving(kv) ? mn_now_ns() + PAUSE_NS : UINT64_MAX;
}

/* Until there is an event, or the deadline is over. */
static mn_status run_until(mn_session *s, uint64_t deadline_ns, mn_error *err) {
    mn_requests *v = &s->steps.requests;
    bool woken = false;
    mn_status st = MN_OK;
    while (!st) {
        st = take_requests(s, &woken, err);
        if (st || v->n_events || woken)
            return st;
        if (atomic_exchange(&s->steps.cancelled, 0))
            return mn_fail(err, MN_CANCELLED, "cancelled");
        if (mn_requests_idle(&s->steps.requests)) {
            publish(s);
            if (mn_now_ns() < deadline_ns)
                mn_requests_sleep(&s->steps.requests, MN_MIN(deadline_ns, save_idle(s)));
        } else {
            st = work_once(s, err);
            tell_progress(s);
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
    mn_requests_clear(&s->steps.requests);
    st = run_until(s, mn_now_ns() + timeout_ms * UINT64_C(1000000), err);
    if (st && st != MN_CANCELLED)
        st = mn_steps_settle(&s->steps, st, err);
    publish(s);
    given = (mn_request_events){.size = sizeof given,
                                .stride = sizeof *given.events,
                                .n = (uint32_t)s->steps.requests.n_events,
                                .events = s->steps.requests.events};
    mn_args_give(MN_SIZED_REQUEST_EVENTS, out, &given);
    return st;
}
