/* signals.c -- signal handlers are the process's own: a driver's compiler (LLVM in PoCL, and in
 * others) installs handlers of its own when it first runs, which are taken out again here. So is
 * the environment, of which PoCL sets one variable when it looks for processors. */
#include "opencl.h"
#include <stdlib.h>

static const char variable[] = "HWLOC_PLUGINS_PATH";

void ocl_signals_keep(ocl_signals *kept) {
    kept->has_variable = getenv(variable) != NULL;
    for (int i = 1; i < OCL_N_SIGNALS; i++)
        kept->known[i] = sigaction(i, NULL, &kept->action[i]) == 0;
}

static bool is_same(const struct sigaction *a, const struct sigaction *b) {
    return a->sa_handler == b->sa_handler && a->sa_flags == b->sa_flags;
}

void ocl_signals_restore(const ocl_signals *kept) {
    for (int i = 1; i < OCL_N_SIGNALS; i++) {
        struct sigaction now;
        if (!kept->known[i] || sigaction(i, NULL, &now))
            continue;
        if (!is_same(&now, &kept->action[i]))
            sigaction(i, &kept->action[i], NULL);
    }
    if (!kept->has_variable && getenv(variable))
        unsetenv(variable);
}
