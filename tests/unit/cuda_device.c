/* cuda_device.c -- a device of the CUDA plugin without a GPU, as far as negotiation looks at one:
 * an H200's numbers. For test_cuda_lower.c, which is linked with the plugin's objects. */
#include "group.h"

mn_device *cuda_device_of(const mn_host *host);
mn_device *cuda_group_of(const mn_host *host, uint32_t n);
const mn_backend *cuda_backend(void);
const char *cuda_reason(uint32_t reason);

static mng_plugin plugin = {.backend = &cu_gpu};

static void fill_base(mng_device *d, const mn_host *host) {
    plugin.host = host;
    d->plugin = &plugin;
    d->backend = plugin.backend;
    d->host = host;
}

mn_device *cuda_device_of(const mn_host *host) {
    static mn_device device;
    fill_base(&device.base, host);
    device.card = (cu_card){.sms = 132, .smem_max = 232448, .cc = 90};
    device.gbps = 4800;
    return &device;
}

/* Several of them; valid until the next call. */
mn_device *cuda_group_of(const mn_host *host, uint32_t n) {
    static cu_group group;
    fill_base(&group.base.base, host);
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

const char *cuda_reason(uint32_t reason) {
    static char text[128];
    cu_backend.reason(&plugin, reason, text, sizeof text);
    return text;
}
