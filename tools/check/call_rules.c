/* call_rules.c -- group call: calls in the wrong order or with wrong numbers, and many calls at
 * once. A wrong call is answered by a status of class CALLER, and the right call after it still
 * works. */
#include "life.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A small case compiled, with its buffers and a bound context. */
typedef struct {
    check_host host;
    check_plugin p;
    op_case *o;
    case_plan *plan;
} stage;

static int stage_open(check *c, stage *s) {
    check_host_init(&s->host);
    s->o = NULL, s->plan = NULL;
    if (!check_open_device(c, &s->p, &s->host))
        return 0;
    if (!(s->o = life_case(c, &s->p))) {
        check_close(c, &s->p);
        return 0;
    }
    case_on on = life_on(&s->p);
    check_doing(c, "a small graph was compiled");
    mn_status st = case_open(&on, s->o, MN_PRECISION_EXACT, &s->plan, &s->p.err);
    if (st)
        check_fail(c, "a small graph: found status 0x%x (%s), expected that it compiles",
                   (unsigned)st, s->p.err.msg);
    return !st;
}

/* After wrong calls the right one must still work. */
static void stage_close(check *c, stage *s) {
    check_doing(c, "a right call ran after wrong ones");
    mn_status st = case_step(s->plan, s->o, &s->p.err);
    CHECK(c, !st, "the right call after wrong ones: found status 0x%x (%s)", (unsigned)st,
          s->p.err.msg);
    CHECK(c, !case_breach(s->plan)[0], "%s", case_breach(s->plan));
    case_close(s->plan);
    case_free(s->o);
    check_close(c, &s->p);
}

static void caller(check *c, mn_status s, const mn_error *err, const char *what) {
    CHECK(c, s, "%s: found MN_OK, expected MN_INVALID", what);
    CHECK(c, MN_STATUS_CLASS(s) == MN_CLASS_CALLER,
          "%s: found status 0x%x (%s), expected MN_INVALID", what, (unsigned)s, err->msg);
    CHECK(c, err->msg[0], "%s: found MN_INVALID without a message", what);
}
/* Each wrong call twice: with an mn_error and without. */
#define WRONG(c, s, what, call)                                                                    \
    do {                                                                                           \
        mn_error e_ = check_error(), *err = &e_;                                                   \
        check_doing(c, "%s", what);                                                                \
        mn_status st_ = (call);                                                                    \
        caller(c, st_, &e_, what);                                                                 \
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
    if (!stage_open(c, &s))
        return;
    const mn_backend *be = s.p.be;
    mn_status st = be->context_create(s.plan->program, s.p.queue, &x, &s.p.err);
    CHECK(c, !st, "a second context: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    WRONG(c, &s, "execute before context_bind", be->execute(x, 0, s.o->value, NULL, err));
    be->context_free(x);
    stage_close(c, &s);
}

/* bind and, where that says yes, execute: one of the two must refuse. */
static mn_status bind_and_run(stage *s, const mn_binding *b, uint32_t n, mn_error *err) {
    mn_context *x = s->plan->contexts[0];
    mn_event *ev = NULL;
    mn_status st = s->p.be->context_bind(x, 0, b, n, sizeof *b, err);
    if (!st)
        st = s->p.be->execute(x, 0, s->o->value, &ev, err);
    if (ev)
        s->p.be->wait(ev, 10000000000u, NULL), s->p.be->event_free(ev);
    return st;
}

void check_call_bindings(check *c) {
    stage s;
    if (!stage_open(c, &s))
        return;
    case_plan *plan = s.plan;
    mn_binding wrong[CASE_TENSORS + 1];
    uint32_t n = plan->n_bindings, input = 0;
    while (input < n && s.o->t[plan->binding[input].tensor].role != MN_ROLE_INPUT)
        input++;
    if (input == n)
        input = 0;
    const mn_binding right = plan->binding[input];
#define RESET (memcpy(wrong, plan->binding, n * sizeof *wrong))
    RESET, wrong[input].bytes = right.bytes / 2;
    WRONG(c, &s, "a binding of half the bytes that the step needs",
          bind_and_run(&s, wrong, n, err));
    RESET, wrong[input].offset = (uint64_t)1 << 40;
    WRONG(c, &s, "a binding whose offset leaves the buffer", bind_and_run(&s, wrong, n, err));
    RESET, wrong[input].offset = UINT64_MAX - 255, wrong[input].bytes = 512;
    WRONG(c, &s, "a binding whose offset and size wrap around", bind_and_run(&s, wrong, n, err));
    RESET, wrong[input].bytes = UINT64_MAX;
    WRONG(c, &s, "a binding of 2^64 - 1 bytes", bind_and_run(&s, wrong, n, err));
    RESET, wrong[input].tensor = 100000;
    WRONG(c, &s, "a binding of a tensor that does not exist", bind_and_run(&s, wrong, n, err));
    RESET, wrong[n] = right;
    WRONG(c, &s, "a tensor that is bound twice", bind_and_run(&s, wrong, n + 1, err));
    RESET, wrong[input] = wrong[n - 1 == input ? 0 : n - 1];
    if (n > 1)
        WRONG(c, &s, "a step without one of its inputs",
              bind_and_run(&s, wrong + (input == 0), n - 1, err));
#undef RESET
    mn_status st =
        s.p.be->context_bind(plan->contexts[0], 0, plan->binding, n, sizeof *wrong, &s.p.err);
    CHECK(c, !st, "the right bindings after wrong ones: found status 0x%x (%s)", (unsigned)st,
          s.p.err.msg);
    stage_close(c, &s);
}

void check_call_symbols(check *c) {
    stage s;
    if (!stage_open(c, &s))
        return;
    const mn_backend *be = s.p.be;
    mn_context *x = s.plan->contexts[0];
    int64_t v[CASE_SYMBOLS];
    const int64_t bad[] = {s.o->sym[0].max + 1, -1, INT64_MAX, INT64_MIN, INT64_MAX / 2 + 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char what[96];
        memcpy(v, s.o->value, sizeof v);
        v[0] = bad[i];
        snprintf(what, sizeof what, "execute with %.24s = %lld of at most %lld", s.o->sym[0].name,
                 (long long)bad[i], (long long)s.o->sym[0].max);
        WRONG(c, &s, what, be->execute(x, 0, v, NULL, err));
        if (!MN_HAS(mn_backend, be, context_prepare))
            continue;
        snprintf(what, sizeof what, "context_prepare with %.24s = %lld of at most %lld",
                 s.o->sym[0].name, (long long)bad[i], (long long)s.o->sym[0].max);
        WRONG(c, &s, what, be->context_prepare(x, 0, v, err));
    }
    stage_close(c, &s);
}

/* ---- memory ---------------------------------------------------------------------------------- */
#define N 4096u
static void transfers(check *c, stage *s, mn_buffer *dev, mn_buffer *pin) {
    static const struct {
        uint64_t off, n;
    } bad[] = {{N, 1},
               {0, N + 1},
               {N - 8, 16},
               {UINT64_MAX, 1},
               {UINT64_MAX - 7, 16},
               {8, UINT64_MAX},
               {UINT64_MAX, UINT64_MAX}};
    const mn_backend *be = s->p.be;
    mn_queue *q = s->p.queue;
    static uint8_t bytes[N + 16];
    char what[96];
    mn_event *ev = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(what, sizeof what, "write of %llu bytes at %llu of %u",
                 (unsigned long long)bad[i].n, (unsigned long long)bad[i].off, N);
        WRONG(c, s, what, be->write(q, dev, bad[i].off, bytes, bad[i].n, err));
        snprintf(what, sizeof what, "read of %llu bytes at %llu of %u",
                 (unsigned long long)bad[i].n, (unsigned long long)bad[i].off, N);
        WRONG(c, s, what, be->read(q, dev, bad[i].off, pin, 0, bad[i].n, &ev, err));
        snprintf(what, sizeof what, "read of %llu bytes to %llu of %u",
                 (unsigned long long)bad[i].n, (unsigned long long)bad[i].off, N);
        WRONG(c, s, what, be->read(q, dev, 0, pin, bad[i].off, bad[i].n, &ev, err));
        snprintf(what, sizeof what, "copy of %llu bytes to %llu of %u",
                 (unsigned long long)bad[i].n, (unsigned long long)bad[i].off, N);
        WRONG(c, s, what, be->copy(q, dev, bad[i].off, dev, 0, bad[i].n, &ev, err));
    }
}

/* ev by its place: the call that fills it is the argument before. */
static mn_status settle(stage *s, mn_status st, mn_event **ev) {
    if (!st && *ev)
        st = s->p.be->wait(*ev, 10000000000u, &s->p.err);
    if (*ev)
        s->p.be->event_free(*ev);
    return st;
}

/* Fresh memory is zero; write copies its source before it returns; no bytes are a right number of
 * bytes. */
static void round_trip(check *c, stage *s, mn_buffer *dev, mn_buffer *pin) {
    const mn_backend *be = s->p.be;
    uint8_t source[N], *mapped = NULL;
    mn_event *ev = NULL;
    mn_status st = be->map(pin, (void **)&mapped, &s->p.err);
    CHECK(c, !st && mapped, "map of host-pinned memory: found status 0x%x (%s)", (unsigned)st,
          s->p.err.msg);
    memset(mapped, 1, N);
    st = settle(s, be->read(s->p.queue, dev, 0, pin, 0, N, &ev, &s->p.err), &ev);
    CHECK(c, !st, "read: found status 0x%x (%s)", (unsigned)st, s->p.err.msg);
    for (uint32_t i = 0; i < N; i++)
        CHECK(c, !mapped[i], "fresh memory: found byte %u = %u, expected 0", i, mapped[i]);
    for (uint32_t i = 0; i < N; i++)
        source[i] = (uint8_t)(i * 7 + 3);
    st = be->write(s->p.queue, dev, 0, source, N, &s->p.err);
    memset(source, 0, N);
    CHECK(c, !st, "write: found status 0x%x (%s)", (unsigned)st, s->p.err.msg);
    ev = NULL;
    st = settle(s, be->read(s->p.queue, dev, 0, pin, 0, N, &ev, &s->p.err), &ev);
    for (uint32_t i = 0; i < N && !st; i++)
        CHECK(c, mapped[i] == (uint8_t)(i * 7 + 3),
              "write: found byte %u = %u: the source was not copied when write returned", i,
              mapped[i]);
    st = be->write(s->p.queue, dev, N, source, 0, &s->p.err);
    ev = NULL;
    if (!st)
        st = settle(s, be->read(s->p.queue, dev, N, pin, N, 0, &ev, &s->p.err), &ev);
    CHECK(c, !st,
          "a write and a read of 0 bytes at the end: found status 0x%x (%s), expected MN_OK",
          (unsigned)st, s->p.err.msg);
}

void check_call_transfers(check *c) {
    stage s;
    mn_buffer *dev = NULL, *pin = NULL;
    if (!stage_open(c, &s))
        return;
    mn_status st = s.p.be->alloc(s.p.dev, N, MN_MEM_DEVICE, &dev, &s.p.err);
    if (!st)
        st = s.p.be->alloc(s.p.dev, N, MN_MEM_HOST_PINNED, &pin, &s.p.err);
    CHECK(c, !st, "alloc: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    round_trip(c, &s, dev, pin);
    if (!check_over(c))
        transfers(c, &s, dev, pin);
    if (check_over(c))
        return;
    s.p.be->buffer_free(dev), s.p.be->buffer_free(pin);
    stage_close(c, &s);
}

void check_call_alloc(check *c) {
    static const uint64_t huge[] = {(uint64_t)1 << 50, (uint64_t)1 << 62, UINT64_MAX,
                                    UINT64_MAX - 4095};
    stage s;
    mn_buffer *b = NULL;
    if (!stage_open(c, &s))
        return;
    for (uint32_t kind = 0; kind < 9; kind += kind == 0 ? 3 : 4) {
        char what[48];
        snprintf(what, sizeof what, "alloc of memory of kind %u", kind);
        check_doing(c, "%s ran", what);
        const mn_status st = s.p.be->alloc(s.p.dev, 64, kind, &b, &s.p.err);
        CHECK(c, st == MN_UNSUPPORTED, "%s: found status 0x%x, expected MN_UNSUPPORTED", what,
              (unsigned)st);
    }
    for (uint32_t kind = MN_MEM_DEVICE; kind <= MN_MEM_HOST_PINNED; kind++)
        for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
            s.p.err = check_error();
            check_doing(c, "alloc of %llu bytes ran", (unsigned long long)huge[i]);
            mn_status st = s.p.be->alloc(s.p.dev, huge[i], kind, &b, &s.p.err);
            CHECK(c,
                  st &&
                      (MN_STATUS_CLASS(st) == MN_CLASS_SMALLER ||
                       MN_STATUS_CLASS(st) == MN_CLASS_CALLER) &&
                      s.p.err.msg[0],
                  "alloc of %llu bytes: found status 0x%x (%s), expected MN_OUT_OF_MEMORY and a "
                  "message",
                  (unsigned long long)huge[i], (unsigned)st, s.p.err.msg);
        }
    check_doing(c, "alloc of 0 bytes ran");
    b = NULL;
    if (!s.p.be->alloc(s.p.dev, 0, MN_MEM_DEVICE, &b, NULL) && b)
        s.p.be->buffer_free(b);
    stage_close(c, &s);
}

/* ---- weights --------------------------------------------------------------------------------- */
static mn_status put(stage *s, mn_weights *w, const mn_weight_src *src, mn_error *err) {
    mn_event *ev = NULL;
    mn_status st = s->p.be->weights_put(w, s->p.queue, src, &ev, err);
    if (!st && ev)
        st = s->p.be->wait(ev, 10000000000u, err);
    if (ev)
        s->p.be->event_free(ev);
    return st;
}

static void wrong_weights(check *c, stage *s, mn_weights *w, uint32_t t) {
    const mn_tensor *x = &s->o->t[t];
    int64_t step = x->dtype.block_bytes;
    mn_plane right = {.ptr = s->o->data[t],
                      .bytes = s->o->bytes[t],
                      .kind = MN_PLANE_DATA,
                      .dtype = x->dtype.id},
             plane;
    for (uint32_t d = x->n_dim; d-- > 0;)
        right.dim[d] = x->dim[d], right.stride[d] = step, step *= x->dim[d];
    const mn_weight_src good = {sizeof good, t, 1, 1, sizeof plane, 0, &plane, x->dtype};
    mn_weight_src src;
    uint32_t last = x->n_dim - 1;
#define RESET (plane = right, src = good)
    RESET, src.tensor = 100000;
    WRONG(c, s, "weights_put of a tensor that does not exist", put(s, w, &src, err));
    RESET, plane.bytes = right.bytes / 2;
    WRONG(c, s, "weights_put of a plane whose strides leave it", put(s, w, &src, err));
    RESET, plane.stride[0] = INT64_MAX / 2;
    if (x->dim[0] > 1)
        WRONG(c, s, "weights_put of a plane whose strides overflow", put(s, w, &src, err));
    RESET, plane.dim[last] += 32;
    WRONG(c, s, "weights_put of a plane with other dims than the tensor's", put(s, w, &src, err));
    RESET, src.n_parts = 0;
    WRONG(c, s, "weights_put without parts", put(s, w, &src, err));
#undef RESET
}

void check_call_weights(check *c) {
    stage s;
    uint32_t kept, t = 0;
    mn_weights *w = NULL;
    if (!stage_open(c, &s))
        return;
    while (t < s.o->g.n_tensors && s.o->t[t].role != MN_ROLE_WEIGHT)
        t++;
    if (t == s.o->g.n_tensors) {
        stage_close(c, &s);
        check_skip(c, "no op of this device has a weight");
        return;
    }
    mn_compile ask = s.plan->ask;
    ask.weights = NULL;
    mn_status st = s.p.be->weights_open(s.p.dev, &ask, &w, &s.p.err);
    CHECK(c, !st, "weights_open: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    WRONG(c, &s, "weights_seal with a weight missing",
          s.p.be->weights_seal(w, s.p.queue, &kept, err));
    s.p.be->weights_free(w);
    st = s.p.be->weights_open(s.p.dev, &ask, &w, &s.p.err);
    CHECK(c, !st, "weights_open: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    wrong_weights(c, &s, w, t);
    if (check_over(c))
        return;
    s.p.be->weights_free(w);
    stage_close(c, &s);
}

/* A set is legal for a graph that it was not opened for if the weights match. */
void check_call_shared_weights(check *c) {
    stage s;
    uint32_t t = 0;
    mn_program *program = NULL;
    if (!stage_open(c, &s))
        return;
    while (t < s.o->g.n_tensors && s.o->t[t].role != MN_ROLE_WEIGHT)
        t++;
    op_case *twin = t < s.o->g.n_tensors ? life_case(c, &s.p) : NULL;
    if (!twin) {
        stage_close(c, &s);
        if (!check_over(c))
            check_skip(c, "no op of this device has a weight");
        return;
    }
    mn_compile ask = s.plan->ask;
    ask.graph = &twin->g;
    check_doing(c, "compile met the weight set of another graph with the same weights");
    mn_status st = s.p.be->compile(s.p.dev, &ask, &program, &s.p.err);
    CHECK(c, !st, "compile with the weight set of another graph: found status 0x%x (%s)",
          (unsigned)st, s.p.err.msg);
    s.p.be->program_free(program);
    twin->t[t].name = (mn_str){"not there", 9};
    check_doing(c, "compile met a weight set without one of its weights");
    st = s.p.be->compile(s.p.dev, &ask, &program, &s.p.err);
    CHECK(c, st == MN_UNSUPPORTED,
          "compile with a set of another graph that lacks a weight: found status 0x%x, expected "
          "MN_UNSUPPORTED",
          (unsigned)st);
    case_free(twin);
    stage_close(c, &s);
}

/* ---- aborting, and many at once -------------------------------------------------------------- */
void check_call_abort(check *c) {
    stage s;
    mn_queue *q = NULL;
    mn_context *x = NULL;
    mn_event *ev = NULL;
    if (!stage_open(c, &s))
        return;
    const mn_backend *be = s.p.be;
    if (!MN_HAS(mn_backend, be, abort)) {
        stage_close(c, &s);
        check_skip(c, "abort is optional, and NULL");
        return;
    }
    mn_status st = be->queue_create(s.p.dev, &q, &s.p.err);
    if (!st)
        st = be->context_create(s.plan->program, q, &x, &s.p.err);
    if (!st)
        st = be->context_bind(x, 0, s.plan->binding, s.plan->n_bindings, sizeof(mn_binding),
                              &s.p.err);
    if (!st)
        st = be->execute(x, 0, s.o->value, &ev, &s.p.err);
    CHECK(c, !st, "a second queue: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    check_doing(c, "abort ran");
    be->abort(q);
    be->abort(q);
    check_doing(c, "what is left of an aborted queue was freed");
    if (ev)
        be->wait(ev, 5000000000u, NULL), be->event_free(ev);
    be->context_free(x);
    be->queue_free(q);
    stage_close(c, &s);
}
