/* plugin.cu -- the entry and the table. */
#include "backend.h"

static const void *query(void *self, const char *id) {
    return (void)self, strcmp(id, MN_BACKEND_ID) ? NULL : &cu_backend;
}
static void shutdown(void *self) {
    cu_plugin *p = (cu_plugin *)self;
    p->host->release(p->host->self, p);
}
static mn_str str(const char *z) {
    return mn_str{z, strlen(z)};
}

MN_PLUGIN_NOTE("cuda", MN_KIND_BACKEND, "");

extern "C" MN_EXPORT const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    if (host->size < 16 || host->abi < MN_ABI_OLDEST || host->abi_min > MN_ABI_VERSION) {
        cu_fail(err, MN_UNSUPPORTED, ~0u, "the host's ABI is %u.%u; cuda needs %u.%u",
                host->abi >> 16, host->abi & 0xffff, MN_ABI_OLDEST >> 16, MN_ABI_OLDEST & 0xffff);
        return NULL;
    }
    if (!MN_HAS(mn_host, host, alloc) || !MN_HAS(mn_host, host, release) ||
        !MN_HAS(mn_host, host, now_ns)) {
        cu_fail(err, MN_INVALID, ~0u, "cuda: the host lacks alloc, release or now_ns");
        return NULL;
    }
    cu_plugin *p = (cu_plugin *)host->alloc(host->self, sizeof *p, 64);
    if (!p) {
        cu_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: %u bytes for the plugin",
                (unsigned)sizeof *p);
        return NULL;
    }
    memset(p, 0, sizeof *p);
    p->host = host;
    /* Never closed: the driver's threads may outlive shutdown. */
    p->api = mn_plugin{sizeof p->api,
                       MN_ABI_VERSION,
                       p,
                       str("cuda"),
                       str("Minerva"),
                       str(MN_PLUGIN_VERSION),
                       str(MN_PLUGIN_VERSION " " __DATE__ " " __TIME__),
                       0,
                       query,
                       shutdown};
    return &p->api;
}

const mn_backend cu_backend = {
    sizeof(mn_backend),
    0,
    cu_device_count,
    cu_device_info,
    cu_device_open,
    cu_device_close,
    cu_device_memory,
    cu_self_test,
    cu_contracts,
    cu_supports,
    cu_reason,
    cu_estimate,
    cu_alloc,
    cu_wrap,
    cu_buffer_free,
    cu_map,
    cu_queue_create,
    cu_queue_free,
    cu_write,
    cu_read,
    cu_copy,
    cu_wait_event,
    cu_queue_wait,
    cu_event_free,
    cu_abort,
    cu_weights_open,
    cu_weights_put,
    cu_weights_seal,
    cu_weights_free,
    cu_kv_layout,
    cu_kv_copy,
    cu_compile,
    cu_program_free,
    cu_program_save,
    cu_context_create,
    cu_context_bind,
    cu_context_prepare,
    cu_execute,
    cu_context_free,
};
