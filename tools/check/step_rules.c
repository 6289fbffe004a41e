/* step_rules.c -- group call: what becomes of work: the events that calls return, and abort. Each
 * rule opens a stage (life.h), whose process ends with the rule where it fails. */
#include "wrong.h"
#include <string.h>

/* Memory of both kinds for transfers, and a bound context, beside those of the stage. */
typedef struct {
    mn_buffer *dev, *pin;
    mn_queue *queue;
    mn_context *x;
} step_things;

static mn_status things_open(stage *s, step_things *t) {
    const mn_backend *be = s->p.be;
    const case_plan *plan = s->plan;
    mn_error *err = &s->p.err;
    *t = (step_things){0};
    mn_status st = mn_usual_alloc(be, s->p.dev, 256, MN_MEM_DEVICE, &t->dev, err);
    if (!st)
        st = mn_usual_alloc(be, s->p.dev, 256, MN_MEM_HOST_PINNED, &t->pin, err);
    if (!st)
        st = mn_usual_queue(be, s->p.dev, &t->queue, err);
    if (!st)
        st = mn_usual_context(be, plan->program, t->queue, &t->x, err);
    if (!st)
        st = be->context_bind(t->x, 0, plan->binding, plan->n_bindings, sizeof *plan->binding, err);
    return st;
}

static void things_close(const mn_backend *be, step_things *t) {
    be->context_free(t->x);
    be->queue_free(t->queue);
    be->buffer_free(t->pin);
    be->buffer_free(t->dev);
}

/* ---- events ---------------------------------------------------------------------------------- */
/* What an event holds before the call: no pointer that a plugin has. */
static char unset[64];
#define UNSET ((mn_event *)(void *)unset)

static void judge_event(check *c, stage *s, mn_status st, mn_event **ev, const char *what) {
    CHECK_OK(c, st, &s->p.err, "%s", what);
    CHECK(c, *ev != UNSET,
          "%s: found MN_OK and the event as it was before, expected NULL or an event", what);
    check_doing(c, "the event of %s was waited for", what);
    CHECK_OK(c, case_wait(s->p.be, st, ev, &s->p.err), &s->p.err, "%s: wait", what);
}

/* A call with an event and without: `call` uses the variable ev. */
#define EVENT(c, s, what, call)                                                                    \
    do {                                                                                           \
        mn_event *e_ = UNSET, **ev = &e_;                                                          \
        check_doing(c, "%s ran", what);                                                            \
        judge_event(c, s, (call), &e_, what);                                                      \
        ev = NULL;                                                                                 \
        check_doing(c, "%s ran without an event", what);                                           \
        if (!check_over(c))                                                                        \
            check_status(c, (call), &(s)->p.err, "%s without an event", what);                     \
        if (check_over(c))                                                                         \
            return;                                                                                \
    } while (0)

/* is_read: by the segment of the set; else it has no nodes. */
static mn_status put_first_weight(stage *s, bool is_read, mn_event **ev) {
    const mn_backend *be = s->p.be;
    mn_weights *w = NULL;
    mn_compile ask = s->plan->ask;
    uint32_t t = 0;
    ask.weights = NULL;
    if (!is_read)
        ask.node_hi = ask.node_lo;
    while (s->o->t[t].role != MN_ROLE_WEIGHT)
        t++;
    mn_status st = be->weights_open(s->p.dev, &ask, &w, &s->p.err);
    if (st)
        return st;
    st = case_put_weight(s->plan, w, s->p.queue, t, ev, &s->p.err);
    if (!st && ev && *ev && *ev != UNSET)
        st = be->wait(*ev, UINT64_C(60000000000), &s->p.err);
    if (!st && !ev) { /* the source is in use until then: a read behind it is waited for */
        mn_event *end = NULL;
        st = be->read(s->p.queue, s->plan->binding[0].buffer, 0, s->plan->host, 0, 4, &end,
                      &s->p.err);
        st = case_wait(be, st, &end, &s->p.err);
    }
    be->weights_free(w);
    return st;
}

static void try_events(check *c, stage *s, const step_things *t) {
    const mn_backend *be = s->p.be;
    mn_queue *q = s->p.queue;
    mn_error *err = &s->p.err;
    const mn_step step = mn_usual_step(0, s->o->value);
    bool has_weight = false;
    for (uint32_t i = 0; i < s->o->g.n_tensors; i++)
        has_weight = has_weight || s->o->t[i].role == MN_ROLE_WEIGHT;
    EVENT(c, s, "read", be->read(q, t->dev, 0, t->pin, 0, 256, ev, err));
    EVENT(c, s, "read of 0 bytes", be->read(q, t->dev, 0, t->pin, 0, 0, ev, err));
    EVENT(c, s, "copy", be->copy(q, t->dev, 0, t->dev, 128, 128, ev, err));
    EVENT(c, s, "execute", be->execute(s->plan->contexts[0], &step, ev, err));
    if (!has_weight)
        return;
    EVENT(c, s, "weights_put", put_first_weight(s, true, ev));
    EVENT(c, s, "weights_put of a weight that the segment does not read",
          put_first_weight(s, false, ev));
}

void check_call_events(check *c) {
    stage s;
    step_things t;
    if (!stage_plan(c, &s))
        return;
    CHECK_OK(c, things_open(&s, &t), &s.p.err, "buffers, a queue and a context");
    try_events(c, &s, &t);
    if (check_over(c))
        return;
    things_close(s.p.be, &t);
    wrong_close(c, &s);
}

/* ---- abort ----------------------------------------------------------------------------------- */
/* Work for a queue that was aborted. */
static void cancelled(check *c, mn_status st, const char *what) {
    CHECK(c, st == MN_CANCELLED, "%s after abort: found status 0x%x, expected MN_CANCELLED", what,
          (unsigned)st);
}

static void nothing_begins(check *c, stage *s, const step_things *t) {
    static const uint8_t bytes[256];
    const mn_backend *be = s->p.be;
    check_doing(c, "calls of an aborted queue ran");
    cancelled(c, mn_usual_execute(be, t->x, 0, s->o->value, NULL, NULL), "execute");
    cancelled(c, be->write(t->queue, t->dev, 0, bytes, sizeof bytes, NULL), "write");
    cancelled(c, be->read(t->queue, t->dev, 0, t->pin, 0, sizeof bytes, NULL, NULL), "read");
    cancelled(c, be->copy(t->queue, t->dev, 0, t->dev, 128, 128, NULL, NULL), "copy");
}

void check_call_abort(check *c) {
    stage s;
    step_things t;
    mn_event *ev = NULL;
    if (!stage_plan(c, &s))
        return;
    const mn_backend *be = s.p.be;
    if (!MN_HAS(mn_backend, be, abort)) {
        stage_close(c, &s);
        check_skip(c, "abort is optional, and NULL");
        return;
    }
    mn_status st = things_open(&s, &t);
    if (!st)
        st = mn_usual_execute(be, t.x, 0, s.o->value, &ev, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "a step on a second queue");
    check_doing(c, "abort ran");
    be->abort(t.queue);
    CHECK_OK(c, be->abort(t.queue), NULL, "abort of a queue that was aborted");
    check_doing(c, "an event of an aborted queue was waited for");
    st = case_wait(be, MN_OK, &ev, NULL);
    CHECK(c, !st || st == MN_CANCELLED,
          "wait for an event of an aborted queue: found status 0x%x, expected MN_OK or "
          "MN_CANCELLED: all events become complete",
          (unsigned)st);
    nothing_begins(c, &s, &t);
    if (check_over(c))
        return;
    check_doing(c, "what is left of an aborted queue was freed");
    things_close(be, &t);
    wrong_close(c, &s);
}
