/* device.c -- opening a device, what its compiler is told of it, its memory, the self-test. A
 * device has a context of its own; buffers, queues and programs of it are children. The context is
 * made by the first of them: a driver takes hundreds of MiB for one, and an open device that nobody
 * uses costs nothing. */
#include "backend.h"
#include "types.h"

enum { CC_MAJOR_NV = 0x4000 }; /* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV */

static uint64_t number(const mn_device *d, cl_device_info what, size_t bytes) {
    cl_ulong v = 0;
    if (d->cl->GetDeviceInfo(d->id, what, bytes, &v, NULL) == CL_SUCCESS)
        return v;
    return 0;
}

static bool has_extension(const mn_device *d, const char *name) {
    char all[8192] = "";
    if (d->cl->GetDeviceInfo(d->id, CL_DEVICE_EXTENSIONS, sizeof all - 1, all, NULL) != CL_SUCCESS)
        return false;
    return strstr(all, name) != NULL;
}

/* The largest power of two that is neither above `most` nor above what the device takes. */
static uint32_t group_size(const mn_device *d, uint32_t most) {
    const uint64_t room = number(d, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    uint32_t n = 1;
    while (2 * n <= most && 2 * n <= room)
        n *= 2;
    return n;
}

/* An option of the user's; 0, the default, leaves the choice to the plugin. */
static uint32_t chosen(const mn_device *d, const char *key, uint32_t by_kind) {
    const int64_t wanted = ocl_option(d->plugin->host, key, 0);
    if (wanted > 0 && wanted <= 256)
        return (uint32_t)wanted;
    return by_kind;
}

/* Groups of a kernel that runs many operations: all of them at once, so one for each compute unit.
 * Where groups cannot wait for each other it is one alone, if the user wants it. */
static void choose_steps(mn_device *d) {
    const int64_t wanted = ocl_option(d->plugin->host, "step_groups", 0);
    const uint64_t units = number(d, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint));
    const uint64_t most = d->mma ? units : 1;
    const uint32_t warps = d->ptx ? 16 : OCL_WARPS;
    if (!d->warps || group_size(d, 32 * warps) < 32 * warps)
        return;
    d->step_warps = warps;
    if (wanted > 0)
        d->step_groups = (uint32_t)((uint64_t)wanted < most ? (uint64_t)wanted : most);
    else if (!wanted && d->mma)
        d->step_groups = (uint32_t)units;
}

/* The option is for drivers that give less than they say. */
static uint64_t max_buffer(const mn_device *d) {
    const int64_t wanted = ocl_option(d->plugin->host, "buffer_kib", 0);
    const uint64_t most = d->max_alloc ? d->max_alloc / 64 * 64 : UINT64_MAX;
    if (wanted > 0 && (uint64_t)wanted << 10 < most)
        return (uint64_t)wanted << 10;
    return most;
}

/* What kernels are specialised by (kernels/common.cl). */
static void choose_options(mn_device *d) {
    const cl_device_type type = number(d, CL_DEVICE_TYPE, sizeof(cl_device_type));
    d->is_cpu = type & CL_DEVICE_TYPE_CPU;
    d->has_double = has_extension(d, "cl_khr_fp64");
    d->max_alloc = number(d, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(cl_ulong));
    d->max_buffer = max_buffer(d);
    atomic_init(&d->kv_page, 0);
    d->lanes = group_size(d, chosen(d, "lanes", d->is_cpu ? 1 : 256));
    d->linear_lanes = group_size(d, chosen(d, "linear_lanes", d->is_cpu ? 1 : 32));
    d->ptx = has_extension(d, "cl_nv_compiler_options");
    d->mma = d->ptx && number(d, CC_MAJOR_NV, sizeof(cl_uint)) >= 8;
    d->sample_lanes = d->ptx ? group_size(d, 1024) : d->lanes;
    d->warps = d->linear_lanes == 32 && group_size(d, 32 * OCL_WARPS) == 32 * OCL_WARPS &&
               number(d, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(cl_ulong)) >= OCL_WARP_LOCAL;
    choose_steps(d);
    snprintf(d->options, sizeof d->options, "-cl-std=CL1.2 -DLINEAR_LANES=%u%s%s%s",
             d->linear_lanes, d->is_cpu ? " -DIS_CPU" : "", d->ptx ? " -DPTX" : "",
             d->has_double ? " -DHAS_DOUBLE" : "");
}

/* Under the lock. */
static mn_status start(mn_device *d, mn_error *err) {
    cl_int code;
    if (d->own)
        return MN_OK;
    if (!d->context)
        d->context = d->cl->CreateContext(NULL, 1, &d->id, NULL, NULL, &code);
    if (!d->context)
        return ocl_check(code, err, "starting the device");
    d->own = d->cl->CreateCommandQueue(d->context, d->id, 0, &code);
    if (d->own)
        return MN_OK;
    return ocl_check(code, err, "a queue");
}

mn_status ocl_start(mn_device *d, mn_error *err) {
    pthread_mutex_lock(&d->start_lock);
    const mn_status st = start(d, err);
    pthread_mutex_unlock(&d->start_lock);
    return st;
}

mn_status ocl_device_open(void *self, uint32_t i, mn_device **out, mn_error *err) {
    ocl_plugin *p = self;
    uint32_t n;
    mn_device_info info = {.size = sizeof info};
    mn_status st = ocl_device_count(p, &n, err);
    if (!st)
        st = ocl_device_info(p, i, &info, err);
    if (st)
        return st;
    mn_device *d = mnp_new(p->host, sizeof *d);
    if (!d)
        return mnp_fail_memory(err, sizeof *d, "a device");
    d->plugin = p;
    d->cl = &p->icd;
    d->id = p->found[i].id;
    memcpy(d->name, info.name, sizeof d->name);
    memcpy(d->uid, info.uid, sizeof d->uid);
    memcpy(d->driver, info.driver, sizeof d->driver);
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->start_lock, NULL);
    choose_options(d);
    /* a CPU's driver compiles for each size of group at the first launch and keeps that itself;
     * binaries would have it compile every kernel once more */
    d->keeps_binaries = ocl_option(p->host, "cache", d->is_cpu ? 0 : 1) != 0;
    *out = d;
    return MN_OK;
}

void ocl_device_close(mn_device *d) {
    if (!d)
        return;
    ocl_drop_built(d);
    for (mn_event *e = d->spare; e;) {
        mn_event *next = e->next;
        ocl_delete(d, e);
        e = next;
    }
    if (d->own)
        d->cl->ReleaseCommandQueue(d->own);
    if (d->context)
        d->cl->ReleaseContext(d->context);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->start_lock);
    ocl_delete(d, d);
}

/* OpenCL does not say how much is free: the option `memory_mib` bounds it, else all of it counts
 * but an eighth, which drivers and other programs may hold. */
mn_status ocl_device_memory(mn_device *d, uint64_t *free_bytes, uint64_t *total, mn_error *err) {
    (void)err;
    const uint64_t all = number(d, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
    const int64_t bound = ocl_option(d->plugin->host, "memory_mib", 0);
    *total = all;
    *free_bytes = all - all / 8;
    if (bound > 0 && (uint64_t)bound << 20 < *free_bytes)
        *free_bytes = (uint64_t)bound << 20;
    return MN_OK;
}

/* ---- self-test ------------------------------------------------------------------------------- */
enum { TEST_N = 64 };

/* y = x x + x by the kernel of self_test.cl. */
static mn_status run_test(mn_device *d, cl_kernel kernel, cl_mem mem, float *host, mn_error *err) {
    const ocl_icd *cl = d->cl;
    const size_t n = TEST_N;
    OCL_TRY(cl->EnqueueWriteBuffer(d->own, mem, CL_TRUE, 0, n * sizeof *host, host, 0, NULL, NULL),
            err, "self-test");
    OCL_TRY(cl->SetKernelArg(kernel, 0, sizeof mem, &mem), err, "self-test");
    OCL_TRY(cl->EnqueueNDRangeKernel(d->own, kernel, 1, NULL, &n, NULL, 0, NULL, NULL), err,
            "self-test");
    OCL_TRY(cl->EnqueueReadBuffer(d->own, mem, CL_TRUE, 0, n * sizeof *host, host, 0, NULL, NULL),
            err, "self-test");
    for (int i = 0; i < TEST_N; i++) {
        const float want = (float)(i * i + i);
        if (host[i] != want)
            return mnp_fail(err, MN_NO_DEVICE, ~0u, "self-test: %d * %d + %d gave %g", i, i, i,
                            (double)host[i]);
    }
    return MN_OK;
}

/* One small program is compiled and run: what a driver gets wrong is found in the probing
 * process. */
mn_status ocl_self_test(mn_device *d, mn_error *err) {
    float host[TEST_N];
    cl_program program;
    cl_int code;
    for (int i = 0; i < TEST_N; i++)
        host[i] = (float)i;
    mn_status st = ocl_build(d, OCL_SOURCE_self_test, OCL_NO_TYPE, &program, err);
    if (st)
        return st;
    cl_kernel kernel = d->cl->CreateKernel(program, "self_test", &code);
    if (!kernel)
        return ocl_check(code, err, "self-test");
    cl_mem mem;
    st = ocl_take_memory(d, sizeof host, "self-test", &mem, err);
    if (!st) {
        st = run_test(d, kernel, mem, host, err);
        d->cl->ReleaseMemObject(mem);
    }
    d->cl->ReleaseKernel(kernel);
    return st;
}
