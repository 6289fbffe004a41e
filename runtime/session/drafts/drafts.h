/* drafts.h -- the room of drafts: which sequences verify some in the next step, how many, and what
 * they are.
 *
 * It owns what a session has learned of drafts: times of steps, how often drafts hold, what making
 * one costs (worth.h says what they are worth). It knows a sequence as an mn_speculation and an
 * mn_draft_turn, which the room of steps fills in for each step, and a draft model as a function.
 * Its decisions change the number of steps of a text, never an id. Used by the thread that steps.
 *
 * A sequence (worth.h; mn_drafting):
 *
 *                         mn_drafting_count: no draft pays
 *      drafts ---------------------------------------------------> rests
 *   (host_paced: it waits for                                   (it goes on as if nobody had
 *    the host between its steps)                                 asked for drafts)
 *        ^                                                           |
 *        +------------------ mn_drafting_wake: so many ids are drawn +
 *
 * The drafts of one step:
 *
 *   none -- mn_drafts_make: guess, draft model --> guessed -- cut, mn_guides_follow --> spec.n of
 *     ^                                                                                 them
 *     |                                                                                   |
 *     +--- mn_drafts_learn: the step told how many held <-- mn_step_add_drafts (steps) ---+ */
#ifndef MN_DRAFTS_H
#define MN_DRAFTS_H
#include "session/drafts/worth.h"
#include "session/guides/guides.h"

/* Drafts of one sequence. */
typedef struct {
    mn_drafting when;
    uint32_t n;      /* drafts in the next step: tokens[n_tokens, n_tokens + n) */
    uint32_t forced; /* bit i: draft i is what the constraint leaves alone, no guess */
    bool host_paced; /* it drafts: its next row needs the host to have read its last draw */
} mn_speculation;

/* A sequence in turn, before a step is filled. */
typedef struct {
    mn_speculation *spec;
    int32_t *tokens; /* [n_tokens], and room for drafts behind them */
    uint32_t n_tokens, n_drawn, limit, slot;
    uint64_t order; /* distinguishes it from an earlier sequence of its slot */
    bool draws;     /* it is behind its prompt, and runs */
    /* it may have drafts in this step: it draws, its last id is known and is the only one not
     * stored, more than one id is still to come, and the device draws (the engine's sampler
     * verifies no drafts) */
    bool can;
    mn_guide *guide; /* NULL: none */
    const mn_slot_params *params;
} mn_draft_turn;

/* Where drafts of a model come from. */
typedef struct {
    /* For turns[of[i]] up to n[i] ids behind its tokens; n[i] becomes how many. An error means no
     * drafts. false: a prompt was computed as well, and the time tells nothing. */
    bool (*run)(void *arg, const mn_draft_turn *turns, const uint32_t *of, uint32_t *n,
                uint32_t n_of);
    const char *(*device)(void *arg);
    void *arg;
} mn_draft_source;

typedef struct {
    bool wanted, ready;   /* asked for; this engine can verify drafts */
    bool verifies;        /* so can its programs with masks */
    bool paced;           /* all sequences wait for the host: of a draft head */
    bool forces;          /* forced text is verified as drafts: few sequences draw */
    uint32_t flags, most; /* MN_SPECULATE_*; ids per draft */
    mn_draft_fn guess;    /* NULL = none */
    void *guess_arg;
    mn_draft_source source; /* run NULL = none */
    mn_draft_turn *turns;   /* [n_seq], by the caller of mn_drafts_make */
    int64_t n_vocab;
    mn_arena *names;         /* what `said` lies in */
    mn_session_stats *stats; /* the session's, for its counts of drafts */
    const char *said;        /* mn_session_info.speculation */
    mn_step_times times;
    mn_draft_memory memory;
    double draft_ns; /* of making one; 0 = nothing */
} mn_drafts;

/* What the caller asks for. draws: the session does. err is never NULL. */
mn_status mn_drafts_init(mn_drafts *d, const mn_session_params *p, bool draws, uint32_t n_seq,
                         mn_error *err);
void mn_drafts_free(mn_drafts *d);
/* Whether the new engine can verify drafts; MN_OK too where it cannot. n_ctx: of its sequences. */
mn_status mn_drafts_place(mn_drafts *d, mn_engine *e, mn_model *m, uint32_t n_ctx, mn_error *err);
void mn_drafts_lose_source(mn_drafts *d);                 /* it is gone; other drafts go on */
void mn_drafts_begin(mn_drafts *d, mn_speculation *spec); /* a sequence runs from its tokens on */
/* Before a step is filled: decides which sequences wait for the host, and makes drafts for
 * sequences that can have some. */
void mn_drafts_make(mn_drafts *d, mn_guides *guides, uint32_t n_turns);
/* What became of a sequence's drafts in one step: all of them, and those that are no guesses. */
typedef struct {
    uint32_t n, n_held, n_forced, n_forced_held;
} mn_draft_result;
void mn_drafts_learn(mn_drafts *d, mn_speculation *spec, const mn_draft_result *r);
#endif
