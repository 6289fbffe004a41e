/* k_attention_tiles.cu -- attention of few rows on matrix units: keys and values in f16, heads that
 * share keys (attend_tiles.cuh). */
#include "attend.cuh"

template <bool ONE> static void tiles_of(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    const int longest = x->a.c.pk > x->a.c.pv ? x->a.c.pk : x->a.c.pv;
    if (longest <= 64)
        launch(s, attend<tile_type, 1, TILE_HEADS, ONE>, grid, THREADS, 0, *x);
    else if (longest <= 128)
        launch(s, attend<tile_type, 2, TILE_HEADS, ONE>, grid, THREADS, 0, *x);
    else
        launch(s, attend_wide<ONE>, grid, THREADS, sizeof(wide_shared<ONE>), *x);
}

template <bool ONE> static void allow_wide() {
    cudaFuncSetAttribute((const void *)attend_wide<ONE>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)sizeof(wide_shared<ONE>));
}
void cu_attend_tiles_init(void) {
    allow_wide<false>();
    allow_wide<true>();
}

void cu_attend_tiles(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    if (x->a.one)
        tiles_of<true>(s, x, grid);
    else
        tiles_of<false>(s, x, grid);
}
