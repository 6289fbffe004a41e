/* steps.h -- the room of steps: sequences in slots, who is in a step, steps in flight, and what
 * they drew.
 *
 * It owns the engine that stands, the slots and their sequences, the ring of steps in flight and
 * the packed inputs; it holds the rooms kv, guides, requests and drafts, whose parts it puts
 * together. It knows no placement: what it needs of an engine comes with mn_steps_place and goes
 * with mn_steps_unplace. Used by the thread that steps.
 *
 * Steps are enqueued up to `ring_size` ahead of the first unread one. A sequence that goes on is
 * not waited for: its row says "the id that slot s drew last at the position where slot s stands",
 * so the host needs no result to enqueue the next step. When a stop id turns up some steps late,
 * the device has stored nothing after it (the slot is done) and the host drops what those steps
 * say. A sequence with a constraint is not waited for either: its step begins without the mask, and
 * SAMPLE follows when the id before it is known and the mask is made.
 *
 * A slot and its sequence (slots.c; mn_sequence). Claimed: it does not run; prompt: it has literal
 * tokens to come (n_enqueued < n_literal); draws: a row, or a row and its drafts, in each step.
 *
 *         mn_slot_claim          mn_slot_wake              mn_schedule_fill: all of the
 *   free ---------------> claimed -------------> prompt ---------------------------------> draws
 *    ^                     ^   ^                    ^      prompt is enqueued                | |
 *    |                     |   |                    |                                        | |
 *    |                     |   |                    +----------------------------------------+ |
 *    |                     |   |                      mn_preempt, mn_distrust, mn_steps_unplace: |
 *    |                     |   |                      its pages are gone, its tokens stay        |
 *    +---------------------+   +----------------------------------------------------------------+
 *     mn_slot_release; of a       take_id: a stop id, or the limit; end_failed: no logit is finite;
 *     job by mn_slot_end_job,     end_guided: its constraint failed; end_prefilled: no id is wanted
 *     or by mn_preempt, which
 *     lets it wait again
 *
 * A step (step.c, complete.c; mn_pending_step):
 *
 *           mn_step_enqueue                mn_step_complete: the wait is over
 *   empty --------------------> in flight -------------------------------------> taken in
 *    ^ ^         |                ^    |                                             |
 *    | |         | masks are      |    | its wait or its check fails:                |
 *    | |         | missing        |    | mn_step_give_up, mn_distrust                |
 *    | |         v                |    v                                             |
 *    | |    unfinished -----------+   lost: all is computed again                    |
 *    | |         |  mn_step_finish,      |                                           |
 *    | |         |  when the step in     |                                           |
 *    | |         |  front is taken in    |                                           |
 *    | +---------+-----------------------+                                           |
 *    |    mn_step_forget: its rows count as done, to be restored (mn_steps_unplace)  |
 *    +--------------------------------------------------------------------------------+
 *
 * Only the newest step can be unfinished, and only while the one in front of it is in flight. */
#ifndef MN_STEPS_H
#define MN_STEPS_H
#include "session/drafts/drafts.h"
#include "session/kv/kv.h"
#include "session/requests/requests.h"

/* One sequence = one slot. Positions [0, n_enqueued) have been stored or will be by steps already
 * enqueued. tokens[0, n_literal) go in as literal ids; after that the device continues by
 * itself. */
typedef struct {
    bool used, running;
    uint32_t epoch;      /* counts uses: identifies late results of an earlier one */
    int32_t *tokens;     /* prompt and drawn ids that the host has seen: own_tokens, or the job's */
    int32_t *own_tokens; /* [n_ctx + 1]; NULL until a sequence of mn_seq_create needs it */
    uint32_t n_tokens, n_literal, n_enqueued;
    /* [n_text] what an encoder reads in front of them: own_text, or the job's; 0: the model has no
     * encoder */
    const int32_t *text;
    int32_t *own_text;
    uint32_t n_text;
    uint32_t n_draw_enqueued, n_drawn, limit; /* since the last create or extend */
    /* positions below it were run before a device was lost */
    uint32_t n_restore;
    uint32_t planned; /* rows in the next step */
    mn_slot_params params;
    uint64_t order; /* of arrival */
    uint32_t flags; /* MN_SAMPLE_* */
    bool scores;    /* its steps need the program that scores */
    mn_speculation spec;
    mn_guide *guide; /* of its constraint: own_guide, or the job's; NULL: none */
    mn_guide *own_guide;
    bool biased;               /* the slot has biases on the device */
    const mn_logit_bias *bias; /* own_bias, or the job's */
    mn_logit_bias *own_bias;
    uint32_t n_bias;
    bool samplers;            /* its draws need the program with all samplers */
    bool elsewhere;           /* which the device lacks: the engine's sampler draws */
    const uint32_t *breakers; /* of DRY: own_breakers, or the job's; NULL: none */
    uint32_t *own_breakers;
    float mu;                  /* of mirostat, behind the last id of tokens */
    const mn_adapter *adapter; /* held, or the job's; NULL: none */
    mn_job *job; /* the choice of a request that it computes; NULL: it is of mn_seq_create */
} mn_sequence;

/* The sequence, as its memory knows it. */
static inline mn_memory_text mn_seq_text(const mn_sequence *q) {
    return (mn_memory_text){q->tokens, q->n_tokens, q->n_enqueued};
}

typedef struct {
    int32_t seq;
    uint32_t epoch;
    uint32_t scored; /* not 0: the row draws nothing, and tells the logprob of this token */
    int32_t draft;   /* what the next row is for: it counts where this is drawn; -1 = none */
    uint32_t ahead;  /* drafts of the sequence in front of it in this step */
    bool forced;     /* the draft is no guess: nothing else can be drawn */
    bool elsewhere;  /* the engine's sampler draws */
} mn_pending_output;
/* Rows of one sequence in a step: of positions [position, position + n), from `row` of the step
 * on. */
typedef struct {
    uint32_t seq, epoch, position, row, n;
} mn_step_span;
typedef struct {
    mn_event *event;
    uint64_t number, start_ns, expected_ns;
    uint32_t n_rows, n_out, n_prompt_rows, n_restored_rows, n_prefilled;
    double patience; /* times the rows of prompts that it might have beside its sequences */
    bool scores;     /* it runs a program that scores */
    bool samplers;   /* it runs the one with all samplers */
    bool guesses;    /* it verifies drafts that may fail */
    bool is_new;     /* the first step of these sizes */
    /* its masks depend on the step in front of it: all but SAMPLE is enqueued */
    bool unfinished;
    mn_engine_step exec;          /* what the engine is given; its inputs until it has begun */
    mn_pending_output *outs;      /* [n_outputs] */
    mn_pending_output *prefilled; /* [n_seq]: whose prompts are complete, and that draw nothing */
    mn_step_span *spans;          /* [n_seq]: all its rows, where somebody wants hidden states */
    uint32_t n_spans;
} mn_pending_step;

/* How long steps take, by what was measured: pace.c. */
enum { MN_FIRST_ROWS = 4, MN_SIZES = 4096 };
typedef struct {
    double draw_ns; /* of a step that only draws; 0 = not known yet */
    double n_draws; /* sequences that drew in such steps */
    double noise;   /* how far such steps are from draw_ns on average, as a share of it */
    /* Steps with prompts: the cost of having any rows of prompts, and of one more row; row_ns 0 =
     * not known yet. Both come from the line through recent measurements (rows, ns beyond draws):
     * means of both, variance of the rows, covariance. */
    double any_ns, row_ns;
    double fit_rows, fit_ns, fit_variance, fit_covariance;
    uint32_t n_fit;
    double middle_ns; /* of steps in which sequences draw; 0 = not known yet */
    double n_rows;    /* of prompts that a step may have beside sequences that draw */
    uint32_t n_mixed; /* steps with prompts since the last one that only drew */
    /* Steps with the fewest rows of prompts that took longer than three times the usual time:
     * how many in a row, and what they took. n_open: steps that go by that time from now on, not
     * by the usual one, with open_rows of prompts. */
    uint32_t n_late, n_open;
    double late_ns, open_rows;
    uint64_t sizes[MN_SIZES / 64]; /* bits by hash: sizes of steps that were enqueued */
    uint64_t n_preempted;
} mn_pace;

/* Hidden states of positions [position, position + n) of the sequence in a slot, [n, n_embd]: valid
 * during the call, as tokens [n_tokens] is, which holds the sequence's. */
typedef struct {
    uint32_t slot, position, n, n_tokens;
    const int32_t *tokens;
    const float *rows;
} mn_hidden_rows;
/* The reader of hidden states, and the source of those that a draft head reads (drafter.c). */
typedef struct {
    void (*tell)(void *arg, const mn_hidden_rows *r); /* NULL: no reader */
    /* Of a head: the hidden state of the model in front of a position of the slot's sequence; NULL:
     * it is not known, and zeros are read. */
    const float *(*hear)(void *arg, uint32_t slot, uint32_t position);
    void *arg;
} mn_hidden_link;

typedef struct {
    mn_model *model;
    const mn_model_graph *graph;
    mn_engine *engine; /* NULL: none since a device was lost; every call tries to get one */
    uint64_t *adapted; /* [places for adapters]: mn_adapter.order of what the engine has there */
    uint32_t n_ctx, n_seq, n_batch, n_outputs;
    mn_limits limits;
    mn_kv kv;
    mn_guides guides;
    mn_requests requests;
    mn_drafts drafts;
    mn_sequence *seqs; /* [n_seq] */
    /* [n_turns] the slots in use, in the order in which they get rows and pages */
    uint32_t *turns, n_turns;
    uint64_t n_orders;
    mn_pace pace;
    /* tokens that mn_session_step had no room for yet: [n_told, n_ready) of [n_outputs] */
    mn_token *ready;
    uint32_t n_told, n_ready;
    mn_step_clock clock; /* steps in flight: ring[(number) % ring_size] */
    mn_pending_step *ring;
    uint32_t ring_size;
    int32_t *packed; /* inputs of the next step */
    int32_t *sent;   /* their head as it was written last; changes of the tables are kv's */
    bool sent_valid;
    mn_input_range *ranges;       /* [1 + n_kv * n_seq] */
    mn_sampler_row *sampler_rows; /* [n_outputs]: of the step that is enqueued */
    mn_hidden_link hidden;
    float *hidden_in; /* of a draft head: [n_batch, n_embd], of the step that is enqueued */
    uint64_t last_complete_ns;
    mn_session_stats stats;
    atomic_int cancelled;
    mn_profile_fn profile; /* NULL: not asked for */
    void *profile_arg;
} mn_steps;

/* ---- steps.c --------------------------------------------------------------------------------- */
/* Slots and requests, once per session; n_ctx, n_seq, n_outputs, model and graph are set. */
mn_status mn_steps_init(mn_steps *s, mn_error *err);
void mn_steps_free(mn_steps *s);
/* With a new engine, which is the room's from then on, in s->engine: the ring and the pages. */
mn_status mn_steps_place(mn_steps *s, uint32_t ring_size, mn_error *err);
/* Drops the steps in flight and frees what there is per engine, and the engine; sequences keep
 * their tokens and nothing else. May be called at any time. */
void mn_steps_unplace(mn_steps *s);
/* Sequences that were running go on from their tokens. */
mn_status mn_steps_wake(mn_steps *s, mn_error *err);
/* Enqueues what can be, and takes in the oldest step. *idle: no sequence is running. */
mn_status mn_steps_advance(mn_steps *s, mn_token *out, uint32_t *n, bool *idle, mn_error *err);
/* After work that read weights: st; or MN_IO_ERROR, whatever st was, if their files have
 * changed. Cheap where the engine has copies. */
mn_status mn_steps_settle(const mn_steps *s, mn_status st, mn_error *err);
/* After a step was submitted: its units, if somebody asked. */
void mn_steps_tell(const mn_steps *s, mn_step_profile step, uint64_t begin_ns);

/* ---- slots.c --------------------------------------------------------------------------------- */
/* A slot that is free, with an empty sequence; false: none is. */
bool mn_slot_claim(mn_steps *s, uint32_t *seq);
void mn_slot_release(mn_steps *s, uint32_t seq);
/* The engine has the sequence's adapter. */
mn_status mn_slot_adapt(mn_steps *s, uint32_t seq, mn_error *err);
/* Writes the slot of a sequence that runs, and makes the programs that it needs. */
mn_status mn_slot_wake(mn_steps *s, uint32_t seq, mn_error *err);
/* The sequence has n_positions, whatever was enqueued behind them. Where its state is not known
 * there, its tokens are computed again from the newest position at which it is. */
void mn_slot_go_back(mn_steps *s, uint32_t seq, uint32_t n_positions);
/* All that is left of the sequence is its tokens. */
void mn_slot_set_back(mn_steps *s, uint32_t seq);
/* Tokens of the sequence that were not told yet are dropped. */
void mn_slot_untell(mn_steps *s, int32_t seq);

/* ---- admit.c: which jobs have slots ---------------------------------------------------------- */
mn_status mn_jobs_admit(mn_steps *s, mn_error *err);
/* The job leaves its slot or the waiting list, with its last event. */
void mn_slot_end_job(mn_steps *s, mn_job *job, int32_t finish, const mn_error *why);

/* ---- schedule.c: who is in a step ------------------------------------------------------------ */
typedef struct {
    mn_steps *s;
    mn_pending_step *step;
    mn_step_size size;
    bool drafts;    /* somebody verifies drafts */
    bool guesses;   /* which may fail */
    bool masks;     /* somebody needs a program with masks */
    bool scores;    /* somebody needs the program that scores */
    bool samplers;  /* somebody needs the one with all samplers */
    bool elsewhere; /* the engine's sampler draws for somebody */
} mn_step_builder;
/* Gives rows to the sequences that have something to do. */
mn_status mn_schedule_fill(mn_step_builder *b, mn_error *err);
/* Whether one more step may be enqueued now. */
bool mn_schedule_may_enqueue(const mn_steps *s);

/* ---- pace.c: how many rows of prompts -------------------------------------------------------- */
/* The usual time of a step in which n sequences draw. While prompts wait, few steps only draw: then
 * rows of mixed steps give the cost of a change in the number of sequences since the last such
 * step. Fewer sequences never cost less than their share. */
double mn_pace_usual_ns(const mn_pace *p, double n);
/* Whether the next step is to have no prompts, because the time of a step that only draws is
 * unknown, or is in doubt: other sequences draw now; or prompts get few rows, and a late step looks
 * like a step in which more sequences draw. */
bool mn_pace_in_doubt(const mn_pace *p, uint32_t n_draws);
/* Rows of prompts in a step in which n_draws sequences (1 at least) draw, while n_waiting wait for
 * rows. *patience: the factor by which the step may be longer than with one that waits. */
double mn_pace_rows(const mn_pace *p, uint32_t n_draws, uint32_t n_waiting, double *patience);
/* Whether a step of these sizes is the first, on a device that prepares something for each. */
bool mn_pace_is_new(mn_steps *s, const mn_pending_step *step);
/* A step of so many ns is complete. */
void mn_pace_learn(mn_steps *s, const mn_pending_step *step, uint64_t ns);

/* ---- preempt.c ------------------------------------------------------------------------------- */
/* Takes the pages of a sequence away; it is computed again from its tokens. A job waits again. */
mn_status mn_preempt(mn_steps *s, uint32_t seq, mn_error *err);
/* Pages for the sequence, with nothing in flight: finished sequences give way. */
mn_status mn_preempt_idle(mn_steps *s, uint32_t seq, uint32_t n_positions, mn_error *err);
/* After a step failed: what the cache holds is not known. All sequences are computed again. */
mn_status mn_distrust(mn_steps *s, mn_error *err);

/* ---- restore.c: the files of cache_dir ------------------------------------------------------- */
/* The sequence has its first pages: it begins to load the pages of its beginning that files have,
 * where that pays, and has no rows meanwhile. */
void mn_step_restore(mn_steps *s, uint32_t seq);
/* Moves what can be moved in this turn, both ways. */
mn_status mn_step_move_files(mn_steps *s, mn_error *err);
/* With nothing in flight: whether sequences load, after a wait for one of them. */
bool mn_step_await_files(mn_steps *s);

/* ---- step.c: building and enqueueing --------------------------------------------------------- */
/* Row `row` of the step, or output `at` of it, is the sequence's: it has its adapter. */
static inline void mn_step_adapt_row(mn_steps *s, uint32_t row, const mn_sequence *q) {
    if (q->adapter)
        s->packed[s->engine->in.adapter + row] = (int32_t)q->adapter->slot;
}
static inline void mn_step_adapt_output(mn_steps *s, uint32_t at, const mn_sequence *q) {
    if (q->adapter)
        s->packed[s->engine->in.out_adapter + at] = (int32_t)q->adapter->slot;
}
/* n rows of the sequence, from n_enqueued on. literal: the tokens themselves; else (n is 1) the id
 * that its slot draws before, at the position where the slot stands then. */
void mn_step_add_rows(mn_step_builder *b, uint32_t seq, uint32_t n, bool literal);
/* The rows of the sequence's text, which has pages, all of them. */
void mn_step_add_text(mn_step_builder *b, uint32_t seq);
void mn_step_add_output(mn_step_builder *b, uint32_t seq); /* the last row draws its next id */
/* A draft head reads what hidden.hear says for n rows of the sequence, from `row` of the step and
 * position on. For other graphs it does nothing. */
void mn_step_hear(mn_steps *s, uint32_t seq, uint32_t row, uint32_t position, uint32_t n);
/* Rows that verify the sequence's drafts: its last id, and they. All draw. */
void mn_step_add_drafts(mn_step_builder *b, uint32_t seq);
/* The last n rows tell the logprobs of the tokens behind them, as far as there are any. */
void mn_step_add_scores(mn_step_builder *b, uint32_t seq, uint32_t n);
void mn_step_clear(mn_steps *s); /* all of the packed inputs but the page tables becomes padding */
/* false = nothing to do now */
mn_status mn_step_enqueue(mn_steps *s, bool *enqueued, mn_error *err);
/* The rest of an unfinished step: its masks, and SAMPLE. */
mn_status mn_step_finish(mn_steps *s, mn_pending_step *step, mn_error *err);
/* A step failed: its rows count as not stored. Returns st. */
mn_status mn_step_give_up(mn_steps *s, const mn_pending_step *step, mn_status st, mn_error *err);
/* its rows count as done: they will be restored */
void mn_step_forget(mn_steps *s, const mn_pending_step *step);
/* Whether a step's output belongs to a sequence that still runs. */
static inline bool mn_output_is_awaited(const mn_steps *s, mn_pending_output o) {
    const mn_sequence *q = &s->seqs[o.seq];
    return q->used && q->running && q->epoch == o.epoch;
}

/* ---- complete.c: what steps drew ------------------------------------------------------------- */
/* With nothing in flight: requests whose constraints were put off go on. */
mn_status mn_step_catch_up(mn_steps *s, mn_error *err);
/* the oldest in flight */
mn_status mn_step_complete(mn_steps *s, mn_token *out, uint32_t *n, mn_error *err);
mn_status mn_step_drain(mn_steps *s, mn_error *err); /* waits for all, drops what they say */
#endif
