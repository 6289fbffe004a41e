/* filters.c -- filters on strings and numbers. Those on lists are in filters_list.c. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS mn_jctx *c, mn_jval self, const mn_jval *arg, const mn_jargs *all, mn_jval *out

static bool cased(mn_jctx *c, mn_jval self, mn_jcase how, mn_jval *out) {
    mn_jstr s;
    return mn_jstr_of(c, self, &s) && mn_jcase_of(c, s, how, out);
}
static bool f_upper(ARGS) {
    (void)arg, (void)all;
    return cased(c, self, MN_J_UPPER, out);
}
static bool f_lower(ARGS) {
    (void)arg, (void)all;
    return cased(c, self, MN_J_LOWER, out);
}
static bool f_title(ARGS) {
    (void)arg, (void)all;
    return cased(c, self, MN_J_TITLE_FILTER, out);
}
static bool f_capitalize(ARGS) {
    (void)arg, (void)all;
    return cased(c, self, MN_J_CAPITAL, out);
}

static bool f_trim(ARGS) {
    mn_jstr s;
    mn_jval text;
    return mn_jstr_of(c, self, &s) && mn_j_string(c, s, &text) &&
           mn_jstr_method(c, "strip", text, arg, all, out);
}

static bool f_string(ARGS) {
    (void)arg, (void)all;
    mn_jstr s;
    return mn_jstr_of(c, self, &s) && mn_j_string(c, s, out);
}

static bool f_safe(ARGS) {
    (void)arg, (void)all;
    mn_jstr s;
    if (!mn_jstr_of(c, self, &s))
        return false;
    s.markup = true;
    return mn_j_string(c, s, out);
}

static bool escape(mn_jctx *c, mn_jval self, bool again, mn_jval *out) {
    mn_jstr s;
    mn_jbuf b = {0};
    if (!mn_jstr_of(c, self, &s))
        return false;
    if (!again && s.markup)
        return *out = self, true;
    if (!mn_jescape(c, &b, s))
        return false;
    s = mn_jbuf_str(&b);
    s.markup = true;
    return mn_j_string(c, s, out);
}
static bool f_escape(ARGS) {
    (void)arg, (void)all;
    return escape(c, self, false, out);
}

static bool f_replace(ARGS) {
    (void)all;
    mn_jstr s, old, with;
    int64_t count;
    mn_jval n = arg[2].type == MN_J_NONE ? mn_j_of(MN_J_MISSING) : arg[2];
    return mn_jstr_of(c, self, &s) && mn_jstr_of(c, arg[0], &old) && mn_jstr_of(c, arg[1], &with) &&
           mn_jarg_int(c, "count", n, -1, &count) && mn_jreplace(c, s, old, with, count, out);
}

static bool f_default(ARGS) {
    (void)all;
    bool missing = self.type == MN_J_UNDEF || (mn_jtruth(arg[1]) && !mn_jtruth(self));
    if (missing && arg[0].type == MN_J_MISSING)
        return mn_j_literal(c, "", out);
    return *out = missing ? arg[0] : self, true;
}

static bool f_length(ARGS) {
    (void)arg, (void)all;
    int64_t n;
    return mn_jlength(c, self, &n) && (*out = mn_j_int(n), true);
}

static bool f_format(ARGS) {
    (void)arg;
    mn_jstr s;
    if (!mn_jstr_of(c, self, &s))
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

static bool f_indent(ARGS) {
    (void)all;
    mn_jstr s, by;
    mn_jbuf spaces = {0}, b = {0}, text = {0};
    mn_jval lines;
    int64_t width;
    if (!mn_jarg_str(c, "indent", self, &s))
        return false;
    if (arg[0].type == MN_J_STR)
        by = *arg[0].u.s;
    else {
        if (!mn_jarg_int(c, "width", arg[0], 4, &width) || !mn_jbuf_fill(c, &spaces, ' ', width))
            return false;
        by = mn_jbuf_str(&spaces);
    }
    if (!mn_jbuf_put(c, &text, s) || !mn_jbuf_puts(c, &text, "\n", 0) ||
        !mn_jsplitlines(c, mn_jbuf_str(&text), false, &lines))
        return false;
    bool first = mn_jtruth(arg[1]), blank = mn_jtruth(arg[2]);
    for (size_t i = 0; i < lines.u.l->n; i++) {
        mn_jstr line = *lines.u.l->items[i].u.s;
        if (i && !mn_jbuf_puts(c, &b, "\n", 0))
            return false;
        if ((i ? blank || line.len : first) && !mn_jbuf_put(c, &b, by))
            return false;
        if (!mn_jbuf_put(c, &b, line))
            return false;
    }
    return mn_jbuf_value(c, &b, out);
}

static bool f_truncate(ARGS) {
    (void)all;
    mn_jstr s, end = {"...", NULL, 3, 0, false};
    int64_t length, leeway, n;
    mn_jval lee = arg[3].type == MN_J_NONE ? mn_j_of(MN_J_MISSING) : arg[3];
    if (!mn_jlength(c, self, &n) || !mn_jarg_int(c, "length", arg[0], 255, &length) ||
        !mn_jarg_int(c, "leeway", lee, 5, &leeway))
        return false;
    if (arg[2].type != MN_J_MISSING && !mn_jarg_str(c, "end", arg[2], &end))
        return false;
    int64_t tail = (int64_t)mn_jchars(c, end);
    if (length < tail || leeway < 0)
        return mn_jfail(c, "truncate: length or leeway too small");
    if (length > (int64_t)MN_J_OUTPUT || leeway > (int64_t)MN_J_OUTPUT || n <= length + leeway)
        return *out = self, true; // whatever has a length
    if (!mn_jarg_str(c, "truncate", self, &s))
        return false;
    mn_jbuf b = {0};
    mn_jstr cut = mn_jstr_slice(s, 0, mn_joffset(c, s, (size_t)(length - tail))),
            space = {" ", NULL, 1, 0, false};
    size_t at = mn_jtruth(arg[1]) ? SIZE_MAX : mn_jrfind(c, cut, space, cut.len);
    if (at != SIZE_MAX)
        cut = mn_jstr_slice(cut, 0, at);
    return mn_jbuf_put(c, &b, cut) && mn_jbuf_put(c, &b, end) && mn_jbuf_value(c, &b, out);
}

static bool f_wordcount(ARGS) {
    (void)arg, (void)all;
    mn_jstr s;
    int64_t n = 0;
    bool inside = false;
    uint32_t u;
    if (!mn_jstr_of(c, self, &s) || !mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return false;
    for (size_t at = 0; at < s.len;) {
        at += mn_jchar(s, at, &u);
        bool word = u == '_' || mn_jcode_alpha(u) || mn_jcode_numeric(u);
        n += word && !inside;
        inside = word;
    }
    return *out = mn_j_int(n), true;
}

static bool f_center(ARGS) {
    mn_jstr s;
    mn_jval text,
        width[2] = {arg[0].type == MN_J_MISSING ? mn_j_int(80) : arg[0], mn_j_of(MN_J_MISSING)};
    return mn_jstr_of(c, self, &s) && mn_j_string(c, s, &text) &&
           mn_jstr_method(c, "center", text, width, all, out);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool f_abs(ARGS) {
    (void)arg, (void)all;
    if (!mn_j_is_number(self))
        return mn_jneed_defined(c, self) &&
               mn_jfail(c, "abs: a number is required, not %s", mn_jtype_name(self));
    if (self.type == MN_J_FLOAT)
        return *out = mn_j_float(fabs(self.u.f)), true;
    int64_t i = mn_j_as_int(self);
    return i < 0 ? mn_jnegate(c, self, out) : (*out = mn_j_int(i), true);
}

/* A number's text as Python's int() and float() take it: no spaces around, underscores between
 * digits. */
static bool clean_number(mn_jctx *c, mn_jstr s, char out[64]) {
    size_t n = 0;
    s = mn_jstrip(c, s, NULL, 3);
    if (!mn_jcharge(c, MN_J_PER_NUMBER, 1) || !s.len || s.len > 60)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        bool between = i && i + 1 < s.len && s.ptr[i - 1] != '_' && s.ptr[i + 1] != '_';
        if (s.ptr[i] == '_' && !between)
            return false;
        if (s.ptr[i] != '_')
            out[n++] = s.ptr[i];
    }
    out[n] = 0;
    return true;
}

static bool text_float(const char *text, double *f) {
    size_t sign = text[0] == '+' || text[0] == '-';
    if (strspn(text + sign, "0123456789.eE+-") != strlen(text + sign)) {
        bool nan = !strcasecmp(text + sign, "nan"),
             inf = !strcasecmp(text + sign, "inf") || !strcasecmp(text + sign, "infinity");
        *f = nan ? NAN : text[0] == '-' ? -INFINITY : INFINITY;
        return nan || inf;
    }
    return mn_parse_f64(mn_str_of(text + (text[0] == '+')), f);
}

static bool text_int(const char *text, int64_t base, int64_t *i) {
    size_t sign = text[0] == '+' || text[0] == '-';
    const char *digits = text + sign;
    if (base == 10)
        return digits[0] >= '0' && digits[0] <= '9' &&
               mn_parse_i64(mn_str_of(text + (text[0] == '+')), i);
    char kind = (char)(base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : 0);
    if (kind && digits[0] == '0' && (digits[1] | 32) == kind)
        digits += 2;
    char *end;
    unsigned long long u = strtoull(digits, &end, (int)base);
    if (end == digits || *end || digits[0] == '-' || digits[0] == '+' || digits[0] == ' ' ||
        u > INT64_MAX)
        return false;
    *i = text[0] == '-' ? -(int64_t)u : (int64_t)u;
    return true;
}

static bool f_int(ARGS) {
    (void)all;
    char text[64];
    int64_t base, i;
    double f;
    *out = arg[0].type == MN_J_MISSING ? mn_j_int(0) : arg[0];
    if (!mn_jarg_int(c, "base", arg[1], 10, &base) || !mn_jneed_defined(c, self))
        return false;
    if (base < 2 || base > 36)
        base = 10;
    if (mn_j_is_int(self))
        return *out = mn_j_int(mn_j_as_int(self)), true;
    if (self.type == MN_J_FLOAT)
        f = self.u.f;
    else if (self.type != MN_J_STR || !clean_number(c, *self.u.s, text))
        return c->status == MN_OK;
    else if (text_int(text, base, &i))
        return *out = mn_j_int(i), true;
    else if (!text_float(text, &f))
        return true;
    if (isnan(f))
        return true;
    if (fabs(f) >= 9.2e18)
        return mn_jfail(c, "int: the number does not fit in 64 bits");
    return *out = mn_j_int((int64_t)f), true;
}

static bool f_float(ARGS) {
    (void)all;
    char text[64];
    double f;
    *out = arg[0].type == MN_J_MISSING ? mn_j_float(0) : arg[0];
    if (!mn_jneed_defined(c, self))
        return false;
    if (mn_j_is_number(self))
        *out = mn_j_float(mn_j_as_float(self));
    else if (self.type == MN_J_STR && clean_number(c, *self.u.s, text) && text_float(text, &f))
        *out = mn_j_float(f);
    return c->status == MN_OK;
}

static bool f_round(ARGS) {
    (void)all;
    int64_t digits;
    mn_jstr how = {"common", NULL, 6, 0, false};
    if (!mn_j_is_number(self))
        return mn_jneed_defined(c, self) &&
               mn_jfail(c, "round: a number is required, not %s", mn_jtype_name(self));
    if (!mn_jarg_int(c, "precision", arg[0], 0, &digits) ||
        (arg[1].type != MN_J_MISSING && !mn_jarg_str(c, "method", arg[1], &how)))
        return false;
    mn_str name = mn_jstr_bytes(&how);
    double f = mn_j_as_float(self);
    if (mn_str_is(name, "common")) {
        if (mn_j_is_int(self) && digits >= 0)
            return *out = mn_j_int(mn_j_as_int(self)), true;
        char text[700]; // of all digits
        if (!mn_jcharge(c, MN_J_PER_NUMBER, 4))
            return false;
        if (digits < 0)
            f = digits < -300 ? 0
                              : nearbyint(f / pow(10, (double)-digits)) * pow(10, (double)-digits);
        else if (isfinite(f) &&
                 digits < 300) { // the decimal nearest to the exact value, as Python does
            snprintf(text, sizeof text, "%.*f", (int)digits, f);
            if (!mn_parse_f64(mn_str_of(text), &f))
                return mn_jfail(c, "round: out of range");
        }
        *out =
            mn_j_is_int(self) ? mn_j_int((int64_t)MN_MAX(MN_MIN(f, 9e18), -9e18)) : mn_j_float(f);
        return true;
    }
    if (!mn_str_is(name, "ceil") && !mn_str_is(name, "floor"))
        return mn_jfail(c, "round: method must be common, ceil or floor");
    double scale = pow(10, (double)digits);
    if (!isfinite(scale) || scale == 0 || !isfinite(f * scale))
        return mn_jfail(c, "round: out of range");
    *out = mn_j_float((mn_str_is(name, "ceil") ? ceil(f * scale) : floor(f * scale)) / scale);
    return true;
}

static const mn_jfunc filters[] = {
    {"abs", "", f_abs},
    {"capitalize", "", f_capitalize},
    {"center", "?width", f_center},
    {"count", "", f_length},
    {"length", "", f_length},
    {"d", "?default_value ?boolean", f_default},
    {"default", "?default_value ?boolean", f_default},
    {"e", "", f_escape},
    {"escape", "", f_escape},
    {"float", "?default", f_float},
    {"format", NULL, f_format},
    {"indent", "?width ?first ?blank", f_indent},
    {"int", "?default ?base", f_int},
    {"lower", "", f_lower},
    {"replace", "old new ?count", f_replace},
    {"round", "?precision ?method", f_round},
    {"safe", "", f_safe},
    {"string", "", f_string},
    {"title", "", f_title},
    {"tojson", "?ensure_ascii ?indent ?separators ?sort_keys", mn_jtojson},
    {"trim", "?chars", f_trim},
    {"truncate", "?length ?killwords ?end ?leeway", f_truncate},
    {"upper", "", f_upper},
    {"wordcount", "", f_wordcount},
};

const mn_jfunc *mn_jfilter_find(mn_jctx *c, mn_str name) {
    const mn_jfunc *f = mn_jfunc_in(c, filters, MN_COUNT(filters), name);
    if (!f)
        f = mn_jlist_filter_find(c, name);
    return f ? f : mn_jweb_filter_find(c, name);
}
