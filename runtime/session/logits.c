/* logits.c -- the logits of every position of a text: steps of one sequence whose rows are all
 * outputs and draw nothing, each waited for, so that nothing is ever in flight here. */
#include "session/session.h"
#include <string.h>

/* Packs n rows of the sequence's tokens from n_enqueued on, each an output. */
static void pack_rows(mn_session *s, uint32_t seq, uint32_t n) {
    const mn_sequence *q = &s->steps.seqs[seq];
    const mn_input_layout *l = &s->steps.engine->in;
    int32_t *seqs = s->steps.packed + l->seqs;
    mn_step_clear(&s->steps);
    seqs[0] = 0;
    seqs[1] = (int32_t)n;
    seqs[2] = (int32_t)seq;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t pos = q->n_enqueued + i;
        s->steps.packed[l->src + i] = q->tokens[pos];
        s->steps.packed[l->pos + i] = (int32_t)pos;
        s->steps.packed[l->row_slot + i] = (int32_t)seq;
        s->steps.packed[l->out_row + i] = (int32_t)i;
        mn_step_adapt_row(&s->steps, i, q);
        mn_step_adapt_output(&s->steps, i, q);
    }
    if (q->n_text)
        s->steps.packed[l->text_length + seq] = (int32_t)q->n_text;
}

mn_status mn_session_run_packed(mn_session *s, const mn_step_size *size, mn_error *err) {
    mn_engine_step exec = {
        .inputs = s->steps.packed,
        .hidden_in = s->steps.hidden_in,
        .n_hidden_in = size->n_rows,
        .logits = true,
        .profile = s->steps.profile != NULL,
    };
    mn_event *done = NULL;
    s->steps.sent_valid = false;
    mn_engine_describe(s->steps.engine, size, s->steps.packed);
    mn_engine_symbols(s->steps.engine, size, exec.symbols);
    const uint64_t begin_ns = mn_now_ns();
    mn_status st = mn_engine_submit(s->steps.engine, &exec, &done, err);
    mn_call *call =
        mn_engine_await(s->steps.engine, mn_engine_step_ns(s->steps.engine, exec.symbols));
    while (!st && done) {
        st = mn_engine_wait(s->steps.engine, &done, 1000000000, err);
        if (st == MN_TIMEOUT)
            st = MN_OK;
    }
    mn_call_end(call);
    const mn_step_profile profile = {
        .n_rows = size->n_rows, .n_prompt = size->n_rows, .n_outputs = size->n_out};
    if (!st)
        mn_steps_tell(&s->steps, profile, begin_ns);
    return st;
}

mn_status mn_session_pack_rows(mn_session *s, uint32_t seq, uint32_t n, mn_step_size *size,
                               mn_error *err) {
    mn_sequence *q = &s->steps.seqs[seq];
    mn_pages_trim(&s->steps.kv, seq, mn_seq_text(&s->steps.seqs[seq]));
    mn_status st = mn_preempt_idle(&s->steps, seq, q->n_enqueued + n, err);
    if (st)
        return st;
    mn_step_builder text = {.s = &s->steps};
    pack_rows(s, seq, n);
    if (mn_kv_lacks_text(&s->steps.kv, seq))
        mn_step_add_text(&text, seq);
    mn_state_step(&s->steps.kv, seq, q->n_enqueued, n, true);
    mn_step_hear(&s->steps, seq, 0, q->n_enqueued, n);
    q->n_enqueued += n;
    *size = (mn_step_size){
        .n_rows = n,
        .n_out = n,
        .n_seqs = 1,
        .max_rows = MN_MAX(n, text.size.max_rows),
        .longest = MN_MAX(q->n_enqueued, q->n_text),
        .n_text = text.size.n_text,
        .n_texts = text.size.n_texts,
    };
    return MN_OK;
}

/* Runs the next n tokens of the sequence and waits for them. */
static mn_status run_rows(mn_session *s, uint32_t seq, uint32_t n, mn_error *err) {
    mn_step_size size;
    const mn_status st = mn_session_pack_rows(s, seq, n, &size, err);
    return st ? st : mn_session_run_packed(s, &size, err);
}

/* Of a model with an encoder, which has read the text: its decoder is given the text as the answer,
 * so that row i says what follows the first i ids. */
static void repeat_text(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->steps.seqs[seq];
    if (!q->n_text)
        return;
    memcpy(q->tokens + 1, q->text, (q->n_text - 1) * sizeof *q->tokens);
    q->n_tokens = q->n_text;
    q->n_literal = q->n_text;
}

/* The text from its first token on; the caller sees rows from *given on. */
static mn_status run_text(mn_session *s, uint32_t seq, uint32_t n, uint32_t *given,
                          mn_logits_fn rows, void *arg, mn_error *err) {
    const uint32_t block = MN_MIN(s->steps.n_outputs, s->steps.n_batch);
    mn_status st = mn_engine_make_logits(s->steps.engine, err);
    for (uint32_t at = 0; at < n && !st; at += block) {
        const uint32_t m = MN_MIN(block, n - at);
        const float *logits = NULL;
        st = run_rows(s, seq, m, err);
        if (!st)
            st = mn_engine_logits(s->steps.engine, m, &logits, err);
        st = mn_steps_settle(&s->steps, st, err);
        if (st || at < *given)
            continue;
        st = rows(arg, at, m, (uint32_t)s->steps.graph->hp.n_vocab, logits);
        if (st)
            return mn_fail(err, st, "writing logits was given up");
        *given = at + m;
    }
    return st;
}

mn_status mn_session_logits(mn_session *s, const int32_t *ids, uint32_t n, mn_logits_fn rows,
                            void *arg, mn_error *err) {
    static const mn_sample_params greedy = {.size = sizeof greedy};
    mn_error why = MN_ERROR_INIT;
    int32_t seq = -1;
    uint32_t given = 0;
    const mn_arg args[] = {{"s", s}, {"ids", ids}, {"rows", rows ? "" : NULL}, {0}};
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (st)
        return st;
    st = mn_requests_none(&s->steps.requests, __func__, err);
    if (st)
        return st;
    if (s->steps.graph->embeds)
        return mn_session_draws(s, __func__, err);
    if (s->steps.clock.enqueued != s->steps.clock.completed)
        return mn_fail(err, MN_INVALID, "mn_session_logits while sequences are running");
    st = mn_seq_begin(s, ids, n, &greedy, &seq, err);
    if (st)
        return st;
    s->steps.seqs[seq].running = false;
    repeat_text(s, (uint32_t)seq);
    uint32_t on;
    do { /* from the beginning again if the device was lost */
        on = s->n_placed;
        st = run_text(s, (uint32_t)seq, n, &given, rows, arg, err);
        st = mn_failover(s, st, err);
    } while (!st && s->n_placed != on);
    mn_seq_free(s, seq);
    return st;
}
