/* runtime.c -- mn_runtime_*: configuration, thread pool and registry under one roof, and their
 * lists. The registry waits for plugins that hang (base/call.h) and reads the crash journal
 * (registry/journal.c); what the application wants of both comes through here. */
#include "opened/opened.h"
#include "ranks/ranks.h"
#include <signal.h>
#include <string.h>

const char *mn_version(void) {
    return MN_VERSION;
}

void mn_error_init(mn_error *err) {
    if (err)
        *err = (mn_error)MN_ERROR;
}

uint32_t mn_status_class(mn_status status) {
    return MN_STATUS_CLASS(status);
}

const char *mn_status_name(mn_status status) {
    static const struct {
        mn_status status;
        const char *name;
    } known[] = {
        {MN_OK, "OK"},
        {MN_UNSUPPORTED, "UNSUPPORTED"},
        {MN_END, "END"},
        {MN_NO_DEVICE, "NO_DEVICE"},
        {MN_OUT_OF_MEMORY, "OUT_OF_MEMORY"},
        {MN_TIMEOUT, "TIMEOUT"},
        {MN_DEVICE_LOST, "DEVICE_LOST"},
        {MN_INVALID, "INVALID"},
        {MN_CANCELLED, "CANCELLED"},
        {MN_BAD_FILE, "BAD_FILE"},
        {MN_BAD_INPUT, "BAD_INPUT"},
        {MN_IO_ERROR, "IO_ERROR"},
    };
    static const char *const classes[] = {NULL,   "REFUSE", "SMALLER",   "TRANSIENT",
                                          "LOST", "CALLER", "CANCELLED", "INPUT"};
    for (size_t i = 0; i < MN_COUNT(known); i++)
        if (known[i].status == status)
            return known[i].name;
    const uint32_t c = mn_status_class(status);
    return c && c < MN_COUNT(classes) ? classes[c] : "UNKNOWN";
}

int mn_exit_code(mn_status status) {
    if (status == MN_OK)
        return 0;
    if (status == MN_NO_DEVICE)
        return 3;
    switch (MN_STATUS_CLASS(status)) {
    case MN_CLASS_SMALLER:
        return 4;
    case MN_CLASS_CANCELLED:
        return 130;
    case MN_CLASS_CALLER:
        return 2;
    default:
        return 1;
    }
}

/* ---- settings -------------------------------------------------------------------------------- */

/* MN_INVALID: something is NULL. */
static mn_status check_settings(const mn_runtime_params *p, mn_error *err) {
    if (p->n_settings && !p->settings)
        return mn_fail(err, MN_INVALID, "mn_runtime_params.settings is NULL, n_settings is %u",
                       p->n_settings);
    for (uint32_t i = 0; i < p->n_settings; i++)
        if (!p->settings[i].key || !p->settings[i].value)
            return mn_fail(err, MN_INVALID, "mn_runtime_params.settings[%u].%s is NULL", i,
                           p->settings[i].key ? "value" : "key");
    return MN_OK;
}

/* The configuration with the application's settings above all others. */
static mn_status load_config(mn_runtime *rt, const mn_runtime_params *p, mn_error *err) {
    const uint32_t n = p->n_settings;
    mn_config_override *o = mn_calloc(n ? n : 1, sizeof *o);
    if (!o)
        return mn_fail_memory(err, n * sizeof *o);
    for (uint32_t i = 0; i < n; i++)
        o[i] = (mn_config_override){p->settings[i].key, p->settings[i].value, p->settings[i].key};
    mn_status st = mn_config_load(o, n, &rt->config, err);
    mn_free(o);
    return st;
}

/* "cuda" of MINERVA_CUDA_GRAPHS. */
static bool names_plugin(const char *variable, mn_str id) {
    const char *at = variable + strlen("MINERVA_");
    for (uint64_t i = 0; i < id.len; i++) {
        const char c = id.ptr[i];
        if (at[i] != (c >= 'a' && c <= 'z' ? (char)(c - 32) : c))
            return false;
    }
    return id.len && at[id.len] == '_' && at[id.len + 1];
}

static bool is_of_plugin(const mn_runtime *rt, const char *variable) {
    size_t n;
    const mn_plugin_record *r = mn_registry_plugins(rt->registry, &n);
    for (size_t k = 0; k < n; k++)
        if (names_plugin(variable, r[k].id))
            return true;
    return false;
}

/* A variable that nobody reads was meant as another; a plugin that is here may read any of its
 * own. */
static void warn_of_variables(const mn_runtime *rt) {
    const char *name = mn_config_variable(rt->config, 0);
    for (size_t i = 1; name; i++) {
        const char *nearest = mn_config_nearest(name);
        if (nearest)
            mn_log(MN_LOG_WARN, "environment: nothing reads %s; is %s meant?", name, nearest);
        else if (!is_of_plugin(rt, name))
            mn_log(MN_LOG_WARN,
                   "environment: nothing reads %s (`minerva config` lists what is read)", name);
        name = mn_config_variable(rt->config, i);
    }
}

static void tell_settings(const mn_config *cfg) {
    const char *name, *value, *origin;
    for (size_t i = 0; mn_config_at(cfg, i, &name, &value, &origin); i++)
        if (strcmp(origin, "default") != 0)
            mn_log(MN_LOG_DEBUG, "setting %s = %s (%s)", name, value, origin);
}

/* ---- plugins that hang or crash -------------------------------------------------------------- */

static uint64_t to_ms(uint64_t ns) {
    return ns / 1000000;
}

/* From the watch to the application. */
static void on_stuck(void *arg, const mn_call_seen *seen) {
    const mn_runtime *rt = arg;
    const mn_plugin_call call = {.plugin = seen->callee->id,
                                 .path = seen->callee->path,
                                 .call = seen->what,
                                 .waited_ms = to_ms(seen->waited_ns),
                                 .limit_ms = to_ms(seen->limit_ns),
                                 .is_step = seen->expected_ns != 0};
    rt->stuck(rt->callback_arg, &call);
}

/* A limit of mn_runtime_params in nanoseconds; key: of the setting. */
static uint64_t limit_of(const mn_runtime *rt, uint32_t given_ms, const char *key) {
    if (given_ms == MN_LIMIT_SETTING)
        return (uint64_t)(mn_config_get_float(rt->config, key) * 1e9);
    return given_ms * UINT64_C(1000000);
}

/* What the registry is to do about calls that hang and plugins that crash. */
static mn_containment containment(mn_runtime *rt, const mn_runtime_params *p) {
    enum { SAY_S = 5 };
    rt->stuck = p->stuck;
    return (mn_containment){
        .watch = {.say_ns = SAY_S * UINT64_C(1000000000),
                  .limit_ns = limit_of(rt, p->call_limit_ms, "call_timeout"),
                  .step_limit_ns = limit_of(rt, p->step_limit_ms, "step_timeout"),
                  .stuck = p->stuck ? on_stuck : NULL,
                  .arg = rt},
        .journal = p->flags & MN_RUNTIME_JOURNAL,
        .no_backends = p->flags & MN_RUNTIME_NO_BACKENDS};
}

int mn_plugin_call_now(mn_plugin_call *out) {
    const mn_callee *callee;
    const char *what;
    if (!out || !mn_call_now(&callee, &what, NULL))
        return 0;
    *out = (mn_plugin_call){.plugin = callee->id, .path = callee->path, .call = what};
    return 1;
}

int mn_plugin_crashed(int signal_number) {
    return mn_plugin_crashed_at(signal_number, NULL) & MN_CRASH_NOTED;
}

int mn_plugin_crashed_at(int signal_number, const void *address) {
    const bool wrote = signal_number == SIGSEGV && address && mn_sealed_has(address);
    const int noted = mn_journal_note(signal_number, wrote) ? MN_CRASH_NOTED : 0;
    return noted | (wrote ? MN_CRASH_WROTE : 0);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* From the log to the application. */
static void on_log(void *arg, int32_t level, const char *msg) {
    const mn_runtime *rt = arg;
    rt->log(rt->callback_arg, level, msg);
}

/* From a plugin, whose own share says nothing of the session's. */
static int32_t on_plugin_progress(void *arg, float done, mn_str what) {
    mn_runtime *rt = arg;
    (void)done;
    pthread_mutex_lock(&rt->progress_lock);
    const int32_t stop = rt->progress(rt->callback_arg, rt->progress_done, what.ptr);
    pthread_mutex_unlock(&rt->progress_lock);
    return stop;
}

/* The callback may call the library, which may report again. */
static void make_progress_lock(mn_runtime *rt) {
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&rt->progress_lock, &again);
    pthread_mutexattr_destroy(&again);
}

static void listen_to(mn_runtime *rt, const mn_runtime_params *p) {
    make_progress_lock(rt);
    rt->callback_arg = p->arg;
    rt->log = p->log;
    rt->progress = p->progress;
    rt->rank_lost = p->rank_lost;
    if (p->log)
        mn_log_to(on_log, rt);
}

static void warn_of_threads(uint32_t asked) {
    const uint32_t processors = mn_cpus_read("").processors;
    if (asked > processors)
        mn_log(
            MN_LOG_WARN,
            "threads: %u, on %u processors that this process may use: what is computed in shares "
            "uses %u of them at a time",
            asked, processors, processors);
}

/* Pool and registry, by the configuration. */
static mn_status open_parts(mn_runtime *rt, const mn_runtime_params *p, mn_error *err) {
    const uint32_t threads = (uint32_t)mn_config_get_int(rt->config, "threads");
    const mn_containment how = containment(rt, p);
    mn_log_level(mn_config_log_level(rt->config));
    tell_settings(rt->config);
    mn_status st = mn_pool_create(threads, &rt->pool, err);
    if (!st)
        warn_of_threads(threads);
    if (!st)
        st = mn_registry_create(rt->config, rt->pool, &how, &rt->registry, err);
    if (st)
        return st;
    if (rt->progress)
        mn_registry_on_progress(rt->registry, on_plugin_progress, rt);
    warn_of_variables(rt);
    return MN_OK;
}

mn_status mn_runtime_create(const mn_runtime_params *params, mn_runtime **out, mn_error *err) {
    mn_runtime_params p = {.size = sizeof p};
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"out", out}, {0}});
    if (!st)
        st = mn_args_take(MN_SIZED_RUNTIME_PARAMS, &p, params, err);
    if (!st)
        st = mn_args_flags(err, "mn_runtime_params.flags", p.flags,
                           MN_RUNTIME_JOURNAL | MN_RUNTIME_NO_BACKENDS);
    if (!st)
        st = check_settings(&p, err);
    if (st)
        return st;
    mn_runtime *rt = mn_calloc(1, sizeof *rt);
    if (!rt)
        return mn_fail_memory(err, sizeof *rt);
    listen_to(rt, &p);
    st = load_config(rt, &p, err);
    if (!st)
        st = open_parts(rt, &p, err);
    if (st)
        mn_runtime_free(rt);
    else
        *out = rt;
    return st;
}

void mn_runtime_free(mn_runtime *rt) {
    if (!rt || mn_pool_is_stranded(rt->pool))
        return;
    if (rt->registry)
        mn_registry_free(rt->registry);
    mn_ranks_free(rt->ranks);
    mn_pool_free(rt->pool);
    mn_config_free(rt->config);
    mn_log_release(rt);
    pthread_mutex_destroy(&rt->progress_lock);
    mn_free(rt);
}

mn_status mn_runtime_config(const mn_runtime *rt, uint32_t i, mn_config_item *out) {
    if (!rt || !out)
        return MN_INVALID;
    return mn_config_at(rt->config, i, &out->key, &out->value, &out->origin) ? MN_OK : MN_END;
}

mn_status mn_runtime_plugin(const mn_runtime *rt, uint32_t i, mn_plugin_item *out) {
    size_t n;
    if (!rt || !out)
        return MN_INVALID;
    const mn_plugin_record *r = mn_registry_plugins(rt->registry, &n);
    if (i >= n)
        return MN_END;
    r += i;
    *out = (mn_plugin_item){.path = r->path,
                            .id = r->id.ptr ? r->id.ptr : "",
                            .kind = r->kind,
                            .status = mn_record_status_name(r->status),
                            .reason = r->reason,
                            .abi = r->abi,
                            .version = r->version,
                            .vendor = r->vendor,
                            .probe = r->probe.text};
    return MN_OK;
}

/* Free memory now; 0 = unknown. A device that tells it only when opened is asked if it is open:
 * opening one for this question would start its driver and take the very memory. */
static uint64_t free_memory(mn_registry *reg, const mn_device_record *d) {
    const mn_plugin_record *p = d->plugin;
    const mn_backend *b = p->backend;
    mn_device_info now = {.size = sizeof now};
    uint64_t free_bytes = 0, total = 0;
    mn_status st = MN_OK;
    if (!d->usable)
        return 0;
    MN_WATCHED(p->callee, "device_info",
               st = b->device_info(p->plugin->self, d->index, &now, NULL));
    if (!st && now.mem_free)
        return now.mem_free;
    mn_device *device = mn_registry_device_opened(reg, d);
    if (!device)
        return 0;
    if (MN_HAS(mn_backend, b, device_memory))
        MN_WATCHED(p->callee, "device_memory",
                   st = b->device_memory(device, &free_bytes, &total, NULL));
    if (st)
        free_bytes = 0;
    mn_registry_device_release(reg, d, device);
    return free_bytes;
}

static const char *kind_of(uint32_t kind) {
    static const char *const names[] = {
        [MN_DEVICE_CPU] = "cpu", [MN_DEVICE_GPU] = "gpu", [MN_DEVICE_NPU] = "npu"};
    return kind < MN_COUNT(names) && names[kind] ? names[kind] : "other";
}

mn_status mn_runtime_device(const mn_runtime *rt, uint32_t i, mn_device_item *out) {
    size_t n;
    if (!rt || !out || mn_pool_is_stranded(rt->pool))
        return MN_INVALID;
    const mn_device_record *d = mn_registry_devices(rt->registry, &n);
    if (i >= n)
        return MN_END;
    d += i;
    *out = (mn_device_item){.name = d->name,
                            .plugin = d->plugin->id.ptr ? d->plugin->id.ptr : "",
                            .description = d->info.name,
                            .uid = d->info.uid,
                            .kind = kind_of(d->info.kind),
                            .reason = d->reason,
                            .mem_total = d->info.mem_total,
                            .mem_free = free_memory(rt->registry, d),
                            .usable = d->usable,
                            .retry_s = mn_registry_retry_s(rt->registry, d)};
    return MN_OK;
}

const char *mn_runtime_setting(const mn_runtime *rt, const char *key) {
    const char *value = rt && key ? mn_config_get_str(rt->config, key) : NULL;
    return value ? value : "";
}
uint32_t mn_runtime_threads(const mn_runtime *rt) {
    return rt ? mn_pool_workers(rt->pool) : 0;
}
