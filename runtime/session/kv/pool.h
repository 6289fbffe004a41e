/* pool.h -- pages and rows within the room: what pages.c and prefix.c share with pool.c. */
#ifndef MN_PAGE_POOL_H
#define MN_PAGE_POOL_H
#include "session/kv/kv.h"

mn_status mn_page_pools_create(mn_kv *kv, mn_error *err); /* all are free */
void mn_page_pools_free(mn_kv *kv);
bool mn_page_take(mn_kv *kv, uint32_t group, int32_t *page);  /* a free one; false: none is */
void mn_page_hold(mn_kv *kv, uint32_t group, int32_t page);   /* one holder more */
void mn_page_give(mn_kv *kv, uint32_t group, int32_t page);   /* one holder less */
void mn_page_forget(mn_kv *kv, uint32_t group, int32_t page); /* no node names it any more */
/* Evicts kept pages until n are free; false: fewer are. */
bool mn_page_make_room(mn_kv *kv, uint32_t group, uint32_t n);
/* Pages without a holder: free, or free as soon as steps in flight are complete. */
uint32_t mn_page_coming(const mn_kv *kv, uint32_t group);

/* The sequence has stored a block that was not known before. */
void mn_files_note(mn_kv *kv, const uint64_t hash[2]);

/* Pages of the group in a block of the prefix cache. */
static inline uint32_t mn_prefix_pages(const mn_kv *kv, uint32_t group) {
    const mn_group_memory *l = &kv->layout[group];
    return l->kind == MN_MEMORY_STATE ? 1 : kv->prefix.block / l->page_tokens;
}
/* The node's pages of the group: [mn_prefix_pages], -1: it names none. */
static inline int32_t *mn_prefix_pages_of(const mn_kv *kv, int32_t node, uint32_t group) {
    const mn_prefix *x = &kv->prefix;
    return x->pages + (size_t)node * x->row + x->at[group];
}
/* The node with the hash; -1: unknown. */
int32_t mn_prefix_find(const mn_prefix *x, const uint64_t h[2]);
/* The hash of block b of the tokens, behind what *h stands for. */
void mn_prefix_hash(const mn_prefix *x, const int32_t *tokens, uint32_t b, uint64_t h[2]);
mn_status mn_prefix_create(mn_kv *kv, mn_error *err);
void mn_prefix_free(mn_kv *kv);
/* The kept page is needed for something else. */
void mn_prefix_evict(mn_kv *kv, uint32_t group, int32_t page);
/* What the node names of the STATE group, wherever it is, is lost. */
void mn_prefix_lose_state(mn_kv *kv, int32_t node);

/* ---- host.c, within the room ----------------------------------------------------------------- */
/* States that may be in host memory at most. */
uint32_t mn_host_room(const mn_kv *kv);
/* The kept page, which is idle, is needed for something else: the node that names it has its bytes
 * in host memory from now on, and the page is as free as with mn_prefix_evict. false: nothing has
 * changed, as it is no state, or there is no room for it. */
bool mn_host_keep(mn_kv *kv, uint32_t group, int32_t page);
/* What the node has in host memory is in a kept page again; the slot's own states give way first.
 * false: it is not, for no page is free yet. Without anything there true. */
bool mn_host_bring_back(mn_kv *kv, uint32_t slot, int32_t node);
void mn_host_forget(mn_kv *kv, int32_t node); /* what the node has there goes */
void mn_host_clear(mn_kv *kv);                /* so does everything */

/* The slot's row of the group's page table. */
static inline int32_t *mn_tables_row(const mn_kv *kv, uint32_t group, uint32_t slot) {
    return kv->packed + kv->layout[group].table + (size_t)slot * kv->layout[group].row;
}
/* The entries of that row which hold a page. */
static inline mn_entries *mn_tables_entries(const mn_kv *kv, uint32_t group, uint32_t slot) {
    return &kv->slots[slot].pages[group];
}
/* How many of n positions of a slot the group stores; a group of texts: the whole text, or
 * nothing. */
static inline uint32_t mn_group_positions(const mn_kv *kv, uint32_t group, uint32_t slot,
                                          uint32_t n) {
    if (!kv->layout[group].of_text)
        return n;
    return n ? kv->slots[slot].n_text : 0;
}
/* Pages that positions [0, n_positions) are in. */
static inline uint32_t mn_pages_of(const mn_kv *kv, uint32_t group, uint32_t n_positions) {
    const uint32_t per = kv->layout[group].page_tokens;
    return (n_positions + per - 1) / per;
}
/* Entries [lo, hi) of the row were written. */
void mn_tables_changed(mn_kv *kv, uint32_t group, uint32_t slot, uint32_t lo, uint32_t hi);
/* Entries [lo, hi) of the row no longer hold their pages. */
void mn_pages_give_back(mn_kv *kv, uint32_t group, uint32_t slot, uint32_t lo, uint32_t hi);
/* The first position that a row at `position` sees of the group; the entry of its page. */
uint32_t mn_pages_first_seen(const mn_kv *kv, uint32_t group, uint32_t position);
static inline uint32_t mn_pages_first(const mn_kv *kv, uint32_t group, uint32_t position) {
    return mn_pages_first_seen(kv, group, position) / kv->layout[group].page_tokens;
}

/* ---- state.c, within the room ---------------------------------------------------------------- */
static inline bool mn_group_is_state(const mn_kv *kv, uint32_t group) {
    return kv->layout[group].kind == MN_MEMORY_STATE;
}
/* A page for what the next step leaves, if it cannot change the last state; false: none is free
 * before steps in flight are complete. */
bool mn_state_reserve(mn_kv *kv, uint32_t slot);
/* Makes a page free: at worst sequences lose states that they could go back to, the slot's first.
 * false: none is before steps in flight are complete. */
bool mn_state_room(mn_kv *kv, uint32_t slot);
/* The slot's state behind `position`; NULL: it holds none. */
const mn_kv_state *mn_state_at(const mn_kv *kv, uint32_t slot, uint32_t position);
/* The newest position up to n_positions behind which the slot has a state; 0: from the start. */
uint32_t mn_state_reach(const mn_kv *kv, uint32_t slot, uint32_t n_positions);
/* Gives back the states behind n_positions; of 0: all. */
void mn_state_cut(mn_kv *kv, uint32_t slot, uint32_t n_positions);
/* A slot without states goes on from a page, which it holds. */
void mn_state_begin(mn_kv *kv, uint32_t slot, uint32_t position, int32_t page);
void mn_state_forget(mn_kv *kv, uint32_t slot); /* the engine is gone */
/* The prefix cache begins to name the page as the state behind `position`, or a text begins there
 * or behind it: from now on it is worth as much as a new one. */
void mn_state_used(mn_kv *kv, int32_t page, uint32_t position);
/* Positions between states that every text keeps: whole blocks of the prefix cache. */
uint32_t mn_state_every(const mn_kv *kv);
#endif
