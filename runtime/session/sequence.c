/* sequence.c -- sequences: begin, extend, fork, free.
 *
 * The host keeps every token of a sequence, so that it can be computed again elsewhere; the device
 * keeps the rest (KV pages, the slot). Every function leaves the session as it was where it fails,
 * and every call of the engine goes through mn_failover. */
#include "session/session.h"
#include <string.h>

/* finished: the call needs a sequence that does not run. */
static mn_status check_seq(const mn_session *s, int32_t seq, bool finished, mn_error *err) {
    if (seq < 0 || (uint32_t)seq >= s->n_seq || !s->seqs[seq].used)
        return mn_fail(err, MN_INVALID, "there is no sequence %d", seq);
    if (finished && s->seqs[seq].running)
        return mn_fail(err, MN_INVALID, "sequence %d is still running", seq);
    return MN_OK;
}

static mn_status make_program(mn_session *s, uint32_t run, uint32_t end, mn_error *err) {
    const mn_model_graph *g = NULL;
    const mn_status st = mn_model_graph_for(s->model, s->n_ctx, end, &g, err);
    return st ? st : mn_engine_make_program(s->engine, run, g, err);
}

/* Makes program `run` (MN_RUN_*), which has masks, and verifies drafts where the device can. */
static mn_status need_program(mn_session *s, uint32_t run, mn_error *err) {
    static const uint32_t ends[] = {
        [MN_RUN_MASKS] = MN_GRAPH_MASKS,
        [MN_RUN_SCORES] = MN_GRAPH_SCORES,
        [MN_RUN_SAMPLERS] = MN_GRAPH_SAMPLERS,
    };
    static const uint32_t with_drafts[] = {
        [MN_RUN_MASKS] = MN_GRAPH_MASKS_DRAFTS,
        [MN_RUN_SCORES] = MN_GRAPH_SCORES_DRAFTS,
        [MN_RUN_SAMPLERS] = MN_GRAPH_SAMPLERS_DRAFTS,
    };
    mn_status st = mn_masks_make(&s->guides, s->engine, s->n_outputs, err);
    if (st || s->engine->programs[run].ready)
        return st;
    if (s->drafts.verifies)
        st = make_program(s, run, with_drafts[run], err);
    if (s->drafts.verifies && MN_STATUS_CLASS(st) != MN_CLASS_REFUSE)
        return st;
    st = make_program(s, run, ends[run], err);
    if (!st)
        s->drafts.verifies = false; /* SAMPLE without contract 3 */
    if (MN_STATUS_CLASS(st) == MN_CLASS_REFUSE)
        atomic_fetch_or(&s->limits.refused, 1u << run);
    return st;
}

/* The biases of the sequence in its slot, or none where an earlier one has left some. */
static mn_status wake_bias(mn_session *s, uint32_t seq, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    const bool stale = s->engine->scoring.ready && q->biased;
    mn_status st = MN_OK;
    if (q->n_bias || stale)
        st = mn_engine_write_bias(s->engine, seq, q->bias, q->n_bias, err);
    q->biased = q->n_bias > 0;
    return st;
}

/* The programs that the sequence needs, with what they read of its slot. A step runs the last one
 * that any of its sequences needs. */
static mn_status wake_programs(mn_session *s, uint32_t seq, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    mn_status st = MN_OK;
    q->elsewhere = q->samplers && s->engine->sampler;
    if (q->guide && !q->scores && (!q->samplers || q->elsewhere))
        st = need_program(s, MN_RUN_MASKS, err);
    if (!st && q->scores)
        st = need_program(s, MN_RUN_SCORES, err);
    if (!st && q->elsewhere)
        st = mn_engine_need_sampler(s->engine, err);
    else if (!st && q->samplers)
        st = need_program(s, MN_RUN_SAMPLERS, err);
    if (!st && q->breakers && !q->elsewhere)
        st = mn_engine_write_breakers(s->engine, seq, q->breakers, err);
    return st ? st : wake_bias(s, seq, err);
}

mn_status mn_seq_wake(mn_session *s, uint32_t seq, mn_error *err) {
    const mn_sequence *q = &s->seqs[seq];
    mn_status st = wake_programs(s, seq, err);
    if (st)
        return st;
    const mn_slot state = {
        .pos = (int32_t)q->n_enqueued, .n_drawn = (int32_t)q->n_drawn, .mu = q->mu};
    return mn_engine_reset_slot(s->engine, seq, &state, &q->params, err);
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
    mn_status st = mn_breakers_create(&s->limits, params, &q->params, &breakers, err);
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
    mn_status st = mn_guide_create((uint32_t)s->graph->hp.n_vocab, &from, &guide, err);
    if (st)
        return st;
    mn_guide_free(q->own_guide);
    q->own_guide = guide;
    q->guide = guide;
    return MN_OK;
}

/* Lets the sequence run from n_enqueued on: all known tokens are literal, then it draws. */
static mn_status begin(mn_session *s, uint32_t seq, const mn_sample_params *params, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    const uint32_t most = atomic_load(&s->limits.max_positions);
    if (q->n_tokens > most)
        return mn_fail(err, MN_BAD_INPUT,
                       "the prompt has %u tokens with what came before, the KV cache has room for "
                       "%u positions",
                       q->n_tokens, most);
    const uint32_t room = most - q->n_tokens + 1;
    mn_status st = mn_params_of_slot(&s->limits, params, &q->params, err);
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
    mn_drafts_begin(&s->drafts, &q->spec);
    mn_session_untell(s, (int32_t)seq);
    q->n_literal = q->n_tokens;
    q->n_drawn = 0;
    q->n_draw_enqueued = 0;
    q->epoch++;
    q->running = true; /* so that it is woken with the others if the device is lost here */
    st = mn_failover(s, mn_seq_wake(s, seq, err), err);
    q->running = !st;
    return st;
}

bool mn_seq_claim(mn_session *s, uint32_t *seq) {
    for (uint32_t i = 0; i < s->n_seq; i++) {
        mn_sequence *q = &s->seqs[i];
        if (q->used)
            continue;
        q->used = true;
        q->running = false;
        q->tokens = q->own_tokens;
        q->job = NULL;
        q->flags = 0;
        q->scores = false;
        q->samplers = false;
        q->elsewhere = false;
        q->breakers = NULL;
        q->spec.host_paced = false;
        q->guide = NULL;
        q->n_bias = 0;
        q->n_tokens = 0;
        q->n_literal = 0;
        q->n_enqueued = 0;
        q->n_restore = 0;
        q->order = ++s->n_orders;
        mn_kv_begin(&s->kv, i, false, 0);
        mn_drafts_begin(&s->drafts, &q->spec);
        s->turns[s->n_turns++] = i;
        *seq = i;
        return true;
    }
    return false;
}

/* Room for the tokens of a sequence that is no job's; false = out of memory. */
static bool own_tokens(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    if (!q->own_tokens)
        q->own_tokens = mn_alloc(s->n_ctx + 1u, sizeof *q->own_tokens);
    q->tokens = q->own_tokens;
    return q->tokens != NULL;
}

static mn_status claim(mn_session *s, int32_t *seq, mn_error *err) {
    uint32_t i = 0;
    if (!mn_seq_claim(s, &i))
        return mn_fail(err, MN_OUT_OF_MEMORY, "all %u sequences of the session are in use",
                       s->n_seq);
    *seq = (int32_t)i;
    return MN_OK;
}

mn_status mn_seq_begin(mn_session *s, const int32_t *ids, uint32_t n,
                       const mn_sample_params *params, int32_t *seq, mn_error *err) {
    int32_t i = 0;
    mn_status st = mn_params_check_ids(&s->limits, ids, n, 0, err);
    if (!st)
        st = mn_failover_ready(s, err);
    if (!st)
        st = claim(s, &i, err);
    if (st)
        return st;
    if (!own_tokens(s, (uint32_t)i)) {
        mn_seq_release(s, (uint32_t)i);
        return mn_fail_memory(err, (s->n_ctx + 1ull) * sizeof *ids);
    }
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
        st = mn_params_take(params, &p, err);
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
        st = mn_params_take(params, &p, err);
    if (!st)
        st = check_seq(s, seq, true, err);
    if (!st)
        st = mn_params_check_ids(&s->limits, ids, n, s->seqs[seq].n_tokens, err);
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

/* The first n_keep ids of a finished sequence, of which n_stored are in its pages, as another
 * one. */
static mn_status fork_into(mn_session *s, uint32_t seq, uint32_t to, uint32_t n_keep,
                           uint32_t n_stored, mn_error *err) {
    const mn_sequence *a = &s->seqs[seq];
    mn_sequence *b = &s->seqs[to];
    if (!own_tokens(s, to))
        return mn_fail_memory(err, (s->n_ctx + 1ull) * sizeof *b->tokens);
    memcpy(b->tokens, a->tokens, n_keep * sizeof *b->tokens);
    b->n_tokens = n_keep;
    b->n_literal = n_keep;
    b->n_enqueued = n_stored;
    b->n_restore = MN_MIN(a->n_restore, n_keep);
    mn_status st = mn_pages_share(&s->kv, seq, to, mn_seq_text(a), n_stored, err);
    if (st == MN_OUT_OF_MEMORY) {
        mn_pages_drop(&s->kv, to,
                      mn_seq_text(&s->seqs[to])); /* it is computed again when there is room */
        b->n_enqueued = 0;
        return MN_OK;
    }
    if (!st)
        st = mn_engine_write_history(s->engine, to, b->tokens, n_stored, err);
    return mn_failover(s, st, err); /* then the tokens are all that there is to copy */
}

/* How many of the first n_keep positions can be used again: those that are stored, unless a window
 * group has given back pages that the next row would see. */
static uint32_t reusable(const mn_session *s, uint32_t seq, uint32_t n_keep) {
    return mn_kv_reach(&s->kv, seq, MN_MIN(s->seqs[seq].n_enqueued, n_keep));
}

static mn_status fork_at(mn_session *s, int32_t seq, uint32_t n_keep, int32_t *out, mn_error *err) {
    int32_t i = 0;
    mn_status st = mn_failover_ready(s, err);
    if (!st)
        st = claim(s, &i, err);
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
    const uint32_t n = s->seqs[seq].n_tokens;
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
    return st ? st : fork_at(s, seq, s->seqs[seq].n_tokens, out, err);
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
    mn_sequence *q = &s->seqs[seq];
    const uint32_t n_stored = reusable(s, (uint32_t)seq, n_keep);
    st = mn_failover(s, mn_pages_cut(&s->kv, (uint32_t)seq, n_stored, err), err);
    const bool none = st == MN_OUT_OF_MEMORY; /* no page for a copy: it is computed again */
    if (st && !none)
        return st;
    if (none)
        mn_pages_drop(&s->kv, (uint32_t)seq, mn_seq_text(&s->seqs[(uint32_t)seq]));
    q->n_enqueued = none ? 0 : MN_MIN(q->n_enqueued, n_stored); /* or another device took over */
    q->n_tokens = n_keep;
    q->n_literal = n_keep;
    q->n_restore = MN_MIN(q->n_restore, n_keep);
    return MN_OK;
}

void mn_seq_release(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    uint32_t at = 0;
    while (s->turns[at] != seq)
        at++;
    s->n_turns--;
    memmove(s->turns + at, s->turns + at + 1, (s->n_turns - at) * sizeof *s->turns);
    mn_pages_drop(&s->kv, seq, mn_seq_text(&s->seqs[seq]));
    mn_session_untell(s, (int32_t)seq);
    mn_guide_free(q->own_guide);
    q->own_guide = NULL;
    q->guide = NULL;
    q->used = false;
    q->running = false;
    q->job = NULL;
    q->epoch++;
}

void mn_seq_free(mn_session *s, int32_t seq) {
    if (!s || mn_pool_is_stranded(s->model->rt->pool) || check_seq(s, seq, false, NULL))
        return;
    mn_seq_release(s, (uint32_t)seq);
}

uint32_t mn_seq_length(const mn_session *s, int32_t seq) {
    return !s || check_seq(s, seq, false, NULL) ? 0 : s->seqs[seq].n_tokens;
}
