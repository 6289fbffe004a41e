/* filters.c -- filters on strings and numbers, as Jinja2 defines them; those on lists and dicts are
 * in filters_list.c. Filters that no chat template needs are absent (batch, escape, urlencode,
 * xmlattr and their like): a template that names one fails with that name. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool give(mn_jval *out, mn_jval v) {
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

static bool f_trim(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jval text;
    return f_string(c, in, &text) && mn_jmethod_call(c, "strip", text, in->arg, out);
}

/* As the method, but takes values that are not strings. */
static bool f_replace(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr s;
    mn_jstr old;
    mn_jstr with;
    int64_t count = -1;
    if (!mn_jstr_of(c, in->self, &s) || !mn_jstr_of(c, in->arg[0], &old) ||
        !mn_jstr_of(c, in->arg[1], &with))
        return false;
    if (in->arg[2].type != MN_J_NONE && !mn_jarg_int(c, "count", in->arg[2], -1, &count))
        return false;
    return mn_jreplace(c, s, old, with, count, out);
}

/* With a true second argument also for what is false. */
static bool f_default(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const bool also_false = mn_jtruth(in->arg[1]);
    const bool missing = in->self.type == MN_J_UNDEF || (also_false && !mn_jtruth(in->self));
    if (!missing)
        return give(out, in->self);
    if (in->arg[0].type == MN_J_MISSING)
        return mn_j_literal(c, "", out);
    return give(out, in->arg[0]);
}

static bool f_length(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    int64_t n;
    return mn_jlength(c, in->self, &n) && give(out, mn_j_int(n));
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
    for (size_t i = 0; i < all->n_pos; i++)
        if (!mn_jlist_add(c, l, all->pos[i]))
            return false;
    for (size_t i = 0; i < all->n_kw; i++)
        if (!mn_jdict_set(c, d, all->kw[i].key, all->kw[i].value))
            return false;
    return mn_jpercent(c, s, all->n_kw ? mn_j_dictval(d) : mn_j_listval(MN_J_TUPLE, l), out);
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
    if (!mn_jbuf_put(c, &text, s) || !mn_jbuf_puts(c, &text, "\n", 0) ||
        !mn_jsplitlines(c, mn_jbuf_str(&text), false, &lines))
        return false;
    for (size_t i = 0; i < lines.u.l->n; i++) {
        const mn_jstr line = *lines.u.l->items[i].u.s;
        const bool indented = i ? blank || line.len : first;
        if (i && !mn_jbuf_puts(c, &b, "\n", 0))
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
    if (mn_j_is_number(v))
        return true;
    return mn_jneed_defined(c, v) &&
           mn_jfail(c, "%s: a number is required, not %s", filter, mn_jtype_name(v));
}

static bool f_abs(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    if (!need_number(c, "abs", in->self))
        return false;
    if (in->self.type == MN_J_FLOAT)
        return give(out, mn_j_float(fabs(in->self.u.f)));
    if (mn_j_as_int(in->self) < 0)
        return mn_jnegate(c, in->self, out);
    return give(out, mn_j_int(mn_j_as_int(in->self)));
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
    const char *number = text + (text[0] == '+' || text[0] == '-');
    if (!strcasecmp(number, "nan")) {
        *f = NAN;
        return true;
    }
    if (!strcasecmp(number, "inf") || !strcasecmp(number, "infinity")) {
        *f = text[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    return number[strspn(number, "0123456789.eE+-")] == 0 &&
           mn_parse_f64(mn_str_of(text[0] == '+' ? number : text), f);
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
    if (base == 10)
        return digits[0] >= '0' && digits[0] <= '9' &&
               mn_parse_i64(mn_str_of(negative ? text : digits), i);
    if (letter && digits[0] == '0' && (digits[1] | 32) == letter)
        digits += 2;
    if (strchr("-+ ", digits[0])) // or at the end
        return false;
    char *end;
    const unsigned long long u = strtoull(digits, &end, (int)base);
    if (*end || u > INT64_MAX)
        return false;
    *i = negative ? -(int64_t)u : (int64_t)u;
    return true;
}

/* Text that is no number, not even a float, gives the default. */
static bool f_int(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    char text[NUMBER_MAX + 1];
    int64_t base;
    int64_t i;
    double f = 0;
    if (!mn_jarg_int(c, "base", in->arg[1], 10, &base) || !mn_jneed_defined(c, in->self))
        return false;
    if (base < 2 || base > 36)
        base = 10;
    *out = in->arg[0].type == MN_J_MISSING ? mn_j_int(0) : in->arg[0];
    if (mn_j_is_int(in->self))
        return give(out, mn_j_int(mn_j_as_int(in->self)));
    if (in->self.type == MN_J_STR) {
        if (!clean_number(c, *in->self.u.s, text))
            return c->status == MN_OK;
        if (text_int(text, base, &i))
            return give(out, mn_j_int(i));
        if (!text_float(text, &f))
            return true;
    } else if (in->self.type != MN_J_FLOAT)
        return true;
    else
        f = in->self.u.f;
    if (isnan(f))
        return true;
    if (fabs(f) >= 9.2e18)
        return mn_jfail(c, "int: the number does not fit in 64 bits");
    return give(out, mn_j_int((int64_t)f));
}

/* The same for floats. */
static bool f_float(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    char text[NUMBER_MAX + 1];
    double f;
    if (!mn_jneed_defined(c, in->self))
        return false;
    *out = in->arg[0].type == MN_J_MISSING ? mn_j_float(0) : in->arg[0];
    if (mn_j_is_number(in->self))
        return give(out, mn_j_float(mn_j_as_float(in->self)));
    if (in->self.type == MN_J_STR && clean_number(c, *in->self.u.s, text) && text_float(text, &f))
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

/* An integer stays one; other methods than common give floats. */
static bool f_round(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval v = in->self;
    int64_t digits;
    mn_jstr how = mn_jstr_z("common");
    if (!need_number(c, "round", v) || !mn_jarg_int(c, "precision", in->arg[0], 0, &digits))
        return false;
    if (in->arg[1].type != MN_J_MISSING && !mn_jarg_str(c, "method", in->arg[1], &how))
        return false;
    const mn_str name = mn_jstr_bytes(&how);
    double f = mn_j_as_float(v);
    if (mn_str_is(name, "common")) {
        if (mn_j_is_int(v) && digits >= 0)
            return give(out, mn_j_int(mn_j_as_int(v)));
        if (!round_common(c, &f, digits))
            return false;
        if (!mn_j_is_int(v))
            return give(out, mn_j_float(f));
        return give(out, mn_j_int((int64_t)MN_MAX(MN_MIN(f, 9e18), -9e18)));
    }
    const bool up = mn_str_is(name, "ceil");
    if (!up && !mn_str_is(name, "floor"))
        return mn_jfail(c, "round: method must be common, ceil or floor");
    const double scale = pow(10, (double)digits);
    if (!isfinite(scale) || scale == 0 || !isfinite(f * scale))
        return mn_jfail(c, "round: out of range");
    return give(out, mn_j_float((up ? ceil(f * scale) : floor(f * scale)) / scale));
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
