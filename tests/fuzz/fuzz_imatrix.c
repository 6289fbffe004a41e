/* fuzz_imatrix.c -- a file of an importance matrix, in either form: it is read, or refused with a
 * sentence; what was read are weights above 0. */
#include "fuzz.h"
#include "convert/imatrix.h"
#include <math.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    mn_error err = MN_ERROR_INIT;
    mn_imatrix m = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/m.imatrix", fuzz_folder());
    fuzz_file("m.imatrix", (mn_str){(const char *)data, n}, 0);
    if (fuzz_ok(mn_imatrix_read(path, &m, &err), &err)) {
        fuzz_accepted = true;
        for (size_t i = 0; i < m.n; i++) {
            const mn_imatrix_entry *e = &m.at[i];
            FUZZ_CHECK(mn_imatrix_find(&m, e->name));
            for (uint64_t k = 0; k < e->n; k++)
                FUZZ_CHECK(isfinite(e->weights[k]) && e->weights[k] > 0);
            fuzz_answered(e->weights, (size_t)e->n * sizeof *e->weights);
        }
    }
    mn_imatrix_free(&m);
    fuzz_files_remove();
    return 0;
}
