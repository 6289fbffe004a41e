/* internal.h -- the registry's parts among themselves: plugin_file.c checks a file before it is opened, load.c
 * opens it and checks what it offers, host.c is what plugins may call. */
#ifndef MN_REGISTRY_INTERNAL_H
#define MN_REGISTRY_INTERNAL_H
#include "registry/registry.h"
#include <limits.h>
#include <sys/types.h>

/* Whose writing is no danger: root, the user, and whoever can write libminerva itself and so has the process anyway. */
typedef struct {
    char dir[PATH_MAX]; /* libminerva's folder; "" = unknown */
    uid_t uid;          /* owner of libminerva */
    gid_t gid;          /* its group, if that may write it */
    bool has_gid;
} mn_trust;
void mn_trust_init(mn_trust *trust);

/* Whether the file may be opened: regular, for this processor, not writable by others. real: the path without links, to be
 * opened; dev and ino tell two paths of one file. MN_BAD_FILE = no, with the reason. Only reads. */
mn_status mn_plugin_file_check(const mn_trust *trust, const char *path, char real[PATH_MAX], uint64_t *dev,
                               uint64_t *ino, mn_error *err);

/* One table of services per plugin: `self` tells who calls. */
typedef struct mn_plugin_host {
    mn_host table;
    mn_registry *reg;
    char id[64]; /* until the plugin has told its id: its file's name */
} mn_plugin_host;
void mn_plugin_host_init(mn_plugin_host *host, mn_registry *reg, const char *path);

/* What the services need of the registry. */
const mn_config *mn_registry_config(const mn_registry *reg);
mn_pool *mn_registry_pool(const mn_registry *reg);
int32_t mn_registry_progress(const mn_registry *reg, float done, mn_str what);

/* Opens rec->path (real: its checked path) and fills rec: id, abi, kind, tables; or status and reason.
 * An error is out of memory. */
mn_status mn_plugin_load(mn_plugin_record *rec, const char *real, mn_error *err);
/* Sets status and reason; false = out of memory. */
bool mn_plugin_reject(mn_plugin_record *rec, const char *status, const char *fmt, ...) MN_PRINTF(3, 4);
/* Shutdown, and dlclose if the plugin allows it. The record keeps path, id and reason. */
void mn_plugin_unload(mn_plugin_record *rec);

#endif
