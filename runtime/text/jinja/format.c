/* format.c -- values as text: str() and repr() as Python writes them, "..." % values and
 * "...".format(values). Of the two there is what templates use: strings, whole numbers and decimals
 * (s, r, d, i, f), with widths, precisions, fills and signs. Other bases, exponents, marks between
 * thousands, characters by number, and widths that are arguments themselves are refused by name.
 *
 * What a value's text is made of keeps its marks: digits and quotes are the template's, the bytes
 * of a string are whose they were. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- repr ------------------------------------------------------------------------------------ */

/* The fewest digits that read back as f > 0, as "d.ddde+xx"; false: c has failed. */
static bool shortest(mn_jctx *c, double f, char sci[40]) {
    for (int precision = 0; precision < 17; precision++) {
        double back;
        if (!mn_jcharge(c, MN_J_PER_NUMBER, 2)) // written and read
            return false;
        snprintf(sci, 40, "%.*e", precision, f);
        if (mn_parse_f64(mn_str_of(sci), &back) && back == f)
            break;
    }
    return true;
}

/* The digits of "d.ddde+xx", without zeros at the end, and the exponent; how many. */
static int split_scientific(const char *sci, char digits[20], int *exp) {
    int n = 0;
    for (; *sci && *sci != 'e'; sci++)
        if (*sci != '.' && n < 19)
            digits[n++] = *sci;
    *exp = *sci ? atoi(sci + 1) : 0;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
    return n;
}

/* In Python's layout: 1e+16 and 1e-05 with exponents, between them without. */
static bool float_repr(mn_jctx *c, double f, char out[40]) {
    const char *sign = f < 0 || (f == 0 && signbit(f)) ? "-" : "";
    char sci[40];
    char digits[20];
    int exp;
    if (isnan(f) || isinf(f)) {
        snprintf(out, 40, "%s%s", sign, isnan(f) ? "nan" : "inf");
        return true;
    }
    if (!shortest(c, fabs(f), sci))
        return false;
    const int n = split_scientific(sci, digits, &exp);
    const int zeros = exp + 1 - n;
    const char *rest = digits + 1;
    if (exp < -4 || exp >= 16)
        snprintf(out, 40, "%s%c%s%se%+03d", sign, digits[0], n > 1 ? "." : "", rest, exp);
    else if (exp < 0)
        snprintf(out, 40, "%s0.%.*s%s", sign, -exp - 1, "0000", digits);
    else if (zeros >= 0)
        snprintf(out, 40, "%s%s%.*s.0", sign, digits, zeros, "0000000000000000");
    else
        snprintf(out, 40, "%s%.*s.%s", sign, exp + 1, digits, rest + exp);
    return true;
}

/* Printable characters stand for themselves, bytes that are not UTF-8, too. */
static bool repr_char(mn_jctx *c, mn_jbuf *b, uint32_t u, char quote, uint8_t mark) {
    static const char from[] = "\n\r\t\\";
    static const char to[] = "nrt\\";
    const char *known = u && u < 128 ? strchr(from, (int)u) : NULL;
    const bool printable = u >= MN_J_BAD_BYTE || mn_jcode_print(u);
    char esc[16];
    if (u == (uint32_t)quote)
        snprintf(esc, sizeof esc, "\\%c", quote);
    else if (known)
        snprintf(esc, sizeof esc, "\\%c", to[known - from]);
    else if (printable)
        return mn_jbuf_code(c, b, u, mark);
    else if (u < 0x100)
        snprintf(esc, sizeof esc, "\\x%02x", u);
    else
        snprintf(esc, sizeof esc, u < 0x10000 ? "\\u%04x" : "\\U%08x", u);
    return mn_jcharge(c, MN_J_PER_ITEM, 4) && mn_jbuf_puts(c, b, esc, mark);
}

/* Single quotes, unless there are only such in the text. */
static bool repr_str(mn_jctx *c, mn_jbuf *b, mn_jstr s) {
    const bool one = s.len && memchr(s.ptr, '\'', s.len);
    const bool two = s.len && memchr(s.ptr, '"', s.len);
    const char quote[2] = {one && !two ? '"' : '\'', 0};
    if (!mn_jcharge(c, MN_J_PER_BYTE, 2 * s.len) ||
        !mn_jcharge(c, MN_J_PER_CHAR, 2 * s.len)) // decoded, then looked up
        return false;
    if (!mn_jbuf_lit(c, b, quote))
        return false;
    for (size_t at = 0; at < s.len;) {
        uint32_t u;
        const uint8_t mark = mn_jstr_mark(s, at);
        at += mn_jchar(s, at, &u);
        if (!repr_char(c, b, u, quote[0], mark))
            return false;
    }
    return mn_jbuf_lit(c, b, quote);
}

/* Items with commas between them. */
static bool repr_items(mn_jctx *c, mn_jbuf *b, const mn_jlist *l, const char *open,
                       const char *close) {
    if (!mn_jbuf_lit(c, b, open))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        if (i && !mn_jbuf_lit(c, b, ", "))
            return false;
        if (!mn_jput_repr(c, b, l->items[i]))
            return false;
    }
    return mn_jbuf_lit(c, b, close);
}

/* {key: value}, in the order of insertion. */
static bool repr_dict(mn_jctx *c, mn_jbuf *b, const mn_jdict *d) {
    if (!mn_jbuf_lit(c, b, "{"))
        return false;
    for (size_t i = 0; i < d->n; i++) {
        if (i && !mn_jbuf_lit(c, b, ", "))
            return false;
        if (!mn_jput_repr(c, b, d->items[i].key) || !mn_jbuf_lit(c, b, ": ") ||
            !mn_jput_repr(c, b, d->items[i].value))
            return false;
    }
    return mn_jbuf_lit(c, b, "}");
}

static bool repr_range(mn_jctx *c, mn_jbuf *b, const int64_t r[3]) {
    char text[100];
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)r[0], (long long)r[1]);
    if (r[2] != 1)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %lld", (long long)r[2]);
    return mn_jbuf_bytes(c, b, text, (size_t)n, 0) && mn_jbuf_lit(c, b, ")");
}

/* before, what, after: of the template */
static bool put_named(mn_jctx *c, mn_jbuf *b, const char *before, mn_str what, const char *after) {
    return mn_jbuf_lit(c, b, before) && mn_jbuf_bytes(c, b, what.ptr, what.len, 0) &&
           mn_jbuf_lit(c, b, after);
}

/* Lists, dicts and what has no literal form: <type>. */
static bool repr_container(mn_jctx *c, mn_jbuf *b, mn_jval v) {
    switch (v.type) {
    case MN_J_LIST:
        return repr_items(c, b, v.u.l, "[", "]");
    case MN_J_TUPLE:
        return repr_items(c, b, v.u.l, "(", v.u.l->n == 1 ? ",)" : ")");
    case MN_J_VIEW:
        return mn_jbuf_lit(c, b, v.u.l->name) && repr_items(c, b, v.u.l, "([", "])");
    case MN_J_RANGE:
        return repr_range(c, b, v.u.l->range);
    case MN_J_DICT:
        return repr_dict(c, b, v.u.d);
    case MN_J_NAMESPACE:
        return mn_jbuf_lit(c, b, "<Namespace ") && repr_dict(c, b, v.u.d) && mn_jbuf_lit(c, b, ">");
    case MN_J_MACRO:
        return put_named(c, b, "<Macro '", v.u.macro->node->name, "'>");
    default:
        return put_named(c, b, "<", mn_str_of(mn_jtype_name(v)), ">");
    }
}

static bool is_watched(mn_jval v) {
    return (v.type == MN_J_NONE && v.u.b) || (v.type == MN_J_DICT && v.u.d->watched);
}

/* Numbers charge for their digits, containers for what is in them. */
bool mn_jput_repr(mn_jctx *c, mn_jbuf *b, mn_jval v) {
    char text[40];
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    if (c->printed && is_watched(v))
        *c->printed = true;
    switch (v.type) {
    case MN_J_STR:
        return repr_str(c, b, *v.u.s);
    case MN_J_MISSING:
    case MN_J_UNDEF:
        return mn_jbuf_lit(c, b, "Undefined");
    case MN_J_NONE:
        return mn_jbuf_lit(c, b, "None");
    case MN_J_BOOL:
        return mn_jbuf_lit(c, b, v.u.b ? "True" : "False");
    case MN_J_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.u.i);
        return mn_jcharge(c, MN_J_PER_ITEM, 3) && mn_jbuf_lit(c, b, text);
    case MN_J_FLOAT:
        return float_repr(c, v.u.f, text) && mn_jbuf_lit(c, b, text);
    default:
        break;
    }
    if (!mn_jenter(c))
        return false;
    const bool ok = repr_container(c, b, v);
    mn_jleave(c);
    return ok;
}

/* Strings as they are, undefined as nothing. */
bool mn_jput(mn_jctx *c, mn_jbuf *b, mn_jval v) {
    if (v.type == MN_J_UNDEF)
        return true;
    return v.type == MN_J_STR ? mn_jbuf_put(c, b, *v.u.s) : mn_jput_repr(c, b, v);
}

/* A string is itself; other values are written once. */
bool mn_jstr_of(mn_jctx *c, mn_jval v, mn_jstr *out) {
    mn_jbuf b = {0};
    if (v.type != MN_J_STR && !mn_jput(c, &b, v))
        return false;
    *out = v.type == MN_J_STR ? *v.u.s : mn_jbuf_str(&b);
    return true;
}

/* ---- one conversion -------------------------------------------------------------------------- */

/* What stands between % or {: and the type. align: < > ^ or 0; sign: + - space or 0; fill: one
 * character; precision: -1 = none. */
typedef struct {
    char align, sign, type, fill[5];
    bool zero;
    int64_t width, precision;
} spec;

/* The first of the characters stops at or behind at; s.len = none. */
static size_t until(mn_jstr s, size_t at, const char *stops) {
    while (at < s.len && !(s.ptr[at] && strchr(stops, s.ptr[at])))
        at++;
    return at;
}

/* One of these characters at *at? */
static char format_accept(mn_jstr f, size_t *at, const char *set) {
    const char ch = *at < f.len ? f.ptr[*at] : 0;
    if (!ch || !strchr(set, ch))
        return 0;
    ++*at;
    return ch;
}

/* Widths and precisions are at most 10000, so that a format cannot ask for gigabytes. */
static bool read_number(mn_jctx *c, mn_jstr f, size_t *at, int64_t *out) {
    *out = 0;
    for (;;) {
        const char digit = format_accept(f, at, "0123456789");
        if (!digit)
            return true;
        *out = *out * 10 + (digit - '0');
        if (*out > 10000)
            return mn_jfail(c, "number in a format is too large");
    }
}

/* align: where the spec has none. */
static bool put_fill(mn_jctx *c, mn_jbuf *b, const spec *s, int64_t n) {
    bool ok = true;
    while (ok && n-- > 0)
        ok = mn_jbuf_lit(c, b, s->fill);
    return ok;
}

/* align: where the spec has none. */
static bool put_padded(mn_jctx *c, mn_jbuf *b, const spec *s, mn_jstr text, char align) {
    const int64_t n = (int64_t)mn_jchars(c, text);
    const int64_t pad = s->width > n ? s->width - n : 0; // at most 10000
    int64_t left = 0;
    if (s->align)
        align = s->align;
    if (align == '>')
        left = pad;
    else if (align == '^')
        left = pad / 2;
    if (!put_fill(c, b, s, left) || !mn_jbuf_put(c, b, text))
        return false;
    return put_fill(c, b, s, pad - left) && c->status == MN_OK;
}

static bool format_put_text(mn_jctx *c, mn_jbuf *b, const spec *s, mn_jstr text, char align) {
    size_t end = text.len;
    if (s->precision >= 0)
        end = mn_joffset(c, text, (size_t)s->precision);
    return put_padded(c, b, s, mn_jstr_slice(text, 0, end), align);
}

/* repr() in a field. */
static bool put_repr_text(mn_jctx *c, mn_jbuf *b, const spec *s, mn_jval v, char align) {
    mn_jbuf text = {0};
    return mn_jput_repr(c, &text, v) && format_put_text(c, b, s, mn_jbuf_str(&text), align);
}

/* Sign and digits; a decimal has 6 behind the point where s does not say. */
static bool number_text(mn_jctx *c, const spec *s, mn_jval v, char *out, size_t size) {
    const bool real = v.type == MN_J_FLOAT;
    const double f = mn_j_as_float(v);
    const char plus[] = {s->sign == '-' ? (char)0 : s->sign, 0};
    if (s->type == 'f') {
        const int places = s->precision < 0 ? 6 : (int)MN_MIN(s->precision, 300);
        const bool negative = signbit(f) && !isnan(f);
        snprintf(out, size, "%s%.*f", negative ? "-" : plus, places, fabs(f));
        return true;
    }
    if (real && !(fabs(f) < 9e18))
        return mn_jfail(c, "integer does not fit in 64 bits");
    const int64_t i = real ? (int64_t)f : mn_j_as_int(v);
    snprintf(out, size, "%s%lld", i < 0 ? "" : plus, (long long)i);
    return true;
}

/* A zero in front of the width fills between sign and digits. */
static bool format_put_number(mn_jctx *c, mn_jbuf *b, const spec *s, mn_jval v) {
    char text[700] = ""; // a double has up to 309 digits before the point, and 300 are behind it
    if (!mn_jcharge(c, MN_J_PER_NUMBER, 6))
        return false;
    if (!number_text(c, s, v, text, sizeof text))
        return false;
    const mn_jstr all = mn_jstr_z(text);
    const int64_t len = (int64_t)all.len;
    const size_t sign = strspn(text, "+- ");
    if (!s->zero || s->align == '<' || s->width <= len)
        return put_padded(c, b, s, all, '>');
    if (!mn_jbuf_put(c, b, mn_jstr_slice(all, 0, sign)))
        return false;
    if (!mn_jbuf_fill(c, b, '0', s->width - len))
        return false;
    return mn_jbuf_lit(c, b, text + sign);
}

/* ---- % --------------------------------------------------------------------------------------- */

typedef struct {
    mn_jval args;
    size_t next;
    bool used_mapping;
} percent_args;

/* The next of a tuple, or the one value. */
static bool next_arg(mn_jctx *c, percent_args *a, mn_jval *out) {
    const bool tuple = a->args.type == MN_J_TUPLE;
    const mn_jval *args = tuple ? a->args.u.l->items : &a->args;
    const size_t n = tuple ? a->args.u.l->n : 1;
    if (a->next >= n)
        return mn_jfail(c, "not enough arguments for format string");
    *out = args[a->next++];
    return true;
}

/* %(key)s; *at is behind the bracket that opens */
static bool mapped_arg(mn_jctx *c, mn_jstr f, size_t *at, percent_args *a, mn_jval *out) {
    const size_t end = until(f, *at, ")");
    if (end == f.len || a->args.type != MN_J_DICT)
        return mn_jfail(c, "format requires a mapping");
    const mn_str key = {f.ptr + *at, end - *at};
    if (!mn_jcharge(c, MN_J_PER_BYTE, key.len))
        return false;
    const mn_jval *v = mn_jdict_name(c, a->args.u.d, key);
    if (!v)
        return mn_jfail(c, "format: no key '%.*s'", MN_STR_ARG(key));
    *out = *v;
    *at = end + 1;
    a->used_mapping = true;
    return true;
}

/* One % conversion, by its type. */
static bool put_conversion(mn_jctx *c, mn_jbuf *b, const spec *s, mn_jval v) {
    mn_jstr str;
    switch (s->type) {
    case 'r':
        return put_repr_text(c, b, s, v, '>');
    case 's':
        return mn_jstr_of(c, v, &str) && format_put_text(c, b, s, str, '>');
    case 'd':
    case 'i':
    case 'f':
        if (!mn_j_is_number(v))
            return mn_jwrong_type(c, "a value to format", v, "a number");
        return format_put_number(c, b, s, v);
    default:
        return mn_jfail(c, "unsupported format character '%c'", s->type ? s->type : '?');
    }
}

/* *at is behind the % */
static bool percent_one(mn_jctx *c, mn_jbuf *b, mn_jstr f, size_t *at, percent_args *a) {
    spec s = {.precision = -1, .fill = " "};
    mn_jval v = mn_j_of(MN_J_MISSING);
    if (format_accept(f, at, "(") && !mapped_arg(c, f, at, a, &v))
        return false;
    for (char ch = format_accept(f, at, "0- +"); ch; ch = format_accept(f, at, "0- +")) {
        s.zero |= ch == '0';
        if (ch == '-')
            s.align = '<';
        if (ch == '+' || (ch == ' ' && !s.sign))
            s.sign = ch;
    }
    if (!read_number(c, f, at, &s.width))
        return false;
    if (format_accept(f, at, ".") && !read_number(c, f, at, &s.precision))
        return false;
    if (*at >= f.len)
        return mn_jfail(c, "incomplete format");
    s.type = f.ptr[(*at)++];
    if (s.type == '%')
        return mn_jbuf_lit(c, b, "%");
    if (v.type == MN_J_MISSING && !next_arg(c, a, &v))
        return false;
    return put_conversion(c, b, &s, v);
}

/* Values that no conversion has used are an error; a mapping or list may be left over. */
static bool all_used(const percent_args *a) {
    const mn_jtype type = a->args.type;
    if (a->used_mapping)
        return true;
    if (type == MN_J_TUPLE)
        return a->next >= a->args.u.l->n;
    return a->next || type == MN_J_DICT || type == MN_J_LIST || type == MN_J_UNDEF;
}

/* "..." % values: text between conversions is copied. */
bool mn_jpercent(mn_jctx *c, mn_jstr f, mn_jval args, mn_jval *out) {
    mn_jbuf b = {0};
    percent_args a = {.args = args};
    for (size_t at = 0; at < f.len;) {
        const char *p = memchr(f.ptr + at, '%', f.len - at);
        const size_t to = p ? (size_t)(p - f.ptr) : f.len;
        if (!mn_jcharge(c, MN_J_PER_ITEM, 1) || !mn_jbuf_put(c, &b, mn_jstr_slice(f, at, to)))
            return false;
        at = to + 1;
        if (p && !percent_one(c, &b, f, &at, &a))
            return false;
    }
    if (!all_used(&a))
        return mn_jfail(c, "not all arguments converted during string formatting");
    return mn_jbuf_value(c, &b, out);
}

/* ---- {} -------------------------------------------------------------------------------------- */

/* [[fill]align][sign][0][width][.precision][type] */
static bool read_spec(mn_jctx *c, mn_jstr f, spec *s) {
    size_t at = 0;
    uint32_t u;
    *s = (spec){.precision = -1, .fill = " "};
    const size_t n = f.len ? mn_jchar(f, 0, &u) : 0;
    size_t behind = n;
    const char filled = n ? format_accept(f, &behind, "<>^") : 0;
    if (filled) {
        memcpy(s->fill, f.ptr, n);
        s->fill[n] = 0;
        at = behind;
    }
    s->align = filled ? filled : format_accept(f, &at, "<>^");
    s->sign = format_accept(f, &at, "+- ");
    s->zero = format_accept(f, &at, "0") && !s->align;
    if (!read_number(c, f, &at, &s->width))
        return false;
    if (format_accept(f, &at, ".") && !read_number(c, f, &at, &s->precision))
        return false;
    if (at < f.len)
        s->type = f.ptr[at++];
    return at == f.len || mn_jfail(c, "invalid format specifier '%.*s'", MN_STR_ARG(f));
}

/* conversion: what stands behind !, 0 = nothing */
static bool format_put_field(mn_jctx *c, mn_jbuf *b, mn_jval v, char conversion,
                             mn_jstr spec_text) {
    const bool number = mn_j_is_number(v);
    const bool real = v.type == MN_J_FLOAT;
    spec s;
    mn_jstr str;
    if (!read_spec(c, spec_text, &s))
        return false;
    if (conversion == 'r')
        return put_repr_text(c, b, &s, v, '<');
    if (conversion && conversion != 's')
        return mn_jfail(c, "unknown conversion '%c'", conversion);
    if (!conversion && spec_text.len && v.type != MN_J_STR && !number)
        return mn_jfail(c, "a format specification does not fit '%s'", mn_jtype_name(v));
    const bool as_str = real && !s.type && s.precision < 0;
    if (conversion || !number || !spec_text.len || as_str) {
        if (s.type && s.type != 's')
            return mn_jfail(c, "format code '%c' does not fit '%s'", s.type, mn_jtype_name(v));
        return mn_jstr_of(c, v, &str) && format_put_text(c, b, &s, str, number ? '>' : '<');
    }
    if (!s.type)
        s.type = real ? 'g' : 'd';
    if (s.type != 'f' && (real || s.type != 'd'))
        return mn_jfail(c, "unknown format code '%c'", s.type);
    return format_put_number(c, b, &s, v);
}

/* The argument that a field's name means. auto_next: the number of the next field without one; -1 =
 * fields have numbers. */
static bool field_arg(mn_jctx *c, mn_str head, const mn_jargs *args, int64_t *auto_next,
                      mn_jval *out) {
    int64_t index = -1;
    const bool numbered = head.len && mn_parse_i64(head, &index);
    const bool unnamed = !head.len;
    if ((numbered && *auto_next > 0) || (unnamed && *auto_next < 0))
        return mn_jfail(c, "fields with numbers and fields without in one format");
    if (numbered)
        *auto_next = -1;
    if (unnamed)
        index = (*auto_next)++;
    if (index >= 0 && (uint64_t)index < args->n_pos) {
        *out = args->pos[index];
        return true;
    }
    for (size_t i = 0; index < 0 && i < args->n_kw; i++)
        if (mn_jsame(c, mn_jstr_bytes(args->kw[i].key.u.s), head)) {
            *out = args->kw[i].value;
            return true;
        }
    return mn_jfail(c, "format: no argument '%.*s'", MN_STR_ARG(head));
}

/* A name, a number or nothing, with .attribute and [key] behind it. */
static bool field_value(mn_jctx *c, mn_jstr name, const mn_jargs *args, int64_t *auto_next,
                        mn_jval *out) {
    size_t at = until(name, 0, ".[");
    if (!field_arg(c, (mn_str){name.ptr, at}, args, auto_next, out))
        return false;
    while (at < name.len) {
        const bool dot = name.ptr[at] == '.';
        const size_t from = at + 1;
        const size_t to = until(name, from, dot ? ".[" : "]");
        const mn_str piece = {name.ptr + from, to - from};
        const mn_jval v = *out;
        mn_jval key;
        int64_t index;
        if (!dot && mn_parse_i64(piece, &index))
            key = mn_j_int(index);
        else if (!mn_j_string(c, mn_jstr_slice(name, from, to), &key))
            return false;
        if (!(dot ? mn_jattr(c, v, piece, out) : mn_jitem(c, v, key, out)))
            return false;
        at = dot ? to : to + 1;
    }
    return true;
}

/* field: what stands between the braces */
static bool format_put_one(mn_jctx *c, mn_jbuf *b, mn_jstr field, const mn_jargs *args,
                           int64_t *auto_next) {
    mn_jstr spec_text = mn_jstr_z("");
    mn_jval v;
    char conversion = 0;
    const size_t colon = until(field, 0, ":");
    if (colon < field.len) {
        spec_text = mn_jstr_slice(field, colon + 1, field.len);
        field = mn_jstr_slice(field, 0, colon);
    }
    if (field.len >= 2 && field.ptr[field.len - 2] == '!') {
        conversion = field.ptr[field.len - 1];
        field.len -= 2;
    }
    return field_value(c, field, args, auto_next, &v) &&
           format_put_field(c, b, v, conversion, spec_text);
}

/* A brace at *at: one that is written twice, or a field. */
static bool put_brace(mn_jctx *c, mn_jbuf *b, mn_jstr f, size_t *at, const mn_jargs *args,
                      int64_t *auto_next) {
    const size_t from = *at + 1;
    const char brace = f.ptr[*at];
    if (from < f.len && f.ptr[from] == brace) {
        *at = from + 1;
        return mn_jbuf_put(c, b, mn_jstr_slice(f, from, from + 1));
    }
    const size_t end = until(f, from, "{}");
    if (brace == '}' || end == f.len)
        return mn_jfail(c, "single '%c' in a format string", brace);
    if (f.ptr[end] == '{')
        return mn_jfail(c, "a field inside of another one's format");
    *at = end + 1;
    if (!mn_jcharge(c, MN_J_PER_ITEM, end - from + 1))
        return false;
    return format_put_one(c, b, mn_jstr_slice(f, from, end), args, auto_next);
}

/* "...".format(values): text between fields is copied. */
bool mn_jformat(mn_jctx *c, mn_jstr f, const mn_jargs *args, mn_jval *out) {
    mn_jbuf b = {0};
    int64_t auto_next = 0;
    for (size_t at = 0; at < f.len;) {
        const size_t to = until(f, at, "{}");
        if (!mn_jcharge(c, MN_J_PER_CHAR, 4 + to - at) ||
            !mn_jbuf_put(c, &b, mn_jstr_slice(f, at, to)))
            return false;
        at = to;
        if (at < f.len && !put_brace(c, &b, f, &at, args, &auto_next))
            return false;
    }
    return mn_jbuf_value(c, &b, out);
}
