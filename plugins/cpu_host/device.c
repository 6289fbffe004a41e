/* device.c -- the plugin's entry, its one device, and the table. A plugin is an mnc_plugin, one
 * per host, that holds what the plugin's own mnc_ops need (self); there is one device, the CPU,
 * and everything on it is synchronous. */
#include "mnc.h"
#include "moves_table.h"
#include <stdio.h>

mn_status mnc_device_count(void *self, uint32_t *n, mn_error *err) {
    (void)self;
    (void)err;
    *n = 1;
    return MN_OK;
}

/* MN_NO_DEVICE for every index but 0. */
static mn_status cpu_device_only_one(uint32_t i, mn_error *err) {
    return i ? mnp_fail(err, MN_NO_DEVICE, ~0u, "device %u; there is one", i) : MN_OK;
}

/* Cores, caches and memory as the operating system tells them; the rate of memory if the plugin
 * has measured it. */
mn_status mnc_device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    mnc_plugin *p = self;
    mn_status s = cpu_device_only_one(i, err);
    if (s)
        return s;
    mn_device_info info = {.size = sizeof info, .kind = MN_DEVICE_CPU, .align = MNC_ALIGN};
    mnc_facts(&info, p->ops->device_name);
    snprintf(info.driver, sizeof info.driver, "%s %s", p->ops->id, p->ops->version);
    info.flags = p->ops->device_flags | MN_DEVICE_UNIFIED | MN_DEVICE_WRAPS;
    info.mem_gbps = 0;
    if (p->ops->gbps)
        info.mem_gbps = p->ops->gbps(p->self);
    mnp_fill(out, &info, sizeof info);
    return MN_OK;
}

/* The seed stands in for the device while its memory is allocated by the device's host. */
mn_status mnc_device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                          mn_error *err) {
    mn_device seed = {self, {0}};
    mn_device_info info = {.size = sizeof info};
    mn_status s = mnc_device_info(self, i, &info, err);
    if (!s)
        s = mnp_check_open(params, info.uid, err);
    if (s)
        return s;
    mn_device *d = mnc_new(&seed, sizeof *d);
    if (!d)
        return mnp_fail_memory(err, sizeof *d, "a device");
    *d = seed;
    *out = d;
    return MN_OK;
}

/* What was made on the device is freed before: a buffer or program still points to it. */
void mnc_device_close(mn_device *d) {
    if (d)
        mnc_delete(d, d);
}

/* A plugin without a test of its own passes. */
mn_status mnc_self_test(mn_device *d, mn_error *err) {
    mnc_plugin *p = d->plugin;
    if (p->ops->self_test)
        return p->ops->self_test(p->self, err);
    return MN_OK;
}

mn_status mnc_contracts(void *self, const mn_op_contract **table, uint32_t *n, uint32_t *stride) {
    mnc_plugin *p = self;
    *table = p->ops->contracts;
    *n = p->ops->n_contracts;
    *stride = sizeof **table;
    return MN_OK;
}

/* buf: [cap], always ended by a NUL; an empty text for a reason that the plugin does not know. */
mn_status mnc_reason(void *self, uint32_t reason, char *buf, uint32_t cap) {
    mnc_plugin *p = self;
    const char *text = NULL;
    if (p->ops->reason)
        text = p->ops->reason(p->self, reason);
    if (cap)
        snprintf(buf, cap, "%s", text ? text : "");
    return MN_OK;
}

/* Extensions by id; NULL: not offered. */
static const void *query(void *self, const char *id) {
    (void)self;
    if (!strcmp(id, MN_PROFILE_ID))
        return &mnc_profile;
    if (!strcmp(id, MN_KV_ID))
        return &mnc_moves;
    if (!strcmp(id, MN_EXPERTS_ID))
        return &mnc_experts;
    if (strcmp(id, MN_BACKEND_ID))
        return NULL;
    return &mnc_backend;
}

/* The plugin's own self first: it may still need the host. */
static void shutdown(void *self) {
    mnc_plugin *p = self;
    const mn_host *h = p->host;
    if (p->ops->fini)
        p->ops->fini(h, p->self);
    mnc_numa_free(p->numa);
    h->release(h->self, p);
}

/* What mn_plugin_entry of a CPU plugin returns: NULL with the sentence in err, or a table that
 * lives until its shutdown. ops is static data of the plugin; the host must outlive what is
 * returned. */
const mn_plugin *mnc_plugin_entry(const mn_host *host, const mnc_ops *ops, mn_error *err) {
    if (mnp_check_host(host, ops->id, err))
        return NULL;
    if (!MN_HAS(mn_host, host, team) || !MN_HAS(mn_host, host, workers)) {
        mnp_fail(err, MN_INVALID, ~0u, "%s: the host lacks team or workers", ops->id);
        return NULL;
    }
    mnc_plugin *p = mnp_new(host, sizeof *p);
    if (!p) {
        mnp_fail_memory(err, sizeof *p, "the plugin");
        return NULL;
    }
    p->host = host;
    p->ops = ops;
    p->api = (mn_plugin){sizeof p->api,
                         MN_ABI_VERSION,
                         p,
                         mnp_str(ops->id),
                         mnp_str(ops->vendor),
                         mnp_str(ops->version),
                         (mn_str){NULL, 0}, /* the linker's build id */
                         MN_PLUGIN_UNLOADABLE,
                         query,
                         shutdown};
    mn_status st = MN_OK;
    if (ops->has_numa)
        st = mnc_numa_open(host, ops->id, "", &p->numa, err);
    if (!st && ops->init)
        st = ops->init(host, &p->self, err);
    if (st) {
        mnc_numa_free(p->numa);
        host->release(host->self, p);
        return NULL;
    }
    return &p->api;
}

const mn_backend mnc_backend = {
    .size = sizeof(mn_backend),
    .device_count = mnc_device_count,
    .device_info = mnc_device_info,
    .device_open = mnc_device_open,
    .device_close = mnc_device_close,
    .device_memory = mnc_device_memory,
    .self_test = mnc_self_test,
    .contracts = mnc_contracts,
    .supports = mnc_supports,
    .reason = mnc_reason,
    .estimate = mnc_estimate,
    .alloc = mnc_alloc,
    .wrap = mnc_wrap,
    .buffer_free = mnc_buffer_free,
    .map = mnc_map,
    .queue_create = mnc_queue_create,
    .queue_free = mnc_queue_free,
    .write = mnc_write,
    .read = mnc_read,
    .copy = mnc_copy,
    .wait = mnc_wait,
    .queue_wait = mnc_queue_wait,
    .event_free = mnc_event_free,
    .event_on_ready = mnc_event_on_ready,
    .abort = mnc_abort,
    .weights_open = mnc_weights_open,
    .weights_put = mnc_weights_put,
    .weights_seal = mnc_weights_seal,
    .weights_free = mnc_weights_free,
    .memory_layout = mnc_memory_layout,
    .memory_copy = mnc_memory_copy,
    .compile = mnc_compile,
    .program_free = mnc_program_free,
    .program_save = mnc_program_save,
    .context_create = mnc_context_create,
    .context_bind = mnc_context_bind,
    .execute = mnc_execute,
    .context_free = mnc_context_free,
};
