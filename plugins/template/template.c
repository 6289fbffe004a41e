/* template.c -- who the plugin is, what its device is like, and the table. Begin here. */
#include "template.h"
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* What the host reads without opening the file. The third: instruction sets that the WHOLE file
 * needs, "" = none. */
MN_PLUGIN_NOTE(T_ID, MN_KIND_BACKEND, "");

/* ---- errors, and outputs of the caller ------------------------------------------------------- */

/* "flag/key/tensor: found X, expected Y" reads well in a log. err may be NULL; its size is what the
 * host has room for. */
mn_status t_fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...) {
    if (!err)
        return status;
    mn_error e = {.status = status, .node = node};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e.msg, sizeof e.msg, fmt, ap);
    va_end(ap);
    /* names and options may hold anything */
    for (char *c = e.msg; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126)
            *c = '?';
    uint32_t capacity = err->size;
    t_give(err, capacity, &e, sizeof e);
    if (capacity > offsetof(mn_error, msg) && capacity < sizeof e)
        ((char *)err)[capacity - 1] = 0;
    return status;
}

mn_status t_no_memory(mn_error *err, uint64_t bytes, const char *what) {
    return t_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: %llu bytes for %s",
                  (unsigned long long)bytes, what);
}

/* R4: fill min(capacity, own size) bytes of the caller's struct, and say in its first field how
 * many. */
void t_give(void *dst, uint32_t capacity, void *src, uint32_t size) {
    if (capacity < size)
        size = capacity;
    memcpy(src, &size, sizeof size);
    memcpy(dst, src, size);
}

void t_see(void *to, uint32_t room, const void *params) {
    uint32_t size;
    memcpy(&size, params, sizeof size);
    memset(to, 0, room);
    memcpy(to, params, size < room ? size : room);
}

mn_status t_no_flags(uint64_t flags, const char *call, mn_error *err) {
    if (!flags)
        return MN_OK;
    return t_fail(err, MN_UNSUPPORTED, ~0u, "%s: flags 0x%llx are unknown", call,
                  (unsigned long long)flags);
}

/* ---- facts
 * --------------------------------------------------------------------------------------- The host
 * compares numbers, so state what is true and leave 0 what you do not know. */

static mn_status device_count(void *self, uint32_t *n, mn_error *err) {
    /* no driver, no device: *n = 0 and MN_OK, or MN_NO_DEVICE with a sentence that says why */
    (void)self;
    (void)err;
    *n = 1;
    return MN_OK;
}

static mn_status only_one(uint32_t i, mn_error *err) {
    return i ? t_fail(err, MN_NO_DEVICE, ~0u, "device %u; there is one", i) : MN_OK;
}

/* MemAvailable, in bytes; 0 = unknown. */
static uint64_t free_bytes(void) {
    unsigned long long kb = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && !kb && fgets(line, sizeof line, f))
        (void)!sscanf(line, "MemAvailable: %llu", &kb);
    if (f)
        fclose(f);
    return kb * 1024;
}
uint64_t t_total_bytes(void) {
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Cheap: called for every listing of devices, also of those that nobody will use. */
static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    (void)self;
    mn_status s = only_one(i, err);
    if (s)
        return s;
    mn_device_info d = {
        .kind = MN_DEVICE_OTHER, /* not MN_DEVICE_CPU: `--device cpu` shall not mean this one */
        .name = "Template device",
        .uid = T_UID,                 /* yours: a PCI address or UUID, the same after a reboot */
        .driver = T_ID " " T_VERSION, /* cached measurements are thrown away when it changes */
        /* devices with one pool share one memory: it is counted once */
        .mem_pool = "host",
        .align = T_ALIGN,
        /* both because our device memory is the host's */
        .flags = MN_DEVICE_UNIFIED | MN_DEVICE_WRAPS,
    };
    d.mem_total = d.max_alloc = t_total_bytes();
    d.mem_free = free_bytes();
    t_give(out, out->size, &d, sizeof d);
    return MN_OK;
}

static mn_status device_memory(mn_device *d, uint64_t *free_now, uint64_t *total, mn_error *err) {
    (void)d;
    (void)err;
    *free_now = free_bytes();
    *total = t_total_bytes();
    return MN_OK;
}

/* The first call that may touch the driver. Contexts, streams, compilers: here, not in the
 * entry. */
static mn_status device_open(void *self, uint32_t i, const mn_open_params *in, mn_device **out,
                             mn_error *err) {
    mn_open_params p;
    t_see(&p, sizeof p, in);
    mn_status s = only_one(i, err);
    if (!s && p.uid.len && (p.uid.len != strlen(T_UID) || memcmp(p.uid.ptr, T_UID, p.uid.len)))
        s = t_fail(err, MN_NO_DEVICE, ~0u, "the device is \"" T_UID "\", another one is meant");
    if (!s)
        s = t_no_flags(p.flags, "device_open", err);
    if (s)
        return s;
    mn_device *d = t_new(self, sizeof *d);
    if (!d)
        return t_no_memory(err, sizeof *d, "a device");
    d->plugin = self;
    *out = d;
    return MN_OK;
}
static void device_close(mn_device *d) {
    if (d)
        t_delete(d->plugin, d);
}

/* Run in another process before the plugin is believed: one small kernel with a known answer, on
 * the real device. */
static mn_status self_test(mn_device *d, mn_error *err) {
    (void)d;
    float x[2] = {3, 4};
    float y[2] = {0};
    uint8_t w16[4] = {0x00, 0x3c, 0x00, 0xc0}; /* f16: 1, -2 */
    t_weight w = {.data = w16, .dtype = MN_F16, .elem = 2, .rows = 1, .cols = 2};
    t_call c = {.in = {{x, NULL, 1, 2, 2}, {NULL, &w, 0, 0, 0}},
                .out = {{y, NULL, 1, 1, 1}},
                .n_in = 2,
                .n_out = 1};
    t_kernel_of(MN_OP_LINEAR)->run(&c, 0, 1);
    if (y[0] == -5)
        return MN_OK;
    return t_fail(err, MN_NO_DEVICE, ~0u, "self-test: 3*1 + 4*-2 is %g", (double)y[0]);
}

/* Ops and the newest contract version of each. A node of another op, or newer than this, is a no,
 * whatever supports() says. */
static mn_status contracts(void *self, const mn_op_contract **table, uint32_t *n,
                           uint32_t *stride) {
    const t_plugin *p = self;
    *table = p->contracts;
    *n = T_N_KERNELS;
    *stride = sizeof **table;
    return MN_OK;
}

static mn_status reason(void *self, uint32_t number, char *buf, uint32_t cap) {
    (void)self;
    if (cap)
        snprintf(buf, cap, "%s", number < T_N_REASONS ? t_reasons[number] : "");
    return MN_OK;
}

/* ---- the table -------------------------------------------------------------------------------
 * What plugin.h calls optional may be NULL, or not covered by size: device_memory, self_test,
 * reason, wrap, event_on_ready, abort, program_save and context_prepare. */
static const mn_backend backend = {
    .size = sizeof backend,
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_memory = device_memory,
    .self_test = self_test,
    .contracts = contracts,
    .supports = t_supports,
    .reason = reason,
    .estimate = t_estimate,
    .alloc = t_alloc,
    .wrap = t_wrap,
    .buffer_free = t_buffer_free,
    .map = t_map,
    .queue_create = t_queue_create,
    .queue_free = t_queue_free,
    .write = t_write,
    .read = t_read,
    .copy = t_copy,
    .wait = t_wait,
    .queue_wait = t_queue_wait,
    .event_free = t_event_free,
    .abort = t_abort,
    .weights_open = t_weights_open,
    .weights_put = t_weights_put,
    .weights_seal = t_weights_seal,
    .weights_free = t_weights_free,
    .memory_layout = t_memory_layout,
    .memory_copy = t_memory_copy,
    .compile = t_compile,
    .program_free = t_program_free,
    .program_save = t_program_save,
    .context_create = t_context_create,
    .context_bind = t_context_bind,
    .execute = t_execute,
    .context_free = t_context_free,
    /* context_prepare: optional, and execute has nothing to make ahead of time. */
};

/* ---- the entry ------------------------------------------------------------------------------- */

static const void *query(void *self, const char *id) {
    (void)self;
    if (!strcmp(id, MN_PROFILE_ID)) /* optional */
        return &t_profile;
    if (strcmp(id, MN_BACKEND_ID))
        return NULL;
    return &backend;
}

static void shutdown(void *self) {
    t_delete(self, self);
}

static mn_str str(const char *z) {
    return (mn_str){z, strlen(z)};
}

/* [plugin.template] workers = N in minerva.ini. A plugin reads no environment variable: options
 * come from the host. */
static mn_status read_options(t_plugin *p, mn_error *err) {
    mn_str v = {0};
    char text[16] = "";
    char end;
    if (!MN_HAS(mn_host, p->host, option))
        return MN_OK;
    if (!p->host->option(p->host->self, "workers", &v))
        return MN_OK;
    if (v.len < sizeof text)
        memcpy(text, v.ptr, v.len); /* mn_str has no NUL at its end */
    if (sscanf(text, "%u%c", &p->max_workers, &end) == 1 && p->max_workers)
        return MN_OK;
    return t_fail(err, MN_BAD_INPUT, ~0u,
                  "option workers: found \"%.*s\", expected a number of 1 or more",
                  (int)(v.len > 40 ? 40 : v.len), v.ptr);
}

/* Touches no driver, returns within 50 ms, keeps nothing in globals: two hosts in one process are
 * two selves. */
const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    /* Do the two sides understand each other? The first 16 bytes of mn_host mean the same for every
     * major. */
    uint32_t abi = 0;
    if (host)
        abi = host->abi;
    uint32_t oldest = 0;
    if (host)
        oldest = host->abi_min;
    if (abi >> 16 != MN_ABI_VERSION >> 16 || abi < MN_ABI_OLDEST || oldest > MN_ABI_VERSION) {
        t_fail(err, MN_UNSUPPORTED, ~0u, T_ID " is for ABI %u.%u, the host has %u.%u",
               MN_ABI_VERSION >> 16, MN_ABI_VERSION & 0xffff, abi >> 16, abi & 0xffff);
        return NULL;
    }
    if (!MN_HAS(mn_host, host, alloc) || !MN_HAS(mn_host, host, release) ||
        !MN_HAS(mn_host, host, parallel) || !MN_HAS(mn_host, host, workers)) {
        t_fail(err, MN_INVALID, ~0u, T_ID " needs the host's alloc, release, parallel and workers");
        return NULL;
    }
    t_plugin *p = host->alloc(host->self, sizeof *p, T_ALIGN);
    if (!p) {
        t_no_memory(err, sizeof *p, "the plugin");
        return NULL;
    }
    *p = (t_plugin){.host = host, .max_workers = UINT32_MAX};
    p->api = (mn_plugin){.size = sizeof p->api,
                         .abi = MN_ABI_VERSION,
                         .self = p,
                         .id = str(T_ID),
                         .vendor = str("Example Corp."),
                         .version = str(T_VERSION),
                         .build_id = str(T_VERSION " " __DATE__ " " __TIME__),
                         /* only without threads, atexit handlers and a driver that keeps some */
                         .flags = MN_PLUGIN_UNLOADABLE,
                         .query = query,
                         .shutdown = shutdown};
    for (int i = 0; i < T_N_KERNELS; i++) {
        p->contracts[i].op = t_kernels[i].op;
        p->contracts[i].contract = t_kernels[i].contract;
    }
    if (read_options(p, err)) {
        t_delete(p, p);
        return NULL;
    }
    return &p->api;
}
