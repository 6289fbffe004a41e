/* filters_list.c -- filters on lists and dicts, as Jinja2 defines them. What is lazy there is done
 * at once here; the result still is a generator (MN_J_ITER), which has no length and is used up by
 * the first that walks it. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <string.h>

/* For functions whose last act is a result. */
static bool list_filter_give(mn_jval *out, mn_jval v) {
    *out = v;
    return true;
}

static bool give_list(mn_jval *out, mn_jtype type, mn_jlist *l) {
    *out = mn_j_listval(type, l);
    return l != NULL;
}

/* ---- sorting --------------------------------------------------------------------------------- */

/* What sorting compares: the attribute, strings in lower case unless case_sensitive. */
static bool sort_key(mn_jctx *c, mn_jval item, mn_jval path, bool case_sensitive, mn_jval *out) {
    if (!mn_jpath(c, item, path, out))
        return false;
    if (case_sensitive || out->type != MN_J_STR)
        return true;
    return mn_jcase_of(c, *out->u.s, MN_J_LOWER, out);
}

/* The same as a list of one value, or of several for the path "a,b": equal values are then never
 * asked for their order. */
static bool multi_key(mn_jctx *c, mn_jval item, mn_jval path, bool case_sensitive, mn_jval *out) {
    const mn_jstr comma = mn_jstr_z(",");
    mn_jval paths;
    mn_jval key;
    mn_jlist *l = mn_jlist_new(c, 1);
    if (!give_list(out, MN_J_LIST, l))
        return false;
    if (path.type != MN_J_STR)
        return sort_key(c, item, path, case_sensitive, &key) && mn_jlist_add(c, l, key);
    if (!mn_jsplit(c, *path.u.s, &comma, -1, false, &paths))
        return false;
    for (size_t i = 0; i < paths.u.l->n; i++) {
        if (!sort_key(c, item, paths.u.l->items[i], case_sensitive, &key))
            return false;
        if (!mn_jlist_add(c, l, key))
            return false;
    }
    return true;
}

/* Merges the sorted from[lo..mid) and from[mid..hi) into to[lo..hi). */
static bool list_filter_merge(mn_jctx *c, const mn_jpair *from, mn_jpair *to, const size_t at[3],
                              bool reverse) {
    size_t left = at[0];
    size_t right = at[1];
    for (size_t k = at[0]; k < at[2]; k++) {
        const bool both = left < at[1] && right < at[2];
        int order = 0;
        if (both && !mn_jcompare(c, from[right].key, from[left].key, &order))
            return false;
        bool take_right = left >= at[1];
        if (both)
            take_right = order == (reverse ? 1 : -1);
        to[k] = take_right ? from[right++] : from[left++];
    }
    return true;
}

/* Merge sort from the bottom up, between the array and a second one. */
bool mn_jsort(mn_jctx *c, mn_jpair *a, size_t n, bool reverse) {
    mn_jpair *from = a;
    mn_jpair *to = mn_jalloc(c, n, sizeof *to);
    if (!to)
        return false;
    for (size_t width = 1; width < n; width *= 2) {
        if (!mn_jcharge(c, MN_J_PER_BYTE, n * sizeof *a))
            return false;
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            const size_t at[3] = {lo, MN_MIN(lo + width, n), MN_MIN(lo + 2 * width, n)};
            if (!list_filter_merge(c, from, to, at, reverse))
                return false;
        }
        mn_jpair *t = from;
        from = to;
        to = t;
    }
    if (from != a && n)
        memcpy(a, from, n * sizeof *a);
    return true;
}

typedef struct {
    mn_jval path;
    bool case_sensitive, reverse;
    bool one_key; /* of each item; else a list of them */
} sorting;

/* The items of v, sorted, as a list. */
static bool sorted(mn_jctx *c, mn_jval v, const sorting *how, mn_jval *out) {
    bool (*key_of)(mn_jctx *, mn_jval, mn_jval, bool, mn_jval *) =
        how->one_key ? sort_key : multi_key;
    mn_jlist *l;
    if (!mn_jiterate(c, v, &l))
        return false;
    mn_jpair *a = mn_jalloc(c, l->n, sizeof *a);
    if (!a)
        return false;
    for (size_t i = 0; i < l->n; i++) {
        const mn_jval item = l->items[i];
        a[i].value = item;
        if (!key_of(c, item, how->path, how->case_sensitive, &a[i].key))
            return false;
    }
    if (!mn_jsort(c, a, l->n, how->reverse))
        return false;
    mn_jlist *kept = mn_jlist_new(c, l->n);
    for (size_t i = 0; kept && i < l->n; i++)
        if (!mn_jlist_add(c, kept, a[i].value))
            return false;
    return give_list(out, MN_J_LIST, kept);
}

/* Of anything that can be walked; the result is a list. */
static bool f_sort(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const sorting how = {.path = in->arg[2],
                         .case_sensitive = mn_jtruth(in->arg[1]),
                         .reverse = mn_jtruth(in->arg[0])};
    return sorted(c, in->self, &how, out);
}

/* Pairs of a dict, by key or value. */
static bool f_dictsort(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr by = mn_jstr_z("key");
    mn_jval items;
    if (in->arg[1].type != MN_J_MISSING && !mn_jarg_str(c, "by", in->arg[1], &by))
        return false;
    const bool by_value = mn_str_is(mn_jstr_bytes(&by), "value");
    if (!by_value && !mn_str_is(mn_jstr_bytes(&by), "key"))
        return mn_jfail(c, "dictsort: by must be 'key' or 'value'");
    if (in->self.type != MN_J_DICT)
        return mn_jwrong_type(c, "dictsort", in->self, "a dict");
    const sorting how = {.path = mn_j_int(by_value),
                         .case_sensitive = mn_jtruth(in->arg[0]),
                         .reverse = mn_jtruth(in->arg[2]),
                         .one_key = true};
    if (!mn_jmethod_call(c, "items", in->self, NULL, &items))
        return false;
    return sorted(c, items, &how, out);
}

/* min, max; how: the order of a better item to the best one */
static bool f_extreme(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const bool case_sensitive = mn_jtruth(in->arg[0]);
    mn_jlist *l;
    mn_jval best = mn_j_of(MN_J_MISSING);
    mn_jval key;
    if (!mn_jiterate(c, in->self, &l))
        return false;
    if (!l->n)
        return mn_j_undefined(c, mn_str_of("the extreme of an empty sequence"), out);
    for (size_t i = 0; i < l->n; i++) {
        int order = in->how;
        if (!sort_key(c, l->items[i], in->arg[1], case_sensitive, &key))
            return false;
        if (i && !mn_jcompare(c, key, best, &order))
            return false;
        if (order != in->how)
            continue;
        best = key;
        *out = l->items[i];
    }
    return true;
}

/* Of items that compare equal the first. */
static bool f_unique(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const bool case_sensitive = mn_jtruth(in->arg[0]);
    mn_jlist *l;
    mn_jlist *kept = mn_jlist_new(c, 0);
    mn_jdict *seen = mn_jdict_new(c);
    if (!kept || !seen || !mn_jiterate(c, in->self, &l))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        const size_t before = seen->n;
        mn_jval key;
        if (!sort_key(c, l->items[i], in->arg[1], case_sensitive, &key) ||
            !mn_jdict_set(c, seen, key, key))
            return false;
        if (seen->n > before && !mn_jlist_add(c, kept, l->items[i]))
            return false;
    }
    return give_list(out, MN_J_ITER, kept);
}

/* ---- whole lists ----------------------------------------------------------------------------- */

/* Not of strings, as in Python. */
static bool f_sum(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jlist *l;
    mn_jval sum = in->arg[1];
    if (sum.type == MN_J_MISSING)
        sum = mn_j_int(0);
    if (!mn_jiterate(c, in->self, &l))
        return false;
    if (sum.type == MN_J_STR)
        return mn_jfail(c, "sum cannot add strings");
    for (size_t i = 0; i < l->n; i++) {
        mn_jval v;
        if (!mn_jpath(c, l->items[i], in->arg[0], &v) || !mn_jbinary(c, MN_T_ADD, sum, v, out))
            return false;
        sum = *out;
    }
    return list_filter_give(out, sum);
}

/* The text of all items. */
static bool f_join(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jlist *l;
    mn_jstr sep = mn_jstr_z("");
    mn_jbuf b = {0};
    if (!mn_jiterate(c, in->self, &l))
        return false;
    if (in->arg[0].type != MN_J_MISSING && !mn_jstr_of(c, in->arg[0], &sep))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        mn_jval v;
        if (i && !mn_jbuf_put(c, &b, sep))
            return false;
        if (!mn_jpath(c, l->items[i], in->arg[1], &v) || !mn_jput(c, &b, v))
            return false;
    }
    return mn_jbuf_value(c, &b, out);
}

/* Of a generator it takes one away. */
static bool f_first(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jlist *l = in->self.u.l;
    if (in->self.type == MN_J_ITER) { // takes one
        if (l->pos < l->n)
            return list_filter_give(out, l->items[l->pos++]);
    } else if (!mn_jiterate(c, in->self, &l))
        return false;
    else if (l->n)
        return list_filter_give(out, l->items[0]);
    return mn_j_undefined(c, mn_str_of("the first item of an empty sequence"), out);
}

/* A generator has no last item before it is used up. */
static bool f_last(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jlist *l;
    if (in->self.type == MN_J_ITER)
        return mn_jfail(c, "last: a generator has no last item; use list first");
    if (!mn_jiterate(c, in->self, &l))
        return false;
    if (l->n)
        return list_filter_give(out, l->items[l->n - 1]);
    return mn_j_undefined(c, mn_str_of("the last item of an empty sequence"), out);
}

/* Always a new list. */
static bool f_list(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jlist *l;
    if (!mn_jiterate(c, in->self, &l))
        return false;
    mn_jlist *copy = mn_jlist_new(c, l->n);
    if (copy && !mn_jlist_add_all(c, copy, l->items, l->n))
        return false;
    return give_list(out, MN_J_LIST, copy);
}

/* Of a string a string, else a generator. */
static bool f_reverse(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval backwards[3] = {mn_j_of(MN_J_NONE), mn_j_of(MN_J_NONE), mn_j_int(-1)};
    mn_jval list;
    if (in->self.type == MN_J_STR)
        return mn_jslice(c, in->self, backwards, out);
    if (!f_list(c, in, &list) || !mn_jslice(c, list, backwards, out))
        return false;
    out->type = MN_J_ITER;
    return true;
}

/* Pairs of a dict; undefined has none. */
static bool f_items(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    if (in->self.type == MN_J_UNDEF)
        return give_list(out, MN_J_ITER, mn_jlist_new(c, 0));
    if (in->self.type != MN_J_DICT)
        return mn_jfail(c, "items: a dict is required, not %s", mn_jtype_name(in->self));
    if (!mn_jmethod_call(c, "items", in->self, NULL, out))
        return false;
    out->type = MN_J_ITER;
    return true;
}

/* As v.name, but keys of a dict do not count. */
static bool f_attr(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval v = in->self;
    mn_jstr name;
    if (!mn_jarg_str(c, "attr", in->arg[0], &name) || !mn_jneed_defined(c, v))
        return false;
    const mn_str bytes = mn_jstr_bytes(&name);
    const bool is_key = v.type == MN_J_DICT && !mn_jmethod_find(c, v, bytes);
    if (is_key)
        return mn_j_undefined(c, bytes, out);
    return mn_jattr(c, v, bytes, out);
}

/* ---- map, select, reject --------------------------------------------------------------------- */

/* The argument of this name, NULL = not given. */
static const mn_jval *keyword(mn_jctx *c, const mn_jargs *all, const char *name) {
    const mn_str wanted = mn_str_of(name);
    for (size_t i = 0; i < all->n_kw; i++) {
        const mn_jpair *kw = &all->kw[i];
        if (mn_jsame(c, mn_jstr_bytes(kw->key.u.s), wanted))
            return &kw->value;
    }
    return NULL;
}

/* As in Jinja2, these filters take anything that is false for an empty list: a tool list that is
 * none. */
static bool items_or_none(mn_jctx *c, mn_jval v, mn_jlist **l) {
    if (mn_jtruth(v))
        return mn_jiterate(c, v, l);
    *l = mn_jlist_new(c, 0);
    return *l != NULL;
}

/* The first of the positional arguments, which it removes from them: a filter's or test's name. */
static bool named_first(mn_jctx *c, mn_jargs *args, const char *what,
                        const mn_jfunc *(*find)(mn_jctx *, mn_str), const mn_jfunc **out) {
    mn_jstr name;
    if (!mn_jarg_str(c, what, args->pos[0], &name))
        return false;
    args->pos++;
    args->n_pos--;
    *out = find(c, mn_jstr_bytes(&name));
    return *out || mn_jfail(c, "no %s named '%.*s'", what, MN_STR_ARG(name));
}

/* map(filter, its arguments...), map(attribute=path, default=value) */
static bool f_map(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval *path = keyword(c, in->all, "attribute");
    const mn_jval *otherwise = keyword(c, in->all, "default");
    const size_t n_known = 1u + (otherwise != NULL);
    const bool has_default = otherwise && otherwise->type != MN_J_NONE;
    mn_jargs rest = *in->all;
    const mn_jfunc *f = NULL;
    mn_jlist *l;
    mn_jlist *mapped = mn_jlist_new(c, 0);
    if (rest.n_pos && !named_first(c, &rest, "filter", mn_jfilter_find, &f))
        return false;
    if (!f && !path)
        return mn_jfail(c, "map requires a filter argument");
    if (!f && rest.n_kw > n_known)
        return mn_jfail(c, "map: unexpected argument beside attribute and default");
    if (!mapped || !items_or_none(c, in->self, &l) || !mn_jenter(c))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        const mn_jval item = l->items[i];
        mn_jval v;
        if (!(f ? mn_jinvoke(c, f, item, &rest, &v) : mn_jpath(c, item, *path, &v)))
            return false;
        if (!f && has_default && v.type == MN_J_UNDEF)
            v = *otherwise;
        if (!mn_jlist_add(c, mapped, v))
            return false;
    }
    mn_jleave(c);
    return give_list(out, MN_J_ITER, mapped);
}

enum { CHOOSE_PASSING = 1, CHOOSE_BY_ATTR = 2 };

/* select, reject, selectattr, rejectattr; how: CHOOSE_ flags */
static bool f_choose(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const bool want = in->how & CHOOSE_PASSING;
    mn_jval path = mn_j_of(MN_J_MISSING);
    mn_jargs rest = *in->all;
    const mn_jfunc *test = NULL;
    mn_jlist *l;
    mn_jlist *kept = mn_jlist_new(c, 0);
    if (in->how & CHOOSE_BY_ATTR) {
        if (!rest.n_pos)
            return mn_jfail(c, "an attribute name is required");
        path = *rest.pos++;
        rest.n_pos--;
    }
    if (rest.n_pos && !named_first(c, &rest, "test", mn_jtest_find, &test))
        return false;
    if (!kept || !items_or_none(c, in->self, &l))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        mn_jval v;
        if (!mn_jpath(c, l->items[i], path, &v))
            return false;
        mn_jval pass = v;
        if (test && !mn_jinvoke(c, test, v, &rest, &pass))
            return false;
        if (mn_jtruth(pass) == want && !mn_jlist_add(c, kept, l->items[i]))
            return false;
    }
    return give_list(out, MN_J_ITER, kept);
}

static const mn_jfunc filters[] = {
    {"attr", "name", f_attr, 0},
    {"dictsort", "?case_sensitive ?by ?reverse", f_dictsort, 0},
    {"first", "", f_first, 0},
    {"items", "", f_items, 0},
    {"join", "?d ?attribute", f_join, 0},
    {"last", "", f_last, 0},
    {"list", "", f_list, 0},
    {"map", NULL, f_map, 0},
    {"max", "?case_sensitive ?attribute", f_extreme, 1},
    {"min", "?case_sensitive ?attribute", f_extreme, -1},
    {"reject", NULL, f_choose, 0},
    {"rejectattr", NULL, f_choose, CHOOSE_BY_ATTR},
    {"reverse", "", f_reverse, 0},
    {"select", NULL, f_choose, CHOOSE_PASSING},
    {"selectattr", NULL, f_choose, CHOOSE_PASSING | CHOOSE_BY_ATTR},
    {"sort", "?reverse ?case_sensitive ?attribute", f_sort, 0},
    {"sum", "?attribute ?start", f_sum, 0},
    {"unique", "?case_sensitive ?attribute", f_unique, 0},
};

const mn_jfunc *mn_jlist_filter_find(mn_jctx *c, mn_str name) {
    return mn_jfunc_in(c, filters, MN_COUNT(filters), name);
}
