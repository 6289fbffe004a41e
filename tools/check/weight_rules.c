/* weight_rules.c -- group call: weights that a set must refuse, and sets that serve several graphs.
 * How a source may lie in memory is in source_rules.c. */
#include "chain.h"
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

/* Weight t as it is right: dense, in f32. */
static mn_plane right_plane(const stage *s, uint32_t t) {
    const mn_tensor *x = &s->o->t[t];
    mn_plane p = {
        .ptr = s->o->data[t],
        .bytes = s->o->bytes[t],
        .kind = MN_PLANE_DATA,
        .dtype = x->dtype.id,
    };
    int64_t stride = x->dtype.block_bytes;
    for (uint32_t d = x->n_dim; d-- > 0;) {
        p.dim[d] = x->dim[d];
        p.stride[d] = stride;
        stride *= x->dim[d];
    }
    return p;
}

static mn_weight_src right_source(const stage *s, uint32_t t) {
    return (mn_weight_src){
        .size = sizeof(mn_weight_src),
        .tensor = t,
        .n_parts = 1,
        .n_planes = 1,
        .plane_stride = sizeof(mn_plane),
        .dtype = s->o->t[t].dtype,
    };
}

/* Weight t with one thing wrong at a time. */
static void wrong_weights(check *c, stage *s, mn_weights *w, uint32_t t) {
    const mn_tensor *x = &s->o->t[t];
    const mn_weight_src good = right_source(s, t);
    const mn_plane dense = right_plane(s, t);
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

/* Two parts of all rows each. */
static mn_status put_two_parts(stage *s, mn_weights *w, mn_weight_src src, mn_plane plane,
                               mn_error *err) {
    const mn_plane planes[2] = {plane, plane};
    mn_event *ev = NULL;
    src.n_parts = 2;
    src.planes = planes;
    mn_status st = s->p.be->weights_put(w, s->p.queue, &src, &ev, err);
    return case_wait(s->p.be, st, &ev, err);
}

/* Rows and types that are not the tensor's, then the right ones twice. */
static void unlike_weights(check *c, stage *s, mn_weights *w, uint32_t t) {
    const mn_weight_src good = right_source(s, t);
    const mn_plane dense = right_plane(s, t);
    mn_weight_src source_f16 = good;
    mn_plane plane_f16 = dense;
    mn_plane fewer = dense;
    plane_f16.dtype = MN_F16;
    source_f16.dtype = case_dtype(MN_F16);
    fewer.dim[0]--;
    if (s->o->t[t].n_dim > 1) {
        WRONG(c, "weights_put of a row less than the tensor has",
              call_rule_put(s, w, good, fewer, err));
        WRONG(c, "weights_put of two parts with all rows each",
              put_two_parts(s, w, good, dense, err));
    }
    WRONG(c, "weights_put of a source in f16 for a tensor in f32",
          call_rule_put(s, w, source_f16, plane_f16, err));
    WRONG(c, "weights_put of a plane in f16 for a source in f32",
          call_rule_put(s, w, good, plane_f16, err));
    check_doing(c, "weights_put ran after wrong ones");
    CHECK_OK(c, call_rule_put(s, w, good, dense, &s->p.err), &s->p.err,
             "weights_put after wrong ones");
    WRONG(c, "weights_put of a tensor that was put before", call_rule_put(s, w, good, dense, err));
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
    if (!check_over(c))
        unlike_weights(c, &s, w, t);
    if (check_over(c))
        return;
    be->weights_free(w);
    wrong_close(c, &s);
}

/* compile with the set of another graph that lacks a weight of this one, or has another in its
 * place. */
static void refuses_set(check *c, stage *s, op_case *o, const char *what) {
    mn_program *program = wrong_unset();
    mn_compile ask = s->plan->ask;
    const mn_compile own = case_question(o, MN_PRECISION_EXACT);
    ask.graph = own.graph;
    ask.symbol_max = own.symbol_max;
    check_doing(c, "compile met a weight set %s", what);
    const mn_status st = s->p.be->compile(s->p.dev, &ask, &program, &s->p.err);
    CHECK(c, st == MN_UNSUPPORTED,
          "compile with a set of another graph %s: found status 0x%x, expected MN_UNSUPPORTED",
          what, (unsigned)st);
    wrong_keeps(c, program, "compile with a set of another graph");
}

/* The same op with weights of half the rows and columns, and in another type. */
static void refuses_unlike(check *c, stage *s, uint32_t t) {
    op_shape shape = life_shape();
    const uint32_t op = s->o->n[0].op;
    op_case *type = case_random(op, MN_F16, &shape, 7);
    shape.k /= 2;
    shape.n /= 2;
    op_case *dims = case_random(op, MN_F32, &shape, 7);
    CHECK(c, type && dims, "out of memory");
    if (memcmp(dims->t[t].dim, s->o->t[t].dim, sizeof dims->t[t].dim) &&
        case_supported(&s->on, dims))
        refuses_set(c, s, dims, "whose weight has other dims");
    if (!check_over(c) && type->t[t].dtype.id == MN_F16 && case_supported(&s->on, type))
        refuses_set(c, s, type, "whose weight has another type");
    case_free(type);
    case_free(dims);
}

/* The set of a chain serves the chain whose tensors are in the reverse order. */
static void serves_reversed(check *c) {
    stage s;
    chain_ops ops;
    case_plan *first = NULL;
    case_plan *second = NULL;
    if (!stage_device(c, &s) || !chain_find(c, &s, &ops))
        return;
    op_case *o = chain_case(c, &ops, 1);
    op_case *turned = chain_reversed(c, &ops, 1);
    if (!o || !turned)
        return;
    check_doing(c, "a weight set served a graph with other indices");
    mn_status st = case_open(&s.on, o, MN_PRECISION_EXACT, &first, &s.p.err);
    if (!st)
        st = case_step(first, o, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "a chain of three operations");
    st = case_open_shared(&s.on, turned, MN_PRECISION_EXACT, first->weights, &second, &s.p.err);
    if (!st)
        st = case_step(second, turned, &s.p.err);
    CHECK_OK(c, st, &s.p.err,
             "the weight set of another graph with the same weights at other indices");
    const double d = case_rel_l2(turned->result[chain_tensor(turned, CHAIN_NODES)],
                                 o->result[chain_tensor(o, CHAIN_NODES)], CHAIN_ROWS * CHAIN_COLS);
    CHECK(c, d < 1e-5,
          "the weight set of another graph with the same weights at other indices: results differ "
          "by %g, expected the same: weights are found by name",
          d);
    case_close(second);
    case_close(first);
    case_free(turned);
    case_free(o);
    stage_close(c, &s);
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
    refuses_set(c, &s, twin, "that lacks a weight");
    case_free(twin);
    if (!check_over(c))
        refuses_unlike(c, &s, t);
    if (!check_over(c))
        wrong_close(c, &s);
    if (!check_over(c))
        serves_reversed(c);
}
