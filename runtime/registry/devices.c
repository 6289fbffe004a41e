/* devices.c -- the list of all plugins' devices, made at the first question, for drivers may start
 * then. It belongs to the registry and lives as long. Each device is opened once, and its users are
 * counted, so that one that is lost (lost.c) can be closed. What a plugin says of a device is made
 * plain here, before anybody prints it. */
#include "registry/internal.h"
#include <stdio.h>
#include <string.h>

/* A record that is not usable yet; NULL = out of memory. Moves the others. */
static mn_device_record *devices_add_device(mn_registry *reg, const mn_plugin_record *plugin) {
    void *ptr = reg->devices;
    if (!mn_grow(&ptr, &reg->cap_devices, reg->n_devices + 1, sizeof *reg->devices))
        return NULL;
    reg->devices = ptr;
    mn_device_record *dev = &reg->devices[reg->n_devices++];
    memset(dev, 0, sizeof *dev);
    dev->plugin = plugin;
    dev->reason = "";
    snprintf(dev->name, sizeof dev->name, "%s", plugin->id.ptr);
    return dev;
}

/* Why the device is not usable: what the plugin says, or our words. */
static void set_reason(mn_device_record *dev, mn_error *why, const char *otherwise) {
    why->msg[sizeof why->msg - 1] = 0;
    mn_plain(dev->text, sizeof dev->text, mn_str_of(why->msg[0] ? why->msg : otherwise));
}

static mn_status ask_info(const mn_plugin_record *plugin, uint32_t index, mn_device_info *info,
                          mn_error *why) {
    mn_status st = MN_OK;
    *info = (mn_device_info){.size = sizeof *info};
    MN_WATCHED(plugin->callee, "device_info",
               st = plugin->backend->device_info(plugin->plugin->self, index, info, why));
    if (st)
        *info = (mn_device_info){.size = sizeof *info};
    return st;
}

/* What no device can have: in words, NULL = none. Unknown is 0. */
static const char *absurd_claim(const mn_device_info *d) {
    const uint64_t most = UINT64_C(1) << 50; /* no machine has a petabyte */
    const double rates[] = {d->mem_gbps, d->fp16_tflops, d->int8_tops, d->launch_us, d->h2d_gbps};
    for (size_t i = 0; i < MN_COUNT(rates); i++)
        if (!(rates[i] >= 0)) /* NaN, too */
            return "a rate below 0 or NaN, expected 0 for unknown";
    if (d->mem_total > most)
        return "more than 1024 TiB of memory";
    if (d->mem_total && d->mem_free > d->mem_total)
        return "more free memory than there is";
    if (d->align & (d->align - 1))
        return "an alignment that is no power of 2";
    return NULL;
}

static void devices_judge_info(mn_device_record *dev) {
    const char *absurd = absurd_claim(&dev->info);
    if (!dev->usable || !absurd)
        return;
    dev->usable = false;
    snprintf(dev->text, sizeof dev->text, "it claims %s", absurd);
}

/* Describes device index of the plugin's n, without opening it. What its probe found counts. */
static void ask_device(mn_device_record *dev, uint32_t index, uint32_t n) {
    mn_error why = MN_ERROR_INIT;
    const mn_plugin_record *plugin = dev->plugin;
    mn_device_info *info = &dev->info;
    dev->index = index;
    dev->usable = !ask_info(plugin, index, info, &why);
    if (!dev->usable)
        set_reason(dev, &why, "the plugin cannot describe it and gave no reason");
    devices_judge_info(dev);
    mn_plain_array(info->name, sizeof info->name);
    mn_plain_array(info->uid, sizeof info->uid);
    mn_plain_array(info->driver, sizeof info->driver);
    mn_plain_array(info->mem_pool, sizeof info->mem_pool);
    mn_str fault = mn_report_fault(&plugin->host->report, index, info->uid);
    if (dev->usable && fault.len) {
        dev->usable = false;
        snprintf(dev->text, sizeof dev->text, "%.*s%s", MN_STR_ARG(fault),
                 plugin->probe.cached ? MN_PROBE_REMEMBERED : "");
    }
    if (n > 1 || (dev->usable && info->kind != MN_DEVICE_CPU))
        snprintf(dev->name, sizeof dev->name, "%s:%u", plugin->id.ptr, index);
}

static mn_status devices_count_devices(const mn_plugin_record *plugin, uint32_t *n, mn_error *why) {
    mn_status st = MN_OK;
    MN_WATCHED(plugin->callee, "device_count",
               st = plugin->backend->device_count(plugin->plugin->self, n, why));
    return st;
}

bool mn_plugin_offers_cpu(const mn_plugin_record *plugin) {
    mn_error why = MN_ERROR_INIT;
    uint32_t n = 0;
    if (!plugin->backend || devices_count_devices(plugin, &n, &why) || n > MN_MAX_DEVICES)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        mn_device_record dev = {.plugin = plugin};
        ask_device(&dev, i, n);
        if (dev.usable && dev.info.kind == MN_DEVICE_CPU)
            return true;
    }
    return false;
}

/* One record that says why the plugin has no devices; false = out of memory. */
static bool add_none(mn_registry *reg, const mn_plugin_record *plugin, mn_error *why,
                     const char *otherwise) {
    mn_device_record *dev = devices_add_device(reg, plugin);
    if (dev)
        set_reason(dev, why, otherwise);
    return dev != NULL;
}

/* false = out of memory */
static bool ask_plugin(mn_registry *reg, const mn_plugin_record *plugin) {
    mn_error why = MN_ERROR_INIT;
    uint32_t n = 0;
    if (devices_count_devices(plugin, &n, &why))
        return add_none(reg, plugin, &why, "the plugin cannot list its devices and gave no reason");
    if (!n)
        return add_none(reg, plugin, &why, "no device found");
    if (n > MN_MAX_DEVICES)
        return add_none(reg, plugin, &why, "the plugin lists an impossible number of devices");
    for (uint32_t i = 0; i < n; i++) {
        mn_device_record *dev = devices_add_device(reg, plugin);
        if (!dev)
            return false;
        ask_device(dev, i, n);
    }
    return true;
}

static bool ask_plugins(mn_registry *reg) {
    for (size_t i = 0; i < reg->n_records; i++)
        if (reg->records[i].backend && !ask_plugin(reg, &reg->records[i]))
            return false;
    return true;
}

/* The lock is held; false = out of memory, and the next call begins anew. */
static bool list_devices(mn_registry *reg) {
    reg->n_devices = 0;
    bool enough_memory = ask_plugins(reg);
    void *ptr = reg->devices;
    const size_t n = reg->n_devices + MN_MAX_GROUPS;
    enough_memory = enough_memory && mn_grow(&ptr, &reg->cap_devices, n, sizeof *reg->devices);
    reg->devices = ptr;
    if (enough_memory)
        reg->state = mn_calloc(n, sizeof *reg->state);
    enough_memory = enough_memory && reg->state;
    if (!enough_memory)
        reg->n_devices = 0;
    for (size_t i = 0; i < reg->n_devices; i++) /* the array may have moved while it grew */
        reg->devices[i].reason = reg->devices[i].usable ? "" : reg->devices[i].text;
    return enough_memory;
}

const mn_device_record *mn_registry_devices(mn_registry *reg, size_t *n) {
    static const mn_device_record none;
    pthread_mutex_lock(&reg->lock);
    if (!reg->listed)
        reg->listed = list_devices(reg);
    const mn_device_record *devices = NULL;
    if (reg->listed)
        devices = reg->n_devices ? reg->devices : &none;
    *n = reg->n_devices;
    pthread_mutex_unlock(&reg->lock);
    return devices;
}

const mn_device_record *mn_registry_device(mn_registry *reg, mn_str name) {
    size_t n;
    const mn_device_record *devices = mn_registry_devices(reg, &n);
    char why[MN_GROUP_WHY];
    if (devices && mn_is_group_name(name))
        return mn_registry_group(reg, name, why);
    mn_str bare = mn_str_ends(name, ":0") ? (mn_str){name.ptr, name.len - 2} : name;
    for (size_t i = 0; i < n; i++) {
        const mn_device_record *d = &devices[i];
        const bool is_first = !d->index && mn_str_eq(bare, d->plugin->id);
        if (is_first || mn_str_is(name, d->name))
            return d;
    }
    return NULL;
}

mn_status mn_registry_device_open(mn_registry *reg, const mn_device_record *rec, mn_device **out,
                                  mn_error *err) {
    mn_device_state *s = &reg->state[rec - reg->devices];
    mn_error why = MN_ERROR_INIT;
    mn_status st = MN_OK;
    pthread_mutex_lock(&reg->lock);
    const bool usable = rec->usable;
    if (usable && !s->open)
        st = mn_device_call_open(rec, &s->open, &why);
    if (st)
        s->open = NULL;
    *out = usable ? s->open : NULL;
    s->users += *out != NULL;
    pthread_mutex_unlock(&reg->lock);
    mn_fail_plain(&why);
    if (!usable)
        return mn_fail(err, MN_NO_DEVICE, "device %s cannot be used: %s", rec->name, rec->reason);
    if (!st)
        return MN_OK;
    const char *said = why.msg[0] ? why.msg : "the plugin gave no reason";
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST)
        mn_registry_quarantine(reg, rec, said);
    return mn_fail(err, st, "device %s cannot be opened: %s", rec->name, said);
}

mn_device *mn_registry_device_opened(mn_registry *reg, const mn_device_record *rec) {
    mn_device_state *s = &reg->state[rec - reg->devices];
    pthread_mutex_lock(&reg->lock);
    mn_device *device = rec->lost ? NULL : s->open;
    s->users += device != NULL;
    pthread_mutex_unlock(&reg->lock);
    return device;
}

uint32_t mn_device_workers(const mn_device_record *rec) {
    const mn_plugin_host *host = rec->plugin->host;
    const uint32_t n = host ? host->table->workers(host->table->self) : 1;
    return n ? n : 1;
}
