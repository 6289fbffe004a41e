/* cuda_device.c -- a device of the CUDA plugin without a GPU, as far as negotiation looks at one:
 * an H200's numbers. For test_cuda_lower.c, which is linked with the plugin's objects. */
#include "group.h"

mn_device *cuda_device_of(const mn_host *host);
mn_device *cuda_group_of(const mn_host *host, uint32_t n);
const mn_backend *cuda_backend(void);

mn_device *cuda_device_of(const mn_host *host) {
    static cu_plugin plugin;
    static mn_device device;
    plugin.host = host;
    device.plugin = &plugin;
    device.card.sms = 132;
    device.card.smem_max = 232448;
    device.card.cc = 90;
    device.gbps = 4800;
    return &device;
}

/* Several of them; valid until the next call. */
mn_device *cuda_group_of(const mn_host *host, uint32_t n) {
    static cu_group group;
    group.base.plugin = cuda_device_of(host)->plugin;
    group.base.index = CU_GROUP;
    group.n = n;
    group.peers = true;
    group.small = 256 << 10;
    for (uint32_t r = 0; r < n; r++)
        group.of[r] = cuda_device_of(host);
    return &group.base;
}

const mn_backend *cuda_backend(void) {
    return &cu_backend;
}
