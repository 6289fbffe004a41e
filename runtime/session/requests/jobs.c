/* jobs.c -- a request is checked and copied here, once, into one job per choice, in the thread that
 * submits it. What is copied is the job's until it is freed. */
#include "session/requests/requests.h"
#include <math.h>
#include <string.h>

/* ---- jobs ------------------------------------------------------------------------------------ */
void mn_job_free(mn_job *job) {
    mn_free(job->tokens);
    mn_free(job->text);
    mn_free(job->bias);
    mn_guide_free(job->guide);
    mn_free(job->breakers);
    mn_adapter_release(job->adapters, job->adapter);
    mn_free(job->prompt_logprobs);
    mn_free(job->prompt_top_ids);
    mn_free(job->prompt_top_logprobs);
    mn_free(job);
}

/* How many ids the request may draw in all: up to max_new, and to the end of the context. The last
 * id needs no place. The context may have shrunk since the check: another device took over. */
static uint32_t limit_of(const mn_limits *l, const mn_request_params *p,
                         const mn_sample_params *sample) {
    const uint32_t n_prompt = l->n_text ? 1 : p->n_ids - p->n_drawn;
    const uint32_t most = atomic_load(&l->max_positions);
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

/* The tokens of the request where they belong: all of them behind one another, or the text of an
 * encoder apart, and behind the first id of an answer what was drawn. */
static bool make_tokens(mn_job *job, const mn_limits *l, const mn_request_params *p) {
    const uint32_t n_text = l->n_text ? p->n_ids - p->n_drawn : 0;
    const int32_t *ids = p->ids + n_text;
    const uint32_t n_ids = p->n_ids - n_text;
    const uint32_t first = n_text ? 1 : 0;
    job->n_prompt = n_ids + first - p->n_drawn;
    job->n_tokens = n_ids + first;
    job->cap_tokens = MN_MAX(job->n_tokens, job->n_prompt + job->limit) + 1;
    job->tokens = mn_alloc(job->cap_tokens, sizeof *job->tokens);
    if (n_text)
        job->text = mn_alloc(n_text, sizeof *job->text);
    if (!job->tokens || (n_text && !job->text))
        return false;
    job->tokens[0] = (int32_t)l->graph->hp.start_id;
    if (n_ids)
        memcpy(job->tokens + first, ids, n_ids * sizeof *ids);
    if (n_text)
        memcpy(job->text, p->ids, n_text * sizeof *ids);
    job->n_text = n_text;
    return true;
}

/* One choice; NULL = out of memory. */
static mn_job *make_job(const mn_limits *l, const mn_request_params *p,
                        const mn_sample_params *sample, const mn_slot_params *slot,
                        uint32_t choice) {
    mn_job *job = mn_calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->limit = limit_of(l, p, sample);
    job->n_top = p->n_top;
    job->choice = choice;
    if (!make_tokens(job, l, p) || !copy_bias(job, sample) || !make_prompt_scores(job, p)) {
        mn_job_free(job);
        return NULL;
    }
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
    job->adapters = l->model->adapters;
    job->user = p->user;
    job->submitted_ns = mn_now_ns();
    return job;
}

static void jobs_free(mn_job *first) {
    while (first) {
        mn_job *next = first->next;
        mn_job_free(first);
        first = next;
    }
}

/* Jobs for all choices, linked by next; NULL = out of memory. */
static mn_job *make_jobs(const mn_limits *l, const mn_request_params *p,
                         const mn_sample_params *sample, const mn_slot_params *slot) {
    mn_job *first = NULL;
    mn_job **end = &first;
    const uint32_t n = MN_MAX(p->n_choices, 1u);
    for (uint32_t i = 0; i < n; i++) {
        *end = make_job(l, p, sample, slot, i);
        if (!*end)
            break;
        end = &(*end)->next;
        if (i + 1 == n)
            return first;
    }
    jobs_free(first);
    return NULL;
}

/* Where each choice is in the constraint: behind what an earlier life has drawn. */
static mn_status make_guides(const mn_limits *l, mn_job *jobs, const mn_guide_start *from,
                             mn_error *err) {
    mn_status st = MN_OK;
    for (mn_job *job = jobs; job && !st; job = job->next)
        st = mn_guide_create((uint32_t)l->graph->hp.n_vocab, from, &job->guide, err);
    return st;
}

/* Each choice has its own breakers of DRY. */
static mn_status make_breakers(const mn_limits *l, mn_job *jobs, const mn_sample_params *sample,
                               mn_error *err) {
    const size_t bytes = (size_t)MN_MASK_WORDS(l->graph->hp.n_vocab) * sizeof *jobs->breakers;
    mn_status st = mn_breakers_create(l, sample, &jobs->params, &jobs->breakers, err);
    for (mn_job *job = jobs->next; job && jobs->breakers && !st; job = job->next) {
        job->breakers = mn_alloc(bytes, 1);
        if (!job->breakers)
            return mn_fail_memory(err, bytes);
        memcpy(job->breakers, jobs->breakers, bytes);
    }
    return st;
}

/* All choices have the request's adapter. */
static mn_status find_adapters(const mn_limits *l, mn_job *jobs, const mn_sample_params *sample,
                               mn_error *err) {
    mn_status st = mn_params_adapter(l, sample, &jobs->adapter, err);
    for (mn_job *job = jobs->next; job && !st; job = job->next) {
        job->adapter = jobs->adapter;
        mn_adapter_hold(job->adapters, job->adapter);
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

static mn_status check_request(const mn_limits *l, const mn_request_params *p, mn_error *err) {
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
    if (!st && l->n_text && p->flags & MN_SUBMIT_PROMPT_LOGPROBS)
        st =
            mn_fail(err, MN_UNSUPPORTED,
                    "logprobs of the prompt: the model's encoder reads it, which predicts nothing");
    if (!st)
        st = mn_params_check_text(l, p->n_ids - p->n_drawn, err);
    if (st)
        return st;
    return mn_params_check_ids(l, p->ids, p->n_ids, 0, err);
}

/* A prompt and an answer that one sequence can have, alone in the KV cache. */
static mn_status check_room(const mn_limits *l, const mn_request_params *p,
                            const mn_sample_params *sample, mn_error *err) {
    const uint32_t most = atomic_load(&l->max_positions);
    const uint32_t n_prompt = p->n_ids - p->n_drawn;
    const uint32_t max_new = sample->flags & MN_SAMPLE_PREFILL_ONLY ? 0 : sample->max_new;
    const uint64_t want = MN_MAX(p->n_ids, (uint64_t)n_prompt + max_new - !!max_new);
    if (most >= l->n_ctx || want <= most)
        return MN_OK;
    return mn_fail(
        err, MN_BAD_INPUT,
        "the prompt has %u tokens, and %u may be generated: the KV cache has room for %u "
        "positions",
        n_prompt, max_new, most);
}

/* Whether the device has refused such a request before, which ended with MN_FINISH_FAILED. */
static mn_status check_programs(const mn_limits *l, const mn_request_params *p,
                                const mn_sample_params *sample, const mn_slot_params *slot,
                                mn_error *err) {
    const uint32_t refused = atomic_load(&l->refused);
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

mn_status mn_requests_submit(mn_requests *r, const mn_limits *l, const mn_request_params *p,
                             uint64_t *id, mn_error *err) {
    mn_sample_params sample;
    mn_slot_params slot;
    mn_status st = check_request(l, p, err);
    if (!st)
        st = mn_params_take(p->sample, &sample, err);
    if (!st)
        st = mn_params_of_slot(l, &sample, &slot, err);
    if (!st)
        st = check_room(l, p, &sample, err);
    if (!st)
        st = check_programs(l, p, &sample, &slot, err);
    if (st)
        return st;
    mn_job *jobs = make_jobs(l, p, &sample, &slot);
    if (!jobs)
        return mn_fail_memory(err, p->n_ids * sizeof *p->ids);
    const mn_guide_start from = {&sample, &slot, p->ids, p->n_ids, p->n_drawn};
    st = make_guides(l, jobs, &from, err);
    if (!st)
        st = make_breakers(l, jobs, &sample, err);
    if (!st)
        st = find_adapters(l, jobs, &sample, err);
    if (st)
        jobs_free(jobs);
    else
        *id = mn_requests_deliver(r, jobs);
    return st;
}
