/* exec.c -- running the statements of a template: scopes, macros and loops. Output goes to c->out,
 * which a macro, a set block or a recursive loop replaces for a while by a buffer of its own.
 *
 * A scope is a list of names, and one around it. Loops use one scope for all passes, unless a macro
 * that was made in it keeps it (captured). All lives in the arena of the context until rendering
 * ends. */
#include "text/jinja/eval.h"
#include <string.h>

mn_jscope *mn_jscope_new(mn_jctx *c, mn_jscope *parent) {
    mn_jscope *s = mn_jalloc(c, 1, sizeof *s);
    if (s)
        s->parent = parent;
    return s;
}

/* From the innermost scope outwards. */
const mn_jval *mn_jscope_get(mn_jctx *c, mn_str name) {
    for (const mn_jscope *s = c->scope; s; s = s->parent) {
        if (!mn_jcharge(c, MN_J_PER_SLOT, 1))
            return NULL;
        for (size_t i = 0; i < s->n; i++)
            if (mn_jsame(c, s->vars[i].name, name))
                return &s->vars[i].value;
    }
    return NULL;
}

/* c->scope and those around it must not be used again: a macro sees them. */
static bool capture_scopes(mn_jctx *c) {
    for (mn_jscope *s = c->scope; s; s = s->parent) {
        if (!mn_jcharge(c, MN_J_PER_SLOT, 1))
            return false;
        s->captured = true;
    }
    return true;
}

/* In this scope alone: what stands around is not changed by a template. */
bool mn_jscope_set(mn_jctx *c, mn_jscope *s, mn_str name, mn_jval v) {
    for (size_t i = 0; i < s->n; i++) {
        if (!mn_jsame(c, s->vars[i].name, name))
            continue;
        s->vars[i].value = v;
        return true;
    }
    if (c->status != MN_OK)
        return false;
    mn_jvar *vars = mn_jgrow(c, s->vars, s->n, &s->cap, sizeof *vars);
    if (!vars)
        return false;
    s->vars = vars;
    s->vars[s->n++] = (mn_jvar){name, v};
    return true;
}

/* Runs a body in this scope; NULL: making it has failed. */
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
static bool exec_capture(mn_jctx *c, mn_jscope *scope, const mn_jnode *body, mn_jval *out) {
    mn_jbuf *outer = c->out;
    mn_jbuf b = {0};
    mn_jflow flow = MN_FLOW_NEXT;
    c->out = &b;
    const bool ok = exec_in(c, scope, body, &flow);
    c->out = outer;
    return ok && mn_jbuf_value(c, &b, out);
}

/* The body of the first condition that holds, else of else. */
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

/* SET_BLOCK and FILTER_BLOCK: the text of a body, through filters, into a name or to the output. */
static bool exec_captured(mn_jctx *c, const mn_jnode *n) {
    const bool is_set = n->kind == MN_N_SET_BLOCK;
    mn_jval text;
    mn_jval v;
    if (!exec_capture(c, mn_jscope_new(c, c->scope), n->body, &text))
        return false;
    if (!filtered(c, is_set ? n->b : n->a, text, &v))
        return false;
    if (is_set)
        return mn_jassign(c, n->a, v);
    if (v.type != MN_J_STR)
        return mn_jwrong_type(c, "a filter block", v, "text");
    return mn_jput(c, c->out, v);
}

/* A macro is a value of the scope that it stands in, and sees that scope when it is called. */
bool mn_jmacro_of(mn_jctx *c, const mn_jnode *n, mn_jval *out) {
    struct mn_jmacro *m = mn_jalloc(c, 1, sizeof *m);
    if (!m)
        return false;
    *m = (struct mn_jmacro){n, c->scope};
    *out = mn_j_of(MN_J_MACRO);
    out->u.macro = m;
    return capture_scopes(c);
}

/* A macro is a value of the scope that it stands in. */
static bool exec_macro(mn_jctx *c, const mn_jnode *n) {
    mn_jval v;
    return mn_jmacro_of(c, n, &v) && mn_jscope_set(c, c->scope, n->name, v);
}

/* Names of a scope of their own; their values see the scope outside. */
static bool exec_with(mn_jctx *c, const mn_jnode *n, mn_jflow *flow) {
    mn_jscope *outer = c->scope;
    mn_jscope *inner = mn_jscope_new(c, outer);
    for (size_t i = 0; inner && i < n->kw.n; i++) {
        const mn_jnode *set = n->kw.items[i];
        mn_jval v;
        if (!mn_jeval(c, set->b, &v))
            return false;
        c->scope = inner;
        const bool ok = mn_jassign(c, set->a, v);
        c->scope = outer;
        if (!ok)
            return false;
    }
    return exec_in(c, inner, n->body, flow);
}

/* Statements until one breaks or continues the loop around. */
static bool exec_body(mn_jctx *c, const mn_jnode *n, mn_jflow *flow) {
    for (size_t i = 0; i < n->items.n && *flow == MN_FLOW_NEXT; i++)
        if (!mn_jexec(c, n->items.items[i], flow))
            return false;
    return true;
}

/* flow: set by break and continue, which end the bodies up to the loop. */
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

/* Is this one of the macro's parameters? */
static bool has_param(mn_jctx *c, const mn_jnode *n, const char *name) {
    for (size_t i = 0; i < n->items.n; i++)
        if (mn_jsame(c, n->items.items[i]->name, mn_str_of(name)))
            return true;
    return false;
}

/* The argument of this name, marked as taken; false: there is none, or the work is used up. */
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

/* Positional arguments, else those given by name, else defaults, which see the parameters before
 * them. */
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

/* Sets a name that the body mentions and no parameter has. */
static bool set_special(mn_jctx *c, const mn_jnode *n, const char *name, mn_jval v) {
    return has_param(c, n, name) || mn_jscope_set(c, c->scope, mn_str_of(name), v);
}

static bool bind_caller(mn_jctx *c, const mn_jnode *n, const mn_jargs *args, bool *taken) {
    const mn_str name = mn_str_of("caller");
    mn_jval v;
    if (!n->uses_caller || has_param(c, n, "caller"))
        return true;
    if (!take_keyword(c, args, taken, name, &v) && !mn_j_undefined(c, name, &v))
        return false;
    return mn_jscope_set(c, c->scope, name, v);
}

/* The keywords that are left over, which only a body that says kwargs takes. */
static bool bind_kwargs(mn_jctx *c, const mn_jnode *n, const mn_jargs *args, const bool *taken) {
    mn_jdict *d = mn_jdict_new(c);
    if (!d)
        return false;
    for (size_t i = 0; i < args->n_kw; i++) {
        const mn_jpair *kw = &args->kw[i];
        if (taken[i])
            continue;
        if (!n->uses_kwargs)
            return mn_jfail(c, "macro '%.*s' takes no keyword argument '%.*s'", MN_STR_ARG(n->name),
                            MN_STR_ARG(*kw->key.u.s));
        if (!mn_jdict_set(c, d, kw->key, kw->value))
            return false;
    }
    return !n->uses_kwargs || set_special(c, n, "kwargs", mn_j_dictval(d));
}

static bool bind_varargs(mn_jctx *c, const mn_jnode *n, const mn_jargs *args) {
    const size_t n_named = MN_MIN(n->items.n, args->n_pos);
    const size_t n_more = args->n_pos - n_named;
    mn_jlist *l = mn_jlist_new(c, 0);
    if (n_more && !n->uses_varargs)
        return mn_jfail(c, "macro '%.*s' takes not more than %zu arguments", MN_STR_ARG(n->name),
                        n->items.n);
    if (!l || (n_more && !mn_jlist_add_all(c, l, args->pos + n_named, n_more)))
        return false;
    return !n->uses_varargs || set_special(c, n, "varargs", mn_j_listval(MN_J_TUPLE, l));
}

/* varargs, kwargs and caller, where the body mentions them; what is left over is an error. */
static bool bind_rest(mn_jctx *c, const mn_jnode *n, const mn_jargs *args, bool *taken) {
    return bind_caller(c, n, args, taken) && bind_kwargs(c, n, args, taken) &&
           bind_varargs(c, n, args);
}

/* Parameters are bound in a scope under the one that the macro stands in; its text is the
 * result. */
bool mn_jmacro_call(mn_jctx *c, const struct mn_jmacro *m, const mn_jargs *args, mn_jval *out) {
    mn_jscope *outer = c->scope;
    mn_jscope *scope = mn_jscope_new(c, m->scope);
    bool *taken = mn_jalloc(c, args->n_kw, sizeof *taken);
    if (!scope || !taken || !mn_jenter(c))
        return false;
    c->scope = scope;
    bool ok = bind_params(c, m->node, args, taken);
    ok = ok && bind_rest(c, m->node, args, taken);
    c->scope = outer;
    ok = ok && exec_capture(c, scope, m->node->body, out);
    mn_jleave(c);
    return ok;
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* {% for a, (b, c) in ... %}: as many values as names. */
static bool assign_tuple(mn_jctx *c, const mn_jnode *target, mn_jval v) {
    mn_jlist *l;
    if (!mn_jneed_defined(c, v) || !mn_jiterate(c, v, &l))
        return false;
    if (l->n != target->items.n)
        return mn_jfail(c, "%zu values for %zu names", l->n, target->items.n);
    for (size_t i = 0; i < l->n; i++)
        if (!mn_jassign(c, target->items.items[i], l->items[i]))
            return false;
    return true;
}

/* A name, a tuple of them, or an attribute of a namespace, the one thing that a template can
 * change. */
bool mn_jassign(mn_jctx *c, const mn_jnode *target, mn_jval v) {
    if (target->kind == MN_N_NAME)
        return mn_jscope_set(c, c->scope, target->name, v);
    if (target->kind == MN_N_TUPLE)
        return assign_tuple(c, target, v);
    const mn_jval *ns = mn_jscope_get(c, target->name);
    if (!ns || ns->type != MN_J_NAMESPACE)
        return mn_jfail(c, "cannot assign attribute of '%.*s': it is not a namespace",
                        MN_STR_ARG(target->name));
    return mn_jdict_set(c, ns->u.d, target->value, v);
}

/* Does an item pass the loop's condition? It is evaluated in a scope of its own. */
static bool exec_passes(mn_jctx *c, const mn_jloop *loop, mn_jscope *scope, mn_jval item,
                        bool *yes) {
    mn_jscope *outer = c->scope;
    mn_jval pass;
    scope->n = 0;
    c->scope = scope;
    const bool ok = mn_jassign(c, loop->node->a, item) && mn_jeval(c, loop->node->c, &pass);
    c->scope = outer;
    *yes = ok && mn_jtruth(pass);
    return ok;
}

/* The next item that passes the loop's condition; MISSING past the end. */
static bool exec_pull(mn_jctx *c, mn_jloop *loop, mn_jval *out) {
    const bool all = !loop->node->c || loop->decided;
    mn_jscope *scope = NULL;
    while (loop->at < loop->items->n) {
        bool yes;
        *out = loop->items->items[loop->at++];
        if (all)
            return true;
        if (!scope)
            scope = mn_jscope_new(c, loop->scope);
        if (!scope || !exec_passes(c, loop, scope, *out, &yes))
            return false;
        if (yes)
            return true;
    }
    *out = mn_j_of(MN_J_MISSING);
    return true;
}

/* To the next item, which a look ahead may have pulled already. */
static bool exec_advance(mn_jctx *c, mn_jloop *loop, bool *more) {
    mn_jval next = loop->after;
    loop->after = mn_j_of(MN_J_MISSING);
    if (next.type == MN_J_MISSING && !exec_pull(c, loop, &next))
        return false;
    *more = next.type != MN_J_MISSING;
    if (!*more)
        return true;
    loop->before = loop->current;
    loop->current = next;
    loop->index0++;
    return true;
}

/* All passes. Output of the body goes to c->out. */
static bool run_loop(mn_jctx *c, mn_jloop *loop) {
    mn_jscope *outer = c->scope;
    mn_jscope *scope = NULL;
    mn_jval self = mn_j_of(MN_J_LOOP);
    self.u.loop = loop;
    for (;;) {
        mn_jflow flow = MN_FLOW_NEXT;
        bool more;
        if (!exec_advance(c, loop, &more))
            return false;
        if (!more)
            return true;
        if (!scope || scope->captured)
            scope = mn_jscope_new(c, loop->scope);
        if (!scope)
            return false;
        scope->n = 0;
        c->scope = scope;
        const bool ok = mn_jscope_set(c, scope, mn_str_of("loop"), self) &&
                        mn_jassign(c, loop->node->a, loop->current) &&
                        mn_jexec(c, loop->node->body, &flow);
        c->scope = outer;
        loop->completed |= flow == MN_FLOW_NEXT;
        if (!ok || flow == MN_FLOW_BREAK)
            return ok;
    }
}

/* A loop with its else. around: the scope that the loop stands in; over: what it walks; depth0: how
 * many recursive loops are around it. As in Jinja2, else also runs where no pass came to its
 * end. */
static bool run_for(mn_jctx *c, const mn_jnode *n, mn_jscope *around, mn_jval over,
                    int64_t depth0) {
    mn_jflow flow = MN_FLOW_NEXT;
    mn_jloop *loop = mn_jalloc(c, 1, sizeof *loop);
    if (!loop)
        return false;
    *loop = (mn_jloop){.node = n, .scope = around, .index0 = -1, .length = -1, .depth0 = depth0};
    if (!mn_jiterate(c, over, &loop->items))
        return false;
    if (!n->c && over.type != MN_J_ITER)
        loop->length = (int64_t)loop->items->n;
    if (!run_loop(c, loop))
        return false;
    if (loop->completed || !n->d)
        return true;
    return exec_in(c, mn_jscope_new(c, around), n->d, &flow);
}

bool mn_jexec_for(mn_jctx *c, const mn_jnode *n) {
    mn_jval over;
    return mn_jeval(c, n->b, &over) && run_for(c, n, c->scope, over, 0);
}

/* loop(items) within a recursive loop: the text of the same loop over other items. */
bool mn_jloop_call(mn_jctx *c, mn_jloop *loop, const mn_jargs *args, mn_jval *out) {
    mn_jbuf *outer = c->out;
    mn_jbuf b = {0};
    if (!loop->node->flag)
        return mn_jfail(c, "the loop is not marked recursive");
    if (args->n_pos != 1 || args->n_kw)
        return mn_jfail(c, "loop() takes one iterable");
    if (!mn_jenter(c))
        return false;
    c->out = &b;
    const bool ok = run_for(c, loop->node, loop->scope, args->pos[0], loop->depth0 + 1);
    c->out = outer;
    mn_jleave(c);
    return ok && mn_jbuf_value(c, &b, out);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Pulls the next item early; MISSING then means that this pass is the last. */
static bool exec_look_ahead(mn_jctx *c, mn_jloop *loop) {
    return loop->after.type != MN_J_MISSING || exec_pull(c, loop, &loop->after);
}

/* The number of passes. A condition has to be decided for all items that are still to come, which
 * are then the loop's items. */
static bool loop_length(mn_jctx *c, mn_jloop *loop) {
    if (loop->length >= 0)
        return true;
    mn_jlist *rest = mn_jlist_new(c, 0); // the items still to come, their condition decided now
    mn_jval v;
    if (!rest || !exec_look_ahead(c, loop))
        return false;
    loop->length = loop->index0 + 1 + (loop->after.type != MN_J_MISSING);
    while (loop->after.type != MN_J_MISSING && loop->at < loop->items->n) {
        if (!exec_pull(c, loop, &v))
            return false;
        if (v.type == MN_J_MISSING)
            break;
        loop->length++;
        if (!mn_jlist_add(c, rest, v))
            return false;
    }
    loop->items = rest;
    loop->at = 0;
    loop->decided = true;
    return true;
}

/* The attributes that are numbers; false: another name, or c has failed. */
static bool number_attr(mn_jctx *c, mn_jloop *loop, mn_str name, mn_jval *out) {
    static const char *const names[] = {"index",  "index0",   "depth",    "depth0",
                                        "length", "revindex", "revindex0"};
    size_t which = 0;
    while (which < MN_COUNT(names) && !mn_str_is(name, names[which]))
        which++;
    if (which >= MN_COUNT(names) || (which >= 4 && !loop_length(c, loop)))
        return false;
    int64_t values[] = {loop->index0 + 1,
                        loop->index0,
                        loop->depth0 + 1,
                        loop->depth0,
                        loop->length,
                        loop->length - loop->index0,
                        loop->length - loop->index0 - 1};
    *out = mn_j_int(values[which]);
    return true;
}

/* last and nextitem; a look ahead evaluates the condition of the items that come. */
static bool ahead_attr(mn_jctx *c, mn_jloop *loop, bool next, mn_jval *out) {
    if (!exec_look_ahead(c, loop))
        return false;
    const bool none = loop->after.type == MN_J_MISSING;
    if (next && none)
        return mn_j_undefined(c, mn_str_of("loop.nextitem"), out);
    *out = next ? loop->after : mn_j_bool(none);
    return true;
}

bool mn_jloop_attr(mn_jctx *c, mn_jval self, mn_str name, bool *found, mn_jval *out) {
    mn_jloop *loop = self.u.loop;
    *found = true;
    if (!mn_jcharge(c, MN_J_PER_SLOT, 11)) // the names below
        return false;
    if (number_attr(c, loop, name, out))
        return true;
    if (c->status != MN_OK)
        return false;
    if (mn_str_is(name, "last") || mn_str_is(name, "nextitem"))
        return ahead_attr(c, loop, mn_str_is(name, "nextitem"), out);
    const bool at_first = loop->index0 == 0;
    const bool previtem = mn_str_is(name, "previtem");
    if (previtem && at_first)
        return mn_j_undefined(c, mn_str_of("loop.previtem"), out);
    if (previtem)
        *out = loop->before;
    else if (mn_str_is(name, "first"))
        *out = mn_j_bool(at_first);
    else
        *found = false;
    return true;
}
