/* weight_rules.c -- group call: weights that a set must refuse, and sets that serve several graphs.
 * How a source may lie in memory is in source_rules.c. */
#include "wrong.h"
#include <stdio.h>
#include <string.h>

static mn_status call_rule_put(stage *s, mn_weights *w, mn_weight_src src, mn_plane plane,
                               mn_error *err) {
    mn_event *ev = NULL;
    src.planes = &plane;
    mn_status st = s->p.be->weights_put(w, s->p.queue, &src, &ev, err);
    return case_wait(s->p.be, st, &ev, err);
}

/* Weight t, dense in f32, with one thing wrong at a time. */
static void wrong_weights(check *c, stage *s, mn_weights *w, uint32_t t) {
    const mn_tensor *x = &s->o->t[t];
    const mn_plane right = {
        .ptr = s->o->data[t],
        .bytes = s->o->bytes[t],
        .kind = MN_PLANE_DATA,
        .dtype = x->dtype.id,
    };
    const mn_weight_src good = {
        .size = sizeof good,
        .tensor = t,
        .n_parts = 1,
        .n_planes = 1,
        .plane_stride = sizeof right,
        .dtype = x->dtype,
    };
    mn_plane dense = right;
    int64_t stride = x->dtype.block_bytes;
    for (uint32_t d = x->n_dim; d-- > 0;) {
        dense.dim[d] = x->dim[d];
        dense.stride[d] = stride;
        stride *= x->dim[d];
    }
    mn_weight_src other = good;
    mn_weight_src none = good;
    mn_plane half = dense;
    mn_plane overflows = dense;
    mn_plane wide = dense;
    other.tensor = 100000;
    none.n_parts = 0;
    half.bytes = dense.bytes / 2;
    overflows.stride[0] = INT64_MAX / 2;
    wide.dim[x->n_dim - 1] += 32;
    WRONG(c, "weights_put of a tensor that does not exist", call_rule_put(s, w, other, dense, err));
    WRONG(c, "weights_put of a plane whose strides lead out of it",
          call_rule_put(s, w, good, half, err));
    if (x->dim[0] > 1)
        WRONG(c, "weights_put of a plane whose strides overflow",
              call_rule_put(s, w, good, overflows, err));
    WRONG(c, "weights_put of a plane with other dims than the tensor's",
          call_rule_put(s, w, good, wide, err));
    WRONG(c, "weights_put without parts", call_rule_put(s, w, none, dense, err));
}

/* The first weight of the stage's case. false = the rule is skipped, and the stage closed: there is
 * none. */
static bool call_rule_find_weight(check *c, stage *s, uint32_t *t) {
    const op_case *o = s->o;
    for (*t = 0; *t < o->g.n_tensors; ++*t)
        if (o->t[*t].role == MN_ROLE_WEIGHT)
            return true;
    stage_close(c, s);
    check_skip(c, "no op of this device has a weight");
    return false;
}

void check_call_weights(check *c) {
    stage s;
    uint32_t kept;
    uint32_t t;
    mn_weights *w = NULL;
    if (!stage_plan(c, &s) || !call_rule_find_weight(c, &s, &t))
        return;
    const mn_backend *be = s.p.be;
    mn_compile ask = s.plan->ask;
    ask.weights = NULL;
    mn_status st = be->weights_open(s.p.dev, &ask, &w, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "weights_open");
    WRONG(c, "weights_seal with a weight missing", be->weights_seal(w, s.p.queue, &kept, err));
    be->weights_free(w);
    st = be->weights_open(s.p.dev, &ask, &w, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "weights_open");
    wrong_weights(c, &s, w, t);
    if (check_over(c))
        return;
    be->weights_free(w);
    wrong_close(c, &s);
}

/* A weight set may be used for a graph that it was not opened for, if the weights match. */
void check_call_shared_weights(check *c) {
    stage s;
    uint32_t t;
    mn_program *program = NULL;
    if (!stage_plan(c, &s) || !call_rule_find_weight(c, &s, &t))
        return;
    const mn_backend *be = s.p.be;
    op_case *twin = life_case(c, s.o->n[0].op);
    if (!twin)
        return;
    mn_compile ask = s.plan->ask;
    ask.graph = &twin->g;
    check_doing(c, "compile met the weight set of another graph with the same weights");
    mn_status st = be->compile(s.p.dev, &ask, &program, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "compile with the weight set of another graph");
    be->program_free(program);
    twin->t[t].name = (mn_str){"not there", 9};
    check_doing(c, "compile met a weight set without one of its weights");
    st = be->compile(s.p.dev, &ask, &program, &s.p.err);
    CHECK(c, st == MN_UNSUPPORTED,
          "compile with a set of another graph that lacks a weight: found status 0x%x, expected "
          "MN_UNSUPPORTED",
          (unsigned)st);
    case_free(twin);
    wrong_close(c, &s);
}
