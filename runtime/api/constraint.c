/* constraint.c -- mn_constraint_*: what a caller asks of a constraint, checked before it is
 * compiled (opened/constraint.c). */
#include "opened/opened.h"

static mn_status check(const mn_constraint_params *p, mn_error *err) {
    if (p->kind < MN_CONSTRAINT_JSON || p->kind > MN_CONSTRAINT_CALLS)
        return mn_fail(err, MN_INVALID,
                       "mn_constraint_params.kind: found %u, expected MN_CONSTRAINT_*", p->kind);
    if (p->n_choices && !p->choices)
        return mn_fail(err, MN_INVALID, "mn_constraint_params.choices is NULL, n_choices is %u",
                       p->n_choices);
    mn_status st = mn_args_flags(err, "mn_constraint_params.flags", p->flags,
                                 MN_CONSTRAINT_CALLS_ONLY | MN_CONSTRAINT_ONE_CALL);
    if (!st)
        st = mn_args_text(err, "mn_constraint_create", "params.source", p->source);
    for (uint32_t i = 0; i < p->n_choices && !st; i++)
        st = mn_args_text(err, "mn_constraint_create", "params.choices", p->choices[i]);
    return st;
}

mn_status mn_constraint_create(mn_model *m, const mn_constraint_params *params, mn_constraint **out,
                               mn_error *err) {
    mn_constraint_params p = {.size = sizeof p};
    const mn_arg args[] = {{"m", m}, {"params", params}, {"out", out}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_same_process(err, __func__, m->rt);
    if (!st)
        st = mn_args_take(MN_SIZED_CONSTRAINT_PARAMS, &p, params, err);
    if (!st)
        st = check(&p, err);
    return st ? st : mn_constraint_compile(m, &p, out, err);
}

const char *mn_constraint_warnings(const mn_constraint *c) {
    return c && c->warnings.ptr ? c->warnings.ptr : "";
}

void mn_constraint_free(mn_constraint *c) {
    if (c && !mn_pool_is_stranded(c->model->rt->pool))
        mn_constraint_release(c);
}
