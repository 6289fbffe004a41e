/* guides.h -- the room of constraints: where each text is in its grammar, the masks of a step, and
 * text that can only go on in one way.
 *
 * It owns guides (of a job, or of a sequence of mn_seq_create), the rows of masks of a session's
 * steps, and the time that constraints take. It knows a sequence's guide and drafts; it knows
 * neither slots nor requests. Guides outlive slots, pages and engines; the rows of masks go with
 * the engine.
 *
 * A guide (guide.c):
 *
 *   mn_guide_create        an id was drawn: mn_guide_note
 *     ------------> ready --------------------------------> behind -+
 *                   ^   |                                     ^     | mn_guide_note: more ids
 *                   |   | mn_guide_follow: along drafts,      +-----+ of the same step
 *                   |   | on a copy; it stays ready           |
 *                   |   v                                     |
 *                   +---+-------- mn_guide_catch_up ----------+
 *                                      |
 *                                      v
 *                                   failed: mn_guide_failure says why, for good
 *
 * A ready guide has the mask of the next id (mn_guide_mask), which is one id where the text is
 * forced. The sequence of a guide that is behind gets no row, unless it draws without a mask that
 * SAMPLE waits for (steps.h). */
#ifndef MN_GUIDES_H
#define MN_GUIDES_H
#include "engine/engine.h"
#include "opened/opened.h"

typedef struct mn_guide mn_guide;

/* ---- guide.c: one text ----------------------------------------------------------------------- */
/* What a guide begins with: the last n_drawn ids are part of the text already. */
typedef struct {
    const mn_sample_params *sample;
    const mn_slot_params *slot;
    const int32_t *ids; /* [n_ids]: the prompt, then the n_drawn last ones */
    uint32_t n_ids, n_drawn;
} mn_guide_start;
/* n_vocab: ids that the model's output has. *out NULL: there is no constraint. Any thread.
 * MN_BAD_INPUT: the constraint does not allow a drawn id. MN_UNSUPPORTED: no token can come
 * next. */
mn_status mn_guide_create(uint32_t n_vocab, const mn_guide_start *from, mn_guide **out,
                          mn_error *err);
void mn_guide_free(mn_guide *g);
/* An id that does not end the sequence was drawn: it is noted, up to MN_MAX_DRAFT + 1 of one step.
 * Later the guide catches up: it makes the mask of the next one. A failure stays; NULL: none, or g
 * is NULL. MN_UNSUPPORTED: the work of the grammar is used up. Different guides may be used by
 * several threads at once. */
void mn_guide_note(mn_guide *g, int32_t id);
bool mn_guide_has_noted(const mn_guide *g);
void mn_guide_catch_up(mn_guide *g);
bool mn_guide_is_slow(const mn_guide *g);  /* ids have taken much work; NULL: g: false */
uint64_t mn_guide_work(const mn_guide *g); /* that the last ids took, in units of the grammar's */
const mn_error *mn_guide_failure(const mn_guide *g);
/* The words of the next id, or of the one behind so many drafts of mn_guide_follow. */
const uint32_t *mn_guide_mask(const mn_guide *g, uint32_t ahead);
/* Where the text that follows is forced, the mask has one id: the tokeniser's. So ids do not depend
 * on how many of them a step draws. NULL: g: false; 0. */
bool mn_guide_is_forced(const mn_guide *g);
uint32_t mn_guide_n_forced(const mn_guide *g); /* ids that have to come next */
/* Makes masks along drafts: keeps of n guesses those that the constraint allows, and from where a
 * text is forced on the ids of that text instead, `most` in all; returns their number. Draft i has
 * the mask of the output i ahead. *forced: bit i: draft i is no guess. */
uint32_t mn_guide_follow(mn_guide *g, int32_t *drafts, uint32_t n, uint32_t most, uint32_t *forced);

/* ---- forced.c -------------------------------------------------------------------------------- */
/* The ids that the tokeniser spells the text with behind the id `last` (-1: none), from
 * its beginning, up to cap; how many. 0: it is spelled with others around it, or not at all. */
uint32_t mn_forced_spell(const mn_model *m, int32_t last, mn_str text, int32_t *ids, uint32_t cap);

/* ---- guides.c: those of a step together, in the runtime's threads where there are some ------- */
/* A guide that has something to do. */
typedef struct {
    mn_guide *guide;
    uint32_t turn; /* the caller's: whose it is */
    bool may_wait; /* to catch up in a later step, since it takes long */
    /* of mn_guide_follow: its arguments, and what it returns */
    int32_t *drafts;
    uint32_t n, most, forced;
} mn_guided;

/* Processor time of the thread that steps for constraints: since the last step was complete; of all
 * steps, and of the longest one. */
typedef struct {
    uint64_t step_ns, all_ns, most_ns;
    uint32_t first; /* the turn that may be the next one to take long */
} mn_form_time;

/* The mask that an output needs: of this guide, so many drafts ahead. NULL: all ids. */
typedef struct {
    const mn_guide *guide;
    uint32_t ahead;
} mn_mask_of;

/* Masks of the next step's outputs, as they were written last. NULL: no program with masks yet. */
typedef struct {
    uint32_t *rows; /* [n_outputs][n_words] */
    bool *is_open;  /* [n_outputs]: on the device all bits of the row are set */
    mn_mask_of *of; /* [n_outputs], by the caller of mn_masks_write */
    uint32_t n_words;
} mn_masks;

typedef struct {
    mn_pool *pool;
    mn_guided *turns; /* [n_seq], by the callers below */
    mn_guided *work;  /* [n_seq], within a call */
    mn_masks masks;
    mn_form_time forms;
} mn_guides;

mn_status mn_guides_init(mn_guides *g, mn_pool *pool, uint32_t n_seq, mn_error *err);
void mn_guides_free(mn_guides *g);
/* Lets the guides of turns[0, n), which have noted ids, catch up. Of the guides that may wait only
 * one or a few catch up, and each call begins with another one; the rest stay behind until a later
 * call. */
void mn_guides_catch_up(mn_guides *g, uint32_t n);
void mn_guides_next_step(mn_guides *g); /* a step is complete: what follows counts for the next */
/* mn_guide_follow for turns[0, n). */
void mn_guides_follow(mn_guides *g, uint32_t n);

/* ---- masks.c --------------------------------------------------------------------------------- */
/* Memory for masks, once per engine. */
mn_status mn_masks_make(mn_guides *g, const mn_engine *e, uint32_t n_outputs, mn_error *err);
void mn_masks_free(mn_guides *g);
/* Writes what differs from the step before, by masks.of: before a step of a program with masks. */
mn_status mn_masks_write(mn_guides *g, mn_engine *e, uint32_t n, mn_error *err);
/* Within the room: run(arg, i) for all i < n, in any order, in several threads where it is worth
 * it; the time counts. */
void mn_guides_share(mn_guides *g, uint32_t n, void (*run)(void *arg, uint32_t i), void *arg);
#endif
