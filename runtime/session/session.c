/* session.c -- a session's life, and its steps. It belongs to one thread at a time, but for
 * mn_session_cancel; what it has per engine is place.c's. A session whose process has forked is not
 * touched in the child: its threads and devices are the parent's. */
#include "session/session.h"
#include <string.h>

/* The slots; tokens of sequences are allocated as they come. */
static mn_status allocate(mn_session *s, mn_error *err) {
    s->seqs = mn_calloc(s->n_seq, sizeof *s->seqs);
    s->turns = mn_calloc(s->n_seq, sizeof *s->turns);
    s->ready = mn_alloc(s->n_outputs, sizeof *s->ready);
    if (!s->seqs || !s->turns || !s->ready)
        return mn_fail_memory(err, s->n_seq * sizeof *s->seqs);
    mn_status st = mn_guides_init(&s->guides, s->model->rt->pool, s->n_seq, err);
    return st ? st : mn_requests_init(&s->requests, s->n_outputs, err);
}

/* Sizes and wishes; the list of devices is copied, since it is asked again when one is lost. */
static mn_status set_request(mn_session *s, const mn_session_params *p, mn_error *err) {
    mn_request *r = &s->request;
    const bool embeds = p->flags & MN_SESSION_EMBED;
    mn_status st = mn_model_graph_for(s->model, 0, embeds, &s->graph, err);
    if (!st && !embeds)
        st = mn_embed_refuse_encoder(s->model, err);
    if (!st)
        st = mn_request_make(s->model, s->graph, p, r, err);
    if (!st)
        st = mn_model_graph_for(s->model, r->n_ctx, embeds, &s->graph, err);
    if (st)
        return st;
    s->limits.model = s->model;
    s->limits.graph = s->graph;
    s->limits.n_ctx = r->n_ctx;
    s->n_ctx = r->n_ctx;
    s->n_seq = r->n_seq;
    s->n_batch = r->n_batch;
    s->n_outputs = r->n_outputs;
    s->draws = !(p->flags & (MN_SESSION_NO_SAMPLING | MN_SESSION_EMBED));
    s->kv.no_cache = embeds || p->flags & MN_SESSION_NO_CACHE;
    s->model->rt->progress_done = 0;
    if (s->model->rt->progress)
        r->watcher = (mn_watcher){mn_runtime_progress, s->model->rt};
    r->devices = mn_arena_strndup(&s->names, r->devices, strlen(r->devices));
    return r->devices ? MN_OK : mn_fail_memory(err, 64);
}

/* Drafts, if the caller asks for some; makes the session of a draft model. */
static mn_status make_drafts(mn_session *s, const mn_session_params *p, mn_error *err) {
    mn_drafts *d = &s->drafts;
    d->names = &s->names;
    d->stats = &s->stats;
    d->n_vocab = s->graph->hp.n_vocab;
    const mn_status st = mn_drafts_init(d, p, s->draws, s->n_seq, err);
    return st || !d->wanted || !p->draft ? st : mn_drafter_create(s, p, err);
}

mn_status mn_session_create(mn_model *m, const mn_session_params *params, mn_session **out,
                            mn_error *err) {
    uint64_t t0 = mn_now_ns();
    mn_error why = MN_ERROR_INIT;
    mn_session_params p = {.size = sizeof p};
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {"out", out}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, m->rt);
    if (!st)
        st = mn_args_take(MN_SIZED_SESSION_PARAMS, &p, params, err);
    if (st)
        return st;
    mn_session *s = mn_calloc(1, sizeof *s);
    if (!s)
        return mn_fail_memory(err, sizeof *s);
    s->model = m;
    s->pace.n_rows = MN_FIRST_ROWS;
    st = set_request(s, &p, err);
    if (!st)
        st = mn_kv_init(&s->kv, s->n_seq, s->n_ctx, &s->clock, err);
    if (!st)
        st = make_drafts(s, &p, err);
    if (!st)
        st = mn_session_place(s, err);
    if (!st)
        st = allocate(s, err); /* after the choice, which says what would not fit */
    s->stats.load_s = (double)(mn_now_ns() - t0) * 1e-9;
    if (st)
        mn_session_free(s);
    else
        *out = s;
    return st;
}

void mn_session_free(mn_session *s) {
    if (!s || mn_pool_is_stranded(s->model->rt->pool))
        return;
    for (uint32_t i = 0; s->seqs && i < s->n_seq; i++)
        s->seqs[i].running = false; /* nobody awaits what is in flight */
    if (s->engine)
        mn_step_drain(s, NULL);
    mn_session_unplace(s);
    mn_requests_free(&s->requests);
    mn_drafter_free(s);
    mn_drafts_free(&s->drafts);
    for (uint32_t i = 0; s->seqs && i < s->n_seq; i++) {
        mn_free(s->seqs[i].own_tokens);
        mn_free(s->seqs[i].own_bias);
        mn_free(s->seqs[i].own_breakers);
        mn_guide_free(s->seqs[i].own_guide);
    }
    mn_kv_free(&s->kv);
    mn_free(s->seqs);
    mn_free(s->ready);
    mn_free(s->turns);
    mn_guides_free(&s->guides);
    mn_text_free(&s->lost);
    mn_free(s->passed_over);
    mn_arena_free(&s->names);
    mn_free(s);
}

mn_status mn_session_get_info(const mn_session *s, mn_session_info *out) {
    static const mn_engine none;
    if (!s)
        return MN_INVALID;
    const mn_engine *e = s->engine ? s->engine : &none;
    mn_session_info info = {.size = sizeof info,
                            .precision = e->precision,
                            .device = s->device,
                            .description = s->description,
                            .why = s->why,
                            .n_ctx = s->n_ctx,
                            .n_seq = s->n_seq,
                            .n_batch = s->n_batch,
                            .threads = mn_pool_workers(s->model->rt->pool),
                            .weight_bytes = e->weight_bytes,
                            .kv_bytes = e->kv_bytes,
                            .scratch_bytes = e->scratch_bytes,
                            .fallback = s->placement.fallback,
                            .speculation = s->drafts.said};
    return mn_args_give(MN_SIZED_SESSION_INFO, out, &info);
}

mn_status mn_session_get_stats(const mn_session *s, mn_session_stats *out) {
    return s ? mn_args_give(MN_SIZED_SESSION_STATS, out, &s->stats) : MN_INVALID;
}

mn_status mn_session_draws(const mn_session *s, const char *function, mn_error *err) {
    if (s->draws)
        return MN_OK;
    if (s->graph->embeds)
        return mn_fail(err, MN_INVALID,
                       "%s: this session embeds texts (mn_session_embed) and draws no ids",
                       function);
    return mn_fail(err, MN_INVALID,
                   "%s: this session computes logits (mn_session_logits) and draws no ids",
                   function);
}

mn_status mn_session_settle(const mn_session *s, mn_status st, mn_error *err) {
    const bool aliased = s->engine && (s->engine->kept_how & MN_KEPT_ALIASED);
    return mn_canonical_settle(s->model->canonical, aliased, st, err);
}

void mn_session_cancel(mn_session *s) {
    if (s)
        atomic_store(&s->cancelled, 1);
}

/* With nothing in flight a step always finds its pages (mn_kv_pages): else this says so, not
 * silence. Sequences whose constraints take long have their rows in a later one. */
static mn_status check_idle(const mn_session *s, mn_error *err) {
    for (uint32_t i = 0; i < s->n_seq; i++)
        if (s->seqs[i].running && !mn_guide_has_noted(s->seqs[i].guide))
            return mn_fail(err, MN_OUT_OF_MEMORY,
                           "the KV cache has no free page for sequence %u (of %u at once)", i,
                           s->n_seq);
    return MN_OK;
}

mn_status mn_session_advance(mn_session *s, mn_token *out, uint32_t *n, bool *idle, mn_error *err) {
    bool more = true;
    mn_status st = mn_step_catch_up(s, err);
    while (more && !st)
        st = mn_step_enqueue(s, &more, err);
    if (st)
        return st;
    *idle = s->clock.completed == s->clock.enqueued;
    if (*idle)
        return check_idle(s, err);
    st = mn_step_complete(s, out, n, err);
    if (st == MN_CANCELLED)
        atomic_store(&s->cancelled, 0);
    return st;
}

/* Tokens of sequences that have been freed or set to something else meanwhile are dropped. */
void mn_session_untell(mn_session *s, int32_t seq) {
    uint32_t n = s->n_told;
    for (uint32_t i = s->n_told; i < s->n_ready; i++)
        if (s->ready[i].seq != seq)
            s->ready[n++] = s->ready[i];
    s->n_ready = n;
}

/* Hands out what steps have drawn, up to cap. */
static void tell(mn_session *s, mn_token *out, uint32_t cap, uint32_t *n) {
    while (*n < cap && s->n_told < s->n_ready)
        out[(*n)++] = s->ready[s->n_told++];
}

/* Steps until there are tokens to tell. */
static mn_status step_on(mn_session *s, mn_error *err) {
    bool idle = false;
    mn_status st = mn_failover_ready(s, err);
    while (!st && s->n_told == s->n_ready && !idle) {
        if (atomic_exchange(&s->cancelled, 0))
            return mn_fail(err, MN_CANCELLED, "cancelled");
        s->n_told = 0;
        s->n_ready = 0;
        st = mn_session_advance(s, s->ready, &s->n_ready, &idle, err);
        st = mn_failover(s, st, err);
    }
    return st;
}

mn_status mn_session_step(mn_session *s, mn_token *out, uint32_t cap, uint32_t *n, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {"out", out}, {"n", n}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (st)
        return st;
    *n = 0;
    st = mn_session_draws(s, __func__, err);
    if (!st)
        st = mn_requests_none(&s->requests, __func__, err);
    if (st)
        return st;
    if (cap < s->n_seq)
        return mn_fail(err, MN_INVALID,
                       "mn_session_step: room for %u tokens, the session has %u sequences", cap,
                       s->n_seq);
    st = step_on(s, err);
    tell(s, out, cap, n);
    if (!st || st == MN_CANCELLED)
        return st;
    return mn_session_settle(s, st, err);
}
