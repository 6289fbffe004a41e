/* commands.c -- steps as command buffers (cl_khr_command_buffer), where the driver has them and
 * there is no kernel of many operations (step.c): a step that launches what the last two steps of
 * the same bindings launched is one call of the driver. Launches are compared with the list of the
 * step before, one after the other, and held back as long as they are the same; the first one that
 * is not sends what was held back, and the rest of the step is the new list. Lists belong to their
 * context, and their memory is taken when the context is prepared: a step allocates nothing. */
#include "ops.h"

/* From the extension, version 0.9; older headers lack it. */
enum {
    DEVICE_CAPABILITIES = 0x12A9,
    DEVICE_QUEUE_PROPERTIES = 0x12AA,
    BUFFER_FLAGS = 0x1293,
    SIMULTANEOUS_USE = 1 << 0,
    CAN_SIMULTANEOUS_USE = 1 << 2
};

typedef struct {
    ocl_launch launch; /* of refs and args below */
    mng_ref refs[OCL_MAX_REFS];
    char args[OCL_MAX_ARGS];
} kept;

struct ocl_recording {
    kept *launches; /* [room] of the step before */
    uint32_t n;
    uint32_t room;
    ocl_command_buffer buffer; /* NULL: they were not the same twice yet */
    uint32_t freed;            /* the device's count: a handle of memory may come again */
};

/* ---- the driver's part ----------------------------------------------------------------------- */
static bool find_calls(const ocl_icd *cl, cl_platform_id platform, ocl_commands *c) {
    const struct {
        void *to;
        const char *name;
    } calls[] = {{&c->create, "clCreateCommandBufferKHR"},
                 {&c->kernel, "clCommandNDRangeKernelKHR"},
                 {&c->finalize, "clFinalizeCommandBufferKHR"},
                 {&c->enqueue, "clEnqueueCommandBufferKHR"},
                 {&c->release, "clReleaseCommandBufferKHR"}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *function = cl->GetExtensionFunctionAddressForPlatform(platform, calls[i].name);
        if (!function)
            return false;
        memcpy(calls[i].to, &function, sizeof function);
    }
    return true;
}

void ocl_commands_find(mn_device *d, cl_platform_id platform) {
    const ocl_icd *cl = d->cl;
    cl_ulong can = 0;
    cl_ulong queue = 0;
    if (cl->GetDeviceInfo(d->id, DEVICE_CAPABILITIES, sizeof can, &can, NULL) != CL_SUCCESS ||
        cl->GetDeviceInfo(d->id, DEVICE_QUEUE_PROPERTIES, sizeof queue, &queue, NULL) != CL_SUCCESS)
        return;
    /* steps are enqueued ahead of each other, in a queue without properties */
    if (!(can & CAN_SIMULTANEOUS_USE) || queue)
        return;
    d->has_commands = find_calls(cl, platform, &d->commands);
}

/* Each command waits for the one before it, whatever kind of queue runs them. */
static cl_int recording_replay(const mn_context *c, const ocl_recording *rec,
                               ocl_command_buffer buffer) {
    const ocl_commands *cmd = &c->base.prog->base.dev->commands;
    cl_uint before = 0;
    cl_uint n_before = 0;
    for (uint32_t i = 0; i < rec->n; i++) {
        const ocl_launch *l = &rec->launches[i].launch;
        const ocl_grid *g = &l->grid;
        if (!g->global[0] || !g->global[1] || !g->global[2])
            continue;
        cl_uint point;
        const cl_int code =
            cmd->kernel(buffer, NULL, NULL, ocl_kernel_at(c, l, i), 3, NULL, g->global, g->local,
                        n_before, n_before ? &before : NULL, &point, NULL);
        if (code != CL_SUCCESS)
            return code;
        before = point;
        n_before = 1;
    }
    return cmd->finalize(buffer);
}

static void recording_drop(const mn_device *d, ocl_recording *rec) {
    if (rec->buffer)
        d->commands.release(rec->buffer);
    rec->buffer = NULL;
}

/* A command buffer of the launches, whose kernels have their arguments. A driver that makes none is
 * asked no more: kernels are enqueued one by one. */
static void record(mn_context *c, ocl_recording *rec) {
    static const cl_ulong properties[] = {BUFFER_FLAGS, SIMULTANEOUS_USE, 0};
    mn_device *d = c->base.prog->base.dev;
    cl_int code;
    ocl_command_buffer buffer = d->commands.create(1, &c->base.queue->cl, properties, &code);
    if (code == CL_SUCCESS)
        code = recording_replay(c, rec, buffer);
    rec->buffer = buffer;
    if (code == CL_SUCCESS) {
        mng_log(d->base.host, MN_LOG_DEBUG, "a step of %u kernels is a command buffer", rec->n);
        return;
    }
    mng_log(d->base.host, MN_LOG_INFO, "%s: no command buffers: %s (OpenCL error %d)", d->base.name,
            ocl_code_name(code), (int)code);
    recording_drop(d, rec);
    d->has_commands = false;
}

/* ---- lists ----------------------------------------------------------------------------------- */
static bool same(const ocl_launch *a, const ocl_launch *b) {
    return a->kernel == b->kernel && a->type == b->type && a->n_refs == b->n_refs &&
           a->args_bytes == b->args_bytes && !memcmp(&a->grid, &b->grid, sizeof a->grid) &&
           !memcmp(a->args, b->args, a->args_bytes) &&
           !memcmp(a->refs, b->refs, a->n_refs * sizeof *a->refs);
}

static void recording_keep(ocl_recording *rec, const ocl_launch *l) {
    kept *k = &rec->launches[rec->n++];
    memcpy(k->refs, l->refs, l->n_refs * sizeof *l->refs);
    memcpy(k->args, l->args, l->args_bytes);
    k->launch = *l;
    k->launch.refs = k->refs;
    k->launch.args = k->args;
}

/* Enqueues the launches that were held back; the list ends behind them. */
static void release_held(mng_run *r) {
    ocl_recording *rec = r->step->recording;
    r->step->holds = false;
    for (uint32_t i = 0; i < r->step->n_held; i++)
        ocl_launch_now(r, &rec->launches[i].launch);
    if (rec->n != r->step->n_held)
        recording_drop(r->dev, rec);
    rec->n = r->step->n_held;
}

void ocl_recording_begin(mng_run *r, uint32_t set) {
    ocl_recording *rec = r->c->recordings;
    if (r->dry || !rec || !r->dev->has_commands || r->c->steps)
        return;
    rec += set;
    const uint32_t freed = atomic_load(&r->dev->freed);
    if (rec->freed != freed) {
        recording_drop(r->dev, rec);
        rec->n = 0;
    }
    rec->freed = freed;
    r->step->recording = rec;
    r->step->holds = true;
}

bool ocl_recording_holds(mng_run *r, const ocl_launch *l) {
    ocl_recording *rec = r->step->recording;
    if (!rec)
        return false;
    if (r->step->holds && r->step->n_held < rec->n &&
        same(&rec->launches[r->step->n_held].launch, l)) {
        r->step->n_held++;
        return true;
    }
    if (r->step->holds) {
        release_held(r);
        recording_drop(r->dev, rec);
    }
    if (rec->n < rec->room)
        recording_keep(rec, l);
    else
        r->step->recording = NULL; /* the step is longer than one that was prepared */
    return false;
}

void ocl_recording_end(mng_run *r) {
    ocl_recording *rec = r->step->recording;
    const mn_device *d = r->dev;
    if (!rec)
        return;
    if (r->step->holds && !r->status) {
        const bool whole = r->step->n_held == rec->n && rec->n;
        if (whole && rec->buffer) {
            cl_command_queue queue = r->c->base.queue->cl;
            r->status = ocl_check(d->commands.enqueue(1, &queue, rec->buffer, 0, NULL, NULL),
                                  r->err, "a command buffer");
        } else {
            release_held(r);
            if (whole && !r->status)
                record(r->c, rec);
        }
    }
    if (r->status) {
        recording_drop(d, rec);
        rec->n = 0;
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */
mn_status ocl_recordings_reserve(mn_context *c, uint32_t n, mn_error *err) {
    const mn_device *d = c->base.prog->base.dev;
    const uint32_t n_sets = c->base.prog->base.n_sets;
    if (!d->has_commands || c->steps)
        return MN_OK;
    if (!c->recordings)
        c->recordings = mng_new(d, n_sets * sizeof *c->recordings);
    if (!c->recordings)
        return mnp_fail_memory(err, n_sets * sizeof *c->recordings, "command buffers");
    for (uint32_t i = 0; i < n_sets; i++) {
        ocl_recording *rec = &c->recordings[i];
        if (n <= rec->room)
            continue;
        kept *more = mng_new(d, n * sizeof *more);
        if (!more)
            return mnp_fail_memory(err, n * sizeof *more, "command buffers");
        recording_drop(d, rec);
        mng_delete(d, rec->launches);
        *rec = (ocl_recording){.launches = more, .room = n};
    }
    return MN_OK;
}

void ocl_recordings_free(mn_context *c) {
    const mn_device *d = c->base.prog->base.dev;
    for (uint32_t i = 0; c->recordings && i < c->base.prog->base.n_sets; i++) {
        recording_drop(d, &c->recordings[i]);
        mng_delete(d, c->recordings[i].launches);
    }
    mng_delete(d, c->recordings);
}
