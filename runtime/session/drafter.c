/* drafter.c -- drafts of a smaller model: a session of its own, which this one owns and runs while
 * a step is filled. Each sequence has one there, which is cut back to what both have in common and
 * goes on from there; it draws with the sequence's own parameters, seed and positions, so that
 * equal distributions would draw equal ids. A failure there means no drafts, never an error. */
#include "session/session.h"
#include <stdio.h>
#include <string.h>

/* ---- the vocabulary -------------------------------------------------------------------------- */
static bool same_text(mn_str a, mn_str b) {
    return a.len == b.len && (!a.len || !memcmp(a.ptr, b.ptr, a.len));
}

/* Vocabularies are padded to round numbers: a token that is not there, or is called [PADn] as
 * converters do, has no text. */
static mn_str token_text(const mn_model *m, uint32_t id, uint32_t n) {
    const mn_str none = {"", 0};
    char padding[24];
    if (id >= n)
        return none;
    snprintf(padding, sizeof padding, "[PAD%u]", id);
    const mn_str text = mn_vocabulary_text(m, (int32_t)id);
    return same_text(text, mn_str_of(padding)) ? none : text;
}

static mn_status check_vocabulary(const mn_model *m, const mn_model *draft, mn_error *err) {
    const char *path = draft->canonical->path;
    if (draft == m)
        return MN_OK;
    if (draft->rt != m->rt)
        return mn_fail(err, MN_INVALID,
                       "mn_session_params.draft: opened in another runtime, expected the model's");
    if (!m->tokenizer || !draft->tokenizer)
        return mn_fail(err, MN_UNSUPPORTED, "%s: a draft model and its model need a tokeniser",
                       path);
    const uint32_t n = mn_tokenizer_n_vocab(m->tokenizer);
    const uint32_t n_draft = mn_tokenizer_n_vocab(draft->tokenizer);
    for (uint32_t i = 0; i < MN_MAX(n, n_draft); i++) {
        const mn_str want = token_text(m, i, n);
        const mn_str found = token_text(draft, i, n_draft);
        if (!same_text(want, found))
            return mn_fail(err, MN_BAD_INPUT,
                           "%s: token %u is \"%.*s\", expected \"%.*s\": a draft model needs the "
                           "vocabulary of its model",
                           path, i, (int)MN_MIN(found.len, 40u), found.ptr,
                           (int)MN_MIN(want.len, 40u), want.ptr);
    }
    return MN_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */
struct mn_drafter {
    mn_session *of;    /* whose drafts it makes */
    mn_session *inner; /* of the draft model */
    int32_t *seqs;     /* [n_seq] its sequence for each slot, or -1 */
    uint64_t *orders;  /* [n_seq] mn_draft_turn.order that it is for */
};

static bool run_drafter(void *arg, const mn_draft_turn *turns, const uint32_t *of, uint32_t *n,
                        uint32_t n_of);

static const char *device_of(void *arg) {
    const mn_drafter *x = arg;
    return x->inner->device;
}

mn_status mn_drafter_create(mn_session *s, const mn_session_params *p, mn_error *err) {
    const mn_session_params inner = {.size = sizeof inner,
                                     .precision = p->precision,
                                     .device = p->draft_device ? p->draft_device : p->device,
                                     .n_ctx = s->steps.n_ctx,
                                     .n_seq = s->steps.n_seq,
                                     .n_batch = s->steps.n_batch,
                                     .cache_dir = "",
                                     .tensor_devices = ""};
    mn_status st = check_vocabulary(s->model, p->draft, err);
    if (st)
        return st;
    mn_drafter *x = mn_calloc(1, sizeof *x);
    s->drafter = x;
    if (!x)
        return mn_fail_memory(err, sizeof *x);
    x->of = s;
    st = mn_session_create(p->draft, &inner, &x->inner, err);
    if (st)
        return mn_fail_in(err, st, "the draft model");
    x->seqs = mn_alloc(s->steps.n_seq, sizeof *x->seqs);
    x->orders = mn_calloc(s->steps.n_seq, sizeof *x->orders);
    if (!x->seqs || !x->orders)
        return mn_fail_memory(err, s->steps.n_seq * sizeof *x->orders);
    memset(x->seqs, 0xff, s->steps.n_seq * sizeof *x->seqs);
    s->steps.drafts.source = (mn_draft_source){run_drafter, device_of, x};
    return MN_OK;
}

void mn_drafter_free(mn_session *s) {
    mn_drafter *x = s->drafter;
    if (!x)
        return;
    mn_session_free(x->inner);
    mn_free(x->seqs);
    mn_free(x->orders);
    mn_free(x);
    s->drafter = NULL;
}

/* ---- drafts ---------------------------------------------------------------------------------- */
/* What the sequence draws with; its stop ids are cut off later. */
static mn_sample_params params_of(const mn_draft_turn *q, uint32_t n) {
    const mn_slot_params *p = q->params;
    return (mn_sample_params){.size = sizeof(mn_sample_params),
                              .max_new = n,
                              .seed = p->seed,
                              .temp = p->temp,
                              .top_k = p->top_k,
                              .top_p = p->top_p,
                              .min_p = p->min_p,
                              .repeat_penalty = p->repeat_penalty,
                              .frequency_penalty = p->frequency_penalty,
                              .presence_penalty = p->presence_penalty,
                              .penalty_last_n = p->penalty_last_n,
                              .ignore_stop = 1};
}

static void drop_seq(mn_drafter *x, uint32_t slot) {
    if (x->seqs[slot] >= 0)
        mn_seq_free(x->inner, x->seqs[slot]);
    x->seqs[slot] = -1;
}

/* How many tokens the two begin with alike; at least the last one of q is to be computed. */
static uint32_t in_common(const mn_sequence *inner, const mn_draft_turn *q) {
    const uint32_t most = MN_MIN(inner->n_tokens, q->n_tokens - 1);
    uint32_t n = 0;
    while (n < most && inner->tokens[n] == q->tokens[n])
        n++;
    return n;
}

/* The draft model's sequence goes on behind the tokens of q, to draw n ids. */
static mn_status follow_turn(mn_drafter *x, const mn_draft_turn *q, uint32_t n, mn_error *err) {
    const mn_sample_params params = params_of(q, n);
    int32_t *at = &x->seqs[q->slot];
    if (x->orders[q->slot] != q->order)
        drop_seq(x, q->slot);
    x->orders[q->slot] = q->order;
    const uint32_t keep = *at < 0 ? 0 : in_common(&x->inner->steps.seqs[*at], q);
    if (!keep) {
        drop_seq(x, q->slot);
        return mn_seq_create(x->inner, q->tokens, q->n_tokens, &params, at, err);
    }
    mn_status st = mn_seq_truncate(x->inner, *at, keep, err);
    if (!st)
        st = mn_seq_extend(x->inner, *at, q->tokens + keep, q->n_tokens - keep, &params, err);
    return st;
}

/* Until all have drawn. */
static mn_status draw_all(mn_session *inner, mn_error *err) {
    mn_status st = mn_failover_ready(inner, err);
    bool idle = false;
    uint32_t n;
    while (!idle && !st) {
        st = mn_steps_advance(&inner->steps, NULL, &n, &idle, err);
        st = mn_failover(inner, st, err);
    }
    return st;
}

/* What was drawn behind the tokens of q goes there; how many. */
static uint32_t collect_drafts(const mn_drafter *x, const mn_draft_turn *q, uint32_t n) {
    if (x->seqs[q->slot] < 0)
        return 0;
    const mn_sequence *inner = &x->inner->steps.seqs[x->seqs[q->slot]];
    if (inner->n_tokens <= q->n_tokens)
        return 0;
    n = MN_MIN(n, inner->n_tokens - q->n_tokens);
    memcpy(q->tokens + q->n_tokens, inner->tokens + q->n_tokens, n * sizeof *q->tokens);
    return n;
}

/* No device is left for the draft model: the session goes on without. */
static void leave_drafter(mn_session *s, const char *why) {
    mn_log(MN_LOG_WARN, "no drafts of the draft model any more: %s", why);
    mn_drafter_free(s);
    mn_drafts_lose_source(&s->steps.drafts);
}

static bool run_drafter(void *arg, const mn_draft_turn *turns, const uint32_t *of, uint32_t *n,
                        uint32_t n_of) {
    mn_drafter *x = arg;
    mn_error why = MN_ERROR_INIT;
    mn_status st = MN_OK;
    const uint64_t n_before = x->inner->steps.stats.n_prompt;
    for (uint32_t i = 0; i < n_of; i++) {
        mn_status one = follow_turn(x, &turns[of[i]], n[i], &why);
        if (one)
            drop_seq(x, turns[of[i]].slot);
        st = one ? one : st;
    }
    const mn_status ran = draw_all(x->inner, &why);
    for (uint32_t i = 0; i < n_of; i++) {
        n[i] = ran ? 0 : collect_drafts(x, &turns[of[i]], n[i]);
        if (ran)
            drop_seq(x, turns[of[i]].slot);
    }
    if (st || ran)
        mn_log(MN_LOG_INFO, "the draft model: %s", why.msg);
    const uint64_t n_prompt = x->inner->steps.stats.n_prompt - n_before;
    if (!x->inner->steps.engine)
        leave_drafter(x->of, why.msg);
    return n_prompt <= (uint64_t)n_of * (MN_MAX_DRAFT + 2);
}
