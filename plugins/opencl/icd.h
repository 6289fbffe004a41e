/* icd.h -- the functions of libOpenCL.so.1 that this plugin calls, found by dlopen: nothing of
 * OpenCL is linked, so that the plugin loads on a machine without it. Version 1.2 throughout. */
#ifndef OCL_ICD_H
#define OCL_ICD_H
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include "common.h"

/* clang-format off */
#define OCL_CALLS(X)                                                                               \
    X(GetPlatformIDs) X(GetPlatformInfo) X(GetDeviceIDs) X(GetDeviceInfo)                          \
    X(GetExtensionFunctionAddressForPlatform)                                                      \
    X(CreateContext) X(ReleaseContext)                                                             \
    X(CreateCommandQueue) X(ReleaseCommandQueue) X(Flush) X(Finish)                                \
    X(CreateBuffer) X(ReleaseMemObject)                                                            \
    X(CreateProgramWithSource) X(CreateProgramWithBinary) X(BuildProgram) X(GetProgramInfo)        \
    X(GetProgramBuildInfo) X(ReleaseProgram)                                                       \
    X(CreateKernel) X(SetKernelArg) X(ReleaseKernel)                                               \
    X(EnqueueNDRangeKernel) X(EnqueueReadBuffer) X(EnqueueWriteBuffer) X(EnqueueCopyBuffer)        \
    X(EnqueueFillBuffer) X(EnqueueMapBuffer) X(EnqueueUnmapMemObject)                              \
    X(EnqueueMarkerWithWaitList) X(EnqueueBarrierWithWaitList)                                     \
    X(CreateUserEvent) X(SetUserEventStatus)                                                       \
    X(WaitForEvents) X(GetEventInfo) X(RetainEvent) X(ReleaseEvent) X(SetEventCallback)
/* clang-format on */

#define OCL_MEMBER(name) __typeof__(cl##name) *name;
typedef struct {
    void *library;
    OCL_CALLS(OCL_MEMBER)
} ocl_icd;

/* Opens the loader once per plugin; MN_NO_DEVICE with the reason where there is none. */
mn_status ocl_icd_open(ocl_icd *icd, mn_error *err);
void ocl_icd_close(ocl_icd *icd);

#endif
