/* pages.c -- the page tables of the KV cache, one per KV group: reserve, share, give back.
 *
 * A window group keeps only what rows to come can see. "To come" is counted from what is certain,
 * not from what is enqueued: when a stop id turns up some steps late, the sequence goes on from
 * there, and its window reaches back from there. A page that is given back is reused once the steps
 * enqueued so far are complete. */
#include "session/session.h"
#include <string.h>

/* The sequence's row of the group's page table. */
static int32_t *row(const mn_session *s, uint32_t group, uint32_t seq) {
    return s->packed + mn_engine_row(s->engine, group, seq);
}

static uint32_t n_groups(const mn_session *s) {
    return s->graph->hp.n_kv;
}

mn_status mn_pages_create(mn_session *s, mn_error *err) {
    for (uint32_t i = 0; i < n_groups(s); i++) {
        mn_page_pool *p = &s->pools[i];
        const uint32_t n = s->engine->group[i].n_total;
        p->n_total = n;
        p->refs = mn_calloc(n, sizeof *p->refs);
        p->free = mn_calloc(n, sizeof *p->free);
        p->limbo = mn_calloc(n, sizeof *p->limbo);
        if (!p->refs || !p->free || !p->limbo)
            return mn_fail_memory(err, (uint64_t)n * 16);
        for (uint32_t k = 0; k < n; k++)
            p->free[p->n_free++] = (int32_t)(n - 1 - k);
        for (uint32_t seq = 0; seq < s->n_seq; seq++)
            memset(row(s, i, seq), 0xff, s->engine->row_pages * sizeof(int32_t));
    }
    return MN_OK;
}

void mn_pages_free(mn_session *s) {
    for (uint32_t i = 0; i < MN_MAX_KV_GROUP; i++) {
        mn_page_pool *p = &s->pools[i];
        mn_free(p->refs);
        mn_free(p->free);
        mn_free(p->limbo);
        *p = (mn_page_pool){0};
    }
}

/* Free pages that sequences to come are sure of: a fork cannot wait for steps in flight. Where a
 * sequence may hold a whole row, all have their rows. */
static uint32_t kept_for_others(const mn_session *s, uint32_t group) {
    uint32_t n_unused = 0;
    if (!s->graph->hp.kv[group].window || s->completed == s->enqueued)
        return 0;
    for (uint32_t i = 0; i < s->n_seq; i++)
        n_unused += !s->seqs[i].used;
    return n_unused * s->engine->group[group].n_own;
}

/* Pages for positions [0, n_positions) of the sequence; false: too few are free, nothing changed. */
static bool reserve(mn_session *s, uint32_t group, uint32_t seq, uint32_t n_positions) {
    mn_sequence *q = &s->seqs[seq];
    mn_page_pool *p = &s->pools[group];
    const uint32_t per = s->engine->group[group].page_tokens;
    const uint32_t want = (n_positions + per - 1) / per;
    const uint32_t hi = q->pages[group].hi;
    if (want <= hi)
        return true;
    if (p->n_free < want - hi + kept_for_others(s, group))
        return false;
    int32_t *entries = row(s, group, seq);
    for (uint32_t i = hi; i < want; i++) {
        p->n_free--;
        const int32_t page = p->free[p->n_free];
        p->refs[page] = 1;
        entries[i] = page;
    }
    q->pages[group].hi = want;
    return true;
}

bool mn_pages_reserve(mn_session *s, uint32_t seq, uint32_t n_positions) {
    bool ok = true;
    for (uint32_t i = 0; i < n_groups(s) && ok; i++)
        ok = reserve(s, i, seq, n_positions);
    return ok;
}

/* Entries [lo, hi) of the row no longer hold their pages. */
static void give_back(mn_session *s, uint32_t group, uint32_t seq, uint32_t lo, uint32_t hi) {
    mn_page_pool *p = &s->pools[group];
    int32_t *entries = row(s, group, seq);
    for (uint32_t i = lo; i < hi; i++) {
        const int32_t page = entries[i];
        p->refs[page]--;
        if (!p->refs[page])
            p->limbo[p->n_limbo++] = (mn_limbo_page){page, s->enqueued};
        entries[i] = -1;
    }
}

void mn_pages_drop(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    for (uint32_t i = 0; i < n_groups(s) && s->engine; i++)
        give_back(s, i, seq, q->pages[i].lo, q->pages[i].hi);
    memset(q->pages, 0, sizeof q->pages);
    mn_pages_settle(s);
}

void mn_pages_trim(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    const uint32_t next = MN_MIN(q->n_enqueued, q->n_tokens ? q->n_tokens - 1 : 0);
    bool changed = false;
    for (uint32_t i = 0; i < n_groups(s); i++) {
        const int64_t window = s->graph->hp.kv[i].window;
        const uint32_t per = s->engine->group[i].page_tokens;
        if (!window || next < window)
            continue;
        /* a row at `next` sees positions from next - window + 1 on */
        const uint32_t first = (uint32_t)(next - window + 1) / per;
        const uint32_t lo = MN_MIN(first, q->pages[i].hi);
        if (lo <= q->pages[i].lo)
            continue;
        give_back(s, i, seq, q->pages[i].lo, lo);
        q->pages[i].lo = lo;
        changed = true;
    }
    if (changed)
        mn_pages_settle(s);
}

/* Pages whose last step is complete are free; the others stay in limbo, in order. */
static void settle(mn_session *s, mn_page_pool *p) {
    uint32_t keep = 0;
    for (uint32_t i = 0; i < p->n_limbo; i++) {
        const mn_limbo_page page = p->limbo[i];
        if (page.after <= s->completed)
            p->free[p->n_free++] = page.page;
        else
            p->limbo[keep++] = page;
    }
    p->n_limbo = keep;
}

void mn_pages_settle(mn_session *s) {
    for (uint32_t i = 0; i < n_groups(s); i++)
        settle(s, &s->pools[i]);
}

/* The first position that a row at `position` of the group sees. */
static uint32_t first_seen(const mn_session *s, uint32_t group, uint32_t position) {
    const int64_t window = s->graph->hp.kv[group].window;
    return window && position >= window ? (uint32_t)(position - window + 1) : 0;
}

bool mn_pages_reach(const mn_session *s, uint32_t seq, uint32_t position) {
    for (uint32_t i = 0; i < n_groups(s); i++) {
        const uint32_t per = s->engine->group[i].page_tokens;
        if (s->seqs[seq].pages[i].lo > first_seen(s, i, position) / per)
            return false;
    }
    return true;
}

/* A copy of the entry's page, which others hold, too: the sequence will write to it. */
static mn_status own_page(mn_session *s, uint32_t group, uint32_t seq, uint32_t entry,
                          uint32_t n_tokens, mn_error *err) {
    mn_page_pool *p = &s->pools[group];
    int32_t *entries = row(s, group, seq);
    const int32_t from = entries[entry];
    if (p->refs[from] < 2)
        return MN_OK;
    if (!p->n_free)
        return mn_fail(err, MN_OUT_OF_MEMORY, "the KV cache has no free page");
    p->n_free--;
    const int32_t to = p->free[p->n_free];
    p->refs[to] = 1;
    p->refs[from]--;
    entries[entry] = to;
    const mn_page_copy copy = {
        .src_page = (uint32_t)from, .dst_page = (uint32_t)to, .n_tokens = n_tokens};
    return mn_engine_copy_page(s->engine, group, copy, err);
}

mn_status mn_pages_cut(mn_session *s, uint32_t seq, uint32_t n_positions, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < n_groups(s) && !st; i++) {
        const uint32_t per = s->engine->group[i].page_tokens;
        const uint32_t keep = (n_positions + per - 1) / per;
        if (keep < q->pages[i].hi) {
            give_back(s, i, seq, MN_MAX(keep, q->pages[i].lo), q->pages[i].hi);
            q->pages[i].hi = keep;
            q->pages[i].lo = MN_MIN(q->pages[i].lo, keep);
        }
        if (n_positions % per && keep <= q->pages[i].hi)
            st = own_page(s, i, seq, keep - 1, n_positions % per, err);
    }
    mn_pages_settle(s);
    return st;
}

/* Whole pages of the first n_positions are shared; of a last one that is not full the fork gets a
 * copy, since both will write to it. */
static mn_status share(mn_session *s, uint32_t group, uint32_t from, uint32_t to,
                       uint32_t n_positions, mn_error *err) {
    mn_sequence *a = &s->seqs[from];
    mn_sequence *b = &s->seqs[to];
    const uint32_t per = s->engine->group[group].page_tokens;
    const uint32_t full = n_positions / per;
    const uint32_t lo = a->pages[group].lo;
    const int32_t *src = row(s, group, from);
    int32_t *dst = row(s, group, to);
    b->pages[group].lo = lo;
    b->pages[group].hi = lo;
    for (uint32_t i = lo; i < full; i++) {
        s->pools[group].refs[src[i]]++;
        dst[i] = src[i];
        b->pages[group].hi = i + 1;
    }
    if (n_positions == full * per)
        return MN_OK;
    if (!reserve(s, group, to, n_positions))
        return mn_fail(err, MN_OUT_OF_MEMORY, "the KV cache has no free page");
    const mn_page_copy copy = {.src_page = (uint32_t)src[full],
                               .dst_page = (uint32_t)dst[full],
                               .n_tokens = n_positions % per};
    return mn_engine_copy_page(s->engine, group, copy, err);
}

mn_status mn_pages_share(mn_session *s, uint32_t from, uint32_t to, uint32_t n_positions,
                         mn_error *err) {
    mn_status st = MN_OK;
    mn_pages_trim(s, from); /* else the fork would keep more than its share */
    for (uint32_t i = 0; i < n_groups(s) && !st; i++)
        st = share(s, i, from, to, n_positions, err);
    return st;
}
