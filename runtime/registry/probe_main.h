/* probe_main.h -- the parts of minerva-probe among themselves. Two processes:
 *   probe_main.c    reads the command line and forks off
 *   probe_watch.c   the watcher: starts the prober, gives the verdict, writes host and cache
 *   probe_plugin.c  the prober: opens the plugin and tries what the host will do with it; of which
 *   probe_device.c  is a backend's part, and probe_loader.c a loader's */
#ifndef MN_PROBE_MAIN_H
#define MN_PROBE_MAIN_H
#include "registry/internal.h"
#include <stdatomic.h>

/* What the command line asked for; lives as long as the process. */
typedef struct {
    const char *path;    /* of the plugin, without links */
    const char *key;     /* of the cache: the host's part; "" = nothing is kept */
    uint64_t timeout_ns; /* for the first verdict, and again for the second */
    uint64_t begin_ns;
    int n_settings; /* of plugins, KEY=VALUE */
    char **settings;
    mn_plugin_file file; /* the plugin as it was found here */
    mn_status look;      /* of reading file */
} probe_request;

/* Watching: how long the prober idles between its first verdict and closing the plugin. */
#define PROBE_WATCH_NS UINT64_C(2000000000)

/* Whether there is a second verdict; without a cache it could not be kept. */
static inline bool probe_is_watched(const probe_request *rq) {
    return *rq->key != 0;
}

/* The prober's report, in memory that both processes share: it outlives a crash, and a line costs
 * no system call. The prober writes bytes behind len and then len. */
typedef struct {
    _Atomic uint32_t len;
    char bytes[MN_REPORT_MAX];
} probe_shared;

/* The watcher's process; does not return. */
_Noreturn void probe_watch(const probe_request *rq);
/* The prober's process, with descriptors 1, 2 and MN_REPORT_FD set up; does not return. Writes one
 * report, or two if it is watched: the second one goes on where the first one ended. A byte to
 * MN_REPORT_FD says that one is complete. */
_Noreturn void probe_plugin(const probe_request *rq, probe_shared *shared);

/* Lines of the report, there at once. */
void probe_tell(const char *key, const char *fmt, ...) MN_PRINTF(2, 3);
void probe_phase(const char *doing);
/* probe_device.c: lists the devices, opens each, tests it and runs a small graph on it. */
void probe_devices(const mn_plugin_record *rec);
/* probe_loader.c: shows a loader files that are none of any format, which it must not claim, and
 * small models, which it must open if it claims them. The error is its fault, with the reason. */
mn_status probe_loader(const mn_plugin_record *rec, mn_error *err);
#endif
