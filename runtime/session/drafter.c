/* drafter.c -- drafts of a smaller model, or of the model's own draft head: a session of its own,
 * which this one owns and runs while a step is filled. Each sequence has one there, which is cut
 * back to what both have in common and goes on from there; it draws with the sequence's own
 * parameters, seed and positions, so that equal distributions would draw equal ids. A failure there
 * means no drafts, never an error.
 *
 * A head reads, beside each id, the hidden state in front of it (runtime/graph/arch_blocks.c): the
 * model's, which steps tell as they complete, and behind the last known id its own. Rows with its
 * own are computed again once the model's are known; rows whose state nobody has kept, such as
 * those of a prompt's cached part, read zeros, as the first row of a text does. */
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
enum { FEED = 512 }; /* hidden states that wait at most before the head computes their rows */

/* Hidden states of the model for one slot: of positions [lo, lo + n), [cap, n_embd]. */
typedef struct {
    float *rows;
    uint32_t lo, n, cap;
    /* the first rows of the head's sequence that were computed from the model's hidden states */
    uint32_t n_true;
    float *own; /* [n_embd] the head's own, behind position own_at; NULL: there is none yet */
    uint32_t own_at;
} heard;

struct mn_drafter {
    mn_session *of;    /* whose drafts it makes */
    mn_session *inner; /* of the draft model, or of the head */
    int32_t *seqs;     /* [n_seq] its sequence for each slot, or -1 */
    uint64_t *orders;  /* [n_seq] mn_draft_turn.order that it is for */
    heard *heard;      /* [n_seq] of a head; NULL: a draft model */
};

static bool run_drafter(void *arg, const mn_draft_turn *turns, const uint32_t *of, uint32_t *n,
                        uint32_t n_of);
static void hear_model(void *arg, const mn_hidden_rows *r);
static void hear_head(void *arg, const mn_hidden_rows *r);
static const float *state_before(void *arg, uint32_t slot, uint32_t position);

static const char *device_of(void *arg) {
    const mn_drafter *x = arg;
    return x->inner->device;
}

/* What the head reads and tells. */
static mn_status link_head(mn_drafter *x, mn_error *err) {
    const uint32_t n_seq = x->of->steps.n_seq;
    x->heard = mn_calloc(n_seq, sizeof *x->heard);
    if (!x->heard)
        return mn_fail_memory(err, n_seq * sizeof *x->heard);
    x->of->steps.hidden = (mn_hidden_link){.tell = hear_model, .arg = x};
    x->inner->steps.hidden = (mn_hidden_link){.tell = hear_head, .hear = state_before, .arg = x};
    return MN_OK;
}

mn_status mn_drafter_create(mn_session *s, const mn_session_params *p, mn_error *err) {
    const bool head = p->speculate & MN_SPECULATE_HEAD;
    const mn_session_params inner = {.size = sizeof inner,
                                     .precision = p->precision,
                                     .device = p->draft_device ? p->draft_device : p->device,
                                     .n_ctx = s->steps.n_ctx,
                                     .n_seq = s->steps.n_seq,
                                     .n_batch = s->steps.n_batch,
                                     .flags = head ? MN_SESSION_HEAD : 0,
                                     .cache_dir = "",
                                     .tensor_devices = ""};
    mn_status st = head ? MN_OK : check_vocabulary(s->model, p->draft, err);
    if (st)
        return st;
    mn_drafter *x = mn_calloc(1, sizeof *x);
    s->drafter = x;
    if (!x)
        return mn_fail_memory(err, sizeof *x);
    x->of = s;
    st = mn_session_make(head ? s->model : p->draft, inner, &x->inner, err);
    if (st)
        return mn_fail_in(err, st, head ? "the draft head" : "the draft model");
    x->seqs = mn_alloc(s->steps.n_seq, sizeof *x->seqs);
    x->orders = mn_calloc(s->steps.n_seq, sizeof *x->orders);
    if (!x->seqs || !x->orders)
        return mn_fail_memory(err, s->steps.n_seq * sizeof *x->orders);
    memset(x->seqs, 0xff, s->steps.n_seq * sizeof *x->seqs);
    s->steps.drafts.source = (mn_draft_source){run_drafter, device_of, x};
    return head ? link_head(x, err) : MN_OK;
}

void mn_drafter_free(mn_session *s) {
    mn_drafter *x = s->drafter;
    if (!x)
        return;
    mn_session_free(x->inner);
    for (uint32_t i = 0; x->heard && i < s->steps.n_seq; i++) {
        mn_free(x->heard[i].rows);
        mn_free(x->heard[i].own);
    }
    mn_free(x->heard);
    mn_free(x->seqs);
    mn_free(x->orders);
    mn_free(x);
    s->steps.hidden = (mn_hidden_link){0};
    s->drafter = NULL;
}

/* ---- its sequences --------------------------------------------------------------------------- */
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
    if (x->heard)
        x->heard[slot].n_true = 0;
}

/* With how many of ids [n] the sequence for a slot begins, as far as its rows can stay; the last id
 * is to be computed. */
static uint32_t in_common(const mn_drafter *x, uint32_t slot, const int32_t *ids, uint32_t n) {
    if (x->seqs[slot] < 0)
        return 0;
    const mn_sequence *inner = &x->inner->steps.seqs[x->seqs[slot]];
    uint32_t most = MN_MIN(inner->n_tokens, n - 1);
    uint32_t same = 0;
    if (inner->running) /* another slot's turn, which comes first */
        return 0;
    if (x->heard)
        most = MN_MIN(most, x->heard[slot].n_true);
    while (same < most && inner->tokens[same] == ids[same])
        same++;
    return same;
}

/* The slot whose sequence begins with the most of the ids: its own, unless that lacks most of them
 * and a head could keep rows of another's. */
static uint32_t nearest(const mn_drafter *x, uint32_t slot, const int32_t *ids, uint32_t n) {
    uint32_t best = slot;
    uint32_t most = in_common(x, slot, ids, n);
    for (uint32_t i = 0; x->heard && most < n / 2 && i < x->of->steps.n_seq; i++) {
        const uint32_t same = in_common(x, i, ids, n);
        if (same <= most)
            continue;
        best = i;
        most = same;
    }
    return best;
}

/* The sequence for the slot becomes the first `keep` ids of that for another one. */
static mn_status take_over(mn_drafter *x, uint32_t slot, uint32_t from, uint32_t keep,
                           mn_error *err) {
    int32_t twin = -1;
    drop_seq(x, slot);
    const mn_status st = mn_seq_fork_at(x->inner, x->seqs[from], keep, &twin, err);
    if (st)
        return st;
    x->seqs[slot] = twin;
    x->heard[slot].n_true = keep;
    return MN_OK;
}

/* The sequence for the slot goes on behind what it has in common with ids [n], to all of them. */
static mn_status follow_ids(mn_drafter *x, uint32_t slot, const int32_t *ids, uint32_t n,
                            const mn_sample_params *params, mn_error *err) {
    const uint32_t from = nearest(x, slot, ids, n);
    const uint32_t keep = in_common(x, from, ids, n);
    int32_t *at = &x->seqs[slot];
    mn_status st = MN_OK;
    if (!keep) {
        drop_seq(x, slot);
        return mn_seq_create(x->inner, ids, n, params, at, err);
    }
    if (from == slot)
        st = mn_seq_truncate(x->inner, *at, keep, err);
    else
        st = take_over(x, slot, from, keep, err);
    if (!st)
        st = mn_seq_extend(x->inner, *at, ids + keep, n - keep, params, err);
    return st;
}

/* The draft model's sequence goes on behind the tokens of q, to draw n ids. */
static mn_status follow_turn(mn_drafter *x, const mn_draft_turn *q, uint32_t n, mn_error *err) {
    const mn_sample_params params = params_of(q, n);
    if (x->orders[q->slot] != q->order && !x->heard)
        drop_seq(x, q->slot);
    x->orders[q->slot] = q->order;
    return follow_ids(x, q->slot, q->tokens, q->n_tokens, &params, err);
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

/* ---- hidden states --------------------------------------------------------------------------- */
static size_t hidden_width(const mn_drafter *x) {
    return (size_t)x->of->steps.graph->hp.n_embd;
}

/* Those below a position are of no use any more. */
static void forget_below(const mn_drafter *x, heard *h, uint32_t position) {
    const uint32_t n = MN_MIN(position > h->lo ? position - h->lo : 0, h->n);
    if (!n)
        return;
    h->n -= n;
    h->lo += n;
    memmove(h->rows, h->rows + n * hidden_width(x), h->n * hidden_width(x) * sizeof *h->rows);
}

/* Rows of a prompt are computed as they come, so that few hidden states are kept. */
static mn_status feed_head(mn_drafter *x, const mn_hidden_rows *r, mn_error *err) {
    static const mn_sample_params none = {.size = sizeof none, .flags = MN_SAMPLE_PREFILL_ONLY};
    heard *h = &x->heard[r->slot];
    const uint32_t n = MN_MIN(r->n_tokens, h->lo + h->n + 1);
    mn_status st = follow_ids(x, r->slot, r->tokens, n, &none, err);
    if (!st)
        st = draw_all(x->inner, err);
    if (st) {
        drop_seq(x, r->slot);
        return st;
    }
    h->n_true = n;
    forget_below(x, h, n - 1);
    return MN_OK;
}

/* The model's, behind a step. */
static void hear_model(void *arg, const mn_hidden_rows *r) {
    mn_drafter *x = arg;
    heard *h = &x->heard[r->slot];
    const size_t width = hidden_width(x);
    mn_error why = MN_ERROR_INIT;
    void *rows = h->rows;
    size_t cap = h->cap;
    if (!x->of->steps.drafts.ready) /* no draft could be verified */
        return;
    if (r->position > h->lo + h->n || r->position < h->lo)
        h->lo = r->position;
    h->n = r->position - h->lo;
    if (!mn_grow(&rows, &cap, h->n + r->n, width * sizeof *h->rows)) {
        h->n = 0; /* drafts are worse, and nothing else is */
        return;
    }
    h->rows = rows;
    h->cap = (uint32_t)cap;
    memcpy(h->rows + h->n * width, r->rows, r->n * width * sizeof *h->rows);
    h->n += r->n;
    if (h->n >= FEED && x->inner->steps.engine && feed_head(x, r, &why))
        mn_log(MN_LOG_INFO, "the draft head: %s", why.msg);
}

/* The slot that a sequence of the head is for. */
static heard *heard_of(const mn_drafter *x, uint32_t seq) {
    for (uint32_t i = 0; i < x->of->steps.n_seq; i++)
        if (x->seqs[i] == (int32_t)seq)
            return &x->heard[i];
    return NULL;
}

/* The head's own, behind its last row. */
static void hear_head(void *arg, const mn_hidden_rows *r) {
    const mn_drafter *x = arg;
    const size_t width = hidden_width(x);
    heard *h = heard_of(x, r->slot);
    if (h && !h->own)
        h->own = mn_alloc(width, sizeof *h->own);
    if (!h || !h->own)
        return;
    memcpy(h->own, r->rows + (r->n - 1) * width, width * sizeof *h->own);
    h->own_at = r->position + r->n - 1;
}

static const float *state_before(void *arg, uint32_t slot, uint32_t position) {
    const mn_drafter *x = arg;
    const heard *h = heard_of(x, slot);
    if (!h || !position)
        return NULL;
    if (position > h->lo && position - 1 - h->lo < h->n)
        return h->rows + (position - 1 - h->lo) * hidden_width(x);
    return h->own && h->own_at == position - 1 ? h->own : NULL;
}

/* ---- drafts ---------------------------------------------------------------------------------- */
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

/* Rows of known ids stay; the model's hidden states in front of them have been read. */
static void note_rows(const mn_drafter *x, const mn_draft_turn *q) {
    heard *h = &x->heard[q->slot];
    h->n_true = q->n_tokens;
    h->own_at = UINT32_MAX;
    forget_below(x, h, q->n_tokens - 1);
}

/* No device is left for it: the session goes on without. */
static void leave_drafter(mn_session *s, const char *why) {
    const char *of = s->drafter->heard ? "head" : "model";
    mn_log(MN_LOG_WARN, "no drafts of the draft %s any more: %s", of, why);
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
        const mn_draft_turn *q = &turns[of[i]];
        n[i] = ran ? 0 : collect_drafts(x, q, n[i]);
        if (ran)
            drop_seq(x, q->slot);
        else if (x->heard && x->seqs[q->slot] >= 0)
            note_rows(x, q);
    }
    if (st || ran)
        mn_log(MN_LOG_INFO, "the draft model: %s", why.msg);
    const uint64_t n_prompt = x->inner->steps.stats.n_prompt - n_before;
    if (!x->inner->steps.engine)
        leave_drafter(x->of, why.msg);
    return n_prompt <= (uint64_t)n_of * (MN_MAX_DRAFT + 2);
}
