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
 * number is. */
#include "text/chat/call_types.h"
#include "text/json/schema_types.h"
#include "text/chat/calls.h"
#include <string.h>

enum { MAYBE_MAX = 4096 };
static const char end_value_tag[] = "\n</parameter>";

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void put_z(mn_calls *s, const char *text) {
    mn_calls_put(s, text, strlen(text));
}

/* Characters of a JSON string, escaped. */
static void put_escaped(mn_calls *s, const char *text, size_t n) {
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        char code[7] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], 0};
        if (c == '\n')
            put_z(s, "\\n");
        else if (c == '"' || c == '\\')
            mn_calls_put(s, (char[]){'\\', text[i]}, 2);
        else if (c < 0x20)
            put_z(s, code);
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
static uint32_t type_of(char c) {
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

static bool is_allowed(const mn_call_tags *f, uint32_t type) {
    return type && (!f->types || f->types & type);
}

static bool may_begin_word(const mn_call_tags *f, char c) {
    for (size_t i = 0; i < MN_COUNT(words); i++)
        if (*words[i].python == c && f->types & words[i].type)
            return true;
    return false;
}

/* What is kept, as JSON; NULL = no word. */
static const char *word_of(const mn_call_tags *f) {
    for (size_t i = 0; i < MN_COUNT(words); i++)
        if (mn_str_is((mn_str){f->maybe.ptr, f->maybe.len}, words[i].python))
            return f->types & words[i].type ? words[i].json : NULL;
    return NULL;
}

/* What was kept of a value is the beginning of a string. */
static void begin_string(mn_calls *s) {
    mn_call_tags *f = &s->tags;
    f->kind = MN_CALL_STRING;
    put_z(s, "\"");
    put_escaped(s, f->maybe.ptr, f->maybe.len);
}

static void keep(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    mn_text_put(&f->maybe, &c, 1);
    s->out->failed |= f->maybe.failed;
    if (f->maybe.len < MAYBE_MAX)
        return;
    if (f->run.depth) {
        f->kind = MN_CALL_RAW_JSON;
        mn_calls_put(s, f->maybe.ptr, f->maybe.len);
    } else
        begin_string(s);
}

/* A byte of a value that is no part of the tag behind it. */
static mn_call_step value_byte(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    if (f->kind == MN_CALL_EMPTY) {
        if (c == '\n' && !f->trimmed) {
            f->trimmed = true;
            return MN_CALL_MORE;
        }
        f->run = (mn_json_run){0};
        f->maybe.len = 0;
        f->kind = may_begin_word(f, c) ? MN_CALL_MAYBE_WORD : MN_CALL_MAYBE_JSON;
        if (f->kind == MN_CALL_MAYBE_JSON && !is_allowed(f, type_of(c)))
            begin_string(s);
    }
    if (f->kind == MN_CALL_MAYBE_WORD) {
        keep(s, c);
        if (f->maybe.len > WORD_MAX)
            begin_string(s);
        return MN_CALL_MORE;
    }
    if (f->kind == MN_CALL_STRING) {
        put_escaped(s, &c, 1);
        return MN_CALL_MORE;
    }
    const bool json = mn_json_run_push(&f->run, c) != MN_JSON_BAD;
    if (f->kind == MN_CALL_RAW_JSON && !json)
        return MN_CALL_BAD;
    if (f->kind == MN_CALL_RAW_JSON)
        mn_calls_put(s, &c, 1);
    else if (json)
        keep(s, c);
    if (json)
        return MN_CALL_MORE;
    begin_string(s);
    put_escaped(s, &c, 1);
    return MN_CALL_MORE;
}

static mn_call_step end_value(mn_calls *s) {
    mn_call_tags *f = &s->tags;
    const bool whole = mn_json_run_whole(&f->run);
    if (f->kind == MN_CALL_RAW_JSON && !whole)
        return MN_CALL_BAD;
    f->at = MN_CALL_TAG_GAP;
    f->n_tag = 0;
    const char *word = f->kind == MN_CALL_MAYBE_WORD ? word_of(f) : NULL;
    if (f->kind == MN_CALL_EMPTY)
        put_z(s, "\"\"");
    else if (word)
        put_z(s, word);
    else if (f->kind == MN_CALL_MAYBE_JSON && whole)
        mn_calls_put(s, f->maybe.ptr, f->maybe.len);
    else if (f->kind == MN_CALL_MAYBE_JSON || f->kind == MN_CALL_MAYBE_WORD)
        begin_string(s);
    if (f->kind == MN_CALL_STRING)
        put_z(s, "\"");
    s->held.len = 0;
    return MN_CALL_MORE;
}

/* The tag at the end has its line break in front of it, or none. */
static bool on_end_tag(const char *text, size_t n, bool *whole) {
    const size_t len = sizeof end_value_tag - 1;
    const bool line = n <= len && !memcmp(text, end_value_tag, n);
    const bool bare = n < len && !memcmp(text, end_value_tag + 1, n);
    *whole = (line && n == len) || (bare && n == len - 1);
    return line || bare;
}

static mn_call_step in_value(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    bool whole = false;
    mn_call_step step = MN_CALL_MORE;
    f->tag[f->n_tag++] = c;
    while (step == MN_CALL_MORE && f->n_tag && !on_end_tag(f->tag, f->n_tag, &whole)) {
        step = value_byte(s, f->tag[0]);
        if (step == MN_CALL_BAD)
            break;
        f->n_tag--;
        memmove(f->tag, f->tag + 1, f->n_tag);
    }
    if (step == MN_CALL_MORE && whole)
        step = end_value(s);
    if (step == MN_CALL_BAD)
        mn_calls_again(s, f->tag, f->n_tag);
    return step;
}

/* ---- tags ------------------------------------------------------------------------------------ */
/* false: the tag is on the way to none of the two; *whole: which of them it is, 1 or 2 */
static bool on_tag(const mn_call_tags *f, const char *one, const char *other, int *whole) {
    const char *tags[] = {one, other};
    *whole = 0;
    for (int i = 0; i < 2 && tags[i]; i++) {
        const size_t len = strlen(tags[i]);
        if (f->n_tag > len || memcmp(tags[i], f->tag, f->n_tag) != 0)
            continue;
        *whole = f->n_tag == len ? i + 1 : 0;
        return true;
    }
    return false;
}

/* <function= */
static mn_call_step in_first_tag(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    int whole = 0;
    f->tag[f->n_tag++] = c;
    if (!on_tag(f, "<function=", NULL, &whole))
        return MN_CALL_BAD;
    if (whole)
        f->at = MN_CALL_TAG_NAME;
    return MN_CALL_MORE;
}

static mn_call_step in_name(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    if (c != '>') {
        const bool wrong = (unsigned char)c <= 0x20 || c == '<' || c == '"';
        return !wrong && mn_calls_name(s, c) ? MN_CALL_MORE : MN_CALL_BAD;
    }
    if (!s->n_name)
        return MN_CALL_BAD;
    mn_calls_begin(s);
    f->at = MN_CALL_TAG_GAP;
    f->n_tag = 0;
    return MN_CALL_MORE;
}

/* Between parameters. */
static mn_call_step in_gap(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    int whole = 0;
    if (is_space(c) && !f->n_tag)
        return MN_CALL_MORE;
    f->tag[f->n_tag++] = c;
    if (!on_tag(f, "<parameter=", "</function>", &whole))
        return MN_CALL_BAD;
    if (!whole)
        return MN_CALL_MORE;
    f->n_tag = 0;
    f->n_key = 0;
    f->at = MN_CALL_TAG_KEY;
    if (whole == 1)
        return MN_CALL_MORE;
    put_z(s, f->has_args ? "}" : "{}");
    return MN_CALL_END;
}

static mn_call_step in_key(mn_calls *s, char c) {
    mn_call_tags *f = &s->tags;
    if (c != '>') {
        if ((unsigned char)c < 0x20 || f->n_key == sizeof f->key)
            return MN_CALL_BAD;
        f->key[f->n_key++] = c;
        return MN_CALL_MORE;
    }
    put_z(s, f->has_args ? ", \"" : "{\"");
    put_escaped(s, f->key, f->n_key);
    put_z(s, "\": ");
    f->has_args = true;
    f->at = MN_CALL_TAG_VALUE;
    f->types = mn_call_types_of(s->tools, (mn_str){s->name, s->n_name}, (mn_str){f->key, f->n_key});
    f->kind = MN_CALL_EMPTY;
    f->trimmed = false;
    return MN_CALL_MORE;
}

mn_call_step mn_call_tags_push(mn_calls *s, char c) {
    switch (s->tags.at) {
    case MN_CALL_TAG:
        return in_first_tag(s, c);
    case MN_CALL_TAG_NAME:
        return in_name(s, c);
    case MN_CALL_TAG_GAP:
        return in_gap(s, c);
    case MN_CALL_TAG_KEY:
        return in_key(s, c);
    default:
        return in_value(s, c);
    }
}
