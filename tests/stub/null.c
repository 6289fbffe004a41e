/* null.c -- the entry gives no plugin; with STUB_TEXT it says why. */
#include <minerva/plugin.h>
#include <string.h>

MN_PLUGIN_NOTE("null", MN_KIND_BACKEND, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    (void)host;
    (void)err;
#ifdef STUB_TEXT
    if (err && err->size >= sizeof *err)
        strcpy(err->msg, STUB_TEXT);
#endif
    return NULL;
}
