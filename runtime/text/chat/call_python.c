/* call_python.c -- calls as Python writes them (calls.h): [f(a=1, b="x"), g()], as LFM2 and Llama 4
 * have them, or f(a=1), one in a line, as OLMo 3. Arguments become the bytes of an object, which
 * call_args.c reads and mends: names become keys, brackets of the call braces, tuples lists. What
 * is not written with a name is no call. */
#include "text/chat/calls.h"
#include <string.h>

static bool begins_word(char c) {
    const char low = (char)(c | 0x20);
    return (low >= 'a' && low <= 'z') || c == '_';
}

static bool is_word_byte(char c) {
    return begins_word(c) || (c >= '0' && c <= '9');
}

/* A byte of the object. */
static mn_call_step put(mn_calls *s, char c) {
    const mn_call_step step = mn_call_args_push(s, c);
    if (step == MN_CALL_END)
        s->open = false;
    return step;
}

/* ---- calls and lists ------------------------------------------------------------------------- */
static mn_call_step begin_name(mn_calls *s, char c) {
    s->n_name = 0;
    s->given = false;
    s->python.at = MN_CALL_PY_NAME;
    if (!mn_calls_name(s, c))
        return MN_CALL_BAD;
    return s->marked || mn_calls_begins_tool(s) ? MN_CALL_MORE : MN_CALL_BAD;
}

/* A list whose first element is an object is JSON. */
static mn_call_step go_on_as_json(mn_calls *s, char c) {
    s->form = &mn_call_json_form;
    const mn_call_step step = s->form->push(s, '[');
    return step == MN_CALL_MORE ? s->form->push(s, c) : step;
}

static mn_call_step in_start(mn_calls *s, char c) {
    mn_call_python *p = &s->python;
    if (c == '[' && !p->in_list) {
        p->in_list = true;
        return MN_CALL_MORE;
    }
    if (mn_is_blank(c))
        return MN_CALL_MORE;
    if (c == '{' && p->in_list && !s->framed)
        return go_on_as_json(s, c);
    if (c == ']' && p->in_list)
        return MN_CALL_END;
    return begins_word(c) ? begin_name(s, c) : MN_CALL_BAD;
}

static mn_call_step end_python_call(mn_calls *s) {
    mn_call_python *p = &s->python;
    const mn_call_step step = put(s, '}');
    if (step != MN_CALL_END)
        return MN_CALL_BAD;
    s->held.len = 0;
    p->at = MN_CALL_PY_BEHIND;
    return p->in_list ? MN_CALL_MORE : MN_CALL_END;
}

static mn_call_step behind_call(mn_calls *s, char c) {
    if (c == ']')
        return MN_CALL_END;
    if (c == ',')
        s->python.at = MN_CALL_PY_START;
    return c == ',' || mn_is_blank(c) ? MN_CALL_MORE : MN_CALL_BAD;
}

/* ---- a call ---------------------------------------------------------------------------------- */
static mn_call_step in_function(mn_calls *s, char c) {
    if (c == '(') {
        if (!mn_calls_may_call(s))
            return MN_CALL_BAD;
        s->python.at = MN_CALL_PY_GAP;
        mn_call_args_begin(&s->args);
        return put(s, '{');
    }
    if ((!is_word_byte(c) && !strchr(".-", c)) || !c || !mn_calls_name(s, c))
        return MN_CALL_BAD;
    return s->marked || mn_calls_begins_tool(s) ? MN_CALL_MORE : MN_CALL_BAD;
}

/* In front of a name, or of the end. */
static mn_call_step in_front(mn_calls *s, char c) {
    if (mn_is_blank(c))
        return MN_CALL_MORE;
    if (c == ')')
        return end_python_call(s);
    if (!begins_word(c))
        return MN_CALL_BAD;
    s->python.at = MN_CALL_PY_KEY;
    const mn_call_step step = put(s, '"');
    return step == MN_CALL_MORE ? put(s, c) : step;
}

static mn_call_step in_parameter(mn_calls *s, char c) {
    if (is_word_byte(c))
        return put(s, c);
    if (mn_is_blank(c))
        return MN_CALL_MORE;
    if (c != '=')
        return MN_CALL_BAD;
    s->python.at = MN_CALL_PY_VALUE;
    const mn_call_step step = put(s, '"');
    return step == MN_CALL_MORE ? put(s, ':') : step;
}

static mn_call_step in_quotes(mn_calls *s, char c) {
    mn_call_python *p = &s->python;
    if (p->escaped)
        p->escaped = false;
    else if (c == '\\')
        p->escaped = true;
    else if (c == p->quote)
        p->quote = 0;
    return put(s, c);
}

static mn_call_step in_argument(mn_calls *s, char c) {
    mn_call_python *p = &s->python;
    if (p->quote)
        return in_quotes(s, c);
    if (!p->depth && c == ')')
        return end_python_call(s);
    if (!p->depth && c == ',')
        p->at = MN_CALL_PY_GAP;
    if (c == '"' || c == '\'')
        p->quote = c;
    if (c == '[' || c == '{' || c == '(')
        p->depth++;
    if (c == ']' || c == '}' || c == ')') {
        if (!p->depth)
            return MN_CALL_BAD;
        p->depth--;
    }
    if (c == '(')
        c = '[';
    if (c == ')')
        c = ']';
    return put(s, c);
}

static mn_call_step push(mn_calls *s, char c) {
    switch (s->python.at) {
    case MN_CALL_PY_START:
        return in_start(s, c);
    case MN_CALL_PY_NAME:
        return in_function(s, c);
    case MN_CALL_PY_GAP:
        return in_front(s, c);
    case MN_CALL_PY_KEY:
        return in_parameter(s, c);
    case MN_CALL_PY_VALUE:
        return in_argument(s, c);
    default:
        return behind_call(s, c);
    }
}

static bool finish(mn_calls *s, int next) {
    mn_call_python *p = &s->python;
    (void)next;
    if (p->at == MN_CALL_PY_GAP || p->at == MN_CALL_PY_KEY || p->at == MN_CALL_PY_VALUE) {
        mn_call_args_close(s);
        s->open = false;
        p->at = MN_CALL_PY_BEHIND;
        return true;
    }
    return s->framed;
}

const mn_call_form mn_call_python_form = {push, finish};
