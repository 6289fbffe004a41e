/* error.c -- what a CUDA error means for the host. Holds nothing. */
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

/* One that is not sticky is told once. */
static mng_vendor_error error_of(cudaError_t e) {
    cudaGetLastError();
    return (mng_vendor_error){"CUDA", cudaGetErrorString(e), (int32_t)e, class_of(e)};
}

mn_status cu_check(cudaError_t e, mn_error *err, const char *what) {
    if (e == cudaSuccess)
        return MN_OK;
    const mng_vendor_error code = error_of(e);
    return mng_fail_vendor(&code, err, what);
}

/* Other processes may hold memory of the card, too: what is free is what counts. */
mn_status cu_check_room(cudaError_t e, uint64_t bytes, mn_error *err, const char *what) {
    size_t left = 0;
    size_t all = 0;
    if (e != cudaErrorMemoryAllocation)
        return cu_check(e, err, what);
    const mng_vendor_error code = error_of(e);
    if (cudaMemGetInfo(&left, &all) != cudaSuccess) {
        cudaGetLastError();
        all = 0;
    }
    return mng_fail_room(&code, bytes, left, all, err, what);
}
