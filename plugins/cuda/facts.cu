/* facts.cu -- what the driver says about its devices, opening one, and the self-test. Device numbers
 * are the driver's, in the order of CUDA_VISIBLE_DEVICES. */
#include "backend.h"
#include "gemm.h"
#include "types.h"

/* Without a driver or a GPU that it can use: MN_NO_DEVICE with the reason, and n = 0. */
mn_status cu_device_count(void *self, uint32_t *n, mn_error *err) {
    int count = 0;
    (void)self;
    cudaError_t e = cudaGetDeviceCount(&count);
    *n = 0;
    if (e == cudaErrorInsufficientDriver || e == cudaErrorNoDevice) {
        cudaGetLastError();
        int version = 0;
        cudaDriverGetVersion(&version);
        if (!version)
            return mnp_fail(err, MN_NO_DEVICE, ~0u, "no NVIDIA driver is installed (libcuda.so.1)");
        return mnp_fail(err, MN_NO_DEVICE, ~0u,
                        "the driver (CUDA %d.%d) shows no GPU that this plugin can use",
                        version / 1000, version % 1000 / 10);
    }
    CU_TRY(e, err, "counting devices");
    *n = (uint32_t)count;
    return MN_OK;
}

/* 0 where the driver does not say. */
static int attribute(cudaDeviceAttr a, int i) {
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

mn_status cu_device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    cudaDeviceProp p;
    (void)self;
    CU_TRY(cudaGetDeviceProperties(&p, (int)i), err, "device properties");
    mn_device_info info = {};
    info.size = sizeof info;
    info.kind = MN_DEVICE_GPU;
    info.align = 256;
    snprintf(info.name, sizeof info.name, "%.63s", p.name);
    snprintf(info.uid, sizeof info.uid, "pci-%04x:%02x:%02x", p.pciDomainID, p.pciBusID,
             p.pciDeviceID);
    memcpy(info.mem_pool, info.uid, sizeof info.mem_pool);
    int version = 0;
    cudaDriverGetVersion(&version);
    snprintf(info.driver, sizeof info.driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    /* what is free takes a context: cu_device_memory */
    info.mem_total = p.totalGlobalMem;
    info.max_alloc = p.totalGlobalMem;
    info.flags = MN_DEVICE_ASYNC | MN_DEVICE_PARALLEL_PUT;
    info.mem_gbps = bandwidth((int)i);
    info.fp16_tflops = 4096e-9 * p.multiProcessorCount * attribute(cudaDevAttrClockRate, (int)i) *
                       1e3 / 1e3 * (p.major >= 9 ? 1 : 0.5);
    info.launch_us = 2;
    info.h2d_gbps = 50;
    mnp_fill(out, &info, sizeof info);
    return MN_OK;
}

/* Makes the primary context current and raises the kernels' limits of shared memory. */
mn_status cu_device_open(void *self, uint32_t i, mn_device **out, mn_error *err) {
    cu_plugin *p = (cu_plugin *)self;
    CU_TRY(cudaSetDevice((int)i), err, "choosing the device");
    CU_TRY(cudaFree(0), err, "starting the device");
    mn_device *d = (mn_device *)mnp_new(p->host, sizeof *d);
    if (!d)
        return mnp_fail_memory(err, sizeof *d, "a device");
    d->plugin = p;
    d->index = (int)i;
    d->sms = attribute(cudaDevAttrMultiProcessorCount, (int)i);
    d->smem_max = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)i);
    d->cc = attribute(cudaDevAttrComputeCapabilityMajor, (int)i) * 10 +
            attribute(cudaDevAttrComputeCapabilityMinor, (int)i);
    d->gbps = bandwidth((int)i);
    pthread_mutex_init(&d->lock, NULL);
    cu_types_init(d);
    cu_gemm_init(d);
    mn_status st = cu_check(cudaGetLastError(), err, "loading kernels");
    if (st)
        cu_device_close(d);
    else
        *out = d;
    return st;
}

void cu_device_close(mn_device *d) {
    if (!d)
        return;
    cudaSetDevice(d->index);
    for (mn_event *e = d->spare, *next; e; e = next) {
        next = e->next;
        cudaEventDestroy(e->ev);
        cu_delete(d, e);
    }
    pthread_mutex_destroy(&d->lock);
    cu_delete(d, d);
}

mn_status cu_device_memory(mn_device *d, uint64_t *free_bytes, uint64_t *total, mn_error *err) {
    size_t left = 0;
    size_t all = 0;
    CU_TRY(cudaSetDevice(d->index), err, "choosing the device");
    CU_TRY(cudaMemGetInfo(&left, &all), err, "free memory");
    *free_bytes = left;
    *total = all;
    return MN_OK;
}

/* A sum, and a copy back. */
mn_status cu_self_test(mn_device *d, mn_error *err) {
    float host[256];
    float *dev = NULL;
    for (int i = 0; i < 256; i++)
        host[i] = 2;
    CU_TRY(cudaSetDevice(d->index), err, "choosing the device");
    CU_TRY(cudaMalloc(&dev, sizeof host), err, "self-test");
    cudaMemcpy(dev, host, sizeof host, cudaMemcpyHostToDevice);
    cu_elementwise sum = {};
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
