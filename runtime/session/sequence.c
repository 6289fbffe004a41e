/* sequence.c -- sequences: begin, extend, fork, free.
 *
 * The host keeps every token of a sequence, so that it can be computed again elsewhere; the device
 * keeps the rest (KV pages, the slot). Every function leaves the session as it was where it fails,
 * and every call of the engine goes through mn_failover. */
#include "session/session.h"
#include <string.h>

/* finished: the call needs a sequence that does not run. */
static mn_status check_seq(const mn_session *s, int32_t seq, bool finished, mn_error *err) {
    if (seq < 0 || (uint32_t)seq >= s->steps.n_seq || !s->steps.seqs[seq].used)
        return mn_fail(err, MN_INVALID, "there is no sequence %d", seq);
    if (finished && s->steps.seqs[seq].running)
        return mn_fail(err, MN_INVALID, "sequence %d is still running", seq);
    return MN_OK;
}

/* A copy of the biases, which failover needs again; false = out of memory. */
static bool own_bias(mn_sequence *q, const mn_sample_params *params) {
    mn_logit_bias *copy = NULL;
    const size_t bytes = params->n_bias * sizeof *copy;
    if (params->n_bias) {
        copy = mn_alloc(params->n_bias, sizeof *copy);
        if (!copy)
            return false;
        memcpy(copy, params->bias, bytes);
    }
    mn_free(q->own_bias);
    q->own_bias = copy;
    q->bias = copy;
    q->n_bias = params->n_bias;
    q->scores = params->n_bias > 0;
    return true;
}

/* The samplers begin with this answer. */
static mn_status own_samplers(mn_session *s, mn_sequence *q, const mn_sample_params *params,
                              mn_error *err) {
    uint32_t *breakers = NULL;
    mn_status st = mn_breakers_create(&s->steps.limits, params, &q->params, &breakers, err);
    if (st)
        return st;
    mn_free(q->own_breakers);
    q->own_breakers = breakers;
    q->breakers = breakers;
    q->samplers = mn_samplers_need(&q->params);
    q->mu = 2 * q->params.mirostat_tau;
    return MN_OK;
}

/* Where the sequence is in its constraint, from the start. */
static mn_status own_guide(mn_session *s, mn_sequence *q, const mn_sample_params *params,
                           mn_error *err) {
    mn_guide *guide = NULL;
    const mn_guide_start from = {
        .sample = params, .slot = &q->params, .ids = q->tokens, .n_ids = q->n_tokens};
    mn_status st = mn_guide_create((uint32_t)s->steps.graph->hp.n_vocab, &from, &guide, err);
    if (st)
        return st;
    mn_guide_free(q->own_guide);
    q->own_guide = guide;
    q->guide = guide;
    return MN_OK;
}

/* Lets the sequence run from n_enqueued on: all known tokens are literal, then it draws. */
static mn_status begin_sequence(mn_session *s, uint32_t seq, const mn_sample_params *params,
                                mn_error *err) {
    mn_sequence *q = &s->steps.seqs[seq];
    const uint32_t most = atomic_load(&s->steps.limits.max_positions);
    if (q->n_tokens > most)
        return mn_fail(err, MN_BAD_INPUT,
                       "the prompt has %u tokens with what came before, the KV cache has room for "
                       "%u positions",
                       q->n_tokens, most);
    const uint32_t room = most - q->n_tokens + 1;
    mn_status st = mn_params_of_slot(&s->steps.limits, params, &q->params, err);
    if (st)
        return st;
    if (!own_bias(q, params))
        return mn_fail_memory(err, params->n_bias * sizeof *params->bias);
    st = own_guide(s, q, params, err);
    if (!st)
        st = own_samplers(s, q, params, err);
    if (st)
        return st;
    q->limit = params->max_new ? MN_MIN(params->max_new, room) : room;
    q->flags = params->flags;
    q->params.max_new = (int32_t)q->limit;
    mn_drafts_begin(&s->steps.drafts, &q->spec);
    mn_slot_untell(&s->steps, (int32_t)seq);
    q->n_literal = q->n_tokens;
    q->n_drawn = 0;
    q->n_draw_enqueued = 0;
    q->epoch++;
    q->running = true; /* so that it is woken with the others if the device is lost here */
    st = mn_failover(s, mn_slot_wake(&s->steps, seq, err), err);
    q->running = !st;
    return st;
}

/* The same of a new sequence: with a cache_dir it begins with pages that others have left, as
 * requests do, and leaves its own. */
static mn_status begin_shared(mn_session *s, uint32_t seq, const mn_sample_params *params,
                              mn_error *err) {
    mn_steps *steps = &s->steps;
    mn_sequence *q = &steps->seqs[seq];
    if (!steps->kv.files.disk)
        return begin_sequence(s, seq, params, err);
    mn_kv_begin(&steps->kv, seq, true, 0, q->adapter ? q->adapter->digest : 0);
    q->n_enqueued = mn_prefix_take(&steps->kv, seq, mn_seq_text(q));
    mn_status st = begin_sequence(s, seq, params, err);
    if (!st)
        st = mn_engine_write_history(steps->engine, seq, q->tokens, q->n_enqueued, err);
    if (!st)
        mn_step_restore(steps, seq);
    return st ? mn_failover(s, st, err) : MN_OK;
}

/* Room for the tokens of a sequence that is no job's; false = out of memory. */
static bool own_tokens(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->steps.seqs[seq];
    if (!q->own_tokens)
        q->own_tokens = mn_alloc(s->steps.n_ctx + 1u, sizeof *q->own_tokens);
    q->tokens = q->own_tokens;
    return q->tokens != NULL;
}

/* Of a model with an encoder the ids are its text, and the sequence begins with the id that stands
 * in front of an answer; false = out of memory. */
static bool own_ids(mn_session *s, uint32_t seq, const int32_t *ids, uint32_t n) {
    mn_sequence *q = &s->steps.seqs[seq];
    int32_t *to = q->tokens;
    q->n_tokens = n;
    if (s->steps.graph->hp.n_encoder) {
        if (!q->own_text)
            q->own_text = mn_alloc(s->steps.n_ctx, sizeof *q->own_text);
        q->text = q->own_text;
        q->n_text = n;
        q->tokens[0] = (int32_t)s->steps.graph->hp.start_id;
        q->n_tokens = 1;
        to = q->own_text;
        mn_kv_set_text(&s->steps.kv, seq, n);
    }
    if (to)
        memcpy(to, ids, n * sizeof *ids);
    return to != NULL;
}

static mn_status claim_sequence(mn_session *s, int32_t *seq, mn_error *err) {
    uint32_t i = 0;
    if (!mn_slot_claim(&s->steps, &i))
        return mn_fail(err, MN_OUT_OF_MEMORY, "all %u sequences of the session are in use",
                       s->steps.n_seq);
    *seq = (int32_t)i;
    return MN_OK;
}

mn_status mn_seq_begin(mn_session *s, const int32_t *ids, uint32_t n,
                       const mn_sample_params *params, int32_t *seq, mn_error *err) {
    int32_t i = 0;
    mn_status st = mn_params_check_ids(&s->steps.limits, ids, n, 0, err);
    if (!st)
        st = mn_params_check_text(&s->steps.limits, n, err);
    if (!st)
        st = mn_failover_ready(s, err);
    if (!st)
        st = claim_sequence(s, &i, err);
    if (st)
        return st;
    if (!own_tokens(s, (uint32_t)i) || !own_ids(s, (uint32_t)i, ids, n)) {
        mn_slot_release(&s->steps, (uint32_t)i);
        return mn_fail_memory(err, (s->steps.n_ctx + 1ull) * sizeof *ids);
    }
    st = mn_params_adapter(&s->steps.limits, params, &s->steps.seqs[i].adapter, err);
    if (!st)
        st = begin_shared(s, (uint32_t)i, params, err);
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
        st = mn_params_take(params, &p, err);
    return st ? st : mn_seq_begin(s, ids, n, &p, seq, err);
}

/* What is stored of a sequence was computed with its adapter. */
static mn_status check_adapter(const mn_session *s, int32_t seq, const mn_sample_params *params,
                               mn_error *err) {
    const mn_adapter *own = s->steps.seqs[seq].adapter;
    const char *name = own ? own->name : "";
    if (!params->adapter || !strcmp(params->adapter, name))
        return MN_OK;
    return mn_fail(err, MN_INVALID,
                   "mn_sample_params.adapter: found \"%.100s\", expected \"%s\": sequence %d was "
                   "created with it",
                   params->adapter, name, seq);
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
        st = mn_params_take(params, &p, err);
    if (!st)
        st = check_seq(s, seq, true, err);
    if (!st)
        st = check_adapter(s, seq, &p, err);
    if (!st)
        st = mn_params_check_ids(&s->steps.limits, ids, n, s->steps.seqs[seq].n_tokens, err);
    if (!st)
        st = mn_failover_ready(s, err);
    if (st)
        return st;
    mn_sequence *q = &s->steps.seqs[seq];
    memcpy(q->tokens + q->n_tokens, ids, n * sizeof *ids);
    q->n_tokens += n;
    st = begin_sequence(s, (uint32_t)seq, &p, err);
    if (st)
        q->n_tokens -= n; /* as it was: the caller may try again */
    return st;
}

/* The first n_keep ids of a finished sequence, of which n_stored are in its pages, as another
 * one. */
static mn_status fork_into(mn_session *s, uint32_t seq, uint32_t to, uint32_t n_keep,
                           uint32_t n_stored, mn_error *err) {
    const mn_sequence *a = &s->steps.seqs[seq];
    mn_sequence *b = &s->steps.seqs[to];
    if (!own_tokens(s, to) || (a->n_text && !own_ids(s, to, a->text, a->n_text)))
        return mn_fail_memory(err, (s->steps.n_ctx + 1ull) * sizeof *b->tokens);
    memcpy(b->tokens, a->tokens, n_keep * sizeof *b->tokens);
    b->adapter = a->adapter;
    mn_adapter_hold(s->model->adapters, b->adapter);
    b->n_tokens = n_keep;
    b->n_literal = n_keep;
    b->n_enqueued = n_stored;
    b->n_restore = MN_MIN(a->n_restore, n_keep);
    mn_status st = mn_pages_share(&s->steps.kv, seq, to, mn_seq_text(a), n_stored, err);
    if (st == MN_OUT_OF_MEMORY) {
        mn_pages_drop(
            &s->steps.kv, to,
            mn_seq_text(&s->steps.seqs[to])); /* it is computed again when there is room */
        b->n_enqueued = 0;
        return MN_OK;
    }
    if (!st)
        st = mn_engine_write_history(s->steps.engine, to, b->tokens, n_stored, err);
    return mn_failover(s, st, err); /* then the tokens are all that there is to copy */
}

/* How many of the first n_keep positions can be used again: those that are stored, unless a window
 * group has given back pages that the next row would see. */
static uint32_t reusable(const mn_session *s, uint32_t seq, uint32_t n_keep) {
    return mn_kv_reach(&s->steps.kv, seq, MN_MIN(s->steps.seqs[seq].n_enqueued, n_keep));
}

static mn_status fork_at(mn_session *s, int32_t seq, uint32_t n_keep, int32_t *out, mn_error *err) {
    int32_t i = 0;
    mn_status st = mn_failover_ready(s, err);
    if (!st)
        st = claim_sequence(s, &i, err);
    if (st)
        return st;
    const uint32_t n_stored = reusable(s, (uint32_t)seq, n_keep);
    st = fork_into(s, (uint32_t)seq, (uint32_t)i, n_keep, n_stored, err);
    if (st)
        mn_seq_free(s, i);
    else
        *out = i;
    return st;
}

/* MN_INVALID: the sequence has not so many ids to keep. */
static mn_status check_keep(const mn_session *s, int32_t seq, uint32_t n_keep, mn_error *err) {
    const uint32_t n = s->steps.seqs[seq].n_tokens;
    if (n_keep && n_keep <= n)
        return MN_OK;
    return mn_fail(err, MN_INVALID, "n_keep: found %u, expected 1 to %u, the ids of sequence %d",
                   n_keep, n, seq);
}

mn_status mn_seq_fork(mn_session *s, int32_t seq, int32_t *out, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {"out", out}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = check_seq(s, seq, true, err);
    return st ? st : fork_at(s, seq, s->steps.seqs[seq].n_tokens, out, err);
}

mn_status mn_seq_fork_at(mn_session *s, int32_t seq, uint32_t n_keep, int32_t *out, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {"out", out}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = check_seq(s, seq, true, err);
    if (!st)
        st = check_keep(s, seq, n_keep, err);
    return st ? st : fork_at(s, seq, n_keep, out, err);
}

mn_status mn_seq_truncate(mn_session *s, int32_t seq, uint32_t n_keep, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = check_seq(s, seq, true, err);
    if (!st)
        st = check_keep(s, seq, n_keep, err);
    if (!st)
        st = mn_failover_ready(s, err);
    if (st)
        return st;
    mn_sequence *q = &s->steps.seqs[seq];
    const uint32_t n_stored = reusable(s, (uint32_t)seq, n_keep);
    st = mn_failover(s, mn_pages_cut(&s->steps.kv, (uint32_t)seq, n_stored, err), err);
    const bool none = st == MN_OUT_OF_MEMORY; /* no page for a copy: it is computed again */
    if (st && !none)
        return st;
    if (none)
        mn_pages_drop(&s->steps.kv, (uint32_t)seq, mn_seq_text(&s->steps.seqs[(uint32_t)seq]));
    q->n_enqueued = none ? 0 : MN_MIN(q->n_enqueued, n_stored); /* or another device took over */
    q->n_tokens = n_keep;
    q->n_literal = n_keep;
    q->n_restore = MN_MIN(q->n_restore, n_keep);
    return MN_OK;
}

void mn_seq_free(mn_session *s, int32_t seq) {
    if (!s || mn_pool_is_stranded(s->model->rt->pool) || check_seq(s, seq, false, NULL))
        return;
    mn_slot_release(&s->steps, (uint32_t)seq);
}

uint32_t mn_seq_length(const mn_session *s, int32_t seq) {
    return !s || check_seq(s, seq, false, NULL) ? 0 : s->steps.seqs[seq].n_tokens;
}
