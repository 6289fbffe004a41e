/* admit.c -- which jobs have slots. Those that wait are in order of priority and arrival; the first
 * gets the next free slot when there is room for its pages, and nobody passes it. A job that ends
 * leaves its slot at once: steps in flight that still have rows of it say nothing to anybody
 * (mn_sequence.epoch). */
#include "session/steps/steps.h"
#include <string.h>

/* The job's sequence in its slot, as far as its tokens are known to the prefix cache. */
static void seat_job(mn_steps *s, mn_job *job, uint32_t slot) {
    mn_sequence *q = &s->seqs[slot];
    q->job = job;
    q->tokens = job->tokens;
    q->n_tokens = job->n_tokens;
    q->text = job->text;
    q->n_text = job->n_text;
    q->n_literal = job->n_tokens;
    q->n_drawn = job->n_drawn;
    q->n_draw_enqueued = job->n_drawn;
    q->n_restore = job->n_run;
    q->limit = job->limit;
    q->params = job->params;
    q->flags = job->sample_flags;
    q->bias = job->bias;
    q->n_bias = job->n_bias;
    q->breakers = job->breakers;
    q->adapter = job->adapter;
    q->samplers = mn_samplers_need(&job->params);
    q->mu = job->mu;
    q->guide = job->guide;
    q->spec.host_paced = false;
    q->scores = job->n_bias || job->prompt_logprobs || job->flags & MN_SUBMIT_LOGPROBS;
    q->epoch++;
    mn_kv_begin(&s->kv, slot, !(job->flags & MN_SUBMIT_NO_CACHE), job->cache_salt,
                job->adapter ? job->adapter->digest : 0);
    mn_kv_set_text(&s->kv, slot, job->n_text);
    if (mn_job_may_share(job))
        q->n_enqueued = mn_prefix_take(&s->kv, slot, mn_seq_text(q));
}

/* Whether its pages will be there: those of its tokens, and one for each sequence that runs. Where
 * nobody runs, or those that do give way to it, they will. */
static bool has_room(const mn_steps *s, const mn_job *job, uint32_t slot) {
    const mn_sequence *last = NULL;
    uint32_t n_running = 0;
    for (uint32_t i = 0; i < s->n_turns; i++) {
        const mn_sequence *q = &s->seqs[s->turns[i]];
        if (s->turns[i] == slot || !q->running || !q->job)
            continue;
        n_running++;
        if (!last || last->job->priority < q->job->priority)
            last = q;
    }
    if (!last || last->job->priority > job->priority)
        return true;
    return mn_pages_will_come_with(&s->kv, slot, job->n_tokens + 1, n_running);
}

/* Its sequence runs from its tokens; those whose pages it shares are in the history as well. */
static mn_status start_job(mn_steps *s, mn_job *job, uint32_t slot, mn_error *err) {
    mn_sequence *q = &s->seqs[slot];
    q->running = true;
    job->slot = (int32_t)slot;
    s->requests.n_running++;
    if (!job->started_ns)
        job->started_ns = mn_now_ns();
    if (!job->n_preempted)
        job->n_cached = q->n_enqueued;
    s->kv.prefix.n_queries += q->n_tokens;
    s->kv.prefix.n_hits += q->n_enqueued;
    mn_status st = mn_slot_wake(s, slot, err);
    if (st)
        return st;
    st = mn_engine_write_history(s->engine, slot, q->tokens, q->n_enqueued, err);
    if (!st && mn_job_may_share(job))
        mn_step_restore(s, slot);
    return st;
}

/* A slot for the job, at worst that of the last one of lower priority; false: none. */
static bool find_slot(mn_steps *s, const mn_job *job, uint32_t *slot) {
    const mn_job *last = NULL;
    if (mn_slot_claim(s, slot))
        return true;
    for (uint32_t i = 0; i < s->n_seq; i++) {
        const mn_job *other = s->seqs[i].job;
        if (other && other->priority > job->priority && (!last || mn_job_precedes(last, other)))
            last = other;
    }
    if (!last)
        return false;
    mn_preempt(s, (uint32_t)last->slot, NULL);
    return mn_slot_claim(s, slot);
}

/* The positions that it may come to have. Another device may have taken over, with less memory. */
static uint32_t positions_of(const mn_job *job) {
    const uint32_t n = MN_MAX(job->n_tokens, job->n_prompt + job->limit - !!job->limit);
    return MN_MAX(n, job->n_text);
}

/* The first that waits gets a slot; false: there is none, or no room for its pages. */
static mn_status admit_first(mn_steps *s, bool *admitted, mn_error *err) {
    mn_requests *v = &s->requests;
    mn_job *job = v->waiting;
    uint32_t slot;
    *admitted = false;
    if (positions_of(job) > atomic_load(&s->limits.max_positions)) {
        mn_error why = MN_ERROR_INIT;
        mn_fail(&why, MN_OUT_OF_MEMORY, "the KV cache of this device is too small");
        mn_slot_end_job(s, job, MN_FINISH_FAILED, &why);
        *admitted = true;
        return MN_OK;
    }
    if (!find_slot(s, job, &slot)) {
        if (v->n_running)
            return MN_OK;
        return mn_fail(err, MN_OUT_OF_MEMORY,
                       "all %u sequences of the session are those of mn_seq_create: none is left "
                       "for requests",
                       s->n_seq);
    }
    seat_job(s, job, slot);
    if (!has_room(s, job, slot)) {
        mn_slot_release(s, slot);
        return MN_OK;
    }
    v->waiting = job->next;
    v->n_waiting--;
    *admitted = true;
    mn_status st = start_job(s, job, slot, err);
    if (!st || MN_STATUS_CLASS(st) == MN_CLASS_LOST)
        return st; /* all that run are woken again on another device */
    if (MN_STATUS_CLASS(st) != MN_CLASS_REFUSE) {
        mn_preempt(s, slot, NULL); /* it waits again */
        return st;
    }
    mn_slot_end_job(s, job, MN_FINISH_FAILED, err); /* the device cannot do what it asks for */
    return MN_OK;
}

mn_status mn_jobs_admit(mn_steps *s, mn_error *err) {
    mn_status st = MN_OK;
    bool more = true;
    while (s->requests.waiting && more && !st)
        st = admit_first(s, &more, err);
    return st;
}

void mn_slot_end_job(mn_steps *s, mn_job *job, int32_t finish, const mn_error *why) {
    if (job->slot >= 0)
        mn_slot_release(s, (uint32_t)job->slot);
    mn_job_end(&s->requests, job, finish, why);
}
