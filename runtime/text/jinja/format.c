/* format.c -- "%..." % values and "{}".format(): the conversions that templates use. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char align, sign, type, group, fill[5]; /* group: ',' or '_' between thousands */
    bool alt, zero;
    int64_t width, precision; /* -1: none */
} spec;

static bool read_number(mn_jctx *c, mn_jstr f, size_t *at, int64_t *out) {
    *out = 0;
    for (; *at < f.len && f.ptr[*at] >= '0' && f.ptr[*at] <= '9'; ++*at)
        if ((*out = *out * 10 + (f.ptr[*at] - '0')) > 10000)
            return mn_jfail(c, "number in a format is too large");
    return true;
}

static void group_thousands(char *text, size_t size, char by) {
    size_t start = strspn(text, "-+ "), digits = strspn(text + start, "0123456789"),
           len = strlen(text);
    for (size_t i = digits; i > 3; i -= 3) {
        if (len + 2 > size)
            return;
        memmove(text + start + i - 2, text + start + i - 3, len - (start + i - 3) + 1);
        text[start + i - 3] = by;
        len++;
    }
}

static void binary_digits(uint64_t u, char *out) {
    char tmp[65];
    int n = 0;
    do
        tmp[n++] = (char)('0' + (u & 1));
    while (u >>= 1);
    while (n)
        *out++ = tmp[--n];
    *out = 0;
}

static bool number_text(mn_jctx *c, const spec *s, mn_jval v, char *out, size_t size) {
    char digits[700]; // as many as a double has before the point and 300 behind it
    bool negative = false;
    if (!mn_jcharge(c, MN_J_PER_NUMBER, 6))
        return false;
    if (strchr("dioxXbu", s->type)) {
        if (v.type == MN_J_FLOAT && (isnan(v.u.f) || fabs(v.u.f) >= 9e18))
            return mn_jfail(c, "integer does not fit in 64 bits");
        int64_t i = v.type == MN_J_FLOAT ? (int64_t)v.u.f : mn_j_as_int(v);
        uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
        negative = i < 0;
        char plain[70];
        if (s->type == 'b')
            binary_digits(u, plain);
        else
            snprintf(plain, sizeof plain,
                     s->type == 'x'   ? "%llx"
                     : s->type == 'X' ? "%llX"
                     : s->type == 'o' ? "%llo"
                                      : "%llu",
                     (unsigned long long)u);
        const char *prefix = !s->alt          ? ""
                             : s->type == 'x' ? "0x"
                             : s->type == 'X' ? "0X"
                             : s->type == 'o' ? "0o"
                             : s->type == 'b' ? "0b"
                                              : "";
        snprintf(digits, sizeof digits, "%s%s", prefix, plain);
    } else {
        double f = mn_j_as_float(v);
        negative = signbit(f) && !isnan(f);
        int precision = s->precision < 0 ? 6 : (int)MN_MIN(s->precision, 300);
        if (s->type == '%')
            f *= 100;
        char type = s->type == '%' ? 'f' : s->type, fmt[8] = {'%', '#', '.', '*', type, 0},
             plain[8] = {'%', '.', '*', type, 0};
        int n = snprintf(digits, sizeof digits, s->alt ? fmt : plain, precision, fabs(f));
        if (n < 0 || (size_t)n + 2 > sizeof digits)
            return mn_jfail(c, "formatted number too long");
        if (s->type == '%')
            strcat(digits, "%");
    }
    snprintf(out, size, "%s%s",
             negative         ? "-"
             : s->sign == '+' ? "+"
             : s->sign == ' ' ? " "
                              : "",
             digits);
    if (s->group)
        group_thousands(out, size, s->group);
    return true;
}

static bool put_number(mn_jctx *c, mn_jbuf *b, const spec *s, mn_jval v) {
    char text[1000];
    if (!number_text(c, s, v, text, sizeof text))
        return false;
    size_t sign = strspn(text, "-+ "), len = strlen(text);
    if (!s->zero || s->align == '<' || s->width <= (int64_t)len)
        return mn_jpad(c, b, (mn_jstr){text, NULL, len, 0, false}, s->width,
                       s->align ? s->align : '>',
                       (mn_jstr){s->fill, NULL, strlen(s->fill), 0, false});
    return mn_jbuf_bytes(c, b, text, sign, 0) && mn_jbuf_fill(c, b, '0', s->width - (int64_t)len) &&
           mn_jbuf_puts(c, b, text + sign, 0);
}

static bool put_text(mn_jctx *c, mn_jbuf *b, const spec *s, mn_jstr text, char align) {
    if (s->precision >= 0)
        text = mn_jstr_slice(text, 0, mn_joffset(c, text, (size_t)s->precision));
    return mn_jpad(c, b, text, s->width, s->align ? s->align : align,
                   (mn_jstr){s->fill, NULL, strlen(s->fill), 0, false});
}

/* repr() with escapes for all that is not ASCII. */
static bool put_ascii(mn_jctx *c, mn_jbuf *b, mn_jval v) {
    mn_jbuf text = {0};
    char esc[16];
    uint32_t u;
    if (!mn_jput_repr(c, &text, v))
        return false;
    mn_jstr s = mn_jbuf_str(&text);
    if (!mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return false;
    for (size_t at = 0, n; at < s.len; at += n) {
        n = mn_jchar(s, at, &u);
        if (u < 0x80) {
            if (!mn_jbuf_put(c, b, mn_jstr_slice(s, at, at + n)))
                return false;
            continue;
        }
        snprintf(esc, sizeof esc, u < 0x100 ? "\\x%02x" : u < 0x10000 ? "\\u%04x" : "\\U%08x", u);
        if (!mn_jcharge(c, MN_J_PER_ITEM, 4) || !mn_jbuf_puts(c, b, esc, mn_jstr_mark(s, at)))
            return false;
    }
    return true;
}

/* ---- % --------------------------------------------------------------------------------------- */

typedef struct {
    mn_jval args;
    size_t next;
    bool used_mapping;
} percent_args;

static bool next_arg(mn_jctx *c, percent_args *a, mn_jval *out) {
    size_t n = a->args.type == MN_J_TUPLE ? a->args.u.l->n : 1;
    if (a->next >= n)
        return mn_jfail(c, "not enough arguments for format string");
    *out = a->args.type == MN_J_TUPLE ? a->args.u.l->items[a->next] : a->args;
    a->next++;
    return true;
}

static bool mapped_arg(mn_jctx *c, mn_jstr f, size_t *at, percent_args *a, mn_jval *out) {
    const char *end = memchr(f.ptr + *at, ')', f.len - *at);
    if (!end || a->args.type != MN_J_DICT)
        return mn_jfail(c, "format requires a mapping");
    mn_str key = {f.ptr + *at + 1, (uint64_t)(end - f.ptr) - *at - 1};
    if (!mn_jcharge(c, MN_J_PER_BYTE, key.len))
        return false;
    const mn_jval *v = mn_jdict_name(c, a->args.u.d, key);
    if (!v)
        return mn_jfail(c, "format: no key '%.*s'", MN_STR_ARG(key));
    *out = *v;
    *at = (size_t)(end - f.ptr) + 1;
    return a->used_mapping = true;
}

static bool put_conversion(mn_jctx *c, mn_jbuf *b, spec *s, mn_jval v) {
    mn_jbuf text = {0};
    if (s->type == 'r')
        return mn_jput_repr(c, &text, v) && put_text(c, b, s, mn_jbuf_str(&text), '>');
    if (s->type == 'a')
        return put_ascii(c, &text, v) && put_text(c, b, s, mn_jbuf_str(&text), '>');
    if (s->type == 's') {
        mn_jstr str;
        return mn_jstr_of(c, v, &str) && put_text(c, b, s, str, '>');
    }
    if (s->type == 'c') {
        if (v.type == MN_J_STR && mn_jchars(c, *v.u.s) == 1)
            return put_text(c, b, s, *v.u.s, '>');
        if (!mn_j_is_int(v) || mn_j_as_int(v) < 0 || mn_j_as_int(v) > 0x10FFFF)
            return mn_jfail(c, "%%c requires a character");
        return mn_jbuf_code(c, &text, (uint32_t)mn_j_as_int(v), 0) &&
               put_text(c, b, s, mn_jbuf_str(&text), '>');
    }
    if (!s->type || !strchr("diuoxXeEfFgG", s->type))
        return mn_jfail(c, "unsupported format character '%c'", s->type ? s->type : '?');
    if (!mn_j_is_number(v) || (v.type == MN_J_FLOAT && strchr("oxX", s->type)))
        return mn_jneed_defined(c, v) &&
               mn_jfail(c, "%%%c format: a number is required, not %s", s->type, mn_jtype_name(v));
    return put_number(c, b, s, v);
}

/* A number, or * for one of the arguments. */
static bool read_size(mn_jctx *c, mn_jstr f, size_t *at, percent_args *a, int64_t *out) {
    mn_jval v;
    if (*at >= f.len || f.ptr[*at] != '*')
        return read_number(c, f, at, out);
    ++*at;
    if (!next_arg(c, a, &v) || !mn_jarg_int(c, "a width given by *", v, 0, out))
        return false;
    return (*out > -10000 && *out < 10000) || mn_jfail(c, "number in a format is too large");
}

static bool percent_one(mn_jctx *c, mn_jbuf *b, mn_jstr f, size_t *at, percent_args *a) {
    spec s = {.width = 0, .precision = -1, .fill = " "};
    mn_jval v = mn_j_of(MN_J_MISSING);
    if (*at < f.len && f.ptr[*at] == '(' && !mapped_arg(c, f, at, a, &v))
        return false;
    for (; *at < f.len && strchr("#0- +", f.ptr[*at]) && f.ptr[*at]; ++*at) {
        char ch = f.ptr[*at];
        s.alt |= ch == '#';
        s.zero |= ch == '0';
        if (ch == '-')
            s.align = '<';
        if (ch == '+' || (ch == ' ' && !s.sign))
            s.sign = ch;
    }
    if (!read_size(c, f, at, a, &s.width))
        return false;
    if (s.width < 0)
        s.align = '<', s.width = -s.width;
    if (*at < f.len && f.ptr[*at] == '.' && (++*at, !read_size(c, f, at, a, &s.precision)))
        return false;
    while (*at < f.len && strchr("hlL", f.ptr[*at]) && f.ptr[*at])
        ++*at;
    if (*at >= f.len)
        return mn_jfail(c, "incomplete format");
    s.type = f.ptr[(*at)++];
    if (s.type == '%')
        return mn_jbuf_puts(c, b, "%", 0);
    if (v.type == MN_J_MISSING && !next_arg(c, a, &v))
        return false;
    return put_conversion(c, b, &s, v);
}

bool mn_jpercent(mn_jctx *c, mn_jstr f, mn_jval args, mn_jval *out) {
    mn_jbuf b = {0};
    percent_args a = {args, 0, false};
    for (size_t at = 0; at < f.len;) {
        const char *p = memchr(f.ptr + at, '%', f.len - at);
        size_t to = p ? (size_t)(p - f.ptr) : f.len;
        if (!mn_jcharge(c, MN_J_PER_ITEM, 1) || !mn_jbuf_put(c, &b, mn_jstr_slice(f, at, to)))
            return false;
        at = to + 1;
        if (p && !percent_one(c, &b, f, &at, &a))
            return false;
    }
    bool all = args.type == MN_J_TUPLE ? a.next >= args.u.l->n
                                       : a.next || args.type == MN_J_DICT ||
                                             args.type == MN_J_LIST || args.type == MN_J_UNDEF;
    if (!all && !a.used_mapping)
        return mn_jfail(c, "not all arguments converted during string formatting");
    return mn_jbuf_value(c, &b, out);
}

/* ---- {} -------------------------------------------------------------------------------------- */

static bool read_spec(mn_jctx *c, mn_jstr f, spec *s) {
    size_t at = 0;
    uint32_t u;
    *s = (spec){.precision = -1, .fill = " "};
    size_t n = f.len ? mn_jchar(f, 0, &u) : 0;
    if (n && n < f.len && f.ptr[n] && strchr("<>^", f.ptr[n])) {
        memcpy(s->fill, f.ptr, n);
        s->fill[n] = 0;
        s->align = f.ptr[n];
        at = n + 1;
    } else if (f.len && f.ptr[0] && strchr("<>^", f.ptr[0]))
        s->align = f.ptr[at++];
    if (at < f.len && f.ptr[at] && strchr("+- ", f.ptr[at]))
        s->sign = f.ptr[at++];
    if (at < f.len && f.ptr[at] == '#')
        s->alt = true, at++;
    if (at < f.len && f.ptr[at] == '0')
        s->zero = !s->align, at++;
    if (!read_number(c, f, &at, &s->width))
        return false;
    if (at < f.len && (f.ptr[at] == ',' || f.ptr[at] == '_'))
        s->group = f.ptr[at++];
    if (at < f.len && f.ptr[at] == '.' && (at++, !read_number(c, f, &at, &s->precision)))
        return false;
    if (at < f.len)
        s->type = f.ptr[at++];
    return at == f.len ||
           mn_jfail(c, "invalid format specifier '%.*s'", MN_STR_ARG(((mn_str){f.ptr, f.len})));
}

static bool put_field(mn_jctx *c, mn_jbuf *b, mn_jval v, char conversion, mn_jstr spec_text) {
    spec s;
    mn_jbuf text = {0};
    mn_jstr str;
    if (!read_spec(c, spec_text, &s))
        return false;
    if (conversion == 'r')
        return mn_jput_repr(c, &text, v) && put_text(c, b, &s, mn_jbuf_str(&text), '<');
    if (conversion == 'a')
        return put_ascii(c, &text, v) && put_text(c, b, &s, mn_jbuf_str(&text), '<');
    if (conversion && conversion != 's')
        return mn_jfail(c, "unknown conversion '%c'", conversion);
    if (!conversion && spec_text.len && v.type != MN_J_STR && !mn_j_is_number(v))
        return mn_jfail(c, "a format specification does not fit '%s'", mn_jtype_name(v));
    if (conversion || !mn_j_is_number(v) || !spec_text.len ||
        (v.type == MN_J_FLOAT && !s.type && s.precision < 0)) {
        if (s.type && s.type != 's')
            return mn_jfail(c, "format code '%c' does not fit '%s'", s.type, mn_jtype_name(v));
        return mn_jstr_of(c, v, &str) && put_text(c, b, &s, str, mn_j_is_number(v) ? '>' : '<');
    }
    if (!s.type || s.type == 'n')
        s.type = v.type == MN_J_FLOAT ? 'g' : 'd';
    if (s.type == 'c' && v.type != MN_J_FLOAT && !s.group && s.precision < 0)
        return put_conversion(c, b, &s, v);
    if (!strchr(v.type == MN_J_FLOAT ? "eEfFgG%" : "dboxXeEfFgG%", s.type))
        return mn_jfail(c, "unknown format code '%c'", s.type);
    return put_number(c, b, &s, v);
}

/* name, 0, "", with .attribute and [key] after it */
static bool field_value(mn_jctx *c, mn_jstr name, const mn_jargs *args, int64_t *auto_next,
                        mn_jval *out) {
    size_t len = 0;
    while (len < name.len && name.ptr[len] != '.' && name.ptr[len] != '[')
        len++;
    mn_str head = {name.ptr, len};
    int64_t index = -1;
    bool numbered = len && mn_parse_i64(head, &index);
    if (numbered ? *auto_next > 0 : !len && *auto_next < 0)
        return mn_jfail(c, "fields with numbers and fields without in one format");
    if (numbered)
        *auto_next = -1;
    else
        index = len ? -1 : (*auto_next)++;
    bool found = index >= 0 && (uint64_t)index < args->n_pos;
    if (found)
        *out = args->pos[index];
    for (size_t i = 0; !found && index < 0 && i < args->n_kw; i++)
        if ((found = mn_jsame(c, mn_jstr_bytes(args->kw[i].key.u.s), head)))
            *out = args->kw[i].value;
    if (!found)
        return mn_jfail(c, "format: no argument '%.*s'", MN_STR_ARG(head));
    while (len < name.len) {
        bool dot = name.ptr[len] == '.';
        size_t from = ++len;
        while (len < name.len &&
               (dot ? name.ptr[len] != '.' && name.ptr[len] != '[' : name.ptr[len] != ']'))
            len++;
        mn_jval key, v = *out;
        mn_str piece = {name.ptr + from, len - from};
        if (!dot && mn_parse_i64(piece, &index))
            key = mn_j_int(index);
        else if (!mn_j_string(c, mn_jstr_slice(name, from, len), &key))
            return false;
        if (!(dot ? mn_jattr(c, v, piece, out) : mn_jitem(c, v, key, out)))
            return false;
        if (!dot)
            len++;
    }
    return true;
}

/* Where the field that begins at `at` ends: its own brace, not one of a field within. */
static size_t field_end(mn_jstr f, size_t at) {
    size_t depth = 0;
    for (; at < f.len; at++) {
        depth += f.ptr[at] == '{';
        if (f.ptr[at] == '}' && !--depth)
            return at;
    }
    return SIZE_MAX;
}

/* auto_next: the number of the next field without one; -1 = fields have numbers. */
static bool format_into(mn_jctx *c, mn_jbuf *b, mn_jstr f, const mn_jargs *args, int64_t *auto_next,
                        int nested);

static bool put_one(mn_jctx *c, mn_jbuf *b, mn_jstr field, const mn_jargs *args, int64_t *auto_next,
                    int nested) {
    mn_jstr spec_text = {"", NULL, 0, 0, false};
    mn_jbuf spec_out = {0};
    mn_jval v;
    char conversion = 0;
    const char *colon = field.len ? memchr(field.ptr, ':', field.len) : NULL;
    if (colon) {
        spec_text = mn_jstr_slice(field, (size_t)(colon - field.ptr) + 1, field.len);
        field.len = (size_t)(colon - field.ptr);
    }
    if (field.len >= 2 && field.ptr[field.len - 2] == '!') {
        conversion = field.ptr[field.len - 1];
        field.len -= 2;
    }
    if (!field_value(c, field, args, auto_next, &v))
        return false;
    if (spec_text.len && memchr(spec_text.ptr, '{', spec_text.len)) {
        if (nested)
            return mn_jfail(c, "format fields are nested too deep");
        if (!format_into(c, &spec_out, spec_text, args, auto_next, 1))
            return false;
        spec_text = mn_jbuf_str(&spec_out);
    }
    return put_field(c, b, v, conversion, spec_text);
}

static bool format_into(mn_jctx *c, mn_jbuf *b, mn_jstr f, const mn_jargs *args, int64_t *auto_next,
                        int nested) {
    for (size_t at = 0; at < f.len;) {
        size_t to = at;
        while (to < f.len && f.ptr[to] != '{' && f.ptr[to] != '}')
            to++;
        if (!mn_jcharge(c, MN_J_PER_CHAR, 4 + to - at) ||
            !mn_jbuf_put(c, b, mn_jstr_slice(f, at, to)))
            return false;
        at = to;
        if (at >= f.len)
            break;
        if (at + 1 < f.len && f.ptr[at + 1] == f.ptr[at]) {
            if (!mn_jbuf_put(c, b, mn_jstr_slice(f, at, at + 1)))
                return false;
            at += 2;
            continue;
        }
        size_t end = f.ptr[at] == '{' ? field_end(f, at) : SIZE_MAX;
        if (end == SIZE_MAX)
            return mn_jfail(c, "single '%c' in a format string", f.ptr[at]);
        if (!mn_jcharge(c, MN_J_PER_ITEM, end - at) ||
            !put_one(c, b, mn_jstr_slice(f, at + 1, end), args, auto_next, nested))
            return false;
        at = end + 1;
    }
    return true;
}

bool mn_jformat(mn_jctx *c, mn_jstr f, const mn_jargs *args, mn_jval *out) {
    mn_jbuf b = {0};
    int64_t auto_next = 0;
    return format_into(c, &b, f, args, &auto_next, 0) && mn_jbuf_value(c, &b, out);
}
