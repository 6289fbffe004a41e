/* eval.c -- expressions. */
#include "text/jinja/eval.h"
#include "text/jinja/text.h"
#include <string.h>

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

static bool eval_item(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval v, part[3];
    if (!mn_jeval(c, n->a, &v))
        return false;
    if (n->b->kind != MN_N_SLICE)
        return mn_jeval(c, n->b, &part[0]) && mn_jitem(c, v, part[0], out);
    const mn_jnode *nodes[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++) {
        part[i] = mn_j_of(MN_J_NONE);
        if (nodes[i] && !mn_jeval(c, nodes[i], &part[i]))
            return false;
    }
    return mn_jslice(c, v, part, out);
}

static bool add_keyword(mn_jctx *c, mn_jdict *d, mn_jval key, mn_jval v) {
    if (key.type != MN_J_STR)
        return mn_jfail(c, "keywords must be strings");
    if (mn_jdict_find(c, d, key))
        return mn_jfail(c, "keyword '%.*s' given twice", MN_STR_ARG(mn_jstr_bytes(key.u.s)));
    return mn_jdict_set(c, d, key, v);
}

static bool eval_keywords(mn_jctx *c, const mn_jnode *n, mn_jdict *d) {
    mn_jval key, v;
    for (size_t i = 0; i < n->kw.n; i++) {
        const mn_jnode *kw = n->kw.items[i];
        mn_jstr name = {kw->name.ptr, NULL, kw->name.len, 0, false};
        if (!mn_j_string(c, name, &key) || !mn_jeval(c, kw->a, &v) || !add_keyword(c, d, key, v))
            return false;
    }
    if (!n->c)
        return true;
    if (!mn_jeval(c, n->c, &v))
        return false;
    if (v.type != MN_J_DICT)
        return mn_jfail(c, "** needs a dict, not %s", mn_jtype_name(v));
    for (size_t i = 0; i < v.u.d->n; i++)
        if (!add_keyword(c, d, v.u.d->items[i].key, v.u.d->items[i].value))
            return false;
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
        for (size_t i = 0; i < more->n; i++)
            if (!mn_jlist_add(c, l, more->items[i]))
                return false;
    }
    if (!eval_keywords(c, n, d))
        return false;
    if (caller && (!mn_j_literal(c, "caller", &v) || !add_keyword(c, d, v, *caller)))
        return false;
    *args = (mn_jargs){l->items, l->n, d->items, d->n};
    return true;
}

static bool eval_call(mn_jctx *c, const mn_jnode *n, const mn_jval *caller, mn_jval *out) {
    mn_jval f;
    mn_jargs args;
    return mn_jeval(c, n->a, &f) && eval_args(c, n, caller, &args) && mn_jcall(c, f, &args, out);
}

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

static bool eval_test(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval v;
    mn_jargs args;
    const mn_jfunc *f = mn_jtest_find(c, n->name);
    if (!f)
        return mn_jfail(c, "no test named '%.*s'", MN_STR_ARG(n->name));
    return mn_jeval(c, n->a, &v) && eval_args(c, n, NULL, &args) && mn_jinvoke(c, f, v, &args, out);
}

static bool eval_concat(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jbuf b = {0};
    for (size_t i = 0; i < n->items.n; i++) {
        mn_jval v;
        if (!mn_jeval(c, n->items.items[i], &v) || !mn_jput(c, &b, v))
            return false;
    }
    return mn_jbuf_value(c, &b, out);
}

static bool compare_one(mn_jctx *c, const mn_jnode *operand, mn_jval a, mn_jval b, bool *yes) {
    int order = 0;
    switch (operand->op) {
    case MN_T_EQ:
        return mn_jequal(c, a, b, yes);
    case MN_T_NE:
        if (!mn_jequal(c, a, b, yes))
            return false;
        *yes = !*yes;
        return true;
    case MN_T_NAME:
        if (!mn_jcontains(c, a, b, yes))
            return false;
        *yes = *yes != operand->flag;
        return true;
    default:
        break;
    }
    if (!mn_jcompare(c, a, b, &order))
        return false;
    if (order == 2)
        *yes = false;
    else
        *yes = operand->op == MN_T_LT   ? order < 0
               : operand->op == MN_T_LE ? order <= 0
               : operand->op == MN_T_GT ? order > 0
                                        : order >= 0;
    return true;
}

static bool eval_compare(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval a, b;
    bool yes = true;
    if (!mn_jeval(c, n->a, &a))
        return false;
    for (size_t i = 0; yes && i < n->items.n; i++, a = b)
        if (!mn_jeval(c, n->items.items[i]->a, &b) ||
            !compare_one(c, n->items.items[i], a, b, &yes))
            return false;
    *out = mn_j_bool(yes);
    return true;
}

static bool eval_logic(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval v;
    switch (n->kind) {
    case MN_N_AND:
        if (!mn_jeval(c, n->a, out))
            return false;
        return mn_jtruth(*out) ? mn_jeval(c, n->b, out) : true;
    case MN_N_OR:
        if (!mn_jeval(c, n->a, out))
            return false;
        return mn_jtruth(*out) ? true : mn_jeval(c, n->b, out);
    case MN_N_NOT:
        if (!mn_jeval(c, n->a, &v))
            return false;
        *out = mn_j_bool(!mn_jtruth(v));
        return true;
    default: // COND
        if (!mn_jeval(c, n->b, &v))
            return false;
        if (mn_jtruth(v))
            return mn_jeval(c, n->a, out);
        return n->c ? mn_jeval(c, n->c, out)
                    : mn_j_undefined(c, mn_str_of("the inline if without else"), out);
    }
}

static bool eval_arith(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    mn_jval a, b;
    if (!mn_jeval(c, n->a, &a))
        return false;
    if (n->kind == MN_N_BINARY)
        return mn_jeval(c, n->b, &b) && mn_jbinary(c, n->op, a, b, out);
    if (n->kind == MN_N_NEG)
        return mn_jnegate(c, a, out);
    if (!mn_j_is_number(a))
        return mn_jneed_defined(c, a) &&
               mn_jfail(c, "bad operand of unary +: '%s'", mn_jtype_name(a));
    *out = a.type == MN_J_BOOL ? mn_j_int(a.u.b) : a;
    return true;
}

/* The call of a call block: n is CALL_BLOCK. */
static bool eval_call_block(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    struct mn_jmacro *m = mn_jalloc(c, 1, sizeof *m);
    if (!m)
        return false;
    *m = (struct mn_jmacro){n->b, c->scope};
    if (!mn_jscope_capture(c))
        return false;
    mn_jval caller = mn_j_of(MN_J_MACRO);
    caller.u.macro = m;
    return eval_call(c, n->a, &caller, out);
}

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
    case MN_N_NOT:
    case MN_N_COND:
        return eval_logic(c, n, out);
    default:
        return mn_jfail(c, "a slice is not a value");
    }
}

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
