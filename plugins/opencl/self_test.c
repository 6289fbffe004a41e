/* self_test.c -- small kernels of self_test.cl, compiled and run: what a driver gets wrong is found
 * in the probing process. */
#include "types.h"

enum { TEST_N = 64 };

/* What a kernel of self_test.cl makes of host, which gets it; local: NULL: any groups. */
static mn_status run_test(mn_device *d, const char *name, const size_t *local, cl_program program,
                          cl_mem mem, float *host, mn_error *err) {
    const ocl_icd *cl = d->cl;
    const size_t bytes = TEST_N * sizeof *host;
    const size_t global[2] = {local ? local[0] : TEST_N, local ? local[1] : 1};
    cl_int code;
    cl_kernel kernel = cl->CreateKernel(program, name, &code);
    if (!kernel)
        return ocl_check(code, err, "self-test");
    code = cl->EnqueueWriteBuffer(d->own, mem, CL_TRUE, 0, bytes, host, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = cl->SetKernelArg(kernel, 0, sizeof mem, &mem);
    if (code == CL_SUCCESS)
        code = cl->EnqueueNDRangeKernel(d->own, kernel, local ? 2 : 1, NULL, global, local, 0, NULL,
                                        NULL);
    if (code == CL_SUCCESS)
        code = cl->EnqueueReadBuffer(d->own, mem, CL_TRUE, 0, bytes, host, 0, NULL, NULL);
    cl->ReleaseKernel(kernel);
    return ocl_check(code, err, "self-test");
}

static mn_status test_products(mn_device *d, cl_program program, cl_mem mem, mn_error *err) {
    float host[TEST_N];
    for (int i = 0; i < TEST_N; i++)
        host[i] = (float)i;
    const mn_status st = run_test(d, "self_test", NULL, program, mem, host, err);
    for (int i = 0; i < TEST_N && !st; i++)
        if (host[i] != (float)(i * i + i))
            return mnp_fail(err, MN_NO_DEVICE, ~0u, "self-test: %d * %d + %d gave %g", i, i, i,
                            (double)host[i]);
    return st;
}

/* Kernels take for granted that items of neighbouring numbers are in one sub-group. */
static mn_status test_sub_groups(mn_device *d, cl_program program, cl_mem mem, mn_error *err) {
    static const size_t group[2] = {32, TEST_N / 32};
    float host[TEST_N] = {0};
    if (!d->sub_groups || ocl_group_size(d, TEST_N) < TEST_N)
        return MN_OK;
    const mn_status st = run_test(d, "self_test_sub_groups", group, program, mem, host, err);
    for (int i = 0; i < TEST_N && !st; i++)
        if (host[i] != 0)
            return mnp_fail(err, MN_NO_DEVICE, ~0u,
                            "self-test: item %d of a group is not in one sub-group with its "
                            "neighbours; plugin.opencl.sub_groups = -1 does without sub-groups",
                            i);
    return st;
}

static mn_status test_mad(mn_device *d, cl_program program, cl_mem mem, mn_error *err) {
    const size_t group[2] = {d->mad, d->mad ? TEST_N / d->mad : 0};
    float host[TEST_N] = {0};
    if (!d->mad)
        return MN_OK;
    const mn_status st = run_test(d, "self_test_mad", group, program, mem, host, err);
    for (int i = 0; i < TEST_N && !st; i++)
        if (host[i] != 0)
            return mnp_fail(err, MN_NO_DEVICE, ~0u,
                            "self-test: a sub-group's product of matrices is wrong by %g in output "
                            "%d; plugin.opencl.mad = -1 does without them",
                            (double)host[i], i % (int)d->mad);
    return st;
}

mn_status ocl_self_test(mn_device *d, mn_error *err) {
    cl_program program;
    cl_mem mem;
    mn_status st = ocl_build(d, OCL_SOURCE_self_test, OCL_NO_TYPE, NULL, &program, err);
    if (!st)
        st = ocl_take_memory(d, TEST_N * sizeof(float), "self-test", &mem, err);
    if (st)
        return st;
    st = test_products(d, program, mem, err);
    if (!st)
        st = test_sub_groups(d, program, mem, err);
    if (!st)
        st = test_mad(d, program, mem, err);
    d->cl->ReleaseMemObject(mem);
    return st;
}
