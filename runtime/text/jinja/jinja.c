/* jinja.c -- parsed templates and one rendering from start to end. */
#include "text/jinja/render.h"
#include "text/jinja/eval.h"
#include <string.h>

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
