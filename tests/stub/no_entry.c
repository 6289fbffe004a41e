/* no_entry.c -- a shared object that exports nothing. */
#include <minerva/plugin.h>

MN_PLUGIN_NOTE("no_entry", MN_KIND_BACKEND, "");
