/* probe_main.h -- the parts of minerva-probe among themselves. */
#ifndef MN_PROBE_MAIN_H
#define MN_PROBE_MAIN_H
#include "registry/internal.h"

/* Lines of the report, written at once. */
void probe_tell(const char *key, const char *fmt, ...) MN_PRINTF(2, 3);
void probe_phase(const char *doing);

/* probe_loader.c: shows a loader files that are none of any format, which it must not claim, and
 * small models, which it must open if it claims them. false = it failed, with the reason. */
bool probe_loader(const mn_plugin_record *rec, mn_error *err);
#endif
