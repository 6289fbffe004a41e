/* kv.c -- the life of a session's memory: records of the slots, which stay, and all that belongs to
 * one engine, which goes with it. */
#include "session/kv/pool.h"
#include <string.h>

mn_status mn_kv_init(mn_kv *kv, uint32_t n_seq, uint32_t n_ctx, const mn_step_clock *clock,
                     mn_error *err) {
    kv->n_seq = n_seq;
    kv->n_ctx = n_ctx;
    kv->clock = clock;
    kv->state_group = -1;
    kv->slots = mn_calloc(n_seq, sizeof *kv->slots);
    if (!kv->slots)
        return mn_fail_memory(err, n_seq * sizeof *kv->slots);
    for (uint32_t i = 0; i < n_seq; i++)
        mn_state_forget(kv, i);
    return MN_OK;
}

void mn_kv_free(mn_kv *kv) {
    mn_kv_unplace(kv);
    mn_free(kv->slots);
    kv->slots = NULL;
}

static void read_layouts(mn_kv *kv, const mn_engine *e) {
    kv->n_groups = (uint32_t)e->graph->hp.n_kv;
    kv->state_group = -1;
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        const bool is_state = e->graph->hp.kv[i].state;
        if (is_state)
            kv->state_group = (int32_t)i;
        kv->layout[i] = (mn_group_memory){.kind = is_state ? MN_MEMORY_STATE : MN_MEMORY_PAGED,
                                          .window = e->graph->hp.kv[i].window,
                                          .page_tokens = e->group[i].page_tokens,
                                          .row = e->group[i].row,
                                          .n_pages = e->group[i].n_pages,
                                          .n_total = e->group[i].n_total,
                                          .n_own = e->group[i].n_own,
                                          .table = e->in.pages[i],
                                          .of_text = e->graph->hp.kv[i].text};
    }
}

mn_status mn_kv_place(mn_kv *kv, mn_engine *engine, int32_t *packed, mn_error *err) {
    kv->engine = engine;
    kv->packed = packed;
    kv->engines++;
    read_layouts(kv, engine);
    const size_t n_rows = (size_t)kv->n_groups * kv->n_seq;
    kv->changed = mn_calloc(n_rows + 1, sizeof *kv->changed);
    if (!kv->changed)
        return mn_fail_memory(err, n_rows * sizeof *kv->changed);
    mn_status st = mn_page_pools_create(kv, err);
    if (!st)
        st = mn_prefix_create(kv, err);
    for (uint32_t i = 0; i < kv->n_groups && !st; i++)
        for (uint32_t slot = 0; slot < kv->n_seq; slot++)
            memset(mn_tables_row(kv, i, slot), 0xff, kv->layout[i].row * sizeof *packed);
    return st;
}

void mn_kv_unplace(mn_kv *kv) {
    if (kv->files.disk)
        mn_files_close(kv);
    mn_host_close(kv);
    mn_prefix_free(kv);
    mn_page_pools_free(kv);
    mn_free(kv->changed);
    kv->changed = NULL;
    kv->packed = NULL;
    kv->engine = NULL;
}

void mn_kv_close(mn_kv *kv) {
    kv->prefix.closed = true;
    mn_files_forget(kv);
}

void mn_kv_reopen(mn_kv *kv) {
    kv->prefix.closed = false;
    mn_host_clear(kv);
    for (uint32_t i = 0; i < kv->n_groups; i++)
        while (kv->pools[i].n_kept)
            mn_prefix_evict(kv, i, kv->pools[i].first);
}

uint32_t mn_kv_max_positions(const mn_kv *kv, uint32_t n_batch, bool running_ahead) {
    uint64_t most = kv->n_ctx;
    for (uint32_t i = 0; kv->engine && i < kv->n_groups; i++) {
        const mn_group_memory *l = &kv->layout[i];
        if (l->kind == MN_MEMORY_STATE)
            continue;
        const uint64_t batch = (n_batch + l->page_tokens - 1ull) / l->page_tokens;
        const uint64_t batches = running_ahead ? 2 * batch : batch;
        /* what a window group holds of one sequence at most (mn_kv_pages) */
        const uint64_t held = MN_MIN(l->n_pages, l->n_own + batches);
        if (!l->window || l->n_total < held)
            most = MN_MIN(most, (uint64_t)l->n_total * l->page_tokens);
    }
    return (uint32_t)most;
}

void mn_kv_count(const mn_kv *kv, mn_session_load *load) {
    double most = -1;
    load->cache_queries = kv->prefix.n_queries;
    load->cache_hits = kv->prefix.n_hits;
    mn_files_count(kv, load);
    mn_host_count(kv, load);
    for (uint32_t i = 0; kv->engine && i < kv->n_groups; i++) {
        const mn_page_pool *p = &kv->pools[i];
        if (kv->layout[i].kind == MN_MEMORY_STATE && kv->n_groups > 1)
            continue; /* there is one for each slot in any case */
        const uint32_t n_used = p->n_total - mn_page_coming(kv, i);
        const double part = (double)n_used / p->n_total;
        if (part <= most)
            continue;
        most = part;
        load->pages_total = p->n_total;
        load->pages_used = n_used;
        load->pages_cached = p->n_kept;
        load->page_tokens = kv->layout[i].page_tokens;
    }
}
