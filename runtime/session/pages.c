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
    mn_status st = mn_page_pools_create(s, err);
    if (!st)
        st = mn_prefix_create(s, err);
    for (uint32_t i = 0; i < n_groups(s) && !st; i++)
        for (uint32_t seq = 0; seq < s->n_seq; seq++)
            memset(row(s, i, seq), 0xff, s->engine->row_pages * sizeof(int32_t));
    return st;
}

void mn_pages_free(mn_session *s) {
    mn_prefix_free(s);
    mn_page_pools_free(s);
}

uint32_t mn_pages_first_seen(const mn_session *s, uint32_t group, uint32_t position) {
    const int64_t window = s->graph->hp.kv[group].window;
    return window && position >= window ? (uint32_t)(position - window + 1) : 0;
}

void mn_pages_changed(mn_session *s, uint32_t group, uint32_t seq, uint32_t lo, uint32_t hi) {
    mn_row_change *c = &s->changed[group * s->n_seq + seq];
    if (lo >= hi)
        return;
    c->lo = c->hi > c->lo ? MN_MIN(c->lo, lo) : lo;
    c->hi = MN_MAX(c->hi, hi);
}

/* The ranges of one group's table; a small table, or one with changes in many rows, goes whole. */
static uint32_t group_changes(const mn_session *s, uint32_t group, mn_input_range *to) {
    enum { SMALL = 4096 /* int32 */, MANY = 16 };
    const uint32_t table = s->n_seq * s->engine->row_pages;
    uint32_t n = 0;
    for (uint32_t seq = 0; seq < s->n_seq; seq++) {
        const mn_row_change c = s->changed[group * s->n_seq + seq];
        if (c.hi > c.lo)
            to[n++] = (mn_input_range){mn_engine_row(s->engine, group, seq) + c.lo, c.hi - c.lo};
    }
    if (!n || (table > SMALL && n <= MANY))
        return n;
    to[0] = (mn_input_range){mn_engine_row(s->engine, group, 0), table};
    return 1;
}

uint32_t mn_pages_changes(const mn_session *s, mn_input_range *to) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_groups(s); i++)
        n += group_changes(s, i, to + n);
    return n;
}

void mn_pages_written(mn_session *s) {
    memset(s->changed, 0, (size_t)n_groups(s) * s->n_seq * sizeof *s->changed);
}

/* How many pages the sequence lacks for positions [0, n_positions). */
static uint32_t lacking(const mn_session *s, uint32_t group, uint32_t seq, uint32_t n_positions) {
    const uint32_t per = s->engine->group[group].page_tokens;
    const uint32_t want = (n_positions + per - 1) / per;
    const uint32_t hi = s->seqs[seq].pages[group].hi;
    return want > hi ? want - hi : 0;
}

bool mn_pages_reserve(mn_session *s, uint32_t seq, uint32_t n_positions) {
    mn_sequence *q = &s->seqs[seq];
    for (uint32_t i = 0; i < n_groups(s); i++)
        if (!mn_page_make_room(s, i, lacking(s, i, seq, n_positions)))
            return false;
    for (uint32_t i = 0; i < n_groups(s); i++) {
        const uint32_t hi = q->pages[i].hi;
        const uint32_t want = hi + lacking(s, i, seq, n_positions);
        for (uint32_t k = hi; k < want; k++)
            mn_page_take(s, i, row(s, i, seq) + k);
        q->pages[i].hi = want;
        mn_pages_changed(s, i, seq, hi, want);
    }
    return true;
}

bool mn_pages_will_come_with(const mn_session *s, uint32_t seq, uint32_t n_positions,
                             uint32_t n_more) {
    for (uint32_t i = 0; i < n_groups(s); i++) {
        const uint64_t n_total = s->pools[i].n_total;
        uint64_t want = lacking(s, i, seq, n_positions);
        if (s->graph->hp.kv[i].window) /* those that it gives back on its way can come again */
            want = MN_MIN(want, s->engine->group[i].n_own);
        if (mn_page_coming(s, i) < MN_MIN(want + n_more, n_total))
            return false;
    }
    return true;
}

bool mn_pages_will_come(const mn_session *s, uint32_t seq, uint32_t n_positions) {
    for (uint32_t i = 0; i < n_groups(s); i++)
        if (mn_page_coming(s, i) < lacking(s, i, seq, n_positions))
            return false;
    return true;
}

/* Entries [lo, hi) of the row no longer hold their pages; the last go first, so that the prefix
 * cache loses the ends of texts before their beginnings. */
static void give_back(mn_session *s, uint32_t group, uint32_t seq, uint32_t lo, uint32_t hi) {
    int32_t *entries = row(s, group, seq);
    for (uint32_t i = hi; i-- > lo;) {
        mn_page_give(s, group, entries[i]);
        entries[i] = -1;
    }
    mn_pages_changed(s, group, seq, lo, hi);
}

void mn_pages_drop(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    if (s->engine)
        mn_prefix_add(s, seq);
    for (uint32_t i = 0; i < n_groups(s) && s->engine; i++)
        give_back(s, i, seq, q->pages[i].lo, q->pages[i].hi);
    memset(q->pages, 0, sizeof q->pages);
    mn_page_pools_settle(s);
}

void mn_pages_trim(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    const uint32_t next = MN_MIN(q->n_enqueued, q->n_tokens ? q->n_tokens - 1 : 0);
    bool changed = false;
    mn_prefix_add(s, seq);
    for (uint32_t i = 0; i < n_groups(s); i++) {
        const int64_t window = s->graph->hp.kv[i].window;
        const uint32_t per = s->engine->group[i].page_tokens;
        if (!window || next < window)
            continue;
        const uint32_t first = mn_pages_first_seen(s, i, next) / per;
        const uint32_t lo = MN_MIN(first, q->pages[i].hi);
        if (lo <= q->pages[i].lo)
            continue;
        give_back(s, i, seq, q->pages[i].lo, lo);
        q->pages[i].lo = lo;
        changed = true;
    }
    if (changed)
        mn_page_pools_settle(s);
}

bool mn_pages_reach(const mn_session *s, uint32_t seq, uint32_t position) {
    for (uint32_t i = 0; i < n_groups(s); i++) {
        const uint32_t per = s->engine->group[i].page_tokens;
        if (s->seqs[seq].pages[i].lo > mn_pages_first_seen(s, i, position) / per)
            return false;
    }
    return true;
}

/* A copy of the entry's page, which others hold or may use again: the sequence will write to it. */
static mn_status own_page(mn_session *s, uint32_t group, uint32_t seq, uint32_t entry,
                          uint32_t n_tokens, mn_error *err) {
    const mn_page_pool *p = &s->pools[group];
    int32_t *entries = row(s, group, seq);
    const int32_t from = entries[entry];
    if (p->refs[from] < 2 && p->info[from].node < 0)
        return MN_OK;
    if (!mn_page_make_room(s, group, 1))
        return mn_fail(err, MN_OUT_OF_MEMORY, "the KV cache has no free page");
    mn_page_take(s, group, &entries[entry]);
    mn_pages_changed(s, group, seq, entry, entry + 1);
    const mn_page_copy copy = {
        .src_page = (uint32_t)from, .dst_page = (uint32_t)entries[entry], .n_tokens = n_tokens};
    mn_status st = mn_engine_copy_page(s->engine, group, copy, err);
    mn_page_give(s, group, from);
    return st;
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
    mn_page_pools_settle(s);
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
        mn_page_hold(s, group, src[i]);
        dst[i] = src[i];
        b->pages[group].hi = i + 1;
    }
    mn_pages_changed(s, group, to, lo, b->pages[group].hi);
    if (n_positions == full * per)
        return MN_OK;
    if (!mn_page_make_room(s, group, 1))
        return mn_fail(err, MN_OUT_OF_MEMORY, "the KV cache has no free page");
    mn_page_take(s, group, &dst[full]);
    b->pages[group].hi = full + 1;
    mn_pages_changed(s, group, to, full, full + 1);
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
