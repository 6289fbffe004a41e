/* access.c -- attributes, subscripts, slices, calls: what Python does when a template reaches into
 * a value. What is absent is undefined, and only using that is an error; reaching into what is
 * undefined is.
 *
 * Functions of the tables (methods.c, filters.c, builtins.c) are called here: their arguments are
 * bound to the names in their row. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <string.h>

/* A row of a table by its name; NULL = none, or the work is used up. */
const mn_jfunc *mn_jfunc_in(mn_jctx *c, const mn_jfunc *table, size_t n, mn_str name) {
    size_t i = 0;
    while (i < n && !mn_str_is(name, table[i].name))
        i++;
    if (!mn_jcharge(c, MN_J_PER_SLOT, i))
        return NULL;
    return i < n ? &table[i] : NULL;
}

/* v.method without a call: a value that remembers v. */
static bool bound_method(mn_jctx *c, mn_jval self, const mn_jfunc *f, mn_jval *out) {
    struct mn_jmethod *m = mn_jalloc(c, 1, sizeof *m);
    if (!m)
        return false;
    *m = (struct mn_jmethod){self, f};
    out->type = MN_J_METHOD;
    out->u.method = m;
    return true;
}

/* An attribute in Python's sense: methods, namespace entries, loop variables. *found = false: there
 * is none. */
static bool own_attr(mn_jctx *c, mn_jval v, mn_str name, bool *found, mn_jval *out) {
    *found = true;
    if (v.type == MN_J_NAMESPACE) {
        const mn_jval *entry = mn_jdict_name(c, v.u.d, name);
        if (entry)
            *out = *entry;
        *found = entry != NULL;
        return c->status == MN_OK;
    }
    if (v.type == MN_J_LOOP) {
        if (!mn_jloop_attr(c, v, name, found, out))
            return false;
        if (*found)
            return true;
    }
    if (v.type == MN_J_MACRO && mn_str_is(name, "name"))
        return mn_j_string(c, mn_jstr_plain(v.u.macro->node->name), out);
    const mn_jfunc *f = mn_jmethod_find(c, v, name);
    *found = f != NULL;
    return f ? bound_method(c, v, f, out) : c->status == MN_OK;
}

/* A dict's methods come before its keys, as in Jinja2: d.items is the method. */
bool mn_jattr(mn_jctx *c, mn_jval v, mn_str name, mn_jval *out) {
    bool found;
    if (!mn_jneed_defined(c, v) || !own_attr(c, v, name, &found, out))
        return false;
    if (found)
        return true;
    const mn_jval *entry = v.type == MN_J_DICT ? mn_jdict_name(c, v.u.d, name) : NULL;
    if (!entry)
        return mn_j_undefined(c, name, out);
    *out = *entry;
    return true;
}

/* What has items in an order. */
static bool sliceable(mn_jval v) {
    return v.type == MN_J_STR || v.type == MN_J_LIST || v.type == MN_J_TUPLE ||
           v.type == MN_J_RANGE;
}

/* v[i] of what has an order; *found = false: past its ends. Negative indices count from the end. */
static bool access_index_of(mn_jctx *c, mn_jval v, int64_t i, mn_jval *out, bool *found) {
    int64_t n = 0;
    uint32_t u;
    if (!mn_jlength(c, v, &n))
        return false;
    if (i < 0)
        i += n;
    *found = i >= 0 && i < n;
    if (!*found)
        return true;
    if (v.type != MN_J_STR) {
        *out = v.u.l->items[i];
        return true;
    }
    const mn_jstr s = *v.u.s;
    const size_t at = mn_joffset(c, s, (size_t)i);
    if (c->status != MN_OK)
        return false;
    return mn_j_string(c, mn_jstr_slice(s, at, at + mn_jchar(s, at, &u)), out);
}

/* A dict's keys come before its methods; nothing that is absent is an error, but undefined. */
bool mn_jitem(mn_jctx *c, mn_jval v, mn_jval key, mn_jval *out) {
    const bool named = key.type == MN_J_STR;
    bool found = false;
    if (!mn_jneed_defined(c, v))
        return false;
    if (v.type == MN_J_DICT) {
        const mn_jval *entry = mn_jdict_find(c, v.u.d, key);
        if (c->status != MN_OK)
            return false;
        if (entry)
            *out = *entry;
        found = entry != NULL;
    } else if (sliceable(v) && mn_j_is_int(key)) {
        if (!access_index_of(c, v, mn_j_as_int(key), out, &found))
            return false;
    }
    if (!found && named && !own_attr(c, v, mn_jstr_bytes(key.u.s), &found, out))
        return false;
    if (found)
        return true;
    return mn_j_undefined(c, named ? mn_jstr_bytes(key.u.s) : mn_str_of("item"), out);
}

/* ---- slices ---------------------------------------------------------------------------------- */

typedef struct {
    int64_t from, to, step; /* to: not included */
} slice;

static bool goes_on(const slice *w, int64_t i) {
    return w->step > 0 ? i < w->to : i > w->to;
}

/* A part of a slice that is left out is NONE. */
static bool slice_part(mn_jctx *c, mn_jval v, int64_t otherwise, int64_t *out) {
    if (v.type != MN_J_NONE && !mn_j_is_int(v))
        return mn_jwrong_type(c, "a part of a slice", v, "an integer");
    *out = v.type == MN_J_NONE ? otherwise : mn_j_as_int(v);
    return true;
}

/* An index as Python clamps it: n, or with a negative step n - 1, for what is past the end. */
static int64_t access_clamp(int64_t i, int64_t n, int64_t step) {
    const int64_t lowest = step < 0 ? -1 : 0;
    const int64_t highest = step < 0 ? n - 1 : n;
    if (i < -n)
        return lowest;
    if (i < 0)
        i += n;
    return MN_MIN(i, highest);
}

/* From one character position to another; the step is 1. */
static bool cut_str(mn_jctx *c, mn_jstr s, int64_t from, int64_t to, mn_jval *out) {
    const mn_jstr rest = mn_jstr_slice(s, mn_joffset(c, s, (size_t)from), s.len);
    const size_t len = to > from ? mn_joffset(c, rest, (size_t)(to - from)) : 0;
    return mn_j_string(c, mn_jstr_slice(rest, 0, len), out);
}

/* from, to: character positions within the n of s. */
static bool slice_str(mn_jctx *c, mn_jstr s, const slice *w, int64_t n, mn_jval *out) {
    mn_jbuf b = {0};
    if (w->step == 1)
        return cut_str(c, s, w->from, w->to, out);
    size_t *at = mn_jalloc(c, (size_t)n + 1, sizeof *at); // offsets of all characters
    if (!at || !mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return false;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        at[i + 1] = at[i] + mn_jchar(s, at[i], &u);
    }
    for (int64_t i = w->from; goes_on(w, i);) {
        if (!mn_jbuf_put(c, &b, mn_jstr_slice(s, at[i], at[i + 1])))
            return false;
        if (__builtin_add_overflow(i, w->step, &i))
            break;
    }
    return mn_jbuf_value(c, &b, out);
}

/* Reads the three parts, for a value of this length. */
static bool read_slice(mn_jctx *c, const mn_jval part[3], int64_t n, slice *w) {
    if (!slice_part(c, part[2], 1, &w->step))
        return false;
    if (w->step == 0)
        return mn_jfail(c, "slice step cannot be zero");
    const bool back = w->step < 0;
    if (!slice_part(c, part[0], back ? INT64_MAX : 0, &w->from) ||
        !slice_part(c, part[1], back ? INT64_MIN : INT64_MAX, &w->to))
        return false;
    w->from = access_clamp(w->from, n, w->step);
    w->to = access_clamp(w->to, n, w->step);
    return true;
}

/* A slice of a range is a range. */
static bool slice_list(mn_jctx *c, mn_jval v, const slice *w, mn_jval *out) {
    const int64_t *r = v.u.l->range;
    mn_jlist *l = mn_jlist_new(c, 0);
    if (!l)
        return false;
    for (int64_t i = w->from; goes_on(w, i);) {
        if (!mn_jlist_add(c, l, v.u.l->items[i]))
            return false;
        if (__builtin_add_overflow(i, w->step, &i))
            break;
    }
    if (v.type == MN_J_RANGE) { // again one; few items: its numbers are small
        l->range[0] = r[0] + w->from * r[2];
        l->range[1] = r[0] + w->to * r[2];
        l->range[2] = r[2] * w->step;
    }
    *out = mn_j_listval(v.type, l);
    return true;
}

bool mn_jslice(mn_jctx *c, mn_jval v, const mn_jval part[3], mn_jval *out) {
    int64_t n;
    slice w = {0};
    if (!mn_jneed_defined(c, v))
        return false;
    if (!sliceable(v))
        return mn_jfail(c, "'%s' object cannot be sliced", mn_jtype_name(v));
    if (!mn_jlength(c, v, &n) || !read_slice(c, part, n, &w))
        return false;
    if (v.type == MN_J_STR)
        return slice_str(c, *v.u.s, &w, n, out);
    return slice_list(c, v, &w, out);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The names in a row's params; *required: how many come before the first optional one. */
static size_t param_names(const char *params, mn_str names[MN_J_MAX_PARAMS], size_t *required) {
    size_t n = 0;
    *required = 0;
    for (const char *p = params; *p && n < MN_J_MAX_PARAMS; n++) {
        bool optional = *p == '?';
        p += optional;
        size_t len = strcspn(p, " ");
        names[n] = (mn_str){p, len};
        if (!optional)
            *required = n + 1;
        p += len;
        p += *p == ' ';
    }
    return n;
}

/* Arguments by position and by name to the parameters that f names. */
static bool bind_args(mn_jctx *c, const mn_jfunc *f, const mn_jargs *args,
                      mn_jval bound[MN_J_MAX_PARAMS]) {
    mn_str names[MN_J_MAX_PARAMS];
    size_t required;
    const size_t n = param_names(f->params, names, &required);
    if (args->n_pos > n)
        return mn_jfail(c, "%s takes at most %zu arguments, %zu given", f->name, n, args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++)
        bound[i] = args->pos[i];
    for (size_t k = 0; k < args->n_kw; k++) {
        const mn_str key = mn_jstr_bytes(args->kw[k].key.u.s);
        size_t i = 0;
        while (i < n && !mn_str_eq(names[i], key))
            i++;
        if (i == n || bound[i].type != MN_J_MISSING)
            return mn_jfail(c, "%s: unexpected argument '%.*s'", f->name, MN_STR_ARG(key));
        bound[i] = args->kw[k].value;
    }
    for (size_t i = 0; i < required; i++)
        if (bound[i].type == MN_J_MISSING)
            return mn_jfail(c, "%s: argument '%.*s' is missing", f->name, MN_STR_ARG(names[i]));
    return true;
}

/* Calls a row's function with its arguments bound. */
bool mn_jinvoke(mn_jctx *c, const mn_jfunc *f, mn_jval self, const mn_jargs *args, mn_jval *out) {
    mn_jval bound[MN_J_MAX_PARAMS] = {{0}};
    const mn_jinput in = {self, bound, args, f->how};
    if (!mn_jcharge(c, MN_J_PER_ITEM, 2 + args->n_kw))
        return false;
    if (f->params && !bind_args(c, f, args, bound))
        return false;
    return f->fn(c, &in, out);
}

/* Nothing the first time, then its separator. */
static bool call_joiner(mn_jctx *c, mn_jlist *l, mn_jval *out) {
    if (l->pos++) {
        *out = l->items[0];
        return true;
    }
    return mn_j_literal(c, "", out);
}

/* Only these types can be called. */
bool mn_jcall(mn_jctx *c, mn_jval f, const mn_jargs *args, mn_jval *out) {
    switch (f.type) {
    case MN_J_FUNC:
        return mn_jinvoke(c, f.u.func, mn_j_of(MN_J_NONE), args, out);
    case MN_J_METHOD:
        return mn_jinvoke(c, f.u.method->func, f.u.method->self, args, out);
    case MN_J_MACRO:
        return mn_jmacro_call(c, f.u.macro, args, out);
    case MN_J_LOOP:
        return mn_jloop_call(c, f.u.loop, args, out);
    case MN_J_JOINER:
        return call_joiner(c, f.u.l, out);
    default:
        return mn_jneed_defined(c, f) &&
               mn_jfail(c, "'%s' object is not callable", mn_jtype_name(f));
    }
}

/* ---- attribute paths of filters -------------------------------------------------------------- */

/* The key that a piece of a path means: a number, or a name. */
static bool path_key(mn_jctx *c, mn_jstr piece, mn_jval *key) {
    const bool digit = piece.len && piece.ptr[0] >= '0' && piece.ptr[0] <= '9';
    int64_t index;
    if (!mn_jcharge(c, MN_J_PER_CHAR, piece.len))
        return false;
    if (!digit || !mn_parse_i64(mn_jstr_bytes(&piece), &index))
        return mn_j_string(c, piece, key);
    *key = mn_j_int(index);
    return true;
}

bool mn_jpath(mn_jctx *c, mn_jval v, mn_jval path, mn_jval *out) {
    *out = v;
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    if (path.type == MN_J_MISSING || path.type == MN_J_NONE)
        return true;
    if (path.type != MN_J_STR)
        return mn_jitem(c, v, path, out);
    const mn_jstr s = *path.u.s;
    for (size_t from = 0; from <= s.len;) {
        const char *dot = from < s.len ? memchr(s.ptr + from, '.', s.len - from) : NULL;
        const size_t to = dot ? (size_t)(dot - s.ptr) : s.len;
        const mn_jval of = *out;
        mn_jval key;
        if (!path_key(c, mn_jstr_slice(s, from, to), &key) || !mn_jitem(c, of, key, out))
            return false;
        from = to + 1;
    }
    return true;
}

/* otherwise: where the argument is not given. */
bool mn_jarg_int(mn_jctx *c, const char *what, mn_jval v, int64_t otherwise, int64_t *out) {
    const bool given = v.type != MN_J_MISSING;
    if (given && !mn_j_is_int(v))
        return mn_jwrong_type(c, what, v, "an integer");
    *out = given ? mn_j_as_int(v) : otherwise;
    return true;
}

bool mn_jarg_str(mn_jctx *c, const char *what, mn_jval v, mn_jstr *out) {
    if (v.type != MN_J_STR)
        return mn_jwrong_type(c, what, v, "a string");
    *out = *v.u.s;
    return true;
}
