/* parse.c -- the statement part of the parser: tokens to a tree (ast.h), which lives in the
 * template's arena and does not change afterwards. Expressions are in expr.c.
 *
 * A function for a tag is called behind the tag's first word; it reads up to where the last of its
 * tags ends, which parse_piece passes over. NULL or false: failed, c->status and c->err say why. */
#include "text/jinja/ast.h"
#include <string.h>

/* Zeroed, with the line of the current token. */
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
    mn_jnode **items = mn_jgrow(p->c, l->items, l->n, &l->cap, sizeof *items);
    if (!items)
        return false;
    l->items = items;
    l->items[l->n++] = n;
    return true;
}

/* Passes over a token of this type; another one is an error. */
bool mn_jexpect(mn_jparser *p, mn_jtoken_type type) {
    const char *expected = mn_jtoken_name(type);
    p->c->line = p->t->line;
    if (p->t->type == type) {
        p->t++;
        return true;
    }
    mn_str found = mn_str_of(mn_jtoken_name(p->t->type));
    if (p->t->type == MN_T_NAME)
        found = p->t->text;
    return mn_jfail(p->c, "expected '%s', got '%.*s'", expected, MN_STR_ARG(found));
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

/* NULL, for functions that return a node. */
static mn_jnode *failed(mn_jparser *p, const char *message) {
    mn_jfail(p->c, "%s", message);
    return NULL;
}

/* From behind a tag's words to one of ends, which is then the current token. */
static mn_jnode *block_body(mn_jparser *p, const char *const *ends) {
    if (p->t->type == MN_T_COLON)
        p->t++;
    return mn_jexpect(p, MN_T_BLOCK_END) ? parse_body(p, ends) : NULL;
}

/* A body, and past the one word that ends it. */
static bool closed_body(mn_jparser *p, mn_jnode *n, const char *const *ends) {
    n->body = block_body(p, ends);
    if (!n->body)
        return false;
    p->t++;
    return true;
}

/* At else or the end of a for or if: *out is the body of else, if there is one. */
static bool parse_else(mn_jparser *p, const char *end, mn_jnode **out) {
    const char *const last[] = {end, NULL};
    const bool has_else = mn_jat_name(p, "else");
    p->t++;
    if (!has_else)
        return true;
    *out = block_body(p, last);
    if (!*out)
        return false;
    p->t++;
    return true;
}

/* Names, and tuples of them. */
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

/* ns.name */
static mn_jnode *parse_namespace_ref(mn_jparser *p) {
    mn_jnode *n = mn_jnode_new(p, MN_N_NSREF);
    if (!n)
        return NULL;
    n->name = p->t->text;
    p->t += 2;
    const mn_jstr attr = mn_jstr_plain(p->t->text);
    return mn_jexpect(p, MN_T_NAME) && mn_j_string(p->c, attr, &n->value) ? n : NULL;
}

/* What a for or set gives values to. with_namespace: also ns.name. */
static mn_jnode *parse_target(mn_jparser *p, const char *end_name, bool with_namespace) {
    if (with_namespace && p->t->type == MN_T_NAME && p->t[1].type == MN_T_DOT)
        return parse_namespace_ref(p);
    mn_jnode *n = mn_jparse_tuple(p, false, true, end_name);
    return n && can_assign(p, n) ? n : NULL;
}

/* {% set a = b %}, or the text up to endset, through filters. */
static mn_jnode *parse_set(mn_jparser *p) {
    static const char *const ends[] = {"endset", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_SET);
    if (!n)
        return NULL;
    n->a = parse_target(p, NULL, true);
    if (!n->a)
        return NULL;
    if (p->t->type == MN_T_ASSIGN) {
        p->t++;
        n->b = mn_jparse_tuple(p, true, false, NULL);
        return n->b ? n : NULL;
    }
    n->kind = MN_N_SET_BLOCK;
    n->b = mn_jparse_filters(p, NULL, false);
    return p->c->status == MN_OK && closed_body(p, n, ends) ? n : NULL;
}

/* for target in items if condition recursive: body, else: body. */
static mn_jnode *parse_for(mn_jparser *p) {
    static const char *const ends[] = {"endfor", "else", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_FOR);
    if (!n)
        return NULL;
    n->a = parse_target(p, "in", false);
    if (!n->a)
        return NULL;
    if (!mn_jskip_name(p, "in"))
        return failed(p, "expected 'in' after the target of 'for'");
    n->b = mn_jparse_tuple(p, false, false, "recursive");
    if (!n->b)
        return NULL;
    if (mn_jskip_name(p, "if")) {
        n->c = mn_jparse_expr(p, true);
        if (!n->c)
            return NULL;
    }
    n->flag = mn_jskip_name(p, "recursive");
    p->loops++;
    n->body = block_body(p, ends);
    p->loops--;
    return n->body && parse_else(p, "endfor", &n->d) ? n : NULL;
}

/* if, any number of elif, else. */
static mn_jnode *parse_if(mn_jparser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_IF);
    while (n) {
        mn_jnode *condition = mn_jparse_tuple(p, false, false, NULL);
        if (!mn_jnodes_add(p, &n->items, condition))
            return NULL;
        if (!mn_jnodes_add(p, &n->items, block_body(p, ends)))
            return NULL;
        if (!mn_jskip_name(p, "elif"))
            return parse_else(p, "endif", &n->c) ? n : NULL;
    }
    return NULL;
}

/* One parameter. *defaults: one before it has a default, and so must it. */
static bool parse_param(mn_jparser *p, mn_jnode *n, bool *defaults) {
    mn_jnode *arg = mn_jnode_new(p, MN_N_NAME);
    if (!arg)
        return false;
    arg->name = p->t->text;
    if (!mn_jexpect(p, MN_T_NAME))
        return false;
    if (p->t->type == MN_T_ASSIGN) {
        p->t++;
        *defaults = true;
        arg->a = mn_jparse_expr(p, true);
        if (!arg->a)
            return false;
    } else if (*defaults)
        return mn_jfail(p->c, "a parameter without default follows one with a default");
    return mn_jnodes_add(p, &n->items, arg);
}

/* (a, b=default): defaults come last. */
static bool parse_signature(mn_jparser *p, mn_jnode *n) {
    bool defaults = false;
    if (!mn_jexpect(p, MN_T_LPAREN))
        return false;
    while (p->t->type != MN_T_RPAREN) {
        if (n->items.n && !mn_jexpect(p, MN_T_COMMA))
            return false;
        if (!parse_param(p, n, &defaults))
            return false;
    }
    p->t++;
    return true;
}

/* Notes which of varargs, kwargs and caller the body mentions. break cannot leave a macro. */
static bool macro_body(mn_jparser *p, mn_jnode *n, const char *const *ends) {
    struct mn_jmacro_seen seen = {n, p->macros};
    const uint32_t loops = p->loops;
    p->macros = &seen;
    p->loops = 0;
    const bool ok = closed_body(p, n, ends);
    p->loops = loops;
    p->macros = seen.outer;
    return ok;
}

/* {% macro name(parameters) %} */
static mn_jnode *parse_macro(mn_jparser *p) {
    static const char *const ends[] = {"endmacro", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_MACRO);
    if (!n)
        return NULL;
    n->name = p->t->text;
    return mn_jexpect(p, MN_T_NAME) && parse_signature(p, n) && macro_body(p, n, ends) ? n : NULL;
}

/* {% call(parameters) macro(arguments) %}: the body is a macro named caller. */
static mn_jnode *parse_call_block(mn_jparser *p) {
    static const char *const ends[] = {"endcall", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_CALL_BLOCK);
    mn_jnode *m = mn_jnode_new(p, MN_N_MACRO);
    if (!n || !m)
        return NULL;
    m->name = mn_str_of("caller");
    if (p->t->type == MN_T_LPAREN && !parse_signature(p, m))
        return NULL;
    n->a = mn_jparse_expr(p, true);
    n->b = m;
    if (!n->a)
        return NULL;
    if (n->a->kind != MN_N_CALL)
        return failed(p, "expected a call after 'call'");
    return macro_body(p, m, ends) ? n : NULL;
}

/* {% filter upper %} */
static mn_jnode *parse_filter_block(mn_jparser *p) {
    static const char *const ends[] = {"endfilter", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_FILTER_BLOCK);
    if (!n)
        return NULL;
    n->a = mn_jparse_filters(p, NULL, true);
    return n->a && closed_body(p, n, ends) ? n : NULL;
}

/* {% with a = 1, b = 2 %} */
static mn_jnode *parse_with(mn_jparser *p) {
    static const char *const ends[] = {"endwith", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_WITH);
    while (n && p->t->type != MN_T_BLOCK_END) {
        if (n->kw.n && !mn_jexpect(p, MN_T_COMMA))
            return NULL;
        mn_jnode *set = mn_jnode_new(p, MN_N_SET);
        if (!set)
            return NULL;
        set->a = parse_target(p, NULL, false);
        if (!set->a || !mn_jexpect(p, MN_T_ASSIGN))
            return NULL;
        set->b = mn_jparse_expr(p, true);
        if (!set->b || !mn_jnodes_add(p, &n->kw, set))
            return NULL;
    }
    return n && closed_body(p, n, ends) ? n : NULL;
}

/* {% generation %} marks the assistant's text for training: the body is all there is to it. */
static mn_jnode *parse_generation(mn_jparser *p) {
    static const char *const ends[] = {"endgeneration", NULL};
    mn_jnode *n = mn_jnode_new(p, MN_N_WITH);
    return n && closed_body(p, n, ends) ? n : NULL;
}

/* break and continue; the word is the token before. */
static mn_jnode *parse_break(mn_jparser *p) {
    const bool is_break = mn_str_is(p->t[-1].text, "break");
    if (!p->loops)
        return failed(p, is_break ? "'break' outside a loop" : "'continue' outside a loop");
    return mn_jnode_new(p, is_break ? MN_N_BREAK : MN_N_CONTINUE);
}

/* By the first word of a tag; unknown ones are an error, and so is what would read other files. */
static mn_jnode *parse_statement(mn_jparser *p) {
    static const struct {
        const char *word;
        mn_jnode *(*parse)(mn_jparser *);
    } table[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_break},
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

/* Text between tags, printed as it is. */
static mn_jnode *data_node(mn_jparser *p) {
    mn_jnode *n = mn_jnode_new(p, MN_N_PRINT);
    mn_jnode *text = mn_jnode_new(p, MN_N_CONST);
    if (!n || !text)
        return NULL;
    if (!mn_j_string(p->c, mn_jstr_plain(p->t->text), &text->value))
        return NULL;
    n->a = text;
    p->t++;
    return n;
}

/* {{ expression }} */
static mn_jnode *print_node(mn_jparser *p) {
    p->t++;
    mn_jnode *n = mn_jnode_new(p, MN_N_PRINT);
    if (!n)
        return NULL;
    n->a = mn_jparse_tuple(p, true, false, NULL);
    return n->a && mn_jexpect(p, MN_T_VAR_END) ? n : NULL;
}

/* Is the current token one of these words? */
static bool parse_at_end(const mn_jparser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (mn_jat_name(p, *ends))
            return true;
    return false;
}

/* Text, an expression to print or a tag, at the current token. *end: a tag that begins with one of
 * these words, which is not passed over. */
static mn_jnode *jinja_parse_piece(mn_jparser *p, const char *const *ends, bool *end) {
    if (p->t->type == MN_T_DATA)
        return data_node(p);
    if (p->t->type == MN_T_VAR_BEGIN)
        return print_node(p);
    p->t++; // {%
    *end = parse_at_end(p, ends);
    if (*end)
        return NULL;
    mn_jnode *n = parse_statement(p);
    return n && mn_jexpect(p, MN_T_BLOCK_END) ? n : NULL;
}

/* Up to one of these words at the start of a tag (which is then the current token), or with NULL to
 * the template's end. */
static mn_jnode *parse_body(mn_jparser *p, const char *const *ends) {
    mn_jnode *body = mn_jnode_new(p, MN_N_BODY);
    bool end = false;
    if (!body || !mn_jenter(p->c))
        return NULL;
    while (p->t->type != MN_T_EOF) {
        p->c->line = p->t->line;
        mn_jnode *n = jinja_parse_piece(p, ends, &end);
        if (end)
            break;
        if (!mn_jnodes_add(p, &body->items, n))
            return NULL;
    }
    p->c->line = p->t->line;
    if (ends && !end) {
        mn_jfail(p->c, "unexpected end of template, expected '%s'", ends[0]);
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
    *out = parse_body(&p, NULL);
    return *out != NULL;
}
