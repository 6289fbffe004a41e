/* work.h -- the requests of an engine process on its session: submit, abort, events. */
#ifndef MINERVA_SERVE_WORK_H
#define MINERVA_SERVE_WORK_H
#include "serve/wire.h"

typedef struct work work;

/* NULL: out of memory. s outlives it. */
work *work_create(mn_session *s);
/* Queues a generation; everything is copied. c: the form of the answer, or NULL. Any thread. A
 * refusal has its reason in *err. */
mn_status work_submit(work *w, const wire_submit *m, mn_constraint *c, mn_error *err);
/* Ends a generation, which has its FINISH event if it had none. Any thread. */
void work_abort(work *w, uint64_t id);
/* Runs until there is an event or the time is over; fn is called with each. One thread. */
typedef void (*work_event_fn)(void *arg, const wire_event *e);
mn_status work_next(work *w, uint32_t timeout_ms, work_event_fn fn, void *arg, mn_error *err);
/* The state now. Any thread; does not wait for a step. */
void work_beat(const work *w, wire_beat *out);
#endif
