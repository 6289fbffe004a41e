/* longer.c -- every struct and table is longer than the host's. With STUB_NEWER it also says that it is of the next minor:
 * from 0.9 on such a plugin works, below it is incompatible. */
#include "stub.h"

#ifdef STUB_NEWER
enum { STUB_ABI = MN_ABI_VERSION + 1 };
#undef MN_ABI_VERSION
#define MN_ABI_VERSION ((uint32_t)STUB_ABI)
#define STUB_ID "newer"
#else
#define STUB_ID "longer"
#endif
MN_PLUGIN_NOTE(STUB_ID, MN_KIND_BACKEND, "")

static void never(void) { __builtin_trap(); }

typedef struct {
    mn_plugin api;
    uint64_t flags2;
    void (*fn[3])(void);
} next_plugin;
typedef struct {
    mn_backend table;
    void (*fn[5])(void);
} next_backend;

static next_backend table;
static const void *query(void *self, const char *id) {
    (void)self;
    return strcmp(id, MN_BACKEND_ID) ? NULL : &table;
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    static next_plugin plugins[16]; /* hosts in one process; the sixteenth is one too many */
    static uint32_t n;
    const mn_plugin *p = stub_enter(host, err, STUB_ID);
    if (!p || n == 16) return NULL;
    next_plugin *next = &plugins[n++];
    *next = (next_plugin){*p, ~0ull, {never, never, never}};
    next->api.size = sizeof *next;
    next->api.abi = MN_ABI_VERSION;
    next->api.query = query;
    table = (next_backend){stub_table, {never, never, never, never, never}};
    table.table.size = sizeof table;
    return &next->api;
}
