/* launch.c -- units as kernels in the queue. A kernel object is made when a context first needs it,
 * in context_prepare if the host calls it; arguments are set anew for every launch. */
#include "ops.h"

enum { ITEMS = 64 }; /* of a group where items are independent */

ocl_grid ocl_groups(const ocl_run *r, int64_t n, int64_t m) {
    const size_t lanes = r->dev->lanes;
    return (ocl_grid){{(size_t)n * lanes, (size_t)m, 1}, {lanes, 1, 1}};
}

ocl_grid ocl_items(int64_t n, int64_t m, int64_t k) {
    const size_t whole = (size_t)mnp_round(n, ITEMS);
    return (ocl_grid){{whole, (size_t)m, (size_t)k}, {ITEMS, 1, 1}};
}

/* NULL after an error, which r keeps. */
static cl_kernel kernel_of(ocl_run *r, const ocl_launch *l) {
    const ocl_kernel *k = &ocl_kernels[l->kernel];
    const uint32_t type = l->type ? l->type->index : OCL_NO_TYPE;
    cl_kernel *at = &r->c->kernels[l->kernel][type];
    cl_program program;
    cl_int code;
    if (*at)
        return *at;
    r->status = ocl_build(r->dev, k->source, type, &program, r->err);
    if (r->status)
        return NULL;
    *at = r->dev->cl->CreateKernel(program, k->name, &code);
    if (!*at)
        r->status = ocl_check(code, r->err, k->name);
    return *at;
}

static cl_int set_args(const ocl_run *r, cl_kernel kernel, const ocl_launch *l) {
    const ocl_icd *cl = r->dev->cl;
    cl_uint at = 0;
    cl_int code = CL_SUCCESS;
    for (uint32_t i = 0; i < l->n_refs && code == CL_SUCCESS; i++) {
        const cl_ulong offset = l->refs[i].at;
        code = cl->SetKernelArg(kernel, at++, sizeof(cl_mem), &l->refs[i].mem);
        if (code == CL_SUCCESS)
            code = cl->SetKernelArg(kernel, at++, sizeof offset, &offset);
    }
    if (code != CL_SUCCESS)
        return code;
    return cl->SetKernelArg(kernel, at, l->args_bytes, l->args);
}

void ocl_enqueue(ocl_run *r, const ocl_launch *l) {
    const ocl_grid *g = &l->grid;
    const bool nothing = !g->global[0] || !g->global[1] || !g->global[2];
    if (r->status)
        return;
    cl_kernel kernel = kernel_of(r, l);
    if (!kernel || r->dry || nothing)
        return;
    cl_int code = set_args(r, kernel, l);
    if (code == CL_SUCCESS)
        code = r->dev->cl->EnqueueNDRangeKernel(r->c->queue->cl, kernel, 3, NULL, g->global,
                                                g->local, 0, NULL, NULL);
    r->status = ocl_check(code, r->err, ocl_kernels[l->kernel].name);
}

void ocl_launch_unit(ocl_run *r, const ocl_unit *u) {
    ocl_op_of(mnp_node(r->g, u->node)->op)->launch(r, u);
    if (r->status && r->err && r->err->size >= MNP_UP_TO(mn_error, node))
        r->err->node = u->node;
}

ocl_run ocl_run_of(mn_context *c, bool dry, mn_error *err) {
    return (ocl_run){.c = c,
                     .p = c->prog,
                     .g = c->prog->graph,
                     .dev = c->prog->dev,
                     .sym = c->symbol,
                     .dry = dry,
                     .err = err};
}
