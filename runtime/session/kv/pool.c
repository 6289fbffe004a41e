/* pool.c -- the pages of each KV group: which are free, who holds them, and which are kept for
 * requests to come.
 *
 * A page is held by the sequences whose tables name it. One that nobody holds any more is free once
 * the steps enqueued so far are complete (limbo), unless the prefix cache knows what is in it
 * (prefix.c): then it is kept until the room is needed, for which the pages go in the order in
 * which they were given back, states by what they are worth (mn_state_used), to the host's memory
 * where there is room (host.c). */
#include "session/kv/pool.h"

static mn_status pool_create(mn_page_pool *p, uint32_t n, mn_error *err) {
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

mn_status mn_page_pools_create(mn_kv *kv, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < kv->n_groups && !st; i++)
        st = pool_create(&kv->pools[i], kv->layout[i].n_total, err);
    return st;
}

void mn_page_pools_free(mn_kv *kv) {
    for (uint32_t i = 0; i < MN_MAX_KV_GROUP; i++) {
        mn_page_pool *p = &kv->pools[i];
        mn_free(p->refs);
        mn_free(p->free);
        mn_free(p->limbo);
        mn_free(p->info);
        *p = (mn_page_pool){0};
    }
}

/* ---- kept pages: a list, the one that was given back first in front -------------------------- */
static void page_keep(mn_page_pool *p, int32_t page) {
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

static void page_unkeep(mn_page_pool *p, int32_t page) {
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
static void page_release(const mn_kv *kv, mn_page_pool *p, int32_t page) {
    const uint64_t after = p->info[page].after;
    if (after <= kv->clock->completed)
        p->free[p->n_free++] = page;
    else
        p->limbo[p->n_limbo++] = (mn_limbo_page){page, after};
}

bool mn_page_take(mn_kv *kv, uint32_t group, int32_t *page) {
    mn_page_pool *p = &kv->pools[group];
    if (!p->n_free)
        return false;
    p->n_free--;
    *page = p->free[p->n_free];
    p->refs[*page] = 1;
    return true;
}

void mn_page_hold(mn_kv *kv, uint32_t group, int32_t page) {
    mn_page_pool *p = &kv->pools[group];
    if (!p->refs[page])
        page_unkeep(p, page);
    p->refs[page]++;
}

void mn_page_give(mn_kv *kv, uint32_t group, int32_t page) {
    mn_page_pool *p = &kv->pools[group];
    p->refs[page]--;
    if (p->refs[page])
        return;
    p->info[page].after = kv->clock->enqueued;
    if (p->info[page].node >= 0)
        page_keep(p, page);
    else
        page_release(kv, p, page);
}

void mn_page_forget(mn_kv *kv, uint32_t group, int32_t page) {
    mn_page_pool *p = &kv->pools[group];
    p->info[page].node = -1;
    if (p->refs[page])
        return;
    page_unkeep(p, page);
    page_release(kv, p, page);
}

/* ---- room ------------------------------------------------------------------------------------ */
static bool page_is_idle(const mn_kv *kv, const mn_page_pool *p, int32_t page) {
    return page >= 0 && p->info[page].after <= kv->clock->completed;
}

/* The kept state that is worth least; -1: steps in flight still read all of them. */
static int32_t least_worth(const mn_kv *kv, const mn_page_pool *p) {
    int32_t best = -1;
    for (int32_t i = p->first; i >= 0; i = p->info[i].next)
        if (page_is_idle(kv, p, i) && (best < 0 || p->info[i].worth < p->info[best].worth))
            best = i;
    return best;
}

/* The kept page that goes next; -1: none can yet. */
static int32_t page_to_evict(const mn_kv *kv, uint32_t group) {
    const mn_page_pool *p = &kv->pools[group];
    if (mn_group_is_state(kv, group))
        return least_worth(kv, p);
    return page_is_idle(kv, p, p->first) ? p->first : -1;
}

bool mn_page_make_room(mn_kv *kv, uint32_t group, uint32_t n) {
    mn_page_pool *p = &kv->pools[group];
    while (p->n_free < n) {
        const int32_t page = page_to_evict(kv, group);
        if (page < 0)
            return false;
        p->aged = MN_MAX(p->aged, p->info[page].worth);
        if (!mn_host_keep(kv, group, page))
            mn_prefix_evict(kv, group, page);
    }
    return true;
}

uint32_t mn_page_coming(const mn_kv *kv, uint32_t group) {
    const mn_page_pool *p = &kv->pools[group];
    return p->n_free + p->n_limbo + p->n_kept;
}

/* ---- after a completion ---------------------------------------------------------------------- */
/* Pages whose last step is complete are free; the others stay in limbo, in order. */
static void pool_settle(const mn_kv *kv, mn_page_pool *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_limbo; i++) {
        const mn_limbo_page page = p->limbo[i];
        if (page.after <= kv->clock->completed)
            p->free[p->n_free++] = page.page;
        else
            p->limbo[n++] = page;
    }
    p->n_limbo = n;
}

void mn_page_pools_settle(mn_kv *kv) {
    for (uint32_t i = 0; i < kv->n_groups; i++)
        pool_settle(kv, &kv->pools[i]);
}
