/* kv.h -- the room of memory: pages of the KV cache, the page tables that programs read, and the
 * prefix cache.
 *
 * It owns the pools of pages, who holds which page, the rows of the page tables, what of them has
 * changed, and which blocks of tokens the prefix cache knows. It knows a sequence as a slot and an
 * mn_memory_text, and of steps only their number (mn_step_clock); it knows neither requests nor
 * programs. All but the slots' records ends with the engine. Used by the thread that steps.
 *
 * A page of a group (pool.c; mn_page_pool):
 *
 *            mn_page_take                   mn_page_give by the last holder,
 *   free -------------------> held          ----------------------------------+
 *    ^                        |  ^          the prefix cache does not name it |
 *    |                        |  |                                            v
 *    |   mn_page_give by the  |  | mn_page_hold: a sequence uses it again   limbo, until the steps
 *    |   last holder, a node  v  |                                            | that were enqueued
 *    |   names it            kept, until the room is needed                   | are complete
 *    |                        |                                               |
 *    |  mn_page_forget, by mn_prefix_evict: free, or limbo like above         |
 *    +------------------------+                                               |
 *    +--------------------------- mn_page_pools_settle -----------------------+
 *
 * A slot's states (state.c; mn_kv_state): the last one is changed in place by each step, unless it
 * is kept: then the step begins with it and leaves another page.
 *
 *            mn_state_step                     mn_state_step: the prefix cache names it, others
 *   none ------------------> one, at the end   begin with it, it is kept, or marked
 *                             |      ^-------------------------------------> two and more
 *                             |          mn_state_settle, mn_pages_cut: back to one that is kept
 *                             +---> none: mn_pages_drop, mn_kv_forget
 *
 * A slot's row of a page table (pages.c; mn_kv_slot):
 *
 *            mn_pages_reserve, mn_prefix_take,
 *            mn_pages_share                          mn_pages_reserve: hi grows
 *   empty -----------------------------> [lo, hi)  <-- mn_pages_trim: lo grows (windows)
 *     ^                                     |          mn_pages_cut: hi shrinks
 *     +-------------------------------------+
 *      mn_pages_drop: its pages are given back
 *      mn_kv_forget: the engine is gone, and its pages with it
 *
 * A block of tokens in the prefix cache (prefix.c; mn_prefix_node):
 *
 *   unknown -- mn_prefix_add: a sequence has stored it --> known, with pages of some or all groups
 *      ^                                                     |
 *      +------ mn_prefix_evict, of the last group -----------+
 *
 * A state that such a block names (host.c; mn_host_state):
 *
 *                   mn_host_keep: its page is needed, and
 *                   there is room in the host's memory
 *   in a kept page ---------------------------------------> in host memory, as bytes
 *         ^ |                                                      |   |
 *         | | mn_prefix_evict                                      |   | the worth of another is
 *         | +--> unknown                       mn_host_bring_back  |   | above its own
 *         +--------------------------------------------------------+   +--> unknown
 *
 * The same block and the files of cache_dir (files.c):
 *
 *            mn_prefix_add: noted       mn_files_save: its pages are read      the step is complete
 *   known ---------------------> noted ---------------------------------> read ---------> disk room
 *                                  | evicted before, or the files have it      | a step failed
 *                                  +---> nothing                               +---> nothing
 *
 * A slot whose beginning is in files and not in memory loads it (mn_files_load): its row grows by
 * blocks that are read, as it grows by rows of its prompt otherwise; it has no rows meanwhile. */
#ifndef MN_KV_H
#define MN_KV_H
#include "session/disk/disk.h"
#include "session/kv/memory.h"

/* Steps so far: number n is in flight from enqueued > n until completed > n. */
typedef struct {
    uint64_t enqueued, completed;
} mn_step_clock;

/* Entries [lo, hi) of a sequence's row of a page table. */
typedef struct {
    uint32_t lo, hi;
} mn_entries;

typedef struct {
    int32_t page;
    uint64_t after;
} mn_limbo_page; /* free once step `after` is complete */

typedef struct {
    int32_t node;       /* of the prefix cache that names the page; -1: none */
    int32_t prev, next; /* among the kept ones */
    uint64_t after;     /* steps enqueued when its last holder gave it back */
    uint64_t worth;     /* of a state: the state of the least worth is evicted first */
} mn_page_info;

/* The pages of one KV group. A page that no sequence holds is free, in limbo, or kept. */
typedef struct {
    uint16_t *refs;       /* [n_total]: sequences and snapshots that hold it */
    int32_t *free;        /* [n_total], n_free of them */
    mn_limbo_page *limbo; /* likewise */
    mn_page_info *info;   /* [n_total] */
    int32_t first, last;  /* kept pages: the one that was given back first */
    uint32_t n_free, n_limbo, n_kept, n_total;
    uint64_t aged; /* worth of the state evicted last; states used from now on are worth more */
} mn_page_pool;

typedef struct {
    uint64_t hash[2];
    int32_t next;      /* with the same head; or the next free node */
    uint32_t n_groups; /* whose pages it names */
    int32_t host;      /* its state is not in a page but in mn_host_states there; -1: it is not */
} mn_prefix_node;

enum { MN_PREFIX_SEEN = 8192 };
/* The prefix cache of one engine; block 0: there is none. */
typedef struct {
    uint32_t block; /* positions */
    uint32_t n_nodes, n_heads;
    uint32_t row, at[MN_MAX_KV_GROUP]; /* pages of a node; where each group's pages begin */
    mn_prefix_node *nodes;
    int32_t *pages; /* [n_nodes][row]; -1 = none */
    int32_t *heads; /* [n_heads], a power of 2 */
    int32_t *path;  /* [n_ctx / block]: of the last lookup */
    /* with states: hash[1] of blocks that were added at hash[0] % MN_PREFIX_SEEN, whether pages of
     * them are still there or not */
    uint64_t *seen;
    int32_t free;
    bool closed; /* nothing is added: what the cache holds is not known */
    uint64_t key[2];
    uint64_t n_queries, n_hits; /* tokens */
} mn_prefix;

/* States in host memory: host.c. */
typedef struct {
    char *bytes;    /* of a page; NULL: the entry is free */
    uint64_t worth; /* as in mn_page_info */
    int32_t node;   /* that names it */
    bool is_asked;  /* it is on its way back */
} mn_host_state;
typedef struct {
    mn_host_state *states;
    uint32_t n, n_used;
    uint64_t bytes;      /* of a state */
    int32_t waiting[2];  /* by place of the engine: whose bytes are to come; -1: nobody's */
    uint32_t next_place; /* the one that was used first */
    uint64_t n_out, n_back;
} mn_host_states;

/* What leaves memory, and comes back: files.c. */
enum { MN_FILES_PLACES = 16 };
typedef struct {
    uint64_t hash[2];
    uint32_t groups;
    uint64_t after; /* steps enqueued when its pages were read: they decide what is in them */
    char *bytes;    /* NULL: the place is free */
    bool fetched;
} mn_files_place;
typedef struct {
    mn_disk *disk;        /* NULL: no files */
    uint64_t (*noted)[2]; /* ring of hashes of blocks: [cap_noted], n_noted from first_noted on */
    size_t cap_noted, first_noted, n_noted;
    mn_files_place place[MN_FILES_PLACES]; /* in the order in which they were read, as a ring */
    uint32_t n_places, first_place, n_busy;
    uint64_t last_ns; /* when mn_files_turn was called last */
    uint32_t n_loading;
    uint64_t n_tokens; /* that came from files */
} mn_files;

/* A state that a slot holds, as it was behind `position` positions. literal: up to there rows of
 * literal ids made it, which are computed in any case; rows behind that continue the slot by
 * themselves and change nothing once the slot is done. */
enum { MN_KV_STATES = 8 };
typedef struct {
    uint32_t position, literal;
    int32_t page;
} mn_kv_state;

/* What a slot holds. */
typedef struct {
    mn_entries pages[MN_MAX_KV_GROUP]; /* PAGED: entries that hold a page */
    /* STATE, by position: the last one is what the next step begins with; none: zeros */
    mn_kv_state states[MN_KV_STATES];
    uint32_t n_states;
    int32_t next_state; /* a page for what the next step leaves; -1: none is reserved */
    bool keep_state;    /* the next step is not to change the last state: its rows may be undone */
    uint32_t mark;      /* a position behind which the state is kept, beside those that all keep */
    uint32_t parts;     /* another: there the text parts from others; 0: none */
    bool shares;        /* blocks with others, through the prefix cache */
    uint64_t salt;      /* of its blocks */
    uint64_t adapter;   /* what they were computed with: its digest; 0: none */
    uint32_t n_blocks;  /* of the prefix cache: already looked up or added */
    uint64_t hash[2];   /* of their tokens */
    mn_disk_load *load; /* of the blocks behind them; NULL: none */
    uint32_t load_end;  /* blocks that the row is to have */
    uint32_t n_text;    /* tokens of the text that an encoder reads for the slot; 0: none */
    bool has_text;      /* it has read them, or will have by steps that are enqueued */
} mn_kv_slot;

typedef struct {
    mn_engine *engine; /* NULL: none stands */
    uint32_t engines;  /* so far */
    const mn_step_clock *clock;
    mn_group_memory layout[MN_MAX_KV_GROUP];
    uint32_t n_groups;
    int32_t state_group; /* -1: there is none */
    uint32_t n_seq, n_ctx;
    bool no_cache;
    int32_t *packed;     /* the inputs of steps, in which the page tables lie */
    mn_entries *changed; /* [n_groups][n_seq]: what of the tables was not written yet */
    mn_kv_slot *slots;   /* [n_seq] */
    mn_page_pool pools[MN_MAX_KV_GROUP];
    mn_prefix prefix;
    uint64_t most_host; /* bytes of states in host memory, whatever engine stands */
    mn_host_states host;
    mn_files files;
} mn_kv;

/* ---- kv.c: life ------------------------------------------------------------------------------ */
/* The records of the slots, once per session. clock outlives kv. */
mn_status mn_kv_init(mn_kv *kv, uint32_t n_seq, uint32_t n_ctx, const mn_step_clock *clock,
                     mn_error *err);
void mn_kv_free(mn_kv *kv);
/* With a new engine: all pages are free, all rows empty. packed: [engine->in.total]. */
mn_status mn_kv_place(mn_kv *kv, mn_engine *engine, int32_t *packed, mn_error *err);
void mn_kv_unplace(mn_kv *kv);
/* An empty slot begins: with others' blocks where it shares any (salt, adapter: of its own and
 * theirs). */
void mn_kv_begin(mn_kv *kv, uint32_t slot, bool shares, uint64_t salt, uint64_t adapter);
/* The text that an encoder is to read for the slot, which begins, has n tokens. */
static inline void mn_kv_set_text(mn_kv *kv, uint32_t slot, uint32_t n) {
    kv->slots[slot].n_text = n;
}
/* Whether the slot's next rows need rows of its text in front of them. */
static inline bool mn_kv_lacks_text(const mn_kv *kv, uint32_t slot) {
    return kv->slots[slot].n_text && !kv->slots[slot].has_text;
}
/* The slot's row is empty: its pages went with the engine, or were given back. */
void mn_kv_forget(mn_kv *kv, uint32_t slot);
/* After a step failed: nothing is added to the prefix cache, until mn_kv_reopen drops what it
 * knows. */
void mn_kv_close(mn_kv *kv);
void mn_kv_reopen(mn_kv *kv);
/* Positions that one sequence can have at most, alone in the cache; n_batch: rows of a step,
 * running_ahead: more than one of them is in flight. */
uint32_t mn_kv_max_positions(const mn_kv *kv, uint32_t n_batch, bool running_ahead);
/* Fills the fields about pages, for the group with the largest share of held pages. States count
 * where there is nothing else: a page of 0 tokens each. */
void mn_kv_count(const mn_kv *kv, mn_session_load *load);

/* ---- pages.c: rows of the page tables; an entry that holds no page is -1 --------------------- */
/* Pages for positions [0, n_positions); false: too few are free, nothing changed. */
bool mn_pages_reserve(mn_kv *kv, uint32_t slot, uint32_t n_positions);
/* Whether they will be free when the steps in flight are complete. */
bool mn_pages_will_come(const mn_kv *kv, uint32_t slot, uint32_t n_positions);
/* The same for a whole prompt, which gives back pages while it is computed, and n_more further
 * pages. */
bool mn_pages_will_come_with(const mn_kv *kv, uint32_t slot, uint32_t n_positions, uint32_t n_more);
void mn_page_pools_settle(mn_kv *kv);              /* after a step is complete: limbo -> free */
bool mn_pages_any(const mn_kv *kv, uint32_t slot); /* whether the slot holds a page */
/* Gives back all pages; the prefix cache learns of them first. */
void mn_pages_drop(mn_kv *kv, uint32_t slot, mn_memory_text text);
/* Gives back the pages of window groups that no row of the sequence can see any more. */
void mn_pages_trim(mn_kv *kv, uint32_t slot, mn_memory_text text);
/* Gives back all pages behind the first n_positions, which mn_kv_reach can reach; a last one that
 * is shared and not full is copied, since it will be written to. */
mn_status mn_pages_cut(mn_kv *kv, uint32_t slot, uint32_t n_positions, mn_error *err);
/* How many of the first n_positions, which are stored, a row behind them can use again: all; with
 * states, those up to the newest kept state; none if a window group has given back pages that the
 * row would see. */
uint32_t mn_kv_reach(const mn_kv *kv, uint32_t slot, uint32_t n_positions);
/* Where the tables differ from what was written last: [n_groups * n_seq] at most. */
uint32_t mn_tables_changes(const mn_kv *kv, mn_input_range *to);
void mn_tables_written(mn_kv *kv); /* the tables do not differ any more */

/* ---- state.c: the STATE group; nothing happens where there is none --------------------------- */
/* The next step with rows of the slot keeps its state, beside the new one, because its rows may be
 * undone. To be called before mn_pages_reserve. */
void mn_state_keep(mn_kv *kv, uint32_t slot, bool keep);
/* The slot has rows [position, position + n) in the next step, for which it has pages. literal: as
 * in mn_kv_state. */
void mn_state_step(mn_kv *kv, uint32_t slot, uint32_t position, uint32_t n, bool literal);
/* How many of n rows of a prompt behind `position`, which ends at n_literal, the next step may
 * have: those up to the next position at which the state is kept. */
uint32_t mn_state_chunk(mn_kv *kv, uint32_t slot, uint32_t position, uint32_t n,
                        uint32_t n_literal);
/* The sequence has n_positions, whatever rows were enqueued: the newest of them behind which its
 * state is known, which the slot has from now on. Without a STATE group n_positions. */
uint32_t mn_state_settle(mn_kv *kv, uint32_t slot, uint32_t n_positions);

/* ---- snapshot.c ------------------------------------------------------------------------------ */
/* Of the first n_positions, which mn_kv_reach can reach. MN_OUT_OF_MEMORY: of the host. What an
 * error leaves is mn_snapshot_free's. */
mn_status mn_snapshot_take(mn_kv *kv, uint32_t slot, uint32_t n_positions, mn_snapshot *out,
                           mn_error *err);
/* An empty slot goes on from there. MN_OUT_OF_MEMORY: no page is free for a copy; the slot has what
 * mn_pages_drop gives back. MN_INVALID: it was taken with another engine. The snapshot stays. */
mn_status mn_snapshot_restore(mn_kv *kv, const mn_snapshot *from, uint32_t slot, mn_error *err);
void mn_snapshot_free(mn_kv *kv, mn_snapshot *s);
/* Both, for a fork: slot `to` goes on behind the first n_positions of slot `from`, which has the
 * text. */
mn_status mn_pages_share(mn_kv *kv, uint32_t from, uint32_t to, mn_memory_text text,
                         uint32_t n_positions, mn_error *err);

/* ---- prefix.c: blocks of tokens that sequences share ----------------------------------------- */
/* Makes the blocks that the sequence has stored known to others. */
void mn_prefix_add(mn_kv *kv, uint32_t slot, mn_memory_text text);
/* Gives a slot without pages the known pages of its beginning; the number of positions, at most all
 * but the last token's. */
uint32_t mn_prefix_take(mn_kv *kv, uint32_t slot, mn_memory_text text);
/* The same for a sequence inside its prompt, from n_stored on; the number of positions more. */
uint32_t mn_prefix_continue(mn_kv *kv, uint32_t slot, mn_memory_text text);

/* ---- host.c: states in host memory ----------------------------------------------------------- */
/* With a new engine, before anything is cached; most_host 0: nothing happens. MN_UNSUPPORTED: pages
 * of this engine cannot be moved. After an error nothing leaves the device. */
mn_status mn_host_open(mn_kv *kv, mn_error *err);
void mn_host_close(mn_kv *kv);                              /* the engine may be gone */
void mn_host_count(const mn_kv *kv, mn_session_load *load); /* the fields about states */

/* ---- files.c: blocks of the prefix cache in files -------------------------------------------- */
/* With a new engine, before anything is cached. dir, most_bytes: as in mn_session_params; about:
 * all that the bytes of pages depend on. MN_UNSUPPORTED: pages of this engine cannot be moved;
 * others: mn_disk_open. After an error there are no files. */
mn_status mn_files_open(mn_kv *kv, const char *dir, uint64_t most_bytes, mn_str about,
                        mn_error *err);
void mn_files_close(mn_kv *kv); /* what is not read yet is not written */
/* The slot begins, in front of the blocks it has, with blocks that files have: starts to load them,
 * if that takes less time than computing them (row_ns: of a token). false: it does not. */
bool mn_files_load(mn_kv *kv, uint32_t slot, mn_memory_text text, double row_ns);
static inline bool mn_files_loading(const mn_kv *kv, uint32_t slot) {
    return kv->slots[slot].load != NULL;
}
/* Puts what was read into pages of the slot; *most: bytes that may be moved, less those that were.
 * *n_more: positions more. When the slot is not loading any more its rows are next, behind
 * text.n_stored + *n_more; *anew: behind what mn_prefix_take now gives it, since it has no pages.
 * */
mn_status mn_files_take(mn_kv *kv, uint32_t slot, mn_memory_text text, uint64_t *most,
                        uint32_t *n_more, bool *anew, mn_error *err);
void mn_files_load_end(mn_kv *kv, uint32_t slot); /* whatever was read is dropped */
/* Reads pages of blocks that were noted, and gives those to be written whose steps are complete.
 * most: bytes that may be moved, at least one block. */
void mn_files_save(mn_kv *kv, uint64_t most);
bool mn_files_saving(const mn_kv *kv); /* there is something to be saved */
void mn_files_forget(mn_kv *kv);       /* after a step failed: what was read or noted */
/* Saves all that is noted, with nothing in flight, at most so long; false: some is not written. */
bool mn_files_flush(mn_kv *kv, uint64_t timeout_ns);
void mn_files_count(const mn_kv *kv, mn_session_load *load); /* the fields about files */
/* Time since the last call of it, in ns: budgets of a turn are shares of it. */
uint64_t mn_files_turn(mn_kv *kv);
#endif
