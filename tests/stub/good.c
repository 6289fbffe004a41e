/* good.c -- works. Tests take its file and spoil it: permissions, the machine and the instruction
 * sets that it names. */
#include "stub.h"

MN_PLUGIN_NOTE("good", MN_KIND_BACKEND, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return stub_enter(host, err, "good");
}
