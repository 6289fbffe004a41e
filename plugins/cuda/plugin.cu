/* plugin.cu -- the entry and the table. */
#include "backend.h"

static const void *query(void *self, const char *id) {
    (void)self;
    if (!strcmp(id, MN_PROFILE_ID))
        return &cu_profile;
    if (strcmp(id, MN_BACKEND_ID))
        return NULL;
    return &cu_backend;
}
static void shutdown(void *self) {
    cu_plugin *p = (cu_plugin *)self;
    p->host->release(p->host->self, p);
}
MN_PLUGIN_NOTE("cuda", MN_KIND_BACKEND, "");

extern "C" MN_EXPORT const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    if (mnp_check_host(host, "cuda", err))
        return NULL;
    if (!MN_HAS(mn_host, host, now_ns)) {
        mnp_fail(err, MN_INVALID, ~0u, "cuda: the host lacks now_ns");
        return NULL;
    }
    cu_plugin *p = (cu_plugin *)mnp_new(host, sizeof *p);
    if (!p) {
        mnp_fail_memory(err, sizeof *p, "the plugin");
        return NULL;
    }
    p->host = host;
    /* Never closed: the driver's threads may outlive shutdown. */
    p->api = mn_plugin{sizeof p->api,
                       MN_ABI_VERSION,
                       p,
                       mnp_str("cuda"),
                       mnp_str("Minerva"),
                       mnp_str(MN_PLUGIN_VERSION),
                       mnp_str(MN_PLUGIN_VERSION " " __DATE__ " " __TIME__),
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
