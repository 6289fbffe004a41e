/* icd.c -- the loader of OpenCL drivers, opened when somebody first asks for devices. It stays open
 * until shutdown: drivers keep threads of their own that do not survive a dlclose, so that the
 * library itself is never closed. */
#include "icd.h"
#include <dlfcn.h>

#define LIBRARY "libOpenCL.so.1"

/* Where each function's pointer lies in an ocl_icd, and its full name. */
static const struct {
    size_t at;
    const char *name;
} calls[] = {
#define ROW(name) {offsetof(ocl_icd, name), "cl" #name},
    OCL_CALLS(ROW)
#undef ROW
};
enum { N_CALLS = sizeof calls / sizeof *calls };

mn_status ocl_icd_open(ocl_icd *icd, mn_error *err) {
    if (icd->library)
        return MN_OK;
    ocl_icd all = {.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL)};
    if (!all.library)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "no OpenCL loader is installed (" LIBRARY ")");
    for (int i = 0; i < N_CALLS; i++) {
        void *function = dlsym(all.library, calls[i].name);
        if (!function)
            return mnp_fail(err, MN_NO_DEVICE, ~0u,
                            LIBRARY " has no %s: a loader for OpenCL 1.2 is needed", calls[i].name);
        memcpy((char *)&all + calls[i].at, &function, sizeof function);
    }
    *icd = all;
    return MN_OK;
}

void ocl_icd_close(ocl_icd *icd) {
    icd->library = NULL;
}
