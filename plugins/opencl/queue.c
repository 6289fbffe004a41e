/* queue.c -- command queues, the copies in them, and their events. A queue is in order. */
#include "opencl.h"

mn_status ocl_queue_open(mn_queue *q, mn_error *err) {
    const mn_device *d = q->base.dev;
    cl_int code;
    q->cl = d->cl->CreateCommandQueue(d->context, d->id, 0, &code);
    return ocl_check(code, err, "a queue");
}

void ocl_queue_close(mn_queue *q) {
    ocl_step_forget(q);
    if (q->cl)
        q->base.dev->cl->ReleaseCommandQueue(q->cl);
}

mn_status ocl_queue_finish(mn_queue *q, mn_error *err) {
    if (!q->cl)
        return MN_OK;
    return ocl_check(q->base.dev->cl->Finish(q->cl), err, "waiting for a queue");
}

mn_status ocl_queue_flush(mn_queue *q, mn_error *err) {
    return ocl_check(q->base.dev->cl->Flush(q->cl), err, "execute");
}

/* ---- copies ---------------------------------------------------------------------------------- */
mn_status ocl_copy_in(mn_queue *q, mng_ref to, const char *host, uint64_t n, void **event,
                      mn_error *err) {
    const ocl_icd *cl = q->base.dev->cl;
    cl_event over = NULL;
    if (event && *event)
        cl->ReleaseEvent(*event);
    const cl_int code = cl->EnqueueWriteBuffer(q->cl, to.mem, CL_FALSE, to.at, n, host, 0, NULL,
                                               event ? &over : NULL);
    if (event)
        *event = code == CL_SUCCESS ? over : NULL;
    return ocl_check(code, err, "a transfer");
}

mn_status ocl_copy_out(mn_queue *q, char *host, mng_ref from, uint64_t n, mn_error *err) {
    return ocl_check(q->base.dev->cl->EnqueueReadBuffer(q->cl, from.mem, CL_FALSE, from.at, n, host,
                                                        0, NULL, NULL),
                     err, "copy");
}

mn_status ocl_copy(mn_queue *q, mng_ref to, mng_ref from, uint64_t n, mn_error *err) {
    return ocl_check(q->base.dev->cl->EnqueueCopyBuffer(q->cl, from.mem, to.mem, from.at, to.at, n,
                                                        0, NULL, NULL),
                     err, "copy");
}

mn_status ocl_map(mn_queue *q, mng_ref at, uint64_t n, void **host, mn_error *err) {
    cl_int code;
    *host = q->base.dev->cl->EnqueueMapBuffer(q->cl, at.mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                              at.at, n, 0, NULL, NULL, &code);
    return ocl_check(code, err, "mapping a weight");
}

mn_status ocl_unmap(mn_queue *q, mng_ref at, void *host, mn_error *err) {
    return ocl_check(q->base.dev->cl->EnqueueUnmapMemObject(q->cl, at.mem, host, 0, NULL, NULL),
                     err, "unmapping a weight");
}

/* ---- events ---------------------------------------------------------------------------------- */
mn_status ocl_event_record(mn_queue *q, void **event, mn_error *err) {
    const ocl_icd *cl = q->base.dev->cl;
    cl_event made = NULL;
    if (*event)
        cl->ReleaseEvent(*event);
    *event = NULL;
    cl_int code = cl->EnqueueMarkerWithWaitList(q->cl, 0, NULL, &made);
    if (code == CL_SUCCESS)
        *event = made;
    if (code == CL_SUCCESS)
        code = cl->Flush(q->cl);
    return ocl_check(code, err, "an event");
}

mn_status ocl_event_poll(mn_device *d, void *event, bool *passed, mn_error *err) {
    cl_int state = CL_COMPLETE;
    OCL_TRY(
        d->cl->GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL),
        err, "waiting");
    *passed = state == CL_COMPLETE;
    if (state >= 0)
        return MN_OK;
    const mng_vendor_error e = {"OpenCL", ocl_code_name(state), state, MN_DEVICE_LOST};
    return mng_fail_vendor(&e, err, "a step failed");
}

mn_status ocl_event_wait(mn_device *d, void *event, mn_error *err) {
    cl_event last = event;
    return ocl_check(d->cl->WaitForEvents(1, &last), err, "a transfer");
}

mn_status ocl_event_join(mn_queue *q, void *event, mn_error *err) {
    cl_event last = event;
    return ocl_check(q->base.dev->cl->EnqueueBarrierWithWaitList(q->cl, 1, &last, NULL), err,
                     "queue_wait");
}

void ocl_event_free(mn_device *d, void *event) {
    d->cl->ReleaseEvent(event);
}

/* ---- gates: events of the host --------------------------------------------------------------- */
mn_status ocl_gate_close(mn_queue *q, void **gate, mn_error *err) {
    const mn_device *d = q->base.dev;
    cl_int code;
    cl_event e = d->cl->CreateUserEvent(d->context, &code);
    if (!e)
        return ocl_check(code, err, "a gate");
    code = d->cl->EnqueueBarrierWithWaitList(q->cl, 1, &e, NULL);
    if (code == CL_SUCCESS)
        *gate = e;
    else
        d->cl->ReleaseEvent(e);
    return ocl_check(code, err, "a gate");
}

void ocl_gate_open(mn_device *d, void *gate) {
    d->cl->SetUserEventStatus(gate, CL_COMPLETE);
    d->cl->ReleaseEvent(gate);
}

/* ---- who is told of an event ----------------------------------------------------------------- */
/* Whom the driver's thread tells of an event, which is kept until then. */
typedef struct {
    mn_device *dev;
    void (*fn)(void *arg, mn_status status);
    void *arg;
} ocl_told;

/* Last of all fn: the host may close the device then. */
static void CL_CALLBACK on_over(cl_event event, cl_int state, void *user) {
    ocl_told *t = user;
    const ocl_told told = *t;
    mng_delete(told.dev, t);
    told.dev->cl->ReleaseEvent(event);
    told.fn(told.arg, state < 0 ? MN_DEVICE_LOST : MN_OK);
}

mn_status ocl_event_tell(mn_device *d, void *event, void (*fn)(void *, mn_status), void *arg,
                         mn_error *err) {
    ocl_told *t = mng_new(d, sizeof *t);
    if (!t)
        return mnp_fail_memory(err, sizeof *t, "whom to tell of an event");
    *t = (ocl_told){d, fn, arg};
    cl_int code = d->cl->RetainEvent(event);
    if (code == CL_SUCCESS) {
        code = d->cl->SetEventCallback(event, CL_COMPLETE, on_over, t);
        if (code == CL_SUCCESS)
            return MN_OK;
        d->cl->ReleaseEvent(event);
    }
    mng_delete(d, t);
    return ocl_check(code, err, "a call back");
}
