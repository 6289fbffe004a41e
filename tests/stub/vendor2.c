/* vendor2.c -- see vendor2.h: the entry, the device, and what every file of the plugin reads the
 * host's structs by. */
#include "vendor2.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

MN_PLUGIN_NOTE("vendor2", MN_KIND_BACKEND, "");

/* ---- errors, memory, the graph's arrays ------------------------------------------------------ */
mn_status v2_fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...) {
    mn_error e = {sizeof e, status, 0, node, 0, {0}};
    if (!err)
        return status;
    va_list args;
    va_start(args, fmt);
    vsnprintf(e.msg, sizeof e.msg, fmt, args);
    va_end(args);
    if (err->size < sizeof e)
        e.size = err->size;
    memcpy(err, &e, e.size);
    if (e.size > offsetof(mn_error, msg))
        ((char *)err)[e.size - 1] = 0;
    return status;
}

void v2_read(void *to, uint32_t room, const void *params) {
    uint32_t size;
    memcpy(&size, params, sizeof size);
    memset(to, 0, room);
    memcpy(to, params, size < room ? size : room);
}

void *v2_make(const mn_host *h, uint64_t bytes) {
    void *p = h->alloc(h->self, bytes ? bytes : 1, 64);
    if (p)
        memset(p, 0, bytes);
    return p;
}
void v2_drop(const mn_host *h, void *p) {
    h->release(h->self, p);
}
mn_status v2_no_memory(mn_error *err) {
    return v2_fail(err, MN_OUT_OF_MEMORY, ~0u, "vendor2: out of memory");
}

const mn_node *v2_node(const mn_graph *g, uint32_t i) {
    return (const mn_node *)((const char *)g->nodes + (uint64_t)i * g->node_stride);
}
const mn_tensor *v2_tensor(const mn_graph *g, int32_t i) {
    return (const mn_tensor *)((const char *)g->tensors + (uint64_t)i * g->tensor_stride);
}
int32_t v2_in(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_in ? g->operands[n->in_off + i] : -1;
}
int32_t v2_out(const mn_graph *g, const mn_node *n, uint32_t i) {
    return g->operands[n->out_off + i];
}

int64_t v2_symbol(const mn_graph *g, const int64_t *value, uint32_t i) {
    const mn_symbol *s =
        (const mn_symbol *)((const char *)g->symbols + (uint64_t)i * g->symbol_stride);
    return s->base < 0 ? value[i] : value[s->base] * s->mul + s->add;
}
int64_t v2_dim(const mn_graph *g, const int64_t *value, const mn_tensor *t, uint32_t i) {
    return t->dim[i] < 0 ? v2_symbol(g, value, (uint32_t)~t->dim[i]) : t->dim[i];
}
uint64_t v2_count(const mn_graph *g, const int64_t *value, const mn_tensor *t, uint32_t from) {
    uint64_t n = 1;
    for (uint32_t i = from; i < t->n_dim; i++)
        if (__builtin_mul_overflow(n, (uint64_t)v2_dim(g, value, t, i), &n) || n >> 48)
            return UINT64_MAX;
    return n;
}

/* ---- discovery ------------------------------------------------------------------------------- */
#define V2_UID "vendor2-0"

static mn_status device_count(void *self, uint32_t *n, mn_error *err) {
    (void)self;
    (void)err;
    *n = 1;
    return MN_OK;
}

static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    (void)self;
    if (i)
        return v2_fail(err, MN_NO_DEVICE, ~0u, "vendor2: device %u; there is one", i);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    mn_device_info info = {.kind = MN_DEVICE_OTHER,
                           .name = "two ops in plain C",
                           .uid = V2_UID,
                           .driver = "vendor2 1",
                           .mem_pool = "host",
                           .align = 64,
                           .flags = MN_DEVICE_UNIFIED};
    info.mem_total = info.max_alloc = page * (uint64_t)sysconf(_SC_PHYS_PAGES);
    info.mem_free = page * (uint64_t)sysconf(_SC_AVPHYS_PAGES);
    info.size = out->size < sizeof info ? out->size : (uint32_t)sizeof info;
    memcpy(out, &info, info.size);
    return MN_OK;
}

static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    const mn_host *h = ((vendor *)self)->host;
    mn_open_params p;
    v2_read(&p, sizeof p, params);
    if (i || (p.uid.len && (p.uid.len != strlen(V2_UID) || memcmp(p.uid.ptr, V2_UID, p.uid.len))))
        return v2_fail(err, MN_NO_DEVICE, ~0u, "vendor2: device %u; there is one", i);
    if (p.flags)
        return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: unknown flag");
    mn_device *d = v2_make(h, sizeof *d);
    if (!d)
        return v2_no_memory(err);
    d->host = h;
    *out = d;
    return MN_OK;
}
static void device_close(mn_device *d) {
    if (d)
        v2_drop(d->host, d);
}

/* A driver would run a small kernel and copy its result back. */
static mn_status self_test(mn_device *d, mn_error *err) {
    (void)d;
    return v2_root(0.25) == 0.5
               ? MN_OK
               : v2_fail(err, MN_NO_DEVICE, ~0u, "vendor2: the square root of 1/4 is not 1/2");
}

/* ---- the entry ------------------------------------------------------------------------------- */
static const void *query(void *self, const char *id) {
    const vendor *v = self;
    return strcmp(id, MN_BACKEND_ID) ? NULL : &v->backend;
}
static void shut_down(void *self) {
    const mn_host *h = ((vendor *)self)->host;
    v2_drop(h, self);
}

#define STR(text)                                                                                  \
    { text, sizeof text - 1 }

/* What is called below; the rest of the host may be missing. */
static bool host_suffices(const mn_host *h) {
    return MN_HAS(mn_host, h, alloc) && MN_HAS(mn_host, h, release) &&
           MN_HAS(mn_host, h, parallel) && MN_HAS(mn_host, h, workers);
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    if (host->abi < MN_ABI_OLDEST || host->abi_min > MN_ABI_VERSION ||
        host->abi >> 16 != MN_ABI_VERSION >> 16) {
        v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: built for ABI %u.%u, the host has %u.%u",
                MN_ABI_VERSION >> 16, MN_ABI_VERSION & 0xffff, host->abi >> 16, host->abi & 0xffff);
        return NULL;
    }
    if (!host_suffices(host)) {
        v2_fail(err, MN_UNSUPPORTED, ~0u,
                "vendor2: needs alloc, release, parallel and workers of the host");
        return NULL;
    }
    vendor *v = v2_make(host, sizeof *v);
    if (!v) {
        v2_no_memory(err);
        return NULL;
    }
    v->host = host;
    v->backend.size = sizeof v->backend;
    v->backend.device_count = device_count;
    v->backend.device_info = device_info;
    v->backend.device_open = device_open;
    v->backend.device_close = device_close;
    v->backend.self_test = self_test;
    v2_add_negotiation(&v->backend);
    v2_add_memory(&v->backend);
    v2_add_programs(&v->backend);
    v->api = (mn_plugin){sizeof v->api,
                         MN_ABI_VERSION,
                         v,
                         STR("vendor2"),
                         STR("Minerva"),
                         STR("1"),
                         STR(__DATE__ " " __TIME__),
                         MN_PLUGIN_UNLOADABLE,
                         query,
                         shut_down};
    return &v->api;
}
