/* plugin.c -- the entry and the table. No driver is touched before somebody asks for devices. */
#include "backend.h"

static const void *query(void *self, const char *id) {
    (void)self;
    if (!strcmp(id, MN_PROFILE_ID))
        return &ocl_profile;
    if (strcmp(id, MN_BACKEND_ID))
        return NULL;
    return &ocl_backend;
}

static void shutdown(void *self) {
    ocl_plugin *p = self;
    ocl_icd_close(&p->icd);
    pthread_mutex_destroy(&p->lock);
    mnp_delete(p->host, p);
}

MN_PLUGIN_NOTE("opencl", MN_KIND_BACKEND, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    if (mnp_check_host(host, "opencl", err))
        return NULL;
    if (!MN_HAS(mn_host, host, now_ns)) {
        mnp_fail(err, MN_INVALID, ~0u, "opencl: the host lacks now_ns");
        return NULL;
    }
    ocl_plugin *p = mnp_new(host, sizeof *p);
    if (!p) {
        mnp_fail_memory(err, sizeof *p, "the plugin");
        return NULL;
    }
    p->host = host;
    pthread_mutex_init(&p->lock, NULL);
    /* Never closed (no MN_PLUGIN_UNLOADABLE): drivers' threads outlive shutdown. */
    p->api = (mn_plugin){
        .size = sizeof p->api,
        .abi = MN_ABI_VERSION,
        .self = p,
        .id = mnp_str("opencl"),
        .vendor = mnp_str("Minerva"),
        .version = mnp_str(MN_PLUGIN_VERSION),
        .query = query,
        .shutdown = shutdown,
    };
    return &p->api;
}

const mn_backend ocl_backend = {
    .size = sizeof(mn_backend),
    .device_count = ocl_device_count,
    .device_info = ocl_device_info,
    .device_open = ocl_device_open,
    .device_close = ocl_device_close,
    .device_memory = ocl_device_memory,
    .self_test = ocl_self_test,
    .contracts = ocl_contracts,
    .supports = ocl_supports,
    .reason = ocl_reason,
    .estimate = ocl_estimate,
    .alloc = ocl_alloc,
    .wrap = ocl_wrap,
    .buffer_free = ocl_buffer_free,
    .map = ocl_map,
    .queue_create = ocl_queue_create,
    .queue_free = ocl_queue_free,
    .write = ocl_write,
    .read = ocl_read,
    .copy = ocl_copy,
    .wait = ocl_wait,
    .queue_wait = ocl_queue_wait,
    .event_free = ocl_event_free,
    .abort = ocl_abort,
    .weights_open = ocl_weights_open,
    .weights_put = ocl_weights_put,
    .weights_seal = ocl_weights_seal,
    .weights_free = ocl_weights_free,
    .kv_layout = ocl_kv_layout,
    .kv_copy = ocl_kv_copy,
    .compile = ocl_compile,
    .program_free = ocl_program_free,
    .program_save = ocl_program_save,
    .context_create = ocl_context_create,
    .context_bind = ocl_context_bind,
    .context_prepare = ocl_context_prepare,
    .execute = ocl_execute,
    .context_free = ocl_context_free,
};
