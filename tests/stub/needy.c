/* needy.c -- needs more memory than any machine has, and says so; asked to compile all the same, it
 * has none. */
#include "stub.h"

MN_PLUGIN_NOTE("needy", MN_KIND_BACKEND, "");

static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_status s = stub_boast_estimate(d, c, out, err);
    if (!s && out->size >= offsetof(mn_estimate, scratch) + sizeof out->scratch)
        out->scratch = 1ull << 50;
    return s;
}
static mn_status context_create(mn_program *p, const mn_context_params *params, mn_context **out,
                                mn_error *err) {
    (void)p;
    (void)params;
    (void)out;
    return stub_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: 1 PiB of scratch");
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "needy");
    stub_table.device_info = stub_boast;
    stub_table.estimate = estimate;
    stub_table.context_create = context_create;
    return p;
}
