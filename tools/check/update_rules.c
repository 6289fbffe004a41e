/* update_rules.c -- rule call.updates: weights that are put again after the seal, in every type
 * that LINEAR takes and in the other operations that have weights. Results are compared with those
 * of a fresh set that got the new values at first; the sources are spoiled once their events have
 * passed. */
#include "wrong.h"
#include <stdlib.h>
#include <string.h>

/* A case with its values, and its twin with the same inputs and other weights, whose sources the
 * sets get and which are spoiled afterwards. */
typedef struct {
    const char *name;
    op_case *old;
    op_case *next; /* has run with a set of its own */
    op_case *given;
    case_plan *plan; /* of old, with a set that may be updated */
    bool exact;      /* the device says that results have the same bits */
} update;

static bool is_updated(const op_case *o, uint32_t t) {
    return o->t[t].role == MN_ROLE_WEIGHT && o->bytes[t];
}

static bool has_weights(const op_case *o) {
    for (uint32_t t = 0; t < o->g.n_tensors; t++)
        if (is_updated(o, t))
            return true;
    return false;
}

/* The weights of `from` become those of o. */
static void take_weights(op_case *o, const op_case *from) {
    for (uint32_t t = 0; t < o->g.n_tensors; t++)
        if (is_updated(o, t))
            memcpy(o->data[t], from->data[t], o->bytes[t]);
}

static op_case *update_case(uint32_t op, uint32_t dtype, uint64_t seed) {
    op_shape shape = life_shape();
    shape.k = 256;
    shape.n = 96;
    if (op == MN_OP_LINEAR || op == MN_OP_MOE_LINEAR)
        shape.variant = op == MN_OP_LINEAR ? 1 : 2; /* two weights */
    return case_random(op, dtype, &shape, seed);
}

/* ---- puts ------------------------------------------------------------------------------------ */
/* All weights of `from`, which are not read any more when this returns. */
static mn_status update_put(case_plan *p, op_case *from, mn_event **last, mn_error *err) {
    op_case *own = p->first;
    mn_status st = MN_OK;
    p->first = from;
    for (uint32_t t = 0; t < from->g.n_tensors && !st; t++) {
        mn_event *ev = NULL;
        if (!is_updated(from, t))
            continue;
        st = case_put_weight(p, p->weights, p->on.queue, t, &ev, err);
        if (*last)
            p->on.be->event_free(*last);
        *last = st ? NULL : ev;
    }
    p->first = own;
    return st;
}

static mn_status update_put_all(case_plan *p, op_case *from, mn_error *err) {
    mn_event *ev = NULL;
    const mn_status st = update_put(p, from, &ev, err);
    return case_wait(p->on.be, st, &ev, err);
}

static void spoil_sources(op_case *o) {
    for (uint32_t t = 0; t < o->g.n_tensors; t++)
        if (is_updated(o, t))
            memset(o->data[t], 0x5b, o->bytes[t]);
}

/* ---- what steps compute ---------------------------------------------------------------------- */
static void judge_step(check *c, update *u, const op_case *want, const char *when) {
    mn_error err = check_error();
    const char *where = "";
    check_doing(c, "%s ran %s", u->name, when);
    CHECK_OK(c, case_step(u->plan, u->old, &err), &err, "%s %s", u->name, when);
    CHECK(c, case_differ(u->old, want, &where) <= (u->exact ? 0 : 1e-5),
          "%s %s: '%s' differs from that of a fresh set with these values, expected the same bits",
          u->name, when, where);
}

static uint32_t first_output(const op_case *o) {
    uint32_t t = 0;
    while (o->t[t].role != MN_ROLE_OUTPUT)
        t++;
    return t;
}

/* Behind what is in the queue: a step, and its first output to pinned memory. */
static mn_status enqueue_step(const update *u, mn_buffer *to, uint64_t at, mn_event **last,
                              mn_error *err) {
    const case_plan *p = u->plan;
    const uint32_t t = first_output(u->old);
    if (*last)
        p->on.be->event_free(*last);
    *last = NULL;
    const mn_status st = mn_usual_execute(p->on.be, p->contexts[0], 0, u->old->value, NULL, err);
    if (st)
        return st;
    return p->on.be->read(p->on.queue, p->buffer[t], p->guard, to, at, u->old->bytes[t], last, err);
}

static bool is_same(const update *u, const void *got, const void *want, uint64_t n) {
    if (!memcmp(got, want, n))
        return true;
    return !u->exact && case_rel_l2(got, want, (int64_t)(n / sizeof(float))) <= 1e-5;
}

/* A step, new weights, a step, in one queue without a wait: each step has the weights of its
 * time. */
static void judge_order(check *c, stage *s, update *u) {
    const mn_backend *be = s->p.be;
    mn_error *err = &s->p.err;
    const uint32_t t = first_output(u->old);
    const uint64_t n = u->old->bytes[t];
    mn_buffer *pin = NULL;
    mn_event *ev = NULL;
    uint8_t *at = NULL;
    check_doing(c, "%s ran before and behind new weights in one queue", u->name);
    mn_status st = mn_usual_alloc(be, s->p.dev, 2 * n, MN_MEM_HOST_PINNED, &pin, err);
    if (!st)
        st = be->map(pin, (void **)&at, err);
    if (!st)
        st = enqueue_step(u, pin, 0, &ev, err);
    if (!st)
        st = update_put(u->plan, u->given, &ev, err);
    if (!st)
        st = enqueue_step(u, pin, n, &ev, err);
    st = case_wait(be, st, &ev, err);
    CHECK_OK(c, st, err, "%s before and behind new weights", u->name);
    CHECK(c, is_same(u, at, u->old->result[t], n),
          "%s before weights_put after the seal: found other results, expected those of the old "
          "values",
          u->name);
    CHECK(c, is_same(u, at + n, u->next->result[t], n),
          "%s behind weights_put after the seal: found other results, expected the same bits as of "
          "a fresh set with the new values",
          u->name);
    spoil_sources(u->given);
    be->buffer_free(pin);
}

/* ---- wrong puts ------------------------------------------------------------------------------ */
/* What case_put_weight gives, with one thing changed at a time. */
static mn_status put_unlike(const update *u, uint32_t t, bool type, mn_error *err) {
    op_case *o = u->plan->first;
    const mn_tensor kept = o->t[t];
    mn_event *ev = NULL;
    if (type)
        o->t[t].dtype = case_dtype(kept.dtype.id == MN_F16 ? MN_BF16 : MN_F16);
    else
        o->t[t].dim[0]--;
    mn_weight_src src = {.size = sizeof src,
                         .tensor = t,
                         .n_parts = 1,
                         .n_planes = 1,
                         .plane_stride = sizeof(mn_plane),
                         .dtype = o->t[t].dtype};
    mn_plane plane = {
        .ptr = o->data[t], .bytes = o->bytes[t], .kind = MN_PLANE_DATA, .dtype = src.dtype.id};
    int64_t stride = src.dtype.block_bytes;
    for (uint32_t d = kept.n_dim; d-- > 0;) {
        plane.dim[d] = o->t[t].dim[d];
        plane.stride[d] = stride;
        stride *= plane.dim[d];
    }
    src.planes = &plane;
    o->t[t] = kept; /* the plugin has the graph, too */
    const case_plan *p = u->plan;
    const mn_status st = p->on.be->weights_put(p->weights, p->on.queue, &src, &ev, err);
    return case_wait(p->on.be, st, &ev, err);
}

static void wrong_puts(check *c, const update *u) {
    uint32_t t = 0;
    while (!is_updated(u->old, t))
        t++;
    if (u->old->t[t].dtype.id != MN_F32)
        return;
    WRONG(c, "weights_put of another type after the seal", put_unlike(u, t, true, err));
    if (u->old->t[t].dim[0] > 1)
        WRONG(c, "weights_put of other dims after the seal", put_unlike(u, t, false, err));
}

/* Also without the flag nothing changes once the set is sealed. */
static void judge_sealed(check *c, stage *s, uint32_t op) {
    op_case *o = update_case(op, MN_F32, 7);
    case_plan *plan = NULL;
    CHECK(c, o && !o->failed, "out of memory");
    if (!has_weights(o) || !case_supported(&s->on, o)) {
        case_free(o);
        return;
    }
    check_doing(c, "weights were put after the seal of a set without MN_COMPILE_UPDATES");
    mn_status st = case_open(&s->on, o, MN_PRECISION_EXACT, &plan, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "%s", case_op_name(op));
    WRONG(c, "weights_put after the seal of a set without MN_COMPILE_UPDATES",
          update_put_all(plan, o, err));
    case_close(plan);
    case_free(o);
}

/* ---- the rule -------------------------------------------------------------------------------- */
/* Of the DATA plane. */
static uint64_t data_bytes(const mn_tensor *t) {
    uint64_t n = 1;
    uint64_t bytes = 0;
    for (uint32_t d = 0; d < t->n_dim; d++)
        n *= (uint64_t)t->dim[d];
    mn_dtype_bytes(t->dtype, n, &bytes);
    return bytes;
}

static void judge_memory(check *c, stage *s, update *u) {
    mn_estimate e = {.size = sizeof e};
    uint64_t bytes = 0;
    CHECK_OK(c, s->p.be->estimate(s->p.dev, &u->plan->ask, &e, &s->p.err), &s->p.err, "estimate");
    u->exact = e.flags & MN_ESTIMATE_DETERMINISTIC;
    for (uint32_t t = 0; t < u->old->g.n_tensors; t++)
        if (is_updated(u->old, t))
            bytes += data_bytes(&u->old->t[t]);
    CHECK(c, e.weights >= bytes,
          "estimate of %s with MN_COMPILE_UPDATES: found %llu bytes of weights, expected at least "
          "%llu: the set keeps copies of its own",
          u->name, (unsigned long long)e.weights, (unsigned long long)bytes);
    CHECK(c, !(u->plan->kept & MN_KEPT_ALIASED),
          "weights_seal with MN_COMPILE_UPDATES: found MN_KEPT_ALIASED, expected copies");
}

static void update_free(update *u) {
    case_close(u->plan);
    case_free(u->old);
    case_free(u->next);
    case_free(u->given);
}

/* Weights of two cases, in turns. */
static void judge_update(check *c, stage *s, update *u) {
    judge_order(c, s, u);
    if (!check_over(c))
        judge_step(c, u, u->next, "with weights that were put after the seal");
    if (!check_over(c))
        wrong_puts(c, u);
    if (!check_over(c))
        judge_step(c, u, u->next, "behind a weights_put that was refused");
}

/* 1: the plugin takes the flag, and the operation in that type. */
static int try_update(check *c, stage *s, uint32_t op, uint32_t dtype, mn_status *refused) {
    mn_error *err = &s->p.err;
    update u = {.name = case_op_name(op),
                .old = update_case(op, dtype, 7),
                .next = update_case(op, dtype, 7),
                .given = update_case(op, dtype, 8)};
    int done = 0;
    if (!u.old || !u.next || !u.given || u.old->failed || u.next->failed || u.given->failed) {
        check_fail(c, "out of memory");
    } else if (has_weights(u.old) && case_supported(&s->on, u.old)) {
        take_weights(u.next, u.given);
        u.old->flags = MN_COMPILE_UPDATES;
        check_doing(c, "%s was opened with MN_COMPILE_UPDATES", u.name);
        *refused = case_open(&s->on, u.old, MN_PRECISION_EXACT, &u.plan, err);
        if (MN_STATUS_CLASS(*refused) != MN_CLASS_REFUSE &&
            !check_status(c, *refused, err, "%s with MN_COMPILE_UPDATES", u.name) &&
            !check_status(c, case_run(&s->on, u.next, MN_PRECISION_EXACT, err), err, "%s",
                          u.name) &&
            !check_status(c, case_step(u.plan, u.old, err), err, "%s", u.name)) {
            judge_memory(c, s, &u);
            if (!check_over(c))
                judge_update(c, s, &u);
            done = 1;
        }
    }
    update_free(&u);
    return done;
}

void check_call_updates(check *c) {
    static const uint32_t ops[] = {MN_OP_LINEAR,     MN_OP_EMBED,      MN_OP_RMS_NORM,
                                   MN_OP_LAYER_NORM, MN_OP_MOE_LINEAR, MN_OP_ROPE};
    const size_t n_ops = sizeof ops / sizeof *ops;
    stage s;
    uint32_t n = 0;
    mn_status refused = MN_OK;
    if (!stage_device(c, &s))
        return;
    for (size_t i = 0; i < n_ops && !check_over(c); i++)
        judge_sealed(c, &s, ops[i]);
    for (size_t i = 0; i < n_ops && !check_over(c) && !refused; i++)
        n += (uint32_t)try_update(c, &s, ops[i], MN_F32, &refused);
    for (uint32_t i = 0, type = 0; !check_over(c) && !refused; i++) {
        type = mn_dtype_at(i);
        if (type == MN_DTYPE_NONE)
            break;
        if (!case_is_weight_type(type) || type == MN_F32)
            continue;
        n += (uint32_t)try_update(c, &s, MN_OP_LINEAR, type, &refused);
        if (!check_over(c) && !refused)
            n += (uint32_t)try_update(c, &s, MN_OP_MOE_LINEAR, type, &refused);
    }
    if (check_over(c))
        return;
    stage_close(c, &s);
    if (refused)
        check_skip(c, "the plugin does not take MN_COMPILE_UPDATES: %s", s.p.err.msg);
    else if (n)
        check_found(c, "%u cases", n);
    else
        check_skip(c, "no op of this device has a weight");
}
