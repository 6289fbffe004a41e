/* methods.c -- methods of strings, dicts, lists and loops: those that chat templates call. Methods
 * that would change a value are absent, as in Jinja2's immutable sandbox; a method that is absent
 * is an undefined attribute.
 *
 * Positions in strings are counted in characters, as Python does; text.c works with byte
 * offsets. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <string.h>

static bool method_given(mn_jval v) {
    return v.type != MN_J_MISSING && v.type != MN_J_NONE;
}

/* An argument that None leaves out, too. */
static mn_jval or_missing(mn_jval v) {
    return method_given(v) ? v : mn_j_of(MN_J_MISSING);
}

static bool give_bool(mn_jval *out, bool b) {
    *out = mn_j_bool(b);
    return true;
}

/* how: the sides, as for mn_jstrip */
static bool m_strip(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr set;
    const mn_jstr *chars = NULL;
    if (method_given(in->arg[0])) {
        if (!mn_jarg_str(c, "strip", in->arg[0], &set))
            return false;
        chars = &set;
    }
    return mn_j_string(c, mn_jstrip(c, *in->self.u.s, chars, in->how), out);
}

/* how: from the right */
static bool m_split(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr sep;
    const mn_jstr *by = NULL;
    int64_t max;
    if (method_given(in->arg[0])) {
        if (!mn_jarg_str(c, "separator", in->arg[0], &sep))
            return false;
        by = &sep;
    }
    if (!mn_jarg_int(c, "maxsplit", in->arg[1], -1, &max))
        return false;
    return mn_jsplit(c, *in->self.u.s, by, max, in->how, out);
}

/* With a true argument lines keep their ends. */
static bool m_splitlines(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    return mn_jsplitlines(c, *in->self.u.s, mn_jtruth(in->arg[0]), out);
}

/* how: a mn_jcase */
static bool m_case(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    return mn_jcase_of(c, *in->self.u.s, (mn_jcase)in->how, out);
}

static bool m_replace(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr old;
    mn_jstr with;
    int64_t count;
    if (!mn_jarg_str(c, "replace", in->arg[0], &old))
        return false;
    if (!mn_jarg_str(c, "replace", in->arg[1], &with))
        return false;
    if (!mn_jarg_int(c, "count", in->arg[2], -1, &count))
        return false;
    return mn_jreplace(c, *in->self.u.s, old, with, count, out);
}

static bool m_format(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    return mn_jformat(c, *in->self.u.s, in->all, out);
}

/* ---- searching ------------------------------------------------------------------------------- */

/* A position as Python reads it: negative ones count from the end. */
static int64_t from_end(int64_t i, int64_t n) {
    if (i >= 0)
        return i;
    return i < -n ? 0 : i + n;
}

/* The part of s between the characters arg[1] and arg[2]. base: how many characters stand before
 * it; -1 where the part is empty because its start lies behind its end. */
static bool method_window(mn_jctx *c, mn_jstr s, const mn_jval *arg, mn_jstr *part, int64_t *base) {
    const mn_jval a = or_missing(arg[1]);
    const mn_jval b = or_missing(arg[2]);
    int64_t from;
    int64_t to;
    *part = s;
    *base = 0;
    if (a.type == MN_J_MISSING && b.type == MN_J_MISSING)
        return true; // all of it, however long
    const int64_t n = (int64_t)mn_jchars(c, s);
    if (!mn_jarg_int(c, "start", a, 0, &from) || !mn_jarg_int(c, "end", b, n, &to))
        return false;
    from = from_end(from, n);
    to = MN_MIN(from_end(to, n), n);
    if (from > to) {
        part->len = 0;
        *base = -1;
        return true;
    }
    *base = from;
    const size_t at = mn_joffset(c, s, (size_t)from);
    const mn_jstr rest = mn_jstr_slice(s, at, s.len);
    *part = mn_jstr_slice(rest, 0, mn_joffset(c, rest, (size_t)(to - from)));
    return c->status == MN_OK;
}

/* Does s begin (end) with this string? */
static bool has_affix(mn_jctx *c, mn_jstr s, mn_jval with, bool end, bool *yes) {
    mn_jstr w;
    if (!mn_jarg_str(c, end ? "endswith" : "startswith", with, &w))
        return false;
    if (!mn_jcharge(c, MN_J_PER_BYTE, 16 + w.len))
        return false;
    *yes = w.len <= s.len;
    if (!*yes || !w.len)
        return true;
    const char *at = end ? s.ptr + s.len - w.len : s.ptr;
    *yes = !memcmp(at, w.ptr, w.len);
    return true;
}

/* startswith, endswith (how): of a string, or of one of a tuple */
static bool m_affix(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr part = *in->self.u.s;
    const mn_jval with = in->arg[0];
    int64_t base;
    bool yes = false;
    if (!method_window(c, part, in->arg, &part, &base))
        return false;
    if (with.type != MN_J_TUPLE) {
        if (!has_affix(c, part, with, in->how, &yes))
            return false;
        return give_bool(out, yes && base >= 0);
    }
    for (size_t i = 0; !yes && i < with.u.l->n; i++)
        if (!has_affix(c, part, with.u.l->items[i], in->how, &yes))
            return false;
    return give_bool(out, yes && base >= 0);
}

enum { FIND_LAST = 1, FIND_MUST = 2 };

/* find, rfind, index, rindex; how: FIND_ flags */
static bool m_find(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr part = *in->self.u.s;
    mn_jstr what;
    int64_t base;
    size_t at = SIZE_MAX;
    if (!mn_jarg_str(c, "find", in->arg[0], &what) ||
        !method_window(c, part, in->arg, &part, &base))
        return false;
    if (base >= 0 && in->how & FIND_LAST)
        at = mn_jrfind(c, part, what, part.len);
    else if (base >= 0)
        at = mn_jfind(c, part, what, 0);
    if (at == SIZE_MAX && in->how & FIND_MUST)
        return mn_jfail(c, "substring not found");
    if (at == SIZE_MAX)
        *out = mn_j_int(-1);
    else
        *out = mn_j_int(base + (int64_t)mn_jchars(c, mn_jstr_slice(part, 0, at)));
    return c->status == MN_OK;
}

/* Occurrences that do not overlap; of nothing, one more than characters. */
static bool m_count(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr part = *in->self.u.s;
    mn_jstr what;
    int64_t base;
    int64_t n = 0;
    if (!mn_jarg_str(c, "count", in->arg[0], &what))
        return false;
    if (!method_window(c, part, in->arg, &part, &base))
        return false;
    size_t at = base < 0 || !what.len ? SIZE_MAX : mn_jfind(c, part, what, 0);
    if (base >= 0 && !what.len)
        n = (int64_t)mn_jchars(c, part) + 1;
    for (; at != SIZE_MAX; n++)
        at = mn_jfind(c, part, what, at + what.len);
    *out = mn_j_int(n);
    return c->status == MN_OK;
}

/* Strings alone, unlike the filter. */
static bool m_join(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jlist *l;
    mn_jbuf b = {0};
    mn_jstr piece;
    if (!mn_jiterate(c, in->arg[0], &l) || !mn_jcharge(c, MN_J_PER_ITEM, l->n))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        if (!mn_jarg_str(c, "join", l->items[i], &piece))
            return false;
        if (i && !mn_jbuf_put(c, &b, *in->self.u.s))
            return false;
        if (!mn_jbuf_put(c, &b, piece))
            return false;
    }
    return mn_jbuf_value(c, &b, out);
}

/* removeprefix, removesuffix (how) */
static bool m_remove_affix(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jstr s = *in->self.u.s;
    bool yes;
    if (!has_affix(c, s, in->arg[0], in->how, &yes))
        return false;
    *out = in->self;
    if (!yes)
        return true;
    const size_t n = in->arg[0].u.s->len;
    if (in->how)
        return mn_j_string(c, mn_jstr_slice(s, 0, s.len - n), out);
    return mn_j_string(c, mn_jstr_slice(s, n, s.len), out);
}

/* partition, rpartition (how): what stands before, the separator, what stands behind */
static bool m_partition(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jstr s = *in->self.u.s;
    mn_jlist *l = mn_jlist_new(c, 3);
    mn_jstr sep;
    if (!l || !mn_jarg_str(c, "separator", in->arg[0], &sep))
        return false;
    if (!sep.len)
        return mn_jfail(c, "empty separator");
    const size_t found = in->how ? mn_jrfind(c, s, sep, s.len) : mn_jfind(c, s, sep, 0);
    const size_t none = in->how ? 0 : s.len;
    const size_t from = found == SIZE_MAX ? none : found;
    const size_t to = found == SIZE_MAX ? none : found + sep.len;
    const size_t cuts[] = {0, from, to, s.len};
    for (size_t i = 0; i < 3; i++) {
        mn_jval v;
        if (!mn_j_string(c, mn_jstr_slice(s, cuts[i], cuts[i + 1]), &v))
            return false;
        if (!mn_jlist_add(c, l, v))
            return false;
    }
    *out = mn_j_listval(MN_J_TUPLE, l);
    return c->status == MN_OK;
}

/* ---- classes of characters ------------------------------------------------------------------- */

/* Letters and all kinds of numbers. */
static bool alnum(uint32_t u) {
    return mn_jcode_alpha(u) || mn_jcode_numeric(u);
}

enum { IS_DIGIT, IS_ALPHA, IS_ALNUM, IS_SPACE, IS_UPPER, IS_LOWER };

/* Is there a character that passes, and none that does not? With `fail`, what neither passes nor
 * fails is ignored: characters without case. */
static bool m_class(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    static const struct {
        bool (*pass)(uint32_t code);
        bool (*fail)(uint32_t code);
    } classes[] = {
        [IS_DIGIT] = {mn_jcode_digit, NULL},
        [IS_ALPHA] = {mn_jcode_alpha, NULL},
        [IS_ALNUM] = {alnum, NULL},
        [IS_SPACE] = {mn_jcode_space, NULL},
        [IS_UPPER] = {mn_jcode_upper, mn_jcode_lower},
        [IS_LOWER] = {mn_jcode_lower, mn_jcode_upper},
    };
    const mn_jstr s = *in->self.u.s;
    bool any = false;
    bool ok = true;
    if (!mn_jcharge(c, MN_J_PER_CHAR, 2 * s.len))
        return false;
    for (size_t at = 0; ok && at < s.len;) {
        uint32_t u;
        at += mn_jchar(s, at, &u);
        const bool passes = classes[in->how].pass(u);
        any |= passes;
        ok = classes[in->how].fail ? !classes[in->how].fail(u) : passes;
    }
    return give_bool(out, any && ok);
}

/* ---- dicts, lists, numbers ------------------------------------------------------------------- */

enum { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

static bool method_add_pair(mn_jctx *c, mn_jlist *l, const mn_jpair *p) {
    const mn_jval both[] = {p->key, p->value};
    mn_jlist *pair = mn_jlist_new(c, 2);
    if (!pair || !mn_jlist_add_all(c, pair, both, 2))
        return false;
    return mn_jlist_add(c, l, mn_j_listval(MN_J_TUPLE, pair));
}

/* Keys, values or both as a list that prints like Python's view (how). */
static bool m_view(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    const mn_jdict *d = in->self.u.d;
    mn_jlist *l = mn_jlist_new(c, d->n);
    if (!l)
        return false;
    l->name = names[in->how];
    for (size_t i = 0; i < d->n; i++) {
        const mn_jpair *p = &d->items[i];
        const mn_jval one = in->how == VIEW_KEYS ? p->key : p->value;
        if (!(in->how == VIEW_ITEMS ? method_add_pair(c, l, p) : mn_jlist_add(c, l, one)))
            return false;
    }
    *out = mn_j_listval(MN_J_VIEW, l);
    return true;
}

/* Not an error for what is absent, but the default or none. */
static bool m_get(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval *v = mn_jdict_find(c, in->self.u.d, in->arg[0]);
    if (v)
        *out = *v;
    else if (method_given(in->arg[1]))
        *out = in->arg[1];
    else
        *out = mn_j_of(MN_J_NONE);
    return c->status == MN_OK;
}

/* Values do not change: a copy is the value. */
static bool m_copy(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    *out = in->self;
    return c->status == MN_OK;
}

/* How many items equal a value. */
static bool m_list_count(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jlist *l = in->self.u.l;
    int64_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        bool equal;
        if (!mn_jequal(c, l->items[i], in->arg[0], &equal))
            return false;
        n += equal;
    }
    *out = mn_j_int(n);
    return true;
}

/* Where the first item that equals a value stands; it is an error if none does. */
static bool m_list_index(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jlist *l = in->self.u.l;
    const int64_t n = (int64_t)l->n;
    int64_t from;
    int64_t to;
    bool equal = false;
    if (!mn_jarg_int(c, "start", in->arg[1], 0, &from) ||
        !mn_jarg_int(c, "stop", in->arg[2], n, &to))
        return false;
    to = MN_MIN(from_end(to, n), n);
    for (int64_t i = from_end(from, n); i < to && !equal; i++) {
        if (!mn_jequal(c, l->items[i], in->arg[0], &equal))
            return false;
        *out = mn_j_int(i);
    }
    return equal || mn_jfail(c, "value is not in the list");
}

static bool m_is_integer(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const double f = in->self.u.f;
    (void)c;
    return give_bool(out, isfinite(f) && f == floor(f));
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* The argument whose turn it is in this pass. */
static bool m_cycle(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const uint64_t pass = (uint64_t)in->self.u.loop->index0;
    const mn_jargs *all = in->all;
    if (!all->n_pos)
        return mn_jfail(c, "no items for cycling given");
    *out = all->pos[pass % all->n_pos];
    return true;
}

/* Are the arguments others than at the call before? */
static bool m_changed(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jval *before = &in->self.u.loop->changed;
    mn_jlist *l = mn_jlist_new(c, in->all->n_pos);
    bool equal = false;
    if (!l || !mn_jlist_add_all(c, l, in->all->pos, in->all->n_pos))
        return false;
    const mn_jval now = mn_j_listval(MN_J_TUPLE, l);
    if (before->type != MN_J_MISSING && !mn_jequal(c, now, *before, &equal))
        return false;
    *before = now;
    return give_bool(out, !equal);
}

static const mn_jfunc str_methods[] = {
    {"strip", "?chars", m_strip, 3},
    {"lstrip", "?chars", m_strip, 1},
    {"rstrip", "?chars", m_strip, 2},
    {"split", "?sep ?maxsplit", m_split, 0},
    {"rsplit", "?sep ?maxsplit", m_split, 1},
    {"splitlines", "?keepends", m_splitlines, 0},
    {"startswith", "prefix ?start ?end", m_affix, 0},
    {"endswith", "suffix ?start ?end", m_affix, 1},
    {"upper", "", m_case, MN_J_UPPER},
    {"lower", "", m_case, MN_J_LOWER},
    {"title", "", m_case, MN_J_TITLE_METHOD},
    {"capitalize", "", m_case, MN_J_CAPITAL},
    {"replace", "old new ?count", m_replace, 0},
    {"format", NULL, m_format, 0},
    {"find", "sub ?start ?end", m_find, 0},
    {"rfind", "sub ?start ?end", m_find, FIND_LAST},
    {"index", "sub ?start ?end", m_find, FIND_MUST},
    {"rindex", "sub ?start ?end", m_find, FIND_LAST | FIND_MUST},
    {"count", "sub ?start ?end", m_count, 0},
    {"join", "iterable", m_join, 0},
    {"isdigit", "", m_class, IS_DIGIT},
    {"isalpha", "", m_class, IS_ALPHA},
    {"isalnum", "", m_class, IS_ALNUM},
    {"isspace", "", m_class, IS_SPACE},
    {"isupper", "", m_class, IS_UPPER},
    {"islower", "", m_class, IS_LOWER},
    {"removeprefix", "prefix", m_remove_affix, 0},
    {"removesuffix", "suffix", m_remove_affix, 1},
    {"partition", "sep", m_partition, 0},
    {"rpartition", "sep", m_partition, 1},
};
static const mn_jfunc dict_methods[] = {
    {"items", "", m_view, VIEW_ITEMS},
    {"keys", "", m_view, VIEW_KEYS},
    {"values", "", m_view, VIEW_VALUES},
    {"get", "key ?default", m_get, 0},
    {"copy", "", m_copy, 0},
};
static const mn_jfunc list_methods[] = {
    {"count", "value", m_list_count, 0},
    {"index", "value ?start ?stop", m_list_index, 0},
    {"copy", "", m_copy, 0}, // not of a tuple
};
static const mn_jfunc float_methods[] = {{"is_integer", "", m_is_integer, 0}};
static const mn_jfunc loop_methods[] = {{"cycle", NULL, m_cycle, 0},
                                        {"changed", NULL, m_changed, 0}};

const mn_jfunc *mn_jmethod_find(mn_jctx *c, mn_jval v, mn_str name) {
    switch (v.type) {
    case MN_J_STR:
        return mn_jfunc_in(c, str_methods, MN_COUNT(str_methods), name);
    case MN_J_FLOAT:
        return mn_jfunc_in(c, float_methods, MN_COUNT(float_methods), name);
    case MN_J_DICT:
        return mn_jfunc_in(c, dict_methods, MN_COUNT(dict_methods), name);
    case MN_J_LIST:
        return mn_jfunc_in(c, list_methods, MN_COUNT(list_methods), name);
    case MN_J_TUPLE:
        return mn_jfunc_in(c, list_methods, MN_COUNT(list_methods) - 1, name);
    case MN_J_LOOP:
        return mn_jfunc_in(c, loop_methods, MN_COUNT(loop_methods), name);
    default:
        return NULL;
    }
}

bool mn_jmethod_call(mn_jctx *c, const char *name, mn_jval self, const mn_jval *arg, mn_jval *out) {
    const mn_jargs none = {0};
    const mn_jfunc *f = mn_jmethod_find(c, self, mn_str_of(name));
    if (!f)
        return false;
    const mn_jinput in = {self, arg, &none, f->how};
    return f->fn(c, &in, out);
}
