/* eval.c -- expressions: what a node of the tree means in the scope at hand, and arithmetic as
 * Python does it on 64-bit integers, doubles, strings and lists. Statements are in exec.c,
 * attributes and calls in access.c. Integers that do not fit are an error, where Python has no
 * limit. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>
#include <string.h>

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Undefined operands have their own error. */
static bool bad_operands(mn_jctx *c, int op, mn_jval a, mn_jval b) {
    if (!mn_jneed_defined(c, a) || !mn_jneed_defined(c, b))
        return false;
    return mn_jfail(c, "unsupported operands for %s: '%s' and '%s'",
                    mn_jtoken_name((mn_jtoken_type)op), mn_jtype_name(a), mn_jtype_name(b));
}

static bool eval_overflow(mn_jctx *c) {
    return mn_jfail(c, "integer does not fit in 64 bits");
}

/* As Python: a negative power is a float. */
static bool int_power(mn_jctx *c, int64_t a, int64_t b, mn_jval *out) {
    int64_t result = 1;
    if (b < 0) {
        if (!a)
            return mn_jfail(c, "0 to a negative power");
        *out = mn_j_float(pow((double)a, (double)b));
        return true;
    }
    if (a == 0 || a == 1)
        b = b ? 1 : 0;
    if (a == -1)
        b %= 2;
    for (; b; b--)
        if (__builtin_mul_overflow(result, a, &result))
            return eval_overflow(c);
    *out = mn_j_int(result);
    return true;
}

/* op: one of the arithmetic tokens. Division and remainder round towards negative infinity. */
static bool int_op(mn_jctx *c, int op, int64_t a, int64_t b, mn_jval *out) {
    int64_t r = 0;
    if ((op == MN_T_DIV || op == MN_T_FLOORDIV || op == MN_T_MOD) && !b)
        return mn_jfail(c, "division by zero");
    switch (op) {
    case MN_T_ADD:
        if (__builtin_add_overflow(a, b, &r))
            return eval_overflow(c);
        break;
    case MN_T_SUB:
        if (__builtin_sub_overflow(a, b, &r))
            return eval_overflow(c);
        break;
    case MN_T_MUL:
        if (__builtin_mul_overflow(a, b, &r))
            return eval_overflow(c);
        break;
    case MN_T_POW:
        return int_power(c, a, b, out);
    case MN_T_DIV:
        *out = mn_j_float((double)((long double)a / (long double)b));
        return true; // as if exact
    case MN_T_FLOORDIV:
        if (b == -1)
            return int_op(c, MN_T_MUL, a, -1, out);
        r = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    default:
        r = b == -1 ? 0 : a % b;
        if (r && (r < 0) != (b < 0))
            r += b;
        break;
    }
    *out = mn_j_int(r);
    return true;
}

static double float_mod(double a, double b) {
    double r = fmod(a, b);
    if (r == 0)
        return copysign(0.0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

/* As Python: rounded towards negative infinity. */
static double floor_divide(double a, double b) {
    double rest = fmod(a, b), q = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0))
        q -= 1;
    if (q == 0)
        return copysign(0.0, a / b);
    return floor(q) + (q - floor(q) > 0.5);
}

static double float_result(int op, double a, double b) {
    switch (op) {
    case MN_T_ADD:
        return a + b;
    case MN_T_SUB:
        return a - b;
    case MN_T_MUL:
        return a * b;
    case MN_T_DIV:
        return a / b;
    case MN_T_POW:
        return pow(a, b);
    case MN_T_MOD:
        return float_mod(a, b);
    default:
        return floor_divide(a, b);
    }
}

/* What overflows to infinity from finite numbers is an error for ** alone, as in Python. */
static bool float_op(mn_jctx *c, int op, double a, double b, mn_jval *out) {
    if ((op == MN_T_DIV || op == MN_T_FLOORDIV || op == MN_T_MOD) && b == 0)
        return mn_jfail(c, "division by zero");
    if (op == MN_T_POW && ((a == 0 && b < 0) || (a < 0 && floor(b) != b)))
        return mn_jfail(c, "power outside the real numbers");
    const double r = float_result(op, a, b);
    if (op == MN_T_POW && isinf(r) && isfinite(a) && isfinite(b))
        return mn_jfail(c, "the power is out of range");
    *out = mn_j_float(r);
    return true;
}

/* Bytes keep the marks of the string that they come from. */
static bool add_strings(mn_jctx *c, mn_jstr a, mn_jstr b, mn_jval *out) {
    mn_jbuf buf = {0};
    return mn_jbuf_put(c, &buf, a) && mn_jbuf_put(c, &buf, b) && mn_jbuf_value(c, &buf, out);
}

static bool add_lists(mn_jctx *c, mn_jval a, mn_jval b, mn_jval *out) {
    const mn_jlist *first = a.u.l;
    const mn_jlist *second = b.u.l;
    mn_jlist *l = mn_jlist_new(c, first->n + second->n);
    *out = mn_j_listval(a.type, l);
    if (!l || !mn_jlist_add_all(c, l, first->items, first->n))
        return false;
    return mn_jlist_add_all(c, l, second->items, second->n);
}

static bool repeat_string(mn_jctx *c, mn_jstr s, int64_t times, mn_jval *out) {
    mn_jbuf b = {0};
    for (int64_t i = 0; i < times && s.len; i++)
        if (!mn_jbuf_put(c, &b, s))
            return false;
    return mn_jbuf_value(c, &b, out);
}

/* The items are shared, not copied. */
static bool repeat_list(mn_jctx *c, mn_jval v, int64_t times, mn_jval *out) {
    const mn_jlist *from = v.u.l;
    mn_jlist *l = mn_jlist_new(c, 0);
    for (int64_t i = 0; l && i < times && from->n; i++)
        if (!mn_jlist_add_all(c, l, from->items, from->n))
            return false;
    *out = mn_j_listval(v.type, l);
    return l != NULL;
}

static bool eval_is_list(mn_jval v) {
    return v.type == MN_J_LIST || v.type == MN_J_TUPLE;
}

/* v * times; *fits = false: v cannot be repeated. */
static bool eval_repeat(mn_jctx *c, mn_jval v, mn_jval times, bool *fits, mn_jval *out) {
    *fits = mn_j_is_int(times) && (eval_is_list(v) || v.type == MN_J_STR);
    if (!*fits)
        return true;
    if (eval_is_list(v))
        return repeat_list(c, v, mn_j_as_int(times), out);
    return repeat_string(c, *v.u.s, mn_j_as_int(times), out);
}

/* Where an operand is no number. */
static bool eval_add(mn_jctx *c, mn_jval a, mn_jval b, mn_jval *out) {
    if (a.type == MN_J_STR && b.type == MN_J_STR)
        return add_strings(c, *a.u.s, *b.u.s, out);
    if (a.type == b.type && eval_is_list(a))
        return add_lists(c, a, b, out);
    return bad_operands(c, MN_T_ADD, a, b);
}

static bool eval_multiply(mn_jctx *c, mn_jval a, mn_jval b, mn_jval *out) {
    bool fits;
    if (!eval_repeat(c, a, b, &fits, out))
        return false;
    if (!fits && !eval_repeat(c, b, a, &fits, out))
        return false;
    return fits || bad_operands(c, MN_T_MUL, a, b);
}

bool mn_jbinary(mn_jctx *c, int op, mn_jval a, mn_jval b, mn_jval *out) {
    if (mn_j_is_int(a) && mn_j_is_int(b))
        return int_op(c, op, mn_j_as_int(a), mn_j_as_int(b), out);
    if (mn_j_is_number(a) && mn_j_is_number(b))
        return float_op(c, op, mn_j_as_float(a), mn_j_as_float(b), out);
    if (op == MN_T_ADD)
        return eval_add(c, a, b, out);
    if (op == MN_T_MUL)
        return eval_multiply(c, a, b, out);
    if (op == MN_T_MOD && a.type == MN_J_STR)
        return mn_jpercent(c, *a.u.s, b, out);
    return bad_operands(c, op, a, b);
}

bool mn_jnegate(mn_jctx *c, mn_jval v, mn_jval *out) {
    if (mn_j_is_int(v))
        return int_op(c, MN_T_SUB, 0, mn_j_as_int(v), out);
    if (v.type != MN_J_FLOAT)
        return mn_jwrong_type(c, "the operand of -", v, "a number");
    *out = mn_j_float(-v.u.f);
    return true;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* A variable, a global function, or undefined. */
static bool eval_name(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    const mn_jval *v = mn_jscope_get(c, n->name);
    if (v) {
        *out = *v;
        return true;
    }
    const mn_jfunc *f = mn_jglobal_find(c, n->name);
    if (!f)
        return mn_j_undefined(c, n->name, out);
    out->type = MN_J_FUNC;
    out->u.func = f;
    return true;
}

/* [a, b] and (a, b). */
static bool eval_items(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jlist *l = mn_jlist_new(c, n->items.n);
    if (!l)
        return false;
    for (size_t i = 0; i < n->items.n; i++) {
        mn_jval v;
        if (!mn_jeval(c, n->items.items[i], &v) || !mn_jlist_add(c, l, v))
            return false;
    }
    *out = mn_j_listval(n->kind == MN_N_LIST ? MN_J_LIST : MN_J_TUPLE, l);
    return true;
}

/* {a: b}; of equal keys the last. */
static bool eval_dict(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jdict *d = mn_jdict_new(c);
    if (!d)
        return false;
    for (size_t i = 0; i + 1 < n->items.n; i += 2) {
        mn_jval k, v;
        if (!mn_jeval(c, n->items.items[i], &k) || !mn_jeval(c, n->items.items[i + 1], &v) ||
            !mn_jdict_set(c, d, k, v))
            return false;
    }
    *out = mn_j_dictval(d);
    return true;
}

/* v[key] and v[a:b:c]. */
static bool eval_item(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    const mn_jnode *index = n->b;
    mn_jval v;
    mn_jval part[3];
    if (!mn_jeval(c, n->a, &v))
        return false;
    if (index->kind != MN_N_SLICE)
        return mn_jeval(c, index, &part[0]) && mn_jitem(c, v, part[0], out);
    const mn_jnode *nodes[3] = {index->a, index->b, index->c};
    for (int i = 0; i < 3; i++) {
        part[i] = mn_j_of(MN_J_NONE);
        if (nodes[i] && !mn_jeval(c, nodes[i], &part[i]))
            return false;
    }
    return mn_jslice(c, v, part, out);
}

/* Into the keywords of a call, each once. */
static bool add_keyword(mn_jctx *c, mn_jdict *d, mn_jval key, mn_jval v) {
    if (key.type != MN_J_STR)
        return mn_jfail(c, "keywords must be strings");
    if (mn_jdict_find(c, d, key))
        return mn_jfail(c, "keyword '%.*s' given twice", MN_STR_ARG(mn_jstr_bytes(key.u.s)));
    return mn_jdict_set(c, d, key, v);
}

/* name=value arguments, then those of **dict. */
static bool eval_keywords(mn_jctx *c, const mn_jnode *n, mn_jdict *d) {
    mn_jval v;
    for (size_t i = 0; i < n->kw.n; i++) {
        const mn_jnode *kw = n->kw.items[i];
        mn_jval key;
        if (!mn_j_string(c, mn_jstr_plain(kw->name), &key) || !mn_jeval(c, kw->a, &v))
            return false;
        if (!add_keyword(c, d, key, v))
            return false;
    }
    if (!n->c)
        return true;
    if (!mn_jeval(c, n->c, &v))
        return false;
    if (v.type != MN_J_DICT)
        return mn_jfail(c, "** needs a dict, not %s", mn_jtype_name(v));
    for (size_t i = 0; i < v.u.d->n; i++) {
        const mn_jpair *pair = &v.u.d->items[i];
        if (!add_keyword(c, d, pair->key, pair->value))
            return false;
    }
    return true;
}

/* The arguments of a call, filter or test; a call block adds its `caller`. */
static bool eval_args(mn_jctx *c, const mn_jnode *n, const mn_jval *caller, mn_jargs *args) {
    mn_jlist *l = mn_jlist_new(c, n->items.n);
    mn_jdict *d = mn_jdict_new(c);
    mn_jval v;
    if (!l || !d)
        return false;
    for (size_t i = 0; i < n->items.n; i++)
        if (!mn_jeval(c, n->items.items[i], &v) || !mn_jlist_add(c, l, v))
            return false;
    if (n->b) {
        mn_jlist *more;
        if (!mn_jeval(c, n->b, &v) || !mn_jiterate(c, v, &more))
            return false;
        if (!mn_jlist_add_all(c, l, more->items, more->n))
            return false;
    }
    if (!eval_keywords(c, n, d))
        return false;
    if (caller && (!mn_j_literal(c, "caller", &v) || !add_keyword(c, d, v, *caller)))
        return false;
    *args = (mn_jargs){l->items, l->n, d->items, d->n};
    return true;
}

/* caller: of a call block, NULL otherwise. */
static bool eval_call(mn_jctx *c, const mn_jnode *n, const mn_jval *caller, mn_jval *out) {
    mn_jval f;
    mn_jargs args;
    if (!mn_jeval(c, n->a, &f))
        return false;
    if (!eval_args(c, n, caller, &args))
        return false;
    return mn_jcall(c, f, &args, out);
}

/* Without a value: the text of a filter block, c->input. */
static bool eval_filter(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval v = c->input;
    mn_jargs args;
    if (n->a && !mn_jeval(c, n->a, &v))
        return false;
    const mn_jfunc *f = mn_jfilter_find(c, n->name);
    if (!f)
        return mn_jfail(c, "no filter named '%.*s'", MN_STR_ARG(n->name));
    return eval_args(c, n, NULL, &args) && mn_jinvoke(c, f, v, &args, out);
}

/* The value is evaluated before the arguments, as in Jinja2. */
static bool eval_test(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval v;
    mn_jargs args;
    const mn_jfunc *f = mn_jtest_find(c, n->name);
    if (!f)
        return mn_jfail(c, "no test named '%.*s'", MN_STR_ARG(n->name));
    if (!mn_jeval(c, n->a, &v))
        return false;
    if (!eval_args(c, n, NULL, &args))
        return false;
    return mn_jinvoke(c, f, v, &args, out);
}

/* a ~ b: the text of values, one after the other. */
static bool eval_concat(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jbuf b = {0};
    for (size_t i = 0; i < n->items.n; i++) {
        mn_jval v;
        if (!mn_jeval(c, n->items.items[i], &v) || !mn_jput(c, &b, v))
            return false;
    }
    return mn_jbuf_value(c, &b, out);
}

bool mn_jorder_is(int op, int order) {
    switch (order == 2 ? MN_T_EOF : op) {
    case MN_T_LT:
        return order < 0;
    case MN_T_LE:
        return order <= 0;
    case MN_T_GT:
        return order > 0;
    case MN_T_GE:
        return order >= 0;
    default:
        return false; // to what is not a number nothing has an order
    }
}

/* operand: the operator and what stands behind it. */
static bool compare_one(mn_jctx *c, const mn_jnode *operand, mn_jval a, mn_jval b, bool *yes) {
    bool equal;
    int order;
    if (operand->op == MN_T_NAME) { // in, not in
        if (!mn_jcontains(c, a, b, &equal))
            return false;
        *yes = equal != operand->flag;
        return true;
    }
    if (operand->op == MN_T_EQ || operand->op == MN_T_NE) {
        if (!mn_jequal(c, a, b, &equal))
            return false;
        *yes = equal == (operand->op == MN_T_EQ);
        return true;
    }
    if (!mn_jcompare(c, a, b, &order))
        return false;
    *yes = mn_jorder_is(operand->op, order);
    return true;
}

/* a < b < c: up to the first comparison that does not hold. */
static bool eval_compare(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval a;
    bool yes = true;
    if (!mn_jeval(c, n->a, &a))
        return false;
    for (size_t i = 0; yes && i < n->items.n; i++) {
        const mn_jnode *operand = n->items.items[i];
        mn_jval b;
        if (!mn_jeval(c, operand->a, &b))
            return false;
        if (!compare_one(c, operand, a, b, &yes))
            return false;
        a = b;
    }
    *out = mn_j_bool(yes);
    return true;
}

/* and, or give the value that decided; only what decides is evaluated. */
static bool eval_logic(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    const bool is_and = n->kind == MN_N_AND;
    if (!mn_jeval(c, n->a, out))
        return false;
    return mn_jtruth(*out) == is_and ? mn_jeval(c, n->b, out) : true;
}

/* Always a boolean, unlike and and or. */
static bool eval_not(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval v;
    if (!mn_jeval(c, n->a, &v))
        return false;
    *out = mn_j_bool(!mn_jtruth(v));
    return true;
}

/* a if b else c */
static bool eval_cond(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval v;
    if (!mn_jeval(c, n->b, &v))
        return false;
    if (mn_jtruth(v))
        return mn_jeval(c, n->a, out);
    if (n->c)
        return mn_jeval(c, n->c, out);
    return mn_j_undefined(c, mn_str_of("the inline if without else"), out);
}

/* Binary operators, and the signs. */
static bool eval_arith(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval a;
    mn_jval b;
    if (!mn_jeval(c, n->a, &a))
        return false;
    if (n->kind == MN_N_BINARY)
        return mn_jeval(c, n->b, &b) && mn_jbinary(c, n->op, a, b, out);
    if (n->kind == MN_N_NEG)
        return mn_jnegate(c, a, out);
    if (!mn_j_is_number(a))
        return mn_jwrong_type(c, "the operand of +", a, "a number");
    *out = a.type == MN_J_BOOL ? mn_j_int(a.u.b) : a;
    return true;
}

/* The call of a call block: n is CALL_BLOCK. */
static bool eval_call_block(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval caller;
    return mn_jmacro_of(c, n->b, &caller) && eval_call(c, n->a, &caller, out);
}

/* One node by its kind; constants do not come here. */
static bool eval_node(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval v;
    switch (n->kind) {
    case MN_N_NAME:
        return eval_name(c, n, out);
    case MN_N_LIST:
    case MN_N_TUPLE:
        return eval_items(c, n, out);
    case MN_N_DICT:
        return eval_dict(c, n, out);
    case MN_N_ATTR:
        return mn_jeval(c, n->a, &v) && mn_jattr(c, v, n->name, out);
    case MN_N_ITEM:
        return eval_item(c, n, out);
    case MN_N_CALL:
        return eval_call(c, n, NULL, out);
    case MN_N_CALL_BLOCK:
        return eval_call_block(c, n, out);
    case MN_N_FILTER:
        return eval_filter(c, n, out);
    case MN_N_TEST:
        return eval_test(c, n, out);
    case MN_N_NEG:
    case MN_N_POS:
    case MN_N_BINARY:
        return eval_arith(c, n, out);
    case MN_N_CONCAT:
        return eval_concat(c, n, out);
    case MN_N_COMPARE:
        return eval_compare(c, n, out);
    case MN_N_AND:
    case MN_N_OR:
        return eval_logic(c, n, out);
    case MN_N_NOT:
        return eval_not(c, n, out);
    case MN_N_COND:
        return eval_cond(c, n, out);
    default:
        return mn_jfail(c, "a slice is not a value");
    }
}

/* Every evaluation is a level of depth and a unit of work, so that no template nests or runs
 * without end. */
bool mn_jeval(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    *out = mn_j_of(MN_J_UNDEF);
    if (n->kind == MN_N_CONST) {
        *out = n->value;
        return true;
    }
    c->line = n->line;
    if (!mn_jenter(c))
        return false;
    bool ok = eval_node(c, n, out);
    mn_jleave(c);
    return ok;
}
