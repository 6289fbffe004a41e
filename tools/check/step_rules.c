/* step_rules.c -- group call: what becomes of steps: abort. */
#include "wrong.h"
#include <string.h>

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
    wrong_close(c, &s);
}
