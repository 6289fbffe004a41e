/* methods.c -- methods of strings, dicts, lists, loops and cyclers. Methods that would change
 * a value are absent, as in Jinja2's immutable sandbox. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <string.h>

#define ARGS mn_jctx *c, mn_jval self, const mn_jval *arg, const mn_jargs *all, mn_jval *out
#define UNUSED_ARGS (void)self, (void)arg, (void)all

static bool strip(mn_jctx *c, mn_jval self, mn_jval chars, int sides, mn_jval *out) {
    mn_jstr set;
    bool given = chars.type != MN_J_MISSING && chars.type != MN_J_NONE;
    if (given && !mn_jarg_str(c, "strip", chars, &set))
        return false;
    return mn_j_string(c, mn_jstrip(c, *self.u.s, given ? &set : NULL, sides), out);
}
static bool m_strip(ARGS) {
    (void)all;
    return strip(c, self, arg[0], 3, out);
}
static bool m_lstrip(ARGS) {
    (void)all;
    return strip(c, self, arg[0], 1, out);
}
static bool m_rstrip(ARGS) {
    (void)all;
    return strip(c, self, arg[0], 2, out);
}

static bool split(mn_jctx *c, mn_jval self, const mn_jval *arg, bool right, mn_jval *out) {
    mn_jstr sep;
    int64_t max;
    bool given = arg[0].type != MN_J_MISSING && arg[0].type != MN_J_NONE;
    if ((given && !mn_jarg_str(c, "separator", arg[0], &sep)) ||
        !mn_jarg_int(c, "maxsplit", arg[1], -1, &max))
        return false;
    return mn_jsplit(c, *self.u.s, given ? &sep : NULL, max, right, out);
}
static bool m_split(ARGS) {
    (void)all;
    return split(c, self, arg, false, out);
}
static bool m_rsplit(ARGS) {
    (void)all;
    return split(c, self, arg, true, out);
}
static bool m_splitlines(ARGS) {
    (void)all;
    return mn_jsplitlines(c, *self.u.s, mn_jtruth(arg[0]), out);
}

static bool affix(mn_jctx *c, mn_jstr s, mn_jval with, bool end, bool *yes) {
    if (with.type == MN_J_TUPLE) {
        *yes = false;
        for (size_t i = 0; !*yes && i < with.u.l->n; i++) {
            if (with.u.l->items[i].type != MN_J_STR)
                return mn_jfail(c, "a tuple of strings is needed");
            if (!affix(c, s, with.u.l->items[i], end, yes))
                return false;
        }
        return true;
    }
    mn_jstr w;
    if (!mn_jarg_str(c, end ? "endswith" : "startswith", with, &w))
        return false;
    if (!mn_jcharge(c, MN_J_PER_BYTE, 16 + w.len))
        return false;
    *yes = w.len <= s.len && (!w.len || !memcmp(end ? s.ptr + s.len - w.len : s.ptr, w.ptr, w.len));
    return true;
}

static bool m_upper(ARGS) {
    UNUSED_ARGS;
    return mn_jcase_of(c, *self.u.s, MN_J_UPPER, out);
}
static bool m_lower(ARGS) {
    UNUSED_ARGS;
    return mn_jcase_of(c, *self.u.s, MN_J_LOWER, out);
}
static bool m_title(ARGS) {
    UNUSED_ARGS;
    return mn_jcase_of(c, *self.u.s, MN_J_TITLE_METHOD, out);
}
static bool m_capitalize(ARGS) {
    UNUSED_ARGS;
    return mn_jcase_of(c, *self.u.s, MN_J_CAPITAL, out);
}
static bool m_swapcase(ARGS) {
    UNUSED_ARGS;
    return mn_jcase_of(c, *self.u.s, MN_J_SWAP, out);
}

static bool m_replace(ARGS) {
    (void)all;
    mn_jstr old, with;
    int64_t count;
    return mn_jarg_str(c, "replace", arg[0], &old) && mn_jarg_str(c, "replace", arg[1], &with) &&
           mn_jarg_int(c, "count", arg[2], -1, &count) &&
           mn_jreplace(c, *self.u.s, old, with, count, out);
}

static bool m_format(ARGS) {
    (void)arg;
    return mn_jformat(c, *self.u.s, all, out);
}

/* The part of self between the character positions arg[1] and arg[2]; *base: characters before
 * it. */
static bool window(mn_jctx *c, mn_jstr s, const mn_jval *arg, mn_jstr *part, int64_t *base) {
    int64_t n, from, to;
    mn_jval a = arg[1].type == MN_J_NONE ? mn_j_of(MN_J_MISSING) : arg[1],
            b = arg[2].type == MN_J_NONE ? mn_j_of(MN_J_MISSING) : arg[2];
    *part = s;
    *base = 0;
    if (a.type == MN_J_MISSING && b.type == MN_J_MISSING)
        return true; // all of it, however long
    n = (int64_t)mn_jchars(c, s);
    if (!mn_jarg_int(c, "start", a, 0, &from) || !mn_jarg_int(c, "end", b, n, &to))
        return false;
    if (from < 0)
        from = from < -n ? 0 : from + n;
    if (to < 0)
        to = to < -n ? 0 : to + n;
    to = MN_MIN(to, n);
    *base = from;
    if (from > to)
        return part->len = 0, *base = -1, true;
    size_t at = mn_joffset(c, s, (size_t)from);
    size_t len = mn_joffset(c, mn_jstr_slice(s, at, s.len), (size_t)(to - from));
    *part = mn_jstr_slice(s, at, at + len);
    return c->status == MN_OK;
}

static bool affix_in_window(mn_jctx *c, mn_jval self, const mn_jval *arg, bool end, mn_jval *out) {
    mn_jstr part = *self.u.s;
    int64_t base;
    bool yes = false;
    if (!window(c, *self.u.s, arg, &part, &base) || !affix(c, part, arg[0], end, &yes))
        return false;
    return *out = mn_j_bool(yes && base >= 0), true;
}
static bool m_startswith(ARGS) {
    (void)all;
    return affix_in_window(c, self, arg, false, out);
}
static bool m_endswith(ARGS) {
    (void)all;
    return affix_in_window(c, self, arg, true, out);
}

static bool find(mn_jctx *c, mn_jval self, const mn_jval *arg, bool last, bool must, mn_jval *out) {
    mn_jstr what, part = *self.u.s;
    int64_t base;
    if (!mn_jarg_str(c, "find", arg[0], &what) || !window(c, *self.u.s, arg, &part, &base))
        return false;
    size_t at = base < 0 ? SIZE_MAX
                : last   ? mn_jrfind(c, part, what, part.len)
                         : mn_jfind(c, part, what, 0);
    if (at == SIZE_MAX && must)
        return mn_jfail(c, "substring not found");
    *out = mn_j_int(at == SIZE_MAX ? -1 : base + (int64_t)mn_jchars(c, mn_jstr_slice(part, 0, at)));
    return c->status == MN_OK;
}
static bool m_find(ARGS) {
    (void)all;
    return find(c, self, arg, false, false, out);
}
static bool m_rfind(ARGS) {
    (void)all;
    return find(c, self, arg, true, false, out);
}
static bool m_index(ARGS) {
    (void)all;
    return find(c, self, arg, false, true, out);
}
static bool m_rindex(ARGS) {
    (void)all;
    return find(c, self, arg, true, true, out);
}

static bool m_count(ARGS) {
    (void)all;
    mn_jstr what, part = *self.u.s;
    int64_t base, n = 0;
    if (!mn_jarg_str(c, "count", arg[0], &what) || !window(c, *self.u.s, arg, &part, &base))
        return false;
    if (!what.len)
        n = base < 0 ? 0 : (int64_t)mn_jchars(c, part) + 1;
    else
        for (size_t at = 0; base >= 0 && (at = mn_jfind(c, part, what, at)) != SIZE_MAX;
             at += what.len)
            n++;
    *out = mn_j_int(n);
    return c->status == MN_OK;
}

static bool m_join(ARGS) {
    (void)all;
    mn_jlist *l;
    mn_jbuf b = {0};
    mn_jstr piece;
    if (!mn_jiterate(c, arg[0], &l))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (!mn_jcharge(c, MN_J_PER_ITEM, 1) || !mn_jarg_str(c, "join", l->items[i], &piece) ||
            (i && !mn_jbuf_put(c, &b, *self.u.s)) || !mn_jbuf_put(c, &b, piece))
            return false;
    return mn_jbuf_value(c, &b, out);
}

/* All characters pass (cased: characters without case are ignored, one with it is needed). */
static bool all_chars(mn_jctx *c, mn_jval self, bool (*pass)(uint32_t), bool (*fail)(uint32_t),
                      mn_jval *out) {
    bool any = false, yes = true;
    uint32_t u;
    if (!mn_jcharge(c, MN_J_PER_CHAR, 2 * self.u.s->len))
        return false;
    for (size_t at = 0; yes && at < self.u.s->len;) {
        at += mn_jchar(*self.u.s, at, &u);
        any |= pass(u);
        yes = fail ? !fail(u) : pass(u);
    }
    return *out = mn_j_bool(any && yes), true;
}
static bool alnum(uint32_t u) {
    return mn_jcode_alpha(u) || mn_jcode_numeric(u);
}
static bool m_isdecimal(ARGS) {
    UNUSED_ARGS;
    return all_chars(c, self, mn_jcode_decimal, NULL, out);
}
static bool m_isdigit(ARGS) {
    UNUSED_ARGS;
    return all_chars(c, self, mn_jcode_digit, NULL, out);
}
static bool m_isnumeric(ARGS) {
    UNUSED_ARGS;
    return all_chars(c, self, mn_jcode_numeric, NULL, out);
}
static bool m_isalpha(ARGS) {
    UNUSED_ARGS;
    return all_chars(c, self, mn_jcode_alpha, NULL, out);
}
static bool m_isalnum(ARGS) {
    UNUSED_ARGS;
    return all_chars(c, self, alnum, NULL, out);
}
static bool m_isspace(ARGS) {
    UNUSED_ARGS;
    return all_chars(c, self, mn_jcode_space, NULL, out);
}
static bool m_isupper(ARGS) {
    UNUSED_ARGS;
    return all_chars(c, self, mn_jcode_upper, mn_jcode_lower, out);
}
static bool m_islower(ARGS) {
    UNUSED_ARGS;
    return all_chars(c, self, mn_jcode_lower, mn_jcode_upper, out);
}

/* Those that are true of an empty string. */
static bool m_isascii(ARGS) {
    UNUSED_ARGS;
    bool yes = true;
    if (!mn_jcharge(c, MN_J_PER_CHAR, self.u.s->len))
        return false;
    for (size_t i = 0; yes && i < self.u.s->len; i++)
        yes = (uint8_t)self.u.s->ptr[i] < 0x80;
    return *out = mn_j_bool(yes), true;
}
static bool m_isprintable(ARGS) {
    UNUSED_ARGS;
    return all_chars(c, self, mn_jcode_print, NULL, out) && (out->u.b |= !self.u.s->len, true);
}

static bool m_isidentifier(ARGS) {
    UNUSED_ARGS;
    bool yes = self.u.s->len > 0;
    uint32_t u;
    if (!mn_jcharge(c, MN_J_PER_CHAR, 2 * self.u.s->len))
        return false;
    for (size_t at = 0; yes && at < self.u.s->len;) {
        bool first = !at;
        at += mn_jchar(*self.u.s, at, &u);
        yes = u == '_' || mn_jcode_alpha(u) || (!first && mn_jcode_decimal(u));
    }
    return *out = mn_j_bool(yes), true;
}

static bool m_istitle(ARGS) {
    UNUSED_ARGS;
    bool any = false, yes = true, inside = false;
    uint32_t u;
    if (!mn_jcharge(c, MN_J_PER_CHAR, self.u.s->len))
        return false;
    for (size_t at = 0; yes && at < self.u.s->len;) {
        at += mn_jchar(*self.u.s, at, &u);
        bool lower = mn_jcode_lower(u), cased = lower || mn_jcode_upper(u) || mn_jcode_title(u);
        if (cased)
            yes = lower == inside;
        any |= cased;
        inside = cased;
    }
    return *out = mn_j_bool(any && yes), true;
}

static bool pad(mn_jctx *c, mn_jval self, const mn_jval *arg, char align, mn_jval *out) {
    mn_jbuf b = {0};
    mn_jstr fill = {" ", NULL, 1, 0, false};
    int64_t width;
    if (!mn_jarg_int(c, "width", arg[0], 0, &width) ||
        (arg[1].type != MN_J_MISSING && !mn_jarg_str(c, "fill", arg[1], &fill)))
        return false;
    if (mn_jchars(c, fill) != 1)
        return mn_jfail(c, "the fill character must be one character");
    if (align == '^') { // Python puts the odd one left when both the margin and the width are odd
        int64_t n = (int64_t)mn_jchars(c, *self.u.s), margin = width > n ? width - n : 0,
                left = margin / 2 + (margin & width & 1);
        return mn_jpad(c, &b, *self.u.s, n + left, '>', fill) &&
               mn_jpad(c, &b, (mn_jstr){"", NULL, 0, 0, false}, margin - left, '<', fill) &&
               mn_jbuf_value(c, &b, out);
    }
    return mn_jpad(c, &b, *self.u.s, width, align, fill) && mn_jbuf_value(c, &b, out);
}
static bool m_center(ARGS) {
    (void)all;
    return pad(c, self, arg, '^', out);
}
static bool m_ljust(ARGS) {
    (void)all;
    return pad(c, self, arg, '<', out);
}
static bool m_rjust(ARGS) {
    (void)all;
    return pad(c, self, arg, '>', out);
}

static bool m_zfill(ARGS) {
    (void)all;
    mn_jbuf b = {0};
    mn_jstr s = *self.u.s;
    int64_t width;
    if (!mn_jarg_int(c, "width", arg[0], 0, &width))
        return false;
    size_t sign = s.len && (s.ptr[0] == '-' || s.ptr[0] == '+');
    return mn_jbuf_put(c, &b, mn_jstr_slice(s, 0, sign)) &&
           mn_jbuf_fill(c, &b, '0', width - (int64_t)mn_jchars(c, s)) &&
           mn_jbuf_put(c, &b, mn_jstr_slice(s, sign, s.len)) && mn_jbuf_value(c, &b, out);
}

static bool remove_affix(mn_jctx *c, mn_jval self, mn_jval with, bool end, mn_jval *out) {
    mn_jstr w, s = *self.u.s;
    bool yes;
    if (!mn_jarg_str(c, "removeprefix", with, &w) || !affix(c, s, with, end, &yes))
        return false;
    if (!yes)
        return *out = self, true;
    return mn_j_string(c, end ? mn_jstr_slice(s, 0, s.len - w.len) : mn_jstr_slice(s, w.len, s.len),
                       out);
}
static bool m_removeprefix(ARGS) {
    (void)all;
    return remove_affix(c, self, arg[0], false, out);
}
static bool m_removesuffix(ARGS) {
    (void)all;
    return remove_affix(c, self, arg[0], true, out);
}

static bool partition(mn_jctx *c, mn_jval self, mn_jval by, bool last, mn_jval *out) {
    mn_jstr sep, s = *self.u.s;
    if (!mn_jarg_str(c, "separator", by, &sep))
        return false;
    if (!sep.len)
        return mn_jfail(c, "empty separator");
    size_t at = last ? mn_jrfind(c, s, sep, s.len) : mn_jfind(c, s, sep, 0);
    size_t a = at != SIZE_MAX ? at : last ? 0 : s.len, b = at != SIZE_MAX ? at + sep.len : a;
    mn_jstr parts[3] = {mn_jstr_slice(s, 0, a), mn_jstr_slice(s, a, b), mn_jstr_slice(s, b, s.len)};
    mn_jlist *l = mn_jlist_new(c, 3);
    mn_jval v;
    for (int i = 0; l && i < 3; i++)
        if (!mn_j_string(c, parts[i], &v) || !mn_jlist_add(c, l, v))
            return false;
    *out = mn_j_listval(MN_J_TUPLE, l);
    return l && c->status == MN_OK;
}
static bool m_partition(ARGS) {
    (void)all;
    return partition(c, self, arg[0], false, out);
}
static bool m_rpartition(ARGS) {
    (void)all;
    return partition(c, self, arg[0], true, out);
}

static bool m_casefold(ARGS) {
    UNUSED_ARGS;
    return mn_jcase_of(c, *self.u.s, MN_J_FOLD, out);
}

static bool m_expandtabs(ARGS) {
    (void)all;
    mn_jbuf b = {0};
    int64_t size, column = 0;
    uint32_t u;
    if (!mn_jarg_int(c, "tabsize", arg[0], 8, &size) ||
        !mn_jcharge(c, MN_J_PER_CHAR, self.u.s->len))
        return false;
    for (size_t at = 0, n; at < self.u.s->len; at += n) {
        n = mn_jchar(*self.u.s, at, &u);
        int64_t fill = size > 0 ? size - column % size : 0;
        if (u == '\t' ? !mn_jbuf_fill(c, &b, ' ', fill)
                      : !mn_jbuf_put(c, &b, mn_jstr_slice(*self.u.s, at, at + n)))
            return false;
        column = u == '\n' || u == '\r' ? 0 : column + (u == '\t' ? fill : 1);
    }
    return mn_jbuf_value(c, &b, out);
}

/* ---- dicts ----------------------------------------------------------------------------------- */

static bool view(mn_jctx *c, mn_jval self, int what, mn_jval *out) { // 0 keys, 1 values, 2 items
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    mn_jlist *l = mn_jlist_new(c, self.u.d->n);
    if (!l)
        return false;
    l->name = names[what];
    for (size_t i = 0; i < self.u.d->n; i++) {
        const mn_jpair *p = &self.u.d->items[i];
        mn_jval v = what ? p->value : p->key;
        if (what == 2) {
            mn_jlist *pair = mn_jlist_new(c, 2);
            if (!pair || !mn_jlist_add(c, pair, p->key) || !mn_jlist_add(c, pair, p->value))
                return false;
            v = mn_j_listval(MN_J_TUPLE, pair);
        }
        if (!mn_jlist_add(c, l, v))
            return false;
    }
    *out = mn_j_listval(MN_J_VIEW, l);
    return true;
}
static bool m_keys(ARGS) {
    UNUSED_ARGS;
    return view(c, self, 0, out);
}
static bool m_values(ARGS) {
    UNUSED_ARGS;
    return view(c, self, 1, out);
}
static bool m_items(ARGS) {
    UNUSED_ARGS;
    return view(c, self, 2, out);
}

static bool m_get(ARGS) {
    (void)all;
    const mn_jval *v = mn_jdict_find(c, self.u.d, arg[0]);
    *out = v ? *v : arg[1].type == MN_J_MISSING ? mn_j_of(MN_J_NONE) : arg[1];
    return c->status == MN_OK;
}

static bool m_copy(ARGS) {
    UNUSED_ARGS;
    (void)c;
    return *out = self, true;
} // values do not change

/* ---- lists ----------------------------------------------------------------------------------- */

static bool m_list_count(ARGS) {
    (void)all;
    int64_t n = 0;
    for (size_t i = 0; i < self.u.l->n; i++) {
        bool equal;
        if (!mn_jequal(c, self.u.l->items[i], arg[0], &equal))
            return false;
        n += equal;
    }
    return *out = mn_j_int(n), true;
}
static bool m_list_index(ARGS) {
    (void)all;
    int64_t n = (int64_t)self.u.l->n, from, to;
    bool equal = false;
    if (!mn_jarg_int(c, "start", arg[1], 0, &from) || !mn_jarg_int(c, "stop", arg[2], n, &to))
        return false;
    if (from < 0)
        from = from < -n ? 0 : from + n;
    if (to < 0)
        to = to < -n ? 0 : to + n;
    for (int64_t i = from; i < MN_MIN(to, n) && !equal; i++) {
        if (!mn_jequal(c, self.u.l->items[i], arg[0], &equal))
            return false;
        *out = mn_j_int(i);
    }
    return equal || mn_jfail(c, "value is not in the list");
}

/* ---- loops and cyclers ----------------------------------------------------------------------- */

static bool m_cycle(ARGS) {
    (void)arg;
    if (!all->n_pos)
        return mn_jfail(c, "no items for cycling given");
    return *out = all->pos[(uint64_t)self.u.loop->index0 % all->n_pos], true;
}

static bool m_changed(ARGS) {
    (void)arg;
    mn_jlist *l = mn_jlist_new(c, all->n_pos);
    bool equal = false;
    for (size_t i = 0; l && i < all->n_pos; i++)
        if (!mn_jlist_add(c, l, all->pos[i]))
            return false;
    if (!l)
        return false;
    mn_jval now = mn_j_listval(MN_J_TUPLE, l);
    if (self.u.loop->changed.type != MN_J_MISSING &&
        !mn_jequal(c, now, self.u.loop->changed, &equal))
        return false;
    if (!equal)
        self.u.loop->changed = now;
    return *out = mn_j_bool(!equal), true;
}

static bool m_next(ARGS) {
    UNUSED_ARGS;
    (void)c;
    mn_jlist *l = self.u.l;
    *out = l->items[l->pos];
    l->pos = (l->pos + 1) % l->n;
    return true;
}
static bool m_reset(ARGS) {
    UNUSED_ARGS;
    (void)c;
    self.u.l->pos = 0;
    return *out = mn_j_of(MN_J_NONE), true;
}

static const mn_jfunc str_methods[] = {
    {"strip", "?chars", m_strip},
    {"lstrip", "?chars", m_lstrip},
    {"rstrip", "?chars", m_rstrip},
    {"split", "?sep ?maxsplit", m_split},
    {"rsplit", "?sep ?maxsplit", m_rsplit},
    {"splitlines", "?keepends", m_splitlines},
    {"startswith", "prefix ?start ?end", m_startswith},
    {"endswith", "suffix ?start ?end", m_endswith},
    {"upper", "", m_upper},
    {"lower", "", m_lower},
    {"title", "", m_title},
    {"capitalize", "", m_capitalize},
    {"swapcase", "", m_swapcase},
    {"casefold", "", m_casefold},
    {"expandtabs", "?tabsize", m_expandtabs},
    {"replace", "old new ?count", m_replace},
    {"format", NULL, m_format},
    {"find", "sub ?start ?end", m_find},
    {"rfind", "sub ?start ?end", m_rfind},
    {"index", "sub ?start ?end", m_index},
    {"rindex", "sub ?start ?end", m_rindex},
    {"count", "sub ?start ?end", m_count},
    {"join", "iterable", m_join},
    {"isdigit", "", m_isdigit},
    {"isascii", "", m_isascii},
    {"isdecimal", "", m_isdecimal},
    {"isidentifier", "", m_isidentifier},
    {"isnumeric", "", m_isnumeric},
    {"isprintable", "", m_isprintable},
    {"istitle", "", m_istitle},
    {"isalpha", "", m_isalpha},
    {"isalnum", "", m_isalnum},
    {"isspace", "", m_isspace},
    {"isupper", "", m_isupper},
    {"islower", "", m_islower},
    {"center", "width ?fill", m_center},
    {"ljust", "width ?fill", m_ljust},
    {"rjust", "width ?fill", m_rjust},
    {"zfill", "width", m_zfill},
    {"removeprefix", "prefix", m_removeprefix},
    {"removesuffix", "suffix", m_removesuffix},
    {"partition", "sep", m_partition},
    {"rpartition", "sep", m_rpartition},
};
static const mn_jfunc dict_methods[] = {{"items", "", m_items},
                                        {"keys", "", m_keys},
                                        {"values", "", m_values},
                                        {"get", "key ?default", m_get},
                                        {"copy", "", m_copy}};
static const mn_jfunc list_methods[] = {{"count", "value", m_list_count},
                                        {"index", "value ?start ?stop", m_list_index},
                                        {"copy", "", m_copy}};
static bool m_is_integer(ARGS) {
    UNUSED_ARGS;
    (void)c;
    return *out = mn_j_bool(isfinite(self.u.f) && self.u.f == floor(self.u.f)), true;
}

static const mn_jfunc float_methods[] = {{"is_integer", "", m_is_integer}};
static const mn_jfunc loop_methods[] = {{"cycle", NULL, m_cycle}, {"changed", NULL, m_changed}};
static const mn_jfunc cycler_methods[] = {{"next", "", m_next}, {"reset", "", m_reset}};

const mn_jfunc *mn_jstr_method_find(mn_jctx *c, mn_str name) {
    return mn_jfunc_in(c, str_methods, MN_COUNT(str_methods), name);
}

bool mn_jstr_method(mn_jctx *c, const char *name, mn_jval self, const mn_jval *arg,
                    const mn_jargs *all, mn_jval *out) {
    const mn_jfunc *f = mn_jstr_method_find(c, mn_str_of(name));
    return f && f->fn(c, self, arg, all, out);
}

const mn_jfunc *mn_jmethod_find(mn_jctx *c, mn_jval v, mn_str name) {
    switch (v.type) {
    case MN_J_STR:
        return mn_jstr_method_find(c, name);
    case MN_J_FLOAT:
        return mn_jfunc_in(c, float_methods, MN_COUNT(float_methods), name);
    case MN_J_DICT:
        return mn_jfunc_in(c, dict_methods, MN_COUNT(dict_methods), name);
    case MN_J_LIST:
        return mn_jfunc_in(c, list_methods, MN_COUNT(list_methods), name);
    case MN_J_TUPLE:
        return mn_jfunc_in(c, list_methods, 2, name);
    case MN_J_LOOP:
        return mn_jfunc_in(c, loop_methods, MN_COUNT(loop_methods), name);
    case MN_J_CYCLER:
        return mn_jfunc_in(c, cycler_methods, MN_COUNT(cycler_methods), name);
    default:
        return NULL;
    }
}
