/* tests.c -- the tests of `is`. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"

#define ARGS mn_jctx *c, mn_jval self, const mn_jval *arg, const mn_jargs *all, mn_jval *out
#define SIMPLE(fn, condition)                                                                      \
    static bool fn(ARGS) {                                                                         \
        (void)c, (void)arg, (void)all;                                                             \
        *out = mn_j_bool(condition);                                                               \
        return true;                                                                               \
    }

static bool callable(mn_jval v) {
    return v.type == MN_J_MACRO || v.type == MN_J_FUNC || v.type == MN_J_METHOD ||
           v.type == MN_J_LOOP || v.type == MN_J_JOINER || v.type == MN_J_UNDEF;
}
static bool iterable(mn_jval v) {
    return v.type == MN_J_UNDEF || v.type == MN_J_STR || v.type == MN_J_DICT ||
           v.type == MN_J_LOOP || mn_j_is_seq(v);
}
static bool sequence(mn_jval v) {
    return v.type == MN_J_UNDEF || v.type == MN_J_STR || v.type == MN_J_DICT ||
           v.type == MN_J_LIST || v.type == MN_J_TUPLE || v.type == MN_J_RANGE;
}

SIMPLE(t_defined, self.type != MN_J_UNDEF)
SIMPLE(t_undefined, self.type == MN_J_UNDEF)
SIMPLE(t_none, self.type == MN_J_NONE)
SIMPLE(t_boolean, self.type == MN_J_BOOL)
SIMPLE(t_true, self.type == MN_J_BOOL && self.u.b)
SIMPLE(t_false, self.type == MN_J_BOOL && !self.u.b)
SIMPLE(t_string, self.type == MN_J_STR)
SIMPLE(t_number, mn_j_is_number(self))
SIMPLE(t_integer, self.type == MN_J_INT)
SIMPLE(t_float, self.type == MN_J_FLOAT)
SIMPLE(t_mapping, self.type == MN_J_DICT)
SIMPLE(t_sequence, sequence(self))
SIMPLE(t_iterable, iterable(self))
SIMPLE(t_callable, callable(self))
SIMPLE(t_escaped, self.type == MN_J_STR && self.u.s->markup)

static bool remainder_is(mn_jctx *c, mn_jval a, mn_jval by, int64_t want, mn_jval *out) {
    mn_jval r;
    bool yes;
    if (!mn_jbinary(c, MN_T_MOD, a, by, &r) || !mn_jequal(c, r, mn_j_int(want), &yes))
        return false;
    return *out = mn_j_bool(yes), true;
}
static bool t_odd(ARGS) {
    (void)arg, (void)all;
    return remainder_is(c, self, mn_j_int(2), 1, out);
}
static bool t_even(ARGS) {
    (void)arg, (void)all;
    return remainder_is(c, self, mn_j_int(2), 0, out);
}
static bool t_divisibleby(ARGS) {
    (void)all;
    return remainder_is(c, self, arg[0], 0, out);
}

static bool t_eq(ARGS) {
    (void)all;
    bool yes;
    return mn_jequal(c, self, arg[0], &yes) && (*out = mn_j_bool(yes), true);
}
static bool t_ne(ARGS) {
    if (!t_eq(c, self, arg, all, out))
        return false;
    return *out = mn_j_bool(!out->u.b), true;
}
static bool order_is(mn_jctx *c, mn_jval a, mn_jval b, int lowest, int highest, mn_jval *out) {
    int order;
    if (!mn_jcompare(c, a, b, &order))
        return false;
    return *out = mn_j_bool(order >= lowest && order <= highest), true;
}
static bool t_lt(ARGS) {
    (void)all;
    return order_is(c, self, arg[0], -1, -1, out);
}
static bool t_le(ARGS) {
    (void)all;
    return order_is(c, self, arg[0], -1, 0, out);
}
static bool t_gt(ARGS) {
    (void)all;
    return order_is(c, self, arg[0], 1, 1, out);
}
static bool t_ge(ARGS) {
    (void)all;
    return order_is(c, self, arg[0], 0, 1, out);
}

static bool t_sameas(ARGS) {
    (void)all;
    bool yes = false, container = mn_j_is_seq(self) || self.type == MN_J_DICT;
    if (self.type == arg[0].type && self.type != MN_J_UNDEF && // each undefined is one of its own
        !(container ? (yes = self.u.l == arg[0].u.l, true) : mn_jequal(c, self, arg[0], &yes)))
        return false;
    return *out = mn_j_bool(yes), true;
}
static bool t_in(ARGS) {
    (void)all;
    bool yes;
    return mn_jcontains(c, self, arg[0], &yes) && (*out = mn_j_bool(yes), true);
}

static bool case_is(mn_jctx *c, mn_jval self, const char *method, mn_jval *out) {
    mn_jstr s;
    mn_jval text;
    mn_jargs none = {0};
    if (!mn_jstr_of(c, self, &s) || !mn_j_string(c, s, &text))
        return false;
    return mn_jinvoke(c, mn_jstr_method_find(c, mn_str_of(method)), text, &none, out);
}
static bool t_lower(ARGS) {
    (void)arg, (void)all;
    return case_is(c, self, "islower", out);
}
static bool t_upper(ARGS) {
    (void)arg, (void)all;
    return case_is(c, self, "isupper", out);
}

/* Whether a table has this name; what cannot be a key of one is an error. */
static bool named_in(mn_jctx *c, const mn_jfunc *(*find)(mn_jctx *, mn_str), mn_jval name,
                     mn_jval *out) {
    if (!mn_jhashable(c, name))
        return false;
    *out = mn_j_bool(name.type == MN_J_STR && find(c, mn_jstr_bytes(name.u.s)));
    return c->status == MN_OK;
}
static bool t_filter(ARGS) {
    (void)arg, (void)all;
    return named_in(c, mn_jfilter_find, self, out);
}
static bool t_test(ARGS) {
    (void)arg, (void)all;
    return named_in(c, mn_jtest_find, self, out);
}

static const mn_jfunc tests[] = {
    {"defined", "", t_defined},
    {"undefined", "", t_undefined},
    {"none", "", t_none},
    {"boolean", "", t_boolean},
    {"true", "", t_true},
    {"false", "", t_false},
    {"string", "", t_string},
    {"number", "", t_number},
    {"integer", "", t_integer},
    {"float", "", t_float},
    {"mapping", "", t_mapping},
    {"sequence", "", t_sequence},
    {"iterable", "", t_iterable},
    {"callable", "", t_callable},
    {"escaped", "", t_escaped},
    {"odd", "", t_odd},
    {"even", "", t_even},
    {"divisibleby", "num", t_divisibleby},
    {"eq", "other", t_eq},
    {"==", "other", t_eq},
    {"equalto", "other", t_eq},
    {"ne", "other", t_ne},
    {"!=", "other", t_ne},
    {"lt", "other", t_lt},
    {"<", "other", t_lt},
    {"lessthan", "other", t_lt},
    {"le", "other", t_le},
    {"<=", "other", t_le},
    {"gt", "other", t_gt},
    {">", "other", t_gt},
    {"greaterthan", "other", t_gt},
    {"ge", "other", t_ge},
    {">=", "other", t_ge},
    {"sameas", "other", t_sameas},
    {"in", "seq", t_in},
    {"lower", "", t_lower},
    {"upper", "", t_upper},
    {"filter", "", t_filter},
    {"test", "", t_test},
};

const mn_jfunc *mn_jtest_find(mn_jctx *c, mn_str name) {
    return mn_jfunc_in(c, tests, MN_COUNT(tests), name);
}
