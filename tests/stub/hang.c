/* hang.c -- never comes back: from a constructor, from the entry (STUB_IN_ENTRY), from the list of
 * devices (STUB_IN_LIST), or from the self-test (STUB_IN_TEST). */
#include "stub.h"
#include <unistd.h>

MN_PLUGIN_NOTE(STUB_ID, MN_KIND_BACKEND, "");

static void hang(void) {
    for (;;)
        pause();
}
static inline mn_status hang_in_list(void *self, uint32_t *n, mn_error *err) {
    (void)self;
    (void)n;
    (void)err;
    hang();
    return MN_OK;
}
static inline mn_status hang_in_test(mn_device *d, mn_error *err) {
    (void)d;
    (void)err;
    hang();
    return MN_OK;
}

#ifdef STUB_IN_CONSTRUCTOR
static __attribute__((constructor)) void at_load(void) {
    hang();
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
#ifdef STUB_IN_ENTRY
    hang();
#endif
    const mn_plugin *p = stub_enter(host, err, STUB_ID);
#ifdef STUB_IN_LIST
    stub_table.device_count = hang_in_list;
#endif
#ifdef STUB_IN_TEST
    stub_table.self_test = hang_in_test;
#endif
    return p;
}
