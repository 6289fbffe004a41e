/* self_test.c -- finds by itself that its device is broken. */
#include "stub.h"

MN_PLUGIN_NOTE("self_test", MN_KIND_BACKEND, "");

static mn_status self_test(mn_device *d, mn_error *err) {
    (void)d;
    return stub_fail(err, MN_NO_DEVICE, ~0u, "two and two make five");
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "self_test");
    stub_table.device_info = stub_boast;
    stub_table.self_test = self_test;
    return p;
}
