/* access.c -- attributes, subscripts, slices, calls: what Python does when a template reaches
 * into a value. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <string.h>

const mn_jfunc *mn_jfunc_in(mn_jctx *c, const mn_jfunc *table, size_t n, mn_str name) {
    size_t i = 0;
    while (i < n && !mn_str_is(name, table[i].name))
        i++;
    return mn_jcharge(c, MN_J_PER_SLOT, i) && i < n ? &table[i] : NULL;
}

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

static bool index_of(mn_jctx *c, mn_jval v, int64_t i, mn_jval *out, bool *found) {
    int64_t n = 0;
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
    uint32_t u;
    size_t at = mn_joffset(c, *v.u.s, (size_t)i);
    return c->status == MN_OK &&
           mn_j_string(c, mn_jstr_slice(*v.u.s, at, at + mn_jchar(*v.u.s, at, &u)), out);
}

bool mn_jitem(mn_jctx *c, mn_jval v, mn_jval key, mn_jval *out) {
    bool found = false;
    if (!mn_jneed_defined(c, v))
        return false;
    bool indexed =
        v.type == MN_J_STR || v.type == MN_J_LIST || v.type == MN_J_TUPLE || v.type == MN_J_RANGE;
    if (v.type == MN_J_DICT) {
        const mn_jval *entry = mn_jdict_find(c, v.u.d, key);
        if (c->status != MN_OK)
            return false;
        if (entry)
            *out = *entry;
        found = entry != NULL;
    } else if (indexed && mn_j_is_int(key)) {
        if (!index_of(c, v, mn_j_as_int(key), out, &found))
            return false;
    }
    if (!found && key.type == MN_J_STR && !own_attr(c, v, mn_jstr_bytes(key.u.s), &found, out))
        return false;
    if (found)
        return true;
    return mn_j_undefined(c, key.type == MN_J_STR ? mn_jstr_bytes(key.u.s) : mn_str_of("item"),
                          out);
}

/* ---- slices ---------------------------------------------------------------------------------- */

static bool slice_part(mn_jctx *c, mn_jval v, int64_t otherwise, int64_t *out) {
    if (v.type == MN_J_NONE)
        return *out = otherwise, true;
    if (!mn_j_is_int(v))
        return mn_jneed_defined(c, v) &&
               mn_jfail(c, "slice parts must be integers, not %s", mn_jtype_name(v));
    *out = mn_j_as_int(v);
    return true;
}

static int64_t clamp(int64_t i, int64_t n, int64_t step) {
    if (i < 0)
        i = i < -n ? -1 : i + n;
    if (i < 0)
        return step < 0 ? -1 : 0;
    return i < n ? i : step < 0 ? n - 1 : n;
}

static bool slice_str(mn_jctx *c, mn_jstr s, int64_t from, int64_t to, int64_t step, int64_t n,
                      mn_jval *out) {
    uint32_t u;
    if (step == 1) {
        size_t a = mn_joffset(c, s, (size_t)from), b = a;
        if (to > from)
            b += mn_joffset(c, mn_jstr_slice(s, a, s.len), (size_t)(to - from));
        return mn_j_string(c, mn_jstr_slice(s, a, b), out);
    }
    size_t *at = mn_jalloc(c, (size_t)n + 1, sizeof *at); // offsets of all characters
    mn_jbuf b = {0};
    if (!at || !mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return false;
    for (int64_t i = 0; i < n; i++)
        at[i + 1] = at[i] + mn_jchar(s, at[i], &u);
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        if (!mn_jbuf_put(c, &b, mn_jstr_slice(s, at[i], at[i + 1])))
            return false;
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return mn_jbuf_value(c, &b, out);
}

bool mn_jslice(mn_jctx *c, mn_jval v, const mn_jval part[3], mn_jval *out) {
    int64_t n = 0, from = 0, to = 0, step = 1;
    if (!mn_jneed_defined(c, v))
        return false;
    if (v.type != MN_J_STR && v.type != MN_J_LIST && v.type != MN_J_TUPLE && v.type != MN_J_RANGE)
        return mn_jfail(c, "'%s' object cannot be sliced", mn_jtype_name(v));
    if (!mn_jlength(c, v, &n) || !slice_part(c, part[2], 1, &step))
        return false;
    if (step == 0)
        return mn_jfail(c, "slice step cannot be zero");
    if (!slice_part(c, part[0], step < 0 ? INT64_MAX : 0, &from) ||
        !slice_part(c, part[1], step < 0 ? INT64_MIN : INT64_MAX, &to))
        return false;
    from = clamp(from, n, step);
    to = to == INT64_MIN && step < 0 ? -1 : clamp(to, n, step);
    if (v.type == MN_J_STR)
        return slice_str(c, *v.u.s, from, to, step, n, out);
    mn_jlist *l = mn_jlist_new(c, 0);
    if (!l)
        return false;
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        if (!mn_jlist_add(c, l, v.u.l->items[i]))
            return false;
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    if (v.type ==
        MN_J_RANGE) { // a range again; its items are few enough for its numbers to be small
        const int64_t *r = v.u.l->range;
        l->range[0] = r[0] + from * r[2], l->range[1] = r[0] + to * r[2], l->range[2] = r[2] * step;
    }
    *out = mn_j_listval(v.type, l);
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

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

bool mn_jinvoke(mn_jctx *c, const mn_jfunc *f, mn_jval self, const mn_jargs *args, mn_jval *out) {
    mn_jval bound[MN_J_MAX_PARAMS] = {{0}};
    const mn_jinput in = {self, bound, args, f->how};
    if (!mn_jcharge(c, MN_J_PER_ITEM, 2 + args->n_kw))
        return false;
    if (f->params && !bind_args(c, f, args, bound))
        return false;
    return f->fn(c, &in, out);
}

static bool call_joiner(mn_jctx *c, mn_jlist *l, mn_jval *out) {
    if (l->pos++) {
        *out = l->items[0];
        return true;
    }
    return mn_j_literal(c, "", out);
}

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

bool mn_jpath(mn_jctx *c, mn_jval v, mn_jval path, mn_jval *out) {
    *out = v;
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    if (path.type == MN_J_MISSING || path.type == MN_J_NONE)
        return true;
    if (path.type != MN_J_STR)
        return mn_jitem(c, v, path, out);
    mn_jstr rest = *path.u.s;
    for (;;) {
        const char *dot = rest.len ? memchr(rest.ptr, '.', rest.len) : NULL;
        size_t len = dot ? (size_t)(dot - rest.ptr) : rest.len;
        if (!mn_jcharge(c, MN_J_PER_CHAR, len))
            return false;
        mn_jval key, from = *out;
        int64_t index;
        mn_str piece = {rest.ptr, len};
        if (len && piece.ptr[0] >= '0' && piece.ptr[0] <= '9' && mn_parse_i64(piece, &index))
            key = mn_j_int(index);
        else if (!mn_j_string(c, mn_jstr_slice(rest, 0, len), &key))
            return false;
        if (!mn_jitem(c, from, key, out))
            return false;
        if (!dot)
            return true;
        rest = mn_jstr_slice(rest, len + 1, rest.len);
    }
}

bool mn_jarg_int(mn_jctx *c, const char *what, mn_jval v, int64_t otherwise, int64_t *out) {
    if (v.type == MN_J_MISSING)
        return *out = otherwise, true;
    if (!mn_j_is_int(v))
        return mn_jneed_defined(c, v) &&
               mn_jfail(c, "%s must be an integer, not %s", what, mn_jtype_name(v));
    *out = mn_j_as_int(v);
    return true;
}

bool mn_jarg_str(mn_jctx *c, const char *what, mn_jval v, mn_jstr *out) {
    if (v.type != MN_J_STR)
        return mn_jneed_defined(c, v) &&
               mn_jfail(c, "%s must be a string, not %s", what, mn_jtype_name(v));
    *out = *v.u.s;
    return true;
}
