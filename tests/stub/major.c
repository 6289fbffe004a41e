/* major.c -- for another ABI major; with STUB_NOTE_LIES only the entry knows. */
#include <minerva/plugin.h>

#ifndef STUB_NOTE_LIES
#undef MN_ABI_VERSION
#define MN_ABI_VERSION MN_ABI(7, 0)
#undef MN_ABI_OLDEST
#define MN_ABI_OLDEST MN_ABI_VERSION
#endif
MN_PLUGIN_NOTE("major", MN_KIND_BACKEND, "");

static const void *query(void *self, const char *id) {
    (void)self;
    (void)id;
    return NULL;
}

static void shut_down(void *self) {
    (void)self;
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    static const mn_plugin plugin = {.size = sizeof plugin,
                                     .abi = MN_ABI(7, 0),
                                     .id = {"major", 5},
                                     .query = query,
                                     .shutdown = shut_down};
    (void)host;
    (void)err;
    return &plugin;
}
