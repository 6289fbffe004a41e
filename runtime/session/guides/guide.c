/* guide.c -- sequences with a constraint: the place of each in its grammar, and its next mask.
 *
 * A guide belongs to a job, or to a sequence of mn_seq_create, and outlives slots, pages and
 * engines: a sequence that is preempted, or goes on with another device, has its guide where its
 * tokens end. The mask of the next row is made as soon as the ids of a step are known, so that an
 * error is one of the last id and the next step only copies it; guides.c does that for all guides
 * of a step.
 *
 * Where only one text can follow, the mask has one id, the tokeniser's, and a step draws several of
 * them as drafts that cannot fail. What is forced follows from the text alone, so that ids are the
 * same whether a device verifies drafts or draws them one by one. */
#include "session/guides/guides.h"
#include <math.h>
#include <string.h>

/* A guide is slow when the ids of a step took a SLOWth of what they may: a millisecond or more.
 * AFTER: what part is left to each once the constraint was too much for another one. */
enum { MOST_FORCED = 32, SLOW = 12, AFTER = 8 };
/* Ids that have to come next, in order: those from `at` on. */
typedef struct {
    int32_t id[MOST_FORCED];
    uint32_t at, n;
} forced_ids;

struct mn_guide {
    mn_constraint *of;
    mn_grammar_state *state;
    mn_grammar_budget budget; /* of state and its copies */
    uint32_t *bits;           /* [n_words], of the next id */
    int32_t last;             /* the id before the next one */
    forced_ids forced;
    int32_t *banned; /* ids that biases rule out: never forced */
    uint32_t n_banned;
    uint32_t n_vocab, n_words, n_allocated;
    uint32_t n_drawn, min_new;
    bool ignore_stop;
    int32_t n_stop;
    int32_t stop[MN_MAX_STOP];
    uint32_t *ahead; /* [MN_MAX_DRAFT][n_words], of the ids behind drafts; NULL until there are */
    int32_t noted[MN_MAX_DRAFT + 1]; /* ids that were drawn and are not part of the state yet */
    uint32_t n_noted;
    mn_status st; /* of the last mn_guide_catch_up */
    mn_error why;
};

static bool has_any(const mn_guide *g) {
    for (uint32_t i = 0; i < g->n_words; i++)
        if (g->bits[i])
            return true;
    return false;
}

/* Ids of the tokeniser that the output matrix does not have. */
static void cut_off(mn_guide *g) {
    const uint32_t last = g->n_vocab % 32;
    if (last)
        g->bits[g->n_words - 1] &= (1u << last) - 1;
}

/* Stop ids are drawn where the text is complete, and only there. */
static mn_status set_stops(mn_guide *g, mn_error *err) {
    for (int32_t i = 0; i < g->n_stop; i++)
        g->bits[g->stop[i] / 32] &= ~(1u << g->stop[i] % 32);
    const bool goes_on = has_any(g);
    const bool is_early = g->ignore_stop || g->n_drawn < g->min_new;
    if (!mn_grammar_complete(g->state)) {
        if (goes_on)
            return MN_OK;
        return mn_fail(err, MN_UNSUPPORTED,
                       "the text is not complete, and only stop ids could continue it");
    }
    for (int32_t i = 0; i < g->n_stop && !(goes_on && is_early); i++)
        g->bits[g->stop[i] / 32] |= 1u << g->stop[i] % 32;
    return MN_OK;
}

/* Whether the mask of the next id has it. */
static bool allows(const mn_guide *g, int32_t id) {
    return g->bits[id / 32] >> id % 32 & 1;
}

/* ---- forced text ----------------------------------------------------------------------------- */
static bool is_banned(const mn_guide *g, int32_t id) {
    for (uint32_t i = 0; i < g->n_banned; i++)
        if (g->banned[i] == id)
            return true;
    return false;
}

/* The mask of the next id becomes that id. */
static void allow_only(mn_guide *g, int32_t id) {
    memset(g->bits, 0, g->n_words * sizeof *g->bits);
    g->bits[id / 32] |= 1u << id % 32;
}

/* The mask of the next id, by the grammar and the stop ids alone. */
static mn_status renew_mask(mn_guide *g, mn_error *err) {
    mn_status st = mn_grammar_mask(g->state, g->bits, err);
    if (st)
        return st;
    cut_off(g);
    return set_stops(g, err);
}

/* Whether the text ahead is that of the token, whichever of the allowed ones begin it: none reaches
 * behind the `left` bytes that are forced. There, what comes next would choose among tokens. */
static bool is_forced(const mn_guide *g, int32_t id, uint64_t left) {
    const mn_grammar_vocab *v = g->of->model->grammar_vocab;
    return allows(g, id) && !is_banned(g, id) && mn_grammar_within(v, g->bits, g->n_words, left);
}

/* Along the ids that spell a text of n bytes: how many of them are forced. The state is a copy, and
 * the mask of the next id does not outlive the call. */
static uint32_t count_forced(mn_guide *g, const int32_t *ids, uint32_t n_ids, uint64_t n) {
    uint32_t i = 0;
    while (i < n_ids && is_forced(g, ids[i], n)) {
        n -= mn_vocabulary_text(g->of->model, ids[i]).len;
        i++;
        if (i < n_ids && (mn_grammar_accept(g->state, ids[i - 1], NULL) || renew_mask(g, NULL)))
            break;
    }
    return i;
}

/* The same from the present state, which stays. */
static void keep_forced(mn_guide *g, uint32_t n_ids, uint64_t n) {
    mn_grammar_state *now = g->state;
    if (!mn_grammar_state_copy(now, &g->state, NULL)) {
        g->forced.n = count_forced(g, g->forced.id, n_ids, n);
        mn_grammar_state_free(g->state);
    }
    g->state = now;
}

/* Looks for text that has to come next. No memory: nothing is found. What is forced follows from
 * the text alone, so that work which is used up is an error. */
static mn_status find_forced(mn_guide *g, mn_error *err) {
    const mn_model *m = g->of->model;
    mn_text text = {0};
    g->forced.at = 0;
    g->forced.n = 0;
    mn_status st = mn_grammar_forced(g->state, &text, err);
    if (!st && text.len && mn_grammar_within(m->grammar_vocab, g->bits, g->n_words, text.len)) {
        const mn_str ahead = {text.ptr, text.len};
        const uint32_t n = mn_forced_spell(m, g->last, ahead, g->forced.id, MOST_FORCED);
        keep_forced(g, n, text.len);
    }
    mn_text_free(&text);
    return st == MN_UNSUPPORTED ? st : MN_OK;
}

uint32_t mn_guide_n_forced(const mn_guide *g) {
    return g ? g->forced.n - g->forced.at : 0;
}

bool mn_guide_is_forced(const mn_guide *g) {
    return mn_guide_n_forced(g) > 0;
}

/* The mask of the next id. */
static mn_status guide_renew(mn_guide *g, mn_error *err) {
    if (g->forced.at == g->forced.n) {
        mn_status st = renew_mask(g, err);
        if (!st)
            st = find_forced(g, err);
        if (st)
            return st;
    }
    if (mn_guide_is_forced(g))
        allow_only(g, g->forced.id[g->forced.at]);
    return MN_OK;
}

/* One more id of the text. */
static mn_status guide_take(mn_guide *g, int32_t id, mn_error *err) {
    forced_ids *f = &g->forced;
    g->n_drawn++;
    g->last = id;
    if (mn_guide_is_forced(g) && f->id[f->at] == id)
        f->at++;
    else
        f->n = f->at;
    mn_status st = mn_grammar_accept(g->state, id, err);
    return st ? st : guide_renew(g, err);
}

void mn_guide_note(mn_guide *g, int32_t id) {
    g->noted[g->n_noted++] = id;
}

bool mn_guide_has_noted(const mn_guide *g) {
    return g && g->n_noted;
}

/* Where the work of a text was used up, others under the same constraint (choices of one request)
 * are likely to need as much: they have less for each step, so that these do not add up. */
static void limit_work(mn_guide *g) {
    mn_grammar_budget_next(&g->budget, g->n_noted);
    if (atomic_load(&g->of->exhausted))
        g->budget.step = MN_MIN(g->budget.step, g->budget.most_step / AFTER);
}

void mn_guide_catch_up(mn_guide *g) {
    limit_work(g);
    for (uint32_t i = 0; i < g->n_noted && !g->st; i++)
        g->st = guide_take(g, g->noted[i], &g->why);
    if (g->st == MN_UNSUPPORTED && (!g->budget.step || !g->budget.request))
        atomic_store(&g->of->exhausted, true);
    g->n_noted = 0;
}

bool mn_guide_is_slow(const mn_guide *g) {
    return g && g->budget.most * SLOW > g->budget.most_step;
}

uint64_t mn_guide_work(const mn_guide *g) {
    return g->budget.token;
}

const mn_error *mn_guide_failure(const mn_guide *g) {
    return g && g->st ? &g->why : NULL;
}

const uint32_t *mn_guide_mask(const mn_guide *g, uint32_t ahead) {
    return ahead ? g->ahead + (size_t)(ahead - 1) * g->n_words : g->bits;
}

/* ---- drafts ---------------------------------------------------------------------------------- */
/* On a copy of the state, which then is thrown away; the mask of the next id is kept. Drafts share
 * the work of a token with what came before them. */
static uint32_t follow_drafts(mn_guide *g, int32_t *drafts, uint32_t n, uint32_t most,
                              uint32_t *forced) {
    const size_t bytes = g->n_words * sizeof *g->bits;
    const forced_ids *f = &g->forced;
    uint32_t i = 0;
    for (; i < most; i++) {
        const bool is_known = mn_guide_is_forced(g);
        const int32_t id = is_known ? f->id[f->at] : drafts[i];
        if (!is_known && i >= n)
            break;
        if (i < n && drafts[i] != id)
            n = i; /* what was guessed behind it belongs to another text */
        if (!allows(g, id) || guide_take(g, id, NULL))
            break;
        drafts[i] = id;
        *forced |= (uint32_t)is_known << i;
        memcpy(g->ahead + (size_t)i * g->n_words, g->bits, bytes);
    }
    return i;
}

/* Memory for masks along drafts, once they are needed. */
static bool need_ahead(mn_guide *g) {
    if (!g->ahead)
        g->ahead = mn_alloc((size_t)MN_MAX_DRAFT * g->n_words, sizeof *g->ahead);
    return g->ahead != NULL;
}

uint32_t mn_guide_follow(mn_guide *g, int32_t *drafts, uint32_t n, uint32_t most,
                         uint32_t *forced) {
    uint32_t n_allowed = 0;
    *forced = 0;
    if (!most || (!n && !mn_guide_is_forced(g)) || !need_ahead(g))
        return 0;
    mn_guide now = *g;
    g->bits = mn_alloc(g->n_allocated, sizeof *g->bits);
    if (g->bits && !mn_grammar_state_copy(now.state, &g->state, NULL)) {
        memcpy(g->bits, now.bits, g->n_words * sizeof *g->bits);
        n_allowed = follow_drafts(g, drafts, n, most, forced);
        mn_grammar_state_free(g->state);
    }
    mn_free(g->bits);
    now.budget = g->budget;
    *g = now;
    return n_allowed;
}

/* Ids that the model does not have in its output cannot be drawn. */
static void take_stops(mn_guide *g, const mn_slot_params *slot) {
    for (int32_t i = 0; i < slot->n_stop; i++)
        if (slot->stop[i] >= 0 && (uint32_t)slot->stop[i] < g->n_vocab)
            g->stop[g->n_stop++] = slot->stop[i];
}

/* Memory for the mask; the grammar writes as many words as its vocabulary has. */
static bool guide_allocate(mn_guide *g) {
    const uint32_t own = mn_tokenizer_n_vocab(g->of->model->tokenizer);
    const uint32_t words = MN_GRAMMAR_WORDS(own);
    g->n_words = (uint32_t)MN_MASK_WORDS(g->n_vocab);
    g->n_allocated = MN_MAX(words, g->n_words);
    g->bits = mn_calloc(g->n_allocated, sizeof *g->bits);
    return g->bits != NULL;
}

/* The ids that cannot be drawn, whatever the constraint allows. */
static bool take_bans(mn_guide *g, const mn_sample_params *p) {
    if (p->n_bias)
        g->banned = mn_alloc(p->n_bias, sizeof *g->banned);
    for (uint32_t i = 0; i < p->n_bias && g->banned; i++)
        if (isinf(p->bias[i].bias) && p->bias[i].bias < 0)
            g->banned[g->n_banned++] = p->bias[i].id;
    return !p->n_bias || g->banned;
}

/* Ids that were drawn in an earlier life are taken as they were then, so that what is forced is,
 * too. */
static mn_status guide_begin(mn_guide *g, const mn_guide_start *from, mn_error *err) {
    if (!guide_allocate(g) || !take_bans(g, from->sample))
        return mn_fail_memory(err, g->n_words * sizeof *g->bits);
    take_stops(g, from->slot);
    const uint32_t n_prompt = from->n_ids - from->n_drawn;
    mn_grammar *grammar = NULL;
    mn_status st = mn_constraint_grammar(g->of, from->ids, n_prompt, &grammar, err);
    if (!st)
        st = mn_grammar_state_create(grammar, &g->state, err);
    if (!st)
        mn_grammar_state_spend(g->state, &g->budget);
    g->last = n_prompt ? from->ids[n_prompt - 1] : -1;
    if (!st)
        st = guide_renew(g, err);
    for (uint32_t i = n_prompt; i < from->n_ids && !st; i++) {
        mn_grammar_budget_next(&g->budget, 1);
        st = guide_take(g, from->ids[i], err);
    }
    return st;
}

mn_status mn_guide_create(uint32_t n_vocab, const mn_guide_start *from, mn_guide **out,
                          mn_error *err) {
    const mn_sample_params *p = from->sample;
    *out = NULL;
    if (!p->constraint || !p->constraint->grammar) /* any text */
        return MN_OK;
    mn_guide *g = mn_calloc(1, sizeof *g);
    if (!g)
        return mn_fail_memory(err, sizeof *g);
    g->why = (mn_error)MN_ERROR_INIT;
    g->of = mn_constraint_hold(p->constraint);
    g->n_vocab = n_vocab;
    g->min_new = p->min_new;
    g->ignore_stop = p->ignore_stop != 0;
    mn_grammar_budget_begin(&g->budget, g->of->model->grammar_vocab);
    mn_status st = guide_begin(g, from, err);
    if (st)
        mn_guide_free(g);
    else
        *out = g;
    return st ? mn_fail_in(err, st, "the constraint") : MN_OK;
}

void mn_guide_free(mn_guide *g) {
    if (!g)
        return;
    mn_grammar_state_free(g->state);
    mn_constraint_release(g->of);
    mn_free(g->bits);
    mn_free(g->ahead);
    mn_free(g->banned);
    mn_free(g);
}
