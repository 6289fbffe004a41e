/* runtime.c -- a CUDA runtime without a GPU, for the host's part of plugins/cuda: memory is the
 * host's, what is enqueued is done at once, events have passed, a captured graph is empty. But
 * stream memory operations happen in their order: a word that a stream waits for holds back its
 * later words and events, though no copy and no kernel. Each object is an allocation of its own, so
 * that sanitizers see what is used after its end, or never freed. One card, compute capability
 * 9.0. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
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
static CUresult stream_wait_value(CUstream, CUdeviceptr, cuuint32_t, unsigned);
static CUresult stream_write_value(CUstream, CUdeviceptr, cuuint32_t, unsigned);
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
    CUresult (*const wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = stream_wait_value;
    CUresult (*const write)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = stream_write_value;
    (void)version, (void)flags;
    *f = NULL;
    if (!strcmp(name, "cuStreamWaitValue32"))
        memcpy(f, &wait, sizeof *f);
    else if (!strcmp(name, "cuStreamWriteValue32"))
        memcpy(f, &write, sizeof *f);
    *found = *f ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
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
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags) {
    (void)flags;
    return p && n ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostUnregister(void *p) {
    return p ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostGetDevicePointer(void **at, void *p, unsigned flags) {
    (void)flags;
    *at = p;
    return cudaSuccess;
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

/* The memory operations of a stream that had any: a line, which outlives the stream, as events do
 * that are places in it. */
enum { LINES = 64, LINE_OPS = 64 };
typedef struct {
    uint32_t *at;
    uint32_t value;
    int waits;
} word_op;
typedef struct {
    word_op ops[LINE_OPS]; /* [done, enqueued) of a ring */
    uint64_t enqueued, done;
} line;
static line lines[LINES];
static int n_lines;
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
typedef struct {
    int ended;
    line *words; /* NULL: it had none yet */
} stream;
typedef struct {
    int ended;
    line *words;
    uint64_t place;
} event;

/* Whether all operations in front of a place are done; under the lock. */
static int line_passed(line *l, uint64_t place) {
    for (; l && l->done < place; l->done++) {
        const word_op *o = &l->ops[l->done % LINE_OPS];
        if (!o->waits)
            __atomic_store_n(o->at, o->value, __ATOMIC_RELEASE);
        else if ((int32_t)(__atomic_load_n(o->at, __ATOMIC_ACQUIRE) - o->value) < 0)
            return 0;
    }
    return 1;
}
static int is_passed(line *l, uint64_t place) {
    pthread_mutex_lock(&lines_lock);
    const int passed = line_passed(l, place);
    pthread_mutex_unlock(&lines_lock);
    return passed;
}
static CUresult line_push(CUstream handle, CUdeviceptr at, uint32_t value, int waits) {
    stream *s = (stream *)(void *)handle;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lines_lock);
    if (!s->words && n_lines < LINES)
        s->words = &lines[n_lines++];
    line *l = s->words;
    if (l)
        line_passed(l, l->enqueued);
    if (l && l->enqueued - l->done < LINE_OPS)
        l->ops[l->enqueued++ % LINE_OPS] = (word_op){(uint32_t *)(uintptr_t)at, value, waits};
    else
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result)
        line_passed(l, l->enqueued);
    pthread_mutex_unlock(&lines_lock);
    return result;
}
static CUresult stream_wait_value(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned how) {
    return how == CU_STREAM_WAIT_VALUE_GEQ ? line_push(s, at, value, 1) : CUDA_ERROR_INVALID_VALUE;
}
static CUresult stream_write_value(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned how) {
    return how ? CUDA_ERROR_INVALID_VALUE : line_push(s, at, value, 0);
}

static cudaError_t make_of(void *handle, size_t bytes) {
    void **p = handle;
    *p = calloc(1, bytes);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    (void)flags;
    return make_of(s, sizeof(stream));
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    return end(s);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    const cudaError_t st = use(s);
    const stream *own = (const stream *)(const void *)s;
    while (s && own->words && !is_passed(own->words, own->words->enqueued))
        sched_yield();
    return st;
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
    return make_of(e, sizeof(event));
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    return make_of(e, sizeof(event));
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    return end(e);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    const cudaError_t st = cudaStreamWaitEvent(s, e, 0);
    const stream *of = (const stream *)(const void *)s;
    event *own = (event *)(void *)e;
    if (st != cudaSuccess || !of)
        return st;
    own->words = of->words;
    own->place = of->words ? of->words->enqueued : 0;
    return st;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    const cudaError_t st = use(e);
    const event *own = (const event *)(const void *)e;
    if (st == cudaSuccess && own && !is_passed(own->words, own->place))
        return cudaErrorNotReady;
    return st;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    cudaError_t st;
    do {
        st = cudaEventQuery(e);
    } while (st == cudaErrorNotReady && !sched_yield());
    return st;
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
