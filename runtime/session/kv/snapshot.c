/* snapshot.c -- what a sequence remembered at a position, as a value: taken from a slot, given to
 * other slots, freed. Pages are held, not copied; a last one that is not full is copied where a
 * slot begins with it, since that slot will write to it. */
#include "session/kv/pool.h"

/* The state behind n_positions; none where they are 0. */
static mn_status take_state(mn_kv *kv, uint32_t slot, uint32_t n_positions, mn_snapshot_group *g,
                            mn_error *err) {
    const mn_kv_state *s = mn_state_at(kv, slot, n_positions);
    *g = (mn_snapshot_group){.pages = mn_alloc(1, sizeof *g->pages)};
    if (!g->pages)
        return mn_fail_memory(err, sizeof *g->pages);
    if (!s)
        return MN_OK;
    g->pages[g->hi++] = s->page;
    mn_page_hold(kv, (uint32_t)kv->state_group, s->page);
    return MN_OK;
}

/* Entries of the row that positions [0, n_positions) are in. */
static mn_entries entries_of(const mn_kv *kv, uint32_t group, uint32_t slot, uint32_t n_positions) {
    const uint32_t lo = mn_tables_entries(kv, group, slot)->lo;
    const uint32_t n = mn_group_positions(kv, group, slot, n_positions);
    return (mn_entries){lo, MN_MAX(lo, mn_pages_of(kv, group, n))};
}

mn_status mn_snapshot_take(mn_kv *kv, uint32_t slot, uint32_t n_positions, mn_snapshot *out,
                           mn_error *err) {
    *out = (mn_snapshot){.position = n_positions, .engines = kv->engines};
    if (kv->slots[slot].has_text && n_positions)
        out->n_text = kv->slots[slot].n_text;
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        mn_snapshot_group *g = &out->group[i];
        if (mn_group_is_state(kv, i)) {
            const mn_status st = take_state(kv, slot, n_positions, g, err);
            if (st)
                return st;
            continue;
        }
        const int32_t *row = mn_tables_row(kv, i, slot);
        const mn_entries e = entries_of(kv, i, slot, n_positions);
        g->lo = e.lo;
        g->hi = e.lo;
        g->pages = mn_alloc(e.hi - e.lo + 1ull, sizeof *g->pages);
        if (!g->pages)
            return mn_fail_memory(err, (e.hi - e.lo + 1ull) * sizeof *g->pages);
        for (; g->hi < e.hi; g->hi++) {
            g->pages[g->hi - g->lo] = row[g->hi];
            mn_page_hold(kv, i, row[g->hi]);
        }
    }
    return MN_OK;
}

/* The slot gets a copy of the first n positions of a page behind its others. */
static mn_status restore_part(mn_kv *kv, uint32_t group, uint32_t slot, int32_t page, uint32_t n,
                              mn_error *err) {
    mn_entries *e = mn_tables_entries(kv, group, slot);
    int32_t *to = mn_tables_row(kv, group, slot) + e->hi;
    if (!mn_page_make_room(kv, group, 1))
        return mn_fail(err, MN_OUT_OF_MEMORY, "the KV cache has no free page");
    mn_page_take(kv, group, to);
    mn_tables_changed(kv, group, slot, e->hi, e->hi + 1);
    e->hi++;
    const mn_page_copy copy = {
        .src_page = (uint32_t)page, .dst_page = (uint32_t)*to, .n_tokens = n};
    return mn_engine_copy_page(kv->engine, group, copy, err);
}

static mn_status restore_group(mn_kv *kv, const mn_snapshot *from, uint32_t group, uint32_t slot,
                               mn_error *err) {
    const mn_snapshot_group *g = &from->group[group];
    if (mn_group_is_state(kv, group)) {
        if (g->hi > g->lo)
            mn_state_begin(kv, slot, from->position, g->pages[0]);
        return MN_OK;
    }
    const uint32_t per = kv->layout[group].page_tokens;
    const bool is_final = kv->layout[group].of_text; /* nothing is written behind a text */
    const uint32_t full = is_final ? g->hi : MN_MAX(g->lo, MN_MIN(g->hi, from->position / per));
    mn_entries *e = mn_tables_entries(kv, group, slot);
    int32_t *row = mn_tables_row(kv, group, slot);
    *e = (mn_entries){g->lo, full};
    for (uint32_t i = g->lo; i < full; i++) {
        row[i] = g->pages[i - g->lo];
        mn_page_hold(kv, group, row[i]);
    }
    mn_tables_changed(kv, group, slot, g->lo, full);
    if (full == g->hi)
        return MN_OK;
    return restore_part(kv, group, slot, g->pages[full - g->lo], from->position % per, err);
}

mn_status mn_snapshot_restore(mn_kv *kv, const mn_snapshot *from, uint32_t slot, mn_error *err) {
    mn_status st = MN_OK;
    if (from->engines != kv->engines)
        return mn_fail(err, MN_INVALID, "a snapshot of engine %u, expected one of engine %u",
                       from->engines, kv->engines);
    for (uint32_t i = 0; i < kv->n_groups && !st; i++)
        st = restore_group(kv, from, i, slot, err);
    kv->slots[slot].has_text = !st && from->n_text;
    if (from->n_text)
        kv->slots[slot].n_text = from->n_text;
    return st;
}

void mn_snapshot_free(mn_kv *kv, mn_snapshot *s) {
    for (uint32_t i = 0; i < MN_MAX_KV_GROUP; i++) {
        const mn_snapshot_group *g = &s->group[i];
        for (uint32_t k = g->hi; k-- > g->lo && s->engines == kv->engines;)
            mn_page_give(kv, i, g->pages[k - g->lo]);
        mn_free(g->pages);
    }
    *s = (mn_snapshot){0};
}

mn_status mn_pages_share(mn_kv *kv, uint32_t from, uint32_t to, mn_memory_text text,
                         uint32_t n_positions, mn_error *err) {
    mn_snapshot s;
    mn_pages_trim(kv, from, text); /* else the fork would keep more than its share */
    mn_status st = mn_snapshot_take(kv, from, n_positions, &s, err);
    if (!st)
        st = mn_snapshot_restore(kv, &s, to, err);
    mn_snapshot_free(kv, &s);
    return st;
}
