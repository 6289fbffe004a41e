/* options.c -- what kernels are specialised by on a device: what its driver states, and what the
 * user wants otherwise. Filled once, when the device is opened. */
#include "opencl.h"

enum {
    CC_MAJOR_NV = 0x4000,    /* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV */
    SUB_GROUP_SIZES = 0x4108 /* CL_DEVICE_SUB_GROUP_SIZES_INTEL */
};

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

/* An option of the user's; 0, the default, leaves the choice to the plugin. */
static uint32_t chosen(const mn_device *d, const char *key, uint32_t by_kind) {
    const int64_t wanted = mng_option(d->base.host, key, 0);
    if (wanted > 0 && wanted <= 256)
        return (uint32_t)wanted;
    return by_kind;
}

/* Groups of a kernel that runs many operations: all of them at once, so one for each compute unit.
 * Where groups cannot wait for each other it is one alone, if the user wants it. */
static void choose_steps(mn_device *d) {
    const int64_t wanted = mng_option(d->base.host, "step_groups", 0);
    const uint64_t units = ocl_number(d, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint));
    const uint64_t most = d->mma ? units : 1;
    const uint32_t warps = d->ptx ? 16 : OCL_WARPS;
    if (!d->warps || ocl_group_size(d, 32 * warps) < 32 * warps)
        return;
    d->step_warps = warps;
    if (wanted > 0)
        d->step_groups = (uint32_t)((uint64_t)wanted < most ? (uint64_t)wanted : most);
    else if (!wanted && d->mma)
        d->step_groups = (uint32_t)units;
}

/* The option is for drivers that give less than they say. */
static uint64_t choose_max_buffer(const mn_device *d) {
    const int64_t wanted = mng_option(d->base.host, "buffer_kib", 0);
    const uint64_t most = d->base.max_alloc ? d->base.max_alloc / 64 * 64 : UINT64_MAX;
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
    const int64_t wanted = mng_option(d->base.host, "sub_groups", 0);
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
    const int64_t wanted = mng_option(d->base.host, "mad", 0);
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

void ocl_choose_options(mn_device *d) {
    char sub_groups[64];
    const cl_device_type type = ocl_number(d, CL_DEVICE_TYPE, sizeof(cl_device_type));
    d->is_cpu = type & CL_DEVICE_TYPE_CPU;
    if (d->is_cpu)
        d->base.patience_ns = 20000; /* a thread that polls occupies a core of the device itself */
    d->base.maps = ocl_shares_host(d->plugin, d->id);
    d->base.has_words = true;
    d->has_double = has_extension(d, "cl_khr_fp64");
    d->base.max_alloc = ocl_number(d, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(cl_ulong));
    d->base.max_buffer = choose_max_buffer(d);
    d->most_items = (uint32_t)ocl_number(d, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    d->lanes = ocl_group_size(d, chosen(d, "lanes", d->is_cpu ? 1 : 256));
    d->linear_lanes = ocl_group_size(d, chosen(d, "linear_lanes", d->is_cpu ? 1 : 32));
    d->ptx = has_extension(d, "cl_nv_compiler_options");
    d->mma = d->ptx && ocl_number(d, CC_MAJOR_NV, sizeof(cl_uint)) >= 8;
    d->sample_lanes = d->ptx ? ocl_group_size(d, 1024) : d->lanes;
    d->warps = d->linear_lanes == 32 && ocl_group_size(d, 32 * OCL_WARPS) == 32 * OCL_WARPS &&
               ocl_number(d, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(cl_ulong)) >= OCL_WARP_LOCAL;
    choose_steps(d);
    choose_sub_groups(d, sub_groups, sizeof sub_groups);
    snprintf(d->options, sizeof d->options, "%s -DLINEAR_LANES=%u%s%s%s%s", sub_groups,
             d->linear_lanes, d->is_cpu ? " -DIS_CPU" : "", d->ptx ? " -DPTX" : "",
             d->has_double ? " -DHAS_DOUBLE" : "", choose_mad(d));
}
