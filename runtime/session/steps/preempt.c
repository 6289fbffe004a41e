/* preempt.c -- sequences that lose their pages, because there are too few or because what is in
 * them is not known any more. Their tokens are kept, and they are computed again from them, as
 * after the loss of a device: a draw depends on seed and position alone, so that the same ids
 * follow. Results of steps in flight are dropped by the sequence's epoch. */
#include "session/steps/steps.h"

/* A job leaves its slot for whoever is in front of it, and waits in its old place. */
static void queue_again(mn_steps *s, uint32_t seq) {
    const mn_sequence *q = &s->seqs[seq];
    mn_job *job = q->job;
    job->n_run = MN_MAX(job->n_run, MN_MIN(q->n_enqueued, q->n_tokens));
    mn_slot_release(s, seq);
    job->slot = -1;
    job->n_preempted++;
    s->requests.n_running--;
    mn_job_enqueue(&s->requests, job);
}

mn_status mn_preempt(mn_steps *s, uint32_t seq, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    s->pace.n_preempted++;
    if (q->job) {
        queue_again(s, seq);
        return MN_OK;
    }
    mn_pages_drop(&s->kv, seq, mn_seq_text(&s->seqs[seq]));
    mn_slot_set_back(s, seq);
    q->epoch++;
    return q->running ? mn_slot_wake(s, seq, err) : MN_OK;
}

mn_status mn_preempt_idle(mn_steps *s, uint32_t seq, uint32_t n_positions, mn_error *err) {
    mn_status st = MN_OK;
    bool got = mn_pages_reserve(&s->kv, seq, n_positions);
    for (uint32_t i = 0; i < s->n_seq && !got && !st; i++) {
        if (i == seq || !s->seqs[i].used || s->seqs[i].running)
            continue;
        st = mn_preempt(s, i, err);
        got = !st && mn_pages_reserve(&s->kv, seq, n_positions);
    }
    if (!st && !got)
        st = mn_fail(err, MN_OUT_OF_MEMORY, "the KV cache has no free page");
    return st;
}

mn_status mn_distrust(mn_steps *s, mn_error *err) {
    mn_status st = MN_OK;
    mn_kv_close(&s->kv);
    for (uint32_t i = 0; i < s->n_seq && !st; i++)
        if (s->seqs[i].used)
            st = mn_preempt(s, i, err);
    mn_kv_reopen(&s->kv);
    return st;
}
