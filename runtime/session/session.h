/* session.h -- a session: sequences on the devices of one placement, above its rooms.
 *
 *   disk      files of pages, which outlive the process
 *   kv        memory of sequences: pages, page tables, prefix cache
 *   guides    constraints: masks, forced text
 *   requests  what is asked for: jobs that wait, events
 *   drafts    which sequences verify drafts, and which
 *   steps     slots, steps in flight, what they drew; it holds the four others
 *
 * A room uses those in front of it in this list, and this folder uses them all (test `arrows`). It
 * owns the placement and the names of devices, and has the functions of minerva.h about sessions.
 *
 * A session (place.c, failover.c):
 *
 *     mn_session_create         mn_failover: a device is lost
 *   --------------------> placed ----------------------------> unplaced
 *                           ^                                   |   |
 *                           |   mn_session_place: the next      |   | no device of the list is
 *                           +-- choice stands, sequences that --+   | left
 *                           |   ran are woken                       v
 *                           +--------------------------------- without device
 *                             mn_failover_ready, at the next call: a device came back
 *
 * Order of release when a device is lost (mn_session_unplace; a line may use what is below it):
 *
 *   1. steps     steps in flight: their rows count as done, their events are dropped
 *   2. kv        the slots' rows are forgotten; of each sequence its tokens are left
 *   3. engine    waits for what is enqueued, frees programs, memory, weights
 *   4. steps     the ring, the packed inputs
 *   5. kv        files (before the engine: copies of pages on their way), prefix cache, pools,
 *                changes of the tables
 *   6. guides    rows of masks
 *   7. session   the placement, which holds the devices open
 *
 * What stays: requests as they are; guides, each where its text ends; drafts, but for times of
 * steps, which mn_drafts_place forgets; tokens, parameters, biases and breakers of sequences. The
 * session of a draft model (drafter.c) has its own devices and loses them on its own. The new
 * engine is made in the opposite order: placement, engine, ring, pages, programs of drafts; then
 * the slots of sequences that run are written, with the masks and programs that they need. */
#ifndef MN_SESSION_H
#define MN_SESSION_H
#include "convert/imatrix.h"
#include "session/steps/steps.h"

typedef struct mn_drafter mn_drafter; /* drafter.c */

/* inputs.c: squares of what products read, by weight. */
typedef struct {
    mn_imatrix_sums *at; /* sums and counts are its own; names the model's */
    size_t n, cap;
    uint32_t n_texts;
} mn_input_sums;

struct mn_session {
    mn_model *model;
    mn_request request;
    bool draws;       /* none of MN_SESSION_NO_SAMPLING, _EMBED, _INPUT_SUMS */
    bool sums_inputs; /* MN_SESSION_INPUT_SUMS: the placement is cut */
    uint32_t end;     /* MN_GRAPH_*, of its graph */
    mn_input_sums sums;
    mn_placement placement;
    uint32_t n_placed; /* engines so far */
    /* the devices lost or passed over since the last engine, with their reasons */
    mn_text lost;
    const mn_device_record **passed_over; /* what request.passed_over points to */
    size_t cap_passed_over;
    mn_drafter *drafter; /* of the draft model; NULL = none */
    mn_steps steps;
    const char *cache_dir; /* NULL: no files */
    uint64_t cache_disk;
    mn_arena names; /* what mn_session_get_info has handed out stays valid */
    const char *device, *description, *why;
};

/* session.c: as mn_session_create, whose arguments are checked; p: complete, perhaps with
 * MN_SESSION_HEAD. err: not NULL. */
mn_status mn_session_make(mn_model *m, mn_session_params p, mn_session **out, mn_error *err);

/* place.c */
/* Chooses devices and makes the engine. If a device fails, another choice is made, until an engine
 * stands or no choice is left. Wakes the sequences. Also makes the first placement. err is never
 * NULL. */
mn_status mn_session_place(mn_session *s, mn_error *err);
/* Drops the steps in flight and frees what a session has per engine; sequences keep their tokens
 * and nothing else. May be called at any time. */
void mn_session_unplace(mn_session *s);

/* identity.c: the files of cache_dir, for an engine that was made just now. MN_UNSUPPORTED: its
 * pages cannot be moved; others: the folder cannot be used. */
mn_status mn_session_open_files(mn_session *s, mn_error *err);

/* drafter.c: the draft model's own session, which draws with the sequence's own parameters: with
 * the random numbers that the sequence will draw by. It is the source of s->drafts. */
/* MN_BAD_INPUT: the vocabularies differ. */
mn_status mn_drafter_create(mn_session *s, const mn_session_params *p, mn_error *err);
void mn_drafter_free(mn_session *s);

/* MN_INVALID: the session draws no ids. */
mn_status mn_session_draws(const mn_session *s, const char *function, mn_error *err);
/* failover.c: with another engine the sequences go on from their tokens. Ids that were given out
 * are prefilled again; ids that were not are drawn again, and are the same, because a draw depends
 * on seed and position alone. err is never NULL. */
/* After a placement failed with st: whether device d (NULL: none is at fault) was struck from the
 * list, so that another choice may succeed. false: st and *err stand. */
bool mn_failover_give_way(mn_session *s, const mn_device_record *d, mn_status st, mn_error *err);
/* After an engine call: returns st, except for MN_CLASS_LOST: MN_OK then means that the session
 * stands on another device, and that the caller repeats the call (if its effect was not the
 * sequences' own). */
mn_status mn_failover(mn_session *s, mn_status st, mn_error *err);
mn_status mn_failover_ready(mn_session *s, mn_error *err); /* before the first engine call */

/* sequence.c: mn_seq_create without a look at what the session is for; params: complete; err: not
 * NULL. */
mn_status mn_seq_begin(mn_session *s, const int32_t *ids, uint32_t n,
                       const mn_sample_params *params, int32_t *seq, mn_error *err);

/* embed.c: MN_UNSUPPORTED: the model generates nothing. */
mn_status mn_embed_refuse_encoder(const mn_model *m, mn_error *err);

/* inputs.c */
void mn_input_sums_free(mn_input_sums *sums);

/* logits.c: packs the next n tokens of the sequence, each an output. */
mn_status mn_session_pack_rows(mn_session *s, uint32_t seq, uint32_t n, mn_step_size *size,
                               mn_error *err);
/* Runs the rows that were packed, and waits for them. */
mn_status mn_session_run_packed(mn_session *s, const mn_step_size *size, mn_error *err);

#endif
