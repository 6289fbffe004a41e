/* tojson.c -- tojson as Transformers defines it (json.dumps, no HTML escapes), and JSON data as
 * values. Text that is written keeps its marks: brackets and quotes are the template's, what stands
 * in strings is whose it was. Data that is read is the user's but for the names that are trusted;
 * it is scanned where it stands, so that 1.0 stays a float and large data costs no tree. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include "text/json/scan.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How to write: pretty: on lines of their own, indent per level; item, key: the separators. */
typedef struct {
    bool ascii, sort, pretty;
    mn_jstr indent, item, key;
    uint32_t level;
} writer;

static bool put_dump(mn_jctx *c, mn_jbuf *b, writer *w, mn_jval v);

/* One character of a string: JSON's escapes, and \u where ASCII was asked for. */
static bool tojson_put_char(mn_jctx *c, mn_jbuf *b, const writer *w, uint32_t u, uint8_t mark) {
    const uint32_t beyond = u - 0x10000; // UTF-16's two halves
    char esc[16];
    if (mn_json_escape(u, esc))
        return mn_jcharge(c, MN_J_PER_ITEM, 4) && mn_jbuf_puts(c, b, esc, mark);
    if (u >= 0x20 && (u < 0x7F || !w->ascii || u >= 0x110000))
        return mn_jbuf_code(c, b, u, mark);
    if (u < 0x10000)
        snprintf(esc, sizeof esc, "\\u%04x", u);
    else
        snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xD800 + (beyond >> 10),
                 0xDC00 + (beyond & 0x3FF));
    return mn_jcharge(c, MN_J_PER_ITEM, 4) && mn_jbuf_puts(c, b, esc, mark);
}

/* Bytes that no escape is needed for, so that runs of them are copied at once. */
static bool goes_as_it_is(char ch) {
    return ch >= 0x20 && ch < 0x7F && ch != '"' && ch != '\\';
}

/* How many bytes from `at` on go as they are. */
static size_t tojson_plain_length(mn_jstr s, size_t at) {
    size_t n = 0;
    while (at + n < s.len && goes_as_it_is(s.ptr[at + n]))
        n++;
    return n;
}

static bool put_string(mn_jctx *c, mn_jbuf *b, const writer *w, mn_jstr s) {
    if (!mn_jbuf_lit(c, b, "\"") || !mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return false;
    for (size_t at = 0; at < s.len;) {
        const size_t n = tojson_plain_length(s, at);
        const uint8_t mark = mn_jstr_mark(s, at);
        uint32_t u;
        if (n && !mn_jbuf_put(c, b, mn_jstr_slice(s, at, at + n)))
            return false;
        at += n;
        if (n)
            continue;
        at += mn_jchar(s, at, &u);
        if (!mn_jcharge(c, MN_J_PER_CHAR, 1) || !tojson_put_char(c, b, w, u, mark))
            return false;
    }
    return mn_jbuf_lit(c, b, "\"");
}

/* With indent: a new line and its indentation. */
static bool put_newline(mn_jctx *c, mn_jbuf *b, const writer *w) {
    if (!w->pretty)
        return true;
    if (!mn_jbuf_lit(c, b, "\n"))
        return false;
    for (uint32_t i = 0; i < w->level; i++)
        if (!mn_jbuf_put(c, b, w->indent))
            return false;
    return true;
}

/* What stands in front of an item: the bracket, or the separator of items; then a new line. */
static bool tojson_put_before(mn_jctx *c, mn_jbuf *b, const writer *w, size_t i, const char *open) {
    const mn_jstr what = i ? w->item : mn_jstr_z(open);
    return mn_jbuf_put(c, b, what) && put_newline(c, b, w);
}

/* Also of a tuple. */
static bool put_list(mn_jctx *c, mn_jbuf *b, writer *w, const mn_jlist *l) {
    if (!l->n)
        return mn_jbuf_lit(c, b, "[]");
    w->level++;
    for (size_t i = 0; i < l->n; i++) {
        if (!tojson_put_before(c, b, w, i, "["))
            return false;
        if (!put_dump(c, b, w, l->items[i]))
            return false;
    }
    w->level--;
    return put_newline(c, b, w) && mn_jbuf_lit(c, b, "]");
}

/* Numbers, true, false and none are written as strings, as in Python. */
static bool put_key(mn_jctx *c, mn_jbuf *b, writer *w, mn_jval key) {
    if (key.type == MN_J_STR)
        return put_string(c, b, w, *key.u.s);
    if (!mn_j_is_number(key) && key.type != MN_J_NONE)
        return mn_jwrong_type(c, "tojson: a key", key, "a string or a number");
    if (!mn_jbuf_lit(c, b, "\""))
        return false;
    return put_dump(c, b, w, key) && mn_jbuf_lit(c, b, "\"");
}

/* d's items in the order of their keys. */
static mn_jpair *by_key(mn_jctx *c, const mn_jdict *d) {
    mn_jpair *a = mn_jalloc(c, d->n, sizeof *a);
    if (!a)
        return NULL;
    memcpy(a, d->items, d->n * sizeof *a);
    return mn_jsort(c, a, d->n, false) ? a : NULL;
}

/* In the order of its keys if that was asked for. */
static bool put_dict(mn_jctx *c, mn_jbuf *b, writer *w, const mn_jdict *d) {
    if (!d->n)
        return mn_jbuf_lit(c, b, "{}");
    const mn_jpair *pair = w->sort ? by_key(c, d) : d->items;
    if (!pair)
        return false;
    w->level++;
    for (size_t i = 0; i < d->n; i++) {
        if (!tojson_put_before(c, b, w, i, "{"))
            return false;
        if (!put_key(c, b, w, pair[i].key) || !mn_jbuf_put(c, b, w->key))
            return false;
        if (!put_dump(c, b, w, pair[i].value))
            return false;
    }
    w->level--;
    return put_newline(c, b, w) && mn_jbuf_lit(c, b, "}");
}

static bool tojson_put_float(mn_jctx *c, mn_jbuf *b, mn_jval v) {
    if (isnan(v.u.f))
        return mn_jbuf_lit(c, b, "NaN");
    if (isinf(v.u.f))
        return mn_jbuf_lit(c, b, v.u.f < 0 ? "-Infinity" : "Infinity");
    return mn_jput_repr(c, b, v);
}

/* Any value, one level deeper if it is a container. */
static bool put_dump(mn_jctx *c, mn_jbuf *b, writer *w, mn_jval v) {
    switch (v.type) {
    case MN_J_NONE:
        return mn_jbuf_lit(c, b, "null");
    case MN_J_BOOL:
        return mn_jbuf_lit(c, b, v.u.b ? "true" : "false");
    case MN_J_INT:
        return mn_jput_repr(c, b, v);
    case MN_J_FLOAT:
        return tojson_put_float(c, b, v);
    case MN_J_STR:
        return put_string(c, b, w, *v.u.s);
    case MN_J_LIST:
    case MN_J_TUPLE:
    case MN_J_DICT:
        break;
    default:
        return mn_jfail(c, "tojson: object of type %s has no JSON form", mn_jtype_name(v));
    }
    if (!mn_jenter(c))
        return false;
    const bool ok = v.type == MN_J_DICT ? put_dict(c, b, w, v.u.d) : put_list(c, b, w, v.u.l);
    mn_jleave(c);
    return ok;
}

/* A number of spaces, or a string. */
static bool set_indent(mn_jctx *c, writer *w, mn_jval indent) {
    mn_jbuf b = {0};
    int64_t n;
    if (indent.type == MN_J_MISSING || indent.type == MN_J_NONE)
        return true;
    w->pretty = true;
    w->item.len = 1; // "," alone at the end of a line
    if (indent.type == MN_J_STR) {
        w->indent = *indent.u.s;
        return true;
    }
    if (!mn_jarg_int(c, "indent", indent, 0, &n) || !mn_jbuf_fill(c, &b, ' ', n))
        return false;
    w->indent = mn_jbuf_str(&b);
    return true;
}

/* The separators of items and of keys, from a pair. */
static bool set_separators(mn_jctx *c, writer *w, mn_jval pair) {
    mn_jlist *l;
    if (pair.type == MN_J_MISSING || pair.type == MN_J_NONE)
        return true;
    if (!mn_jiterate(c, pair, &l))
        return false;
    if (l->n != 2)
        return mn_jfail(c, "tojson: separators must be a pair");
    return mn_jarg_str(c, "separators", l->items[0], &w->item) &&
           mn_jarg_str(c, "separators", l->items[1], &w->key);
}

/* arg: ensure_ascii indent separators sort_keys */
bool mn_jtojson(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jbuf b = {0};
    writer w = {.ascii = mn_jtruth(in->arg[0]),
                .sort = mn_jtruth(in->arg[3]),
                .indent = mn_jstr_z(""),
                .item = mn_jstr_z(", "),
                .key = mn_jstr_z(": ")};
    if (!set_indent(c, &w, in->arg[1]))
        return false;
    if (!set_separators(c, &w, in->arg[2]))
        return false;
    return put_dump(c, &b, &w, in->self) && mn_jbuf_value(c, &b, out);
}

/* ---- data in --------------------------------------------------------------------------------- */

static bool from_text(mn_jctx *c, mn_scan *s, uint8_t mark, mn_jval *out);

/* Memory that ran out inside the scan is no error of the text. */
static bool tojson_not_json(mn_jctx *c, const char *what, const mn_scan *s, mn_str whole) {
    const size_t at = (size_t)(s->at - whole.ptr);
    if (!s->unescaped[0].failed)
        return mn_jfail(c, "%s: not valid JSON at byte %zu", what, at);
    c->status = mn_fail_memory(c->err, whole.len);
    return false;
}

/* Without escapes the bytes are those of the JSON text, which outlives the rendering. */
static bool string_from(mn_jctx *c, mn_scan *from, uint8_t mark, mn_jval *out) {
    mn_str text;
    if (!mn_scan_string(from, 0, &text) || !mn_jcharge(c, MN_J_PER_BYTE, text.len))
        return false;
    const size_t n = (size_t)text.len;
    if (n && text.ptr == from->unescaped[0].ptr) {
        char *copy = mn_jalloc(c, n, 1);
        if (!copy)
            return false;
        memcpy(copy, text.ptr, n);
        text.ptr = copy;
    }
    return mn_j_string(c, (mn_jstr){n ? text.ptr : "", NULL, n, mark}, out);
}

/* Neither a point nor an exponent. */
static bool tojson_is_whole(mn_str number) {
    for (uint64_t i = 0; i < number.len; i++)
        if (number.ptr[i] && strchr(".eE", number.ptr[i]))
            return false;
    return true;
}

/* 1 is an integer and 1.0 is not, as in Python's json. */
static bool number_from(mn_jctx *c, mn_scan *s, mn_jval *out) {
    const char *at = s->at;
    mn_str text;
    int64_t whole;
    double real;
    if (!mn_scan_digits(s, &text))
        return false;
    if (tojson_is_whole(text) && mn_parse_i64(text, &whole)) {
        *out = mn_j_int(whole);
        return true;
    }
    const bool is_real = mn_parse_f64(text, &real);
    if (is_real && tojson_is_whole(text) && text.len > 18)
        return mn_jfail(c, "the integer %.*s has more than 64 bits", MN_STR_ARG(text));
    if (!is_real) {
        s->at = at;
        return false;
    }
    *out = mn_j_float(real);
    return true;
}

/* Behind the bracket. */
static bool list_from(mn_jctx *c, mn_scan *s, uint8_t mark, mn_jval *out) {
    mn_jlist *l = mn_jlist_new(c, 0);
    bool more = true;
    if (!l)
        return false;
    *out = mn_j_listval(MN_J_LIST, l);
    if (mn_scan_char(s, ']'))
        return true;
    while (more) {
        mn_jval v;
        if (!from_text(c, s, mark, &v) || !mn_jlist_add(c, l, v))
            return false;
        more = mn_scan_char(s, ',');
    }
    return mn_scan_char(s, ']');
}

static bool trusts(const char *const *trusted, mn_str name) {
    for (; trusted && *trusted; trusted++)
        if (mn_str_is(name, *trusted))
            return true;
    return false;
}

/* Behind the brace. trusted: names whose values are template text, at this level. */
static bool dict_from(mn_jctx *c, mn_scan *s, uint8_t mark, const char *const *trusted,
                      mn_jdict *d) {
    bool more = true;
    if (mn_scan_char(s, '}'))
        return true;
    while (more) {
        mn_jval key;
        mn_jval v;
        if (!string_from(c, s, mark, &key) || !mn_scan_char(s, ':'))
            return false;
        const bool trust = trusts(trusted, mn_jstr_bytes(key.u.s));
        if (!from_text(c, s, trust ? 0 : mark, &v) || !mn_jdict_set(c, d, key, v))
            return false;
        more = mn_scan_char(s, ',');
    }
    return mn_scan_char(s, '}');
}

/* null, true, false. */
static bool word_from(mn_scan *s, mn_jval *out) {
    if (mn_scan_word(s, "null"))
        *out = mn_j_of(MN_J_NONE);
    else if (mn_scan_word(s, "true"))
        *out = mn_j_bool(true);
    else if (mn_scan_word(s, "false"))
        *out = mn_j_bool(false);
    else
        return false;
    return true;
}

/* Any other value; white space in front of it has been passed over. */
static bool other_from(mn_jctx *c, mn_scan *s, uint8_t mark, mn_jval *out) {
    if (mn_scan_char(s, '['))
        return list_from(c, s, mark, out);
    if (mn_scan_char(s, '{')) {
        mn_jdict *d = mn_jdict_new(c);
        *out = mn_j_dictval(d);
        return d && dict_from(c, s, mark, NULL, d);
    }
    if (s->at < s->end && *s->at == '"')
        return string_from(c, s, mark, out);
    return number_from(c, s, out);
}

/* false: no JSON, or c has failed */
static bool from_text(mn_jctx *c, mn_scan *s, uint8_t mark, mn_jval *out) {
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    if (word_from(s, out))
        return true;
    if (!mn_jenter(c))
        return false;
    const bool ok = other_from(c, s, mark, out);
    mn_jleave(c);
    return ok;
}

static bool tojson_is_utf8(mn_jctx *c, const char *what, mn_str json) {
    const size_t valid = mn_utf8_check(json.ptr, (size_t)json.len);
    if (valid == json.len)
        return true;
    return mn_jfail(c, "%s: not valid UTF-8 at byte %zu", what, valid);
}

/* Into vars, which is the scope of the template; all but trusted is the user's. */
bool mn_jvars_from_json(mn_jctx *c, mn_str json, const char *const *trusted, mn_jdict *vars) {
    static const char what[] = "the variables";
    if (!tojson_is_utf8(c, what, json))
        return false;
    mn_scan s = mn_scan_of(json);
    if (!mn_scan_char(&s, '{')) {
        mn_scan_free(&s);
        return mn_jfail(c, "%s must be a JSON object", what);
    }
    const bool ok = dict_from(c, &s, 1, trusted, vars) && !mn_scan_more(&s);
    if (!ok && c->status == MN_OK)
        tojson_not_json(c, what, &s, json);
    mn_scan_free(&s);
    return ok;
}

/* Any value, all of it the user's. */
bool mn_j_from_json(mn_jctx *c, const char *what, mn_str json, mn_jval *out) {
    if (!tojson_is_utf8(c, what, json))
        return false;
    mn_scan s = mn_scan_of(json);
    const bool ok = from_text(c, &s, 1, out) && !mn_scan_more(&s);
    if (!ok && c->status == MN_OK)
        tojson_not_json(c, what, &s, json);
    mn_scan_free(&s);
    return ok;
}
