/* call_rules.c -- group call: calls in the wrong order or with wrong arguments. A wrong call is
 * refused with a status of class CALLER and a message, and the right call after it still works.
 * Each rule opens a stage (life.h); what several threads do at the same time is tried in
 * call_threads.c. */
#include "life.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Closes a stage on which wrong calls were made; a right call is made first. */
static void close_after_wrong(check *c, stage *s) {
    check_doing(c, "a right call ran after wrong ones");
    mn_status st = case_step(s->plan, s->o, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "the right call after wrong ones");
    CHECK(c, !case_breach(s->plan)[0], "%s", case_breach(s->plan));
    stage_close(c, s);
}

/* st is the answer to a wrong call. */
static void must_blame_caller(check *c, mn_status st, const mn_error *err, const char *what) {
    CHECK(c, st, "%s: found MN_OK, expected MN_INVALID", what);
    CHECK(c, MN_STATUS_CLASS(st) == MN_CLASS_CALLER,
          "%s: found status 0x%x (%s), expected MN_INVALID", what, (unsigned)st, err->msg);
    CHECK(c, err->msg[0], "%s: found MN_INVALID without a message", what);
}

/* Makes a wrong call twice, with an mn_error and without: `call` uses the variable err. Returns
 * from the calling function if the rule is over. */
#define WRONG(c, what, call)                                                                       \
    do {                                                                                           \
        mn_error e_ = check_error(), *err = &e_;                                                   \
        check_doing(c, "%s", what);                                                                \
        mn_status st_ = (call);                                                                    \
        must_blame_caller(c, st_, &e_, what);                                                      \
        err = NULL;                                                                                \
        check_doing(c, "%s, without an mn_error", what);                                           \
        if (!check_over(c))                                                                        \
            (void)(call);                                                                          \
        if (check_over(c))                                                                         \
            return;                                                                                \
    } while (0)

void check_call_unbound(check *c) {
    stage s;
    mn_context *x = NULL;
    if (!stage_plan(c, &s))
        return;
    const mn_backend *be = s.p.be;
    mn_status st = mn_usual_context(be, s.plan->program, s.p.queue, &x, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "a second context");
    WRONG(c, "execute before context_bind", mn_usual_execute(be, x, 0, s.o->value, NULL, err));
    be->context_free(x);
    close_after_wrong(c, &s);
}

/* ---- bindings and symbols -------------------------------------------------------------------- */
/* context_bind and, if that accepts, execute: one of the two must refuse. */
static mn_status bind_and_run(stage *s, const mn_binding *b, uint32_t n, mn_error *err) {
    const mn_backend *be = s->p.be;
    mn_context *x = s->plan->contexts[0];
    mn_event *ev = NULL;
    mn_status st = be->context_bind(x, 0, b, n, sizeof *b, err);
    if (!st)
        st = mn_usual_execute(be, x, 0, s->o->value, &ev, err);
    return case_wait(be, st, &ev, err);
}

/* The right bindings with one replaced. */
static void wrong_binding(check *c, stage *s, uint32_t at, mn_binding b, const char *what) {
    const case_plan *plan = s->plan;
    mn_binding all[CASE_TENSORS];
    memcpy(all, plan->binding, plan->n_bindings * sizeof *all);
    all[at] = b;
    WRONG(c, what, bind_and_run(s, all, plan->n_bindings, err));
}

static void bound_twice(check *c, stage *s, uint32_t at) {
    const case_plan *plan = s->plan;
    mn_binding all[CASE_TENSORS + 1];
    memcpy(all, plan->binding, plan->n_bindings * sizeof *all);
    all[plan->n_bindings] = all[at];
    WRONG(c, "a tensor that is bound twice", bind_and_run(s, all, plan->n_bindings + 1, err));
}

static void not_bound(check *c, stage *s, uint32_t at) {
    const case_plan *plan = s->plan;
    const uint32_t n = plan->n_bindings - 1;
    mn_binding all[CASE_TENSORS];
    memcpy(all, plan->binding, plan->n_bindings * sizeof *all);
    all[at] = all[n];
    if (n)
        WRONG(c, "a step without one of its inputs", bind_and_run(s, all, n, err));
}

/* The first binding of an input; 0 if there is none. */
static uint32_t input_binding(const stage *s) {
    for (uint32_t i = 0; i < s->plan->n_bindings; i++)
        if (s->o->t[s->plan->binding[i].tensor].role == MN_ROLE_INPUT)
            return i;
    return 0;
}

void check_call_bindings(check *c) {
    stage s;
    if (!stage_plan(c, &s))
        return;
    const case_plan *plan = s.plan;
    const uint32_t at = input_binding(&s);
    const mn_binding right = plan->binding[at];
    mn_binding half = right;
    mn_binding far = right;
    mn_binding wraps = right;
    mn_binding huge = right;
    mn_binding other = right;
    half.bytes = right.bytes / 2;
    far.offset = UINT64_C(1) << 40;
    wraps.offset = UINT64_MAX - 255;
    wraps.bytes = 512;
    huge.bytes = UINT64_MAX;
    other.tensor = 100000;
    wrong_binding(c, &s, at, half, "a binding of half the bytes that the step needs");
    wrong_binding(c, &s, at, far, "a binding whose offset is outside of the buffer");
    wrong_binding(c, &s, at, wraps, "a binding whose offset and size wrap around");
    wrong_binding(c, &s, at, huge, "a binding of 2^64 - 1 bytes");
    wrong_binding(c, &s, at, other, "a binding of a tensor that does not exist");
    bound_twice(c, &s, at);
    not_bound(c, &s, at);
    if (check_over(c))
        return;
    mn_status st = s.p.be->context_bind(plan->contexts[0], 0, plan->binding, plan->n_bindings,
                                        sizeof *plan->binding, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "the right bindings after wrong ones");
    close_after_wrong(c, &s);
}

/* One value of symbol 0 that is out of its bounds. */
static void wrong_symbol(check *c, stage *s, int64_t value) {
    const mn_backend *be = s->p.be;
    mn_context *x = s->plan->contexts[0];
    int64_t v[CASE_SYMBOLS];
    char what[96];
    char call[128];
    memcpy(v, s->o->value, sizeof v);
    v[0] = value;
    snprintf(what, sizeof what, "%.24s = %lld, compiled for at most %lld", s->o->sym[0].name,
             (long long)value, (long long)case_most(s->o, 0));
    snprintf(call, sizeof call, "execute with %s", what);
    WRONG(c, call, mn_usual_execute(be, x, 0, v, NULL, err));
    if (!MN_HAS(mn_backend, be, context_prepare))
        return;
    snprintf(call, sizeof call, "context_prepare with %s", what);
    WRONG(c, call, mn_usual_prepare(be, x, 0, v, err));
}

/* The graph has a larger maximum than the program: bindings and values are measured by the
 * program's. times: bindings of so many times the size that the program needs. */
static void symbols_below_max(check *c, int64_t times) {
    stage s;
    op_shape shape = life_shape();
    if (!stage_case(c, &s))
        return;
    const uint32_t op = s.o->n[0].op;
    const int64_t most = shape.rows;
    case_free(s.o);
    shape.rows *= times;
    s.o = case_random(op, MN_F32, &shape, 7);
    CHECK(c, s.o && !s.o->failed, "out of memory");
    s.o->most[0] = most;
    s.o->value[0] = most;
    s.o->sym[0].max = most * 1000;
    check_doing(c, "a graph was compiled for less than the maximum of its symbol");
    mn_status st = case_open(&s.on, s.o, MN_PRECISION_EXACT, &s.plan, &s.p.err);
    if (!st)
        st = case_step(s.plan, s.o, &s.p.err);
    CHECK_OK(c, st, &s.p.err,
             "a step of a program for at most %lld %.24s, with bindings of that size, of a graph "
             "whose maximum is %lld",
             (long long)s.o->most[0], s.o->sym[0].name, (long long)s.o->sym[0].max);
    wrong_symbol(c, &s, s.o->most[0] + 1);
    wrong_symbol(c, &s, s.o->sym[0].max);
    if (!check_over(c))
        close_after_wrong(c, &s);
}

void check_call_symbols(check *c) {
    stage s;
    if (!stage_plan(c, &s))
        return;
    wrong_symbol(c, &s, s.o->sym[0].max + 1);
    wrong_symbol(c, &s, -1);
    wrong_symbol(c, &s, INT64_MAX);
    wrong_symbol(c, &s, INT64_MIN);
    wrong_symbol(c, &s, INT64_MAX / 2 + 1);
    if (!check_over(c))
        close_after_wrong(c, &s);
    for (int64_t times = 1; times <= 2 && !check_over(c); times++)
        symbols_below_max(c, times);
}

/* ---- memory ---------------------------------------------------------------------------------- */
#define N 4096u /* bytes of each buffer */

/* n bytes at `off` of a buffer of N bytes, where they do not fit, in each transfer. */
static void wrong_transfer(check *c, stage *s, mn_buffer *dev, mn_buffer *pin, uint64_t off,
                           uint64_t n) {
    static uint8_t bytes[N + 16];
    const mn_backend *be = s->p.be;
    mn_queue *q = s->p.queue;
    mn_event *ev = NULL;
    char range[64];
    char what[96];
    snprintf(range, sizeof range, "%llu bytes at %llu of %u", (unsigned long long)n,
             (unsigned long long)off, N);
    snprintf(what, sizeof what, "write of %s", range);
    WRONG(c, what, be->write(q, dev, off, bytes, n, err));
    snprintf(what, sizeof what, "read of %s", range);
    WRONG(c, what, be->read(q, dev, off, pin, 0, n, &ev, err));
    snprintf(what, sizeof what, "read into %s", range);
    WRONG(c, what, be->read(q, dev, 0, pin, off, n, &ev, err));
    snprintf(what, sizeof what, "copy into %s", range);
    WRONG(c, what, be->copy(q, dev, off, dev, 0, n, &ev, err));
}

/* Reads n bytes at `off` of a device buffer to the same place of a pinned one. */
static mn_status read_back(stage *s, mn_buffer *dev, mn_buffer *pin, uint64_t off, uint64_t n) {
    const mn_backend *be = s->p.be;
    mn_event *ev = NULL;
    mn_status st = be->read(s->p.queue, dev, off, pin, off, n, &ev, &s->p.err);
    return case_wait(be, st, &ev, &s->p.err);
}

static uint8_t pattern(uint32_t i) {
    return (uint8_t)(i * 7 + 3);
}

/* Fresh memory is zero; write copies its source before it returns; a transfer of 0 bytes is
 * right. */
static void round_trip(check *c, stage *s, mn_buffer *dev, mn_buffer *pin) {
    const mn_backend *be = s->p.be;
    mn_error *err = &s->p.err;
    uint8_t source[N];
    uint8_t *mapped = NULL;
    mn_status st = be->map(pin, (void **)&mapped, err);
    CHECK_OK(c, st, err, "map of host-pinned memory");
    CHECK(c, mapped, "map of host-pinned memory: found MN_OK and NULL, expected a pointer");
    memset(mapped, 1, N);
    CHECK_OK(c, read_back(s, dev, pin, 0, N), err, "read");
    for (uint32_t i = 0; i < N; i++)
        CHECK(c, !mapped[i], "fresh memory: found byte %u = %u, expected 0", i, mapped[i]);
    for (uint32_t i = 0; i < N; i++)
        source[i] = pattern(i);
    st = be->write(s->p.queue, dev, 0, source, N, err);
    memset(source, 0, N);
    CHECK_OK(c, st, err, "write");
    CHECK_OK(c, read_back(s, dev, pin, 0, N), err, "read");
    for (uint32_t i = 0; i < N; i++)
        CHECK(c, mapped[i] == pattern(i),
              "write: found byte %u = %u: the source was not copied when write returned", i,
              mapped[i]);
    st = be->write(s->p.queue, dev, N, source, 0, err);
    if (!st)
        st = read_back(s, dev, pin, N, 0);
    CHECK_OK(c, st, err, "a write and a read of 0 bytes at the end");
}

void check_call_transfers(check *c) {
    stage s;
    mn_buffer *dev = NULL;
    mn_buffer *pin = NULL;
    if (!stage_plan(c, &s))
        return;
    const mn_backend *be = s.p.be;
    mn_status st = mn_usual_alloc(be, s.p.dev, N, MN_MEM_DEVICE, &dev, &s.p.err);
    if (!st)
        st = mn_usual_alloc(be, s.p.dev, N, MN_MEM_HOST_PINNED, &pin, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "alloc");
    round_trip(c, &s, dev, pin);
    static const uint64_t bad[][2] = {{N, 1},
                                      {0, N + 1},
                                      {N - 8, 16},
                                      {UINT64_MAX, 1},
                                      {UINT64_MAX - 7, 16},
                                      {8, UINT64_MAX},
                                      {UINT64_MAX, UINT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0] && !check_over(c); i++)
        wrong_transfer(c, &s, dev, pin, bad[i][0], bad[i][1]);
    if (check_over(c))
        return;
    be->buffer_free(dev);
    be->buffer_free(pin);
    close_after_wrong(c, &s);
}

/* A kind of memory that does not exist. */
static void unknown_kind(check *c, stage *s, uint32_t kind) {
    mn_buffer *b = NULL;
    check_doing(c, "alloc of memory of kind %u ran", kind);
    const mn_status st = mn_usual_alloc(s->p.be, s->p.dev, 64, kind, &b, &s->p.err);
    CHECK(c, st == MN_UNSUPPORTED,
          "alloc of memory of kind %u: found status 0x%x, expected MN_UNSUPPORTED", kind,
          (unsigned)st);
}

/* More bytes than any machine has. */
static void huge_alloc(check *c, stage *s, uint32_t kind, uint64_t bytes) {
    mn_buffer *b = NULL;
    mn_error err = check_error();
    check_doing(c, "alloc of %llu bytes ran", (unsigned long long)bytes);
    const mn_status st = mn_usual_alloc(s->p.be, s->p.dev, bytes, kind, &b, &err);
    const uint32_t class = MN_STATUS_CLASS(st);
    const int refused = st && (class == MN_CLASS_SMALLER || class == MN_CLASS_CALLER);
    CHECK(c, refused && err.msg[0],
          "alloc of %llu bytes: found status 0x%x (%s), expected MN_OUT_OF_MEMORY and a message",
          (unsigned long long)bytes, (unsigned)st, err.msg);
}

void check_call_alloc(check *c) {
    static const uint64_t huge[] = {UINT64_C(1) << 50, UINT64_C(1) << 62, UINT64_MAX,
                                    UINT64_MAX - 4095};
    stage s;
    mn_buffer *b = NULL;
    if (!stage_plan(c, &s))
        return;
    unknown_kind(c, &s, 0);
    unknown_kind(c, &s, 3);
    unknown_kind(c, &s, 7);
    for (uint32_t kind = MN_MEM_DEVICE; kind <= MN_MEM_HOST_PINNED; kind++)
        for (size_t i = 0; i < sizeof huge / sizeof huge[0] && !check_over(c); i++)
            huge_alloc(c, &s, kind, huge[i]);
    if (check_over(c))
        return;
    check_doing(c, "alloc of 0 bytes ran");
    const mn_status st = mn_usual_alloc(s.p.be, s.p.dev, 0, MN_MEM_DEVICE, &b, NULL);
    if (!st && b)
        s.p.be->buffer_free(b);
    close_after_wrong(c, &s);
}

/* ---- weights --------------------------------------------------------------------------------- */
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
    close_after_wrong(c, &s);
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
    close_after_wrong(c, &s);
}

/* ---- abort ----------------------------------------------------------------------------------- */
void check_call_abort(check *c) {
    stage s;
    mn_queue *q = NULL;
    mn_context *x = NULL;
    mn_event *ev = NULL;
    if (!stage_plan(c, &s))
        return;
    const mn_backend *be = s.p.be;
    const case_plan *plan = s.plan;
    if (!MN_HAS(mn_backend, be, abort)) {
        stage_close(c, &s);
        check_skip(c, "abort is optional, and NULL");
        return;
    }
    mn_status st = mn_usual_queue(be, s.p.dev, &q, &s.p.err);
    if (!st)
        st = mn_usual_context(be, plan->program, q, &x, &s.p.err);
    if (!st)
        st = be->context_bind(x, 0, plan->binding, plan->n_bindings, sizeof *plan->binding,
                              &s.p.err);
    if (!st)
        st = mn_usual_execute(be, x, 0, s.o->value, &ev, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "a step on a second queue");
    check_doing(c, "abort ran");
    be->abort(q);
    be->abort(q);
    check_doing(c, "what is left of an aborted queue was freed");
    case_wait(be, MN_OK, &ev, NULL);
    be->context_free(x);
    be->queue_free(q);
    close_after_wrong(c, &s);
}
