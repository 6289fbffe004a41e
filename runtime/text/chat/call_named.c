/* call_named.c -- a call whose name stands in front of its arguments, as Mistral's later models
 * write them (calls.h): name[ARGS]{...}, name[CALL_ID]id[ARGS]{...} or name{...}. The id is
 * dropped: callers make their own. */
#include "text/chat/calls.h"
#include <string.h>

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool in_word(char c) {
    const char low = (char)(c | 0x20);
    return (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || (c && strchr("_-.:/", c));
}

static mn_call_step arguments(mn_calls *s, char c) {
    mn_call_named *f = &s->named;
    if (f->at != MN_CALL_IN_ARGS) {
        f->at = MN_CALL_IN_ARGS;
        mn_calls_begin(s);
    }
    const mn_json_step step = mn_json_run_push(&f->run, c);
    if (step == MN_JSON_BAD)
        return MN_CALL_BAD;
    mn_calls_put(s, &c, 1);
    return step == MN_JSON_END ? MN_CALL_END : MN_CALL_MORE;
}

/* The '[' of a mark: of ours, or of the next call's, which makes what is held text. */
static mn_call_step begin_mark(mn_calls *s, const char *mark) {
    s->named.at = MN_CALL_IN_MARK;
    s->named.mark = mark;
    s->named.n_mark = 1;
    s->again = s->held.len; /* at the '[' */
    return MN_CALL_MORE;
}

static mn_call_step in_mark(mn_calls *s, char c) {
    static const char args[] = "[ARGS]";
    static const char id[] = "[CALL_ID]";
    mn_call_named *f = &s->named;
    if (!f->mark)
        f->mark = c == id[1] ? id : args;
    if (c != f->mark[f->n_mark++])
        return MN_CALL_BAD;
    if (f->mark[f->n_mark])
        return MN_CALL_MORE;
    f->at = f->mark == id ? MN_CALL_IN_ID : MN_CALL_IN_GAP;
    s->again = 0;
    return MN_CALL_MORE;
}

mn_call_step mn_call_named_push(mn_calls *s, char c) {
    mn_call_named *f = &s->named;
    switch (f->at) {
    case MN_CALL_IN_NAME:
        if (c == '[')
            return begin_mark(s, NULL);
        if (c == '{')
            return arguments(s, c);
        return in_word(c) && mn_calls_name(s, c) ? MN_CALL_MORE : MN_CALL_BAD;
    case MN_CALL_IN_MARK:
        return in_mark(s, c);
    case MN_CALL_IN_ID:
        if (c == '[')
            return begin_mark(s, "[ARGS]");
        return in_word(c) ? MN_CALL_MORE : MN_CALL_BAD;
    case MN_CALL_IN_GAP:
        if (is_space(c))
            return MN_CALL_MORE;
        return c == '{' ? arguments(s, c) : MN_CALL_BAD;
    default:
        return arguments(s, c);
    }
}
