/* session.c -- a session's life, and its steps. */
#include "session/session.h"
#include <string.h>

enum { MAX_AHEAD = 256, AHEAD_ASYNC = 8 };

static mn_status allocate(mn_session *s, mn_error *err) {
    const uint32_t n_pages = s->engine->n_pages * s->n_seq, total = s->engine->in.total;
    s->n_total = n_pages;
    s->seqs = mn_calloc(s->n_seq, sizeof *s->seqs);
    s->page_refs = mn_calloc(n_pages, sizeof *s->page_refs);
    s->free_pages = mn_calloc(n_pages, sizeof *s->free_pages);
    s->limbo = mn_calloc(n_pages, sizeof *s->limbo);
    s->ring = mn_calloc(s->ring_size, sizeof *s->ring);
    s->packed = mn_calloc(total, sizeof *s->packed);
    s->sent = mn_calloc(total, sizeof *s->sent);
    bool ok = s->seqs && s->page_refs && s->free_pages && s->limbo && s->ring && s->packed && s->sent;
    for (uint32_t i = 0; ok && i < s->n_seq; i++)
        ok = (s->seqs[i].tokens = mn_alloc(s->n_ctx + 1u, sizeof(int32_t))) != NULL;
    for (uint32_t i = 0; ok && i < s->ring_size; i++)
        ok = (s->ring[i].outs = mn_alloc(s->n_outputs, sizeof(mn_step_out))) != NULL;
    if (!ok) return mn_fail_memory(err, (uint64_t)n_pages * 16 + total * 8ull);
    for (uint32_t i = 0; i < n_pages; i++) s->free_pages[s->n_free++] = (int32_t)(n_pages - 1 - i);
    return MN_OK;
}

static mn_status place(mn_session *s, const mn_session_params *p, mn_error *err) {
    mn_request r;
    mn_status st = mn_request_make(s->model, s->graph, p, &r, err);
    if (st) return st;
    s->n_ctx = r.n_ctx, s->n_seq = r.n_seq, s->n_batch = r.n_batch, s->n_outputs = r.n_outputs;
    st = mn_negotiate(s->model->rt->registry, s->graph, &r, &s->placement, err);
    if (st) return st;
    const mn_device_record *d = s->placement.offers[s->placement.chosen].record;
    bool async = d->info.flags & MN_DEVICE_ASYNC;
    s->ring_size = p->run_ahead ? MN_MIN(p->run_ahead, MAX_AHEAD) : async ? AHEAD_ASYNC : 1;
    s->device = mn_strndup(d->name, strlen(d->name));
    s->description = mn_strndup(d->info.name, strnlen(d->info.name, sizeof d->info.name));
    if (!s->device || !s->description) return mn_fail_memory(err, 128);
    return mn_engine_create(&s->placement, s->graph, s->ring_size, &s->engine, err);
}

mn_status mn_session_create(mn_model *m, const mn_session_params *params, mn_session **out, mn_error *err) {
    uint64_t t0 = mn_now_ns();
    mn_session_params p = {.size = sizeof p};
    if (params) memcpy(&p, params, MN_MIN((size_t)params->size, sizeof p));
    mn_session *s = mn_calloc(1, sizeof *s);
    if (!s) return mn_fail_memory(err, sizeof *s);
    s->model = m;
    mn_status st = mn_model_graph_of(m, &s->graph, err);
    if (!st) st = place(s, &p, err);
    if (!st) st = allocate(s, err);
    s->stats.load_s = (double)(mn_now_ns() - t0) * 1e-9;
    if (st)
        mn_session_free(s);
    else
        *out = s;
    return st;
}

void mn_session_free(mn_session *s) {
    if (!s) return;
    if (s->ring) mn_step_drain(s, NULL);
    mn_engine_free(s->engine);
    for (uint32_t i = 0; s->seqs && i < s->n_seq; i++) mn_free(s->seqs[i].tokens);
    for (uint32_t i = 0; s->ring && i < s->ring_size; i++) mn_free(s->ring[i].outs);
    mn_free(s->seqs);
    mn_free(s->page_refs);
    mn_free(s->free_pages);
    mn_free(s->limbo);
    mn_free(s->ring);
    mn_free(s->packed);
    mn_free(s->sent);
    mn_placement_free(&s->placement);
    mn_free(s->device);
    mn_free(s->description);
    mn_free(s);
}

void mn_session_get_info(const mn_session *s, mn_session_info *out) {
    const mn_engine *e = s->engine;
    mn_session_info info = {.size = sizeof info,
                            .precision = e->precision,
                            .device = s->device,
                            .description = s->description,
                            .why = s->placement.why,
                            .n_ctx = s->n_ctx,
                            .n_seq = s->n_seq,
                            .n_batch = s->n_batch,
                            .threads = mn_pool_workers(s->model->rt->pool),
                            .weight_bytes = e->weight_bytes,
                            .kv_bytes = e->kv_bytes,
                            .scratch_bytes = e->scratch_bytes,
                            .fallback = s->placement.fallback};
    uint32_t cap = out->size ? out->size : (uint32_t)sizeof info;
    memcpy(out, &info, MN_MIN((size_t)cap, sizeof info));
}

void mn_session_get_stats(const mn_session *s, mn_session_stats *out) {
    mn_session_stats stats = s->stats;
    uint32_t cap = out->size ? out->size : (uint32_t)sizeof stats;
    stats.size = sizeof stats;
    memcpy(out, &stats, MN_MIN((size_t)cap, sizeof stats));
}

void mn_session_cancel(mn_session *s) { atomic_store(&s->cancelled, 1); }

mn_status mn_session_step(mn_session *s, mn_token *out, uint32_t cap, uint32_t *n, mn_error *err) {
    *n = 0;
    if (cap < s->n_seq)
        return mn_fail(err, MN_INVALID, "mn_session_step: room for %u tokens, the session has %u sequences", cap,
                       s->n_seq);
    for (;;) {
        if (atomic_exchange(&s->cancelled, 0)) return mn_fail(err, MN_CANCELLED, "cancelled");
        bool more = true;
        mn_status st = MN_OK;
        while (more && !st) st = mn_step_enqueue(s, &more, err);
        if (st) return st;
        if (s->completed == s->enqueued) return MN_OK;
        st = mn_step_complete(s, out, n, err);
        if (st == MN_CANCELLED) atomic_store(&s->cancelled, 0);
        if (st || *n) return st;
    }
}
