/* call_named.c -- a call whose name stands in front of its arguments (calls.h): Mistral's later
 * models write name[ARGS]{...}, name[CALL_ID]id[ARGS]{...} or name{...}, functionary's name, a line
 * break, in version 2 a mark of the content, and {...}. The id is dropped: callers make their own.
 * With functionary the name "all" begins text. Kimi and DeepSeek have a mark of their own behind
 * the name; the older DeepSeek have the name behind it. Gemma writes call:name{key:value}, strings
 * between marks of its own, in which every byte means itself. */
#include "text/chat/calls.h"
#include <string.h>

static bool call_named_in_word(char c) {
    const char low = (char)(c | 0x20);
    return (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || (c && strchr("_-.:/", c));
}

/* ---- arguments ------------------------------------------------------------------------------- */
/* A byte of the arguments, inside of a string between the family's marks as JSON writes it. */
static mn_call_step quoted_byte(mn_calls *s, char c) {
    const bool escapes = s->named.in_quotes && (c == '"' || c == '\\');
    const mn_call_step step = escapes ? mn_call_args_push(s, '\\') : MN_CALL_MORE;
    return step == MN_CALL_MORE ? mn_call_args_push(s, c) : step;
}

/* The family's mark around a string becomes a quote; what only began like it is as it is. */
static mn_call_step quoted(mn_calls *s, char c) {
    mn_call_named *f = &s->named;
    mn_call_step step = MN_CALL_MORE;
    const uint8_t n = f->n_quote;
    f->n_quote = 0;
    if (c == f->quote[n]) {
        if (!n)
            s->again = s->held.len;
        if (f->quote[n + 1]) {
            f->n_quote = (uint8_t)(n + 1);
            return MN_CALL_MORE;
        }
        s->again = 0;
        f->in_quotes = !f->in_quotes;
        return mn_call_args_push(s, '"');
    }
    for (uint8_t i = 0; i < n && step == MN_CALL_MORE; i++)
        step = quoted_byte(s, f->quote[i]);
    if (step != MN_CALL_MORE || !n)
        return step == MN_CALL_MORE ? quoted_byte(s, c) : step;
    s->again = 0;
    return quoted(s, c);
}

static mn_call_step arguments(mn_calls *s, char c) {
    mn_call_named *f = &s->named;
    if (f->at != MN_CALL_IN_ARGS)
        mn_call_args_begin(&s->args);
    f->at = MN_CALL_IN_ARGS;
    return f->quote ? quoted(s, c) : mn_call_args_push(s, c);
}

/* ---- marks ----------------------------------------------------------------------------------- */
/* n bytes of the mark were read; NULL: [ARGS] or [CALL_ID]. */
static mn_call_step begin_mark(mn_calls *s, const char *mark, uint16_t n) {
    s->named.at = MN_CALL_IN_MARK;
    s->named.mark = mark;
    s->named.n_mark = n;
    return MN_CALL_MORE;
}

/* '[' begins our mark or the next call's: what is read again if it is the latter. */
static mn_call_step begin_bracket(mn_calls *s, const char *mark) {
    s->again = s->held.len;
    return begin_mark(s, mark, 1);
}

static bool name_is_called(mn_calls *s);

static mn_call_step call_named_in_mark(mn_calls *s, char c) {
    static const char args[] = "[ARGS]";
    static const char id[] = "[CALL_ID]";
    mn_call_named *f = &s->named;
    if (!f->mark)
        f->mark = c == id[1] ? id : args;
    if (c != f->mark[f->n_mark++])
        return MN_CALL_BAD;
    if (f->mark[f->n_mark])
        return MN_CALL_MORE;
    s->again = 0;
    if (f->is_text)
        return MN_CALL_TEXT;
    f->at = f->mark == id ? MN_CALL_IN_ID : MN_CALL_IN_GAP;
    if (f->mark == f->args && f->typed)
        f->at = MN_CALL_IN_TYPED;
    else if (f->mark == f->args && !name_is_called(s))
        return MN_CALL_BAD;
    return MN_CALL_MORE;
}

/* ---- marks of a family in place of [ARGS] ---------------------------------------------------- */
/* "functions.NAME:3" is NAME; the number is dropped: callers make their own. */
static void drop_number(mn_calls *s) {
    uint16_t n = s->n_name;
    while (n && s->name[n - 1] >= '0' && s->name[n - 1] <= '9')
        n--;
    if (n > 1 && n < s->n_name && s->name[n - 1] == ':')
        s->n_name = (uint16_t)(n - 1);
}

/* The name is whole: what a model that knows no tools calls is a call, too. */
static bool name_is_called(mn_calls *s) {
    static const char space[] = "functions.";
    const uint16_t n = sizeof space - 1;
    drop_number(s);
    if (mn_calls_may_call(s) && s->tools)
        return true;
    if (!s->tools && s->n_name > n && !memcmp(s->name, space, n)) {
        s->n_name = (uint16_t)(s->n_name - n);
        memmove(s->name, s->name + n, s->n_name);
    }
    return mn_calls_may_call(s);
}

static mn_call_step begin_args_mark(mn_calls *s) {
    s->again = s->held.len;
    return begin_mark(s, s->named.args, 1);
}

/* DeepSeek, behind its mark: {...} of the name in front of it, or the name, if that was a type. */
static mn_call_step in_typed(mn_calls *s, char c) {
    mn_call_named *f = &s->named;
    if (mn_is_blank(c))
        return MN_CALL_MORE;
    if (c == '{' || c == '`') {
        f->at = MN_CALL_IN_FENCE;
        if (!name_is_called(s))
            return MN_CALL_BAD;
        return c == '{' ? arguments(s, c) : MN_CALL_MORE;
    }
    if (!call_named_in_word(c))
        return MN_CALL_BAD;
    s->n_name = 0;
    f->at = MN_CALL_IN_TYPED_NAME;
    return mn_calls_name(s, c) ? MN_CALL_MORE : MN_CALL_BAD;
}

static mn_call_step in_typed_name(mn_calls *s, char c) {
    if (c == '\n' || c == '{') {
        if (!name_is_called(s))
            return MN_CALL_BAD;
        s->named.at = MN_CALL_IN_FENCE;
        return c == '{' ? arguments(s, c) : MN_CALL_MORE;
    }
    return call_named_in_word(c) && mn_calls_name(s, c) ? MN_CALL_MORE : MN_CALL_BAD;
}

/* "```json", a line break, {...} */
static mn_call_step in_fence(mn_calls *s, char c) {
    if (c == '{')
        return arguments(s, c);
    return mn_is_blank(c) || (c && strchr("`json", c)) ? MN_CALL_MORE : MN_CALL_BAD;
}

/* ---- names ----------------------------------------------------------------------------------- */
/* The line with the name ends. */
static mn_call_step call_named_end_line(mn_calls *s) {
    mn_call_named *f = &s->named;
    f->is_text = mn_str_is((mn_str){s->name, s->n_name}, "all");
    if (!f->is_text && !mn_calls_may_call(s))
        return MN_CALL_BAD;
    if (f->content)
        return begin_mark(s, f->content, 0);
    f->at = MN_CALL_IN_GAP;
    return f->is_text ? MN_CALL_TEXT : MN_CALL_MORE;
}

/* "call:NAME" is NAME, also where the first part was forgotten. */
static void drop_before(mn_calls *s) {
    const char *before = s->named.before;
    const uint16_t n = before ? (uint16_t)strlen(before) : 0;
    if (!n || s->n_name <= n || memcmp(s->name, before, n) != 0)
        return;
    s->n_name = (uint16_t)(s->n_name - n);
    memmove(s->name, s->name + n, s->n_name);
}

/* Without a mark only the name of a tool goes on, and only a mark behind it makes it a call. */
static mn_call_step call_named_in_name(mn_calls *s, char c) {
    const mn_call_named *f = &s->named;
    const bool ends = (c == '[' || c == '{' || c == '\n') && s->n_name;
    if (c == '{')
        drop_before(s);
    if (c == '<' && f->args && s->n_name)
        return begin_args_mark(s);
    if (mn_is_blank(c) && (f->args || f->before) && s->n_name)
        return MN_CALL_MORE;
    if (ends && c == '\n')
        return f->lines ? call_named_end_line(s) : MN_CALL_BAD;
    if (ends && (f->lines || !mn_calls_may_call(s)))
        return MN_CALL_BAD;
    if (ends && c == '[')
        return begin_bracket(s, NULL);
    if (ends)
        return s->marked ? arguments(s, c) : MN_CALL_BAD;
    if (!call_named_in_word(c) || !mn_calls_name(s, c))
        return MN_CALL_BAD;
    return s->marked || mn_calls_begins_tool(s) ? MN_CALL_MORE : MN_CALL_BAD;
}

static mn_call_step push(mn_calls *s, char c) {
    mn_call_named *f = &s->named;
    switch (f->at) {
    case MN_CALL_IN_NAME:
        return call_named_in_name(s, c);
    case MN_CALL_IN_MARK:
        return call_named_in_mark(s, c);
    case MN_CALL_IN_ID:
        if (c == '[')
            return begin_bracket(s, "[ARGS]");
        return call_named_in_word(c) ? MN_CALL_MORE : MN_CALL_BAD;
    case MN_CALL_IN_TYPED:
        return in_typed(s, c);
    case MN_CALL_IN_TYPED_NAME:
        return in_typed_name(s, c);
    case MN_CALL_IN_FENCE:
        return in_fence(s, c);
    case MN_CALL_IN_GAP:
        if (mn_is_blank(c))
            return MN_CALL_MORE;
        return c == '[' ? MN_CALL_BAD : arguments(s, c); /* the next mark */
    default:
        return arguments(s, c);
    }
}

/* Nothing behind the name but the next mark, or the end: a tool without parameters. A name alone
 * must be a tool's. */
static bool finish(mn_calls *s, int next) {
    mn_call_named *f = &s->named;
    const bool ends = next < 0 || next == '[' || next == '<' || next == '>';
    const bool alone = f->at == MN_CALL_IN_NAME || f->at == MN_CALL_IN_MARK ||
                       f->at == MN_CALL_IN_TYPED || f->at == MN_CALL_IN_TYPED_NAME;
    const bool empty = f->at == MN_CALL_IN_GAP || f->at == MN_CALL_IN_FENCE ||
                       (f->at == MN_CALL_IN_ARGS && s->args.at == MN_CALL_ARGS_BEGIN);
    if (s->given) {
        mn_call_args_close(s);
        return true;
    }
    if (!s->marked || f->is_text || !s->n_name)
        return false;
    if (f->at == MN_CALL_IN_NAME)
        drop_before(s);
    if (alone && f->args && !name_is_called(s))
        return false;
    if (!(empty && ends) && !(alone && mn_calls_is_tool(s)))
        return false;
    mn_call_args_begin(&s->args);
    mn_call_args_close(s);
    return true;
}

const mn_call_form mn_call_named_form = {push, finish};
