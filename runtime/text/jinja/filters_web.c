/* filters_web.c -- Jinja2's filters for web pages: no chat template needs one, but they are
 * part of the language. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARGS mn_jctx *c, mn_jval self, const mn_jval *arg, const mn_jargs *all, mn_jval *out

static bool f_forceescape(ARGS) {
    (void)arg, (void)all;
    mn_jstr s;
    mn_jbuf b = {0};
    if (!mn_jstr_of(c, self, &s) || !mn_jescape(c, &b, s))
        return false;
    s = mn_jbuf_str(&b);
    s.markup = true;
    return mn_j_string(c, s, out);
}

static bool f_filesizeformat(ARGS) {
    (void)all;
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
                             *const binary[] = {"KiB", "MiB", "GiB", "TiB",
                                                "PiB", "EiB", "ZiB", "YiB"};
    const bool is_binary = mn_jtruth(arg[0]);
    const double base = is_binary ? 1024 : 1000;
    if (!mn_j_is_number(self))
        return mn_jneed_defined(c, self) &&
               mn_jfail(c, "filesizeformat: found %s, expected a number", mn_jtype_name(self));
    double bytes = mn_j_as_float(self), unit = base;
    char text[400];
    size_t i = 0;
    if (!mn_jcharge(c, MN_J_PER_NUMBER, 6)) // up to 300 digits
        return false;
    if (!isfinite(bytes))
        return mn_jfail(c, "filesizeformat: found an infinite size");
    for (; i + 1 < MN_COUNT(units) && bytes >= unit * base; i++)
        unit *= base;
    if (bytes == 1)
        strcpy(text, "1 Byte");
    else if (bytes < base)
        snprintf(text, sizeof text, "%lld Bytes", (long long)MN_MAX(bytes, -9e18));
    else
        snprintf(text, sizeof text, "%.1f %s", bytes / unit, (is_binary ? binary : units)[i]);
    mn_jbuf b = {0};
    return mn_jbuf_puts(c, &b, text, 0) && mn_jbuf_value(c, &b, out);
}

/* ---- urlencode ------------------------------------------------------------------------------- */

static bool quote(mn_jctx *c, mn_jbuf *b, mn_jval v, bool query) {
    mn_jstr s;
    char esc[4];
    if (!mn_jstr_of(c, v, &s) || !mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return false;
    for (size_t i = 0; i < s.len; i++) {
        uint8_t ch = (uint8_t)s.ptr[i];
        bool plain = (ch >= '0' && ch <= '9') || (ch | 32) - 'a' + 0u < 26u ||
                     (ch && strchr(query ? "_.-~" : "_.-~/", ch));
        if (!plain && !mn_jcharge(c, MN_J_PER_ITEM, 4))
            return false;
        if (!plain)
            snprintf(esc, sizeof esc, "%%%02X", ch);
        if (plain ? !mn_jbuf_bytes(c, b, &s.ptr[i], 1, mn_jstr_mark(s, i))
                  : !mn_jbuf_puts(c, b, query && ch == ' ' ? "+" : esc, mn_jstr_mark(s, i)))
            return false;
    }
    return true;
}

static bool f_urlencode(ARGS) { // of a text, or of pairs as a query
    (void)arg, (void)all;
    mn_jbuf b = {0};
    mn_jlist *pairs, *pair;
    mn_jargs none = {0};
    if (self.type == MN_J_STR ||
        (self.type != MN_J_DICT && !mn_j_is_seq(self) && self.type != MN_J_UNDEF))
        return quote(c, &b, self, false) && mn_jbuf_value(c, &b, out);
    if (self.type == MN_J_DICT &&
        !mn_jinvoke(c, mn_jmethod_find(c, self, mn_str_of("items")), self, &none, &self))
        return false;
    if (!mn_jiterate(c, self, &pairs))
        return false;
    for (size_t i = 0; i < pairs->n; i++) {
        if (!mn_jiterate(c, pairs->items[i], &pair))
            return false;
        if (pair->n != 2)
            return mn_jfail(c, "urlencode: element %zu is not a pair", i);
        if ((i && !mn_jbuf_puts(c, &b, "&", 0)) || !quote(c, &b, pair->items[0], true) ||
            !mn_jbuf_puts(c, &b, "=", 0) || !quote(c, &b, pair->items[1], true))
            return false;
    }
    return mn_jbuf_value(c, &b, out);
}

/* ---- xmlattr --------------------------------------------------------------------------------- */

static bool f_xmlattr(ARGS) {
    (void)all;
    mn_jbuf b = {0};
    mn_jstr s;
    if (self.type != MN_J_DICT)
        return mn_jneed_defined(c, self) &&
               mn_jfail(c, "xmlattr: found %s, expected a dict", mn_jtype_name(self));
    for (size_t i = 0; i < self.u.d->n; i++) {
        mn_jpair p = self.u.d->items[i];
        if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
            return false;
        if (p.value.type == MN_J_NONE || p.value.type == MN_J_UNDEF)
            continue;
        if (p.key.type != MN_J_STR)
            return mn_jfail(c, "xmlattr: found %s as a name", mn_jtype_name(p.key));
        if (!mn_jcharge(c, MN_J_PER_CHAR, p.key.u.s->len))
            return false;
        for (size_t k = 0; k < p.key.u.s->len; k++)
            if (p.key.u.s->ptr[k] == 0 || strchr(" \t\n\r\f\v/>=", p.key.u.s->ptr[k]))
                return mn_jfail(c, "xmlattr: a name with a space or one of / > =");
        if (b.len && !mn_jbuf_puts(c, &b, " ", 0))
            return false;
        if (!mn_jescape(c, &b, *p.key.u.s) || !mn_jbuf_puts(c, &b, "=\"", 0) ||
            !mn_jstr_of(c, p.value, &s) ||
            !(s.markup ? mn_jbuf_put(c, &b, s) : mn_jescape(c, &b, s)) ||
            !mn_jbuf_puts(c, &b, "\"", 0))
            return false;
    }
    bool space = (arg[0].type == MN_J_MISSING || mn_jtruth(arg[0])) && b.len;
    mn_jbuf whole = {0};
    return (!space || mn_jbuf_puts(c, &whole, " ", 0)) && mn_jbuf_put(c, &whole, mn_jbuf_str(&b)) &&
           mn_jbuf_value(c, &whole, out);
}

static const mn_jfunc filters[] = {
    {"filesizeformat", "?binary", f_filesizeformat},
    {"forceescape", "", f_forceescape},
    {"urlencode", "", f_urlencode},
    {"xmlattr", "?autospace", f_xmlattr},
};

const mn_jfunc *mn_jweb_filter_find(mn_jctx *c, mn_str name) {
    return mn_jfunc_in(c, filters, MN_COUNT(filters), name);
}
