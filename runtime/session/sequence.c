/* sequence.c -- sequences: begin, extend, fork, free.
 *
 * The host keeps every token of a sequence, so that it can be computed again elsewhere; the device
 * keeps the rest (KV pages, the slot). Every function leaves the session as it was where it fails, and
 * every call of the engine goes through mn_failover. */
#include "session/session.h"
#include <float.h>
#include <string.h>

/* finished: the call needs a sequence that does not run. */
static mn_status check_seq(const mn_session *s, int32_t seq, bool finished, mn_error *err) {
    if (seq < 0 || (uint32_t)seq >= s->n_seq || !s->seqs[seq].used)
        return mn_fail(err, MN_INVALID, "there is no sequence %d", seq);
    if (finished && s->seqs[seq].running)
        return mn_fail(err, MN_INVALID, "sequence %d is still running", seq);
    return MN_OK;
}

/* before: tokens that the sequence has already. */
static mn_status check_ids(const mn_session *s, const int32_t *ids, uint32_t n, uint32_t before,
                           mn_error *err) {
    const int64_t n_vocab = s->graph->hp.n_vocab;
    if (!n)
        return mn_fail(err, MN_BAD_INPUT, "the prompt is empty: no token to begin with");
    if (n > s->n_ctx || before > s->n_ctx - n)
        return mn_fail(
            err, MN_BAD_INPUT,
            "the prompt has %u tokens%s, the context %u (-c; the model was trained for %lld)",
            before + n, before ? " with what came before" : "", s->n_ctx,
            (long long)s->graph->hp.n_ctx_train);
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < n_vocab)
            continue;
        return mn_fail(err, MN_BAD_INPUT,
                       "token id %d at place %u is outside the vocabulary of %lld", ids[i], i,
                       (long long)n_vocab);
    }
    return MN_OK;
}

/* Each id once. */
static mn_status add_stop(mn_slot_params *p, int32_t id, mn_error *err) {
    for (int32_t i = 0; i < p->n_stop; i++)
        if (p->stop[i] == id)
            return MN_OK;
    if (p->n_stop >= MN_MAX_STOP)
        return mn_fail(err, MN_BAD_INPUT, "more than %d stop ids", MN_MAX_STOP);
    p->stop[p->n_stop++] = id;
    return MN_OK;
}

/* Not what SAMPLE could do something with: a NaN would be taken for greedy. */
static mn_status check_params(const mn_sample_params *p, mn_error *err) {
    const struct {
        const char *name;
        float value;
        float min;
        float max;
    } rows[] = {
        {"temp", p->temp, -FLT_MAX, FLT_MAX},
        {"top_p", p->top_p, 0, 1},
        {"min_p", p->min_p, 0, 1},
        {"repeat_penalty", p->repeat_penalty, 0, FLT_MAX},
        {"frequency_penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX},
        {"presence_penalty", p->presence_penalty, -FLT_MAX, FLT_MAX},
    };
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (!(rows[i].value >= rows[i].min && rows[i].value <= rows[i].max))
            return mn_fail(
                err, MN_INVALID, "mn_sample_params.%s: found %g, expected a number from %g to %g",
                rows[i].name, (double)rows[i].value, (double)rows[i].min, (double)rows[i].max);
    if (p->top_k < 0)
        return mn_fail(err, MN_INVALID, "mn_sample_params.top_k: found %d, expected 0 or more",
                       p->top_k);
    return MN_OK;
}

/* What the caller asks for, complete: greedy where it says nothing. */
static mn_status take_params(const mn_sample_params *given, mn_sample_params *out, mn_error *err) {
    *out = (mn_sample_params){.size = sizeof *out};
    mn_status st = mn_args_take(MN_SIZED_SAMPLE_PARAMS, out, given, err);
    if (!st && out->n_stop && !out->stop)
        st = mn_fail(err, MN_INVALID, "mn_sample_params.stop is NULL, n_stop is %u", out->n_stop);
    return st ? st : check_params(out, err);
}

/* What SAMPLE reads, with the model's stop ids and the caller's. */
static mn_status set_params(const mn_session *s, const mn_sample_params *p, mn_slot_params *out,
                            mn_error *err) {
    *out = (mn_slot_params){.seed = p->seed,
                            .temp = p->temp,
                            .top_k = p->top_k,
                            .top_p = p->top_p,
                            .min_p = p->min_p,
                            .repeat_penalty = p->repeat_penalty,
                            .frequency_penalty = p->frequency_penalty,
                            .presence_penalty = p->presence_penalty,
                            .penalty_last_n = p->penalty_last_n};
    mn_status st = MN_OK;
    const mn_model *m = s->model;
    for (uint32_t i = 0; i < m->n_stop && !p->ignore_stop && !st; i++)
        if (m->stop[i] < s->graph->hp.n_vocab)
            st = add_stop(out, m->stop[i], err);
    for (uint32_t i = 0; i < p->n_stop && !st; i++)
        st = add_stop(out, p->stop[i], err);
    return st;
}

mn_status mn_seq_wake(mn_session *s, uint32_t seq, mn_error *err) {
    const mn_sequence *q = &s->seqs[seq];
    const mn_slot state = {.pos = (int32_t)q->n_enqueued, .n_drawn = (int32_t)q->n_drawn};
    return mn_engine_reset_slot(s->engine, seq, &state, &q->params, err);
}

/* Lets the sequence run from n_enqueued on: all known tokens are literal, then it draws. */
static mn_status begin(mn_session *s, uint32_t seq, const mn_sample_params *params, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    const uint32_t room = s->n_ctx - q->n_tokens + 1;
    mn_status st = set_params(s, params, &q->params, err);
    if (st)
        return st;
    q->limit = params->max_new ? MN_MIN(params->max_new, room) : room;
    q->params.max_new = (int32_t)q->limit;
    q->n_literal = q->n_tokens;
    q->n_drawn = 0;
    q->n_draw_enqueued = 0;
    q->epoch++;
    q->running = true; /* so that it is woken with the others if the device is lost here */
    st = mn_failover(s, mn_seq_wake(s, seq, err), err);
    q->running = !st;
    return st;
}

/* A sequence that is free, empty. */
static mn_status claim(mn_session *s, int32_t *seq, mn_error *err) {
    for (uint32_t i = 0; i < s->n_seq; i++) {
        mn_sequence *q = &s->seqs[i];
        if (q->used)
            continue;
        q->used = true;
        q->running = false;
        q->n_tokens = 0;
        q->n_literal = 0;
        q->n_enqueued = 0;
        q->n_restore = 0;
        memset(q->pages, 0, sizeof q->pages);
        *seq = (int32_t)i;
        return MN_OK;
    }
    return mn_fail(err, MN_OUT_OF_MEMORY, "all %u sequences of the session are in use", s->n_seq);
}

mn_status mn_seq_begin(mn_session *s, const int32_t *ids, uint32_t n,
                       const mn_sample_params *params, int32_t *seq, mn_error *err) {
    int32_t i = 0;
    mn_status st = check_ids(s, ids, n, 0, err);
    if (!st)
        st = mn_failover_ready(s, err);
    if (!st)
        st = claim(s, &i, err);
    if (st)
        return st;
    memcpy(s->seqs[i].tokens, ids, n * sizeof *ids);
    s->seqs[i].n_tokens = n;
    st = begin(s, (uint32_t)i, params, err);
    if (st)
        mn_seq_free(s, i);
    else
        *seq = i;
    return st;
}

mn_status mn_seq_create(mn_session *s, const int32_t *ids, uint32_t n,
                        const mn_sample_params *params, int32_t *seq, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    mn_sample_params p;
    const mn_arg args[] = {{"s", s}, {"ids", ids}, {"seq", seq}, {0}};
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = mn_session_draws(s, __func__, err);
    if (!st)
        st = take_params(params, &p, err);
    return st ? st : mn_seq_begin(s, ids, n, &p, seq, err);
}

mn_status mn_seq_extend(mn_session *s, int32_t seq, const int32_t *ids, uint32_t n,
                        const mn_sample_params *params, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    mn_sample_params p;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {"ids", ids}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = take_params(params, &p, err);
    if (!st)
        st = check_seq(s, seq, true, err);
    if (!st)
        st = check_ids(s, ids, n, s->seqs[seq].n_tokens, err);
    if (!st)
        st = mn_failover_ready(s, err);
    if (st)
        return st;
    mn_sequence *q = &s->seqs[seq];
    memcpy(q->tokens + q->n_tokens, ids, n * sizeof *ids);
    q->n_tokens += n;
    st = begin(s, (uint32_t)seq, &p, err);
    if (st)
        q->n_tokens -= n; /* as it was: the caller may try again */
    return st;
}

mn_status mn_seq_fork(mn_session *s, int32_t seq, int32_t *out, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    int32_t i = 0;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {"out", out}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = check_seq(s, seq, true, err);
    if (!st)
        st = mn_failover_ready(s, err);
    if (!st)
        st = claim(s, &i, err);
    if (st)
        return st;
    const mn_sequence *from = &s->seqs[seq];
    const uint32_t n = from->n_enqueued;
    mn_sequence *to = &s->seqs[i];
    memcpy(to->tokens, from->tokens, from->n_tokens * sizeof *to->tokens);
    to->n_tokens = from->n_tokens;
    to->n_literal = to->n_tokens;
    to->n_enqueued = n;
    to->n_restore = from->n_restore;
    st = mn_pages_share(s, (uint32_t)seq, (uint32_t)i, n, err);
    if (!st)
        st = mn_engine_write_history(s->engine, (uint32_t)i, to->tokens, n, err);
    st = mn_failover(s, st, err); /* then the tokens are all that there is to copy */
    if (st)
        mn_seq_free(s, i);
    else
        *out = i;
    return st;
}

void mn_seq_free(mn_session *s, int32_t seq) {
    if (!s || mn_pool_is_stranded(s->model->rt->pool) || check_seq(s, seq, false, NULL))
        return;
    mn_sequence *q = &s->seqs[seq];
    mn_pages_drop(s, (uint32_t)seq);
    q->used = q->running = false;
    q->epoch++;
}

uint32_t mn_seq_length(const mn_session *s, int32_t seq) {
    return !s || check_seq(s, seq, false, NULL) ? 0 : s->seqs[seq].n_tokens;
}
