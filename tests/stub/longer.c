/* longer.c -- every struct and table is longer than the host's. With STUB_NEWER it also says that
 * it is of the next minor: from 1.0 on such a plugin works, below it is incompatible. */
#include "stub.h"

#ifdef STUB_NEWER
enum { STUB_ABI = MN_ABI_VERSION + 1 };
#undef MN_ABI_VERSION
#define MN_ABI_VERSION ((uint32_t)STUB_ABI)
#undef MN_ABI_OLDEST
#define MN_ABI_OLDEST MN_ABI_VERSION /* below 1.0; the host does not take it either way */
#define STUB_ID "newer"
#else
#define STUB_ID "longer"
#endif
MN_PLUGIN_NOTE(STUB_ID, MN_KIND_BACKEND, "");

static void never(void) {
    __builtin_trap();
}

typedef struct {
    mn_plugin api;
    uint64_t flags2;
    void (*fn[3])(void);
    const mn_plugin *inner; /* the stub's own */
    const mn_host *host;
} next_plugin;
static struct {
    mn_backend table;
    void (*fn[5])(void);
} table;

/* The functions that take the plugin's self. */
static void *inner(void *self) {
    return ((next_plugin *)self)->inner->self;
}
static mn_status device_count(void *self, uint32_t *n, mn_error *err) {
    return stub_inner->device_count(inner(self), n, err);
}
static mn_status device_info(void *self, uint32_t i, mn_device_info *info, mn_error *err) {
    return stub_inner->device_info(inner(self), i, info, err);
}
static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    return stub_inner->device_open(inner(self), i, params, out, err);
}
static mn_status contracts(void *self, const mn_op_contract **list, uint32_t *n, uint32_t *stride) {
    return stub_inner->contracts(inner(self), list, n, stride);
}
static mn_status reason(void *self, uint32_t why, char *buf, uint32_t cap) {
    return stub_inner->reason(inner(self), why, buf, cap);
}
static const void *query(void *self, const char *id) {
    (void)self;
    return strcmp(id, MN_BACKEND_ID) ? NULL : &table;
}
static void shut_down(void *self) {
    next_plugin *p = self;
    p->inner->shutdown(p->inner->self);
    p->host->release(p->host->self, p);
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, STUB_ID);
    next_plugin *next = p ? host->alloc(host->self, sizeof *next, 64) : NULL;
    if (!next) {
        if (p)
            p->shutdown(p->self);
        if (p)
            stub_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory");
        return NULL;
    }
    *next = (next_plugin){*p, ~0ull, {never, never, never}, p, host};
    next->api.size = sizeof *next;
    next->api.abi = MN_ABI_VERSION;
    next->api.self = next;
    next->api.query = query;
    next->api.shutdown = shut_down;
    table.table = stub_table;
    table.table.size = sizeof table;
    table.table.device_count = device_count;
    table.table.device_info = device_info;
    table.table.device_open = device_open;
    table.table.contracts = contracts;
    table.table.reason = reason;
    for (int i = 0; i < 5; i++)
        table.fn[i] = never;
    return &next->api;
}
