/* static_host.c -- rule static.accepted: whether this host accepts the file before it opens it. The
 * host's rules for files, versions and instruction sets are not repeated here: a runtime is
 * created whose only plugin folder holds a link to the file, and its record of the plugin is
 * read. */
#include "check.h"
#include <minerva/minerva.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The host's record of the one plugin in the folder. Refusals after the probe are left to later
 * rules. */
static void static_host_judge(check *c, const char *folder) {
    const mn_setting settings[] = {
        {"plugin_path_only", folder}, {"probe_timeout", "2"}, {"probe_cache", "false"}};
    const mn_runtime_params params = {
        .size = sizeof params,
        .n_settings = sizeof settings / sizeof *settings,
        .settings = settings,
    };
    mn_runtime *rt = NULL;
    mn_plugin_item item;
    mn_error err = MN_ERROR;
    CHECK(c, !mn_runtime_create(&params, &rt, &err), "the host cannot start: %s", err.msg);
    for (uint32_t i = 0; mn_runtime_plugin(rt, i, &item) == MN_OK; i++) {
        const int refused = !strcmp(item.status, "refused") || !strcmp(item.status, "incompatible");
        if (refused && !item.probe[0])
            check_fail(c, "found \"%s\": %s", item.status, item.reason);
    }
    mn_runtime_free(rt);
}

/* Makes a folder below /tmp with a link to the file, and removes both. */
void check_static_accepted(check *c) {
    char folder[] = "/tmp/minerva-check-XXXXXX";
    char link[64];
    check_doing(c, "the host checked the file");
    if (!mkdtemp(folder)) {
        check_skip(c, "no folder can be made below /tmp");
        return;
    }
    snprintf(link, sizeof link, "%s/plugin.so", folder);
    if (symlink(c->path, link))
        check_skip(c, "no link can be made in %s", folder);
    else
        static_host_judge(c, folder);
    unlink(link);
    rmdir(folder);
}
