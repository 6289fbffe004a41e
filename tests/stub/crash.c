/* crash.c -- dies by STUB_SIGNAL: in the entry, or with STUB_IN_LIST while it lists its devices, or
 * with STUB_IN_CONSTRUCTOR while it is opened. Standard output says a lie first: nothing that a
 * plugin prints is a report. */
#include "stub.h"
#include <signal.h>
#include <stdio.h>

MN_PLUGIN_NOTE(STUB_ID, MN_KIND_BACKEND, "");

static void die(void) {
    printf("ok\n");
    fflush(stdout);
    signal(STUB_SIGNAL, SIG_DFL); /* no sanitizer shall turn it into an exit code */
    raise(STUB_SIGNAL);
}
static inline mn_status die_in_list(void *self, uint32_t i, mn_device_info *info, mn_error *err) {
    (void)self;
    (void)i;
    (void)info;
    (void)err;
    die();
    return MN_OK;
}

#ifdef STUB_IN_CONSTRUCTOR
static __attribute__((constructor)) void at_load(void) {
    die();
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
#ifdef STUB_IN_ENTRY
    die();
#endif
    const mn_plugin *p = stub_enter(host, err, STUB_ID);
#ifdef STUB_IN_LIST
    stub_table.device_info = die_in_list;
#endif
    return p;
}
