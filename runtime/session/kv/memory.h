/* memory.h -- what sequences remember, as values: the layout of each KV group, and what the rest of
 * a session says of a sequence when it asks for memory.
 *
 * A group is what layers store for a sequence in one way (MN_MEMORY_* of plugin.h):
 *
 *   PAGED  keys and values of each position, in pages that a page table names. Sequences share
 *          pages, the prefix cache names them, a sequence can be cut at any position. A group
 *          with a window holds the pages that rows to come can see. A group of the text that an
 *          encoder reads holds all of it, whatever the sequence's length is.
 *   STATE  what recurrent layers and short convolutions remember behind the last position: one
 *          page. It has no positions: what it was at an earlier one is known if a page was kept
 *          there alone. A step reads one page and leaves another, so that keeping one costs no
 *          copy. A session has one such group at most.
 *
 * Every question of the rest of a session is one about positions (kv.h), so that the answer does
 * not depend on the layout: how many positions fit, how many of the first n can be used again
 * (mn_kv_reach), what is left behind a cut, what a fork begins with. A group that cannot go back to
 * position n answers with an earlier one, at worst 0: the sequence is computed again from there. */
#ifndef MN_MEMORY_H
#define MN_MEMORY_H
#include "engine/engine.h"

/* One KV group of the engine that stands. */
typedef struct {
    uint32_t kind;        /* MN_MEMORY_* */
    int64_t window;       /* positions that a row sees, its own among them; 0: all */
    uint32_t page_tokens; /* PAGED: positions of a page */
    uint32_t row;         /* int32 of a sequence's row of the table */
    uint32_t n_pages;     /* of them, entries that are in use */
    uint32_t n_total;     /* pages that there are */
    uint32_t n_own;       /* of them, a sequence's share (mn_kv_pages_of_one) */
    uint32_t table;       /* int32 of the packed inputs where the page table begins */
    bool of_text;         /* PAGED: its positions are positions of the encoder's text */
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
 * it remembers nothing. */
typedef struct {
    uint32_t lo, hi; /* entries of the row of the page table: [lo, hi); STATE: [0, 1) or [0, 0) */
    int32_t *pages;  /* [hi - lo], each held */
} mn_snapshot_group;
typedef struct {
    uint32_t position, engines;
    uint32_t n_text; /* of the text that an encoder has read; 0: none */
    mn_snapshot_group group[MN_MAX_KV_GROUP];
} mn_snapshot;
#endif
