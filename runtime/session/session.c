/* session.c -- a session's life, and its steps. It belongs to one thread at a time, but for
 * mn_session_cancel; what it has per engine is place.c's. A session whose process has forked is not
 * touched in the child: its threads and devices are the parent's. */
#include "session/session.h"
#include <string.h>

enum { KEEP_MS = 10000 }; /* that mn_session_free waits for files */

/* What the graph of a session ends with. */
static uint32_t session_end(const mn_session_params *p) {
    if (p->flags & MN_SESSION_HEAD)
        return MN_GRAPH_HEAD;
    if (p->flags & MN_SESSION_EMBED)
        return MN_GRAPH_EMBEDS;
    const bool draws = !(p->flags & (MN_SESSION_NO_SAMPLING | MN_SESSION_INPUT_SUMS));
    const bool tells = draws && p->speculate & MN_SPECULATE_HEAD;
    return MN_GRAPH_DRAWS + (tells ? MN_GRAPH_TELLS : 0);
}

/* Sizes and wishes; lists of devices are copied, since they are read again when one is lost. */
static mn_status set_request(mn_session *s, const mn_session_params *p, mn_error *err) {
    mn_request *r = &s->request;
    const bool embeds = p->flags & MN_SESSION_EMBED;
    const uint32_t end = session_end(p);
    mn_status st = mn_model_graph_for(s->model, 0, end, &s->steps.graph, err);
    if (!st && !embeds)
        st = mn_embed_refuse_encoder(s->model, err);
    if (!st)
        st = mn_request_make(s->model, s->steps.graph, p, r, err);
    if (!st)
        st = mn_model_graph_for(s->model, r->n_ctx, end, &s->steps.graph, err);
    if (!st && s->steps.graph->hp.n_encoder &&
        p->flags & (MN_SESSION_EMBED | MN_SESSION_INPUT_SUMS))
        st = mn_fail(err, MN_UNSUPPORTED,
                     "%s has an encoder and a decoder: neither embeddings nor importance matrices "
                     "are made of it",
                     s->model->canonical->path);
    if (st)
        return st;
    if (s->steps.graph->hp.n_encoder)
        s->steps.limits.n_text = r->n_batch;
    if (p->adapter && *p->adapter)
        st = mn_adapter_find(s->model->adapters, p->adapter, &s->steps.limits.adapter, err);
    if (st)
        return st;
    s->steps.limits.model = s->model;
    s->steps.limits.graph = s->steps.graph;
    s->steps.limits.n_ctx = r->n_ctx;
    s->steps.n_ctx = r->n_ctx;
    s->steps.n_seq = r->n_seq;
    s->steps.n_batch = r->n_batch;
    s->steps.n_outputs = r->n_outputs;
    s->end = end;
    s->sums_inputs = p->flags & MN_SESSION_INPUT_SUMS;
    s->draws = !s->sums_inputs && !(p->flags & (MN_SESSION_NO_SAMPLING | MN_SESSION_EMBED));
    s->steps.kv.no_cache = embeds || p->flags & MN_SESSION_NO_CACHE ||
                           s->steps.limits.n_text; /* what a token is depends on the whole text */
    s->model->rt->progress_done = 0;
    if (s->model->rt->progress)
        r->watcher = (mn_watcher){mn_runtime_progress, s->model->rt};
    r->devices = mn_arena_strndup(&s->names, r->devices, strlen(r->devices));
    r->tensor_devices = mn_arena_strndup(&s->names, r->tensor_devices, strlen(r->tensor_devices));
    return r->devices && r->tensor_devices ? MN_OK : mn_fail_memory(err, 64);
}

/* Where what leaves memory of the device is kept; the folder is opened with the engine. */
static mn_status set_files(mn_session *s, const mn_session_params *p, mn_error *err) {
    const mn_config *cfg = s->model->rt->config;
    const char *host = mn_config_get_str(cfg, "cache_host");
    if (strcmp(host, "0") != 0 && !mn_parse_bytes(mn_str_of(host), &s->steps.kv.most_host))
        return mn_fail(err, MN_BAD_INPUT,
                       "cache_host: found \"%s\", expected a number of bytes such as 2GiB, or 0",
                       host);
    const char *dir = p->cache_dir ? p->cache_dir : mn_config_get_str(cfg, "cache_dir");
    const char *most = mn_config_get_str(cfg, "cache_disk");
    if (!*dir)
        return MN_OK;
    s->cache_disk = p->cache_disk;
    if (!s->cache_disk && !mn_parse_bytes(mn_str_of(most), &s->cache_disk))
        return mn_fail(err, MN_BAD_INPUT,
                       "cache_disk: found \"%s\", expected a number of bytes such as 20GiB", most);
    s->cache_dir = mn_arena_strndup(&s->names, dir, strlen(dir));
    return s->cache_dir ? MN_OK : mn_fail_memory(err, strlen(dir));
}

/* Drafts, if the caller asks for some; makes the session of a draft model. */
static mn_status make_drafts(mn_session *s, const mn_session_params *p, mn_error *err) {
    mn_drafts *d = &s->steps.drafts;
    d->names = &s->names;
    d->stats = &s->steps.stats;
    d->n_vocab = s->steps.graph->hp.n_vocab;
    const mn_status st = mn_drafts_init(d, p, s->draws, s->steps.n_seq, err);
    d->paced = s->steps.graph->head;
    if (st || !d->wanted || !(p->draft || p->speculate & MN_SPECULATE_HEAD))
        return st;
    return mn_drafter_create(s, p, err);
}

mn_status mn_session_create(mn_model *m, const mn_session_params *params, mn_session **out,
                            mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    mn_session_params p = {.size = sizeof p};
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {"out", out}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, m->rt);
    if (!st)
        st = mn_args_take(MN_SIZED_SESSION_PARAMS, &p, params, err);
    if (!st)
        st = mn_args_flags(err, "mn_session_params.flags", p.flags, ~MN_SESSION_HEAD);
    return st ? st : mn_session_make(m, p, out, err);
}

mn_status mn_session_make(mn_model *m, mn_session_params p, mn_session **out, mn_error *err) {
    const uint64_t t0 = mn_now_ns();
    mn_session *s = mn_calloc(1, sizeof *s);
    if (!s)
        return mn_fail_memory(err, sizeof *s);
    s->model = m;
    s->steps.model = m;
    s->steps.pace.n_rows = MN_FIRST_ROWS;
    mn_status st = set_request(s, &p, err);
    if (!st)
        st = mn_kv_init(&s->steps.kv, s->steps.n_seq, s->steps.n_ctx, &s->steps.clock, err);
    if (!st)
        st = make_drafts(s, &p, err);
    if (!st)
        st = set_files(s, &p, err);
    if (!st)
        st = mn_session_place(s, err);
    if (!st)
        st = mn_steps_init(&s->steps, err); /* after the choice, which says what would not fit */
    s->steps.stats.load_s = (double)(mn_now_ns() - t0) * 1e-9;
    if (st)
        mn_session_free(s);
    else
        *out = s;
    return st;
}

/* With nothing in flight: blocks of all sequences are noted, and written. false: not in time. */
static bool keep_all(mn_session *s, uint32_t timeout_ms) {
    mn_steps *steps = &s->steps;
    if (!steps->kv.files.disk)
        return true;
    for (uint32_t i = 0; steps->seqs && i < steps->n_seq; i++)
        if (steps->seqs[i].used)
            mn_prefix_add(&steps->kv, i, mn_seq_text(&steps->seqs[i]));
    return mn_files_flush(&steps->kv, timeout_ms * UINT64_C(1000000));
}

mn_status mn_session_keep(mn_session *s, uint32_t timeout_ms, mn_error *err) {
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (st || !s->steps.kv.files.disk)
        return st;
    for (uint32_t i = 0; i < s->steps.n_seq; i++)
        if (s->steps.seqs[i].running)
            return mn_fail(err, MN_INVALID, "mn_session_keep: sequence %u runs", i);
    mn_step_drain(&s->steps, NULL); /* of sequences that have ended */
    if (!keep_all(s, timeout_ms))
        return mn_fail(err, MN_TIMEOUT, "pages were not written to %s within %u ms", s->cache_dir,
                       timeout_ms);
    return MN_OK;
}

void mn_session_free(mn_session *s) {
    if (!s || mn_pool_is_stranded(s->model->rt->pool))
        return;
    for (uint32_t i = 0; s->steps.seqs && i < s->steps.n_seq; i++)
        s->steps.seqs[i].running = false; /* nobody awaits what is in flight */
    if (s->steps.engine) {
        mn_step_drain(&s->steps, NULL);
        keep_all(s, KEEP_MS);
    }
    mn_session_unplace(s);
    mn_requests_free(&s->steps.requests);
    mn_drafter_free(s);
    mn_drafts_free(&s->steps.drafts);
    mn_steps_free(&s->steps);
    mn_adapter_release(s->model->adapters, s->steps.limits.adapter);
    mn_input_sums_free(&s->sums);
    mn_text_free(&s->lost);
    mn_free(s->passed_over);
    mn_arena_free(&s->names);
    mn_free(s);
}

mn_status mn_session_get_info(const mn_session *s, mn_session_info *out) {
    static const mn_engine none;
    if (!s)
        return MN_INVALID;
    const mn_engine *e = s->steps.engine ? s->steps.engine : &none;
    mn_session_info info = {.size = sizeof info,
                            .precision = e->precision,
                            .device = s->device,
                            .description = s->description,
                            .why = s->why,
                            .n_ctx = s->steps.n_ctx,
                            .n_seq = s->steps.n_seq,
                            .n_batch = s->steps.n_batch,
                            .threads = mn_pool_workers(s->model->rt->pool),
                            .weight_bytes = e->weight_bytes,
                            .kv_bytes = e->kv_bytes,
                            .scratch_bytes = e->scratch_bytes,
                            .fallback = s->placement.fallback,
                            .speculation = s->steps.drafts.said};
    return mn_args_give(MN_SIZED_SESSION_INFO, out, &info);
}

mn_status mn_session_get_stats(const mn_session *s, mn_session_stats *out) {
    return s ? mn_args_give(MN_SIZED_SESSION_STATS, out, &s->steps.stats) : MN_INVALID;
}

mn_status mn_session_draws(const mn_session *s, const char *function, mn_error *err) {
    if (s->draws)
        return MN_OK;
    if (s->steps.graph->embeds)
        return mn_fail(err, MN_INVALID,
                       "%s: this session embeds texts (mn_session_embed) and draws no ids",
                       function);
    if (s->sums_inputs)
        return mn_fail(err, MN_INVALID,
                       "%s: this session sums inputs (mn_session_input_sums) and draws no ids",
                       function);
    return mn_fail(err, MN_INVALID,
                   "%s: this session computes logits (mn_session_logits) and draws no ids",
                   function);
}

void mn_session_cancel(mn_session *s) {
    if (s)
        atomic_store(&s->steps.cancelled, 1);
}

/* Hands out what steps have drawn, up to cap. */
static void tell_tokens(mn_session *s, mn_token *out, uint32_t cap, uint32_t *n) {
    while (*n < cap && s->steps.n_told < s->steps.n_ready)
        out[(*n)++] = s->steps.ready[s->steps.n_told++];
}

/* Steps until there are tokens to tell. */
static mn_status step_on(mn_session *s, mn_error *err) {
    bool idle = false;
    mn_status st = mn_failover_ready(s, err);
    while (!st && s->steps.n_told == s->steps.n_ready && !idle) {
        if (atomic_exchange(&s->steps.cancelled, 0))
            return mn_fail(err, MN_CANCELLED, "cancelled");
        s->steps.n_told = 0;
        s->steps.n_ready = 0;
        st = mn_steps_advance(&s->steps, s->steps.ready, &s->steps.n_ready, &idle, err);
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
        st = mn_requests_none(&s->steps.requests, __func__, err);
    if (st)
        return st;
    if (cap < s->steps.n_seq)
        return mn_fail(err, MN_INVALID,
                       "mn_session_step: room for %u tokens, the session has %u sequences", cap,
                       s->steps.n_seq);
    st = step_on(s, err);
    tell_tokens(s, out, cap, n);
    if (!st || st == MN_CANCELLED)
        return st;
    return mn_steps_settle(&s->steps, st, err);
}
