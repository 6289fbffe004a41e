/* loop.c -- for loops, their `loop` variable, and assignment. */
#include "text/jinja/eval.h"
#include <string.h>

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
