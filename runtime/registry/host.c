/* host.c -- what a plugin may call: memory, threads, log, options. The table and what stands behind
 * it belong to the plugin's record and outlive the plugin; all functions may be called from any
 * thread, as plugin.h says. What a plugin says in them is made plain before it is told on. */
#include "registry/internal.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* A plugin says so many lines in a span of time; the rest is counted, and told with the next span.
 * Lines for debugging are not limited: only users who ask for them see them. */
static bool may_log(mn_plugin_host *host) {
    enum { LINES = 40 };
    const uint64_t span_ns = UINT64_C(10000000000);
    const uint64_t now = mn_now_ns();
    uint64_t since = atomic_load(&host->log_since_ns);
    if (now - since > span_ns && atomic_compare_exchange_strong(&host->log_since_ns, &since, now)) {
        const uint32_t n = atomic_exchange(&host->n_logged, 0);
        if (n > LINES)
            mn_log(MN_LOG_WARN, "%s: %u more lines were left out", host->id, n - LINES);
    }
    return atomic_fetch_add(&host->n_logged, 1) < LINES;
}

static void host_log(void *self, int32_t level, mn_str msg) {
    mn_plugin_host *host = self;
    char text[1024];
    if (level < MN_LOG_DEBUG && !may_log(host))
        return;
    mn_plain(text, sizeof text, (mn_str){msg.ptr, msg.ptr ? msg.len : 0});
    mn_log(level, "%s: %s", host->id, text);
}

static void *host_alloc(void *self, uint64_t bytes, uint64_t align) {
    mn_plugin_host *host = self;
    if (bytes > SIZE_MAX || align > SIZE_MAX)
        return NULL;
    return mn_ledger_alloc(&host->memory, (size_t)bytes, (size_t)align);
}

static void host_release(void *self, void *ptr) {
    mn_plugin_host *host = self;
    mn_ledger_free(&host->memory, ptr);
}

static mn_status host_parallel(void *self, uint32_t n,
                               void (*fn)(void *arg, uint32_t i, uint32_t n), void *arg) {
    const mn_plugin_host *host = self;
    return mn_pool_run(host->services->pool, n, fn, arg);
}

static uint32_t host_workers(void *self) {
    const mn_plugin_host *host = self;
    return mn_pool_workers(host->services->pool);
}

static int32_t host_progress(void *self, float done, mn_str what) {
    const mn_plugin_host *host = self;
    const mn_services *s = host->services;
    char text[256];
    if (!s->progress)
        return 0;
    const size_t n = mn_plain(text, sizeof text, (mn_str){what.ptr, what.ptr ? what.len : 0});
    return s->progress(s->progress_arg, done, (mn_str){text, n});
}

static uint64_t host_now_ns(void *self) {
    (void)self;
    return mn_now_ns();
}

static int32_t host_option(void *self, const char *key, mn_str *value) {
    const mn_plugin_host *host = self;
    const char *found = mn_config_option(host->services->cfg, host->id, key);
    if (found)
        *value = mn_str_of(found);
    return found != NULL;
}

static mn_status host_team(void *self, const mn_team *team) {
    const mn_plugin_host *host = self;
    return mn_pool_team(host->services->pool, team);
}

static const void *host_query(void *self, const char *interface_id) {
    (void)self;
    return strcmp(interface_id, MN_CACHE_ID) ? NULL : &mn_plugin_cache;
}

/* "cpu_simd" of "/lib/minerva/plugins/cpu_simd.so" or "libcpu_simd.so" */
static void id_of_path(const char *path, char *id, size_t cap) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!strncmp(name, "lib", 3))
        name += 3;
    size_t n = strcspn(name, ".");
    snprintf(id, cap, "%.*s", (int)MN_MIN(n, cap - 1), name);
}

bool mn_plugin_host_init(mn_plugin_host *host, const mn_services *services, const char *path) {
    const mn_host table = {
        .size = sizeof(mn_host),
        .abi = MN_ABI_VERSION,
        .abi_min = MN_ABI_OLDEST,
        .self = host,
        .log = host_log,
        .alloc = host_alloc,
        .release = host_release,
        .parallel = host_parallel,
        .workers = host_workers,
        .progress = host_progress,
        .now_ns = host_now_ns,
        .option = host_option,
        .team = host_team,
        .query = host_query,
    };
    host->table = mn_given_array(&table, 1, sizeof table, &host->pages);
    host->services = services;
    mn_ledger_init(&host->memory);
    id_of_path(path, host->id, sizeof host->id);
    host->callee = (mn_callee){.id = host->id, .path = path, .watch = services->watch};
    return host->table;
}
