/* events.c -- what mn_session_next returns: events of the requests, in order, and what they point
 * to, kept until the next call. Room is made before a step is completed, so that nothing that was
 * drawn can be lost for want of memory. */
#include "session/requests/requests.h"
#include <math.h>
#include <string.h>

/* Room for the scores of the tokens of a step: each has its id and MN_MAX_TOP_LOGPROBS others. */
enum { SCORE_ROOM = MN_MAX_TOP_LOGPROBS + 1 };
static mn_status reserve_scores(mn_requests *r, mn_error *err) {
    const size_t n = (size_t)r->n_outputs * SCORE_ROOM;
    if (r->score_ids)
        return MN_OK;
    r->score_ids = mn_arena_alloc(&r->data, n, sizeof *r->score_ids);
    r->score_logprobs = mn_arena_alloc(&r->data, n, sizeof *r->score_logprobs);
    r->n_scores = 0;
    if (r->score_ids && r->score_logprobs)
        return MN_OK;
    r->score_ids = NULL;
    return mn_fail_memory(err, n * sizeof *r->score_ids);
}

mn_status mn_requests_reserve(mn_requests *r, size_t n, mn_error *err) {
    void *list = r->events;
    const size_t want = r->n_events + n;
    if (!mn_grow(&list, &r->cap_events, want, sizeof *r->events))
        return mn_fail_memory(err, want * sizeof *r->events);
    r->events = list;
    return r->n_events ? MN_OK : reserve_scores(r, err);
}

void mn_requests_clear(mn_requests *r) {
    r->n_events = 0;
    mn_arena_free(&r->data);
    r->score_ids = NULL;
    while (r->ended) {
        mn_job *job = r->ended;
        r->ended = job->next;
        mn_requests_forget(r, job);
    }
}

/* What all events of the job have in common. There is room (mn_requests_reserve). */
static mn_request_event *event_append(mn_requests *r, const mn_job *job, uint32_t kind) {
    mn_request_event *e = &r->events[r->n_events++];
    *e = (mn_request_event){
        .request = job->request,
        .user = job->user,
        .kind = kind,
        .choice = job->choice,
        .id = -1,
        .n_prompt = job->text ? job->n_text : job->n_prompt,
        .n_cached = job->n_cached,
        .n_drawn = job->n_drawn,
        .logprob = NAN,
    };
    if (job->started_ns)
        e->queued_ns = job->started_ns - job->submitted_ns;
    return e;
}

void mn_event_prompt(mn_requests *r, mn_job *job) {
    if (job->told_prompt)
        return;
    job->told_prompt = true;
    if (job->choice)
        return;
    mn_request_event *e = event_append(r, job, MN_REQUEST_PROMPT);
    e->prompt_logprobs = job->prompt_logprobs;
    e->prompt_top_ids = job->prompt_top_ids;
    e->prompt_top_logprobs = job->prompt_top_logprobs;
    e->n_top = job->prompt_logprobs ? job->n_top : 0;
}

void mn_event_progress(mn_requests *r, mn_job *job, uint32_t n_computed) {
    if (job->choice || job->told_prompt || !(job->flags & MN_SUBMIT_PROGRESS))
        return;
    if (n_computed <= job->n_told || n_computed >= job->n_prompt)
        return;
    job->n_told = n_computed;
    event_append(r, job, MN_REQUEST_PROGRESS)->n_computed = n_computed;
}

void mn_job_score_prompt(mn_job *job, uint32_t at, const mn_score *score) {
    const size_t first = (size_t)at * job->n_top;
    if (!job->prompt_logprobs || job->told_prompt || !score)
        return;
    job->prompt_logprobs[at] = score->logprob;
    memcpy(job->prompt_top_ids + first, score->top_ids, job->n_top * sizeof(int32_t));
    memcpy(job->prompt_top_logprobs + first, score->top_logprobs, job->n_top * sizeof(float));
}

/* What the row said, kept until the next call. */
static mn_status keep_score(mn_requests *r, const mn_job *job, const mn_score *score,
                            mn_request_event *e, mn_error *err) {
    const uint32_t n = job->n_top;
    const bool has_room = r->score_ids && r->n_scores < r->n_outputs;
    const size_t at = (size_t)r->n_scores * SCORE_ROOM;
    int32_t *ids = has_room ? r->score_ids + at : mn_arena_alloc(&r->data, SCORE_ROOM, sizeof *ids);
    float *logprobs =
        has_room ? r->score_logprobs + at : mn_arena_alloc(&r->data, SCORE_ROOM, sizeof *logprobs);
    if (!ids || !logprobs)
        return mn_fail_memory(err, SCORE_ROOM * sizeof *logprobs);
    r->n_scores += has_room;
    memcpy(ids, score->top_ids, n * sizeof *ids);
    memcpy(logprobs, score->top_logprobs, n * sizeof *logprobs);
    e->logprob = score->logprob;
    e->top_ids = ids;
    e->top_logprobs = logprobs;
    e->n_top = n;
    return MN_OK;
}

mn_status mn_event_token(mn_requests *r, mn_job *job, const mn_token *token, const mn_score *score,
                         mn_error *err) {
    mn_request_event said = {.logprob = NAN};
    mn_status st = score ? keep_score(r, job, score, &said, err) : MN_OK;
    if (st)
        return st;
    job->last_ns = mn_now_ns();
    if (!job->first_ns)
        job->first_ns = job->last_ns;
    mn_event_prompt(r, job);
    mn_request_event *e = event_append(r, job, MN_REQUEST_TOKEN);
    e->id = token->id;
    e->finish = token->finish;
    e->logprob = said.logprob;
    e->top_ids = said.top_ids;
    e->top_logprobs = said.top_logprobs;
    e->n_top = said.n_top;
    return MN_OK;
}

void mn_event_finish(mn_requests *r, mn_job *job, int32_t finish, const mn_error *why) {
    mn_request_event *e = event_append(r, job, MN_REQUEST_FINISH);
    e->finish = finish;
    e->n_preempted = job->n_preempted;
    e->n_drafted = job->n_drafted;
    e->n_accepted = job->n_accepted;
    e->n_steps = job->n_steps;
    e->n_forced = job->n_forced;
    r->n_finished[finish]++;
    if (why) {
        e->status = why->status;
        e->message = mn_arena_strndup(&r->data, why->msg, strlen(why->msg));
    }
    if (!job->first_ns)
        return;
    e->prefill_ns = job->first_ns - job->started_ns;
    e->first_ns = job->first_ns - job->submitted_ns;
    e->decode_ns = job->last_ns - job->first_ns;
}
