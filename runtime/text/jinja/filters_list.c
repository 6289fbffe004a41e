/* filters_list.c -- filters on lists and dicts. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <string.h>

#define ARGS mn_jctx *c, mn_jval self, const mn_jval *arg, const mn_jargs *all, mn_jval *out

static mn_jval missing(void) {
    return mn_j_of(MN_J_MISSING);
}

/* What sorting compares: the attribute, strings in lower case unless case_sensitive. */
static bool sort_key(mn_jctx *c, mn_jval item, mn_jval path, bool case_sensitive, mn_jval *out) {
    if (!mn_jpath(c, item, path, out))
        return false;
    return case_sensitive || out->type != MN_J_STR || mn_jcase_of(c, *out->u.s, MN_J_LOWER, out);
}

typedef struct {
    mn_jval key, item;
} keyed;

/* Stable; reverse keeps equal items in their order, as Python's sorted. */
static bool merge_sort(mn_jctx *c, keyed *a, size_t n, bool reverse) {
    keyed *b = mn_jalloc(c, n, sizeof *b), *from = a, *to = b;
    if (!b)
        return false;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = MN_MIN(lo + width, n), hi = MN_MIN(lo + 2 * width, n), i = lo, j = mid;
            if (!mn_jcharge(c, MN_J_PER_BYTE, (hi - lo) * sizeof *a))
                return false;
            for (size_t k = lo; k < hi; k++) {
                int order = 0;
                if (i < mid && j < hi && !mn_jcompare(c, from[j].key, from[i].key, &order))
                    return false;
                bool right = i >= mid || (j < hi && (reverse ? order == 1 : order < 0));
                to[k] = right ? from[j++] : from[i++];
            }
        }
        keyed *t = from;
        from = to;
        to = t;
    }
    if (from != a && n)
        memcpy(a, from, n * sizeof *a);
    return true;
}

/* A list of values, of one attribute or of "a,b": equal values are then never asked for their
 * order. */
static bool multi_key(mn_jctx *c, mn_jval item, mn_jval path, bool case_sensitive, mn_jval *out) {
    mn_jval paths, key;
    mn_jstr comma = {",", NULL, 1, 0, false};
    mn_jlist *l = mn_jlist_new(c, 1);
    if (!l)
        return false;
    *out = mn_j_listval(MN_J_LIST, l);
    if (path.type != MN_J_STR)
        return sort_key(c, item, path, case_sensitive, &key) && mn_jlist_add(c, l, key);
    if (!mn_jsplit(c, *path.u.s, &comma, -1, false, &paths))
        return false;
    for (size_t i = 0; i < paths.u.l->n; i++)
        if (!sort_key(c, item, paths.u.l->items[i], case_sensitive, &key) ||
            !mn_jlist_add(c, l, key))
            return false;
    *out = mn_j_listval(MN_J_LIST, l);
    return true;
}

static bool sorted(mn_jctx *c, mn_jval v, mn_jval path, bool case_sensitive, bool reverse,
                   bool by_list, keyed **out, size_t *n) {
    mn_jlist *l;
    if (!mn_jiterate(c, v, &l))
        return false;
    keyed *a = *out = mn_jalloc(c, l->n, sizeof *a);
    if (!a)
        return false;
    *n = l->n;
    for (size_t i = 0; i < l->n; i++) {
        a[i].item = l->items[i];
        if (!(by_list ? multi_key : sort_key)(c, l->items[i], path, case_sensitive, &a[i].key))
            return false;
    }
    return merge_sort(c, a, *n, reverse);
}

static bool as_list(mn_jctx *c, const keyed *a, size_t n, mn_jval *out) {
    mn_jlist *l = mn_jlist_new(c, n);
    if (!l)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!mn_jlist_add(c, l, a[i].item))
            return false;
    *out = mn_j_listval(MN_J_LIST, l);
    return true;
}

static bool f_sort(ARGS) { // reverse case_sensitive attribute
    (void)all;
    keyed *a;
    size_t n;
    return sorted(c, self, arg[2], mn_jtruth(arg[1]), mn_jtruth(arg[0]), true, &a, &n) &&
           as_list(c, a, n, out);
}

static bool f_dictsort(ARGS) { // case_sensitive by reverse
    (void)all;
    keyed *a;
    size_t n;
    mn_jargs none = {0};
    mn_jval items;
    bool by_value = false;
    if (arg[1].type != MN_J_MISSING) {
        mn_jstr by;
        if (!mn_jarg_str(c, "by", arg[1], &by))
            return false;
        by_value = mn_str_is(mn_jstr_bytes(&by), "value");
        if (!by_value && !mn_str_is(mn_jstr_bytes(&by), "key"))
            return mn_jfail(c, "dictsort: by must be 'key' or 'value'");
    }
    if (self.type != MN_J_DICT)
        return mn_jneed_defined(c, self) &&
               mn_jfail(c, "dictsort: a dict is required, not %s", mn_jtype_name(self));
    return mn_jinvoke(c, mn_jmethod_find(c, self, mn_str_of("items")), self, &none, &items) &&
           sorted(c, items, mn_j_int(by_value), mn_jtruth(arg[0]), mn_jtruth(arg[2]), false, &a,
                  &n) &&
           as_list(c, a, n, out);
}

static bool f_groupby(ARGS) { // attribute default case_sensitive
    (void)all;
    mn_jlist *groups = mn_jlist_new(c, 0), *l;
    if (!groups || !mn_jiterate(c, self, &l))
        return false;
    bool cs = mn_jtruth(arg[2]),
         has_default = arg[1].type != MN_J_MISSING && arg[1].type != MN_J_NONE;
    keyed *a = mn_jalloc(c, l->n, sizeof *a);
    if (!a)
        return false;
    for (size_t i = 0; i < l->n; i++) {
        a[i].item = l->items[i];
        if (!sort_key(c, l->items[i], arg[0], cs, &a[i].key))
            return false;
        if (has_default && a[i].key.type == MN_J_UNDEF &&
            !sort_key(c, arg[1], missing(), cs, &a[i].key))
            return false;
    }
    if (!merge_sort(c, a, l->n, false))
        return false;
    for (size_t i = 0, j; i < l->n; i = j) {
        mn_jlist *pair = mn_jlist_new(c, 2), *items = mn_jlist_new(c, 0);
        mn_jval name;
        bool equal = true;
        if (!pair || !items || !mn_jpath(c, a[i].item, arg[0], &name))
            return false;
        if (has_default && name.type == MN_J_UNDEF)
            name = arg[1];
        for (j = i; j < l->n; j++) {
            if (!mn_jequal(c, a[i].key, a[j].key, &equal))
                return false;
            if (!equal)
                break;
            if (!mn_jlist_add(c, items, a[j].item))
                return false;
        }
        pair->name = "group";
        if (!mn_jlist_add(c, pair, name) ||
            !mn_jlist_add(c, pair, mn_j_listval(MN_J_LIST, items)) ||
            !mn_jlist_add(c, groups, mn_j_listval(MN_J_TUPLE, pair)))
            return false;
    }
    *out = mn_j_listval(MN_J_LIST, groups);
    return true;
}

static bool extreme(mn_jctx *c, mn_jval self, const mn_jval *arg, int sign,
                    mn_jval *out) { // case_sensitive attribute
    mn_jlist *l;
    mn_jval best = missing(), key;
    if (!mn_jiterate(c, self, &l))
        return false;
    if (!l->n)
        return mn_j_undefined(c, mn_str_of("the extreme of an empty sequence"), out);
    for (size_t i = 0; i < l->n; i++) {
        int order = sign;
        if (!sort_key(c, l->items[i], arg[1], mn_jtruth(arg[0]), &key))
            return false;
        if (i && !mn_jcompare(c, key, best, &order))
            return false;
        if (order != sign)
            continue;
        best = key;
        *out = l->items[i];
    }
    return true;
}
static bool f_min(ARGS) {
    (void)all;
    return extreme(c, self, arg, -1, out);
}
static bool f_max(ARGS) {
    (void)all;
    return extreme(c, self, arg, 1, out);
}

static bool f_unique(ARGS) { // case_sensitive attribute
    (void)all;
    mn_jlist *l, *kept = mn_jlist_new(c, 0);
    mn_jdict *seen = mn_jdict_new(c);
    mn_jval key;
    if (!kept || !seen || !mn_jiterate(c, self, &l))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        size_t before = seen->n;
        if (!sort_key(c, l->items[i], arg[1], mn_jtruth(arg[0]), &key) ||
            !mn_jdict_set(c, seen, key, key))
            return false;
        if (seen->n > before && !mn_jlist_add(c, kept, l->items[i]))
            return false;
    }
    *out = mn_j_listval(MN_J_ITER, kept);
    return true;
}

static bool f_sum(ARGS) { // attribute start
    (void)all;
    mn_jlist *l;
    mn_jval v, sum = arg[1].type == MN_J_MISSING ? mn_j_int(0) : arg[1];
    if (!mn_jiterate(c, self, &l))
        return false;
    if (sum.type == MN_J_STR)
        return mn_jfail(c, "sum cannot add strings");
    for (size_t i = 0; i < l->n; i++, sum = *out)
        if (!mn_jpath(c, l->items[i], arg[0], &v) || !mn_jbinary(c, MN_T_ADD, sum, v, out))
            return false;
    return *out = sum, true;
}

static bool f_join(ARGS) { // d attribute
    (void)all;
    mn_jlist *l;
    mn_jstr sep = {"", NULL, 0, 0, false};
    mn_jbuf b = {0};
    mn_jval v;
    if (!mn_jiterate(c, self, &l) || (arg[0].type != MN_J_MISSING && !mn_jstr_of(c, arg[0], &sep)))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if ((i && !mn_jbuf_put(c, &b, sep)) || !mn_jpath(c, l->items[i], arg[1], &v) ||
            !mn_jput(c, &b, v))
            return false;
    return mn_jbuf_value(c, &b, out);
}

static bool f_first(ARGS) {
    (void)arg, (void)all;
    mn_jlist *l;
    if (self.type == MN_J_ITER) { // takes one
        mn_jlist *it = self.u.l;
        if (it->pos < it->n)
            return *out = it->items[it->pos++], true;
    } else if (!mn_jiterate(c, self, &l))
        return false;
    else if (l->n)
        return *out = l->items[0], true;
    return mn_j_undefined(c, mn_str_of("the first item of an empty sequence"), out);
}
static bool f_last(ARGS) {
    (void)arg, (void)all;
    mn_jlist *l;
    if (self.type == MN_J_ITER)
        return mn_jfail(c, "last: a generator has no last item; use list first");
    if (!mn_jiterate(c, self, &l))
        return false;
    return l->n ? (*out = l->items[l->n - 1], true)
                : mn_j_undefined(c, mn_str_of("the last item of an empty sequence"), out);
}

static bool f_list(ARGS) {
    (void)arg, (void)all;
    mn_jlist *l;
    if (!mn_jiterate(c, self, &l))
        return false;
    mn_jlist *copy = mn_jlist_new(c, l->n);
    for (size_t i = 0; copy && i < l->n; i++)
        if (!mn_jlist_add(c, copy, l->items[i]))
            return false;
    *out = mn_j_listval(MN_J_LIST, copy);
    return copy != NULL;
}

static bool f_reverse(ARGS) {
    mn_jval list, minus[3] = {mn_j_of(MN_J_NONE), mn_j_of(MN_J_NONE), mn_j_int(-1)};
    if (self.type == MN_J_STR)
        return mn_jslice(c, self, minus, out);
    if (!f_list(c, self, arg, all, &list) || !mn_jslice(c, list, minus, out))
        return false;
    out->type = MN_J_ITER;
    return true;
}

static bool f_items(ARGS) {
    (void)arg;
    if (self.type == MN_J_UNDEF) {
        mn_jlist *l = mn_jlist_new(c, 0);
        *out = mn_j_listval(MN_J_ITER, l);
        return l != NULL;
    }
    if (self.type != MN_J_DICT)
        return mn_jfail(c, "items: a dict is required, not %s", mn_jtype_name(self));
    if (!mn_jinvoke(c, mn_jmethod_find(c, self, mn_str_of("items")), self, all, out))
        return false;
    out->type = MN_J_ITER;
    return true;
}

static bool f_attr(ARGS) { // as v.name, but keys of a dict do not count
    (void)all;
    mn_jstr name;
    if (!mn_jarg_str(c, "attr", arg[0], &name) || !mn_jneed_defined(c, self))
        return false;
    if (self.type == MN_J_DICT && !mn_jmethod_find(c, self, mn_jstr_bytes(&name)))
        return mn_j_undefined(c, mn_jstr_bytes(&name), out);
    return mn_jattr(c, self, mn_jstr_bytes(&name), out);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static bool add_filled(mn_jctx *c, mn_jlist *rows, mn_jlist *row, size_t fill, mn_jval with) {
    for (size_t i = 0; i < fill; i++)
        if (!mn_jlist_add(c, row, with))
            return false;
    return mn_jlist_add(c, rows, mn_j_listval(MN_J_LIST, row));
}

/* As Jinja2 counts: a row is given when the next item comes and it is full, so that 0 gives an
 * empty one first. */
static bool f_batch(ARGS) { // linecount fill_with
    (void)all;
    mn_jlist *l, *rows = mn_jlist_new(c, 0), *row = mn_jlist_new(c, 0);
    int64_t size;
    if (!rows || !row || !mn_jarg_int(c, "linecount", arg[0], 1, &size) ||
        !mn_jiterate(c, self, &l))
        return false;
    bool fill = arg[1].type != MN_J_MISSING && arg[1].type != MN_J_NONE;
    for (size_t i = 0; i < l->n; i++) {
        if ((int64_t)row->n == size &&
            (!mn_jlist_add(c, rows, mn_j_listval(MN_J_LIST, row)) || !(row = mn_jlist_new(c, 0))))
            return false;
        if (!mn_jlist_add(c, row, l->items[i]))
            return false;
    }
    size_t lacks = fill && (int64_t)row->n < size ? (size_t)size - row->n : 0;
    if (row->n && !add_filled(c, rows, row, lacks, arg[1]))
        return false;
    *out = mn_j_listval(MN_J_ITER, rows);
    return true;
}

static bool f_slice(ARGS) { // slices fill_with
    (void)all;
    mn_jlist *l, *rows = mn_jlist_new(c, 0);
    int64_t slices;
    if (!rows || !mn_jarg_int(c, "slices", arg[0], 1, &slices) || !mn_jiterate(c, self, &l))
        return false;
    if (slices < 1)
        return mn_jfail(c, "slice: slices must be positive");
    size_t per = l->n / (size_t)slices, extra = l->n % (size_t)slices, at = 0;
    bool fill = arg[1].type != MN_J_MISSING && arg[1].type != MN_J_NONE;
    for (size_t s = 0; s < (size_t)slices; s++) {
        mn_jlist *row = mn_jlist_new(c, 0);
        for (size_t end = at + per + (s < extra); row && at < end; at++)
            if (!mn_jlist_add(c, row, l->items[at]))
                return false;
        if (!row || !add_filled(c, rows, row, fill && s >= extra, arg[1]))
            return false;
    }
    *out = mn_j_listval(MN_J_ITER, rows);
    return true;
}

/* ---- map, select, reject --------------------------------------------------------------------- */

static const mn_jval *keyword(mn_jctx *c, const mn_jargs *all, const char *name) {
    for (size_t i = 0; i < all->n_kw; i++)
        if (mn_jsame(c, mn_jstr_bytes(all->kw[i].key.u.s), mn_str_of(name)))
            return &all->kw[i].value;
    return NULL;
}

/* As in Jinja2, these three take anything that is false for an empty list: a tool list that is
 * none. */
static bool items_or_none(mn_jctx *c, mn_jval v, mn_jlist **l) {
    return mn_jtruth(v) ? mn_jiterate(c, v, l) : (*l = mn_jlist_new(c, 0)) != NULL;
}

static bool f_map(ARGS) {
    (void)arg;
    const mn_jval *path = keyword(c, all, "attribute"), *otherwise = keyword(c, all, "default");
    mn_jlist *l, *mapped = mn_jlist_new(c, 0);
    mn_jval v;
    const mn_jfunc *f = NULL;
    mn_jargs rest = {0};
    if (all->n_pos) {
        mn_jstr name;
        if (!mn_jarg_str(c, "map", all->pos[0], &name))
            return false;
        if (!(f = mn_jfilter_find(c, mn_jstr_bytes(&name))))
            return mn_jfail(c, "no filter named '%.*s'", MN_STR_ARG(mn_jstr_bytes(&name)));
        rest = (mn_jargs){all->pos + 1, all->n_pos - 1, all->kw, all->n_kw};
    } else if (!path)
        return mn_jfail(c, "map requires a filter argument");
    else if (all->n_kw > 1u + (otherwise != NULL))
        return mn_jfail(c, "map: unexpected argument beside attribute and default");
    if (!mapped || !items_or_none(c, self, &l) || !mn_jenter(c))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        if (!(f ? mn_jinvoke(c, f, l->items[i], &rest, &v) : mn_jpath(c, l->items[i], *path, &v)))
            return false;
        if (!f && otherwise && otherwise->type != MN_J_NONE && v.type == MN_J_UNDEF)
            v = *otherwise;
        if (!mn_jlist_add(c, mapped, v))
            return false;
    }
    mn_jleave(c);
    *out = mn_j_listval(MN_J_ITER, mapped);
    return true;
}

static bool choose(mn_jctx *c, mn_jval self, const mn_jargs *all, bool by_attr, bool want,
                   mn_jval *out) {
    mn_jlist *l, *kept = mn_jlist_new(c, 0);
    mn_jval path = missing(), v, pass;
    mn_jargs rest = *all;
    const mn_jfunc *test = NULL;
    if (by_attr) {
        if (!rest.n_pos)
            return mn_jfail(c, "an attribute name is required");
        path = *rest.pos++;
        rest.n_pos--;
    }
    if (rest.n_pos) {
        mn_jstr name;
        if (!mn_jarg_str(c, "test", *rest.pos++, &name))
            return false;
        rest.n_pos--;
        if (!(test = mn_jtest_find(c, mn_jstr_bytes(&name))))
            return mn_jfail(c, "no test named '%.*s'", MN_STR_ARG(mn_jstr_bytes(&name)));
    }
    if (!kept || !items_or_none(c, self, &l))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        if (!mn_jpath(c, l->items[i], path, &v))
            return false;
        pass = v;
        if (test && !mn_jinvoke(c, test, v, &rest, &pass))
            return false;
        if (mn_jtruth(pass) == want && !mn_jlist_add(c, kept, l->items[i]))
            return false;
    }
    *out = mn_j_listval(MN_J_ITER, kept);
    return true;
}
static bool f_select(ARGS) {
    (void)arg;
    return choose(c, self, all, false, true, out);
}
static bool f_reject(ARGS) {
    (void)arg;
    return choose(c, self, all, false, false, out);
}
static bool f_selectattr(ARGS) {
    (void)arg;
    return choose(c, self, all, true, true, out);
}
static bool f_rejectattr(ARGS) {
    (void)arg;
    return choose(c, self, all, true, false, out);
}

static const mn_jfunc filters[] = {
    {"attr", "name", f_attr},
    {"batch", "linecount ?fill_with", f_batch},
    {"dictsort", "?case_sensitive ?by ?reverse", f_dictsort},
    {"first", "", f_first},
    {"groupby", "attribute ?default ?case_sensitive", f_groupby},
    {"items", "", f_items},
    {"join", "?d ?attribute", f_join},
    {"last", "", f_last},
    {"list", "", f_list},
    {"map", NULL, f_map},
    {"max", "?case_sensitive ?attribute", f_max},
    {"min", "?case_sensitive ?attribute", f_min},
    {"reject", NULL, f_reject},
    {"rejectattr", NULL, f_rejectattr},
    {"reverse", "", f_reverse},
    {"select", NULL, f_select},
    {"selectattr", NULL, f_selectattr},
    {"slice", "slices ?fill_with", f_slice},
    {"sort", "?reverse ?case_sensitive ?attribute", f_sort},
    {"sum", "?attribute ?start", f_sum},
    {"unique", "?case_sensitive ?attribute", f_unique},
};

const mn_jfunc *mn_jlist_filter_find(mn_jctx *c, mn_str name) {
    return mn_jfunc_in(c, filters, MN_COUNT(filters), name);
}
