/* error.cu -- what a CUDA error means for the host. Holds nothing. */
#include "cu.h"

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

mn_status cu_check(cudaError_t e, mn_error *err, const char *what) {
    if (e == cudaSuccess)
        return MN_OK;
    mn_status st = mnp_fail(err, class_of(e), ~0u, "%s: %s (CUDA error %d)", what,
                            cudaGetErrorString(e), (int)e);
    if (err && err->size >= offsetof(mn_error, node))
        err->vendor_code = e;
    cudaGetLastError(); /* one that is not sticky is told once */
    return st;
}
