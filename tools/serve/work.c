/* work.c -- passes the requests of the front on to the session of an engine process, and its events
 * back.
 *
 * The front names generations, the session names requests: a table holds both until the last event.
 * Its lock is held over the submission, whose events may come before the call returns. */
#include "serve/work.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1024 };

typedef struct entry {
    struct entry *next;
    uint64_t id, request;
} entry;

struct work {
    mn_session *session;
    pthread_mutex_t lock;
    entry *slots[SLOTS];
};

work *work_create(mn_session *s) {
    work *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->session = s;
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

/* Where the entry of id is, or would be. */
static entry **work_find(work *w, uint64_t id) {
    entry **at = &w->slots[id % SLOTS];
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

/* The message as parameters of the session. */
static mn_status submit(work *w, const wire_submit *m, mn_constraint *c, uint64_t *request,
                        mn_error *err) {
    mn_logit_bias bias[WIRE_MAX_BIAS];
    mn_sample_params sample = m->sample;
    for (uint32_t i = 0; i < m->n_bias; i++)
        bias[i] = (mn_logit_bias){m->bias_ids[i], m->bias[i]};
    sample.n_bias = m->n_bias;
    sample.bias = bias;
    sample.constraint = c;
    if (m->has_breakers)
        sample.dry_breakers = m->breakers;
    const mn_request_params params = {.size = sizeof params,
                                      .flags = m->flags,
                                      .sample = &sample,
                                      .ids = m->ids,
                                      .n_ids = m->n_ids,
                                      .n_drawn = m->n_drawn,
                                      .n_top = m->n_top,
                                      .priority = m->priority,
                                      .cache_salt = m->cache_salt,
                                      .user = (void *)(uintptr_t)m->id};
    return mn_session_submit(w->session, &params, request, err);
}

/* The last event of a generation has come, or it never began. */
static void forget(work *w, uint64_t id) {
    pthread_mutex_lock(&w->lock);
    entry **at = work_find(w, id);
    entry *e = *at;
    if (e)
        *at = e->next;
    pthread_mutex_unlock(&w->lock);
    free(e);
}

/* The entry comes first: events of the request may, before the session's call returns. No lock is
 * held meanwhile, as that may take long: the first mask of a constraint is made there. */
mn_status work_submit(work *w, const wire_submit *m, mn_constraint *c, mn_error *err) {
    entry *e = calloc(1, sizeof *e);
    if (!e)
        return MN_OUT_OF_MEMORY;
    e->id = m->id;
    pthread_mutex_lock(&w->lock);
    *work_find(w, m->id) = e;
    pthread_mutex_unlock(&w->lock);
    uint64_t request = 0;
    const mn_status st = submit(w, m, c, &request, err);
    if (st) {
        forget(w, m->id);
        return st;
    }
    pthread_mutex_lock(&w->lock);
    e = *work_find(w, m->id);
    if (e) /* else it has ended already */
        e->request = request;
    pthread_mutex_unlock(&w->lock);
    return MN_OK;
}

void work_abort(work *w, uint64_t id) {
    pthread_mutex_lock(&w->lock);
    const entry *e = *work_find(w, id);
    const uint64_t request = e ? e->request : 0;
    pthread_mutex_unlock(&w->lock);
    if (e)
        mn_session_abort(w->session, request);
}

/* Arrays stay the session's, valid until its next step. */
static wire_event event_of(const mn_request_event *e) {
    wire_event out = {.id = (uint64_t)(uintptr_t)e->user,
                      .kind = e->kind,
                      .token = e->id,
                      .finish = e->finish,
                      .status = e->status,
                      .n_cached = e->n_cached,
                      .n_drawn = e->n_drawn,
                      .n_preempted = e->n_preempted,
                      .n_drafted = e->n_drafted,
                      .n_accepted = e->n_accepted,
                      .n_computed = e->n_computed,
                      .logprob = e->logprob,
                      .n_top = e->n_top,
                      .top_ids = e->top_ids,
                      .top_logprobs = e->top_logprobs,
                      .n_prompt = e->prompt_logprobs ? e->n_prompt : 0,
                      .prompt_logprobs = e->prompt_logprobs,
                      .prompt_top_ids = e->prompt_top_ids,
                      .prompt_top_logprobs = e->prompt_top_logprobs,
                      .queued_ns = e->queued_ns,
                      .prefill_ns = e->prefill_ns,
                      .first_ns = e->first_ns,
                      .decode_ns = e->decode_ns};
    if (e->message)
        out.message = (mn_str){e->message, strlen(e->message)};
    return out;
}

mn_status work_next(work *w, uint32_t timeout_ms, work_event_fn fn, void *arg, mn_error *err) {
    mn_request_events got = {.size = sizeof got};
    const mn_status st = mn_session_next(w->session, timeout_ms, &got, err);
    const char *at = (const char *)got.events;
    for (uint32_t i = 0; i < got.n; i++) {
        const mn_request_event *e = (const mn_request_event *)(const void *)at;
        const wire_event event = event_of(e);
        if (e->kind == MN_REQUEST_FINISH)
            forget(w, event.id);
        fn(arg, &event);
        at += got.stride;
    }
    return st == MN_CANCELLED ? MN_OK : st;
}

void work_beat(const work *w, wire_beat *out) {
    mn_session_load load = {.size = sizeof load};
    mn_session_get_load(w->session, &load);
    *out = (wire_beat){.n_running = load.n_running,
                       .n_waiting = load.n_waiting,
                       .pages_total = load.pages_total,
                       .pages_used = load.pages_used,
                       .page_tokens = load.page_tokens,
                       .cache_queries = load.cache_queries,
                       .cache_hits = load.cache_hits,
                       .n_preempted = load.n_preempted,
                       .n_drafted = load.n_drafted,
                       .n_accepted = load.n_accepted,
                       .n_forced = load.n_forced,
                       .forms_ns = load.forms_ns,
                       .forms_most_ns = load.forms_most_ns,
                       .n_steps = load.n_steps,
                       .usual_step_ns = load.usual_step_ns,
                       .beat_ms = load.beat_ms};
    if (out->beat_ms > INT32_MAX)
        out->beat_ms = 0; /* the loop has not begun */
}
