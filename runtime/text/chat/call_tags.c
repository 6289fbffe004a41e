/* call_tags.c -- a call as tags, as Qwen3-Coder and its successors write them (calls.h):
 *   <function=name>
 *   <parameter=key>
 *   value
 *   </parameter>
 *   </function>
 * The arguments are made into a JSON object. A value is written bare, so that its type is lost:
 * what is JSON and no string, and of a type that the request's tools state for the parameter, is
 * passed on as it is, everything else becomes a string. Templates write True, False and None as
 * Python does. A value that may still be JSON is kept until it has ended, or is so long that no
 * number is.
 *
 * Other families have other tags (mn_call_words); GLM-4.5 has the name behind the mark of the call,
 * and a tag for each key and each value; DeepSeek V3.2 says of each value whether it is a string.
 * Functionary and Llama 3.1 write one JSON object behind the name: <function=name>{...}</function>.
 *
 * Models leave out ends of values and functions, and write parameters that are none. What belongs
 * to a call that was given is dropped up to the next tag; text behind a call that has no end is
 * text. */
#include "text/chat/call_families.h"
#include "text/chat/call_types.h"
#include "text/json/schema_types.h"
#include <string.h>

enum { MAYBE_MAX = 4096 };
static mn_call_step end_function(mn_calls *s, bool at_mark);
static mn_call_step end_key(mn_calls *s);
static mn_call_step in_json(mn_calls *s, char c);

static void put_made(mn_calls *s) {
    if (s->made.len)
        mn_calls_put(s, s->made.ptr, s->made.len);
    s->out->failed |= s->made.failed;
    s->made.len = 0;
}

static void call_tags_put_z(mn_calls *s, const char *text) {
    mn_calls_put(s, text, strlen(text));
}

/* Characters of a JSON string, escaped. */
static void put_escaped(mn_calls *s, const char *text, size_t n) {
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        char code[7] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], 0};
        if (c == '\n')
            call_tags_put_z(s, "\\n");
        else if (c == '"' || c == '\\')
            mn_calls_put(s, (char[]){'\\', text[i]}, 2);
        else if (c < 0x20)
            call_tags_put_z(s, code);
        else
            mn_calls_put(s, &text[i], 1);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */
static const struct {
    const char *python, *json;
    uint32_t type;
} words[] = {{"True", "true", MN_SCHEMA_BOOL},
             {"False", "false", MN_SCHEMA_BOOL},
             {"None", "null", MN_SCHEMA_NULL}};
enum { WORD_MAX = 5 };

/* The type of JSON that begins so; 0 = none, or a string. */
static uint32_t call_tags_type_of(char c) {
    switch (c) {
    case '{':
        return MN_SCHEMA_OBJECT;
    case '[':
        return MN_SCHEMA_LIST;
    case 't':
    case 'f':
        return MN_SCHEMA_BOOL;
    case 'n':
        return MN_SCHEMA_NULL;
    default:
        return c == '-' || (c >= '0' && c <= '9') ? MN_SCHEMA_NUMBER : 0;
    }
}

static bool call_tags_is_allowed(const mn_call_tags *f, uint32_t type) {
    return type && (!f->types || f->types & type);
}

static bool may_begin_word(const mn_call_tags *f, char c) {
    for (size_t i = 0; i < MN_COUNT(words); i++)
        if (*words[i].python == c && f->types & words[i].type)
            return true;
    return false;
}

/* What is kept, as JSON; NULL = no word. */
static const char *call_tags_word_of(const mn_call_tags *f) {
    for (size_t i = 0; i < MN_COUNT(words); i++)
        if (mn_str_is((mn_str){f->maybe.ptr, f->maybe.len}, words[i].python))
            return f->types & words[i].type ? words[i].json : NULL;
    return NULL;
}

/* What was kept of a value is the beginning of a string. */
static void call_tags_begin_string(mn_calls *s) {
    mn_call_tags *f = &s->tags;
    f->kind = MN_CALL_STRING;
    call_tags_put_z(s, "\"");
    put_escaped(s, f->maybe.ptr, f->maybe.len);
}

static void call_tags_keep(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    mn_text_put(&f->maybe, &c, 1);
    s->out->failed |= f->maybe.failed;
    if (f->maybe.len < MAYBE_MAX)
        return;
    if (f->run.depth) {
        f->kind = MN_CALL_RAW_JSON;
        f->raw = (mn_json_mend){0};
        for (size_t i = 0; i < f->maybe.len; i++)
            mn_json_mend_push(&f->raw, f->maybe.ptr[i], &s->made);
        put_made(s);
    } else
        call_tags_begin_string(s);
}

/* A long value that is no JSON any more is closed; the rest of it is dropped. */
static mn_call_step raw_byte(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    const mn_json_step step = mn_json_mend_push(&f->raw, c, &s->made);
    if (step == MN_JSON_BAD)
        mn_json_mend_close(&f->raw, &s->made);
    if (step != MN_JSON_MORE)
        f->kind = MN_CALL_SPOILT;
    put_made(s);
    return MN_CALL_MORE;
}

/* A byte of a value that is no part of the tag behind it. */
static mn_call_step value_byte(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    if (f->kind == MN_CALL_EMPTY) {
        if (c == '\n' && !f->trimmed && s->family->words->lines) {
            f->trimmed = true;
            return MN_CALL_MORE;
        }
        f->run = (mn_json_run){0};
        f->maybe.len = 0;
        f->kind = may_begin_word(f, c) ? MN_CALL_MAYBE_WORD : MN_CALL_MAYBE_JSON;
        if (f->kind == MN_CALL_MAYBE_JSON && !call_tags_is_allowed(f, call_tags_type_of(c)))
            call_tags_begin_string(s);
    }
    if (f->kind == MN_CALL_MAYBE_WORD) {
        call_tags_keep(s, c);
        if (f->maybe.len > WORD_MAX)
            call_tags_begin_string(s);
        return MN_CALL_MORE;
    }
    if (f->kind == MN_CALL_STRING) {
        put_escaped(s, &c, 1);
        return MN_CALL_MORE;
    }
    if (f->kind == MN_CALL_RAW_JSON)
        return raw_byte(s, c);
    if (f->kind == MN_CALL_SPOILT) {
        s->held.len = 0;
        return MN_CALL_MORE;
    }
    if (mn_json_run_push(&f->run, c) != MN_JSON_BAD) {
        call_tags_keep(s, c);
        return MN_CALL_MORE;
    }
    call_tags_begin_string(s);
    put_escaped(s, &c, 1);
    return MN_CALL_MORE;
}

static void call_tags_end_value(mn_calls *s) {
    mn_call_tags *f = &s->tags;
    const bool whole = mn_json_run_whole(&f->run);
    f->at = MN_CALL_TAG_GAP;
    f->n_tag = 0;
    const char *word = f->kind == MN_CALL_MAYBE_WORD ? call_tags_word_of(f) : NULL;
    if (f->kind == MN_CALL_RAW_JSON)
        mn_json_mend_close(&f->raw, &s->made);
    put_made(s);
    if (f->kind == MN_CALL_EMPTY)
        call_tags_put_z(s, "\"\"");
    else if (word)
        call_tags_put_z(s, word);
    else if (f->kind == MN_CALL_MAYBE_JSON && whole)
        mn_calls_put(s, f->maybe.ptr, f->maybe.len);
    else if (f->kind == MN_CALL_MAYBE_JSON || f->kind == MN_CALL_MAYBE_WORD)
        call_tags_begin_string(s);
    if (f->kind == MN_CALL_STRING)
        call_tags_put_z(s, "\"");
    s->held.len = 0;
}

/* ---- where a value ends ---------------------------------------------------------------------- */
typedef enum { NO_END, MAY_END, VALUE_ENDS, FUNCTION_ENDS, NEXT_VALUE } value_end;

/* -1: the text does not begin so; 0: as far as it goes; 1: it does. */
static int call_tags_begins(const char *text, size_t n, const char *with) {
    const size_t len = strlen(with);
    if (memcmp(text, with, MN_MIN(n, len)) != 0)
        return -1;
    return n >= len;
}

/* "</function>" and the mark behind it: the end of the value was left out. */
static value_end ends_function(const mn_calls *s, const char *text, size_t n) {
    const char *tag = s->family->words->function_end;
    const int on = tag ? call_tags_begins(text, n, tag) : -1;
    if (on <= 0)
        return on ? NO_END : MAY_END;
    size_t at = strlen(tag);
    while (at < n && mn_is_blank(text[at]))
        at++;
    const int mark = mn_calls_on_close(s, text + at, n - at);
    if (mark < 0)
        return NO_END;
    return mark ? FUNCTION_ENDS : MAY_END;
}

/* "<parameter=key>" of a key that the tool has, in a line of its own: the end was left out. */
static value_end next_value(const mn_calls *s, const char *text, size_t n) {
    const mn_call_words *w = s->family->words;
    const size_t before = strlen(w->parameter);
    const int on = w->lines ? call_tags_begins(text, n, w->parameter) : -1;
    if (on <= 0)
        return on ? NO_END : MAY_END;
    const mn_str key = {text + before, n - before};
    const char last = key.len ? key.ptr[key.len - 1] : 0;
    const mn_str name = {s->name, s->n_name};
    if (last == '\n' || last == '<')
        return NO_END;
    if (last != '>')
        return MAY_END;
    const bool is_key = mn_call_types_has_key(s->tools, name, (mn_str){key.ptr, key.len - 1});
    return is_key ? NEXT_VALUE : NO_END;
}

/* The mark behind the call, in a line of its own, and white space: the end of the answer decides
 * whether the ends of value and function were left out. */
static bool may_end_all(const mn_calls *s, const char *text, size_t n) {
    while (n && mn_is_blank(text[n - 1]))
        n--;
    return mn_calls_on_close(s, text, n) >= 0;
}

/* What the text, which stands in a value, is on the way to. The tag at the end has its line break
 * in front of it, or none. */
static value_end end_of_value(const mn_calls *s, const char *text, size_t n) {
    const mn_call_words *w = s->family->words;
    const bool line = n && *text == '\n';
    const char *tag = text + line;
    const size_t left = n - line;
    const int on = line && !w->lines ? -1 : call_tags_begins(tag, left, w->value_end);
    if (on >= 0)
        return on ? VALUE_ENDS : MAY_END;
    const value_end function = ends_function(s, tag, left);
    if (function != NO_END || !line)
        return function;
    if (may_end_all(s, tag, left))
        return MAY_END;
    return next_value(s, tag, left);
}

static mn_call_step end_at_tag(mn_calls *s, value_end end) {
    mn_call_tags *f = &s->tags;
    const size_t before = 1 + strlen(s->family->words->parameter); /* behind a line break */
    if (end == NEXT_VALUE) {                                       /* without its '>' */
        f->n_key = (uint16_t)(f->n_tag - before - 1);
        memcpy(f->key, f->tag + before, f->n_key);
    }
    call_tags_end_value(s);
    if (end == FUNCTION_ENDS)
        return end_function(s, true);
    return end == NEXT_VALUE ? end_key(s) : MN_CALL_MORE;
}

static mn_call_step in_value(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    f->tag[f->n_tag++] = c;
    while (f->n_tag) {
        const value_end end = end_of_value(s, f->tag, f->n_tag);
        if (end == MAY_END && f->n_tag < sizeof f->tag)
            return MN_CALL_MORE;
        if (end > MAY_END)
            return end_at_tag(s, end);
        value_byte(s, f->tag[0]);
        f->n_tag--;
        memmove(f->tag, f->tag + 1, f->n_tag);
    }
    return MN_CALL_MORE;
}

/* ---- tags ------------------------------------------------------------------------------------ */
/* The call is given once it has a tag of its own, behind a mark at once. */
static void announce(mn_calls *s) {
    if (!s->given)
        mn_calls_begin(s);
}

static mn_call_step end_function(mn_calls *s, bool at_mark) {
    announce(s);
    call_tags_put_z(s, s->tags.has_args ? "}" : "{}");
    s->open = false;
    if (at_mark)
        mn_calls_mark_closed(s);
    return MN_CALL_END;
}

static mn_call_step call_tags_in_gap(mn_calls *s, char c);

/* The name behind the mark of a call ends with its line, or at a tag. */
static mn_call_step in_bare_name(mn_calls *s, char c) {
    if (!mn_is_blank(c) && c != '<')
        return (unsigned char)c > 0x20 && mn_calls_name(s, c) ? MN_CALL_MORE : MN_CALL_BAD;
    if (!s->n_name || !mn_calls_may_call(s))
        return MN_CALL_BAD;
    s->tags.at = MN_CALL_TAG_GAP;
    s->tags.n_tag = 0;
    return c == '<' ? call_tags_in_gap(s, c) : MN_CALL_MORE;
}

static mn_call_step call_tags_in_name(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    if (!s->family->words->function)
        return in_bare_name(s, c);
    if (c == '"')
        return MN_CALL_MORE; /* around the name */
    if (c != '>' && !(c == '\n' && mn_calls_is_tool(s))) {
        const bool wrong = (unsigned char)c <= 0x20 || c == '<';
        return !wrong && mn_calls_name(s, c) ? MN_CALL_MORE : MN_CALL_BAD;
    }
    if (!s->n_name || !mn_calls_may_call(s))
        return MN_CALL_BAD;
    if (s->marked)
        announce(s);
    f->at = MN_CALL_TAG_GAP;
    f->n_tag = 0;
    return MN_CALL_MORE;
}

/* The text between tags is no part of the call; it is held, up to a tag that goes on with it. */
static mn_call_step in_junk(mn_calls *s) {
    const mn_call_words *w = s->family->words;
    mn_call_tags *f = &s->tags;
    const mn_str held = {s->held.ptr, s->held.len};
    f->n_tag = 0;
    if (mn_calls_ends_with_mark(s))
        return MN_CALL_BAD;
    if (mn_str_ends(held, w->value_end)) {
        s->held.len = 0;
        f->at = MN_CALL_TAG_GAP;
    } else if (w->function_end && mn_str_ends(held, w->function_end)) {
        return end_function(s, false);
    } else if (mn_str_ends(held, w->parameter)) {
        f->n_key = 0;
        f->at = MN_CALL_TAG_KEY;
    }
    return MN_CALL_MORE;
}

static mn_call_step begin_junk(mn_calls *s) {
    if (!s->given)
        return MN_CALL_BAD;
    s->tags.at = MN_CALL_TAG_JUNK;
    return in_junk(s);
}

/* Between parameters. */
static mn_call_step call_tags_in_gap(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    if (mn_is_blank(c) && !f->n_tag)
        return MN_CALL_MORE;
    if (c == '{' && !f->n_tag && !f->has_args) {
        f->at = MN_CALL_TAG_JSON;
        mn_call_args_begin(&s->args);
        return in_json(s, c);
    }
    const mn_call_words *w = s->family->words;
    if (!f->n_tag && !s->given)
        s->again = s->held.len; /* a mark of another call may begin here */
    f->tag[f->n_tag++] = c;
    const int parameter = call_tags_begins(f->tag, f->n_tag, w->parameter);
    const int end = w->function_end ? call_tags_begins(f->tag, f->n_tag, w->function_end)
                                    : mn_calls_on_close(s, f->tag, f->n_tag);
    if (parameter < 0 && end < 0)
        return begin_junk(s);
    if (end == 1)
        return end_function(s, !w->function_end);
    if (parameter < 1)
        return MN_CALL_MORE;
    f->n_tag = 0;
    f->n_key = 0;
    f->at = MN_CALL_TAG_KEY;
    return MN_CALL_MORE;
}

/* "KEY" string="true": the key, and whether the value is a string; 0: not said. */
static uint32_t drop_type(mn_call_tags *f) {
    static const char attribute[] = " string=\"";
    const size_t n = sizeof attribute - 1;
    const char *quote =
        f->n_key > 1 && *f->key == '"' ? memchr(f->key + 1, '"', f->n_key - 1u) : NULL;
    if (!quote)
        return 0;
    const size_t left = f->n_key - (size_t)(quote + 1 - f->key);
    const bool is_text = left > n && !memcmp(quote + 1, attribute, n) && quote[1 + n] == 't';
    f->n_key = (uint16_t)(quote + 1 - f->key);
    return is_text ? MN_SCHEMA_TEXT : 0;
}

static mn_call_step end_key(mn_calls *s) {
    mn_call_tags *f = &s->tags;
    const uint32_t said = s->family->words->typed ? drop_type(f) : 0;
    if (f->n_key > 2 && *f->key == '"' && f->key[f->n_key - 1] == '"') {
        f->n_key = (uint16_t)(f->n_key - 2);
        memmove(f->key, f->key + 1, f->n_key);
    }
    announce(s);
    call_tags_put_z(s, f->has_args ? ", \"" : "{\"");
    put_escaped(s, f->key, f->n_key);
    call_tags_put_z(s, "\": ");
    f->has_args = true;
    f->at = s->family->words->value ? MN_CALL_TAG_BEFORE : MN_CALL_TAG_VALUE;
    f->types = mn_call_types_of(s->tools, (mn_str){s->name, s->n_name}, (mn_str){f->key, f->n_key});
    if (said)
        f->types = said;
    f->kind = MN_CALL_EMPTY;
    f->trimmed = false;
    f->n_tag = 0;
    return MN_CALL_MORE;
}

static mn_call_step in_key(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    const char *end = s->family->words->key_end;
    const size_t n = strlen(end);
    if ((unsigned char)c < 0x20 || f->n_key == sizeof f->key)
        return begin_junk(s);
    f->key[f->n_key++] = c;
    if (f->n_key < n || memcmp(f->key + f->n_key - n, end, n) != 0)
        return MN_CALL_MORE;
    f->n_key = (uint16_t)(f->n_key - n);
    return f->n_key ? end_key(s) : begin_junk(s);
}

/* Between a key and the tag of its value. Where that tag was left out the value begins. */
static mn_call_step before_value(mn_calls *s, char c) {
    const char *tag = s->family->words->value;
    mn_call_tags *f = &s->tags;
    char begun[MN_CALL_KEY];
    mn_call_step step = MN_CALL_MORE;
    if (mn_is_blank(c) && !f->n_tag)
        return MN_CALL_MORE;
    f->tag[f->n_tag++] = c;
    const int on = call_tags_begins(f->tag, f->n_tag, tag);
    if (!on)
        return MN_CALL_MORE;
    const uint16_t n = on > 0 ? 0 : f->n_tag;
    memcpy(begun, f->tag, n);
    f->n_tag = 0;
    f->at = MN_CALL_TAG_VALUE;
    for (uint16_t i = 0; i < n && step == MN_CALL_MORE; i++)
        step = in_value(s, begun[i]);
    return step;
}

static mn_call_step in_json(mn_calls *s, char c) {
    const mn_call_step step = mn_call_args_push(s, c);
    if (step == MN_CALL_END)
        s->open = false;
    return step;
}

static mn_call_step push(mn_calls *s, char c) {
    switch (s->tags.at) {
    case MN_CALL_TAG_NAME:
        return call_tags_in_name(s, c);
    case MN_CALL_TAG_GAP:
        return call_tags_in_gap(s, c);
    case MN_CALL_TAG_KEY:
        return in_key(s, c);
    case MN_CALL_TAG_BEFORE:
        return before_value(s, c);
    case MN_CALL_TAG_JUNK:
        return in_junk(s);
    case MN_CALL_TAG_JSON:
        return in_json(s, c);
    default:
        return in_value(s, c);
    }
}

/* A tag that was begun and is not whole is dropped. A name behind a mark, and nothing else than the
 * next mark or the end, is a call of a tool without arguments. */
static bool finish(mn_calls *s, int next) {
    const bool named = s->tags.at == MN_CALL_TAG_GAP || s->tags.at == MN_CALL_TAG_NAME;
    const bool alone = named && s->marked && (next < 0 || next == '<') && mn_calls_is_tool(s);
    if (!s->given && !(alone && !s->family->words->function))
        return false;
    announce(s);
    if (s->tags.at == MN_CALL_TAG_VALUE || s->tags.at == MN_CALL_TAG_BEFORE)
        call_tags_end_value(s);
    if (s->tags.at == MN_CALL_TAG_JSON)
        mn_call_args_close(s);
    else if (s->open)
        call_tags_put_z(s, s->tags.has_args ? "}" : "{}");
    s->open = false;
    return true;
}

const mn_call_form mn_call_tags_form = {push, finish};
