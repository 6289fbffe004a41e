/* globals.c -- functions that every template sees. */
#include "text/jinja/eval.h"
#include <string.h>
#include <time.h>

#define ARGS mn_jctx *c, mn_jval self, const mn_jval *arg, const mn_jargs *all, mn_jval *out

static bool g_range(ARGS) {
    (void)self, (void)all;
    int64_t a, b, from, to, step;
    if (!mn_jarg_int(c, "range", arg[0], 0, &a) || !mn_jarg_int(c, "range", arg[1], 0, &b) ||
        !mn_jarg_int(c, "range", arg[2], 1, &step))
        return false;
    bool one = arg[1].type == MN_J_MISSING;
    from = one ? 0 : a;
    to = one ? a : b;
    if (!step)
        return mn_jfail(c, "range: the step must not be zero");
    mn_jlist *l = mn_jlist_new(c, 0);
    if (!l)
        return false;
    l->range[0] = from, l->range[1] = to, l->range[2] = step;
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        if (l->n >= MN_J_RANGE_MAX)
            return mn_jfail(c, "range longer than %d", MN_J_RANGE_MAX);
        if (!mn_jlist_add(c, l, mn_j_int(i)))
            return false;
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    *out = mn_j_listval(MN_J_RANGE, l);
    return true;
}

/* dict(mapping or pairs, name=value...) */
static bool make_dict(mn_jctx *c, const mn_jargs *all, mn_jdict **out) {
    mn_jdict *d = *out = mn_jdict_new(c);
    if (!d)
        return false;
    if (all->n_pos > 1)
        return mn_jfail(c, "dict takes at most one positional argument");
    if (all->n_pos && all->pos[0].type == MN_J_DICT) {
        for (size_t i = 0; i < all->pos[0].u.d->n; i++)
            if (!mn_jdict_set(c, d, all->pos[0].u.d->items[i].key, all->pos[0].u.d->items[i].value))
                return false;
    } else if (all->n_pos) {
        mn_jlist *pairs, *pair;
        if (!mn_jiterate(c, all->pos[0], &pairs))
            return false;
        for (size_t i = 0; i < pairs->n; i++) {
            if (!mn_jiterate(c, pairs->items[i], &pair))
                return false;
            if (pair->n != 2)
                return mn_jfail(c, "dict: element %zu is not a pair", i);
            if (!mn_jdict_set(c, d, pair->items[0], pair->items[1]))
                return false;
        }
    }
    for (size_t i = 0; i < all->n_kw; i++)
        if (!mn_jdict_set(c, d, all->kw[i].key, all->kw[i].value))
            return false;
    return true;
}
static bool g_dict(ARGS) {
    (void)self, (void)arg;
    mn_jdict *d;
    return make_dict(c, all, &d) && (*out = mn_j_dictval(d), true);
}
static bool g_namespace(ARGS) {
    if (!g_dict(c, self, arg, all, out))
        return false;
    out->type = MN_J_NAMESPACE;
    return true;
}

static bool g_cycler(ARGS) {
    (void)self, (void)arg;
    if (!all->n_pos || all->n_kw)
        return mn_jfail(c, "cycler: at least one item has to be provided");
    mn_jlist *l = mn_jlist_new(c, all->n_pos);
    for (size_t i = 0; l && i < all->n_pos; i++)
        if (!mn_jlist_add(c, l, all->pos[i]))
            return false;
    *out = mn_j_listval(MN_J_CYCLER, l);
    return l != NULL;
}
static bool g_joiner(ARGS) {
    (void)self, (void)all;
    mn_jval sep = arg[0];
    mn_jlist *l = mn_jlist_new(c, 1);
    if (!l || (sep.type == MN_J_MISSING && !mn_j_literal(c, ", ", &sep)) ||
        !mn_jlist_add(c, l, sep))
        return false;
    *out = mn_j_listval(MN_J_JOINER, l);
    return true;
}

static bool g_raise(ARGS) {
    (void)self, (void)all, (void)out;
    mn_jstr msg;
    if (!mn_jstr_of(c, arg[0], &msg))
        return false;
    mn_str s = {msg.ptr, msg.len};
    const bool empty = !s.len || !s.ptr[0]; /* a failure says something */
    c->status =
        empty ? mn_fail(c->err, MN_BAD_INPUT, "the template raised an exception without a message")
              : mn_fail(c->err, MN_BAD_INPUT, "%.*s", (int)MN_MIN(s.len, 480), s.ptr);
    return false;
}

/* Python's strftime for a time without a zone: %z and %Z are empty, %f is microseconds. The rest is
 * the C library's. */
static void python_format(mn_jstr f, char *out) {
    for (size_t i = 0; i < f.len; i++) {
        const char next = f.ptr[i] == '%' && i + 1 < f.len ? f.ptr[i + 1] : 0;
        if (next == 'f')
            out = stpcpy(out, "000000");
        if (next == 'z' || next == 'Z' || next == 'f') {
            i++;
            continue;
        }
        *out++ = f.ptr[i];
        if (next)
            *out++ = f.ptr[++i]; // also the second of %%
    }
    *out = 0;
}

static bool g_strftime(ARGS) {
    (void)self, (void)all;
    mn_jstr f;
    struct tm tm;
    time_t now = (time_t)c->now;
    if (!mn_jarg_str(c, "strftime_now", arg[0], &f))
        return false;
    if (!mn_jcharge(c, MN_J_PER_NUMBER, 2 + f.len)) // each byte may ask for a number
        return false;
    if (!localtime_r(&now, &tm))
        return mn_jfail(c, "strftime_now: no such date");
    if (f.len > 1000 || memchr(f.ptr, 0, f.len))
        return mn_jfail(c, "strftime_now: format too long");
    char fmt[3 * 1000 + 1], text[4096]; // %f becomes three times as long
    python_format(f, fmt);
    size_t n = strftime(text, sizeof text, fmt, &tm);
    mn_jbuf b = {0};
    return mn_jbuf_bytes(c, &b, text, n, 0) && mn_jbuf_value(c, &b, out);
}

static const mn_jfunc globals[] = {
    {"range", "start ?stop ?step", g_range},
    {"dict", NULL, g_dict},
    {"namespace", NULL, g_namespace},
    {"cycler", NULL, g_cycler},
    {"joiner", "?sep", g_joiner},
    {"raise_exception", "message", g_raise},
    {"strftime_now", "format", g_strftime},
};
const mn_jfunc *mn_jglobal_find(mn_jctx *c, mn_str name) {
    return mn_jfunc_in(c, globals, MN_COUNT(globals), name);
}
