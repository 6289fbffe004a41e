/* rows_tiles8_amx.c -- products of some tens of x rows and more on AMX in class a8. */
#include "vec.h"
#include "tiles8.h"

/* Whole numbers of the span. Loads stand together: on cores where they do not overlap with
 * products, loads between products cost a sixth more (docs/lab/cpu-prompts.md). Behind each step
 * one tile of the block before is finished: the core has little else to do while tiles are
 * multiplied. */
INLINE void tiles8_multiply(const mnc_weight *w, const block *b, const block *before, const int nw,
                            const int nx) {
    TILES_ZERO();
    for (int64_t t = 0; t < b->s.tiles; t++) {
        const int64_t at = t * TILE_BYTES;
        ask_for(b->x[0] + at + FAR);
        if (nx > 1)
            ask_for(b->x[1] + at + FAR);
        TILE_LOAD(4, b->w[0] + at);
        TILE_LOAD(6, b->x[0] + at);
        if (nw > 1)
            TILE_LOAD(5, b->w[1] + at);
        if (nx > 1)
            TILE_LOAD(7, b->x[1] + at);
        TILE_MULTIPLY_BYTES(0, 4, 6);
        if (nw > 1)
            TILE_MULTIPLY_BYTES(1, 5, 6);
        if (nx > 1)
            TILE_MULTIPLY_BYTES(2, 4, 7);
        if (nw > 1 && nx > 1)
            TILE_MULTIPLY_BYTES(3, 5, 7);
        if (before)
            finish_tile(w, before, (int)t);
    }
    for (int64_t t = b->s.tiles; before && t < BLOCK_TILES; t++)
        finish_tile(w, before, (int)t);
    uint8_t *whole = b->whole;
    TILE_STORE(0, whole);
    if (nw > 1)
        TILE_STORE(1, whole + TILE_BYTES);
    if (nx > 1)
        TILE_STORE(2, whole + 2 * TILE_BYTES);
    if (nw > 1 && nx > 1)
        TILE_STORE(3, whole + 3 * TILE_BYTES);
}

static NOINLINE void multiply_bytes(const mnc_weight *w, room *at, const float *step,
                                    const mnk_pair *pair, int64_t r, columns of, int64_t y0,
                                    int64_t n, const weights_ahead *next) {
    multiply_panel(w, at, step, pair, r, of, y0, n, next,
                   (tile_products){byte_form, 1, tiles8_multiply, tiles8_finish});
}

MNK_BLOCKS(TILES8_PRODUCT, 0, multiply_bytes)
#define KERNEL(type, e, ...) [MNK_KERNEL_##type] = TILES8_KERNEL(type, e),
const mnk_linear V_ID(mnk_tiles8)[MNK_N_KERNELS] = {MNK_BLOCKS(KERNEL, )};
