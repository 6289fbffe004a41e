/* context.c -- the steps of one queue: a step is its units' kernels, enqueued in order, and nothing
 * waits for them. Kernels, common kernels and recordings belong to the context. */
#include "ops.h"

mn_status ocl_context_open(mn_context *c, mn_error *err) {
    return ocl_steps_create(c, err);
}

void ocl_context_close(mn_context *c) {
    ocl_recordings_free(c);
    ocl_drop_places(c);
    ocl_steps_free(c);
}

void ocl_run_begin(mng_run *r) {
    r->c->step = (mng_step){0};
    r->step = &r->c->step;
    ocl_steps_take(r);
}

/* dry: programs are compiled and kernels made; nothing is enqueued. */
mn_status ocl_step(mn_context *c, bool dry, mn_error *err) {
    mn_status st = mng_check_sizes(c, err);
    if (st)
        return st;
    const uint32_t n_units = c->base.prog->base.n_units;
    mng_run r = mng_run_of(c, dry, err);
    ocl_recording_begin(&r, c->base.set);
    for (uint32_t i = 0; i < n_units && !r.status; i++)
        mng_launch_unit(&r, i);
    ocl_step_flush(&r);
    ocl_recording_end(&r);
    if (dry && !r.status)
        r.status = ocl_recordings_reserve(c, r.step->place, err);
    return r.status;
}
