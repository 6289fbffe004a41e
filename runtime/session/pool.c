/* pool.c -- the pages of each KV group: which are free, who holds them, and which are kept for
 * requests to come.
 *
 * A page is held by the sequences whose tables name it. One that nobody holds any more is free once
 * the steps enqueued so far are complete (limbo), unless the prefix cache knows what is in it
 * (prefix.c): then it is kept, in the order in which pages were given back, until the room is
 * needed. */
#include "session/session.h"

static mn_status create(mn_page_pool *p, uint32_t n, mn_error *err) {
    p->n_total = n;
    p->first = -1;
    p->last = -1;
    p->refs = mn_calloc(n, sizeof *p->refs);
    p->free = mn_calloc(n, sizeof *p->free);
    p->limbo = mn_calloc(n, sizeof *p->limbo);
    p->info = mn_calloc(n, sizeof *p->info);
    if (!p->refs || !p->free || !p->limbo || !p->info)
        return mn_fail_memory(err, n * (sizeof *p->info + 24ull));
    for (uint32_t k = 0; k < n; k++) {
        p->free[p->n_free++] = (int32_t)(n - 1 - k);
        p->info[k].node = -1;
    }
    return MN_OK;
}

mn_status mn_page_pools_create(mn_session *s, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < s->graph->hp.n_kv && !st; i++)
        st = create(&s->pools[i], s->engine->group[i].n_total, err);
    return st;
}

void mn_page_pools_free(mn_session *s) {
    for (uint32_t i = 0; i < MN_MAX_KV_GROUP; i++) {
        mn_page_pool *p = &s->pools[i];
        mn_free(p->refs);
        mn_free(p->free);
        mn_free(p->limbo);
        mn_free(p->info);
        *p = (mn_page_pool){0};
    }
}

/* ---- kept pages: a list, the one that was given back first in front -------------------------- */
static void keep(mn_page_pool *p, int32_t page) {
    mn_page_info *x = &p->info[page];
    x->prev = p->last;
    x->next = -1;
    if (p->last >= 0)
        p->info[p->last].next = page;
    else
        p->first = page;
    p->last = page;
    p->n_kept++;
}

static void unkeep(mn_page_pool *p, int32_t page) {
    const mn_page_info *x = &p->info[page];
    if (x->prev >= 0)
        p->info[x->prev].next = x->next;
    else
        p->first = x->next;
    if (x->next >= 0)
        p->info[x->next].prev = x->prev;
    else
        p->last = x->prev;
    p->n_kept--;
}

/* ---- holders --------------------------------------------------------------------------------- */
/* Free, now or when the steps that may read it are complete. */
static void release(const mn_session *s, mn_page_pool *p, int32_t page) {
    const uint64_t after = p->info[page].after;
    if (after <= s->completed)
        p->free[p->n_free++] = page;
    else
        p->limbo[p->n_limbo++] = (mn_limbo_page){page, after};
}

bool mn_page_take(mn_session *s, uint32_t group, int32_t *page) {
    mn_page_pool *p = &s->pools[group];
    if (!p->n_free)
        return false;
    p->n_free--;
    *page = p->free[p->n_free];
    p->refs[*page] = 1;
    return true;
}

void mn_page_hold(mn_session *s, uint32_t group, int32_t page) {
    mn_page_pool *p = &s->pools[group];
    if (!p->refs[page])
        unkeep(p, page);
    p->refs[page]++;
}

void mn_page_give(mn_session *s, uint32_t group, int32_t page) {
    mn_page_pool *p = &s->pools[group];
    p->refs[page]--;
    if (p->refs[page])
        return;
    p->info[page].after = s->enqueued;
    if (p->info[page].node >= 0)
        keep(p, page);
    else
        release(s, p, page);
}

void mn_page_forget(mn_session *s, uint32_t group, int32_t page) {
    mn_page_pool *p = &s->pools[group];
    p->info[page].node = -1;
    if (p->refs[page])
        return;
    unkeep(p, page);
    release(s, p, page);
}

bool mn_page_make_room(mn_session *s, uint32_t group, uint32_t n) {
    mn_page_pool *p = &s->pools[group];
    while (p->n_free < n && p->n_kept && p->info[p->first].after <= s->completed)
        mn_prefix_evict(s, group, p->first);
    return p->n_free >= n;
}

uint32_t mn_page_coming(const mn_session *s, uint32_t group) {
    const mn_page_pool *p = &s->pools[group];
    return p->n_free + p->n_limbo + p->n_kept;
}

/* ---- after a completion ---------------------------------------------------------------------- */
/* Pages whose last step is complete are free; the others stay in limbo, in order. */
static void settle(const mn_session *s, mn_page_pool *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_limbo; i++) {
        const mn_limbo_page page = p->limbo[i];
        if (page.after <= s->completed)
            p->free[p->n_free++] = page.page;
        else
            p->limbo[n++] = page;
    }
    p->n_limbo = n;
}

void mn_page_pools_settle(mn_session *s) {
    for (uint32_t i = 0; i < s->graph->hp.n_kv; i++)
        settle(s, &s->pools[i]);
}
