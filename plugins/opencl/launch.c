/* launch.c -- units as kernels in the queue. A kernel object is made when a context first needs it,
 * in context_prepare if the host calls it, one for each place in a step: arguments that are those
 * of the step before are not set again. */
#include "ops.h"

enum { ITEMS = 64 }; /* of a group where items are independent */

ocl_grid ocl_groups(const mng_run *r, int64_t n, int64_t m) {
    const size_t lanes = r->dev->lanes;
    return (ocl_grid){{(size_t)n * lanes, (size_t)m, 1}, {lanes, 1, 1}};
}

ocl_grid ocl_items(int64_t n, int64_t m, int64_t k) {
    const size_t whole = (size_t)mnp_round(n, ITEMS);
    return (ocl_grid){{whole, (size_t)m, (size_t)k}, {ITEMS, 1, 1}};
}

/* Room for the places of longer steps. */
static mn_status places_grow(mn_context *c, uint32_t wanted, mn_error *err) {
    const mn_device *d = c->base.prog->base.dev;
    const uint32_t n = wanted + wanted / 2 + 64;
    if (wanted < c->n_places)
        return MN_OK;
    ocl_place **more = mng_new(d, n * sizeof(ocl_place *));
    if (!more)
        return mnp_fail_memory(err, n * sizeof(ocl_place *), "kernels");
    if (c->n_places)
        memcpy(more, c->places, c->n_places * sizeof(ocl_place *));
    mng_delete(d, c->places);
    c->places = more;
    c->n_places = n;
    return MN_OK;
}

static mn_status make_kernel(mng_run *r, const ocl_launch *l, uint32_t type, cl_kernel *out) {
    const ocl_kernel *k = &ocl_kernels[l->kernel];
    cl_program program;
    cl_int code;
    ocl_shape shape;
    const bool is_shaped = k->source == OCL_SOURCE_linear && r->dev->asks_shapes;
    if (is_shaped)
        shape = ocl_shape_of(r->dev, l->type);
    const mn_status st =
        ocl_build(r->dev, k->source, type, is_shaped ? &shape : NULL, &program, r->err);
    if (st)
        return st;
    *out = r->dev->cl->CreateKernel(program, k->name, &code);
    return ocl_check(code, r->err, k->name);
}

static uint32_t launch_type(const ocl_launch *l) {
    return l->type ? l->type->index : OCL_NO_TYPE;
}

/* What stands at a place for this kernel; NULL: nothing yet. */
static ocl_place *find_place(const mn_context *c, const ocl_launch *l, uint32_t at) {
    for (ocl_place *p = c->places[at]; p; p = p->other)
        if (p->kernel == l->kernel && p->type == launch_type(l))
            return p;
    return NULL;
}

cl_kernel ocl_kernel_at(const mn_context *c, const ocl_launch *l, uint32_t i) {
    return find_place(c, l, i)->object;
}

/* The same, made where there is none; NULL after an error, which r keeps. */
static ocl_place *place_of(mng_run *r, const ocl_launch *l, uint32_t at) {
    const uint32_t type = launch_type(l);
    r->status = places_grow(r->c, at, r->err);
    if (r->status)
        return NULL;
    ocl_place *p = find_place(r->c, l, at);
    if (p)
        return p;
    p = mng_new(r->dev, sizeof *p);
    if (!p)
        r->status = mnp_fail_memory(r->err, sizeof *p, "a kernel");
    else
        r->status = make_kernel(r, l, type, &p->object);
    if (r->status) {
        mng_delete(r->dev, p);
        return NULL;
    }
    p->kernel = l->kernel;
    p->type = type;
    p->other = r->c->places[at];
    r->c->places[at] = p;
    return p;
}

void ocl_drop_places(mn_context *c) {
    const mn_device *d = c->base.prog->base.dev;
    for (uint32_t i = 0; i < c->n_places; i++) {
        for (ocl_place *p = c->places[i]; p;) {
            ocl_place *other = p->other;
            d->cl->ReleaseKernel(p->object);
            mng_delete(d, p);
            p = other;
        }
    }
    mng_delete(d, c->places);
}

/* Those that differ from what the kernel has. */
static cl_int set_args(const mng_run *r, ocl_place *p, const ocl_launch *l) {
    const ocl_icd *cl = r->dev->cl;
    const uint32_t freed = atomic_load(&r->dev->freed);
    const bool known = p->n_set == l->n_refs && p->freed == freed;
    p->n_set = 0;
    p->freed = freed;
    for (uint32_t i = 0; i < l->n_refs; i++) {
        const mng_ref *ref = &l->refs[i];
        const cl_ulong offset = ref->at;
        cl_int code = CL_SUCCESS;
        if (!known || p->refs[i].mem != ref->mem)
            code = cl->SetKernelArg(p->object, 2 * i, sizeof(cl_mem), &ref->mem);
        if (code == CL_SUCCESS && (!known || p->refs[i].at != ref->at))
            code = cl->SetKernelArg(p->object, 2 * i + 1, sizeof offset, &offset);
        if (code != CL_SUCCESS)
            return code;
        p->refs[i] = *ref;
    }
    if (!known || memcmp(p->args, l->args, l->args_bytes) != 0) {
        const cl_int code = cl->SetKernelArg(p->object, 2 * l->n_refs, l->args_bytes, l->args);
        if (code != CL_SUCCESS)
            return code;
        memcpy(p->args, l->args, l->args_bytes);
    }
    p->n_set = l->n_refs;
    return CL_SUCCESS;
}

void ocl_enqueue(mng_run *r, const ocl_launch *l) {
    if (r->status || ocl_step_add(r, l))
        return;
    ocl_step_flush(r);
    if (r->status || ocl_recording_holds(r, l))
        return;
    ocl_launch_now(r, l);
}

void ocl_launch_now(mng_run *r, const ocl_launch *l) {
    const ocl_grid *g = &l->grid;
    const bool nothing = !g->global[0] || !g->global[1] || !g->global[2];
    if (r->status)
        return;
    ocl_place *p = place_of(r, l, r->step->place++);
    if (!p || r->dry || nothing)
        return;
    cl_int code = set_args(r, p, l);
    if (code == CL_SUCCESS)
        code = r->dev->cl->EnqueueNDRangeKernel(r->c->base.queue->cl, p->object, 3, NULL, g->global,
                                                g->local, 0, NULL, NULL);
    r->status = ocl_check(code, r->err, ocl_kernels[l->kernel].name);
}
