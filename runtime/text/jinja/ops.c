/* ops.c -- arithmetic, as Python does it on 64-bit integers, doubles, strings and lists. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <math.h>

static bool bad_operands(mn_jctx *c, int op, mn_jval a, mn_jval b) {
    if (!mn_jneed_defined(c, a) || !mn_jneed_defined(c, b))
        return false;
    return mn_jfail(c, "unsupported operands for %s: '%s' and '%s'",
                    mn_jtoken_name((mn_jtoken_type)op), mn_jtype_name(a), mn_jtype_name(b));
}

static bool overflow(mn_jctx *c) {
    return mn_jfail(c, "integer does not fit in 64 bits");
}

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
            return overflow(c);
    *out = mn_j_int(result);
    return true;
}

static bool int_op(mn_jctx *c, int op, int64_t a, int64_t b, mn_jval *out) {
    int64_t r = 0;
    if ((op == MN_T_DIV || op == MN_T_FLOORDIV || op == MN_T_MOD) && !b)
        return mn_jfail(c, "division by zero");
    switch (op) {
    case MN_T_ADD:
        if (__builtin_add_overflow(a, b, &r))
            return overflow(c);
        break;
    case MN_T_SUB:
        if (__builtin_sub_overflow(a, b, &r))
            return overflow(c);
        break;
    case MN_T_MUL:
        if (__builtin_mul_overflow(a, b, &r))
            return overflow(c);
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

static double floor_divide(double a, double b) {
    double rest = fmod(a, b), q = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0))
        q -= 1;
    if (q == 0)
        return copysign(0.0, a / b);
    return floor(q) + (q - floor(q) > 0.5);
}

static bool float_op(mn_jctx *c, int op, double a, double b, mn_jval *out) {
    if ((op == MN_T_DIV || op == MN_T_FLOORDIV || op == MN_T_MOD) && b == 0)
        return mn_jfail(c, "division by zero");
    if (op == MN_T_POW && ((a == 0 && b < 0) || (a < 0 && floor(b) != b)))
        return mn_jfail(c, "power outside the real numbers");
    double r = op == MN_T_ADD   ? a + b
               : op == MN_T_SUB ? a - b
               : op == MN_T_MUL ? a * b
               : op == MN_T_DIV ? a / b
               : op == MN_T_POW ? pow(a, b)
               : op == MN_T_MOD ? float_mod(a, b)
                                : floor_divide(a, b);
    if (op == MN_T_POW && isinf(r) && isfinite(a) && isfinite(b))
        return mn_jfail(c, "the power is out of range");
    *out = mn_j_float(r);
    return true;
}

static bool add_strings(mn_jctx *c, mn_jstr a, mn_jstr b, mn_jval *out) {
    mn_jbuf buf = {0};
    bool markup = a.markup || b.markup;
    if (!(markup && !a.markup ? mn_jescape(c, &buf, a) : mn_jbuf_put(c, &buf, a)))
        return false;
    if (!(markup && !b.markup ? mn_jescape(c, &buf, b) : mn_jbuf_put(c, &buf, b)))
        return false;
    mn_jstr s = mn_jbuf_str(&buf);
    s.markup = markup;
    return mn_j_string(c, s, out);
}

static bool add_lists(mn_jctx *c, mn_jval a, mn_jval b, mn_jval *out) {
    mn_jlist *l = mn_jlist_new(c, a.u.l->n + b.u.l->n);
    if (!l)
        return false;
    for (size_t i = 0; i < a.u.l->n; i++)
        if (!mn_jlist_add(c, l, a.u.l->items[i]))
            return false;
    for (size_t i = 0; i < b.u.l->n; i++)
        if (!mn_jlist_add(c, l, b.u.l->items[i]))
            return false;
    *out = mn_j_listval(a.type, l);
    return true;
}

static bool repeat(mn_jctx *c, mn_jval v, int64_t times, mn_jval *out) {
    mn_jbuf b = {0};
    if (v.type == MN_J_STR) {
        for (int64_t i = 0; i < times && v.u.s->len; i++)
            if (!mn_jbuf_put(c, &b, *v.u.s))
                return false;
        return mn_jbuf_value(c, &b, out);
    }
    mn_jlist *l = mn_jlist_new(c, 0);
    if (!l)
        return false;
    for (int64_t i = 0; i < times && v.u.l->n; i++)
        for (size_t k = 0; k < v.u.l->n; k++)
            if (!mn_jlist_add(c, l, v.u.l->items[k]))
                return false;
    *out = mn_j_listval(v.type, l);
    return true;
}

static bool repeatable(mn_jval v) {
    return v.type == MN_J_STR || v.type == MN_J_LIST || v.type == MN_J_TUPLE;
}

bool mn_jbinary(mn_jctx *c, int op, mn_jval a, mn_jval b, mn_jval *out) {
    if (mn_j_is_number(a) && mn_j_is_number(b)) {
        if (a.type == MN_J_FLOAT || b.type == MN_J_FLOAT)
            return float_op(c, op, mn_j_as_float(a), mn_j_as_float(b), out);
        return int_op(c, op, mn_j_as_int(a), mn_j_as_int(b), out);
    }
    if (op == MN_T_ADD && a.type == MN_J_STR && b.type == MN_J_STR)
        return add_strings(c, *a.u.s, *b.u.s, out);
    if (op == MN_T_ADD && a.type == b.type && (a.type == MN_J_LIST || a.type == MN_J_TUPLE))
        return add_lists(c, a, b, out);
    if (op == MN_T_MOD && a.type == MN_J_STR)
        return mn_jpercent(c, *a.u.s, b, out);
    if (op == MN_T_MUL && repeatable(a) && mn_j_is_int(b))
        return repeat(c, a, mn_j_as_int(b), out);
    if (op == MN_T_MUL && repeatable(b) && mn_j_is_int(a))
        return repeat(c, b, mn_j_as_int(a), out);
    return bad_operands(c, op, a, b);
}

bool mn_jnegate(mn_jctx *c, mn_jval v, mn_jval *out) {
    if (v.type == MN_J_FLOAT)
        return *out = mn_j_float(-v.u.f), true;
    if (mn_j_is_int(v))
        return int_op(c, MN_T_SUB, 0, mn_j_as_int(v), out);
    return mn_jneed_defined(c, v) && mn_jfail(c, "bad operand of unary -: '%s'", mn_jtype_name(v));
}
