/* k_attention_tiles.cu -- attention of few rows on matrix units: keys and values in f16, heads that
 * share keys (attend_tiles.cuh). */
#include "attend.cuh"

void cu_attend_tiles(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    const bool one = x->a.one;
    if (x->a.c.pk <= 64 && x->a.c.pv <= 64)
        launch(s,
               one ? attend<tile_type, 1, TILE_HEADS, true>
                   : attend<tile_type, 1, TILE_HEADS, false>,
               grid, THREADS, 0, *x);
    else
        launch(s,
               one ? attend<tile_type, 2, TILE_HEADS, true>
                   : attend<tile_type, 2, TILE_HEADS, false>,
               grid, THREADS, 0, *x);
}
