/* filters.c -- filters on strings and numbers, as Jinja2 defines them; those on lists and dicts are
 * in filters_list.c. Filters that no chat template needs are absent (batch, escape, urlencode,
 * xmlattr and their like): a template that names one fails with that name. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool filter_give(mn_jval *out, mn_jval v) {
    *out = v;
    return true;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* how: a mn_jcase */
static bool f_case(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr s;
    return mn_jstr_of(c, in->self, &s) && mn_jcase_of(c, s, (mn_jcase)in->how, out);
}

/* Also "safe": output is never escaped here, so that nothing needs to be marked as safe. */
static bool f_string(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr s;
    return mn_jstr_of(c, in->self, &s) && mn_j_string(c, s, out);
}

/* As the method strip, but of any value's text. */
static bool f_trim(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jval text;
    if (!f_string(c, in, &text))
        return false;
    return mn_jmethod_call(c, "strip", text, in->arg, out);
}

/* As the method, but takes values that are not strings. */
static bool f_replace(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval limit = in->arg[2];
    mn_jstr s;
    mn_jstr old;
    mn_jstr with;
    int64_t count = -1;
    if (!mn_jstr_of(c, in->self, &s) || !mn_jstr_of(c, in->arg[0], &old))
        return false;
    if (!mn_jstr_of(c, in->arg[1], &with))
        return false;
    if (limit.type != MN_J_NONE && !mn_jarg_int(c, "count", limit, -1, &count))
        return false;
    return mn_jreplace(c, s, old, with, count, out);
}

/* With a true second argument also for what is false. */
static bool f_default(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const bool also_false = mn_jtruth(in->arg[1]);
    bool missing = in->self.type == MN_J_UNDEF;
    if (also_false)
        missing |= !mn_jtruth(in->self);
    if (!missing)
        return filter_give(out, in->self);
    if (in->arg[0].type == MN_J_MISSING)
        return mn_j_literal(c, "", out);
    return filter_give(out, in->arg[0]);
}

/* Characters of a string, items of everything else. */
static bool f_length(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    int64_t n;
    return mn_jlength(c, in->self, &n) && filter_give(out, mn_j_int(n));
}

/* "..."|format(values) is "..." % values */
static bool f_format(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jargs *all = in->all;
    mn_jstr s;
    if (!mn_jstr_of(c, in->self, &s))
        return false;
    if (all->n_pos && all->n_kw)
        return mn_jfail(c, "format: positional and keyword arguments at the same time");
    mn_jlist *l = mn_jlist_new(c, all->n_pos);
    mn_jdict *d = mn_jdict_new(c);
    if (!l || !d)
        return false;
    if (!mn_jlist_add_all(c, l, all->pos, all->n_pos))
        return false;
    if (!mn_jdict_set_all(c, d, all->kw, all->n_kw))
        return false;
    const mn_jval values = all->n_kw ? mn_j_dictval(d) : mn_j_listval(MN_J_TUPLE, l);
    return mn_jpercent(c, s, values, out);
}

/* What indent puts in front of a line: a string, or so many spaces. */
static bool indent_by(mn_jctx *c, mn_jval width, mn_jstr *by) {
    mn_jbuf spaces = {0};
    int64_t n;
    if (width.type == MN_J_STR) {
        *by = *width.u.s;
        return true;
    }
    if (!mn_jarg_int(c, "width", width, 4, &n) || !mn_jbuf_fill(c, &spaces, ' ', n))
        return false;
    *by = mn_jbuf_str(&spaces);
    return true;
}

/* first, blank: also the first line, also empty lines. */
static bool f_indent(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const bool first = mn_jtruth(in->arg[1]);
    const bool blank = mn_jtruth(in->arg[2]);
    mn_jstr s;
    mn_jstr by;
    mn_jbuf text = {0};
    mn_jbuf b = {0};
    mn_jval lines;
    if (!mn_jarg_str(c, "indent", in->self, &s) || !indent_by(c, in->arg[0], &by))
        return false;
    if (!mn_jbuf_put(c, &text, s) || !mn_jbuf_lit(c, &text, "\n") ||
        !mn_jsplitlines(c, mn_jbuf_str(&text), false, &lines))
        return false;
    for (size_t i = 0; i < lines.u.l->n; i++) {
        const mn_jstr line = *lines.u.l->items[i].u.s;
        const bool indented = i ? blank || line.len : first;
        if (i && !mn_jbuf_lit(c, &b, "\n"))
            return false;
        if (indented && !mn_jbuf_put(c, &b, by))
            return false;
        if (!mn_jbuf_put(c, &b, line))
            return false;
    }
    return mn_jbuf_value(c, &b, out);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The error of a filter that works on numbers alone. */
static bool need_number(mn_jctx *c, const char *filter, mn_jval v) {
    return mn_j_is_number(v) || mn_jwrong_type(c, filter, v, "a number");
}

static bool f_abs(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval v = in->self;
    if (!need_number(c, "abs", v))
        return false;
    if (v.type == MN_J_FLOAT)
        return filter_give(out, mn_j_float(fabs(v.u.f)));
    const int64_t i = mn_j_as_int(v);
    return i < 0 ? mn_jnegate(c, v, out) : filter_give(out, mn_j_int(i));
}

enum { NUMBER_MAX = 60 };

/* A number's text as Python's int() and float() take it: no spaces around, underscores between
 * digits. false: none, or c has failed. */
static bool clean_number(mn_jctx *c, mn_jstr s, char out[NUMBER_MAX + 1]) {
    size_t n = 0;
    s = mn_jstrip(c, s, NULL, 3);
    if (!mn_jcharge(c, MN_J_PER_NUMBER, 1) || !s.len || s.len > NUMBER_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        const bool inside = i && i + 1 < s.len;
        if (s.ptr[i] == '_' && !(inside && s.ptr[i - 1] != '_' && s.ptr[i + 1] != '_'))
            return false;
        if (s.ptr[i] != '_')
            out[n++] = s.ptr[i];
    }
    out[n] = 0;
    return true;
}

/* inf and nan in any case, as Python. */
static bool text_float(const char *text, double *f) {
    const bool minus = text[0] == '-';
    const char *number = text + (minus || text[0] == '+');
    if (!strcasecmp(number, "nan")) {
        *f = NAN;
        return true;
    }
    if (!strcasecmp(number, "inf") || !strcasecmp(number, "infinity")) {
        *f = minus ? -INFINITY : INFINITY;
        return true;
    }
    if (number[strspn(number, "0123456789.eE+-")])
        return false;
    return mn_parse_f64(mn_str_of(minus ? text : number), f);
}

/* The letter behind 0 that a base's numbers may begin with; 0 = none. */
static char base_letter(int64_t base) {
    if (base == 16)
        return 'x';
    if (base == 8)
        return 'o';
    return base == 2 ? 'b' : 0;
}

/* With the prefix of the base or without. */
static bool text_int(const char *text, int64_t base, int64_t *i) {
    const bool negative = text[0] == '-';
    const char *digits = text + (negative || text[0] == '+');
    const char letter = base_letter(base);
    char *end;
    if (strchr("-+ ", digits[0])) // or at the end
        return false;
    if (base == 10)
        return mn_parse_i64(mn_str_of(negative ? text : digits), i);
    if (letter && digits[0] == '0' && (digits[1] | 32) == letter)
        digits += 2;
    const unsigned long long u = strtoull(digits, &end, (int)base);
    if (end == digits || *end || u > INT64_MAX)
        return false;
    *i = negative ? -(int64_t)u : (int64_t)u;
    return true;
}

/* The number that a value is, as a float; false: it is none. */
static bool value_float(mn_jctx *c, mn_jval v, int64_t base, bool *whole, int64_t *i, double *f) {
    char text[NUMBER_MAX + 1];
    *whole = false;
    *f = v.type == MN_J_FLOAT ? v.u.f : NAN;
    if (v.type != MN_J_STR)
        return v.type == MN_J_FLOAT;
    if (!clean_number(c, *v.u.s, text))
        return false;
    *whole = text_int(text, base, i);
    return *whole || text_float(text, f);
}

/* Text that is no number, not even a float, gives the default. */
static bool f_int(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    int64_t base;
    int64_t i;
    double f;
    bool whole;
    if (!mn_jarg_int(c, "base", in->arg[1], 10, &base) || !mn_jneed_defined(c, in->self))
        return false;
    if (base < 2 || base > 36)
        base = 10;
    *out = in->arg[0].type == MN_J_MISSING ? mn_j_int(0) : in->arg[0];
    if (mn_j_is_int(in->self))
        return filter_give(out, mn_j_int(mn_j_as_int(in->self)));
    const bool number = value_float(c, in->self, base, &whole, &i, &f);
    if (whole)
        return filter_give(out, mn_j_int(i));
    if (!number || isnan(f))
        return c->status == MN_OK;
    if (fabs(f) >= 9.2e18)
        return mn_jfail(c, "int: the number does not fit in 64 bits");
    return filter_give(out, mn_j_int((int64_t)f));
}

/* The same for floats. */
static bool f_float(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval v = in->self;
    char text[NUMBER_MAX + 1];
    double f;
    if (!mn_jneed_defined(c, v))
        return false;
    *out = in->arg[0].type == MN_J_MISSING ? mn_j_float(0) : in->arg[0];
    if (mn_j_is_number(v))
        return filter_give(out, mn_j_float(mn_j_as_float(v)));
    const bool number = v.type == MN_J_STR && clean_number(c, *v.u.s, text);
    if (number && text_float(text, &f))
        *out = mn_j_float(f);
    return c->status == MN_OK;
}

/* f with so many digits behind the point, as Python's round(): the decimal nearest to the exact
 * value. */
static bool round_common(mn_jctx *c, double *f, int64_t digits) {
    char text[700]; // of all digits
    if (!mn_jcharge(c, MN_J_PER_NUMBER, 4))
        return false;
    if (digits < 0) {
        const double unit = pow(10, (double)-digits);
        *f = digits < -300 ? 0 : nearbyint(*f / unit) * unit;
        return true;
    }
    if (!isfinite(*f) || digits >= 300)
        return true;
    snprintf(text, sizeof text, "%.*f", (int)digits, *f);
    return mn_parse_f64(mn_str_of(text), f) || mn_jfail(c, "round: out of range");
}

/* The method "common": an integer stays one, whatever the digits. */
static bool round_to_nearest(mn_jctx *c, mn_jval v, int64_t digits, mn_jval *out) {
    double f = mn_j_as_float(v);
    const bool whole = mn_j_is_int(v);
    if (whole && digits >= 0)
        return filter_give(out, mn_j_int(mn_j_as_int(v)));
    if (!round_common(c, &f, digits))
        return false;
    if (!whole)
        return filter_give(out, mn_j_float(f));
    const double in_range = MN_MAX(MN_MIN(f, 9e18), -9e18);
    return filter_give(out, mn_j_int((int64_t)in_range));
}

/* An integer stays one; other methods than common give floats. */
static bool f_round(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval v = in->self;
    const bool named = in->arg[1].type != MN_J_MISSING;
    int64_t digits;
    mn_jstr how = mn_jstr_z("common");
    if (!need_number(c, "round", v) || !mn_jarg_int(c, "precision", in->arg[0], 0, &digits))
        return false;
    if (named && !mn_jarg_str(c, "method", in->arg[1], &how))
        return false;
    const mn_str name = mn_jstr_bytes(&how);
    const bool up = mn_str_is(name, "ceil");
    if (mn_str_is(name, "common"))
        return round_to_nearest(c, v, digits, out);
    if (!up && !mn_str_is(name, "floor"))
        return mn_jfail(c, "round: method must be common, ceil or floor");
    const double scale = pow(10, (double)digits);
    const double scaled = mn_j_as_float(v) * scale;
    if (!isfinite(scale) || scale == 0 || !isfinite(scaled))
        return mn_jfail(c, "round: out of range");
    return filter_give(out, mn_j_float((up ? ceil(scaled) : floor(scaled)) / scale));
}

static const mn_jfunc filters[] = {
    {"abs", "", f_abs, 0},
    {"capitalize", "", f_case, MN_J_CAPITAL},
    {"count", "", f_length, 0},
    {"length", "", f_length, 0},
    {"d", "?default_value ?boolean", f_default, 0},
    {"default", "?default_value ?boolean", f_default, 0},
    {"float", "?default", f_float, 0},
    {"format", NULL, f_format, 0},
    {"indent", "?width ?first ?blank", f_indent, 0},
    {"int", "?default ?base", f_int, 0},
    {"lower", "", f_case, MN_J_LOWER},
    {"replace", "old new ?count", f_replace, 0},
    {"round", "?precision ?method", f_round, 0},
    {"safe", "", f_string, 0},
    {"string", "", f_string, 0},
    {"title", "", f_case, MN_J_TITLE_FILTER},
    {"tojson", "?ensure_ascii ?indent ?separators ?sort_keys", mn_jtojson, 0},
    {"trim", "?chars", f_trim, 0},
    {"upper", "", f_case, MN_J_UPPER},
};

const mn_jfunc *mn_jfilter_find(mn_jctx *c, mn_str name) {
    const mn_jfunc *f = mn_jfunc_in(c, filters, MN_COUNT(filters), name);
    return f ? f : mn_jlist_filter_find(c, name);
}
