/* device.c -- opening a device, what its compiler is told of it, its memory, the self-test. A
 * device has a context of its own; buffers, queues and programs of it are children. The context is
 * made by the first of them: a driver takes hundreds of MiB for one, and an open device that nobody
 * uses costs nothing. */
#include "backend.h"
#include "types.h"

enum {
    CC_MAJOR_NV = 0x4000,     /* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV */
    FREE_MEMORY_AMD = 0x4039, /* CL_DEVICE_GLOBAL_FREE_MEMORY_AMD */
    SUB_GROUP_SIZES = 0x4108  /* CL_DEVICE_SUB_GROUP_SIZES_INTEL */
};

static uint64_t number(const mn_device *d, cl_device_info what, size_t bytes) {
    cl_ulong v = 0;
    if (d->cl->GetDeviceInfo(d->id, what, bytes, &v, NULL) == CL_SUCCESS)
        return v;
    return 0;
}

/* name: a whole one, for many begin alike. */
static bool has_extension(const mn_device *d, const char *name) {
    char all[8192] = "";
    const size_t n = strlen(name);
    if (d->cl->GetDeviceInfo(d->id, CL_DEVICE_EXTENSIONS, sizeof all - 1, all, NULL) != CL_SUCCESS)
        return false;
    for (const char *at = strstr(all, name); at; at = strstr(at + n, name))
        if ((at == all || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
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

/* The first digit of "OpenCL 3.0 ...". */
static int version_of(const mn_device *d) {
    char text[128] = "";
    d->cl->GetDeviceInfo(d->id, CL_DEVICE_VERSION, sizeof text - 1, text, NULL);
    return strlen(text) > 7 ? text[7] - '0' : 1;
}

/* The compiler's options of the language and of sub-groups: by Intel's extension in OpenCL C 1.2,
 * by Khronos's in 2.0 or 3.0, else none, and items meet in local memory. NVIDIA's compiler has
 * shuffles by PTX. The option `sub_groups`: -1 none, 8 to 64 emulated of that size, for tests. */
static void choose_sub_groups(mn_device *d, char *to, size_t room) {
    const int64_t wanted = ocl_option(d->plugin->host, "sub_groups", 0);
    const bool may = !wanted && !d->ptx;
    const int version = version_of(d);
    d->sub_groups = true;
    if (wanted >= 8 && wanted <= 64 && (wanted & (wanted - 1)) == 0)
        snprintf(to, room, "-cl-std=CL1.2 -DSUB_GROUPS=%d -DSUB_EMULATED=%d", OCL_SUB_EMULATED,
                 (int)wanted);
    else if (may && has_extension(d, "cl_intel_subgroups"))
        snprintf(to, room, "-cl-std=CL1.2 -DSUB_GROUPS=%d", OCL_SUB_INTEL);
    else if (may && version >= 2 && has_extension(d, "cl_khr_subgroup_shuffle"))
        snprintf(to, room, "-cl-std=CL%d.0 -DSUB_GROUPS=%d", version, OCL_SUB_KHR);
    else {
        snprintf(to, room, "-cl-std=CL1.2");
        d->sub_groups = false;
    }
}

/* The smallest sub-group of a device with products of matrices, for which the extension has its
 * functions; 0: it has none. */
static uint32_t mad_size(const mn_device *d) {
    size_t sizes[8] = {0};
    size_t least = SIZE_MAX;
    if (!has_extension(d, "cl_intel_subgroup_matrix_multiply_accumulate") ||
        !has_extension(d, "cl_intel_required_subgroup_size"))
        return 0;
    if (d->cl->GetDeviceInfo(d->id, SUB_GROUP_SIZES, sizeof sizes, sizes, NULL) != CL_SUCCESS)
        return 0;
    for (int i = 0; i < 8; i++)
        if (sizes[i] && sizes[i] < least)
            least = sizes[i];
    return least == 8 || least == 16 ? (uint32_t)least : 0;
}

/* Sub-groups that multiply matrices; returns the compiler's option. The option `mad`: -1 none, 8 or
 * 16 emulated with so many items, for tests. */
static const char *choose_mad(mn_device *d) {
    const int64_t wanted = ocl_option(d->plugin->host, "mad", 0);
    const bool emulated = wanted == 8 || wanted == 16;
    d->mad = emulated ? (uint32_t)wanted : 0;
    if (!wanted)
        d->mad = mad_size(d);
    if (d->mad == 8)
        return emulated ? " -DMAD=8 -DMAD_EMULATED" : " -DMAD=8";
    if (d->mad == 16)
        return emulated ? " -DMAD=16 -DMAD_EMULATED" : " -DMAD=16";
    return "";
}

/* What kernels are specialised by (kernels/common.cl). */
static void choose_options(mn_device *d) {
    char sub_groups[64];
    const cl_device_type type = number(d, CL_DEVICE_TYPE, sizeof(cl_device_type));
    d->is_cpu = type & CL_DEVICE_TYPE_CPU;
    d->shares_host = number(d, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof(cl_bool)) &&
                     ocl_option(d->plugin->host, "unified", 1) != 0;
    d->has_double = has_extension(d, "cl_khr_fp64");
    d->max_alloc = number(d, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(cl_ulong));
    d->max_buffer = max_buffer(d);
    atomic_init(&d->kv_page, 0);
    d->most_items = (uint32_t)number(d, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    d->lanes = group_size(d, chosen(d, "lanes", d->is_cpu ? 1 : 256));
    d->linear_lanes = group_size(d, chosen(d, "linear_lanes", d->is_cpu ? 1 : 32));
    d->ptx = has_extension(d, "cl_nv_compiler_options");
    d->mma = d->ptx && number(d, CC_MAJOR_NV, sizeof(cl_uint)) >= 8;
    d->sample_lanes = d->ptx ? group_size(d, 1024) : d->lanes;
    d->warps = d->linear_lanes == 32 && group_size(d, 32 * OCL_WARPS) == 32 * OCL_WARPS &&
               number(d, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(cl_ulong)) >= OCL_WARP_LOCAL;
    choose_steps(d);
    choose_sub_groups(d, sub_groups, sizeof sub_groups);
    snprintf(d->options, sizeof d->options, "%s -DLINEAR_LANES=%u%s%s%s%s", sub_groups,
             d->linear_lanes, d->is_cpu ? " -DIS_CPU" : "", d->ptx ? " -DPTX" : "",
             d->has_double ? " -DHAS_DOUBLE" : "", choose_mad(d));
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
    ocl_shape *shapes = mnp_new(p->host, OCL_N_TYPES * sizeof *shapes);
    if (!d || !shapes) {
        mnp_delete(p->host, d);
        mnp_delete(p->host, shapes);
        return mnp_fail_memory(err, sizeof *d, "a device");
    }
    d->shapes = shapes;
    d->plugin = p;
    d->cl = &p->icd;
    d->id = p->found[i].id;
    memcpy(d->name, info.name, sizeof d->name);
    memcpy(d->uid, info.uid, sizeof d->uid);
    memcpy(d->driver, info.driver, sizeof d->driver);
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->start_lock, NULL);
    pthread_mutex_init(&d->shape_lock, NULL);
    choose_options(d);
    ocl_shapes_read(d);
    /* enqueuing a kernel costs a CPU next to nothing */
    if (ocl_option(p->host, "command_buffers", d->is_cpu ? 0 : 1) != 0)
        ocl_commands_find(d, p->found[i].platform);
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
    pthread_mutex_destroy(&d->shape_lock);
    ocl_delete(d, d->shapes);
    ocl_delete(d, d);
}

/* Bytes that are free, by cl_amd_device_attribute_query (KiB in all, KiB of the largest block);
 * OpenCL itself does not say: then it is all but an eighth, which drivers and other programs may
 * hold. */
static uint64_t free_memory(const mn_device *d, uint64_t all) {
    size_t kib[2] = {0, 0};
    const uint64_t most = all - all / 8;
    if (d->cl->GetDeviceInfo(d->id, FREE_MEMORY_AMD, sizeof kib, kib, NULL) != CL_SUCCESS)
        return most;
    const uint64_t told = (uint64_t)kib[0] << 10;
    return told && told < all ? told : most;
}

/* The option `memory_mib` bounds what is free. */
mn_status ocl_device_memory(mn_device *d, uint64_t *free_bytes, uint64_t *total, mn_error *err) {
    (void)err;
    const uint64_t all = number(d, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
    const int64_t bound = ocl_option(d->plugin->host, "memory_mib", 0);
    *total = all;
    *free_bytes = free_memory(d, all);
    if (bound > 0 && (uint64_t)bound << 20 < *free_bytes)
        *free_bytes = (uint64_t)bound << 20;
    return MN_OK;
}

/* ---- self-test ------------------------------------------------------------------------------- */
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
    if (!d->sub_groups || group_size(d, TEST_N) < TEST_N)
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

/* One small program is compiled and run: what a driver gets wrong is found in the probing
 * process. */
mn_status ocl_self_test(mn_device *d, mn_error *err) {
    cl_program program;
    cl_mem mem;
    mn_status st = ocl_build(d, OCL_SOURCE_self_test, OCL_NO_TYPE, &program, err);
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
