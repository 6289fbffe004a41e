/* params_rules.c -- group call: the structs that calls get their parameters in (R10), and the sets
 * of bindings. A host of another release sends shorter structs and longer ones; what a plugin does
 * not know it refuses with MN_UNSUPPORTED, never drops. */
#include "life.h"
#include <stdio.h>
#include <string.h>

#define UNKNOWN_FLAG (UINT64_C(1) << 31)

static void must_refuse(check *c, mn_status st, mn_status expected, const char *what) {
    CHECK(c, st == expected, "%s: found status 0x%x, expected 0x%x", what, (unsigned)st,
          (unsigned)expected);
}

static void must_work(check *c, mn_status st, const mn_error *err, const char *what) {
    CHECK(c, !st, "%s: found status 0x%x (%s), expected MN_OK", what, (unsigned)st, err->msg);
}

/* ---- memory, queues, devices ----------------------------------------------------------------- */
static void alloc_ok(check *c, stage *s, mn_alloc_params p, const char *what) {
    mn_buffer *b = NULL;
    mn_error err = check_error();
    check_doing(c, "%s ran", what);
    must_work(c, s->p.be->alloc(s->p.dev, &p, &b, &err), &err, what);
    if (b)
        s->p.be->buffer_free(b);
}

static void alloc_bad(check *c, stage *s, mn_alloc_params p, mn_status expected, const char *what) {
    mn_buffer *b = NULL;
    check_doing(c, "%s ran", what);
    must_refuse(c, s->p.be->alloc(s->p.dev, &p, &b, NULL), expected, what);
}

/* More than the device's own alignment: refused, or kept. */
static void alloc_aligned(check *c, stage *s) {
    const mn_alloc_params p = {
        .size = sizeof p, .kind = MN_MEM_HOST_PINNED, .bytes = 64, .align = 1 << 16};
    mn_buffer *b = NULL;
    void *at = NULL;
    check_doing(c, "alloc of pinned memory aligned to 64 KiB ran");
    mn_status st = s->p.be->alloc(s->p.dev, &p, &b, NULL);
    if (st)
        must_refuse(c, st, MN_UNSUPPORTED, "alloc of pinned memory aligned to 64 KiB");
    if (st || !b)
        return;
    st = s->p.be->map(b, &at, NULL);
    CHECK(c, st || (uintptr_t)at % p.align == 0,
          "alloc of pinned memory aligned to 64 KiB: found an address that is not");
    s->p.be->buffer_free(b);
}

static void params_alloc(check *c, stage *s) {
    const mn_alloc_params good = {
        .size = sizeof good, .kind = MN_MEM_DEVICE, .bytes = 256, .flags = MN_ALLOC_UNZEROED};
    mn_alloc_params p = good;
    p.size = offsetof(mn_alloc_params, align); /* what is behind is not a host's */
    p.align = 3;
    p.flags = UNKNOWN_FLAG;
    alloc_ok(c, s, p, "alloc by a host that knows kind and bytes alone");
    p = good;
    p.align = 16;
    alloc_ok(c, s, p, "alloc of memory aligned to 16 bytes");
    alloc_aligned(c, s);
    p = good;
    p.numa = 1;
    alloc_ok(c, s, p, "alloc of memory of the first node");
    p = good;
    p.flags = UNKNOWN_FLAG;
    alloc_bad(c, s, p, MN_UNSUPPORTED, "alloc with a flag that does not exist");
}

static void params_queue(check *c, stage *s) {
    mn_queue_params p = {.size = offsetof(mn_queue_params, priority), .priority = 7};
    mn_queue *q = NULL;
    mn_error err = check_error();
    check_doing(c, "queue_create by a host without priorities ran");
    must_work(c, s->p.be->queue_create(s->p.dev, &p, &q, &err), &err,
              "queue_create by a host without priorities");
    if (q)
        s->p.be->queue_free(q);
    p = (mn_queue_params){.size = sizeof p, .flags = (uint32_t)UNKNOWN_FLAG};
    check_doing(c, "queue_create with a flag that does not exist ran");
    must_refuse(c, s->p.be->queue_create(s->p.dev, &p, &q, NULL), MN_UNSUPPORTED,
                "queue_create with a flag that does not exist");
}

static void open_as(check *c, stage *s, mn_open_params p, mn_status expected, const char *what) {
    mn_device *d = NULL;
    mn_error err = check_error();
    check_doing(c, "%s ran", what);
    const mn_status st = s->p.be->device_open(s->p.api->self, 0, &p, &d, &err);
    if (expected)
        must_refuse(c, st, expected, what);
    else
        must_work(c, st, &err, what);
    if (!st && d)
        s->p.be->device_close(d);
}

/* The device is closed before it is opened by its uid: not every device opens twice. */
static void params_open(check *c) {
    stage s;
    char uid[sizeof((mn_device_info *)0)->uid];
    if (!stage_device(c, &s))
        return;
    mn_device_info info = {.size = sizeof info};
    mn_status st = s.p.be->device_info(s.p.api->self, 0, &info, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "device_info(0)");
    memcpy(uid, info.uid, sizeof uid);
    s.p.be->queue_free(s.p.queue);
    s.p.be->device_close(s.p.dev);
    s.p.queue = NULL;
    s.p.dev = NULL;
    const mn_str right = {uid, strnlen(uid, sizeof uid)};
    open_as(c, &s, (mn_open_params){.size = 8, .uid = {"no such device", 14}}, MN_OK,
            "device_open by a host without uids");
    open_as(c, &s, (mn_open_params){.size = sizeof(mn_open_params), .uid = right}, MN_OK,
            "device_open by the device's uid");
    open_as(c, &s, (mn_open_params){.size = sizeof(mn_open_params), .uid = {"no such device", 14}},
            MN_NO_DEVICE, "device_open by another device's uid");
    open_as(c, &s,
            (mn_open_params){.size = sizeof(mn_open_params), .flags = (uint32_t)UNKNOWN_FLAG},
            MN_UNSUPPORTED, "device_open with a flag that does not exist");
    if (check_over(c))
        return;
    st = mn_usual_open(s.p.be, s.p.api->self, 0, &s.p.dev, &s.p.err);
    if (!st)
        st = mn_usual_queue(s.p.be, s.p.dev, &s.p.queue, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "the device after it was opened by its uid");
    stage_close(c, &s);
}

/* ---- contexts and steps ---------------------------------------------------------------------- */
static void params_context(check *c, stage *s) {
    mn_context *x = NULL;
    mn_context_params p = {.size = sizeof p, .flags = (uint32_t)UNKNOWN_FLAG, .queue = s->p.queue};
    check_doing(c, "context_create with a flag that does not exist ran");
    must_refuse(c, s->p.be->context_create(s->plan->program, &p, &x, NULL), MN_UNSUPPORTED,
                "context_create with a flag that does not exist");
}

static mn_status run_with(stage *s, const mn_step *step, mn_error *err) {
    mn_event *ev = NULL;
    const mn_status st = s->p.be->execute(s->plan->contexts[0], step, &ev, err);
    return case_wait(s->p.be, st, &ev, err);
}

static void params_step(check *c, stage *s) {
    const mn_word word = {.buffer = s->plan->binding[0].buffer};
    mn_error err = check_error();
    mn_step step = mn_usual_step(0, s->o->value);
    step.size = offsetof(mn_step, flags);
    step.flags = UNKNOWN_FLAG;
    step.n_waits = 1;
    step.waits = &word;
    check_doing(c, "execute by a host that knows set and values alone ran");
    must_work(c, run_with(s, &step, &err), &err,
              "execute by a host that knows set and values alone");
    step = mn_usual_step(0, s->o->value);
    step.priority = 3;
    step.deadline_ns = UINT64_MAX;
    check_doing(c, "execute with wishes ran");
    must_work(c, run_with(s, &step, &err), &err, "execute with a priority and a deadline");
    step = mn_usual_step(0, s->o->value);
    step.flags = UNKNOWN_FLAG;
    check_doing(c, "execute with a flag that does not exist ran");
    must_refuse(c, run_with(s, &step, &err), MN_UNSUPPORTED,
                "execute with a flag that does not exist");
}

/* A signal is written, or refused: never dropped. */
static void params_words(check *c, stage *s) {
    const mn_alloc_params room = {.size = sizeof room, .kind = MN_MEM_HOST_PINNED, .bytes = 4096};
    mn_word word = {.value = 7};
    mn_step step = mn_usual_step(0, s->o->value);
    uint32_t *at = NULL;
    mn_error err = check_error();
    mn_status st = s->p.be->alloc(s->p.dev, &room, &word.buffer, &err);
    if (!st)
        st = s->p.be->map(word.buffer, (void **)&at, &err);
    CHECK_OK(c, st, &err, "pinned memory for a word");
    step.signals = &word;
    step.n_signals = 1;
    step.word_stride = sizeof word;
    check_doing(c, "execute with a word to write ran");
    st = run_with(s, &step, &err);
    if (st)
        must_refuse(c, st, MN_UNSUPPORTED, "execute with a word to write");
    else
        CHECK(c, at[0] == 7, "execute with a word to write: found %u in it, expected 7", at[0]);
    if (!check_over(c))
        s->p.be->buffer_free(word.buffer);
}

void check_call_params(check *c) {
    stage s;
    params_open(c);
    if (check_over(c) || !stage_plan(c, &s))
        return;
    params_alloc(c, &s);
    params_queue(c, &s);
    params_context(c, &s);
    params_step(c, &s);
    params_words(c, &s);
    if (check_over(c))
        return;
    mn_status st = case_step(s.plan, s.o, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "the usual call after unusual ones");
    stage_close(c, &s);
}

/* ---- sets of bindings ------------------------------------------------------------------------ */
/* A context of a program with so many sets: each is bound and runs, the next one is refused. */
static void sets_of(check *c, stage *s, uint32_t n, uint32_t said) {
    const mn_backend *be = s->p.be;
    mn_compile ask = s->plan->ask;
    mn_program *program = NULL;
    mn_context *x = NULL;
    char what[64];
    ask.n_sets = said;
    snprintf(what, sizeof what, "a program with n_sets %u", said);
    check_doing(c, "%s ran", what);
    mn_status st = be->compile(s->p.dev, &ask, &program, &s->p.err);
    if (st == MN_UNSUPPORTED && n > 2)
        return; /* a plugin has a limit */
    if (!st)
        st = mn_usual_context(be, program, s->p.queue, &x, &s->p.err);
    for (uint32_t i = 0; i < n && !st; i++)
        st = be->context_bind(x, i, s->plan->binding, s->plan->n_bindings, sizeof *s->plan->binding,
                              &s->p.err);
    for (uint32_t i = 0; i < n && !st; i++) {
        mn_event *ev = NULL;
        st = mn_usual_execute(be, x, n - 1 - i, s->o->value, &ev, &s->p.err);
        st = case_wait(be, st, &ev, &s->p.err);
    }
    must_work(c, st, &s->p.err, what);
    if (check_over(c))
        return;
    st = be->context_bind(x, n, s->plan->binding, s->plan->n_bindings, sizeof *s->plan->binding,
                          NULL);
    must_refuse(c, st, MN_INVALID, "context_bind of a set behind the last");
    st = mn_usual_execute(be, x, n, s->o->value, NULL, NULL);
    must_refuse(c, st, MN_INVALID, "execute of a set behind the last");
    be->context_free(x);
    be->program_free(program);
}

/* One context whose two sets have buffers of their own, and what each of them shall compute. */
typedef struct {
    mn_program *program;
    mn_context *x;
    case_plan *plan[2]; /* plan[0]: the stage's; each has the buffers of a set */
    op_case *want[2], *found[2];
} two_sets;

static void sets_open(check *c, stage *s, two_sets *t) {
    const uint32_t op = s->o->n[0].op;
    const op_shape shape = life_shape();
    mn_compile ask = s->plan->ask;
    mn_status st = MN_OK;
    ask.n_sets = 2;
    t->plan[0] = s->plan;
    for (uint32_t i = 0; i < 2; i++) {
        t->want[i] = case_random(op, MN_F32, &shape, 7 + i);
        t->found[i] = case_random(op, MN_F32, &shape, 7 + i);
        CHECK(c, t->want[i] && t->found[i], "out of memory");
        st = case_step(s->plan, t->want[i], &s->p.err);
        CHECK_OK(c, st, &s->p.err, "a step");
    }
    st = case_open(&s->on, t->found[1], MN_PRECISION_EXACT, &t->plan[1], &s->p.err);
    if (!st)
        st = s->p.be->compile(s->p.dev, &ask, &t->program, &s->p.err);
    if (!st)
        st = mn_usual_context(s->p.be, t->program, s->p.queue, &t->x, &s->p.err);
    for (uint32_t i = 0; i < 2 && !st; i++)
        st = s->p.be->context_bind(t->x, i, t->plan[i]->binding, t->plan[i]->n_bindings,
                                   sizeof *t->plan[i]->binding, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "a context with two sets of bindings");
}

/* A step of set i, with the inputs and outputs in its buffers. */
static void sets_step(check *c, stage *s, two_sets *t, uint32_t i) {
    case_plan *plan = t->plan[i];
    plan->contexts[1] = t->x;
    plan->at = 1;
    plan->set = i;
    check_doing(c, "a step of set %u ran", i);
    const mn_status st = case_step(plan, t->found[i], &s->p.err);
    plan->contexts[1] = NULL; /* it is not the plan's */
    plan->at = 0;
    plan->set = 0;
    CHECK_OK(c, st, &s->p.err, "a step of set %u", i);
    const double d = case_differ(t->found[i], t->want[i], NULL);
    CHECK(c, d < 1e-5,
          "a step of set %u, whose buffers are not those of the other set: results differ by %g "
          "from those of a context with one set, expected the same",
          i, d);
}

static void sets_apart(check *c, stage *s) {
    two_sets t = {0};
    sets_open(c, s, &t);
    for (uint32_t k = 0; k < 4 && !check_over(c); k++)
        sets_step(c, s, &t, k % 2);
    if (check_over(c))
        return;
    s->p.be->context_free(t.x);
    s->p.be->program_free(t.program);
    case_close(t.plan[1]);
    for (uint32_t i = 0; i < 2; i++) {
        case_free(t.want[i]);
        case_free(t.found[i]);
    }
}

void check_call_sets(check *c) {
    stage s;
    if (!stage_plan(c, &s))
        return;
    sets_of(c, &s, 1, 0);
    for (uint32_t n = 1; n <= 4; n++)
        sets_of(c, &s, n, n);
    if (!check_over(c))
        sets_apart(c, &s);
    if (check_over(c))
        return;
    stage_close(c, &s);
}
