/* json.c -- tojson as Transformers defines it (json.dumps, no HTML escapes), and JSON data as
 * values. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include "text/json/scan.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool ascii, sort, pretty;
    mn_jstr indent, item, key; /* one level; separators */
    uint32_t level;
} writer;

static bool put_dump(mn_jctx *c, mn_jbuf *b, writer *w, mn_jval v);

/* One character of a string: JSON's escapes, and \u where ASCII was asked for. */
static bool put_char(mn_jctx *c, mn_jbuf *b, const writer *w, uint32_t u, uint8_t mark) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    char esc[16];
    const char *known = u && u < 128 ? strchr(from, (int)u) : NULL;
    if (known)
        snprintf(esc, sizeof esc, "\\%c", to[known - from]);
    else if (u < 0x20 || (w->ascii && u > 0x7E && u < 0x10000))
        snprintf(esc, sizeof esc, "\\u%04x", u);
    else if (w->ascii && u >= 0x10000 && u < 0x110000)
        snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xD800 + ((u - 0x10000) >> 10),
                 0xDC00 + (u & 0x3FF));
    else
        return mn_jbuf_code(c, b, u, mark);
    return mn_jcharge(c, MN_J_PER_ITEM, 4) && mn_jbuf_puts(c, b, esc, mark);
}

/* Bytes that no escape is needed for, so that runs of them are copied at once. */
static bool goes_as_it_is(char ch) {
    return ch >= 0x20 && ch < 0x7F && ch != '"' && ch != '\\';
}

static bool put_string(mn_jctx *c, mn_jbuf *b, const writer *w, mn_jstr s) {
    uint32_t u;
    if (!mn_jbuf_puts(c, b, "\"", 0) || !mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return false;
    for (size_t at = 0, n; at < s.len; at += n) {
        for (n = 0; at + n < s.len && goes_as_it_is(s.ptr[at + n]);)
            n++;
        if (n && !mn_jbuf_put(c, b, mn_jstr_slice(s, at, at + n)))
            return false;
        if (n)
            continue;
        n = mn_jchar(s, at, &u);
        if (!mn_jcharge(c, MN_J_PER_CHAR, 1) || !put_char(c, b, w, u, mn_jstr_mark(s, at)))
            return false;
    }
    return mn_jbuf_puts(c, b, "\"", 0);
}

/* With indent: a new line and its indentation. */
static bool put_newline(mn_jctx *c, mn_jbuf *b, const writer *w) {
    if (!w->pretty)
        return true;
    if (!mn_jbuf_puts(c, b, "\n", 0))
        return false;
    for (uint32_t i = 0; i < w->level; i++)
        if (!mn_jbuf_put(c, b, w->indent))
            return false;
    return true;
}

static bool put_list(mn_jctx *c, mn_jbuf *b, writer *w, const mn_jlist *l) {
    if (!l->n)
        return mn_jbuf_puts(c, b, "[]", 0);
    w->level++;
    for (size_t i = 0; i < l->n; i++)
        if (!(i ? mn_jbuf_put(c, b, w->item) : mn_jbuf_puts(c, b, "[", 0)) ||
            !put_newline(c, b, w) || !put_dump(c, b, w, l->items[i]))
            return false;
    w->level--;
    return put_newline(c, b, w) && mn_jbuf_puts(c, b, "]", 0);
}

/* Numbers, true, false and none are written as strings, as in Python. */
static bool put_key(mn_jctx *c, mn_jbuf *b, writer *w, mn_jval key) {
    if (key.type == MN_J_STR)
        return put_string(c, b, w, *key.u.s);
    if (!mn_j_is_number(key) && key.type != MN_J_NONE)
        return mn_jfail(c, "tojson: keys must be strings or numbers, not %s", mn_jtype_name(key));
    return mn_jbuf_puts(c, b, "\"", 0) && put_dump(c, b, w, key) && mn_jbuf_puts(c, b, "\"", 0);
}

/* d's items in the order of their keys. */
static mn_jpair *by_key(mn_jctx *c, const mn_jdict *d) {
    mn_jpair *a = mn_jalloc(c, d->n, sizeof *a);
    if (!a)
        return NULL;
    memcpy(a, d->items, d->n * sizeof *a);
    return mn_jsort(c, a, d->n, false) ? a : NULL;
}

static bool put_dict(mn_jctx *c, mn_jbuf *b, writer *w, const mn_jdict *d) {
    if (!d->n)
        return mn_jbuf_puts(c, b, "{}", 0);
    const mn_jpair *pair = w->sort ? by_key(c, d) : d->items;
    if (!pair)
        return false;
    w->level++;
    for (size_t i = 0; i < d->n; i++) {
        if (!(i ? mn_jbuf_put(c, b, w->item) : mn_jbuf_puts(c, b, "{", 0)))
            return false;
        if (!put_newline(c, b, w) || !put_key(c, b, w, pair[i].key) || !mn_jbuf_put(c, b, w->key) ||
            !put_dump(c, b, w, pair[i].value))
            return false;
    }
    w->level--;
    return put_newline(c, b, w) && mn_jbuf_puts(c, b, "}", 0);
}

static bool put_dump(mn_jctx *c, mn_jbuf *b, writer *w, mn_jval v) {
    switch (v.type) {
    case MN_J_NONE:
        return mn_jbuf_puts(c, b, "null", 0);
    case MN_J_BOOL:
        return mn_jbuf_puts(c, b, v.u.b ? "true" : "false", 0);
    case MN_J_INT:
        return mn_jput_repr(c, b, v);
    case MN_J_FLOAT:
        if (isnan(v.u.f) || isinf(v.u.f))
            return mn_jbuf_puts(c, b,
                                isnan(v.u.f) ? "NaN"
                                : v.u.f < 0  ? "-Infinity"
                                             : "Infinity",
                                0);
        return mn_jput_repr(c, b, v);
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
    bool ok = v.type == MN_J_DICT ? put_dict(c, b, w, v.u.d) : put_list(c, b, w, v.u.l);
    mn_jleave(c);
    return ok;
}

/* A number of spaces, or a string. */
static bool set_indent(mn_jctx *c, writer *w, mn_jval indent) {
    mn_jbuf b = {0};
    if (indent.type == MN_J_MISSING || indent.type == MN_J_NONE)
        return true;
    w->pretty = true;
    w->item.len = 1; // "," alone at the end of a line
    if (indent.type == MN_J_STR)
        return w->indent = *indent.u.s, true;
    int64_t n;
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
    return set_indent(c, &w, in->arg[1]) && set_separators(c, &w, in->arg[2]) &&
           put_dump(c, &b, &w, in->self) && mn_jbuf_value(c, &b, out);
}

/* ---- data in --------------------------------------------------------------------------------- */

static bool from_text(mn_jctx *c, mn_scan *s, uint8_t mark, mn_jval *out);

/* Memory that ran out inside the scan is no error of the text. */
static bool not_json(mn_jctx *c, const char *what, const mn_scan *s, mn_str whole) {
    if (s->unescaped[0].failed)
        return c->status = mn_fail_memory(c->err, whole.len), false;
    return mn_jfail(c, "%s: not valid JSON at byte %zu", what, (size_t)(s->at - whole.ptr));
}

/* Without escapes the bytes are those of the JSON text, which outlives the rendering. */
static bool string_from(mn_jctx *c, mn_scan *from, uint8_t mark, mn_jval *out) {
    mn_str text;
    if (!mn_scan_string(from, 0, &text) || !mn_jcharge(c, MN_J_PER_BYTE, text.len))
        return false;
    if (text.len && text.ptr == from->unescaped[0].ptr) {
        char *copy = mn_jalloc(c, (size_t)text.len, 1);
        if (!copy)
            return false;
        memcpy(copy, text.ptr, (size_t)text.len);
        text.ptr = copy;
    }
    const mn_jstr s = {text.len ? text.ptr : "", NULL, (size_t)text.len, mark};
    return mn_j_string(c, s, out);
}

/* 1 is an integer and 1.0 is not, as in Python's json. */
static bool number_from(mn_jctx *c, mn_scan *s, mn_jval *out) {
    mn_str text;
    int64_t whole = 0;
    double real = 0;
    const char *at = s->at;
    if (!mn_scan_digits(s, &text))
        return false;
    bool is_whole = !memchr(text.ptr, '.', text.len) && !memchr(text.ptr, 'e', text.len) &&
                    !memchr(text.ptr, 'E', text.len);
    if (is_whole && text.ptr[0] != '+' && mn_parse_i64(text, &whole))
        return *out = mn_j_int(whole), true;
    if (is_whole && text.len > 18 && mn_parse_f64(text, &real))
        return mn_jfail(c, "the integer %.*s has more than 64 bits", MN_STR_ARG(text));
    if (text.ptr[0] != '+' && mn_parse_f64(text, &real))
        return *out = mn_j_float(real), true;
    s->at = at;
    return false;
}

/* Behind the bracket. */
static bool list_from(mn_jctx *c, mn_scan *s, uint8_t mark, mn_jval *out) {
    mn_jlist *l = mn_jlist_new(c, 0);
    mn_jval v;
    if (!l)
        return false;
    *out = mn_j_listval(MN_J_LIST, l);
    if (mn_scan_char(s, ']'))
        return true;
    do
        if (!from_text(c, s, mark, &v) || !mn_jlist_add(c, l, v))
            return false;
    while (mn_scan_char(s, ','));
    return mn_scan_char(s, ']');
}

static bool trusts(const char *const *trusted, mn_str name) {
    for (; trusted && *trusted; trusted++)
        if (mn_str_is(name, *trusted))
            return true;
    return false;
}

/* trusted: names whose values are template text, at this level. */
static bool dict_from(mn_jctx *c, mn_scan *s, uint8_t mark, const char *const *trusted,
                      mn_jdict *d) {
    if (mn_scan_char(s, '}'))
        return true;
    do {
        mn_jval key, v;
        if (!string_from(c, s, mark, &key) || !mn_scan_char(s, ':'))
            return false;
        uint8_t inner = trusts(trusted, mn_jstr_bytes(key.u.s)) ? 0 : mark;
        if (!from_text(c, s, inner, &v) || !mn_jdict_set(c, d, key, v))
            return false;
    } while (mn_scan_char(s, ','));
    return mn_scan_char(s, '}');
}

static bool from_text(mn_jctx *c, mn_scan *s, uint8_t mark, mn_jval *out) {
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    if (mn_scan_word(s, "null"))
        return *out = mn_j_of(MN_J_NONE), true;
    if (mn_scan_word(s, "true"))
        return *out = mn_j_bool(true), true;
    if (mn_scan_word(s, "false"))
        return *out = mn_j_bool(false), true;
    bool ok = false;
    if (!mn_jenter(c))
        return false;
    if (mn_scan_char(s, '['))
        ok = list_from(c, s, mark, out);
    else if (mn_scan_char(s, '{')) {
        mn_jdict *d = mn_jdict_new(c);
        ok = d && dict_from(c, s, mark, NULL, d);
        if (ok)
            *out = mn_j_dictval(d);
    } else
        ok =
            s->at < s->end && *s->at == '"' ? string_from(c, s, mark, out) : number_from(c, s, out);
    mn_jleave(c);
    return ok;
}

static bool is_utf8(mn_jctx *c, const char *what, mn_str json) {
    size_t valid = mn_utf8_check(json.ptr, (size_t)json.len);
    return valid == json.len || mn_jfail(c, "%s: not valid UTF-8 at byte %zu", what, valid);
}

/* Into vars, which is the scope of the template; all but trusted is the user's. */
bool mn_jvars_from_json(mn_jctx *c, mn_str json, const char *const *trusted, mn_jdict *vars) {
    static const char what[] = "the variables";
    if (!is_utf8(c, what, json))
        return false;
    mn_scan s = mn_scan_of(json);
    bool ok = mn_scan_char(&s, '{');
    if (!ok)
        mn_jfail(c, "%s must be a JSON object", what);
    else if (!(ok = dict_from(c, &s, 1, trusted, vars) && !mn_scan_more(&s)) && c->status == MN_OK)
        not_json(c, what, &s, json);
    mn_scan_free(&s);
    return ok;
}

bool mn_j_from_json(mn_jctx *c, const char *what, mn_str json, mn_jval *out) {
    if (!is_utf8(c, what, json))
        return false;
    mn_scan s = mn_scan_of(json);
    bool ok = from_text(c, &s, 1, out) && !mn_scan_more(&s);
    if (!ok && c->status == MN_OK)
        not_json(c, what, &s, json);
    mn_scan_free(&s);
    return ok;
}
