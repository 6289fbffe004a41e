/* runtime.c -- a CUDA runtime without a GPU, for the host's part of plugins/cuda: memory is the
 * host's, what is enqueued is done at once, events have passed, a captured graph is empty. Each
 * object is an allocation of its own, so that sanitizers see what is used after its end, or never
 * freed. One card, compute capability 9.0. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { SMS = 132, SHARED_BYTES = 232448 };
#define MEMORY_BYTES ((size_t)8 << 30)

/* ---- the card -------------------------------------------------------------------------------- */
cudaError_t cudaGetDeviceCount(int *n) {
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int i) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "stub of a GPU");
    p->pciDeviceID = i + 1;
    p->totalGlobalMem = MEMORY_BYTES;
    p->multiProcessorCount = SMS;
    p->major = 9;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int i) {
    (void)i;
    *value = 1000000;
    if (a == cudaDevAttrMultiProcessorCount)
        *value = SMS;
    else if (a == cudaDevAttrMaxSharedMemoryPerBlockOptin)
        *value = SHARED_BYTES;
    else if (a == cudaDevAttrComputeCapabilityMajor)
        *value = 9;
    else if (a == cudaDevAttrComputeCapabilityMinor)
        *value = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int i) {
    return i == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) {
    (void)a, (void)b;
    *can = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int i, unsigned flags) {
    (void)i, (void)flags;
    return cudaErrorInvalidDevice;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
    (void)name, (void)version, (void)flags;
    *f = NULL;
    *found = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

/* ---- errors ---------------------------------------------------------------------------------- */
cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}
cudaError_t cudaPeekAtLastError(void) {
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaSuccess ? "no error" : "an error of the stub";
}

/* ---- memory ---------------------------------------------------------------------------------- */
cudaError_t cudaMalloc(void **p, size_t n) {
    *p = n < MEMORY_BYTES ? aligned_alloc(256, (n + 255) / 256 * 256) : NULL;
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *p) {
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t n) {
    return cudaMalloc(p, n);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) {
    (void)flags;
    return cudaMalloc(p, n);
}
cudaError_t cudaFreeHost(void *p) {
    return cudaFree(p);
}
cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
    *left = MEMORY_BYTES;
    *all = MEMORY_BYTES;
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    (void)kind;
    memmove(to, from, n);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
    (void)s;
    return cudaMemcpy(to, from, n, kind);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t rows, enum cudaMemcpyKind kind, cudaStream_t s) {
    (void)kind, (void)s;
    for (size_t i = 0; i < rows; i++)
        memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return cudaSuccess;
}
cudaError_t cudaMemset(void *p, int value, size_t n) {
    memset(p, value, n);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s) {
    (void)s;
    return cudaMemset(p, value, n);
}

/* ---- streams, events, graphs: their handles are allocations --------------------------------- */
static cudaError_t make(void *handle) {
    int **p = handle;
    *p = calloc(1, sizeof **p);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
/* Reads the handle, so that a sanitizer sees one that has ended. */
static cudaError_t use(const void *handle) {
    const int *p = handle;
    return p && *p ? cudaErrorInvalidResourceHandle : cudaSuccess;
}
static cudaError_t end(void *handle) {
    free(handle);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    (void)flags;
    return make(s);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    return end(s);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    return use(s);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    (void)flags;
    const cudaError_t st = use(s);
    return st == cudaSuccess ? use(e) : st;
}
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t fn, void *arg,
                                  unsigned flags) {
    (void)flags;
    fn(s, use(s), arg);
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    (void)flags;
    return make(e);
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    return make(e);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    return end(e);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    return cudaStreamWaitEvent(s, e, 0);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    return use(e);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    return use(e);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = 0.001f;
    const cudaError_t st = use(from);
    return st == cudaSuccess ? use(to) : st;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    (void)mode;
    return use(s);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *how) {
    *how = cudaStreamCaptureStatusNone;
    return use(s);
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    const cudaError_t st = use(s);
    return st == cudaSuccess ? make(graph) : st;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags) {
    (void)flags;
    const cudaError_t st = use(graph);
    return st == cudaSuccess ? make(exec) : st;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return end(graph);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return end(exec);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s) {
    const cudaError_t st = use(exec);
    return st == cudaSuccess ? use(s) : st;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    return cudaGraphUpload(exec, s);
}
