/* memory.h -- what sequences remember, as values: the layout of each KV group, and what the rest of
 * a session says of a sequence when it asks for memory.
 *
 * A group is what layers store for a sequence in one way. Three layouts are told apart:
 *
 *   PAGED     keys and values of each position, in pages that a page table names. Sequences share
 *             pages, the prefix cache names them, a sequence can be cut at any position. A group
 *             with a window holds the pages that rows to come can see.
 *   RING      keys and values of the last `window` positions, in memory of the slot: position p
 *             lies at p modulo its length. Nothing is shared. It can be cut by as many positions as
 *             the ring is longer than the window.
 *   PER_SLOT  a state of `state_bytes` after the last position (recurrent layers, short
 *             convolutions), in memory of the slot. It has no positions: what it was at an earlier
 *             one is known from a snapshot alone.
 *
 * Every question of the rest of a session is one about positions (kv.h), so that the answer does
 * not depend on the layout: how many positions fit, how many of the first n can be used again
 * (mn_kv_reach), what is left behind a cut, what a fork begins with. A group that cannot go back to
 * position n answers with an earlier one, at worst 0: the sequence is computed again from there.
 *
 * Engines have PAGED groups alone as yet (mn_kv_place). What the other two have to answer, by
 * function of kv.h:
 *
 *   mn_kv_begin, mn_kv_forget   the slot's state is new: steps say so to the device, in a bit per
 *                               slot of their inputs
 *   mn_pages_reserve            true: the memory is the slot's own
 *   mn_kv_reach                 PER_SLOT: the newest position up to n that the state or a snapshot
 *                               stands at; RING: n, while the ring still has its window
 *   mn_pages_cut                to such a position. Rejected drafts: the snapshot of before the
 *                               round and the inputs of its rows are there, and the device computes
 *                               the accepted rows again
 *   mn_snapshot_take, _restore  a copy of the state, in device or host memory, where PAGED holds
 *                               pages; forks and the prefix cache use it
 *   mn_prefix_add, _take        a node names a snapshot every so many blocks, and a request can
 *                               begin behind such a node alone */
#ifndef MN_MEMORY_H
#define MN_MEMORY_H
#include "engine/engine.h"

/* One KV group of the engine that stands. */
typedef struct {
    uint32_t kind;        /* MN_MEMORY_* */
    int64_t window;       /* positions that a row sees, its own among them; 0: all */
    uint32_t page_tokens; /* PAGED: positions of a page */
    uint32_t n_pages;     /* entries of a sequence's row of the page table that are in use */
    uint32_t n_total;     /* pages that there are */
    uint32_t n_own;       /* of them, a sequence's share (mn_kv_pages_of_one) */
    uint32_t table;       /* int32 of the packed inputs where the page table begins */
    uint64_t state_bytes; /* PER_SLOT: of one sequence */
} mn_group_memory;

/* A sequence, as far as its memory goes: tokens[0, n_tokens) are known, positions [0, n_stored) are
 * stored or will be by steps that are enqueued. n_stored may be above n_tokens: the device draws
 * what it stores next. */
typedef struct {
    const int32_t *tokens;
    uint32_t n_tokens, n_stored;
} mn_memory_text;

/* What a sequence remembered at a position: a value that outlives the sequence, until its owner
 * frees it. It holds the pages that rows from `position` on can see; with another engine (engines)
 * it remembers nothing. States of PER_SLOT groups will be copies here, in device or host memory. */
typedef struct {
    uint32_t lo, hi; /* entries of the row of the page table: [lo, hi) */
    int32_t *pages;  /* [hi - lo], each held */
} mn_snapshot_group;
typedef struct {
    uint32_t position, engines;
    mn_snapshot_group group[MN_MAX_KV_GROUP];
} mn_snapshot;
#endif
