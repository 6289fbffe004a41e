/* session.h -- sequences on one engine: who is in the next step, which pages hold what, and what came back.
 *
 * Steps are enqueued up to `ring` ahead of the first unread one. A sequence that goes on is not waited for: its row says
 * "the id that slot s drew last at the position where slot s stands", so the host needs no result to enqueue the next step.
 * When a stop id turns up some steps late, the device has stored nothing after it (the slot is done) and the host drops
 * what those steps say. */
#ifndef MN_SESSION_H
#define MN_SESSION_H
#include "api/api.h"
#include "program/engine.h"
#include <stdatomic.h>

/* One sequence = one slot. Positions [0, n_enqueued) have been stored or will be by steps already enqueued.
 * tokens[0, n_literal) go in as literal ids; after that the device continues by itself. */
typedef struct {
    bool used, running;
    uint32_t epoch;  /* counts uses: tells late results of an earlier one */
    int32_t *tokens; /* [n_ctx + 1]: prompt and drawn ids that the host has seen */
    uint32_t n_tokens, n_literal, n_enqueued;
    uint32_t n_draw_enqueued, n_drawn, limit; /* since the last create or extend */
    uint32_t n_pages;                         /* entries of its row of the page table */
    mn_slot_params params;
} mn_sequence;

typedef struct {
    int32_t seq;
    uint32_t epoch;
} mn_step_out;
typedef struct {
    mn_event *event;
    uint64_t number, start_ns;
    uint32_t n_out, n_prompt_rows;
    mn_step_out *outs; /* [n_seq] */
} mn_step;

typedef struct {
    int32_t page;
    uint64_t after;
} mn_limbo_page; /* free once step `after` is complete */

struct mn_session {
    mn_model *model;
    const mn_model_graph *graph;
    mn_placement placement;
    mn_engine *engine;
    uint32_t n_ctx, n_seq, n_batch, n_outputs;
    mn_sequence *seqs; /* [n_seq] */
    /* pages */
    uint16_t *page_refs; /* [n_total] */
    int32_t *free_pages;
    uint32_t n_free, n_total;
    mn_limbo_page *limbo; /* [n_total] */
    uint32_t n_limbo;
    /* steps in flight: ring[(number) % ring_size] for numbers in [completed, enqueued) */
    mn_step *ring;
    uint32_t ring_size;
    uint64_t enqueued, completed;
    int32_t *packed, *sent; /* inputs of the next step and of the last one written */
    bool sent_valid;
    uint64_t last_complete_ns;
    mn_session_stats stats;
    atomic_int cancelled;
    char *device, *description;
};

/* pages.c */
bool mn_pages_reserve(mn_session *s, uint32_t seq,
                      uint32_t n_positions); /* false = none free until older steps are complete */
void mn_pages_drop(mn_session *s, uint32_t seq);
void mn_pages_settle(mn_session *s); /* limbo -> free, after a completion */
mn_status mn_pages_share(mn_session *s, uint32_t from, uint32_t to, uint32_t n_positions, mn_error *err);

/* step.c */
mn_status mn_step_enqueue(mn_session *s, bool *enqueued, mn_error *err);              /* false = nothing to do now */
mn_status mn_step_complete(mn_session *s, mn_token *out, uint32_t *n, mn_error *err); /* the oldest in flight */
mn_status mn_step_drain(mn_session *s, mn_error *err); /* waits for all, drops what they say */
/* Symbol values of a step with these sizes; devices that capture graphs get them rounded up. */
void mn_step_symbols(const mn_session *s, uint32_t n_rows, uint32_t n_out, uint32_t n_seqs, int64_t *symbols);
#endif
