/* render.c -- a template from its source to its text: parsing once, then any number of renderings.
 * A template (mn_jinja) is what parsing allocates, and immutable; what a rendering makes lives in
 * the arena of its context and ends with it. The variables are those of a caller, or of a JSON
 * object. */
#include "text/jinja/render.h"
#include "text/jinja/eval.h"

struct mn_jinja {
    mn_arena arena;
    mn_jnode *body;
    char *source;
    size_t n_source;
};

/* What parsing allocates is the template's arena. */
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
    t->source = mn_strndup(source.ptr, source.len);
    t->n_source = source.len;
    if (!t->source) {
        mn_jinja_free(t);
        return mn_fail_memory(err, source.len);
    }
    *out = t;
    return MN_OK;
}

mn_str mn_jinja_source(const mn_jinja *t) {
    return (mn_str){t->source, t->n_source};
}

void mn_jinja_free(mn_jinja *t) {
    if (!t)
        return;
    mn_arena_free(&t->arena);
    mn_free(t->source);
    mn_free(t);
}

/* The template's variables, under a scope that what it sets lies over. */
static bool set_vars(mn_jctx *c, const mn_jdict *vars) {
    mn_jscope *below = mn_jscope_new(c, NULL);
    for (size_t i = 0; below && i < vars->n; i++) {
        const mn_jpair *var = &vars->items[i];
        if (!mn_jscope_set(c, below, mn_jstr_bytes(var->key.u.s), var->value))
            return false;
    }
    c->scope = below ? mn_jscope_new(c, below) : NULL;
    return c->scope != NULL;
}

/* Both texts or neither. */
static mn_status render_hand_out(mn_jctx *c, mn_text *out, mn_text *marks) {
    const mn_jbuf *made = c->out;
    const size_t n = out->len;
    const size_t n_marks = marks ? marks->len : 0;
    mn_text_put(out, made->ptr ? made->ptr : "", made->len);
    if (marks)
        mn_text_put(marks, made->marks ? (const char *)made->marks : "", made->len);
    if (!out->failed && !(marks && marks->failed))
        return MN_OK;
    out->len = n;
    if (marks)
        marks->len = n_marks;
    return mn_fail_memory(c->err, made->len);
}

mn_status mn_jinja_render_with(const mn_jinja *t, mn_jvars_fn fill, const void *arg, int64_t now,
                               mn_text *out, mn_text *marks, mn_error *err) {
    mn_jbuf text = {0};
    mn_jctx c = {.err = err, .now = now, .out = &text, .input = mn_j_of(MN_J_UNDEF)};
    mn_jflow flow = MN_FLOW_NEXT;
    mn_jdict *vars = mn_jdict_new(&c);
    bool ok = vars && fill(&c, vars, arg);
    ok = ok && set_vars(&c, vars);
    ok = ok && mn_jexec(&c, t->body, &flow);
    mn_status st = c.status;
    if (ok && !st)
        st = render_hand_out(&c, out, marks);
    mn_arena_free(&c.arena);
    return st;
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
