/* plugin.c -- the entry. */
#include "group.h"

/* Groups are offered where the option `groups` asks for them: they have run with all members on one
 * card, and not on two. */
static bool offers_groups(const cu_plugin *p) {
    mn_str value;
    return MN_HAS(mn_host, p->host, option) &&
           p->host->option(p->host->self, "groups", &value) == 1 && value.len == 1 &&
           value.ptr[0] == '1';
}

static const void *plugin_query(void *self, const char *id) {
    if (!strcmp(id, MN_PROFILE_ID))
        return &cu_profile;
    if (!strcmp(id, MN_GROUP_ID))
        return offers_groups(self) ? &cu_group_table : NULL;
    if (strcmp(id, MN_BACKEND_ID))
        return NULL;
    return &cu_backend;
}
static void plugin_shutdown(void *self) {
    cu_plugin *p = self;
    p->host->release(p->host->self, p);
}
MN_PLUGIN_NOTE("cuda", MN_KIND_BACKEND, "");

MN_EXPORT const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    if (mnp_check_host(host, "cuda", err))
        return NULL;
    if (!MN_HAS(mn_host, host, now_ns)) {
        mnp_fail(err, MN_INVALID, ~0u, "cuda: the host lacks now_ns");
        return NULL;
    }
    cu_plugin *p = mnp_new(host, sizeof *p);
    if (!p) {
        mnp_fail_memory(err, sizeof *p, "the plugin");
        return NULL;
    }
    p->host = host;
    /* Never closed: the driver's threads may outlive shutdown. */
    p->api = (mn_plugin){sizeof p->api,
                         MN_ABI_VERSION,
                         p,
                         mnp_str("cuda"),
                         mnp_str("Minerva"),
                         mnp_str(MN_PLUGIN_VERSION),
                         (mn_str){0}, // the linker's build id
                         0,
                         plugin_query,
                         plugin_shutdown};
    return &p->api;
}
