/* parse.c -- the statement part of the parser. */
#include "text/jinja/ast.h"
#include <string.h>

mn_jnode *mn_jnode_new(mn_jparser *p, mn_jnode_kind kind) {
    mn_jnode *n = mn_jalloc(p->c, 1, sizeof *n);
    if (!n)
        return NULL;
    n->kind = kind;
    n->line = p->t->line;
    return n;
}

bool mn_jnodes_add(mn_jparser *p, mn_jnodes *l, mn_jnode *n) {
    if (!n)
        return false;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        mn_jnode **items = mn_jalloc(p->c, cap, sizeof *items);
        if (!items)
            return false;
        if (l->n)
            memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = n;
    return true;
}

bool mn_jexpect(mn_jparser *p, mn_jtoken_type type) {
    p->c->line = p->t->line;
    if (p->t->type != type) {
        if (p->t->type == MN_T_NAME)
            return mn_jfail(p->c, "expected '%s', got '%.*s'", mn_jtoken_name(type),
                            MN_STR_ARG(p->t->text));
        return mn_jfail(p->c, "expected '%s', got '%s'", mn_jtoken_name(type),
                        mn_jtoken_name(p->t->type));
    }
    p->t++;
    return true;
}

bool mn_jat_name(const mn_jparser *p, const char *name) {
    return p->t->type == MN_T_NAME && mn_str_is(p->t->text, name);
}

bool mn_jskip_name(mn_jparser *p, const char *name) {
    if (!mn_jat_name(p, name))
        return false;
    p->t++;
    return true;
}

static mn_jnode *parse_body(mn_jparser *p, const char *const *ends);

static mn_jnode *block_body(mn_jparser *p, const char *const *ends) {
    if (p->t->type == MN_T_COLON)
        p->t++;
    return mn_jexpect(p, MN_T_BLOCK_END) ? parse_body(p, ends) : NULL;
}

static bool can_assign(mn_jparser *p, const mn_jnode *n) {
    if (n->kind == MN_N_NAME)
        return true;
    if (n->kind != MN_N_TUPLE)
        return mn_jfail(p->c, "cannot assign to this expression");
    for (size_t i = 0; i < n->items.n; i++)
        if (!can_assign(p, n->items.items[i]))
            return false;
    return true;
}

static mn_jnode *parse_target(mn_jparser *p, const char *end_name, bool with_namespace) {
    if (with_namespace && p->t->type == MN_T_NAME && p->t[1].type == MN_T_DOT) {
        mn_jnode *n = mn_jnode_new(p, MN_N_NSREF);
        if (!n)
            return NULL;
        n->name = p->t->text;
        p->t += 2;
        mn_jstr attr = mn_jstr_plain(p->t->text);
        return mn_jexpect(p, MN_T_NAME) && mn_j_string(p->c, attr, &n->value) ? n : NULL;
    }
    mn_jnode *n = mn_jparse_tuple(p, false, true, end_name);
    return n && can_assign(p, n) ? n : NULL;
}

static mn_jnode *parse_set(mn_jparser *p) {
    static const char *const ends[] = {"endset", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_SET);
    if (!n || !(n->a = parse_target(p, NULL, true)))
        return NULL;
    if (p->t->type == MN_T_ASSIGN) {
        p->t++;
        return (n->b = mn_jparse_tuple(p, true, false, NULL)) ? n : NULL;
    }
    n->kind = MN_N_SET_BLOCK;
    n->b = mn_jparse_filters(p, NULL, false);
    if (p->c->status != MN_OK || !(n->body = block_body(p, ends)))
        return NULL;
    p->t++;
    return n;
}

static mn_jnode *parse_for(mn_jparser *p) {
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_FOR);
    if (!n || !(n->a = parse_target(p, "in", false)))
        return NULL;
    if (!mn_jskip_name(p, "in"))
        return mn_jfail(p->c, "expected 'in' after the target of 'for'"), NULL;
    if (!(n->b = mn_jparse_tuple(p, false, false, "recursive")))
        return NULL;
    if (mn_jskip_name(p, "if") && !(n->c = mn_jparse_expr(p, true)))
        return NULL;
    n->flag = mn_jskip_name(p, "recursive");
    p->loops++;
    n->body = block_body(p, ends);
    p->loops--;
    if (!n->body)
        return NULL;
    bool has_else = mn_jat_name(p, "else");
    p->t++;
    if (has_else && !(n->d = block_body(p, last)))
        return NULL;
    if (has_else)
        p->t++;
    return n;
}

static mn_jnode *parse_if(mn_jparser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_IF);
    while (n) {
        if (!mn_jnodes_add(p, &n->items, mn_jparse_tuple(p, false, false, NULL)) ||
            !mn_jnodes_add(p, &n->items, block_body(p, ends)))
            return NULL;
        if (mn_jskip_name(p, "elif"))
            continue;
        bool has_else = mn_jat_name(p, "else");
        p->t++;
        if (has_else && !(n->c = block_body(p, last)))
            return NULL;
        if (has_else)
            p->t++;
        break;
    }
    return n;
}

static bool parse_signature(mn_jparser *p, mn_jnode *n) {
    if (!mn_jexpect(p, MN_T_LPAREN))
        return false;
    bool defaults = false;
    while (p->t->type != MN_T_RPAREN) {
        if (n->items.n && !mn_jexpect(p, MN_T_COMMA))
            return false;
        mn_jnode *arg = mn_jnode_new(p, MN_N_NAME);
        if (!arg)
            return false;
        arg->name = p->t->text;
        if (!mn_jexpect(p, MN_T_NAME))
            return false;
        if (p->t->type == MN_T_ASSIGN) {
            p->t++;
            defaults = true;
            if (!(arg->a = mn_jparse_expr(p, true)))
                return false;
        } else if (defaults)
            return mn_jfail(p->c, "a parameter without default follows one with a default");
        if (!mn_jnodes_add(p, &n->items, arg))
            return false;
    }
    p->t++;
    return true;
}

static bool macro_body(mn_jparser *p, mn_jnode *n, const char *const *ends) {
    struct mn_jmacro_seen seen = {n, p->macros};
    uint32_t loops = p->loops;
    p->macros = &seen;
    p->loops = 0; // break cannot leave a macro
    n->body = block_body(p, ends);
    p->loops = loops;
    p->macros = seen.outer;
    if (!n->body)
        return false;
    p->t++;
    return true;
}

static mn_jnode *parse_macro(mn_jparser *p) {
    static const char *const ends[] = {"endmacro", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_MACRO);
    if (!n)
        return NULL;
    n->name = p->t->text;
    return mn_jexpect(p, MN_T_NAME) && parse_signature(p, n) && macro_body(p, n, ends) ? n : NULL;
}

static mn_jnode *parse_call_block(mn_jparser *p) {
    static const char *const ends[] = {"endcall", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_CALL_BLOCK), *m = mn_jnode_new(p, MN_N_MACRO);
    if (!n || !m)
        return NULL;
    m->name = mn_str_of("caller");
    if (p->t->type == MN_T_LPAREN && !parse_signature(p, m))
        return NULL;
    if (!(n->a = mn_jparse_expr(p, true)))
        return NULL;
    if (n->a->kind != MN_N_CALL)
        return mn_jfail(p->c, "expected a call after 'call'"), NULL;
    n->b = m;
    return macro_body(p, m, ends) ? n : NULL;
}

static mn_jnode *parse_filter_block(mn_jparser *p) {
    static const char *const ends[] = {"endfilter", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_FILTER_BLOCK);
    if (!n || !(n->a = mn_jparse_filters(p, NULL, true)) || !(n->body = block_body(p, ends)))
        return NULL;
    p->t++;
    return n;
}

static mn_jnode *parse_with(mn_jparser *p) {
    static const char *const ends[] = {"endwith", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_WITH);
    while (n && p->t->type != MN_T_BLOCK_END) {
        if (n->kw.n && !mn_jexpect(p, MN_T_COMMA))
            return NULL;
        mn_jnode *set = mn_jnode_new(p, MN_N_SET);
        if (!set || !(set->a = parse_target(p, NULL, false)) || !mn_jexpect(p, MN_T_ASSIGN) ||
            !(set->b = mn_jparse_expr(p, true)) || !mn_jnodes_add(p, &n->kw, set))
            return NULL;
    }
    if (!n || !(n->body = block_body(p, ends)))
        return NULL;
    p->t++;
    return n;
}

static mn_jnode *parse_generation(
    mn_jparser *p) { // marks the assistant's text for training: the body is all there is to it
    static const char *const ends[] = {"endgeneration", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_WITH);
    if (!n || !(n->body = block_body(p, ends)))
        return NULL;
    p->t++;
    return n;
}

static mn_jnode *parse_print(mn_jparser *p) {
    mn_jnode *n = mn_jnode_new(p, MN_N_BODY);
    while (n && p->t->type != MN_T_BLOCK_END) {
        if (n->items.n && !mn_jexpect(p, MN_T_COMMA))
            return NULL;
        mn_jnode *one = mn_jnode_new(p, MN_N_PRINT);
        if (!one || !(one->a = mn_jparse_expr(p, true)) || !mn_jnodes_add(p, &n->items, one))
            return NULL;
    }
    return n;
}

static mn_jnode *parse_break(mn_jparser *p) {
    mn_jnode *n = mn_jnode_new(p, mn_str_is(p->t[-1].text, "break") ? MN_N_BREAK : MN_N_CONTINUE);
    if (n && !p->loops)
        return mn_jfail(p->c, "'%.*s' outside a loop", MN_STR_ARG(p->t[-1].text)), NULL;
    return n;
}

static mn_jnode *parse_statement(mn_jparser *p) {
    static const struct {
        const char *word;
        mn_jnode *(*parse)(mn_jparser *);
    } table[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"print", parse_print},     {"break", parse_break},
        {"continue", parse_break},
    };
    mn_str word = p->t->text;
    if (!mn_jexpect(p, MN_T_NAME))
        return NULL;
    for (size_t i = 0; i < MN_COUNT(table); i++)
        if (mn_str_is(word, table[i].word))
            return table[i].parse(p);
    mn_jfail(p->c, "unknown tag '%.*s'", MN_STR_ARG(word));
    return NULL;
}

static mn_jnode *data_node(mn_jparser *p) {
    mn_jnode *n = mn_jnode_new(p, MN_N_PRINT), *text = mn_jnode_new(p, MN_N_CONST);
    mn_jstr s = mn_jstr_plain(p->t->text);
    if (!n || !text || !mn_j_string(p->c, s, &text->value))
        return NULL;
    n->a = text;
    p->t++;
    return n;
}

static mn_jnode *print_node(mn_jparser *p) {
    p->t++;
    mn_jnode *n = mn_jnode_new(p, MN_N_PRINT);
    return n && (n->a = mn_jparse_tuple(p, true, false, NULL)) && mn_jexpect(p, MN_T_VAR_END)
               ? n
               : NULL;
}

static bool at_end(const mn_jparser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (mn_jat_name(p, *ends))
            return true;
    return false;
}

/* Up to one of these words at the start of a tag (which is then the current token), or with NULL to
 * the template's end. */
static mn_jnode *parse_body(mn_jparser *p, const char *const *ends) {
    mn_jnode *body = mn_jnode_new(p, MN_N_BODY);
    if (!body || !mn_jenter(p->c))
        return NULL;
    for (;;) {
        p->c->line = p->t->line;
        mn_jnode *n;
        if (p->t->type == MN_T_EOF) {
            if (ends)
                return mn_jfail(p->c, "unexpected end of template, expected '%s'", ends[0]), NULL;
            break;
        }
        if (p->t->type == MN_T_DATA)
            n = data_node(p);
        else if (p->t->type == MN_T_VAR_BEGIN)
            n = print_node(p);
        else {
            p->t++; // {%
            if (at_end(p, ends))
                break;
            n = parse_statement(p);
            if (n && !mn_jexpect(p, MN_T_BLOCK_END))
                return NULL;
        }
        if (!mn_jnodes_add(p, &body->items, n))
            return NULL;
    }
    mn_jleave(p->c);
    return body;
}

bool mn_jparse(mn_jctx *c, mn_str source, mn_jnode **out) {
    mn_jtoken *tokens;
    if (!mn_jlex(c, source, &tokens))
        return false;
    mn_jparser p = {.c = c, .t = tokens};
    return (*out = parse_body(&p, NULL)) != NULL;
}
