/* signals.c -- signal handlers and the environment are the process's own. A driver's compiler (LLVM
 * in PoCL, and in others) installs handlers when it first runs. PoCL sets a variable when it looks
 * for processors, and a loader of drivers writes into the value of the variable that lists them.
 * All of that is undone here. */
#include "opencl.h"
#include <stdlib.h>
#include <string.h>

static const char *const variables[OCL_N_VARIABLES] = {"HWLOC_PLUGINS_PATH", "OCL_ICD_FILENAMES",
                                                       "OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"};

void ocl_signals_keep(ocl_signals *kept) {
    for (int i = 0; i < OCL_N_VARIABLES; i++) {
        const char *value = getenv(variables[i]);
        kept->is_set[i] = value != NULL;
        kept->value[i] = NULL;
        if (value)
            kept->value[i] = strdup(value);
    }
    for (int i = 1; i < OCL_N_SIGNALS; i++)
        kept->known[i] = sigaction(i, NULL, &kept->action[i]) == 0;
}

/* Without memory for its value a variable stays as it is. */
static void restore_variable(const char *name, bool was_set, const char *was) {
    const char *is = getenv(name);
    if (!was_set && is)
        unsetenv(name);
    else if (was && (!is || strcmp(is, was) != 0))
        setenv(name, was, 1);
}

static bool is_same(const struct sigaction *a, const struct sigaction *b) {
    return a->sa_handler == b->sa_handler && a->sa_flags == b->sa_flags;
}

void ocl_signals_restore(ocl_signals *kept) {
    for (int i = 1; i < OCL_N_SIGNALS; i++) {
        struct sigaction now;
        if (!kept->known[i] || sigaction(i, NULL, &now))
            continue;
        if (!is_same(&now, &kept->action[i]))
            sigaction(i, &kept->action[i], NULL);
    }
    for (int i = 0; i < OCL_N_VARIABLES; i++) {
        restore_variable(variables[i], kept->is_set[i], kept->value[i]);
        free(kept->value[i]);
        kept->value[i] = NULL;
    }
}
