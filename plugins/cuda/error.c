/* error.c -- what a CUDA error means for the host. Holds nothing. */
#include "cu.h"
#include <stdarg.h>

/* The class of a CUDA error: what the host should do. What is not listed leaves the context broken
 * until the process ends ("sticky"), or must be taken for that: every later call fails, and the
 * frees still give back what is the host's. */
static mn_status class_of(cudaError_t e) {
    switch (e) {
    case cudaErrorMemoryAllocation:
        return MN_OUT_OF_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorCompatNotSupportedOnDevice:
        return MN_NO_DEVICE;
    case cudaErrorNotSupported:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
        return MN_UNSUPPORTED;
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidValue:
        return MN_INVALID;
    default:
        return MN_DEVICE_LOST;
    }
}

static mn_status fail_with_code(cudaError_t e, mn_error *err, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const mn_status class_ = class_of(e);
    const char *after = class_ == MN_DEVICE_LOST ? "; the GPU is lost to this process" : "";
    const mn_status st = mnp_fail(err, class_, ~0u, "%s: %s (CUDA error %d)%s", text,
                                  cudaGetErrorString(e), (int)e, after);
    if (err && err->size >= offsetof(mn_error, node))
        err->vendor_code = e;
    cudaGetLastError(); /* one that is not sticky is told once */
    return st;
}

mn_status cu_check(cudaError_t e, mn_error *err, const char *what) {
    if (e == cudaSuccess)
        return MN_OK;
    return fail_with_code(e, err, "%s", what);
}

/* Other processes may hold memory of the card, too: what is free is what counts. */
mn_status cu_check_room(cudaError_t e, uint64_t bytes, mn_error *err, const char *what) {
    size_t left = 0;
    size_t all = 0;
    if (e != cudaErrorMemoryAllocation)
        return cu_check(e, err, what);
    cudaGetLastError();
    if (cudaMemGetInfo(&left, &all) != cudaSuccess)
        return fail_with_code(e, err, "%s: %.1f MiB asked for", what, (double)bytes / 1048576);
    return fail_with_code(e, err, "%s: %.1f MiB asked for, %.1f of the GPU's %.1f MiB are free",
                          what, (double)bytes / 1048576, (double)left / 1048576,
                          (double)all / 1048576);
}
