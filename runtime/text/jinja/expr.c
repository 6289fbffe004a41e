/* expr.c -- the expression part of the parser: recursive descent, one function per level of
 * precedence, as in jinja2/parser.py. From the loosest: if else, or, and, not, comparisons, + -, ~,
 * * / // %, **, signs, then what stands behind a primary.
 *
 * Each function leaves p->t at the first token that is not its own, and returns NULL once something
 * has failed. Nodes live in the template's arena. Nesting is counted (mn_jenter), since the stack
 * of this program is what it uses up; parse.c has the statements. */
#include "text/jinja/ast.h"
#include <string.h>

static mn_jnode *parse_or(mn_jparser *p);
static mn_jnode *parse_unary(mn_jparser *p, bool filters);
static mn_jnode *parse_postfix(mn_jparser *p, mn_jnode *n);

/* NULL, with the error of a token that begins no expression. */
static mn_jnode *expr_unexpected(mn_jparser *p) {
    if (p->t->type == MN_T_NAME || p->t->type == MN_T_STRING)
        mn_jfail(p->c, "unexpected '%.*s'", MN_STR_ARG(p->t->text));
    else
        mn_jfail(p->c, "unexpected '%s', expected an expression", mn_jtoken_name(p->t->type));
    return NULL;
}

/* A node of one or two operands; NULL if one of them failed before. */
static mn_jnode *node2(mn_jparser *p, mn_jnode_kind kind, int op, mn_jnode *a, mn_jnode *b) {
    mn_jnode *n = a && b ? mn_jnode_new(p, kind) : NULL;
    if (!n)
        return NULL;
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

/* A node that is its value. */
static mn_jnode *constant(mn_jparser *p, mn_jval v) {
    mn_jnode *n = mn_jnode_new(p, MN_N_CONST);
    if (n)
        n->value = v;
    return n;
}

/* Macros around whose body says varargs, kwargs or caller get those. */
static void note_special(mn_jparser *p, mn_str name) {
    for (struct mn_jmacro_seen *m = p->macros; m; m = m->outer) {
        m->macro->uses_varargs |= mn_str_is(name, "varargs");
        m->macro->uses_kwargs |= mn_str_is(name, "kwargs");
        m->macro->uses_caller |= mn_str_is(name, "caller");
    }
}

/* Variables and the three constants, in both spellings. */
static mn_jnode *parse_name(mn_jparser *p) {
    mn_str name = p->t->text;
    p->t++;
    if (mn_str_is(name, "true") || mn_str_is(name, "True"))
        return constant(p, mn_j_bool(true));
    if (mn_str_is(name, "false") || mn_str_is(name, "False"))
        return constant(p, mn_j_bool(false));
    if (mn_str_is(name, "none") || mn_str_is(name, "None"))
        return constant(p, mn_j_of(MN_J_NONE));
    mn_jnode *n = mn_jnode_new(p, MN_N_NAME);
    if (!n)
        return NULL;
    n->name = name;
    note_special(p, name);
    return n;
}

/* One string, or several in a row, which are joined. */
static mn_jnode *parse_string(mn_jparser *p) {
    mn_jbuf b = {0};
    mn_jval v;
    for (; p->t->type == MN_T_STRING; p->t++) {
        const mn_str text = p->t->text;
        if (!mn_jbuf_bytes(p->c, &b, text.ptr, text.len, 0))
            return NULL;
    }
    return mn_jbuf_value(p->c, &b, &v) ? constant(p, v) : NULL;
}

/* [a, b,] or {a: b, c: d,}: a comma at the end is allowed. */
static mn_jnode *parse_items(mn_jparser *p, mn_jnode_kind kind, mn_jtoken_type close) {
    mn_jnode *n = mn_jnode_new(p, kind);
    p->t++;
    while (n && p->t->type != close) {
        if (n->items.n && !mn_jexpect(p, MN_T_COMMA))
            return NULL;
        if (p->t->type == close)
            break;
        if (!mn_jnodes_add(p, &n->items, mn_jparse_expr(p, true)))
            return NULL;
        if (kind == MN_N_LIST)
            continue;
        if (!mn_jexpect(p, MN_T_COLON))
            return NULL;
        if (!mn_jnodes_add(p, &n->items, mn_jparse_expr(p, true)))
            return NULL;
    }
    return n && mn_jexpect(p, close) ? n : NULL;
}

/* An integer or a float. */
static mn_jnode *parse_number(mn_jparser *p) {
    const mn_jtoken *t = p->t++;
    if (t->type == MN_T_INT)
        return constant(p, mn_j_int(t->i));
    return constant(p, mn_j_float(t->f));
}

/* What operators, subscripts and filters are applied to. */
static mn_jnode *parse_primary(mn_jparser *p) {
    switch (p->t->type) {
    case MN_T_NAME:
        return parse_name(p);
    case MN_T_STRING:
        return parse_string(p);
    case MN_T_INT:
    case MN_T_FLOAT:
        return parse_number(p);
    case MN_T_LBRACKET:
        return parse_items(p, MN_N_LIST, MN_T_RBRACKET);
    case MN_T_LBRACE:
        return parse_items(p, MN_N_DICT, MN_T_RBRACE);
    case MN_T_LPAREN:
        break;
    default:
        return expr_unexpected(p);
    }
    p->t++;
    mn_jnode *n;
    if (p->t->type == MN_T_RPAREN)
        n = mn_jnode_new(p, MN_N_TUPLE);
    else
        n = mn_jparse_tuple(p, true, false, NULL);
    return n && mn_jexpect(p, MN_T_RPAREN) ? n : NULL;
}

/* What a comma at the end of a tuple stands in front of. */
static bool at_tuple_end(const mn_jparser *p, const char *end_name) {
    return p->t->type == MN_T_VAR_END || p->t->type == MN_T_BLOCK_END ||
           p->t->type == MN_T_RPAREN || (end_name && mn_jat_name(p, end_name));
}

/* One expression, or a tuple where a comma follows. simple: names alone, as for targets; end_name:
 * a word that ends the tuple, as "in". */
mn_jnode *mn_jparse_tuple(mn_jparser *p, bool with_cond, bool simple, const char *end_name) {
    mn_jnodes items = {0};
    bool tuple = false;
    if (!mn_jenter(p->c))
        return NULL; // (a, (b, (c...: parse_primary is not counted elsewhere when simple
    for (;;) {
        if (items.n && !mn_jexpect(p, MN_T_COMMA))
            return NULL;
        if (at_tuple_end(p, end_name))
            break;
        if (!mn_jnodes_add(p, &items, simple ? parse_primary(p) : mn_jparse_expr(p, with_cond)))
            return NULL;
        if (p->t->type != MN_T_COMMA)
            break;
        tuple = true;
    }
    mn_jleave(p->c);
    if (!tuple)
        return items.n ? items.items[0] : expr_unexpected(p);
    mn_jnode *n = mn_jnode_new(p, MN_N_TUPLE);
    if (n)
        n->items = items;
    return n;
}

/* ---- after a primary: subscripts, calls, filters, tests -------------------------------------- */

/* name=value */
static bool parse_keyword(mn_jparser *p, mn_jnode *n) {
    mn_jnode *kw = mn_jnode_new(p, MN_N_KEYWORD);
    if (!kw)
        return false;
    kw->name = p->t->text;
    for (size_t i = 0; i < n->kw.n; i++)
        if (mn_jsame(p->c, n->kw.items[i]->name, kw->name))
            return mn_jfail(p->c, "keyword '%.*s' given twice", MN_STR_ARG(kw->name));
    p->t += 2;
    kw->a = mn_jparse_expr(p, true);
    return kw->a && mn_jnodes_add(p, &n->kw, kw);
}

/* Positional, *list, name=value and **dict, in this order. */
static bool parse_call_arg(mn_jparser *p, mn_jnode *n) {
    const mn_jtoken *t = p->t;
    const bool keyword = t->type == MN_T_NAME && t[1].type == MN_T_ASSIGN;
    if (t->type == MN_T_MUL && !n->b && !n->c) {
        p->t++;
        n->b = mn_jparse_expr(p, true);
        return n->b;
    }
    if (t->type == MN_T_POW && !n->c) {
        p->t++;
        n->c = mn_jparse_expr(p, true);
        return n->c;
    }
    if (keyword && !n->c)
        return parse_keyword(p, n);
    if (n->b || n->c || n->kw.n)
        return mn_jfail(p->c, "invalid syntax for function call expression");
    return mn_jnodes_add(p, &n->items, mn_jparse_expr(p, true));
}

/* From the opening parenthesis to behind the closing one. */
static bool parse_call_args(mn_jparser *p, mn_jnode *n) {
    p->t++;
    for (bool first = true; p->t->type != MN_T_RPAREN; first = false) {
        if (!first && !mn_jexpect(p, MN_T_COMMA))
            return false;
        if (!first && p->t->type == MN_T_RPAREN)
            break;
        if (!parse_call_arg(p, n))
            return false;
    }
    return mn_jexpect(p, MN_T_RPAREN);
}

/* on(arguments) */
static mn_jnode *parse_call(mn_jparser *p, mn_jnode *on) {
    mn_jnode *n = mn_jnode_new(p, MN_N_CALL);
    if (!n)
        return NULL;
    n->a = on;
    return parse_call_args(p, n) ? n : NULL;
}

static bool at_slice_end(const mn_jparser *p) {
    return p->t->type == MN_T_RBRACKET || p->t->type == MN_T_COMMA;
}

/* An index, or a slice with parts left out. */
static mn_jnode *parse_subscribed(mn_jparser *p) {
    mn_jnode *first = NULL;
    if (p->t->type != MN_T_COLON) {
        first = mn_jparse_expr(p, true);
        if (!first || p->t->type != MN_T_COLON)
            return first;
    }
    mn_jnode *n = mn_jnode_new(p, MN_N_SLICE);
    if (!n)
        return NULL;
    p->t++;
    n->a = first;
    if (p->t->type != MN_T_COLON && !at_slice_end(p) && !(n->b = mn_jparse_expr(p, true)))
        return NULL;
    if (p->t->type != MN_T_COLON)
        return n;
    p->t++;
    return at_slice_end(p) || (n->c = mn_jparse_expr(p, true)) ? n : NULL;
}

/* [a], [a:b], [a, b] (a tuple). */
static mn_jnode *parse_index(mn_jparser *p, mn_jnode *on) {
    mn_jnodes args = {0};
    p->t++;
    while (p->t->type != MN_T_RBRACKET) {
        if (args.n && !mn_jexpect(p, MN_T_COMMA))
            return NULL;
        if (!mn_jnodes_add(p, &args, parse_subscribed(p)))
            return NULL;
    }
    p->t++;
    mn_jnode *arg = args.n == 1 ? args.items[0] : mn_jnode_new(p, MN_N_TUPLE);
    if (arg && args.n != 1) {
        for (size_t i = 0; i < args.n; i++)
            if (args.items[i]->kind == MN_N_SLICE)
                return mn_jfail(p->c, "a slice cannot be part of a tuple"), NULL;
        arg->items = args;
    }
    return node2(p, MN_N_ITEM, 0, on, arg);
}

/* .name, and .0 for an item. */
static mn_jnode *parse_dot(mn_jparser *p, mn_jnode *on) {
    p->t++;
    if (p->t->type == MN_T_INT)
        return node2(p, MN_N_ITEM, 0, on, parse_number(p));
    if (p->t->type != MN_T_NAME)
        return mn_jfail(p->c, "expected a name or a number after '.'"), NULL;
    mn_jnode *n = mn_jnode_new(p, MN_N_ATTR);
    if (!n)
        return NULL;
    n->a = on;
    n->name = p->t->text;
    p->t++;
    return n;
}

/* Attributes, subscripts and calls, which bind tighter than any operator. */
static mn_jnode *parse_postfix(mn_jparser *p, mn_jnode *n) {
    while (n) {
        if (p->t->type == MN_T_DOT)
            n = parse_dot(p, n);
        else if (p->t->type == MN_T_LBRACKET)
            n = parse_index(p, n);
        else if (p->t->type == MN_T_LPAREN)
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* |name(arguments) any number of times. first_inline: the first has no bar, as in {% filter name
 * %}. */
mn_jnode *mn_jparse_filters(mn_jparser *p, mn_jnode *on, bool first_inline) {
    while (p->t->type == MN_T_PIPE || first_inline) {
        if (!first_inline)
            p->t++;
        first_inline = false;
        mn_jnode *n = mn_jnode_new(p, MN_N_FILTER);
        if (!n)
            return NULL;
        n->a = on;
        n->name = p->t->text;
        if (!mn_jexpect(p, MN_T_NAME))
            return NULL;
        if (p->t->type == MN_T_LPAREN && !parse_call_args(p, n))
            return NULL;
        on = n;
    }
    return on;
}

/* A test may have one argument without parentheses: x is divisibleby 3. */
static bool starts_test_arg(const mn_jparser *p) {
    switch (p->t->type) {
    case MN_T_NAME:
        return !mn_jat_name(p, "else") && !mn_jat_name(p, "or") && !mn_jat_name(p, "and");
    case MN_T_STRING:
    case MN_T_INT:
    case MN_T_FLOAT:
    case MN_T_LBRACKET:
    case MN_T_LBRACE:
        return true;
    default:
        return false;
    }
}

/* is, is not. */
static mn_jnode *parse_test(mn_jparser *p, mn_jnode *on) {
    mn_jnode *n = mn_jnode_new(p, MN_N_TEST);
    if (!n)
        return NULL;
    p->t++;
    bool negated = mn_jskip_name(p, "not");
    n->a = on;
    n->name = p->t->text;
    if (!mn_jexpect(p, MN_T_NAME))
        return NULL;
    if (p->t->type == MN_T_LPAREN) {
        if (!parse_call_args(p, n))
            return NULL;
    } else if (starts_test_arg(p)) {
        if (mn_jat_name(p, "is"))
            return mn_jfail(p->c, "tests with 'is' cannot be chained"), NULL;
        mn_jnode *arg = parse_primary(p);
        if (!arg || !mn_jnodes_add(p, &n->items, parse_postfix(p, arg)))
            return NULL;
    }
    if (!negated)
        return n;
    mn_jnode *not = mn_jnode_new(p, MN_N_NOT);
    if (not )
        not ->a = n;
    return not ;
}

/* Filters and tests, which bind tighter than operators but not than a sign. */
static mn_jnode *parse_filter_expr(mn_jparser *p, mn_jnode *n) {
    while (n) {
        if (p->t->type == MN_T_PIPE)
            n = mn_jparse_filters(p, n, false);
        else if (mn_jat_name(p, "is"))
            n = parse_test(p, n);
        else if (p->t->type == MN_T_LPAREN)
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators, tightest first --------------------------------------------------------------- */

/* Signs bind looser than subscripts and tighter than filters, as in Jinja2. */
static mn_jnode *parse_unary(mn_jparser *p, bool filters) {
    mn_jnode *n;
    if (!mn_jenter(p->c))
        return NULL;
    if (p->t->type == MN_T_SUB || p->t->type == MN_T_ADD) {
        n = mn_jnode_new(p, p->t->type == MN_T_SUB ? MN_N_NEG : MN_N_POS);
        p->t++;
        if (n && !(n->a = parse_unary(p, false)))
            n = NULL;
    } else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    mn_jleave(p->c);
    return filters ? parse_filter_expr(p, n) : n;
}

/* How strongly a binary operator binds: 0: + -, 1: ~, 2: * / // %, 3: **; -1: it is none. */
static int level_of(mn_jtoken_type t) {
    switch (t) {
    case MN_T_ADD:
    case MN_T_SUB:
        return 0;
    case MN_T_TILDE:
        return 1;
    case MN_T_MUL:
    case MN_T_DIV:
    case MN_T_FLOORDIV:
    case MN_T_MOD:
        return 2;
    case MN_T_POW:
        return 3;
    default:
        return -1;
    }
}

static mn_jnode *parse_binary(mn_jparser *p, int level) {
    mn_jnode *left = level == 3 ? parse_unary(p, true) : parse_binary(p, level + 1);
    for (;;) {
        mn_jtoken_type t = p->t->type;
        if (!left || level_of(t) != level)
            return left;
        p->t++;
        mn_jnode *right = level == 3 ? parse_unary(p, true) : parse_binary(p, level + 1);
        if (level != 1)
            left = node2(p, MN_N_BINARY, (int)t, left, right);
        else if (left->kind == MN_N_CONCAT && left->flag)
            left = mn_jnodes_add(p, &left->items, right) ? left : NULL;
        else {
            mn_jnode *n = mn_jnode_new(p, MN_N_CONCAT);
            if (!n || !mn_jnodes_add(p, &n->items, left) || !mn_jnodes_add(p, &n->items, right))
                return NULL;
            n->flag = true; // still open: cleared when the chain ends
            left = n;
        }
        if (level == 1 && left && p->t->type != MN_T_TILDE)
            left->flag = false;
    }
}

/* "not in" is two tokens. */
static bool at_compare(const mn_jparser *p) {
    return (p->t->type >= MN_T_EQ && p->t->type <= MN_T_LE) || mn_jat_name(p, "in") ||
           (mn_jat_name(p, "not") && p->t[1].type == MN_T_NAME && mn_str_is(p->t[1].text, "in"));
}

/* Comparisons form a chain. */
static mn_jnode *parse_compare(mn_jparser *p) {
    mn_jnode *first = parse_binary(p, 0);
    if (!first || !at_compare(p))
        return first;
    mn_jnode *n = mn_jnode_new(p, MN_N_COMPARE);
    if (!n)
        return NULL;
    n->a = first;
    while (at_compare(p)) {
        mn_jnode *operand = mn_jnode_new(p, MN_N_OPERAND);
        if (!operand)
            return NULL;
        operand->op = (int)p->t->type;
        operand->flag = mn_jat_name(p, "not");
        p->t += operand->flag ? 2 : 1;
        if (!(operand->a = parse_binary(p, 0)) || !mn_jnodes_add(p, &n->items, operand))
            return NULL;
    }
    return n;
}

/* not binds looser than comparisons. */
static mn_jnode *parse_not(mn_jparser *p) {
    if (!mn_jskip_name(p, "not"))
        return parse_compare(p);
    mn_jnode *n = mn_jnode_new(p, MN_N_NOT);
    if (!n || !mn_jenter(p->c) || !(n->a = parse_not(p)))
        return NULL;
    mn_jleave(p->c);
    return n;
}

static mn_jnode *parse_and(mn_jparser *p) {
    mn_jnode *left = parse_not(p);
    while (left && mn_jskip_name(p, "and"))
        left = node2(p, MN_N_AND, 0, left, parse_not(p));
    return left;
}

static mn_jnode *parse_or(mn_jparser *p) {
    mn_jnode *left = parse_and(p);
    while (left && mn_jskip_name(p, "or"))
        left = node2(p, MN_N_OR, 0, left, parse_and(p));
    return left;
}

/* a if b else c, the loosest of all. with_cond: whether that may stand here. */
mn_jnode *mn_jparse_expr(mn_jparser *p, bool with_cond) {
    if (!mn_jenter(p->c))
        return NULL;
    mn_jnode *n = parse_or(p);
    while (n && with_cond && mn_jskip_name(p, "if")) {
        mn_jnode *cond = parse_or(p);
        if (!(n = node2(p, MN_N_COND, 0, n, cond)))
            break;
        if (mn_jskip_name(p, "else") && !(n->c = mn_jparse_expr(p, true)))
            return NULL;
    }
    mn_jleave(p->c);
    return n;
}
