/* f32_panel.h -- the product of rows of x with a panel of f32, for products of weights and for
 * scores of attention. A panel: [rows up to a multiple of NR, columns up to a multiple of VL], rows
 * `pl` floats apart. */
/* mr x rows against NR panel rows. */
INLINE void f32_tile(const float *p, int64_t pl, int64_t kc, const mnk_pair *pair, int64_t x0,
                     int64_t y0, int64_t n, bool first, const int mr) {
    VF acc[MR][NR];
    const uint8_t *x[MR];
    int64_t i = 0;
    for (int a = 0; a < mr; a++) {
        x[a] = pair[a].x + x0;
        for (int b = 0; b < NR; b++)
            acc[a][b] = v_set1(0);
    }
    for (; i + VL <= kc; i += VL) {
        VF xv[MR];
#pragma GCC unroll 8
        for (int a = 0; a < mr; a++)
            xv[a] = v_load(x[a] + 4 * i);
#pragma GCC unroll 8
        for (int b = 0; b < NR; b++) {
            VF wv = v_load(p + b * pl + i);
#pragma GCC unroll 8
            for (int a = 0; a < mr; a++)
                acc[a][b] = v_fma(wv, xv[a], acc[a][b]);
        }
    }
    if (i < kc)
        for (int a = 0; a < mr; a++) {
            const int64_t left = 4 * (kc - i);
            float xt[VL] = {0};
            memcpy(xt, x[a] + 4 * i, (size_t)left);
            for (int b = 0; b < NR; b++) {
                const VF weight = v_load(p + b * pl + i);
                acc[a][b] = v_fma(weight, v_load(xt), acc[a][b]);
            }
        }
#pragma GCC unroll 8
    for (int a = 0; a < mr; a++) {
        float sum[NR];
        float *y = pair[a].y + y0;
#pragma GCC unroll 8
        for (int b = 0; b < NR; b++)
            sum[b] = v_sum(acc[a][b]);
        for (int64_t b = 0; b < n; b++)
            y[b] = (first ? 0.0f : y[b]) + sum[b];
    }
}
/* of a number of rows that is known to the compiler */
#define TILE(mr) f32_tile(p, pl, kc, pair + i, x0, y0 + j, nj, first, mr)
static void f32_multiply(const void *panel, int64_t pl, int64_t n, int64_t kc, const mnk_pair *pair,
                         int64_t x0, int64_t r, int64_t y0, bool first) {
    for (int64_t i = 0; i < r; i += MR)
        for (int64_t j = 0; j < n; j += NR) {
            const float *p = (const float *)panel + j * pl;
            const int64_t nj = n - j < NR ? n - j : NR;
            switch (r - i < MR ? r - i : MR) {
            case 1:
                TILE(1);
                break;
            case 2:
                TILE(2);
                break;
            case 3:
                TILE(MR < 3 ? MR : 3);
                break;
            default:
                TILE(MR);
                break;
            }
        }
}
