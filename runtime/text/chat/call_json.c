/* call_json.c -- a call as a JSON object, {"name": "f", "arguments": {...}}, or a list of them
 * (calls.h). The key of the name may be "function", that of the arguments "parameters"; name and
 * arguments may stand in an object "function", as the interface of OpenAI has them, and the
 * arguments may precede the name; then they are kept until it comes. The automaton of JSON says
 * where a byte stands; this file looks at the keys of the calls alone, and call_args.c reads the
 * arguments. */
#include "text/chat/call_families.h"
#include <string.h>

/* Where a byte stands: before it was read. */
typedef struct {
    mn_json_state state;
    uint16_t depth;
} place;

static mn_call_step call_json_step_of(bool ok) {
    return ok ? MN_CALL_MORE : MN_CALL_BAD;
}

/* ---- keys ------------------------------------------------------------------------------------ */
static bool key_is(const mn_call_json *j, const char *key) {
    return j->n_key == strlen(key) && !memcmp(j->key, key, j->n_key);
}

/* The key is the name, its value the arguments. */
static mn_call_step key_names(mn_calls *s, mn_call_json *j) {
    s->n_name = 0;
    for (uint16_t i = 0; i < j->n_key; i++)
        if ((unsigned char)j->key[i] < 0x20 || !mn_calls_name(s, j->key[i]))
            return MN_CALL_BAD;
    if (j->has_name || !s->n_name || !mn_calls_may_call(s))
        return MN_CALL_BAD;
    j->has_name = true;
    j->value = MN_CALL_ARGS_VALUE;
    return MN_CALL_MORE;
}

/* The key is whole: what its value is. Each of ours stands there once. Without a mark in front, a
 * key that calls do not have tells that this is none. */
static mn_call_step call_json_end_key(mn_calls *s, mn_call_json *j) {
    const bool function = key_is(j, "function");
    const bool name =
        key_is(j, "name") || key_is(j, "tool_name") || (function && !j->wrapped && !j->has_name);
    const bool args = key_is(j, "arguments") || key_is(j, "parameters");
    const bool known = key_is(j, "id") || key_is(j, "type") || key_is(j, "tool_call_id");
    if (s->family->keyed && !name && !(j->has_name && (args || known)))
        return key_names(s, j);
    if ((name && j->has_name) || (args && j->has_args))
        return MN_CALL_BAD;
    if (!name && !args && !known && !s->marked)
        return MN_CALL_BAD;
    j->value = MN_CALL_OTHER_VALUE;
    if (name)
        j->value = function ? MN_CALL_FUNCTION_VALUE : MN_CALL_NAME_VALUE;
    else if (args)
        j->value = MN_CALL_ARGS_VALUE;
    return MN_CALL_MORE;
}

static mn_call_step call_json_in_key(mn_calls *s, mn_call_json *j, char c) {
    if (j->outer.run.state == MN_JSON_COLON)
        return call_json_end_key(s, j);
    if (j->n_key < sizeof j->key)
        j->key[j->n_key++] = c;
    return MN_CALL_MORE;
}

/* ---- values ---------------------------------------------------------------------------------- */
static mn_call_step call_json_begin_value(mn_calls *s, char c) {
    mn_call_json *j = &s->json;
    j->chars = (mn_json_chars){0};
    if (j->value == MN_CALL_FUNCTION_VALUE && c == '{') {
        j->wrapped = true;
        j->level++;
        return MN_CALL_MORE;
    }
    if (j->value != MN_CALL_NAME_VALUE && j->value != MN_CALL_FUNCTION_VALUE)
        return MN_CALL_MORE;
    j->value = MN_CALL_NAME_VALUE;
    s->n_name = 0;
    return call_json_step_of(c == '"' || c == '\'');
}

/* The name is whole. */
static mn_call_step end_name(mn_calls *s) {
    mn_call_json *j = &s->json;
    if (!s->n_name || j->chars.high || !mn_calls_may_call(s))
        return MN_CALL_BAD;
    j->has_name = true;
    if (!j->has_args)
        return MN_CALL_MORE;
    mn_calls_begin(s);
    mn_calls_put(s, j->early.ptr, j->early.len);
    j->early.len = 0;
    s->open = s->args.at != MN_CALL_ARGS_DONE;
    return MN_CALL_MORE;
}

/* A name has no control characters: it goes into headers and logs. */
static mn_call_step call_json_in_name(mn_calls *s, char c) {
    mn_call_json *j = &s->json;
    char out[8];
    if (j->outer.run.state == MN_JSON_AFTER)
        return end_name(s);
    if (j->chars.left && mn_hex_digit(c) < 0)
        return MN_CALL_BAD;
    const int n = mn_json_chars_push(&j->chars, c, out);
    for (int i = 0; i < n; i++)
        if ((unsigned char)out[i] < 0x20 || !mn_calls_name(s, out[i]))
            return MN_CALL_BAD;
    return MN_CALL_MORE;
}

/* A byte of the arguments. Those of an object that has no name yet are kept. */
static mn_call_step in_args(mn_calls *s, char c) {
    mn_call_json *j = &s->json;
    const mn_call_step step = mn_call_args_push(s, c);
    if (step != MN_CALL_END)
        return step;
    j->in_args = false;
    s->open = false;
    mn_json_mend_push(&j->outer, '"', NULL); /* any value */
    mn_json_mend_push(&j->outer, '"', NULL);
    return MN_CALL_MORE;
}

static mn_call_step begin_args(mn_calls *s, char c) {
    s->json.has_args = true;
    s->json.in_args = true;
    mn_call_args_begin(&s->args);
    return in_args(s, c);
}

/* ---- calls and lists ------------------------------------------------------------------------- */
static void call_json_begin_call(mn_calls *s) {
    mn_call_json *j = &s->json;
    j->value = MN_CALL_NO_VALUE;
    j->has_name = false;
    j->has_args = false;
    j->wrapped = false;
    j->early.len = 0;
    s->given = false;
}

static void call_without_args(mn_calls *s) {
    mn_calls_begin(s);
    mn_calls_put(s, "{}", 2);
    s->open = false;
    s->json.has_args = true;
}

/* Behind a mark, or with a tool's name, a call without arguments is one: models write so for tools
 * that have none. */
static mn_call_step call_json_end_call(mn_calls *s) {
    mn_call_json *j = &s->json;
    if (j->wrapped) { /* what surrounds the function is not looked at */
        j->wrapped = false;
        j->level--;
        j->value = MN_CALL_OTHER_VALUE;
        return MN_CALL_MORE;
    }
    if (!j->has_name || (!j->has_args && !s->marked && !mn_calls_is_tool(s)))
        return MN_CALL_BAD;
    if (!j->has_args)
        call_without_args(s);
    s->held.len = 0;
    return j->outer.run.state == MN_JSON_DONE ? MN_CALL_END : MN_CALL_MORE;
}

/* A byte between the calls of a list. */
static mn_call_step in_list(mn_calls *s, char c) {
    const mn_json_run *run = &s->json.outer.run;
    if (run->state == MN_JSON_DONE)
        return MN_CALL_END;
    if (run->depth == 2 && c == '{')
        call_json_begin_call(s);
    return call_json_step_of(run->depth == 1 ? c == ',' || mn_is_blank(c) : c == '{');
}

static mn_call_step call_json_begin(mn_calls *s, char c) {
    s->json.level = c == '{' ? 1 : 2;
    if (c == '{')
        call_json_begin_call(s);
    return MN_CALL_MORE;
}

/* A byte of the objects around the arguments, which stood at `at`. */
static mn_call_step outer(mn_calls *s, char c, place at) {
    mn_call_json *j = &s->json;
    const mn_json_run *run = &j->outer.run;
    if (!at.depth)
        return call_json_begin(s, c);
    if (at.depth < j->level)
        return in_list(s, c);
    if (run->depth < j->level)
        return call_json_end_call(s);
    if (at.depth > j->level)
        return MN_CALL_MORE;
    if (at.state == MN_JSON_FIRST_KEY || at.state == MN_JSON_KEY) {
        j->n_key = 0;
        return MN_CALL_MORE;
    }
    if (at.state == MN_JSON_STRING && run->in_key)
        return call_json_in_key(s, j, c);
    if (at.state == MN_JSON_VALUE && run->state != MN_JSON_VALUE)
        return call_json_begin_value(s, c);
    if (at.state == MN_JSON_STRING && j->value == MN_CALL_NAME_VALUE)
        return call_json_in_name(s, c);
    return MN_CALL_MORE;
}

static mn_call_step push(mn_calls *s, char c) {
    mn_call_json *j = &s->json;
    const mn_json_run *run = &j->outer.run;
    const place at = {run->state, run->depth};
    if (j->in_args)
        return in_args(s, c);
    if (at.state == MN_JSON_VALUE && at.depth && at.depth == j->level &&
        j->value == MN_CALL_ARGS_VALUE && !mn_is_blank(c))
        return begin_args(s, c);
    if (mn_json_mend_push(&j->outer, c, NULL) == MN_JSON_BAD)
        return MN_CALL_BAD;
    return outer(s, c, at);
}

/* Of an object that broke off right behind its name the brace is missing, not the arguments. */
static bool finish(mn_calls *s, int next) {
    const mn_call_json *j = &s->json;
    const mn_json_run *run = &j->outer.run;
    const bool whole = run->state == MN_JSON_AFTER && run->depth == j->level;
    const bool cut = j->in_args && j->has_name && s->marked && (next < 0 || next == '<');
    if (s->open || (cut && !s->given)) {
        mn_call_args_close(s);
        s->open = false;
        return true;
    }
    if (j->has_name && !j->has_args && whole && s->marked)
        call_without_args(s);
    return s->framed;
}

const mn_call_form mn_call_json_form = {push, finish};
