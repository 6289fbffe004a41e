/* refuse.c -- claims every op and refuses to compile RMS_NORM. */
#include "stub.h"

MN_PLUGIN_NOTE("refuse", MN_KIND_BACKEND, "");

static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        const mn_node *n =
            (const mn_node *)((const char *)c->graph->nodes + (uint64_t)i * c->graph->node_stride);
        if (n->op == MN_OP_RMS_NORM)
            return stub_fail(err, MN_UNSUPPORTED, i, "no RMS_NORM after all");
    }
    return stub_inner->compile(d, c, out, err);
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "refuse");
    stub_table.device_info = stub_boast;
    stub_table.estimate = stub_boast_estimate;
    stub_table.compile = compile;
    return p;
}
