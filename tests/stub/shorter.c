/* shorter.c -- the table ends before the last functions. */
#include "stub.h"

MN_PLUGIN_NOTE("shorter", MN_KIND_BACKEND, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "shorter");
    stub_table.size = offsetof(mn_backend, context_bind);
    return p;
}
