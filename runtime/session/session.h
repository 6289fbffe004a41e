/* session.h -- sequences on one engine: who is in the next step, which pages hold what, and what
 * came back.
 *
 * Steps are enqueued up to `ring` ahead of the first unread one. A sequence that goes on is not
 * waited for: its row says "the id that slot s drew last at the position where slot s stands", so
 * the host needs no result to enqueue the next step. When a stop id turns up some steps late, the
 * device has stored nothing after it (the slot is done) and the host drops what those steps say.
 *
 * A device that is lost is left for another one (failover.c); the caller of a session sees a line
 * in the log.
 *
 * A sequence with a constraint is not waited for either: its step begins without the mask, and
 * SAMPLE follows when the id before it is known and the mask is made. Only the newest step can be
 * unfinished so, and only while the one in front of it is in flight. */
#ifndef MN_SESSION_H
#define MN_SESSION_H
#include "opened/opened.h"
#include "engine/engine.h"
#include "session/drafts/drafts.h"
#include "session/guides/guides.h"
#include "session/kv/kv.h"
#include "session/requests/requests.h"
#include <pthread.h>
#include <stdatomic.h>

/* One sequence = one slot. Positions [0, n_enqueued) have been stored or will be by steps already
 * enqueued. tokens[0, n_literal) go in as literal ids; after that the device continues by
 * itself. */
typedef struct {
    bool used, running;
    uint32_t epoch;      /* counts uses: tells late results of an earlier one */
    int32_t *tokens;     /* prompt and drawn ids that the host has seen: own_tokens, or the job's */
    int32_t *own_tokens; /* [n_ctx + 1]; NULL until a sequence of mn_seq_create needs it */
    uint32_t n_tokens, n_literal, n_enqueued;
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
    float mu;    /* of mirostat, behind the last id of tokens */
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
typedef struct {
    mn_event *event;
    uint64_t number, start_ns, expected_ns;
    uint32_t n_rows, n_out, n_prompt_rows, n_restored_rows, n_prefilled;
    double patience; /* times the rows of prompts that it might have beside its sequences */
    bool scores;     /* it runs a program that scores */
    bool samplers;   /* it runs the one with all samplers */
    bool guesses;    /* it verifies drafts that may fail */
    bool is_new;     /* of these sizes it is the first */
    /* it has masks that the step in front of it decides: all but SAMPLE is enqueued */
    bool unfinished;
    mn_engine_step exec;          /* what the engine is given; its inputs until it has begun */
    mn_pending_output *outs;      /* [n_outputs] */
    mn_pending_output *prefilled; /* [n_seq]: whose prompts are complete, and that draw nothing */
} mn_pending_step;

/* How long steps take, by what was measured: schedule.c. */
enum { MN_FIRST_ROWS = 4, MN_SIZES = 4096 };
typedef struct {
    double draw_ns; /* of a step that only draws; 0 = not known yet */
    double n_draws; /* sequences that drew in such steps */
    double noise;   /* how far such steps are from draw_ns on average, as a share of it */
    /* Of steps with prompts: what any row of a prompt costs, and what one more does; row_ns 0 = not
     * known yet. From the line through lately measured (rows, ns) beyond draws: means of both,
     * variance of the rows, covariance. */
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

typedef struct mn_drafter mn_drafter; /* drafter.c */

struct mn_session {
    mn_model *model;
    const mn_model_graph *graph;
    mn_request request;
    bool draws; /* not MN_SESSION_NO_SAMPLING */
    mn_placement placement;
    uint32_t n_placed; /* engines so far */
    mn_engine *engine; /* NULL: none since a device was lost; every call tries to get one */
    /* the devices lost or passed over since the last engine, with their reasons */
    mn_text lost;
    const mn_device_record **passed_over; /* what request.passed_over points to */
    size_t cap_passed_over;
    uint32_t n_ctx, n_seq, n_batch, n_outputs;
    mn_sequence *seqs; /* [n_seq] */
    /* [n_turns] the slots in use, in the order in which they get rows and pages */
    uint32_t *turns, n_turns;
    uint64_t n_orders;
    mn_pace pace;
    mn_drafts drafts;
    mn_drafter *drafter; /* of the draft model; NULL = none */
    /* tokens that mn_session_step had no room for yet: [n_told, n_ready) of [n_outputs] */
    mn_token *ready;
    uint32_t n_told, n_ready;
    mn_step_clock clock; /* steps in flight: ring[(number) % ring_size] */
    mn_kv kv;
    mn_limits limits;
    mn_pending_step *ring;
    uint32_t ring_size;
    int32_t *packed; /* inputs of the next step */
    int32_t *sent;   /* their head as it was written last; changes of the tables are kv's */
    bool sent_valid;
    mn_input_range *ranges;       /* [1 + n_kv * n_seq] */
    mn_sampler_row *sampler_rows; /* [n_outputs]: of the step that is enqueued */
    mn_guides guides;
    uint64_t last_complete_ns;
    mn_session_stats stats;
    atomic_int cancelled;
    mn_profile_fn profile; /* NULL: nobody asked */
    void *profile_arg;
    mn_requests requests;
    mn_arena names; /* what mn_session_get_info has handed out stays valid */
    const char *device, *description, *why;
};

/* place.c */
/* Chooses devices and makes the engine; what gives way is replaced, until a choice stands or none
 * is left. Wakes the sequences. Also the first placement. err is never NULL. */
mn_status mn_session_place(mn_session *s, mn_error *err);
/* All that is left of the sequence is its tokens. */
void mn_seq_set_back(mn_session *s, uint32_t seq);
/* Drops the steps in flight and frees what a session has per engine; sequences keep their tokens
 * and nothing else. May be called at any time. */
void mn_session_unplace(mn_session *s);

/* drafter.c: the draft model's own session, which draws with the sequence's own parameters: with
 * the random numbers that the sequence will draw by. It is the source of s->drafts. */
/* MN_BAD_INPUT: the vocabularies differ. */
mn_status mn_drafter_create(mn_session *s, const mn_session_params *p, mn_error *err);
void mn_drafter_free(mn_session *s);

/* admit.c: which jobs have slots. */
mn_status mn_jobs_admit(mn_session *s, mn_error *err);
/* The job leaves its slot or the waiting list, with its last event. */
void mn_slot_end_job(mn_session *s, mn_job *job, int32_t finish, const mn_error *why);

/* session.c: tokens of the sequence that were not told yet are dropped. */
void mn_session_untell(mn_session *s, int32_t seq);
/* MN_INVALID: the session draws no ids. */
mn_status mn_session_draws(const mn_session *s, const char *function, mn_error *err);
/* After work that read weights: st; or MN_IO_ERROR, whatever st was, if their files have
 * changed. Cheap where the engine has copies. */
mn_status mn_session_settle(const mn_session *s, mn_status st, mn_error *err);

/* failover.c: with another engine the sequences go on from their tokens: what was drawn and given
 * out is prefilled again, what was not is drawn again, the same ids, since a draw depends on seed
 * and position alone. err is never NULL. */
/* After a placement failed with st: whether device d (NULL: none is at fault) was struck from the
 * list, so that another choice may succeed. false: st and *err stand. */
bool mn_failover_give_way(mn_session *s, const mn_device_record *d, mn_status st, mn_error *err);
/* After an engine call: hands st on, but for MN_CLASS_LOST: MN_OK then means that the session
 * stands on another device, and that the call is to be made again (if its effect was not the
 * sequences' own). */
mn_status mn_failover(mn_session *s, mn_status st, mn_error *err);
mn_status mn_failover_ready(mn_session *s, mn_error *err); /* before the first engine call */

/* Enqueues what can be, and takes in the oldest step. *idle: no sequence is running. */
mn_status mn_session_advance(mn_session *s, mn_token *out, uint32_t *n, bool *idle, mn_error *err);

/* sequence.c: writes the slot of a sequence that runs. */
mn_status mn_seq_wake(mn_session *s, uint32_t seq, mn_error *err);
/* A slot that is free, with an empty sequence; false: none is. */
bool mn_seq_claim(mn_session *s, uint32_t *seq);
void mn_seq_release(mn_session *s, uint32_t seq);
/* mn_seq_create without a look at what the session is for; params: complete; err: not NULL. */
mn_status mn_seq_begin(mn_session *s, const int32_t *ids, uint32_t n,
                       const mn_sample_params *params, int32_t *seq, mn_error *err);

/* embed.c: MN_UNSUPPORTED: the model generates nothing. */
mn_status mn_embed_refuse_encoder(const mn_model *m, mn_error *err);

/* logits.c: runs the rows that were packed, and waits for them. */
mn_status mn_session_run_packed(mn_session *s, const mn_step_size *size, mn_error *err);

/* profile.c: after a step was submitted. */
void mn_session_tell(const mn_session *s, mn_step_profile step, uint64_t begin_ns);

/* schedule.c: who is in a step. */
typedef struct {
    mn_session *s;
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
bool mn_schedule_may_enqueue(const mn_session *s);
/* Whether a step of these sizes is the first, on a device that prepares something for each. */
bool mn_schedule_is_new(mn_session *s, const mn_pending_step *step);
/* A step of so many ns is complete. */
void mn_schedule_learn(mn_session *s, const mn_pending_step *step, uint64_t ns);
/* Takes the pages of a sequence away; it is computed again from its tokens. A job waits again. */
mn_status mn_preempt(mn_session *s, uint32_t seq, mn_error *err);
/* Pages for the sequence, with nothing in flight: finished sequences give way. */
mn_status mn_preempt_idle(mn_session *s, uint32_t seq, uint32_t n_positions, mn_error *err);
/* After a step failed: what the cache holds is not known. All sequences are computed again. */
mn_status mn_distrust(mn_session *s, mn_error *err);

/* step.c */
/* n rows of the sequence, from n_enqueued on. literal: the tokens themselves; else (n is 1) the id
 * that its slot draws before, at the position where the slot stands then. */
void mn_step_add_rows(mn_step_builder *b, uint32_t seq, uint32_t n, bool literal);
void mn_step_add_output(mn_step_builder *b, uint32_t seq); /* the last row draws its next id */
/* Rows that verify the sequence's drafts: its last id, and they. All draw. */
void mn_step_add_drafts(mn_step_builder *b, uint32_t seq);
/* The last n rows tell the logprobs of the tokens behind them, as far as there are any. */
void mn_step_add_scores(mn_step_builder *b, uint32_t seq, uint32_t n);
void mn_step_clear(
    mn_session *s); /* all of the packed inputs but the page tables becomes padding */
/* false = nothing to do now */
mn_status mn_step_enqueue(mn_session *s, bool *enqueued, mn_error *err);
/* With nothing in flight: requests whose constraints were put off go on. */
mn_status mn_step_catch_up(mn_session *s, mn_error *err);
/* the oldest in flight */
mn_status mn_step_complete(mn_session *s, mn_token *out, uint32_t *n, mn_error *err);
mn_status mn_step_drain(mn_session *s, mn_error *err); /* waits for all, drops what they say */
/* its rows count as done: they will be restored */
void mn_step_forget(mn_session *s, const mn_pending_step *step);
#endif
