/* absent.c -- pull.c of a build without libcurl's headers: names are resolved, nothing is
 * downloaded. */
#include "hub.h"

int hub_offer(app *a, const char *given) {
    mn_found *found = NULL;
    mn_found_item item = {.size = sizeof item};
    if (mn_model_find(a->rt, given, &found, &a->err) == MN_OK &&
        mn_found_get(found, 0, &item) == MN_OK && item.remark[0])
        app_remark(a, "%s: %s", item.name, item.remark);
    mn_found_free(found);
    return 0;
}

int hub_pull(app *a, const char *name, hub_progress progress, void *arg) {
    (void)a;
    (void)name;
    (void)progress;
    (void)arg;
    return complain(
        EXIT_FAILED,
        "pull: this build has no libcurl; install libcurl4-openssl-dev and build again");
}

int hub_is_offline(const app_flags *flags) {
    (void)flags;
    return 0; /* hub_pull has the sentence */
}
