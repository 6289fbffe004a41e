/* device.c -- opening a device, closing it, its memory. What its compiler is told of it: options.c;
 * its context: start.c. */
#include "types.h"

enum { FREE_MEMORY_AMD = 0x4039 /* CL_DEVICE_GLOBAL_FREE_MEMORY_AMD */ };

mn_status ocl_device_open(mng_plugin *base, uint32_t i, mn_device *d, mn_error *err) {
    ocl_plugin *p = (ocl_plugin *)base;
    d->plugin = p;
    d->cl = &p->icd;
    d->id = p->found[i].id;
    pthread_mutex_init(&d->start_lock, NULL);
    pthread_mutex_init(&d->shape_lock, NULL);
    d->shapes = mng_new(d, OCL_N_TYPES * sizeof *d->shapes);
    if (!d->shapes)
        return mnp_fail_memory(err, OCL_N_TYPES * sizeof *d->shapes, "a device");
    ocl_choose_options(d);
    ocl_shapes_read(d);
    /* enqueuing a kernel costs a CPU next to nothing */
    if (mng_option(base->host, "command_buffers", d->is_cpu ? 0 : 1) != 0)
        ocl_commands_find(d, p->found[i].platform);
    /* a CPU's driver compiles for each size of group at the first launch and keeps that itself;
     * binaries would have it compile every kernel once more */
    d->keeps_binaries = mng_option(base->host, "cache", d->is_cpu ? 0 : 1) != 0;
    return MN_OK;
}

void ocl_device_close(mn_device *d) {
    ocl_drop_built(d);
    if (d->own)
        d->cl->ReleaseCommandQueue(d->own);
    if (d->context)
        d->cl->ReleaseContext(d->context);
    pthread_mutex_destroy(&d->start_lock);
    pthread_mutex_destroy(&d->shape_lock);
    mng_delete(d, d->shapes);
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
    const uint64_t all = ocl_number(d, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
    const int64_t bound = mng_option(d->base.host, "memory_mib", 0);
    *total = all;
    *free_bytes = free_memory(d, all);
    if (bound > 0 && (uint64_t)bound << 20 < *free_bytes)
        *free_bytes = (uint64_t)bound << 20;
    return MN_OK;
}
