/* call_rules.c -- group call: calls in the wrong order or with wrong arguments. A wrong call is
 * refused with a status of class CALLER and a message, and the right call after it still works.
 * Each rule opens a stage (life.h); what several threads do at the same time is tried in
 * call_threads.c. */
#include "wrong.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    wrong_close(c, &s);
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

/* The weight lies in the buffer of another tensor; all else is right. */
static void bound_weight(check *c, stage *s, uint32_t at) {
    const case_plan *plan = s->plan;
    mn_binding all[CASE_TENSORS + 1];
    uint32_t t = 0;
    while (t < s->o->g.n_tensors && s->o->t[t].role != MN_ROLE_WEIGHT)
        t++;
    if (t == s->o->g.n_tensors)
        return;
    memcpy(all, plan->binding, plan->n_bindings * sizeof *all);
    all[plan->n_bindings] = all[at];
    all[plan->n_bindings].tensor = t;
    WRONG(c, "a binding of a weight", bind_and_run(s, all, plan->n_bindings + 1, err));
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
    bound_weight(c, &s, at);
    not_bound(c, &s, at);
    if (check_over(c))
        return;
    mn_status st = s.p.be->context_bind(plan->contexts[0], 0, plan->binding, plan->n_bindings,
                                        sizeof *plan->binding, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "the right bindings after wrong ones");
    wrong_close(c, &s);
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
        wrong_close(c, &s);
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
        wrong_close(c, &s);
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

/* A read writes its bytes, and nothing around them. */
static void read_a_part(check *c, stage *s, mn_buffer *dev, mn_buffer *pin) {
    enum { FROM = 512, BYTES = 100, EMPTY = 0x5a };
    mn_error *err = &s->p.err;
    uint8_t *at = NULL;
    CHECK_OK(c, s->p.be->map(pin, (void **)&at, err), err, "map of host-pinned memory");
    memset(at, EMPTY, N);
    CHECK_OK(c, read_back(s, dev, pin, FROM, BYTES), err, "read of %d bytes at %d", BYTES, FROM);
    for (uint32_t i = 0; i < N; i++) {
        const bool meant = i >= FROM && i < FROM + BYTES;
        CHECK(c, at[i] == (meant ? pattern(i) : EMPTY),
              "read of %d bytes at %d: found byte %u = %u, expected %u", BYTES, FROM, i, at[i],
              meant ? pattern(i) : EMPTY);
    }
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
    if (!check_over(c))
        read_a_part(c, &s, dev, pin);
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
    wrong_close(c, &s);
}

/* A kind of memory that does not exist. */
static void unknown_kind(check *c, stage *s, uint32_t kind) {
    mn_buffer *b = wrong_unset();
    check_doing(c, "alloc of memory of kind %u ran", kind);
    const mn_status st = mn_usual_alloc(s->p.be, s->p.dev, 64, kind, &b, &s->p.err);
    CHECK(c, st == MN_UNSUPPORTED,
          "alloc of memory of kind %u: found status 0x%x, expected MN_UNSUPPORTED", kind,
          (unsigned)st);
    wrong_keeps(c, b, "alloc of memory of a kind that does not exist");
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
    wrong_close(c, &s);
}
