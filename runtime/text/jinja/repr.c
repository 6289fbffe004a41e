/* repr.c -- values as text, as Python's str() and repr() write them. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest decimal that reads back as f, in Python's layout: 1e+16 and 1e-05 with exponents,
 * between them without. */
static bool float_repr(mn_jctx *c, double f, char out[40]) {
    if (isnan(f) || isinf(f)) {
        strcpy(out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return true;
    }
    char sci[40], digits[20];
    int n = 0;
    for (int p = 0; p < 17; p++) {
        if (!mn_jcharge(c, MN_J_PER_NUMBER, 2)) // written and read
            return false;
        snprintf(sci, sizeof sci, "%.*e", p, f);
        double back;
        if (mn_parse_f64(mn_str_of(sci), &back) && back == f)
            break;
    }
    for (char *s = sci; *s && *s != 'e'; s++)
        if (*s >= '0' && *s <= '9' && n < 19)
            digits[n++] = *s;
    const char *mark = strchr(sci, 'e');
    int exp = mark ? atoi(mark + 1) : 0;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
    const char *sign = signbit(f) ? "-" : "";
    if (exp < -4 || exp >= 16)
        snprintf(out, 40, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                 exp < 0 ? '-' : '+', abs(exp));
    else if (exp < 0)
        snprintf(out, 40, "%s0.%.*s%s", sign, -exp - 1, "0000", digits);
    else if (n <= exp + 1)
        snprintf(out, 40, "%s%s%.*s.0", sign, digits, exp + 1 - n, "0000000000000000");
    else
        snprintf(out, 40, "%s%.*s.%s", sign, exp + 1, digits, digits + exp + 1);
    return true;
}

static bool repr_char(mn_jctx *c, mn_jbuf *b, uint32_t u, char quote, uint8_t mark) {
    char esc[16];
    if (u == (uint32_t)quote || u == '\\')
        snprintf(esc, sizeof esc, "\\%c", (char)u);
    else if (u == '\n' || u == '\r' || u == '\t')
        snprintf(esc, sizeof esc, "\\%c", u == '\n' ? 'n' : u == '\r' ? 'r' : 't');
    else if (u >= MN_J_BAD_BYTE || mn_jcode_print(u))
        return mn_jbuf_code(c, b, u, mark);
    else
        snprintf(esc, sizeof esc, u < 0x100 ? "\\x%02x" : u < 0x10000 ? "\\u%04x" : "\\U%08x", u);
    return mn_jcharge(c, MN_J_PER_ITEM, 4) && mn_jbuf_puts(c, b, esc, mark);
}

static bool repr_str(mn_jctx *c, mn_jbuf *b, mn_jstr s) {
    bool one = s.len && memchr(s.ptr, '\'', s.len), two = s.len && memchr(s.ptr, '"', s.len);
    if (!mn_jcharge(c, MN_J_PER_BYTE, 2 * s.len))
        return false;
    char quote[2] = {one && !two ? '"' : '\'', 0};
    if ((s.markup && !mn_jbuf_puts(c, b, "Markup(", 0)) || !mn_jbuf_puts(c, b, quote, 0))
        return false;
    uint32_t u;
    if (!mn_jcharge(c, MN_J_PER_CHAR, 2 * s.len)) // decoded, then looked up
        return false;
    for (size_t at = 0, n; at < s.len; at += n) {
        n = mn_jchar(s, at, &u);
        if (!repr_char(c, b, u, quote[0], mn_jstr_mark(s, at)))
            return false;
    }
    return mn_jbuf_puts(c, b, quote, 0) && (!s.markup || mn_jbuf_puts(c, b, ")", 0));
}

static bool repr_items(mn_jctx *c, mn_jbuf *b, const mn_jlist *l, const char *open,
                       const char *close) {
    if (!mn_jbuf_puts(c, b, open, 0))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if ((i && !mn_jbuf_puts(c, b, ", ", 0)) || !mn_jput_repr(c, b, l->items[i]))
            return false;
    return mn_jbuf_puts(c, b, close, 0);
}

static bool repr_dict(mn_jctx *c, mn_jbuf *b, const mn_jdict *d) {
    if (!mn_jbuf_puts(c, b, "{", 0))
        return false;
    for (size_t i = 0; i < d->n; i++)
        if ((i && !mn_jbuf_puts(c, b, ", ", 0)) || !mn_jput_repr(c, b, d->items[i].key) ||
            !mn_jbuf_puts(c, b, ": ", 0) || !mn_jput_repr(c, b, d->items[i].value))
            return false;
    return mn_jbuf_puts(c, b, "}", 0);
}

static bool repr_range(mn_jctx *c, mn_jbuf *b, const int64_t r[3]) {
    char text[100];
    if (r[2] == 1)
        snprintf(text, sizeof text, "range(%lld, %lld)", (long long)r[0], (long long)r[1]);
    else
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)r[0], (long long)r[1],
                 (long long)r[2]);
    return mn_jbuf_puts(c, b, text, 0);
}

static bool repr_macro(mn_jctx *c, mn_jbuf *b, mn_jval v) {
    mn_str of = v.u.macro->node->name;
    return mn_jbuf_puts(c, b, "<Macro '", 0) && mn_jbuf_bytes(c, b, of.ptr, of.len, 0) &&
           mn_jbuf_puts(c, b, "'>", 0);
}

static bool repr_container(mn_jctx *c, mn_jbuf *b, mn_jval v) {
    switch (v.type) {
    case MN_J_LIST:
        return repr_items(c, b, v.u.l, "[", "]");
    case MN_J_TUPLE:
        return repr_items(c, b, v.u.l, "(", v.u.l->n == 1 ? ",)" : ")");
    case MN_J_VIEW:
        return mn_jbuf_puts(c, b, v.u.l->name, 0) && repr_items(c, b, v.u.l, "([", "])");
    case MN_J_RANGE:
        return repr_range(c, b, v.u.l->range);
    case MN_J_DICT:
        return repr_dict(c, b, v.u.d);
    case MN_J_NAMESPACE:
        return mn_jbuf_puts(c, b, "<Namespace ", 0) && repr_dict(c, b, v.u.d) &&
               mn_jbuf_puts(c, b, ">", 0);
    case MN_J_MACRO:
        return repr_macro(c, b, v);
    default:
        return mn_jbuf_puts(c, b, "<", 0) && mn_jbuf_puts(c, b, mn_jtype_name(v), 0) &&
               mn_jbuf_puts(c, b, ">", 0);
    }
}

bool mn_jput_repr(mn_jctx *c, mn_jbuf *b, mn_jval v) {
    char text[40];
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    switch (v.type) {
    case MN_J_STR:
        return repr_str(c, b, *v.u.s);
    case MN_J_MISSING:
    case MN_J_UNDEF:
        return mn_jbuf_puts(c, b, "Undefined", 0);
    case MN_J_NONE:
        return mn_jbuf_puts(c, b, "None", 0);
    case MN_J_BOOL:
        return mn_jbuf_puts(c, b, v.u.b ? "True" : "False", 0);
    case MN_J_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.u.i);
        return mn_jcharge(c, MN_J_PER_ITEM, 3) && mn_jbuf_puts(c, b, text, 0);
    case MN_J_FLOAT:
        return float_repr(c, v.u.f, text) && mn_jbuf_puts(c, b, text, 0);
    default:
        break;
    }
    if (!mn_jenter(c))
        return false;
    bool ok = repr_container(c, b, v);
    mn_jleave(c);
    return ok;
}

bool mn_jput(mn_jctx *c, mn_jbuf *b, mn_jval v) {
    if (v.type == MN_J_STR)
        return mn_jbuf_put(c, b, *v.u.s);
    if (v.type == MN_J_UNDEF)
        return true;
    return mn_jput_repr(c, b, v);
}

bool mn_jstr_of(mn_jctx *c, mn_jval v, mn_jstr *out) {
    if (v.type == MN_J_STR) {
        *out = *v.u.s;
        return true;
    }
    mn_jbuf b = {0};
    if (!mn_jput(c, &b, v))
        return false;
    *out = mn_jbuf_str(&b);
    return true;
}
