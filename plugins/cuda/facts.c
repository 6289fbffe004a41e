/* facts.c -- what the driver says about its devices, opening one, and the self-test. Device
 * numbers are the driver's, in the order of CUDA_VISIBLE_DEVICES. By the option `repeat` all cards
 * are listed so many times, so that tests of groups run on one card. */
#include "attend_distance.h"
#include "cu.h"
#include "gemm.h"
#include <dlfcn.h>

enum { SPARE_BYTES = 32 << 20 };

/* Versions as CUDA counts them: 1000 * major + 10 * minor. */
static int major_of(int version) {
    return version / 1000;
}
static int minor_of(int version) {
    return version % 1000 / 10;
}

/* Why there is no device: no driver, one of an older CUDA, no GPU that it shows, or a GPU that does
 * not start. */
static mn_status no_device(cudaError_t e, mn_error *err) {
    int version = 0;
    cudaGetLastError();
    cudaDriverGetVersion(&version);
    if (!version)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "no NVIDIA driver is installed (libcuda.so.1)");
    const int major = major_of(version);
    const int minor = minor_of(version);
    if (e == cudaErrorInsufficientDriver) {
        return mnp_fail(err, MN_NO_DEVICE, ~0u,
                        "the NVIDIA driver is too old: it runs CUDA %d.%d, and this plugin, built "
                        "with CUDA %d.%d, needs a driver for CUDA %d.0 or newer",
                        major, minor, major_of(CUDART_VERSION), minor_of(CUDART_VERSION),
                        major_of(CUDART_VERSION));
    }
    if (e == cudaErrorNoDevice)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "the NVIDIA driver (CUDA %d.%d) shows no GPU",
                        major, minor);
    return mnp_fail(err, MN_NO_DEVICE, ~0u,
                    "the NVIDIA driver (CUDA %d.%d) does not start: %s (CUDA error %d)", major,
                    minor, cudaGetErrorString(e), (int)e);
}

/* How often every card is listed: 1 to 9. */
static uint32_t repeats(const mng_plugin *p) {
    const int64_t n = mng_option(p->host, "repeat", 1);
    if (n > 1 && n <= 9)
        return (uint32_t)n;
    return 1;
}

/* Without a driver or a GPU that it can use: MN_NO_DEVICE with the reason. */
mn_status cu_device_count(mng_plugin *p, uint32_t *n, mn_error *err) {
    int count = 0;
    const cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess)
        return no_device(e, err);
    *n = (uint32_t)count * repeats(p);
    return MN_OK;
}

/* The card of a device, and which listing of it that is. */
static mn_status card_of(mng_plugin *p, uint32_t device, int *card, uint32_t *listing,
                         mn_error *err) {
    uint32_t n = 0;
    const mn_status st = cu_device_count(p, &n, err);
    const uint32_t cards = n / repeats(p);
    if (st)
        return st;
    *card = (int)(device % cards);
    *listing = device / cards;
    return MN_OK;
}

/* 0 where the driver does not say. */
static int attribute(enum cudaDeviceAttr a, int i) {
    int v = 0;
    if (cudaDeviceGetAttribute(&v, a, i) == cudaSuccess)
        return v;
    cudaGetLastError(); /* clears it */
    return 0;
}

/* GB/s: double data rate times bus width */
static double bandwidth(int i) {
    return 2.0 * attribute(cudaDevAttrMemoryClockRate, i) * 1e3 *
           attribute(cudaDevAttrGlobalMemoryBusWidth, i) / 8 / 1e9;
}

mn_status cu_device_info(mng_plugin *plugin, uint32_t device, mn_device_info *info, mn_error *err) {
    struct cudaDeviceProp p;
    uint32_t listing = 0;
    int i = 0;
    const mn_status st = card_of(plugin, device, &i, &listing, err);
    if (st)
        return st;
    CU_TRY(cudaGetDeviceProperties(&p, i), err, "device properties");
    info->kind = MN_DEVICE_GPU;
    snprintf(info->name, sizeof info->name, "%.63s", p.name);
    snprintf(info->uid, sizeof info->uid, "pci-%04x:%02x:%02x", p.pciDomainID, p.pciBusID,
             p.pciDeviceID);
    memcpy(info->mem_pool, info->uid, sizeof info->mem_pool);
    const size_t end = strlen(info->uid);
    if (listing)
        snprintf(info->uid + end, sizeof info->uid - end, "#%u", listing);
    int version = 0;
    cudaDriverGetVersion(&version);
    snprintf(info->driver, sizeof info->driver, "CUDA %d.%d", major_of(version), minor_of(version));
    /* what is free takes a context: cu_device_memory */
    info->mem_total = p.totalGlobalMem;
    info->max_alloc = p.totalGlobalMem;
    info->flags = MN_DEVICE_ASYNC | MN_DEVICE_PARALLEL_PUT;
    if (attribute(cudaDevAttrHostRegisterSupported, i))
        info->flags |= MN_DEVICE_WRAPS;
    info->mem_gbps = bandwidth(i);
    info->fp16_tflops = 4096e-9 * p.multiProcessorCount * attribute(cudaDevAttrClockRate, i) * 1e3 /
                        1e3 * (p.major >= 9 ? 1 : 0.5);
    info->launch_us = 2;
    info->h2d_gbps = 50;
    return MN_OK;
}

/* A function of a library, into a pointer to one; whether it is there. */
static bool find_function(void *lib, const char *name, void *to) {
    void *found = dlsym(lib, name);
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

/* Free bytes of a card on which this process has no context: NVML knows, if it is installed. */
static bool cu_free_memory(const struct cudaDeviceProp *p, uint64_t *left) {
    typedef struct {
        unsigned long long total, left, used;
    } nvml_memory;
    typedef int (*init_fn)(void);
    typedef int (*find_fn)(const char *, void **);
    typedef int (*memory_fn)(void *, nvml_memory *);
    char bus[32];
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!lib)
        return false;
    init_fn init;
    init_fn end;
    find_fn find;
    memory_fn memory;
    bool known = false;
    const bool there = find_function(lib, "nvmlInit_v2", &init) &&
                       find_function(lib, "nvmlShutdown", &end) &&
                       find_function(lib, "nvmlDeviceGetHandleByPciBusId_v2", &find) &&
                       find_function(lib, "nvmlDeviceGetMemoryInfo", &memory);
    snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", p->pciDomainID, p->pciBusID, p->pciDeviceID);
    if (there && !init()) {
        void *device = NULL;
        nvml_memory m = {0};
        known = !find(bus, &device) && !memory(device, &m);
        *left = m.left;
        end();
    }
    dlclose(lib);
    return known;
}

/* Why a device does not open. */
static mn_status not_opened(int i, cudaError_t e, mn_error *err) {
    struct cudaDeviceProp p = {0};
    cudaGetLastError();
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess)
        return cu_check(e, err, "starting the GPU");
    if (e == cudaErrorMemoryAllocation) {
        uint64_t left = 0;
        const bool known = cu_free_memory(&p, &left);
        return mnp_fail(
            err, MN_OUT_OF_MEMORY, ~0u,
            "%s has too little free memory to start: %s%.0f of %.0f MiB; other processes "
            "hold the rest, and a context takes about 500 MiB",
            p.name, known ? "" : "less than ", known ? (double)left / 1048576 : 500.0,
            (double)p.totalGlobalMem / 1048576);
    }
    if (e == cudaErrorNoKernelImageForDevice) {
        return mnp_fail(
            err, MN_NO_DEVICE, ~0u,
            "%s has compute capability %d.%d; this plugin has code for %s (ptx: for 8.0 "
            "and later)",
            p.name, p.major, p.minor, CU_BUILT_FOR);
    }
    return cu_check(e, err, "starting the GPU");
}

/* Makes the primary context current and raises the kernels' limits of shared memory. */
mn_status cu_device_open(mng_plugin *p, uint32_t device, mn_device *d, mn_error *err) {
    uint32_t listing = 0;
    int i = 0;
    const mn_status st = card_of(p, device, &i, &listing, err);
    if (st)
        return st;
    d->index = i;
    cudaError_t e = cudaSetDevice(i);
    if (e == cudaSuccess)
        e = cudaFree(0);
    if (e != cudaSuccess)
        return not_opened(i, e, err);
    d->card.sms = attribute(cudaDevAttrMultiProcessorCount, i);
    d->card.smem_max = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, i);
    d->card.cc = attribute(cudaDevAttrComputeCapabilityMajor, i) * 10 +
                 attribute(cudaDevAttrComputeCapabilityMinor, i);
    d->gbps = bandwidth(i);
    d->base.has_words = cu_words_init();
    cu_types_init(&d->card);
    cu_gemm_init(&d->card);
    cu_prompt_sm90_init(&d->card);
    cu_attend_long_init(&d->card);
    cu_attend_distance_init(&d->card);
    cu_latent_init(&d->card);
    cu_attend_tiles_init();
    e = cudaGetLastError();
    if (e == cudaSuccess)
        return MN_OK;
    return not_opened(i, e, err);
}

/* The primary context stays: other devices of the process may use it. */
void cu_device_close(mn_device *d) {
    cu_tellers_free(d);
    cu_gates_free(d);
}

mn_status cu_enter(const mn_device *d, mn_error *err) {
    return cu_check(cudaSetDevice(d->index), err, "choosing the device");
}

/* Some stays for what the driver takes when kernels first run, which no estimate knows: a split of
 * a model had 4 MiB too few. */
mn_status cu_device_memory(mn_device *d, uint64_t *free_bytes, uint64_t *total, mn_error *err) {
    size_t left = 0;
    size_t all = 0;
    (void)d;
    CU_TRY(cudaMemGetInfo(&left, &all), err, "free memory");
    *free_bytes = 1;
    if (left > SPARE_BYTES)
        *free_bytes = left - SPARE_BYTES;
    *total = all;
    return MN_OK;
}

/* A sum, and a copy back. */
mn_status cu_self_test(mn_device *d, mn_error *err) {
    float host[256];
    float *dev = NULL;
    for (int i = 0; i < 256; i++)
        host[i] = 2;
    (void)d;
    CU_TRY(cudaMalloc((void **)&dev, sizeof host), err, "self-test");
    cudaMemcpy(dev, host, sizeof host, cudaMemcpyHostToDevice);
    cu_elementwise sum = {0};
    sum.what = CU_EW_ADD;
    sum.a = dev;
    sum.b = dev;
    sum.y = dev;
    sum.n = 256;
    cu_elementwise_run(0, &sum);
    cudaError_t e = cudaMemcpy(host, dev, sizeof host, cudaMemcpyDeviceToHost);
    cudaFree(dev);
    CU_TRY(e, err, "self-test");
    for (int i = 0; i < 256; i++) {
        if (host[i] != 4)
            return mnp_fail(err, MN_NO_DEVICE, ~0u, "self-test: 2 + 2 gave %g", (double)host[i]);
    }
    return MN_OK;
}
