/* builtins.c -- what every template sees without defining it: the global functions, and the tests
 * of `is`. raise_exception and strftime_now are those of Transformers, the rest is Jinja2's. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <string.h>
#include <time.h>

/* ---- functions ------------------------------------------------------------------------------- */

/* All numbers at once, at most MN_J_RANGE_MAX. */
static bool g_range(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const bool one = in->arg[1].type == MN_J_MISSING;
    int64_t a;
    int64_t b;
    int64_t step;
    if (!mn_jarg_int(c, "range", in->arg[0], 0, &a) ||
        !mn_jarg_int(c, "range", in->arg[1], 0, &b) ||
        !mn_jarg_int(c, "range", in->arg[2], 1, &step))
        return false;
    const int64_t from = one ? 0 : a;
    const int64_t to = one ? a : b;
    if (!step)
        return mn_jfail(c, "range: the step must not be zero");
    mn_jlist *l = mn_jlist_new(c, 0);
    if (!l)
        return false;
    l->range[0] = from;
    l->range[1] = to;
    l->range[2] = step;
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

/* from: a list of pairs */
static bool add_pairs(mn_jctx *c, mn_jdict *d, mn_jval from) {
    mn_jlist *pairs;
    if (!mn_jiterate(c, from, &pairs))
        return false;
    for (size_t i = 0; i < pairs->n; i++) {
        mn_jlist *pair;
        if (!mn_jiterate(c, pairs->items[i], &pair))
            return false;
        if (pair->n != 2)
            return mn_jfail(c, "dict: element %zu is not a pair", i);
        if (!mn_jdict_set(c, d, pair->items[0], pair->items[1]))
            return false;
    }
    return true;
}

/* dict(mapping or pairs, name=value...), and namespace() of the same; how: the result's type */
static bool g_dict(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jargs *all = in->all;
    mn_jdict *d = mn_jdict_new(c);
    if (!d)
        return false;
    if (all->n_pos > 1)
        return mn_jfail(c, "dict takes at most one positional argument");
    if (all->n_pos) {
        const mn_jval from = all->pos[0];
        const bool ok = from.type == MN_J_DICT
                            ? mn_jdict_set_all(c, d, from.u.d->items, from.u.d->n)
                            : add_pairs(c, d, from);
        if (!ok)
            return false;
    }
    *out = mn_j_dictval(d);
    out->type = (mn_jtype)in->how;
    return mn_jdict_set_all(c, d, all->kw, all->n_kw);
}

/* A function that gives its separator from the second call on. */
static bool g_joiner(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const bool given = in->arg[0].type != MN_J_MISSING;
    mn_jval sep = in->arg[0];
    mn_jlist *l = mn_jlist_new(c, 1);
    if (!l)
        return false;
    if (!given && !mn_j_literal(c, ", ", &sep))
        return false;
    *out = mn_j_listval(MN_J_JOINER, l);
    return mn_jlist_add(c, l, sep);
}

/* The template's own error, without a line number: its words are meant for the user. */
static bool g_raise(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    mn_jstr msg;
    (void)out;
    if (!mn_jstr_of(c, in->arg[0], &msg))
        return false;
    if (!msg.len || !msg.ptr[0]) // a failure says something
        msg = mn_jstr_z("the template raised an exception without a message");
    c->status = mn_fail(c->err, MN_BAD_INPUT, "%.*s", (int)MN_MIN(msg.len, (size_t)480), msg.ptr);
    return false;
}

/* Python's strftime for a time without a zone: %z and %Z are empty, %f is microseconds. The rest is
 * the C library's. out: at most three times as long as f, and a NUL. */
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

/* The time is the caller's, in the local zone. */
static bool g_strftime(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    enum { LONGEST = 1000 };
    char fmt[3 * LONGEST + 1];
    char text[4096];
    const time_t now = (time_t)c->now;
    mn_jstr f;
    struct tm tm;
    if (!mn_jarg_str(c, "strftime_now", in->arg[0], &f))
        return false;
    if (!mn_jcharge(c, MN_J_PER_NUMBER, 2 + f.len)) // each byte may ask for a number
        return false;
    if (!localtime_r(&now, &tm))
        return mn_jfail(c, "strftime_now: no such date");
    if (f.len > LONGEST || memchr(f.ptr, 0, f.len))
        return mn_jfail(c, "strftime_now: format too long");
    python_format(f, fmt);
    mn_jbuf b = {0};
    return mn_jbuf_bytes(c, &b, text, strftime(text, sizeof text, fmt, &tm), 0) &&
           mn_jbuf_value(c, &b, out);
}

static const mn_jfunc globals[] = {
    {"range", "start ?stop ?step", g_range, 0},  {"dict", NULL, g_dict, MN_J_DICT},
    {"namespace", NULL, g_dict, MN_J_NAMESPACE}, {"joiner", "?sep", g_joiner, 0},
    {"raise_exception", "message", g_raise, 0},  {"strftime_now", "format", g_strftime, 0},
};

const mn_jfunc *mn_jglobal_find(mn_jctx *c, mn_str name) {
    return mn_jfunc_in(c, globals, MN_COUNT(globals), name);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static bool builtin_give_bool(mn_jval *out, bool b) {
    *out = mn_j_bool(b);
    return true;
}

#define TYPE(t) (1u << MN_J_##t)
#define CALLABLE (TYPE(MACRO) | TYPE(FUNC) | TYPE(METHOD) | TYPE(LOOP) | TYPE(JOINER) | TYPE(UNDEF))
#define SEQUENCE (TYPE(UNDEF) | TYPE(STR) | TYPE(DICT) | TYPE(LIST) | TYPE(TUPLE) | TYPE(RANGE))
#define ITERABLE (SEQUENCE | TYPE(VIEW) | TYPE(ITER) | TYPE(LOOP))

/* how: the types that pass, a bit each */
static bool t_type(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    (void)c;
    return builtin_give_bool(out, (uint32_t)in->how >> in->self.type & 1);
}

/* how: which of the two */
static bool t_bool(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    (void)c;
    return builtin_give_bool(out, in->self.type == MN_J_BOOL && in->self.u.b == (in->how != 0));
}

static bool t_defined(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    (void)c;
    return builtin_give_bool(out, in->self.type != MN_J_UNDEF);
}

static bool remainder_is(mn_jctx *c, mn_jval a, mn_jval by, int64_t want, mn_jval *out) {
    mn_jval r;
    bool yes;
    return mn_jbinary(c, MN_T_MOD, a, by, &r) && mn_jequal(c, r, mn_j_int(want), &yes) &&
           builtin_give_bool(out, yes);
}

/* odd, even; how: the remainder */
static bool t_parity(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    return remainder_is(c, in->self, mn_j_int(2), in->how, out);
}

static bool t_divisibleby(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    return remainder_is(c, in->self, in->arg[0], 0, out);
}

/* how: is it to be equal? */
static bool t_equal(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    bool yes;
    return mn_jequal(c, in->self, in->arg[0], &yes) &&
           builtin_give_bool(out, yes == (in->how != 0));
}

/* how: the token of the operator */
static bool t_order(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    int order;
    return mn_jcompare(c, in->self, in->arg[0], &order) &&
           builtin_give_bool(out, mn_jorder_is(in->how, order));
}

/* Identity, which for values that do not change is equality. Each undefined is one of its own. */
static bool t_sameas(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const mn_jval a = in->self;
    const mn_jval b = in->arg[0];
    const bool container = mn_j_is_seq(a) || a.type == MN_J_DICT;
    bool yes = false;
    if (a.type != b.type || a.type == MN_J_UNDEF)
        return builtin_give_bool(out, false);
    if (container)
        return builtin_give_bool(out, a.u.l == b.u.l);
    return mn_jequal(c, a, b, &yes) && builtin_give_bool(out, yes);
}

static bool t_in(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    bool yes;
    return mn_jcontains(c, in->self, in->arg[0], &yes) && builtin_give_bool(out, yes);
}

/* how: upper */
static bool t_case(mn_jctx *c, const mn_jinput *in, mn_jval *out) {
    const char *method = in->how ? "isupper" : "islower";
    mn_jstr s;
    mn_jval text;
    if (!mn_jstr_of(c, in->self, &s) || !mn_j_string(c, s, &text))
        return false;
    return mn_jmethod_call(c, method, text, in->arg, out);
}

static const mn_jfunc tests[] = {
    {"defined", "", t_defined, 0},
    {"undefined", "", t_type, TYPE(UNDEF)},
    {"none", "", t_type, TYPE(NONE)},
    {"boolean", "", t_type, TYPE(BOOL)},
    {"true", "", t_bool, true},
    {"false", "", t_bool, false},
    {"string", "", t_type, TYPE(STR)},
    {"number", "", t_type, TYPE(INT) | TYPE(FLOAT) | TYPE(BOOL)},
    {"integer", "", t_type, TYPE(INT)},
    {"float", "", t_type, TYPE(FLOAT)},
    {"mapping", "", t_type, TYPE(DICT)},
    {"sequence", "", t_type, SEQUENCE},
    {"iterable", "", t_type, ITERABLE},
    {"callable", "", t_type, CALLABLE},
    {"odd", "", t_parity, 1},
    {"even", "", t_parity, 0},
    {"divisibleby", "num", t_divisibleby, 0},
    {"eq", "other", t_equal, true},
    {"==", "other", t_equal, true},
    {"equalto", "other", t_equal, true},
    {"ne", "other", t_equal, false},
    {"!=", "other", t_equal, false},
    {"lt", "other", t_order, MN_T_LT},
    {"<", "other", t_order, MN_T_LT},
    {"lessthan", "other", t_order, MN_T_LT},
    {"le", "other", t_order, MN_T_LE},
    {"<=", "other", t_order, MN_T_LE},
    {"gt", "other", t_order, MN_T_GT},
    {">", "other", t_order, MN_T_GT},
    {"greaterthan", "other", t_order, MN_T_GT},
    {"ge", "other", t_order, MN_T_GE},
    {">=", "other", t_order, MN_T_GE},
    {"sameas", "other", t_sameas, 0},
    {"in", "seq", t_in, 0},
    {"lower", "", t_case, false},
    {"upper", "", t_case, true},
};

const mn_jfunc *mn_jtest_find(mn_jctx *c, mn_str name) {
    return mn_jfunc_in(c, tests, MN_COUNT(tests), name);
}
