/* admit.c -- which jobs have slots. Those that wait are in order of priority and arrival; the first
 * gets the next free slot, and nobody passes it. A job that ends leaves its slot at once: steps in
 * flight that still have rows of it say nothing to anybody (mn_sequence.epoch). */
#include "session/session.h"
#include <string.h>

/* Whether a comes before b. */
static bool precedes(const mn_job *a, const mn_job *b) {
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (a->order != b->order)
        return a->order < b->order;
    return a->choice < b->choice;
}

void mn_job_enqueue(mn_session *s, mn_job *job) {
    mn_job **at = &s->serve.waiting;
    while (*at && !precedes(job, *at))
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    s->serve.n_waiting++;
}

/* The job's sequence in its slot, which runs from its tokens. */
static mn_status start(mn_session *s, mn_job *job, uint32_t slot, mn_error *err) {
    mn_sequence *q = &s->seqs[slot];
    q->job = job;
    q->tokens = job->tokens;
    q->n_tokens = job->n_tokens;
    q->n_literal = job->n_tokens;
    q->n_drawn = job->n_drawn;
    q->n_draw_enqueued = job->n_drawn;
    q->limit = job->limit;
    q->params = job->params;
    q->flags = job->sample_flags;
    q->epoch++;
    q->running = true;
    job->slot = (int32_t)slot;
    s->serve.n_running++;
    if (!job->started_ns)
        job->started_ns = mn_now_ns();
    return mn_seq_wake(s, slot, err);
}

mn_status mn_jobs_admit(mn_session *s, mn_error *err) {
    mn_serving *v = &s->serve;
    mn_status st = MN_OK;
    while (v->waiting && !st) {
        mn_job *job = v->waiting;
        uint32_t slot;
        if (!mn_seq_claim(s, &slot))
            return MN_OK;
        v->waiting = job->next;
        v->n_waiting--;
        st = start(s, job, slot, err);
    }
    return st;
}

/* Out of the waiting list, if it is there. */
static void unlink_waiting(mn_session *s, const mn_job *job) {
    mn_job **at = &s->serve.waiting;
    while (*at && *at != job)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = job->next;
    s->serve.n_waiting--;
}

void mn_job_end(mn_session *s, mn_job *job, int32_t finish, const char *message) {
    mn_serving *v = &s->serve;
    mn_event_finish(s, job, finish, message);
    if (job->slot >= 0) {
        mn_seq_release(s, (uint32_t)job->slot);
        v->n_running--;
    } else {
        unlink_waiting(s, job);
    }
    job->slot = -1;
    job->next = v->ended;
    v->ended = job;
}
