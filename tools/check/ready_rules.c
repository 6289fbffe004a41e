/* ready_rules.c -- rule call.on_ready: who is called, when, how often and with which status. A note
 * belongs to one registration and stays until the process of the rule ends, so that a call that
 * comes too late finds it. */
#include "watch.h"
#include "wrong.h"
#include <string.h>
#include <time.h>

enum { READY_BYTES = 1 << 20, READY_BYTE = 0x3c, READY_FLIGHT = 8 };

typedef struct {
    atomic_uint calls;
    atomic_int status;
    const volatile uint8_t *last; /* what the work writes last, or NULL */
    atomic_uint seen;             /* its value at the call */
} ready_note;

static void ready_call(void *arg, mn_status status) {
    ready_note *n = arg;
    atomic_store(&n->status, status);
    if (n->last)
        atomic_store(&n->seen, *n->last);
    atomic_fetch_add(&n->calls, 1);
}

static void nap(long ms) {
    const struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

/* One call comes within 20 s, and no other behind it. */
static void judge_note(check *c, ready_note *n, mn_status want, const char *what) {
    for (int i = 0; i < 20000 && !atomic_load(&n->calls); i++)
        nap(1);
    nap(5);
    const unsigned calls = atomic_load(&n->calls);
    const mn_status status = atomic_load(&n->status);
    CHECK(c, calls == 1, "event_on_ready of %s: found %u calls, expected one", what, calls);
    CHECK(c, status == want,
          "event_on_ready of %s: found status 0x%x, expected 0x%x, which wait returns", what,
          (unsigned)status, (unsigned)want);
    CHECK(c, !n->last || atomic_load(&n->seen) == READY_BYTE,
          "event_on_ready of %s: called before the work was done", what);
}

/* ---- memory that is read back ---------------------------------------------------------------- */
typedef struct {
    mn_buffer *dev, *pin;
    uint8_t *at; /* of pin */
} ready_memory;

static mn_status ready_open(stage *s, ready_memory *m) {
    const mn_backend *be = s->p.be;
    mn_error *err = &s->p.err;
    static uint8_t bytes[READY_BYTES];
    memset(bytes, READY_BYTE, sizeof bytes);
    mn_status st = mn_usual_alloc(be, s->p.dev, READY_BYTES, MN_MEM_DEVICE, &m->dev, err);
    if (!st)
        st = mn_usual_alloc(be, s->p.dev, READY_BYTES, MN_MEM_HOST_PINNED, &m->pin, err);
    if (!st)
        st = be->map(m->pin, (void **)&m->at, err);
    if (!st)
        st = be->write(s->p.queue, m->dev, 0, bytes, sizeof bytes, err);
    return st;
}

static void ready_close(const mn_backend *be, ready_memory *m) {
    be->buffer_free(m->dev);
    be->buffer_free(m->pin);
}

/* Reads all of it, and registers `n` notes for the end; `freed`: the event is freed at once. */
static void ready_read(check *c, stage *s, ready_memory *m, ready_note *note, uint32_t n,
                       bool freed, const char *what) {
    const mn_backend *be = s->p.be;
    mn_error *err = &s->p.err;
    mn_event *ev = NULL;
    memset(m->at, 0, READY_BYTES);
    mn_status st = be->read(s->p.queue, m->dev, 0, m->pin, 0, READY_BYTES, &ev, err);
    CHECK_OK(c, st, err, "read");
    check_doing(c, "event_on_ready of %s ran", what);
    for (uint32_t i = 0; i < n; i++) {
        note[i].last = m->at + READY_BYTES - 1;
        CHECK_OK(c, be->event_on_ready(ev, ready_call, &note[i], err), err, "event_on_ready of %s",
                 what);
    }
    if (freed)
        be->event_free(ev);
    else
        CHECK_OK(c, case_wait(be, MN_OK, &ev, err), err, "wait");
    for (uint32_t i = 0; i < n && !check_over(c); i++)
        judge_note(c, &note[i], MN_OK, what);
}

/* ---- events of other kinds ------------------------------------------------------------------- */
/* 0: the rule is over, or the device calls nobody. */
static int ready_of_null(check *c, stage *s, ready_note *n) {
    const mn_backend *be = s->p.be;
    check_doing(c, "event_on_ready met an event that is NULL");
    const mn_status st = be->event_on_ready(NULL, ready_call, n, &s->p.err);
    if (check_status(c, st, &s->p.err, "event_on_ready of an event that is NULL"))
        return 0;
    judge_note(c, n, MN_OK, "an event that is NULL");
    return !check_over(c);
}

/* Steps that are in flight at once, each with a note: of one queue they become complete in order,
 * of one that is aborted each has its own status. */
static void ready_in_flight(check *c, stage *s, ready_note *note, bool aborted) {
    const mn_backend *be = s->p.be;
    const uint32_t at = aborted; /* the second context has a queue of its own */
    const char *what = aborted ? "one of 8 steps of a queue that is aborted" : "one of 8 steps";
    mn_error *err = &s->p.err;
    mn_event *ev[READY_FLIGHT] = {NULL};
    mn_status st = MN_OK;
    check_doing(c, "event_on_ready of %s ran", what);
    for (uint32_t i = 0; i < READY_FLIGHT && !st; i++)
        st = mn_usual_execute(be, s->plan->contexts[at], 0, s->o->value, &ev[i], err);
    for (uint32_t i = 0; i < READY_FLIGHT && !st; i++)
        st = be->event_on_ready(ev[i], ready_call, &note[i], err);
    CHECK_OK(c, st, err, "event_on_ready of %s", what);
    if (aborted)
        CHECK_OK(c, be->abort(s->plan->queues[1]), NULL, "abort");
    for (uint32_t i = READY_FLIGHT; i-- > 0;) {
        st = be->wait(ev[i], UINT64_C(20000000000), NULL);
        be->event_free(ev[i]);
        judge_note(c, &note[i], st, what);
    }
}

/* A step that is over, and some of a queue that is aborted. */
static void ready_of_steps(check *c, stage *s, ready_note *n) {
    const mn_backend *be = s->p.be;
    mn_error *err = &s->p.err;
    mn_event *ev = NULL;
    check_doing(c, "event_on_ready of a step that is over ran");
    mn_status st = mn_usual_execute(be, s->plan->contexts[0], 0, s->o->value, &ev, err);
    if (!st)
        st = be->wait(ev, UINT64_C(20000000000), err);
    if (!st)
        st = be->event_on_ready(ev, ready_call, &n[0], err);
    CHECK_OK(c, st, err, "event_on_ready of a step that is over");
    be->event_free(ev);
    judge_note(c, &n[0], MN_OK, "a step that is over");
    if (check_over(c) || !MN_HAS(mn_backend, be, abort))
        return;
    CHECK_OK(c, case_second_context(s->plan, err), err, "a second queue");
    ready_in_flight(c, s, &n[2 + READY_FLIGHT], true);
}

/* What the device says to an event that is not NULL; MN_OK where it has none. */
static mn_status ready_first(stage *s, ready_memory *m, ready_note *n) {
    mn_event *ev = NULL;
    mn_error *err = &s->p.err;
    mn_status st = s->p.be->read(s->p.queue, m->dev, 0, m->pin, 0, READY_BYTES, &ev, err);
    if (!st)
        st = s->p.be->event_on_ready(ev, ready_call, n, err);
    const mn_status waited = case_wait(s->p.be, MN_OK, &ev, NULL);
    return st ? st : waited;
}

enum { READY_NOTES = 8 + 2 * READY_FLIGHT };
static ready_note ready_notes[READY_NOTES];

static void ready_all(check *c, stage *s, ready_memory *m) {
    ready_note *n = ready_notes;
    if (!ready_of_null(c, s, &n[1]))
        return;
    ready_read(c, s, m, &n[2], 1, false, "a read");
    if (!check_over(c))
        ready_read(c, s, m, &n[3], 2, false, "a read, twice");
    if (!check_over(c))
        ready_read(c, s, m, &n[5], 1, true, "a read whose event is freed");
    if (!check_over(c))
        ready_in_flight(c, s, &n[8], false);
    if (!check_over(c))
        ready_of_steps(c, s, &n[6]);
}

void check_call_on_ready(check *c) {
    stage s;
    ready_memory m = {0};
    if (!stage_plan(c, &s))
        return;
    if (!MN_HAS(mn_backend, s.p.be, event_on_ready)) {
        stage_close(c, &s);
        check_skip(c, "event_on_ready is optional, and NULL");
        return;
    }
    CHECK_OK(c, ready_open(&s, &m), &s.p.err, "buffers");
    check_doing(c, "event_on_ready of a read ran");
    const mn_status st = ready_first(&s, &m, &ready_notes[0]);
    const bool refuses = MN_STATUS_CLASS(st) == MN_CLASS_REFUSE;
    if (!refuses && check_status(c, st, &s.p.err, "event_on_ready of a read"))
        return;
    if (!refuses)
        judge_note(c, &ready_notes[0], MN_OK, "the first read");
    if (!refuses && !check_over(c))
        ready_all(c, &s, &m);
    if (check_over(c))
        return;
    ready_close(s.p.be, &m);
    stage_close(c, &s);
    nap(100); /* a second call may come from a thread that is late */
    for (uint32_t i = 0; i < READY_NOTES && !check_over(c); i++)
        CHECK(
            c, atomic_load(&ready_notes[i].calls) <= (refuses ? 0u : 1u),
            "event_on_ready: found a call of a device that is closed, or after an error, expected "
            "none");
    if (refuses)
        check_skip(c, "the device calls nobody back: %s", s.p.err.msg);
}
