/* submit.c -- the part of a session that any thread may use: requests come in, are aborted, and
 * wake the thread that steps. A request is checked and copied here, once, into one job per choice;
 * the thread that steps takes the jobs from the inbox (serve.c). Everything shared is under one
 * lock, which is never held while a device works. */
#include "session/session.h"
#include <math.h>
#include <string.h>
#include <time.h>

mn_status mn_serving_init(mn_session *s, mn_error *err) {
    mn_serving *v = &s->serve;
    pthread_condattr_t attr;
    v->inbox_end = &v->inbox;
    v->beat_ns = 0;
    if (pthread_mutex_init(&v->lock, NULL))
        return mn_fail_memory(err, sizeof v->lock);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    const int failed = pthread_cond_init(&v->changed, &attr);
    pthread_condattr_destroy(&attr);
    return failed ? mn_fail_memory(err, sizeof v->changed) : MN_OK;
}

void mn_serving_free(mn_session *s) {
    mn_serving *v = &s->serve;
    if (!v->inbox_end)
        return; /* it was never made */
    while (v->live)
        mn_job_free(s, v->live);
    mn_free(v->events);
    mn_arena_free(&v->data);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
}

bool mn_serving_is_idle(const mn_session *s) {
    const mn_serving *v = &s->serve;
    return !v->n_running && !v->waiting;
}

mn_status mn_serving_none(const mn_session *s, const char *function, mn_error *err) {
    if (mn_serving_is_idle(s))
        return MN_OK;
    return mn_fail(err, MN_INVALID, "%s: the session runs requests of mn_session_submit", function);
}

/* ---- jobs ------------------------------------------------------------------------------------ */
/* Memory of the job alone. */
static void release(mn_job *job) {
    mn_free(job->tokens);
    mn_free(job->bias);
    mn_guide_free(job->guide);
    mn_free(job->breakers);
    mn_free(job->prompt_logprobs);
    mn_free(job->prompt_top_ids);
    mn_free(job->prompt_top_logprobs);
    mn_free(job);
}

void mn_job_free(mn_session *s, mn_job *job) {
    mn_serving *v = &s->serve;
    pthread_mutex_lock(&v->lock);
    if (job->live_prev)
        job->live_prev->live_next = job->live_next;
    else
        v->live = job->live_next;
    if (job->live_next)
        job->live_next->live_prev = job->live_prev;
    pthread_mutex_unlock(&v->lock);
    release(job);
}

/* How many ids the request may draw in all: up to max_new, and to the end of the context. The last
 * id needs no place. The context may have shrunk since the check: another device took over. */
static uint32_t limit_of(const mn_session *s, const mn_request_params *p,
                         const mn_sample_params *sample) {
    const uint32_t n_prompt = p->n_ids - p->n_drawn;
    const uint32_t most = atomic_load(&s->max_positions);
    const uint32_t room = n_prompt <= most ? most - n_prompt + 1 : 0;
    if (sample->flags & MN_SAMPLE_PREFILL_ONLY)
        return 0;
    return sample->max_new ? MN_MIN(sample->max_new, room) : room;
}

/* false = out of memory, here and below. */
static bool copy_bias(mn_job *job, const mn_sample_params *sample) {
    job->n_bias = sample->n_bias;
    if (!job->n_bias)
        return true;
    job->bias = mn_alloc(job->n_bias, sizeof *job->bias);
    if (job->bias)
        memcpy(job->bias, sample->bias, job->n_bias * sizeof *job->bias);
    return job->bias != NULL;
}

/* Room for the logprobs of the prompt; of the first token, which nothing precedes, there is
 * none. */
static bool make_prompt_scores(mn_job *job, const mn_request_params *p) {
    const size_t n_top = (size_t)p->n_ids * p->n_top;
    if (!(p->flags & MN_SUBMIT_PROMPT_LOGPROBS) || job->choice)
        return true;
    job->prompt_logprobs = mn_alloc(p->n_ids, sizeof(float));
    job->prompt_top_ids = mn_alloc(n_top + 1, sizeof(int32_t));
    job->prompt_top_logprobs = mn_alloc(n_top + 1, sizeof(float));
    if (!job->prompt_logprobs || !job->prompt_top_ids || !job->prompt_top_logprobs)
        return false;
    job->prompt_logprobs[0] = NAN;
    for (uint32_t i = 0; i < p->n_top; i++) {
        job->prompt_top_ids[i] = -1;
        job->prompt_top_logprobs[i] = NAN;
    }
    return true;
}

/* One choice; NULL = out of memory. */
static mn_job *make_job(const mn_session *s, const mn_request_params *p,
                        const mn_sample_params *sample, const mn_slot_params *slot,
                        uint32_t choice) {
    mn_job *job = mn_calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->limit = limit_of(s, p, sample);
    job->n_prompt = p->n_ids - p->n_drawn;
    job->cap_tokens = MN_MAX(p->n_ids, job->n_prompt + job->limit) + 1;
    job->tokens = mn_alloc(job->cap_tokens, sizeof *job->tokens);
    job->n_top = p->n_top;
    job->choice = choice;
    if (!job->tokens || !copy_bias(job, sample) || !make_prompt_scores(job, p)) {
        release(job);
        return NULL;
    }
    memcpy(job->tokens, p->ids, p->n_ids * sizeof *p->ids);
    job->n_tokens = p->n_ids;
    job->n_drawn = p->n_drawn;
    job->params = *slot;
    job->params.max_new = (int32_t)job->limit;
    job->params.seed = sample->seed + choice;
    job->mu = 2 * slot->mirostat_tau;
    job->sample_flags = sample->flags;
    job->slot = -1;
    job->flags = p->flags;
    job->priority = p->priority;
    job->cache_salt = p->cache_salt;
    job->user = p->user;
    job->submitted_ns = mn_now_ns();
    return job;
}

static void release_all(mn_job *first) {
    while (first) {
        mn_job *next = first->next;
        release(first);
        first = next;
    }
}

/* Jobs for all choices, linked by next; NULL = out of memory. */
static mn_job *make_jobs(const mn_session *s, const mn_request_params *p,
                         const mn_sample_params *sample, const mn_slot_params *slot) {
    mn_job *first = NULL;
    mn_job **end = &first;
    const uint32_t n = MN_MAX(p->n_choices, 1u);
    for (uint32_t i = 0; i < n; i++) {
        *end = make_job(s, p, sample, slot, i);
        if (!*end)
            break;
        end = &(*end)->next;
        if (i + 1 == n)
            return first;
    }
    release_all(first);
    return NULL;
}

/* Where each choice is in the constraint: behind what an earlier life has drawn. */
static mn_status make_guides(const mn_session *s, mn_job *jobs, const mn_guide_start *from,
                             mn_error *err) {
    mn_status st = MN_OK;
    for (mn_job *job = jobs; job && !st; job = job->next)
        st = mn_guide_create((uint32_t)s->graph->hp.n_vocab, from, &job->guide, err);
    return st;
}

/* Each choice has its own breakers of DRY. */
static mn_status make_breakers(const mn_session *s, mn_job *jobs, const mn_sample_params *sample,
                               mn_error *err) {
    const size_t bytes = (size_t)MN_MASK_WORDS(s->graph->hp.n_vocab) * sizeof *jobs->breakers;
    mn_status st = mn_breakers_create(s, sample, &jobs->params, &jobs->breakers, err);
    for (mn_job *job = jobs->next; job && jobs->breakers && !st; job = job->next) {
        job->breakers = mn_alloc(bytes, 1);
        if (!job->breakers)
            return mn_fail_memory(err, bytes);
        memcpy(job->breakers, jobs->breakers, bytes);
    }
    return st;
}

/* ---- checks ---------------------------------------------------------------------------------- */
/* A number of mn_request_params that is too large. */
static mn_status check_most(const char *name, uint32_t found, uint32_t most, mn_error *err) {
    if (found <= most)
        return MN_OK;
    return mn_fail(err, MN_INVALID, "mn_request_params.%s: found %u, expected at most %u", name,
                   found, most);
}

static mn_status check_request(const mn_session *s, const mn_request_params *p, mn_error *err) {
    const uint32_t known =
        MN_SUBMIT_LOGPROBS | MN_SUBMIT_PROMPT_LOGPROBS | MN_SUBMIT_NO_CACHE | MN_SUBMIT_PROGRESS;
    mn_status st = mn_args_flags(err, "mn_request_params.flags", p->flags, known);
    if (!st && p->n_ids && !p->ids)
        st = mn_fail(err, MN_INVALID, "mn_request_params.ids is NULL, n_ids is %u", p->n_ids);
    if (!st)
        st = check_most("n_choices", p->n_choices, MN_MAX_CHOICES, err);
    if (!st)
        st = check_most("n_top", p->n_top, MN_MAX_TOP_LOGPROBS, err);
    if (!st)
        st = check_most("priority", p->priority, MN_PRIORITY_LOW, err);
    if (!st && p->n_drawn && p->n_choices > 1)
        st = check_most("n_choices (with n_drawn)", p->n_choices, 1, err);
    if (!st && p->n_drawn)
        st = check_most("n_drawn (of n_ids)", p->n_drawn, p->n_ids - !!p->n_ids, err);
    if (st)
        return st;
    return mn_params_check_ids(s, p->ids, p->n_ids, 0, err);
}

/* A prompt and an answer that one sequence can have, alone in the KV cache. */
static mn_status check_room(const mn_session *s, const mn_request_params *p,
                            const mn_sample_params *sample, mn_error *err) {
    const uint32_t most = atomic_load(&s->max_positions);
    const uint32_t n_prompt = p->n_ids - p->n_drawn;
    const uint32_t max_new = sample->flags & MN_SAMPLE_PREFILL_ONLY ? 0 : sample->max_new;
    const uint64_t want = MN_MAX(p->n_ids, (uint64_t)n_prompt + max_new - !!max_new);
    if (most >= s->n_ctx || want <= most)
        return MN_OK;
    return mn_fail(
        err, MN_BAD_INPUT,
        "the prompt has %u tokens, and %u may be generated: the KV cache has room for %u "
        "positions",
        n_prompt, max_new, most);
}

/* Whether the device has refused such a request before, which ended with MN_FINISH_FAILED. */
static mn_status check_programs(const mn_session *s, const mn_request_params *p,
                                const mn_sample_params *sample, const mn_slot_params *slot,
                                mn_error *err) {
    const uint32_t refused = atomic_load(&s->refused);
    const uint32_t asks = MN_SUBMIT_LOGPROBS | MN_SUBMIT_PROMPT_LOGPROBS;
    const bool scores = p->flags & asks || sample->n_bias;
    if (scores && refused & 1u << MN_RUN_SCORES)
        return mn_fail(err, MN_UNSUPPORTED,
                       "the device of this session cannot compute logprobs and biases of ids");
    if (sample->constraint && refused & 1u << MN_RUN_MASKS)
        return mn_fail(err, MN_UNSUPPORTED,
                       "the device of this session cannot keep outputs to a constraint");
    if (mn_samplers_need(slot) && refused & 1u << MN_RUN_SAMPLERS)
        return mn_fail(err, MN_UNSUPPORTED,
                       "the device of this session has no samplers beyond penalties, top_k, top_p, "
                       "min_p and temperature, in this order");
    return MN_OK;
}

/* ---- for any thread -------------------------------------------------------------------------- */
/* Into the inbox, all choices at once, as the next request. */
static uint64_t deliver(mn_session *s, mn_job *jobs) {
    mn_serving *v = &s->serve;
    pthread_mutex_lock(&v->lock);
    const uint64_t request = ++v->n_requests;
    *v->inbox_end = jobs;
    for (mn_job *job = jobs; job; job = job->next) {
        job->request = request;
        job->order = request;
        job->live_next = v->live;
        if (v->live)
            v->live->live_prev = job;
        v->live = job;
        v->inbox_end = &job->next;
    }
    pthread_cond_signal(&v->changed);
    pthread_mutex_unlock(&v->lock);
    return request;
}

mn_status mn_session_submit(mn_session *s, const mn_request_params *params, uint64_t *id,
                            mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    mn_request_params p = {.size = sizeof p};
    mn_sample_params sample;
    mn_slot_params slot;
    const mn_arg args[] = {{"s", s}, {"params", params}, {"id", id}, {0}};
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = mn_session_draws(s, __func__, err);
    if (!st)
        st = mn_args_take(MN_SIZED_REQUEST_PARAMS, &p, params, err);
    if (!st)
        st = check_request(s, &p, err);
    if (!st)
        st = mn_params_take(p.sample, &sample, err);
    if (!st)
        st = mn_params_of_slot(s, &sample, &slot, err);
    if (!st)
        st = check_room(s, &p, &sample, err);
    if (!st)
        st = check_programs(s, &p, &sample, &slot, err);
    if (st)
        return st;
    mn_job *jobs = make_jobs(s, &p, &sample, &slot);
    if (!jobs)
        return mn_fail_memory(err, p.n_ids * sizeof *p.ids);
    const mn_guide_start from = {&sample, &slot, p.ids, p.n_ids, p.n_drawn};
    st = make_guides(s, jobs, &from, err);
    if (!st)
        st = make_breakers(s, jobs, &sample, err);
    if (st)
        release_all(jobs);
    else
        *id = deliver(s, jobs);
    return st;
}

void mn_session_abort(mn_session *s, uint64_t id) {
    if (!s || mn_pool_is_stranded(s->model->rt->pool))
        return;
    mn_serving *v = &s->serve;
    pthread_mutex_lock(&v->lock);
    for (mn_job *job = v->live; job; job = job->live_next) {
        if (job->request != id)
            continue;
        atomic_store(&job->aborted, true);
        v->any_aborted = true;
    }
    pthread_cond_signal(&v->changed);
    pthread_mutex_unlock(&v->lock);
}

void mn_session_wake(mn_session *s) {
    if (!s || mn_pool_is_stranded(s->model->rt->pool))
        return;
    pthread_mutex_lock(&s->serve.lock);
    s->serve.woken = true;
    pthread_cond_signal(&s->serve.changed);
    pthread_mutex_unlock(&s->serve.lock);
}

mn_status mn_session_get_load(const mn_session *s, mn_session_load *out) {
    if (!s || mn_pool_is_stranded(s->model->rt->pool))
        return MN_INVALID;
    mn_session *own = (mn_session *)(uintptr_t)s; /* its lock is no part of what the caller sees */
    mn_serving *v = &own->serve;
    pthread_mutex_lock(&v->lock);
    mn_session_load load = v->load;
    load.size = sizeof load;
    for (const mn_job *job = v->inbox; job; job = job->next) {
        load.n_waiting++;
        load.queued_tokens += job->n_tokens;
    }
    load.beat_ms = v->beat_ns ? (mn_now_ns() - v->beat_ns) / 1000000 : UINT64_MAX;
    pthread_mutex_unlock(&v->lock);
    return mn_args_give(MN_SIZED_SESSION_LOAD, out, &load);
}
