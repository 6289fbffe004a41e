/* exec.c -- running a template from start to end: statements, scopes, macros and loops. Output goes to
 * c->out, which a macro, a set block or a recursive loop replaces for a while by a buffer of its own.
 *
 * A scope is a list of names, and one around it. Loops use one scope for all passes, unless a macro
 * that was made in it keeps it (captured). All lives in the arena of the context until rendering ends. */
#include "text/jinja/eval.h"
#include "text/jinja/render.h"
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

/* ---- loops ----------------------------------------------------------------------------------- */

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

/* The next item that passes the loop's condition; MISSING past the end. */
static bool pull(mn_jctx *c, mn_jloop *loop, mn_jval *out) {
    mn_jscope *outer = c->scope, *scope = NULL;
    while (loop->at < loop->items->n) {
        *out = loop->items->items[loop->at++];
        if (!loop->node->c || loop->decided)
            return true;
        if (!scope && !(scope = mn_jscope_new(c, loop->scope)))
            return false;
        mn_jval pass;
        scope->n = 0;
        c->scope = scope;
        bool ok = mn_jassign(c, loop->node->a, *out) && mn_jeval(c, loop->node->c, &pass);
        c->scope = outer;
        if (!ok)
            return false;
        if (mn_jtruth(pass))
            return true;
    }
    *out = mn_j_of(MN_J_MISSING);
    return true;
}

static bool advance(mn_jctx *c, mn_jloop *loop, bool *more) {
    mn_jval next = loop->after;
    loop->after = mn_j_of(MN_J_MISSING);
    if (next.type == MN_J_MISSING && !pull(c, loop, &next))
        return false;
    *more = next.type != MN_J_MISSING;
    if (!*more)
        return true;
    loop->before = loop->current;
    loop->current = next;
    loop->index0++;
    return true;
}

static bool run_loop(mn_jctx *c, mn_jloop *loop) {
    mn_jscope *outer = c->scope, *scope = NULL;
    mn_jval self = mn_j_of(MN_J_LOOP);
    self.u.loop = loop;
    for (bool more = true;;) {
        if (!advance(c, loop, &more))
            return false;
        if (!more)
            return true;
        if (!scope || scope->captured)
            scope = mn_jscope_new(c, loop->scope);
        if (!scope)
            return false;
        scope->n = 0;
        c->scope = scope;
        mn_jflow flow = MN_FLOW_NEXT;
        bool ok = mn_jscope_set(c, scope, mn_str_of("loop"), self) &&
                  mn_jassign(c, loop->node->a, loop->current) &&
                  mn_jexec(c, loop->node->body, &flow);
        c->scope = outer;
        loop->completed |= flow == MN_FLOW_NEXT;
        if (!ok || flow == MN_FLOW_BREAK)
            return ok;
    }
}

static bool run_for(mn_jctx *c, const mn_jnode *n, mn_jscope *around, mn_jval over,
                    int64_t depth0) {
    mn_jloop *loop = mn_jalloc(c, 1, sizeof *loop);
    mn_jflow flow = MN_FLOW_NEXT;
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
        return true; // as Jinja2: also after a pass that break or continue cut short
    mn_jscope *outer = c->scope;
    if (!(c->scope = mn_jscope_new(c, around)))
        return c->scope = outer, false;
    bool ok = mn_jexec(c, n->d, &flow);
    c->scope = outer;
    return ok;
}

bool mn_jexec_for(mn_jctx *c, const mn_jnode *n) {
    mn_jval over;
    return mn_jeval(c, n->b, &over) && run_for(c, n, c->scope, over, 0);
}

bool mn_jloop_call(mn_jctx *c, mn_jloop *loop, const mn_jargs *args, mn_jval *out) {
    if (!loop->node->flag)
        return mn_jfail(c, "the loop is not marked recursive");
    if (args->n_pos != 1 || args->n_kw)
        return mn_jfail(c, "loop() takes one iterable");
    mn_jbuf b = {0}, *outer = c->out;
    if (!mn_jenter(c))
        return false;
    c->out = &b;
    bool ok = run_for(c, loop->node, loop->scope, args->pos[0], loop->depth0 + 1);
    c->out = outer;
    mn_jleave(c);
    return ok && mn_jbuf_value(c, &b, out);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static bool look_ahead(mn_jctx *c, mn_jloop *loop) {
    return loop->after.type != MN_J_MISSING || pull(c, loop, &loop->after);
}

static bool loop_length(mn_jctx *c, mn_jloop *loop) {
    if (loop->length >= 0)
        return true;
    mn_jlist *rest = mn_jlist_new(c, 0); // the items still to come, their condition decided now
    mn_jval v;
    if (!rest || !look_ahead(c, loop))
        return false;
    loop->length = loop->index0 + 1 + (loop->after.type != MN_J_MISSING);
    while (loop->after.type != MN_J_MISSING && loop->at < loop->items->n) {
        if (!pull(c, loop, &v))
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

bool mn_jloop_attr(mn_jctx *c, mn_jval self, mn_str name, bool *found, mn_jval *out) {
    mn_jloop *loop = self.u.loop;
    *found = true;
    if (!mn_jcharge(c, MN_J_PER_SLOT, 11)) // the names below
        return false;
    if (number_attr(c, loop, name, out))
        return true;
    if (c->status != MN_OK)
        return false;
    bool first = mn_str_is(name, "first"), last = mn_str_is(name, "last"),
         next = mn_str_is(name, "nextitem");
    if (first)
        *out = mn_j_bool(loop->index0 == 0);
    else if (last || next) {
        if (!look_ahead(c, loop))
            return false;
        bool none = loop->after.type == MN_J_MISSING;
        if (next && none)
            return mn_j_undefined(c, mn_str_of("loop.nextitem"), out);
        *out = next ? loop->after : mn_j_bool(none);
    } else if (mn_str_is(name, "previtem")) {
        if (loop->index0 == 0)
            return mn_j_undefined(c, mn_str_of("loop.previtem"), out);
        *out = loop->before;
    } else
        *found = false;
    return true;
}

/* ---- templates ------------------------------------------------------------------------------- */

struct mn_jinja {
    mn_arena arena;
    mn_jnode *body;
};

mn_status mn_jinja_parse(mn_str source, mn_jinja **out, mn_error *err) {
    mn_jctx c = {.err = err};
    mn_jinja *t = mn_calloc(1, sizeof *t);
    if (!t)
        return mn_fail_memory(err, sizeof *t);
    if (!mn_jparse(&c, source, &t->body)) {
        mn_arena_free(&c.arena);
        mn_free(t);
        return c.status;
    }
    t->arena = c.arena;
    *out = t;
    return MN_OK;
}

void mn_jinja_free(mn_jinja *t) {
    if (!t)
        return;
    mn_arena_free(&t->arena);
    mn_free(t);
}

static bool set_vars(mn_jctx *c, const mn_jdict *vars) {
    for (size_t i = 0; i < vars->n; i++)
        if (!mn_jscope_set(c, c->scope, mn_jstr_bytes(vars->items[i].key.u.s),
                           vars->items[i].value))
            return false;
    return (c->scope = mn_jscope_new(c, c->scope)) !=
           NULL; // what the template sets lies over its variables
}

/* Both texts or neither. */
static mn_status hand_out(mn_jctx *c, mn_text *out, mn_text *marks) {
    size_t n = out->len, n_marks = marks ? marks->len : 0;
    mn_text_put(out, c->out->ptr ? c->out->ptr : "", c->out->len);
    if (marks)
        mn_text_put(marks, c->out->marks ? (const char *)c->out->marks : "", c->out->len);
    if (!out->failed && !(marks && marks->failed))
        return MN_OK;
    out->len = n;
    if (marks)
        marks->len = n_marks;
    return mn_fail_memory(c->err, c->out->len);
}

mn_status mn_jinja_render_with(const mn_jinja *t, mn_jvars_fn fill, const void *arg, int64_t now,
                               mn_text *out, mn_text *marks, mn_error *err) {
    mn_jbuf text = {0};
    mn_jctx c = {.err = err, .now = now, .out = &text, .input = mn_j_of(MN_J_UNDEF)};
    mn_jflow flow = MN_FLOW_NEXT;
    mn_jdict *vars = mn_jdict_new(&c);
    bool ok = vars && fill(&c, vars, arg) && (c.scope = mn_jscope_new(&c, NULL)) &&
              set_vars(&c, vars) && mn_jexec(&c, t->body, &flow) && c.status == MN_OK;
    mn_status status = ok ? hand_out(&c, out, marks) : c.status;
    mn_arena_free(&c.arena);
    return status;
}

typedef struct {
    mn_str vars;
    const char *const *trusted;
} json_vars;

static bool fill_json(mn_jctx *c, mn_jdict *vars, const void *arg) {
    const json_vars *from = arg;
    return mn_jvars_from_json(c, from->vars, from->trusted, vars);
}

mn_status mn_jinja_render(const mn_jinja *t, mn_str vars, const char *const *trusted, int64_t now,
                          mn_text *out, mn_text *marks, mn_error *err) {
    json_vars from = {vars, trusted};
    return mn_jinja_render_with(t, fill_json, &from, now, out, marks, err);
}
