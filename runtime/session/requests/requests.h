/* requests.h -- the room of requests: parameters in the form of a slot, requests that wait, and
 * their events.
 *
 * It owns the jobs of a session from their submission until their last event was read, the inbox
 * and the waiting list, and the memory of events. It knows a session as mn_limits; a job knows the
 * number of its slot, not its contents. Any thread submits, aborts and reads the load, under one
 * lock, which is never held while a device works; all else belongs to the thread that steps.
 *
 * A job (one choice of a request):
 *
 *     mn_requests_submit       mn_requests_receive,
 *    (any thread)              mn_job_enqueue               mn_jobs_admit (steps): it gets a slot
 *   ------------------> inbox ---------------------> waiting -------------------------> running
 *                                                     ^  |    mn_preempt (steps): the     |
 *                                                     |  |    slot goes to another one    |
 *                                                     +--|--------------------------------+
 *                                   aborted, complete or |                                | its
 *                                      too large by then |                                | end
 *                                                        v      mn_job_end                v
 *             freed <------------------------------------------- ended, with its last event
 *                       mn_requests_clear: the events were read
 *
 * Order in `waiting`: priority, then arrival, then choice (mn_job_precedes). A job that is
 * preempted has its old place. */
#ifndef MN_REQUESTS_H
#define MN_REQUESTS_H
#include "session/guides/guides.h"
#include <pthread.h>
#include <stdatomic.h>

/* What a session can be asked for. Any thread reads it; the thread that steps writes the atomics
 * when another device takes over, or refuses something. */
typedef struct {
    const mn_model *model;
    const mn_model_graph *graph;
    uint32_t n_ctx;
    uint32_t
        n_text; /* tokens of a text that an encoder can read: rows of a step; 0: there is none */
    atomic_uint max_positions; /* that one sequence can have, alone in the KV cache */
    atomic_uint refused;       /* 1 << MN_RUN_*: programs that the device cannot compile */
    const mn_adapter *adapter; /* where parameters name none; NULL: none */
} mn_limits;

/* One choice of a request: a sequence that waits, or that runs in a slot. jobs.c makes it, the
 * thread that steps owns it from then on, but for the links of `live` and `aborted`. */
typedef struct mn_job mn_job;
struct mn_job {
    mn_job *next;                  /* of the list that it is in: inbox, waiting or ended */
    mn_job *live_next, *live_prev; /* of all jobs; under lock */
    atomic_bool aborted;
    bool told_prompt;
    uint32_t n_told;         /* ids of the prompt in its last MN_REQUEST_PROGRESS */
    uint64_t request, order; /* order: of arrival */
    void *user;
    uint32_t choice, flags, n_top, priority;
    int32_t slot; /* -1: waits */
    /* [cap_tokens]: the prompt and what was drawn; of a model with an encoder the prompt is `text`,
     * and tokens begin with the id that stands in front of an answer */
    int32_t *tokens;
    uint32_t n_tokens, cap_tokens, n_prompt; /* n_prompt: of tokens */
    int32_t *text;                           /* [n_text]; NULL: the model has no encoder */
    uint32_t n_text;
    uint32_t n_drawn, limit; /* with ids of an earlier life */
    uint32_t n_cached, n_preempted;
    uint32_t n_run; /* positions that were computed before it was preempted */
    uint64_t cache_salt;
    mn_slot_params params;
    uint32_t sample_flags; /* MN_SAMPLE_* */
    mn_logit_bias *bias;
    uint32_t n_bias;
    uint32_t *breakers;                      /* of DRY; NULL: none */
    mn_adapters *adapters;                   /* the model's, of which it holds `adapter` */
    const mn_adapter *adapter;               /* NULL: none */
    float mu;                                /* of mirostat, behind the last id of tokens */
    mn_guide *guide;                         /* NULL: no constraint */
    uint64_t n_drafted, n_accepted, n_steps; /* as in its last event */
    uint64_t n_forced;                       /* likewise */
    float *prompt_logprobs;                  /* [n_tokens at first]; NULL: not asked for */
    int32_t *prompt_top_ids;                 /* [n_tokens at first][n_top] */
    float *prompt_top_logprobs;              /* likewise */
    uint64_t submitted_ns, started_ns, first_ns, last_ns;
};

/* What all threads share, under lock, and what the thread that steps keeps. */
typedef struct {
    uint32_t n_outputs; /* tokens of a step at most */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    mn_job *live;
    mn_job *inbox, **inbox_end;
    bool woken, any_aborted;
    uint64_t n_requests;
    mn_session_load load;
    uint64_t beat_ns;
    /* ---- of the thread that steps ---- */
    mn_job *waiting; /* by priority and order */
    mn_job *ended;   /* events point into them: freed by the next call */
    uint32_t n_running, n_waiting;
    mn_request_event *events;
    size_t n_events, cap_events;
    mn_arena data; /* what events point to */
    /* in data: room for the scores of a step; n_scores tokens have theirs. NULL: none yet */
    int32_t *score_ids;
    float *score_logprobs;
    uint32_t n_scores;
    uint64_t n_finished[6];
} mn_requests;

/* ---- params.c -------------------------------------------------------------------------------- */
/* before: tokens that the sequence has already. */
mn_status mn_params_check_ids(const mn_limits *l, const int32_t *ids, uint32_t n, uint32_t before,
                              mn_error *err);
/* Of a model with an encoder, which reads a text in one step; every text is one of others. */
mn_status mn_params_check_text(const mn_limits *l, uint32_t n_text, mn_error *err);
/* What the caller asks for, complete: greedy where it says nothing. */
mn_status mn_params_take(const mn_sample_params *given, mn_sample_params *out, mn_error *err);
/* MN_INVALID: a bias that is no number, an id that is unknown or comes twice, or too many. */
mn_status mn_params_check_bias(const mn_limits *l, const mn_sample_params *p, mn_error *err);
/* What SAMPLE reads, with the model's stop ids and the caller's; without max_new. */
mn_status mn_params_of_slot(const mn_limits *l, const mn_sample_params *p, mn_slot_params *out,
                            mn_error *err);

/* The adapter that the parameters name, or the session's, with one holder more; NULL: none. */
mn_status mn_params_adapter(const mn_limits *l, const mn_sample_params *p, const mn_adapter **out,
                            mn_error *err);

/* ---- samplers.c ------------------------------------------------------------------------------ */
/* The fields of contract 4 of SAMPLE, checked. */
mn_status mn_samplers_of_slot(const mn_sample_params *p, mn_slot_params *out, mn_error *err);
/* Whether a slot with these parameters needs MN_RUN_SAMPLERS. */
bool mn_samplers_need(const mn_slot_params *p);
/* Bits of the breakers of DRY, one per id, freed by mn_free; *out NULL: DRY is off. Any thread. */
mn_status mn_breakers_create(const mn_limits *l, const mn_sample_params *p,
                             const mn_slot_params *slot, uint32_t **out, mn_error *err);

/* ---- jobs.c: any thread ---------------------------------------------------------------------- */
/* Checks the request and copies it into one job per choice, which go into the inbox at once. */
mn_status mn_requests_submit(mn_requests *r, const mn_limits *l, const mn_request_params *p,
                             uint64_t *id, mn_error *err);
void mn_job_free(mn_job *job); /* its memory alone */

/* ---- queue.c --------------------------------------------------------------------------------- */
mn_status mn_requests_init(mn_requests *r, uint32_t n_outputs, mn_error *err);
void mn_requests_free(mn_requests *r); /* with all jobs */
/* Any thread. */
uint64_t mn_requests_deliver(mn_requests *r, mn_job *jobs); /* linked by next; their request's id */
void mn_requests_abort(mn_requests *r, uint64_t id);
void mn_requests_wake(mn_requests *r);
mn_session_load mn_requests_load(mn_requests *r);
/* The thread that steps. */
void mn_requests_publish(mn_requests *r, const mn_session_load *load); /* for the latter */
/* From the inbox into `waiting`. *woken: also by mn_requests_wake. Whether jobs were aborted. */
bool mn_requests_receive(mn_requests *r, bool *woken);
/* Until something changes, the deadline is over, or a signal handler may have cancelled. */
void mn_requests_sleep(mn_requests *r, uint64_t deadline_ns);
bool mn_requests_idle(const mn_requests *r); /* none is in the session */
/* MN_INVALID: there are requests in the session, and the function is not for them. */
mn_status mn_requests_none(const mn_requests *r, const char *function, mn_error *err);
bool mn_job_precedes(const mn_job *a, const mn_job *b);
void mn_job_enqueue(mn_requests *r, mn_job *job); /* into waiting, by priority and order */
/* The job, which has no slot any more (job->slot still says where it was; -1: it waits), ends with
 * its last event. */
void mn_job_end(mn_requests *r, mn_job *job, int32_t finish, const mn_error *why);
void mn_requests_forget(mn_requests *r, mn_job *job); /* off the list of live jobs, and freed */
/* Whether its prompt may begin with positions that others have computed: logprobs of a prompt want
 * all of it computed, once. */
static inline bool mn_job_may_share(const mn_job *job) {
    return !job->prompt_logprobs || job->told_prompt;
}

/* ---- events.c: what mn_session_next returns -------------------------------------------------- */
/* Room for n more events, and for the scores of a step. */
mn_status mn_requests_reserve(mn_requests *r, size_t n, mn_error *err);
void mn_requests_clear(mn_requests *r); /* of the last call, with the jobs that had ended */
/* The job's prompt is computed; once per request. */
void mn_event_prompt(mn_requests *r, mn_job *job);
/* So many positions of its prompt are computed; only if the request asked for progress. */
void mn_event_progress(mn_requests *r, mn_job *job, uint32_t n_computed);
/* score: of the id; NULL: not asked for. MN_OUT_OF_MEMORY: there is no event, the job is to end. */
mn_status mn_event_token(mn_requests *r, mn_job *job, const mn_token *token, const mn_score *score,
                         mn_error *err);
/* Keeps what a row told of the prompt's token `at`. */
void mn_job_score_prompt(mn_job *job, uint32_t at, const mn_score *score);
void mn_event_finish(mn_requests *r, mn_job *job, int32_t finish, const mn_error *why);
#endif
