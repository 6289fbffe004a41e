/* exec.c -- statements, scopes and macros. Output goes to c->out. */
#include "text/jinja/eval.h"
#include <string.h>

mn_jscope *mn_jscope_new(mn_jctx *c, mn_jscope *parent) {
    mn_jscope *s = mn_jalloc(c, 1, sizeof *s);
    if (s)
        s->parent = parent;
    return s;
}

const mn_jval *mn_jscope_get(mn_jctx *c, mn_str name) {
    for (const mn_jscope *s = c->scope; s && mn_jcharge(c, MN_J_PER_SLOT, 1); s = s->parent)
        for (size_t i = 0; i < s->n; i++)
            if (mn_jsame(c, s->vars[i].name, name))
                return &s->vars[i].value;
    return NULL;
}

bool mn_jscope_capture(mn_jctx *c) {
    for (mn_jscope *s = c->scope; s; s = s->parent) {
        if (!mn_jcharge(c, MN_J_PER_SLOT, 1))
            return false;
        s->captured = true;
    }
    return true;
}

bool mn_jscope_set(mn_jctx *c, mn_jscope *s, mn_str name, mn_jval v) {
    for (size_t i = 0; i < s->n; i++) {
        if (!mn_jsame(c, s->vars[i].name, name))
            continue;
        s->vars[i].value = v;
        return true;
    }
    if (c->status != MN_OK)
        return false;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        mn_jvar *vars = mn_jalloc(c, cap, sizeof *vars);
        if (!vars)
            return false;
        if (s->n)
            memcpy(vars, s->vars, s->n * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->n++] = (mn_jvar){name, v};
    return true;
}

static bool exec_in(mn_jctx *c, mn_jscope *scope, const mn_jnode *body, mn_jflow *flow) {
    mn_jscope *outer = c->scope;
    if (!scope)
        return false;
    c->scope = scope;
    bool ok = mn_jexec(c, body, flow);
    c->scope = outer;
    return ok;
}

/* Runs body in a scope of its own; its text becomes a value. */
static bool capture(mn_jctx *c, mn_jscope *scope, const mn_jnode *body, mn_jval *out) {
    mn_jbuf b = {0}, *outer = c->out;
    mn_jflow flow = MN_FLOW_NEXT;
    c->out = &b;
    bool ok = exec_in(c, scope, body, &flow);
    c->out = outer;
    return ok && mn_jbuf_value(c, &b, out);
}

static bool exec_if(mn_jctx *c, const mn_jnode *n, mn_jflow *flow) {
    for (size_t i = 0; i + 1 < n->items.n; i += 2) {
        mn_jval v;
        if (!mn_jeval(c, n->items.items[i], &v))
            return false;
        if (mn_jtruth(v))
            return mn_jexec(c, n->items.items[i + 1], flow);
    }
    return !n->c || mn_jexec(c, n->c, flow);
}

/* text through the filters f, or as it is */
static bool filtered(mn_jctx *c, const mn_jnode *f, mn_jval text, mn_jval *out) {
    *out = text;
    if (!f)
        return true;
    mn_jval outer = c->input;
    c->input = text;
    bool ok = mn_jeval(c, f, out);
    c->input = outer;
    return ok;
}

static bool exec_captured(mn_jctx *c, const mn_jnode *n) { // SET_BLOCK and FILTER_BLOCK
    mn_jval text, v;
    if (!capture(c, mn_jscope_new(c, c->scope), n->body, &text))
        return false;
    if (!filtered(c, n->kind == MN_N_SET_BLOCK ? n->b : n->a, text, &v))
        return false;
    if (n->kind == MN_N_SET_BLOCK)
        return mn_jassign(c, n->a, v);
    if (v.type != MN_J_STR)
        return mn_jfail(c, "a filter block must make text, not %s", mn_jtype_name(v));
    return mn_jput(c, c->out, v);
}

static bool exec_macro(mn_jctx *c, const mn_jnode *n) {
    struct mn_jmacro *m = mn_jalloc(c, 1, sizeof *m);
    if (!m)
        return false;
    *m = (struct mn_jmacro){n, c->scope};
    if (!mn_jscope_capture(c))
        return false;
    mn_jval v = mn_j_of(MN_J_MACRO);
    v.u.macro = m;
    return mn_jscope_set(c, c->scope, n->name, v);
}

static bool exec_with(mn_jctx *c, const mn_jnode *n, mn_jflow *flow) {
    mn_jscope *inner = mn_jscope_new(c, c->scope), *outer = c->scope;
    for (size_t i = 0; inner && i < n->kw.n; i++) { // values see the scope outside
        mn_jval v;
        if (!mn_jeval(c, n->kw.items[i]->b, &v))
            return false;
        c->scope = inner;
        bool ok = mn_jassign(c, n->kw.items[i]->a, v);
        c->scope = outer;
        if (!ok)
            return false;
    }
    return exec_in(c, inner, n->body, flow);
}

static bool exec_body(mn_jctx *c, const mn_jnode *n, mn_jflow *flow) {
    for (size_t i = 0; i < n->items.n && *flow == MN_FLOW_NEXT; i++)
        if (!mn_jexec(c, n->items.items[i], flow))
            return false;
    return true;
}

static bool exec_node(mn_jctx *c, const mn_jnode *n, mn_jflow *flow) {
    mn_jval v;
    switch (n->kind) {
    case MN_N_BODY:
        return exec_body(c, n, flow);
    case MN_N_PRINT:
        return mn_jeval(c, n->a, &v) && mn_jput(c, c->out, v);
    case MN_N_CALL_BLOCK:
        return mn_jeval(c, n, &v) && mn_jput(c, c->out, v);
    case MN_N_IF:
        return exec_if(c, n, flow);
    case MN_N_FOR:
        return mn_jexec_for(c, n);
    case MN_N_SET:
        return mn_jeval(c, n->b, &v) && mn_jassign(c, n->a, v);
    case MN_N_SET_BLOCK:
    case MN_N_FILTER_BLOCK:
        return exec_captured(c, n);
    case MN_N_MACRO:
        return exec_macro(c, n);
    case MN_N_WITH:
        return exec_with(c, n, flow);
    case MN_N_BREAK:
        *flow = MN_FLOW_BREAK;
        return true;
    case MN_N_CONTINUE:
        *flow = MN_FLOW_CONTINUE;
        return true;
    default:
        return mn_jfail(c, "not a statement");
    }
}

bool mn_jexec(mn_jctx *c, const mn_jnode *n, mn_jflow *flow) {
    c->line = n->line;
    if (!mn_jenter(c))
        return false;
    bool ok = exec_node(c, n, flow);
    mn_jleave(c);
    return ok;
}

/* ---- macros ---------------------------------------------------------------------------------- */

static bool has_param(mn_jctx *c, const mn_jnode *n, const char *name) {
    for (size_t i = 0; i < n->items.n; i++)
        if (mn_jsame(c, n->items.items[i]->name, mn_str_of(name)))
            return true;
    return false;
}

static bool take_keyword(mn_jctx *c, const mn_jargs *args, bool *taken, mn_str name, mn_jval *v) {
    for (size_t i = 0; i < args->n_kw; i++) {
        if (!mn_jsame(c, mn_jstr_bytes(args->kw[i].key.u.s), name) || taken[i])
            continue;
        taken[i] = true;
        *v = args->kw[i].value;
        return true;
    }
    return false;
}

static bool bind_params(mn_jctx *c, const mn_jnode *n, const mn_jargs *args, bool *taken) {
    for (size_t i = 0; i < n->items.n; i++) {
        const mn_jnode *param = n->items.items[i];
        mn_jval v;
        if (i < args->n_pos)
            v = args->pos[i];
        else if (!take_keyword(c, args, taken, param->name, &v)) {
            if (param->a ? !mn_jeval(c, param->a, &v) : !mn_j_undefined(c, param->name, &v))
                return false;
        }
        if (!mn_jscope_set(c, c->scope, param->name, v))
            return false;
    }
    return true;
}

/* varargs, kwargs and caller, where the body mentions them; what is left over is an error. */
static bool bind_rest(mn_jctx *c, const mn_jnode *n, const mn_jargs *args, bool *taken) {
    mn_jval v;
    if (n->uses_caller && !has_param(c, n, "caller")) {
        if (!take_keyword(c, args, taken, mn_str_of("caller"), &v) &&
            !mn_j_undefined(c, mn_str_of("caller"), &v))
            return false;
        if (!mn_jscope_set(c, c->scope, mn_str_of("caller"), v))
            return false;
    }
    mn_jdict *d = mn_jdict_new(c);
    mn_jlist *l = mn_jlist_new(c, 0);
    if (!d || !l)
        return false;
    for (size_t i = 0; i < args->n_kw; i++) {
        if (taken[i])
            continue;
        if (!n->uses_kwargs)
            return mn_jfail(c, "macro '%.*s' takes no keyword argument '%.*s'", MN_STR_ARG(n->name),
                            MN_STR_ARG(mn_jstr_bytes(args->kw[i].key.u.s)));
        if (!mn_jdict_set(c, d, args->kw[i].key, args->kw[i].value))
            return false;
    }
    if (args->n_pos > n->items.n && !n->uses_varargs)
        return mn_jfail(c, "macro '%.*s' takes not more than %zu arguments", MN_STR_ARG(n->name),
                        n->items.n);
    for (size_t i = n->items.n; i < args->n_pos; i++)
        if (!mn_jlist_add(c, l, args->pos[i]))
            return false;
    if (n->uses_kwargs && !has_param(c, n, "kwargs") &&
        !mn_jscope_set(c, c->scope, mn_str_of("kwargs"), mn_j_dictval(d)))
        return false;
    return !n->uses_varargs || has_param(c, n, "varargs") ||
           mn_jscope_set(c, c->scope, mn_str_of("varargs"), mn_j_listval(MN_J_TUPLE, l));
}

bool mn_jmacro_call(mn_jctx *c, const struct mn_jmacro *m, const mn_jargs *args, mn_jval *out) {
    mn_jscope *scope = mn_jscope_new(c, m->scope), *outer = c->scope;
    bool *taken = mn_jalloc(c, args->n_kw, sizeof *taken);
    if (!scope || !taken || !mn_jenter(c))
        return false;
    c->scope = scope;
    bool ok = bind_params(c, m->node, args, taken) && bind_rest(c, m->node, args, taken);
    c->scope = outer;
    ok = ok && capture(c, scope, m->node->body, out);
    mn_jleave(c);
    return ok;
}
