/* views.c -- rule graph.views: an operand may be a view, elements of another tensor by strides.
 * Every input and output of a small case becomes every second element of a tensor twice as large,
 * and the results are compared with those of the dense case. A plugin may refuse such views by
 * compile. */
#include "life.h"
#include <stdlib.h>
#include <string.h>

#define BETWEEN 0x5a /* what inputs hold between the elements of their view */

/* Whether tensor t of the case is made a view. */
static bool is_viewed(const op_case *o, uint32_t t) {
    const mn_tensor *x = &o->t[t];
    const bool crosses = x->role == MN_ROLE_INPUT || x->role == MN_ROLE_OUTPUT;
    return crosses && x->alias_of < 0 && x->n_dim && x->n_dim < MN_MAX_DIM && o->bytes[t] &&
           case_in_segment(o, t);
}

/* Element i of a dense tensor lies at 2 i + 1 of the root; to: from the root. */
static void views_move(uint8_t *dense, uint8_t *root, uint64_t bytes, bool to) {
    for (uint64_t i = 0; i < bytes; i += 4) {
        uint8_t *at = root + 2 * i + 4;
        if (to)
            memcpy(dense + i, at, 4);
        else
            memcpy(at, dense + i, 4);
    }
}

/* Strides of every second element, for the largest sizes; a root has one dim more, of 2. */
static void view(op_case *o, uint32_t t) {
    mn_tensor *x = &o->t[t];
    int64_t dim[MN_MAX_DIM];
    int64_t stride = 2;
    memcpy(dim, x->dim, sizeof dim);
    dim[x->n_dim] = 2;
    const int32_t root = case_tensor(o, x->role, x->dtype.id, x->n_dim + 1, dim, NULL, x->name.ptr);
    if (o->failed)
        return;
    for (uint32_t d = x->n_dim; d-- > 0;) {
        const int64_t size = x->dim[d] < 0 ? o->sym[~x->dim[d]].max : x->dim[d];
        x->stride[d] = stride;
        stride *= size;
    }
    x->offset = 1;
    x->alias_of = root;
    o->unbound[root] = o->unbound[t];
    memset(o->data[root], BETWEEN, o->bytes[root]);
    views_move(o->data[t], o->data[root], o->bytes[t], false);
}

/* The results of views to where those of dense tensors are; true: nothing was written between. */
static bool views_gather(op_case *o, uint32_t n) {
    bool kept = true;
    for (uint32_t t = 0; t < n; t++) {
        if (o->t[t].alias_of < 0)
            continue;
        uint8_t *root = o->result[o->t[t].alias_of];
        views_move(o->result[t], root, o->bytes[t], true);
        if (o->t[t].role != MN_ROLE_OUTPUT || o->unbound[t])
            continue;
        for (uint64_t i = 0; i < o->bytes[t]; i += 4)
            kept = kept && !memcmp(root, root + 2 * i, 4); /* the first is between, too */
    }
    return kept;
}

static uint32_t n_ran;   /* ops with views; a rule has its process for itself */
static mn_error refusal; /* of the last that was refused */

static void views(check *c, stage *s, op_case *o, uint32_t op) {
    const char *name = case_op_name(op);
    const char *where = "";
    mn_error err = check_error();
    const uint32_t n = o->g.n_tensors;
    op_case *plain = life_case(c, op);
    if (!plain)
        return;
    mn_status st = case_run(&s->on, plain, MN_PRECISION_EXACT, &err);
    CHECK_OK(c, st, &err, "%s", name);
    for (uint32_t t = 0; t < n; t++)
        if (is_viewed(o, t))
            view(o, t);
    CHECK(c, !o->failed, "out of memory");
    check_doing(c, "%s ran with operands that are views", name);
    st = case_run(&s->on, o, MN_PRECISION_EXACT, &err);
    if (MN_STATUS_CLASS(st) == MN_CLASS_REFUSE) {
        refusal = err;
        case_free(plain);
        return;
    }
    CHECK_OK(c, st, &err, "%s with operands that are views", name);
    CHECK(c, views_gather(o, n), "%s: something was written between the elements of a view", name);
    const double e = case_differ(plain, o, &where);
    CHECK(c, e <= 1e-5, "%s with operands that are views: '%s' differs from the dense one's by %g",
          name, where, e);
    n_ran++;
    case_free(plain);
}

void check_graph_views(check *c) {
    stage s;
    if (!stage_device(c, &s))
        return;
    stage_each_op(c, &s, views);
    if (!check_over(c) && !n_ran)
        check_skip(c, "the plugin takes no views that are not dense: %s", refusal.msg);
}
