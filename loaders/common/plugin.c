/* plugin.c -- the plugin object of a loader. One per host: two hosts in one process are two selves. */
#include "common.h"
#include <string.h>

typedef struct {
    mn_plugin plugin;
    const mn_host *host;
    const mn_loader *table;
} loader_self;

static const void *self_query(void *self, const char *interface_id) {
    return interface_id && !strcmp(interface_id, MN_LOADER_ID) ? ((loader_self *)self)->table : NULL;
}

static void self_shutdown(void *self) {
    const mn_host *host = ((loader_self *)self)->host;
    host->release(host->self, self);
}

const mn_host *mn_loader_host(void *self) { return ((loader_self *)self)->host; }

const mn_plugin *mn_loader_plugin(const mn_host *host, const char *id, const mn_loader *table, mn_error *err) {
    if (!host) return mn_fail(err, MN_INVALID, "%s: no host", id), NULL;
    /* Of another major, the first 16 bytes are all that may be read. */
    if (host->abi < MN_ABI_OLDEST || host->abi_min > MN_ABI_VERSION) {
        mn_fail(err, MN_UNSUPPORTED, "%s: the host's ABI is %u.%u, expected %u.%u", id, host->abi >> 16,
                host->abi & 0xFFFF, MN_ABI_OLDEST >> 16, MN_ABI_OLDEST & 0xFFFF);
        return NULL;
    }
    if (!MN_HAS(mn_host, host, alloc) || !MN_HAS(mn_host, host, release)) {
        mn_fail(err, MN_INVALID, "%s: the host offers no alloc and release", id);
        return NULL;
    }
    loader_self *s = host->alloc(host->self, sizeof *s, 16);
    if (!s) return mn_fail_memory(err), NULL;
    *s = (loader_self){{.size = sizeof s->plugin,
                        .abi = MN_ABI_VERSION,
                        .self = s,
                        .id = mn_str_of(id),
                        .vendor = mn_str_of("Minerva"),
                        .version = mn_str_of(MN_PLUGIN_VERSION),
                        .build_id = mn_str_of(MN_PLUGIN_VERSION " " __DATE__ " " __TIME__),
                        .flags = MN_PLUGIN_UNLOADABLE,
                        .query = self_query,
                        .shutdown = self_shutdown},
                       host,
                       table};
    return &s->plugin;
}
