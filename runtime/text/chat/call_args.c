/* call_args.c -- the arguments of a call, where a form has JSON for them (calls.h): an object, JSON
 * inside a string, as the interface of OpenAI has it, or null, "" or nothing for tools that have no
 * parameters. What is given is one JSON object in any case: what models get wrong is mended
 * (json/mend.h), and what they do not end is closed. */
#include "text/chat/calls.h"
#include <string.h>

void mn_call_args_begin(mn_call_args *a) {
    *a = (mn_call_args){.at = MN_CALL_ARGS_BEGIN};
}

/* Gives what the last byte made. The first of it announces the call. */
static void call_args_give(mn_calls *s) {
    mn_text *made = &s->made;
    if (made->len)
        mn_calls_arguments(s, made->ptr, made->len);
    s->out->failed |= made->failed;
    made->len = 0;
}

static mn_call_step call_args_end(mn_calls *s) {
    call_args_give(s);
    s->args.at = MN_CALL_ARGS_DONE;
    return MN_CALL_END;
}

static mn_call_step none(mn_calls *s) {
    mn_text_puts(&s->made, "{}");
    return call_args_end(s);
}

static mn_call_step in_object(mn_calls *s, char c) {
    const mn_json_step step = mn_json_mend_push(&s->args.json, c, &s->made);
    if (step == MN_JSON_BAD)
        return MN_CALL_BAD;
    if (step == MN_JSON_END)
        return call_args_end(s);
    call_args_give(s);
    return MN_CALL_MORE;
}

/* ---- JSON in a string ------------------------------------------------------------------------ */
/* A character of the string: an object, and white space around it. */
static mn_call_step inner(mn_calls *s, char c) {
    mn_call_args *a = &s->args;
    const mn_json_run *run = &a->json.run;
    const bool outside = !run->depth && (run->state == MN_JSON_DONE || run->state == MN_JSON_VALUE);
    if (outside && mn_is_blank(c))
        return MN_CALL_MORE;
    if (outside && (c != '{' || run->state == MN_JSON_DONE))
        return MN_CALL_BAD;
    if (mn_json_mend_push(&a->json, c, &s->made) == MN_JSON_BAD)
        return MN_CALL_BAD;
    call_args_give(s);
    return MN_CALL_MORE;
}

/* The string ends; one whose quotes are not escaped, "{"a": 1}", is the object in quotes. */
static mn_call_step end_string(mn_calls *s) {
    mn_call_args *a = &s->args;
    const mn_json_run *run = &a->json.run;
    if (!run->depth && run->state == MN_JSON_VALUE)
        return none(s);
    if (run->depth == 1 && run->state == MN_JSON_FIRST_KEY) {
        a->at = MN_CALL_ARGS_OBJECT;
        return in_object(s, '"');
    }
    mn_json_mend_close(&a->json, &s->made);
    return call_args_end(s);
}

static mn_call_step call_args_in_string(mn_calls *s, char c) {
    mn_call_args *a = &s->args;
    char out[8];
    if (c == '"' && !a->chars.escape && !a->chars.left)
        return end_string(s);
    if (a->chars.left && mn_hex_digit(c) < 0)
        return MN_CALL_BAD;
    const int n = mn_json_chars_push(&a->chars, c, out);
    mn_call_step step = MN_CALL_MORE;
    for (int i = 0; i < n && step == MN_CALL_MORE; i++)
        step = inner(s, out[i]);
    return step;
}

/* ---- any value ------------------------------------------------------------------------------- */
static mn_call_step call_args_begin(mn_calls *s, char c) {
    mn_call_args *a = &s->args;
    if (mn_is_blank(c))
        return MN_CALL_MORE;
    a->word = c == 'n' ? "ull" : "one";
    switch (c) {
    case '{':
        a->at = MN_CALL_ARGS_OBJECT;
        return in_object(s, c);
    case '"':
        a->at = MN_CALL_ARGS_STRING;
        return MN_CALL_MORE;
    case '[':
        a->at = MN_CALL_ARGS_LIST;
        return MN_CALL_MORE;
    case 'n':
    case 'N':
        a->at = MN_CALL_ARGS_NULL;
        return MN_CALL_MORE;
    default:
        return MN_CALL_BAD;
    }
}

static mn_call_step in_null(mn_calls *s, char c) {
    if (c != *s->args.word)
        return MN_CALL_BAD;
    s->args.word++;
    return *s->args.word ? MN_CALL_MORE : none(s);
}

mn_call_step mn_call_args_push(mn_calls *s, char c) {
    switch (s->args.at) {
    case MN_CALL_ARGS_BEGIN:
        return call_args_begin(s, c);
    case MN_CALL_ARGS_OBJECT:
        return in_object(s, c);
    case MN_CALL_ARGS_STRING:
        return call_args_in_string(s, c);
    case MN_CALL_ARGS_NULL:
        return in_null(s, c);
    case MN_CALL_ARGS_LIST: /* an empty one */
        if (mn_is_blank(c))
            return MN_CALL_MORE;
        return c == ']' ? none(s) : MN_CALL_BAD;
    default:
        return MN_CALL_BAD;
    }
}

void mn_call_args_close(mn_calls *s) {
    const mn_json_run *run = &s->args.json.run;
    if (s->args.at == MN_CALL_ARGS_DONE)
        return;
    if (run->depth || run->state != MN_JSON_VALUE)
        mn_json_mend_close(&s->args.json, &s->made);
    else
        mn_text_puts(&s->made, "{}");
    call_args_end(s);
}
