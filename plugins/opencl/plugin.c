/* plugin.c -- the entry, and what this backend gives to plugins/gpu_host. No driver is touched
 * before somebody asks for devices. */
#include "ops.h"

_Static_assert(OCL_KV_PARTS == MNG_MAX_PARTS, "buffers of a cache");
_Static_assert(OCL_ABSENT == MNG_ABSENT, "operands that are not there");

static mn_status plugin_init(mng_plugin *base, mn_error *err) {
    ocl_plugin *p = (ocl_plugin *)base;
    (void)err;
    pthread_mutex_init(&p->lock, NULL);
    return MN_OK;
}

static void plugin_fini(mng_plugin *base) {
    ocl_plugin *p = (ocl_plugin *)base;
    ocl_icd_close(&p->icd);
    pthread_mutex_destroy(&p->lock);
}

static const mng_backend backend = {
    .id = "opencl",
    .vendor = "Minerva",
    .version = MN_PLUGIN_VERSION,
    .plugin_bytes = sizeof(ocl_plugin),
    .device_bytes = sizeof(mn_device),
    .queue_bytes = sizeof(mn_queue),
    .program_bytes = sizeof(mn_program),
    .context_bytes = sizeof(mn_context),
    .limits = {.kv = {OCL_PAGE_TOKENS, OCL_PIECE, OCL_MAX_HEAD},
               .max_experts = OCL_MAX_EXPERTS,
               .max_taps = OCL_CONV_MOST,
               .slack = 256,
               .segments = 16},
    .state_cols = {0, 0}, /* state.cl */
    .init = plugin_init,
    .fini = plugin_fini,
    .device_count = ocl_device_count,
    .device_info = ocl_device_info,
    .device_open = ocl_device_open,
    .device_close = ocl_device_close,
    .device_memory = ocl_device_memory,
    .self_test = ocl_self_test,
    .memory_alloc = ocl_memory_alloc,
    .memory_free = ocl_memory_free,
    .pinned_alloc = ocl_pinned_alloc,
    .pinned_free = ocl_pinned_free,
    .wrap = ocl_wrap,
    .unwrap = ocl_unwrap,
    .queue_open = ocl_queue_open,
    .queue_close = ocl_queue_close,
    .queue_finish = ocl_queue_finish,
    .queue_flush = ocl_queue_flush,
    .copy_in = ocl_copy_in,
    .copy_out = ocl_copy_out,
    .copy = ocl_copy,
    .map = ocl_map,
    .unmap = ocl_unmap,
    .event_record = ocl_event_record,
    .event_poll = ocl_event_poll,
    .event_wait = ocl_event_wait,
    .event_join = ocl_event_join,
    .event_free = ocl_event_free,
    .event_tell = ocl_event_tell,
    .gate_close = ocl_gate_close,
    .gate_open = ocl_gate_open,
    .events_once = true,
    .weight_shape = ocl_weight_shape,
    .weight_put = ocl_weight_put,
    .ops = ocl_ops,
    .n_ops = OCL_N_OPS,
    .patterns = ocl_patterns,
    .unit_of = ocl_unit_of,
    .estimate = ocl_estimate,
    .context_open = ocl_context_open,
    .context_close = ocl_context_close,
    .step = ocl_step,
    .run_begin = ocl_run_begin,
    .run_flush = ocl_step_flush,
    .copy_view = ocl_copy_view,
};

MN_PLUGIN_NOTE("opencl", MN_KIND_BACKEND, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mng_plugin_entry(host, &backend, err);
}
