/* call_json.c -- a call as a JSON object, {"name": "f", "arguments": {...}}, or a list of them
 * (calls.h). The key of the arguments may be "parameters", the arguments may be JSON inside a
 * string, as the interface of OpenAI has them, and may precede the name; then they are kept until
 * it comes. The automaton of JSON says where a byte stands; this file looks at the keys of the
 * calls alone. */
#include "text/chat/calls.h"
#include <string.h>

/* Where a byte stands: before it was read. */
typedef struct {
    mn_json_state state;
    uint16_t depth;
} place;

static mn_call_step step_of(bool ok) {
    return ok ? MN_CALL_MORE : MN_CALL_BAD;
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool in_string(mn_json_state state) {
    return state == MN_JSON_STRING || state == MN_JSON_ESCAPE || state == MN_JSON_HEX;
}

/* Arguments: given, or kept until the name is there. */
static void put(mn_calls *s, const char *bytes, size_t n) {
    mn_call_json *j = &s->json;
    if (j->has_name)
        mn_calls_put(s, bytes, n);
    else
        mn_text_put(&j->early, bytes, n);
    s->out->failed |= j->early.failed;
}

/* ---- keys ------------------------------------------------------------------------------------ */
static bool key_is(const mn_call_json *j, const char *key) {
    return j->n_key == strlen(key) && !memcmp(j->key, key, j->n_key);
}

/* The key is whole: what its value is. Each of ours stands there once. Without a mark in front, a
 * key that calls do not have tells that this is none. */
static mn_call_step end_key(const mn_calls *s, mn_call_json *j) {
    const bool name = key_is(j, "name");
    const bool args = key_is(j, "arguments") || key_is(j, "parameters");
    const bool known = key_is(j, "id") || key_is(j, "type");
    if ((name && j->has_name) || (args && j->has_args))
        return MN_CALL_BAD;
    if (!name && !args && !known && !s->marked)
        return MN_CALL_BAD;
    j->value = MN_CALL_OTHER_VALUE;
    if (name)
        j->value = MN_CALL_NAME_VALUE;
    else if (args)
        j->value = MN_CALL_OBJECT_VALUE;
    return MN_CALL_MORE;
}

static mn_call_step in_key(const mn_calls *s, mn_call_json *j, char c) {
    if (j->run.state == MN_JSON_COLON)
        return end_key(s, j);
    if (j->n_key < sizeof j->key)
        j->key[j->n_key++] = c;
    return MN_CALL_MORE;
}

/* ---- values ---------------------------------------------------------------------------------- */
static void begin_arguments(mn_calls *s) {
    s->json.has_args = true;
    if (s->json.has_name)
        mn_calls_begin(s);
}

static mn_call_step begin_value(mn_calls *s, char c) {
    mn_call_json *j = &s->json;
    j->chars = (mn_json_chars){0};
    if (j->value == MN_CALL_NAME_VALUE) {
        s->n_name = 0;
        return step_of(c == '"');
    }
    if (j->value != MN_CALL_OBJECT_VALUE)
        return MN_CALL_MORE;
    if (c == '"') {
        j->value = MN_CALL_STRING_VALUE;
        j->inner = (mn_json_run){0};
        j->inner_end = false;
        return MN_CALL_MORE;
    }
    if (c != '{')
        return MN_CALL_BAD;
    begin_arguments(s);
    put(s, &c, 1);
    return MN_CALL_MORE;
}

/* A name has no control characters: it goes into headers and logs. */
static mn_call_step in_name(mn_calls *s, char c) {
    mn_call_json *j = &s->json;
    char out[8];
    const bool whole = j->run.state == MN_JSON_AFTER;
    const int n = whole ? 0 : mn_json_chars_push(&j->chars, c, out);
    for (int i = 0; i < n; i++)
        if ((unsigned char)out[i] < 0x20 || !mn_calls_name(s, out[i]))
            return MN_CALL_BAD;
    if (!whole)
        return MN_CALL_MORE;
    if (!s->n_name || j->chars.high)
        return MN_CALL_BAD;
    j->has_name = true;
    if (j->has_args) {
        mn_calls_begin(s);
        mn_calls_put(s, j->early.ptr, j->early.len);
        j->early.len = 0;
    }
    return MN_CALL_MORE;
}

/* A character of arguments in a string. */
static mn_call_step put_inner(mn_calls *s, char c) {
    mn_call_json *j = &s->json;
    if (is_space(c) && (j->inner_end || j->inner.state == MN_JSON_VALUE) && !j->inner.depth)
        return MN_CALL_MORE;
    if (j->inner_end || (!j->has_args && c != '{'))
        return MN_CALL_BAD;
    const mn_json_step step = mn_json_run_push(&j->inner, c);
    if (step == MN_JSON_BAD)
        return MN_CALL_BAD;
    j->inner_end = step == MN_JSON_END;
    if (!j->has_args)
        begin_arguments(s);
    put(s, &c, 1);
    return MN_CALL_MORE;
}

/* Half a surrogate pair is no character, so that what is wrong is still held as it came. */
static mn_call_step in_arguments_string(mn_calls *s, char c) {
    mn_call_json *j = &s->json;
    char out[8];
    const bool half = j->chars.high != 0;
    if (j->run.state == MN_JSON_AFTER)
        return step_of(j->inner_end && !half);
    const int n = mn_json_chars_push(&j->chars, c, out);
    if (half && n && !memcmp(out, "\xef\xbf\xbd", 3))
        return MN_CALL_BAD;
    mn_call_step step = MN_CALL_MORE;
    for (int i = 0; i < n && step == MN_CALL_MORE; i++)
        step = put_inner(s, out[i]);
    return step;
}

/* A byte of the value, behind its first. */
static mn_call_step in_value(mn_calls *s, char c, place at) {
    mn_call_json *j = &s->json;
    const bool string = in_string(at.state) && at.depth == j->level;
    if (j->value == MN_CALL_NAME_VALUE && string)
        return in_name(s, c);
    if (j->value == MN_CALL_STRING_VALUE && string)
        return in_arguments_string(s, c);
    if (j->value == MN_CALL_OBJECT_VALUE && at.depth > j->level)
        put(s, &c, 1);
    return MN_CALL_MORE;
}

/* ---- calls and lists ------------------------------------------------------------------------- */
static void begin_call(mn_calls *s) {
    mn_call_json *j = &s->json;
    j->value = MN_CALL_NO_VALUE;
    j->has_name = false;
    j->has_args = false;
    j->early.len = 0;
    s->framed = false;
}

/* Behind a mark a call without arguments is one: models write so for tools that have none. */
static mn_call_step end_call(mn_calls *s) {
    mn_call_json *j = &s->json;
    if (!j->has_name || (!j->has_args && !s->marked))
        return MN_CALL_BAD;
    if (!j->has_args) {
        mn_calls_begin(s);
        mn_calls_put(s, "{}", 2);
    }
    s->held.len = 0;
    return j->run.state == MN_JSON_DONE ? MN_CALL_END : MN_CALL_MORE;
}

/* A byte between the calls of a list. */
static mn_call_step in_list(mn_calls *s, char c) {
    const mn_json_run *run = &s->json.run;
    if (run->state == MN_JSON_DONE)
        return MN_CALL_END;
    if (run->depth == 2 && c == '{')
        begin_call(s);
    return step_of(run->depth == 1 ? c == ',' || is_space(c) : c == '{');
}

static mn_call_step begin(mn_calls *s, char c) {
    s->json.level = c == '{' ? 1 : 2;
    if (c == '{')
        begin_call(s);
    return MN_CALL_MORE;
}

mn_call_step mn_call_json_push(mn_calls *s, char c) {
    mn_call_json *j = &s->json;
    const mn_json_run *run = &j->run;
    const place at = {run->state, run->depth};
    if (mn_json_run_push(&j->run, c) == MN_JSON_BAD)
        return MN_CALL_BAD;
    if (!at.depth)
        return begin(s, c);
    if (at.depth < j->level)
        return in_list(s, c);
    if (run->depth < j->level)
        return end_call(s);
    if (at.depth > j->level)
        return in_value(s, c, at);
    if (at.state == MN_JSON_FIRST_KEY || at.state == MN_JSON_KEY) {
        j->n_key = 0;
        return MN_CALL_MORE;
    }
    if (in_string(at.state) && run->in_key)
        return in_key(s, j, c);
    if (at.state == MN_JSON_VALUE && run->state != MN_JSON_VALUE)
        return begin_value(s, c);
    return in_value(s, c, at);
}
