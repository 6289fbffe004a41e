/* plugin.c -- the entry, and what this backend gives to plugins/gpu_host. */
#include "group.h"
#include "ops.h"

/* Groups are offered where the option `groups` asks for them: they have run with all members on one
 * card, and not on two. */
static const void *plugin_query(mng_plugin *p, const char *id) {
    if (!strcmp(id, MN_GROUP_ID) && mng_option(p->host, "groups", 0) == 1)
        return &cu_group_table;
    return NULL;
}

const mng_backend cu_gpu = {
    .id = "cuda",
    .vendor = "Minerva",
    .version = MN_PLUGIN_VERSION,
    .plugin_bytes = sizeof(mng_plugin),
    .device_bytes = sizeof(mn_device),
    .queue_bytes = sizeof(mn_queue),
    .program_bytes = sizeof(mn_program),
    .context_bytes = sizeof(mn_context),
    .limits = {.kv = {CU_PAGE_TOKENS, 8, CU_MAX_HEAD},
               .max_experts = CU_MAX_EXPERTS,
               .max_taps = CU_CONV_MOST,
               .max_state = CU_SCAN_MOST,
               .view_align = 4,
               .slack = 256},
    .query = plugin_query,
    .table = &cu_backend,
    .profile = &cu_profile,
    .moves = &cu_moves,
    .rows = &cu_page_rows,
    .state_cols = {1, 1}, /* k_state.cu */
    .device_count = cu_device_count,
    .device_info = cu_device_info,
    .device_open = cu_device_open,
    .device_close = cu_device_close,
    .device_memory = cu_device_memory,
    .self_test = cu_self_test,
    .enter = cu_enter,
    .memory_alloc = cu_memory_alloc,
    .memory_free = cu_memory_free,
    .pinned_alloc = cu_pinned_alloc,
    .pinned_free = cu_pinned_free,
    .wrap = cu_wrap,
    .unwrap = cu_unwrap,
    .queue_open = cu_queue_open,
    .queue_close = cu_queue_close,
    .queue_finish = cu_queue_finish,
    .copy_in = cu_copy_in,
    .copy_out = cu_copy_out,
    .copy = cu_copy,
    .event_record = cu_event_record,
    .event_make = cu_event_make,
    .event_poll = cu_event_poll,
    .event_wait = cu_event_wait,
    .event_join = cu_event_join,
    .event_free = cu_event_free,
    .event_tell = cu_event_tell,
    .gate_close = cu_gate_close,
    .gate_open = cu_gate_open,
    .word_write = cu_word_write,
    .weight_shape = cu_weight_shape,
    .weight_put = cu_weight_put,
    .weight_kept = cu_weight_kept,
    .weights_together = true,
    .ops = cu_ops,
    .n_ops = CU_N_OPS,
    .precision = cu_precision,
    .patterns = cu_patterns,
    .program_begin = cu_program_begin,
    .program_uses = cu_program_uses,
    .program_lowered = cu_program_lowered,
    .program_live = cu_program_live,
    .program_needs = cu_program_needs,
    .program_free = cu_program_free,
    .estimate = cu_estimate,
    .kept_needs = 1u << CU_NEED_ARRIVED | 1u << CU_NEED_TILES_ARRIVED | 1u << CU_NEED_GEMM,
    .context_open = cu_context_open,
    .context_close = cu_context_close,
    .context_rebind = cu_context_rebind,
    .step = cu_step,
    .run_begin = cu_run_begin,
    .unit_absorbed = cu_is_absorbed,
    .unit_begin = cu_unit_begin,
    .unit_end = cu_unit_end,
    .unit_nodes = cu_unit_nodes,
    .copy_view = cu_copy_view_of,
};

MN_PLUGIN_NOTE("cuda", MN_KIND_BACKEND, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mng_plugin_entry(host, &cu_gpu, err);
}
