/* pages.c -- the page tables of the KV cache, one per KV group: reserve, share, give back.
 *
 * A window group keeps only what rows to come can see. "To come" is counted from what is certain,
 * not from what is enqueued: when a stop id turns up some steps late, the sequence goes on from
 * there, and its window reaches back from there. A page that is given back is reused once the steps
 * enqueued so far are complete. Forks are snapshots of a slot that another one begins with
 * (snapshot.c). */
#include "session/kv/pool.h"
#include <string.h>

uint32_t mn_pages_first_seen(const mn_kv *kv, uint32_t group, uint32_t position) {
    const int64_t window = kv->layout[group].window;
    return window && position >= window ? (uint32_t)(position - window + 1) : 0;
}

void mn_tables_changed(mn_kv *kv, uint32_t group, uint32_t slot, uint32_t lo, uint32_t hi) {
    mn_entries *c = &kv->changed[group * kv->n_seq + slot];
    if (lo >= hi)
        return;
    c->lo = c->hi > c->lo ? MN_MIN(c->lo, lo) : lo;
    c->hi = MN_MAX(c->hi, hi);
}

/* The ranges of one group's table; a small table, or one with changes in many rows, goes whole. */
static uint32_t table_changes(const mn_kv *kv, uint32_t group, mn_input_range *to) {
    enum { SMALL = 4096 /* int32 */, MANY = 16 };
    const uint32_t table = kv->layout[group].table;
    const uint32_t row = kv->layout[group].row;
    const uint32_t size = kv->n_seq * row;
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < kv->n_seq; slot++) {
        const mn_entries c = kv->changed[group * kv->n_seq + slot];
        if (c.hi > c.lo)
            to[n++] = (mn_input_range){table + slot * row + c.lo, c.hi - c.lo};
    }
    if (!n || (size > SMALL && n <= MANY))
        return n;
    to[0] = (mn_input_range){table, size};
    return 1;
}

uint32_t mn_tables_changes(const mn_kv *kv, mn_input_range *to) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < kv->n_groups; i++)
        n += table_changes(kv, i, to + n);
    return n;
}

void mn_tables_written(mn_kv *kv) {
    memset(kv->changed, 0, (size_t)kv->n_groups * kv->n_seq * sizeof *kv->changed);
}

/* How many pages the sequence lacks for positions [0, n_positions). */
static uint32_t lacking(const mn_kv *kv, uint32_t group, uint32_t slot, uint32_t n_positions) {
    if (mn_group_is_state(kv, group))
        return 0;
    const uint32_t want = mn_pages_of(kv, group, mn_group_positions(kv, group, slot, n_positions));
    const uint32_t hi = mn_tables_entries(kv, group, slot)->hi;
    return want > hi ? want - hi : 0;
}

/* The row grows by n pages, which are free. */
static void grow(mn_kv *kv, uint32_t group, uint32_t slot, uint32_t n) {
    int32_t *row = mn_tables_row(kv, group, slot);
    mn_entries *e = mn_tables_entries(kv, group, slot);
    const uint32_t from = e->hi;
    for (; e->hi < from + n; e->hi++)
        mn_page_take(kv, group, row + e->hi);
    mn_tables_changed(kv, group, slot, from, e->hi);
}

bool mn_pages_reserve(mn_kv *kv, uint32_t slot, uint32_t n_positions) {
    for (uint32_t i = 0; i < kv->n_groups; i++)
        if (!mn_page_make_room(kv, i, lacking(kv, i, slot, n_positions)))
            return false;
    if (!mn_state_reserve(kv, slot))
        return false;
    for (uint32_t i = 0; i < kv->n_groups; i++)
        grow(kv, i, slot, lacking(kv, i, slot, n_positions));
    return true;
}

bool mn_pages_will_come_with(const mn_kv *kv, uint32_t slot, uint32_t n_positions,
                             uint32_t n_more) {
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        const mn_group_memory *l = &kv->layout[i];
        if (mn_group_is_state(kv, i))
            continue;
        uint64_t want = lacking(kv, i, slot, n_positions);
        if (l->window) /* those that it gives back on its way can come again */
            want = MN_MIN(want, l->n_own);
        if (mn_page_coming(kv, i) < MN_MIN(want + n_more, l->n_total))
            return false;
    }
    return true;
}

bool mn_pages_will_come(const mn_kv *kv, uint32_t slot, uint32_t n_positions) {
    for (uint32_t i = 0; i < kv->n_groups; i++)
        if (mn_page_coming(kv, i) < lacking(kv, i, slot, n_positions))
            return false;
    return true;
}

/* The last go first, so that the prefix cache loses the ends of texts before their beginnings. */
void mn_pages_give_back(mn_kv *kv, uint32_t group, uint32_t slot, uint32_t lo, uint32_t hi) {
    int32_t *entries = mn_tables_row(kv, group, slot);
    for (uint32_t i = hi; i-- > lo;) {
        mn_page_give(kv, group, entries[i]);
        entries[i] = -1;
    }
    mn_tables_changed(kv, group, slot, lo, hi);
}

void mn_pages_drop(mn_kv *kv, uint32_t slot, mn_memory_text text) {
    mn_files_load_end(kv, slot);
    if (kv->engine)
        mn_prefix_add(kv, slot, text);
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        mn_entries *e = mn_tables_entries(kv, i, slot);
        if (kv->engine)
            mn_pages_give_back(kv, i, slot, e->lo, e->hi);
        *e = (mn_entries){0};
    }
    kv->slots[slot].has_text = false;
    if (kv->engine)
        mn_state_cut(kv, slot, 0);
    mn_page_pools_settle(kv);
}

void mn_pages_trim(mn_kv *kv, uint32_t slot, mn_memory_text text) {
    const uint32_t next = MN_MIN(text.n_stored, text.n_tokens ? text.n_tokens - 1 : 0);
    bool changed = false;
    mn_prefix_add(kv, slot, text);
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        const int64_t window = kv->layout[i].window; /* of states 0 */
        mn_entries *e = mn_tables_entries(kv, i, slot);
        if (!window || next < window)
            continue;
        const uint32_t lo = MN_MIN(mn_pages_first(kv, i, next), e->hi);
        if (lo <= e->lo)
            continue;
        mn_pages_give_back(kv, i, slot, e->lo, lo);
        e->lo = lo;
        changed = true;
    }
    if (changed)
        mn_page_pools_settle(kv);
}

bool mn_pages_any(const mn_kv *kv, uint32_t slot) {
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        const mn_entries *e = mn_tables_entries(kv, i, slot);
        if (e->hi > e->lo)
            return true;
    }
    return kv->slots[slot].n_states > 0;
}

uint32_t mn_kv_reach(const mn_kv *kv, uint32_t slot, uint32_t n_positions) {
    const uint32_t reach = mn_state_reach(kv, slot, n_positions);
    for (uint32_t i = 0; i < kv->n_groups; i++)
        if (!mn_group_is_state(kv, i) &&
            mn_tables_entries(kv, i, slot)->lo > mn_pages_first(kv, i, reach))
            return 0;
    return reach;
}

/* A copy of the entry's page, which others hold or may use again: the sequence will write to it. */
static mn_status own_page(mn_kv *kv, uint32_t group, uint32_t slot, uint32_t entry,
                          uint32_t n_tokens, mn_error *err) {
    const mn_page_pool *p = &kv->pools[group];
    int32_t *entries = mn_tables_row(kv, group, slot);
    const int32_t from = entries[entry];
    if (p->refs[from] < 2 && p->info[from].node < 0)
        return MN_OK;
    if (!mn_page_make_room(kv, group, 1))
        return mn_fail(err, MN_OUT_OF_MEMORY, "the KV cache has no free page");
    mn_page_take(kv, group, &entries[entry]);
    mn_tables_changed(kv, group, slot, entry, entry + 1);
    const mn_page_copy copy = {
        .src_page = (uint32_t)from, .dst_page = (uint32_t)entries[entry], .n_tokens = n_tokens};
    mn_status st = mn_engine_copy_page(kv->engine, group, copy, err);
    mn_page_give(kv, group, from);
    return st;
}

static mn_status cut_group(mn_kv *kv, uint32_t group, uint32_t slot, uint32_t n_positions,
                           mn_error *err) {
    if (kv->layout[group].of_text && n_positions)
        return MN_OK; /* the text is as long as ever */
    const uint32_t rest = n_positions % kv->layout[group].page_tokens;
    const uint32_t keep = mn_pages_of(kv, group, n_positions);
    mn_entries *e = mn_tables_entries(kv, group, slot);
    if (keep < e->hi) {
        mn_pages_give_back(kv, group, slot, MN_MAX(keep, e->lo), e->hi);
        e->hi = keep;
        e->lo = MN_MIN(e->lo, keep);
    }
    if (!rest || keep > e->hi)
        return MN_OK;
    return own_page(kv, group, slot, keep - 1, rest, err);
}

/* The prefix cache looks at the slot's blocks anew, since those behind the cut get other tokens. */
static void forget_blocks(mn_kv *kv, uint32_t slot, uint32_t n_positions) {
    mn_kv_slot *q = &kv->slots[slot];
    if (q->n_blocks * kv->prefix.block <= n_positions)
        return;
    q->n_blocks = 0;
    q->hash[0] = q->salt;
    q->hash[1] = q->adapter;
}

mn_status mn_pages_cut(mn_kv *kv, uint32_t slot, uint32_t n_positions, mn_error *err) {
    mn_status st = MN_OK;
    mn_files_load_end(kv, slot);
    forget_blocks(kv, slot, n_positions);
    mn_state_cut(kv, slot, n_positions);
    kv->slots[slot].has_text = kv->slots[slot].has_text && n_positions;
    for (uint32_t i = 0; i < kv->n_groups && !st; i++)
        if (!mn_group_is_state(kv, i))
            st = cut_group(kv, i, slot, n_positions, err);
    mn_page_pools_settle(kv);
    return st;
}
