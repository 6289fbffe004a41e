/* k_attention.cu -- attention of few rows: how heads, rows and splits are dealt to blocks, and the
 * kernels for keys and values that are both f32 or both f16 (attend.cuh). */
#include "attend.cuh"

/* Tiles that a warp asks for before the one that it reads. 0, 1 and 2: mistral-7b at 32,000
 * positions 308 to 321, 316 and 285 to 296 t/s. */
enum { TILES_AHEAD = 0 };

/* Heads that share keys, of f16 rows that a matrix unit may take. */
static bool by_tiles(const cu_attend *a, int group) {
    const int longest = a->c.pk > a->c.pv ? a->c.pk : a->c.pv;
    return a->rounds && a->c.dtype == MN_F16 && group > 1 && longest <= 128;
}
static void tiles_by_dim(cudaStream_t s, const attend_args *x, dim3 grid) {
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

template <class KT> static void by_rows(cudaStream_t s, const attend_args *x, dim3 grid) {
    if (x->a.one && x->per == 1)
        by_dim<KT, 1, true>(s, x, grid);
    else if (x->a.one)
        by_dim<KT, GROUP, true>(s, x, grid);
    else if (x->per == 1)
        by_dim<KT, 1, false>(s, x, grid);
    else
        by_dim<KT, GROUP, false>(s, x, grid);
}

/* One row over a short cache has a block per head: what counts is how long each takes. */
void cu_attend_run(mn_device *d, cudaStream_t s, const cu_attend *a) {
    const int group = a->H / a->c.Hkv;
    const int rows = a->apart ? a->n_seqs : a->c.T;
    const bool splits = (int64_t)rows * a->H <= 16 * d->sms && a->partial && a->max_splits > 1;
    const bool alone = a->one && a->c.T == 1 && a->c.P * CU_PAGE_TOKENS <= 4096;
    const bool tiles = !alone && by_tiles(a, group);
    int most = alone ? 1 : GROUP; /* heads of a block at once */
    if (tiles)
        most = TILE_HEADS;
    attend_args x = {*a, group, (group + most - 1) / most, 0, 0, 0};
    x.a.ahead = TILES_AHEAD;
    x.per = (group + x.parts - 1) / x.parts;
    x.parts = (group + x.per - 1) / x.per;
    while (1 << x.log_split < a->split)
        x.log_split++;
    const int64_t heads = (int64_t)a->c.Hkv * rows;
    const bool waves = heads * x.parts > 2 * d->sms; /* then a block does all parts of its heads */
    x.blocks = waves && a->one ? 1 : x.parts;
    const int blocks = x.parts * a->c.Hkv * rows;
    const int slices = 8 * d->sms / blocks + 1;
    dim3 grid(x.parts * a->c.Hkv, rows);
    if (a->one) {
        grid.x = x.blocks * a->c.T;
        grid.y = a->c.Hkv;
    }
    if (splits)
        grid.z = slices < a->max_splits ? slices : a->max_splits;
    if (tiles)
        tiles_by_dim(s, &x, grid);
    else if (a->c.dtype == MN_F32)
        by_rows<float>(s, &x, grid);
    else if (a->c.dtype == MN_F16)
        by_rows<__half>(s, &x, grid);
    else
        cu_attend_kept(s, &x, grid);
}
