/* runtime.c -- mn_runtime_*: configuration, thread pool and registry under one roof, and their lists. */
#include "api/api.h"
#include <string.h>

const char *mn_version(void) { return MN_VERSION; }

int mn_exit_code(mn_status status) {
    if (status == MN_OK) return 0;
    if (status == MN_NO_DEVICE) return 3;
    switch (MN_STATUS_CLASS(status)) {
    case MN_CLASS_SMALLER: return 4;
    case MN_CLASS_CANCELLED: return 130;
    case MN_CLASS_CALLER: return 2;
    default: return 1;
    }
}

static mn_status load_config(mn_runtime *rt, const mn_runtime_params *p, mn_error *err) {
    const uint32_t n = p ? p->n_settings : 0;
    mn_config_override *o = mn_calloc(n ? n : 1, sizeof *o);
    if (!o) return mn_fail_memory(err, n * sizeof *o);
    for (uint32_t i = 0; i < n; i++)
        o[i] = (mn_config_override){p->settings[i].key, p->settings[i].value, p->settings[i].key};
    mn_status st = mn_config_load(o, n, &rt->config, err);
    mn_free(o);
    return st;
}

mn_status mn_runtime_create(const mn_runtime_params *params, mn_runtime **out, mn_error *err) {
    mn_runtime *rt = mn_calloc(1, sizeof *rt);
    if (!rt) return mn_fail_memory(err, sizeof *rt);
    mn_status st = load_config(rt, params, err);
    if (!st) {
        mn_log_level(mn_config_log_level(rt->config));
        st = mn_pool_create((uint32_t)mn_config_get_int(rt->config, "threads"), &rt->pool, err);
    }
    if (!st) st = mn_registry_create(rt->config, rt->pool, &rt->registry, err);
    if (st)
        mn_runtime_free(rt);
    else
        *out = rt;
    return st;
}

void mn_runtime_free(mn_runtime *rt) {
    if (!rt) return;
    if (rt->registry) mn_registry_free(rt->registry);
    mn_pool_free(rt->pool);
    mn_config_free(rt->config);
    mn_free(rt);
}

mn_status mn_runtime_config(const mn_runtime *rt, uint32_t i, mn_config_item *out) {
    return mn_config_at(rt->config, i, &out->key, &out->value, &out->origin) ? MN_OK : MN_END;
}

mn_status mn_runtime_plugin(const mn_runtime *rt, uint32_t i, mn_plugin_item *out) {
    size_t n;
    const mn_plugin_record *r = mn_registry_plugins(rt->registry, &n);
    if (i >= n) return MN_END;
    *out = (mn_plugin_item){
        r[i].path, r[i].id.ptr ? r[i].id.ptr : "", r[i].kind, r[i].status, r[i].reason ? r[i].reason : "", r[i].abi, 0};
    return MN_OK;
}

mn_status mn_runtime_device(const mn_runtime *rt, uint32_t i, mn_device_item *out) {
    size_t n;
    const mn_device_record *d = mn_registry_devices(rt->registry, &n);
    if (i >= n) return MN_END;
    d += i;
    mn_device_info now = {.size = sizeof now};
    uint64_t free_bytes = d->info.mem_free;
    if (d->usable && !d->plugin->backend->device_info(d->plugin->plugin->self, d->index, &now, NULL))
        free_bytes = now.mem_free;
    *out = (mn_device_item){d->name,
                            d->plugin->id.ptr ? d->plugin->id.ptr : "",
                            d->info.name,
                            d->info.uid,
                            d->reason,
                            d->info.mem_total,
                            free_bytes,
                            d->usable,
                            0};
    return MN_OK;
}

const char *mn_runtime_setting(const mn_runtime *rt, const char *key) { return mn_config_get_str(rt->config, key); }
uint32_t mn_runtime_threads(const mn_runtime *rt) { return mn_pool_workers(rt->pool); }
