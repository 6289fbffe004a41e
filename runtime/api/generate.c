/* generate.c -- mn_generate: one answer in one call, over the public functions of sessions and
 * streams: chat template or plain text, steps, text as it comes, without what the model thinks. */
#include "session/session.h"
#include <string.h>

/* Through the chat template if the model has one, else as plain text. */
static mn_status prompt_ids(const mn_model *m, const char *prompt, int32_t **ids, uint32_t *n,
                            mn_error *err) {
    if (!m->chat)
        return mn_model_tokenize(m, mn_str_of(prompt), MN_TEXT_ADD_SPECIAL, ids, n, err);
    mn_message user = {mn_str_of("user"), mn_str_of(prompt), {NULL, 0}};
    return mn_model_chat(m, &user, 1, 0, ids, n, err);
}

/* Where an answer goes. */
typedef struct {
    int (*print)(void *arg, const char *text, uint64_t n);
    void *arg;
} printer;

/* Prints the answer among n events, without thinking and calls. */
static mn_status print_text(const printer *to, const mn_stream_event *events, uint32_t n,
                            mn_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        const mn_str text = events[i].text;
        if (events[i].kind == MN_EVENT_TEXT && to->print(to->arg, text.ptr, text.len))
            return mn_fail(err, MN_CANCELLED, "stopped by the caller");
    }
    return MN_OK;
}

/* One token of the sequence; NULL: the end. */
static mn_status print_token(mn_stream *stream, const mn_token *t, const printer *to,
                             mn_error *err) {
    const mn_stream_event *events = NULL;
    uint32_t n = 0;
    mn_status st = t ? mn_stream_push(stream, t->id, &events, &n, err)
                     : mn_stream_finish(stream, &events, &n, err);
    return st ? st : print_text(to, events, n, err);
}

/* Steps until the sequence ends; other sequences of the session go on beside it, unread. */
static mn_status run(mn_session *s, int32_t seq, mn_stream *stream, const printer *to,
                     mn_error *err) {
    mn_token *tokens = mn_calloc(s->steps.n_seq, sizeof *tokens);
    mn_status st = tokens ? MN_OK : mn_fail_memory(err, s->steps.n_seq * sizeof *tokens);
    bool done = false;
    while (!st && !done) {
        uint32_t n = 0;
        st = mn_session_step(s, tokens, s->steps.n_seq, &n, err);
        done = !n;
        for (uint32_t i = 0; i < n && !st; i++) {
            if (tokens[i].seq != seq)
                continue;
            done = tokens[i].finish != MN_FINISH_NONE;
            if (tokens[i].finish != MN_FINISH_STOP)
                st = print_token(stream, &tokens[i], to, err);
        }
    }
    if (!st)
        st = print_token(stream, NULL, to, err);
    mn_free(tokens);
    return st;
}

mn_status mn_generate(mn_session *s, const char *prompt, const mn_sample_params *params,
                      int (*print)(void *arg, const char *text, uint64_t n), void *arg,
                      mn_error *err) {
    const mn_arg args[] = {{"s", s}, {"prompt", prompt}, {"print", print ? "" : NULL}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (st)
        return st;
    const mn_model *m = s->model;
    mn_sample_params own = m->defaults;
    int32_t *ids = NULL;
    int32_t seq = -1;
    uint32_t n = 0;
    mn_stream *stream = NULL;
    own.max_new = 512;
    own.seed = mn_now_ns();
    st = prompt_ids(m, prompt, &ids, &n, err);
    if (!st)
        st = mn_stream_create(m, MN_STREAM_CONTINUE, &stream, err);
    if (!st)
        mn_stream_prompt(stream, ids, n);
    if (!st)
        st = mn_seq_create(s, ids, n, params ? params : &own, &seq, err);
    if (!st)
        st = run(s, seq, stream, &(printer){print, arg}, err);
    if (seq >= 0)
        mn_seq_free(s, seq);
    mn_stream_free(stream);
    mn_ids_free(ids);
    return st;
}
