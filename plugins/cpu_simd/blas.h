/* blas.h -- OpenBLAS's sgemm, for f32 weights with many rows. */
#ifndef MNK_BLAS_H
#define MNK_BLAS_H
#include "rows.h"

/* One user of the library: a plugin instance with n threads. {0} before the first mnk_blas_open. */
typedef struct {
    bool asked;
    bool ok;
    uint32_t n;
} mnk_blas;

/* Whether the user's n threads may call mnk_blas_rows at the same time. The first call loads the
 * library, if nobody has, and reserves what those threads need; *why is then a few words on the
 * outcome, afterwards NULL. Any thread. */
bool mnk_blas_open(mnk_blas *user, uint32_t n, const char **why);
void mnk_blas_close(mnk_blas *user);
/* y = x W^T as mnk_linear_rows. false = this weight is not for sgemm. */
bool mnk_blas_rows(const mnc_weight *w, const float *x, int64_t r, float *y, int64_t ldy,
                   int64_t lo, int64_t hi);
#endif
