/* start.c -- the context of a device, and the numbers that its driver states. A device has a
 * context of its own; buffers, queues and programs of it are children. The context is made by the
 * first of them: a driver takes hundreds of MiB for one, and an open device without work costs
 * nothing. */
#include "opencl.h"

uint64_t ocl_number(const mn_device *d, cl_device_info what, size_t bytes) {
    cl_ulong v = 0;
    if (d->cl->GetDeviceInfo(d->id, what, bytes, &v, NULL) == CL_SUCCESS)
        return v;
    return 0;
}

uint32_t ocl_group_size(const mn_device *d, uint32_t most) {
    const uint64_t room = ocl_number(d, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    uint32_t n = 1;
    while (2 * n <= most && 2 * n <= room)
        n *= 2;
    return n;
}

/* Under the lock. */
static mn_status device_start(mn_device *d, mn_error *err) {
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
    const mn_status st = device_start(d, err);
    pthread_mutex_unlock(&d->start_lock);
    return st;
}
