/* panel.h -- what the products of byte panels (rows_panels8.c) and the tiles of an instruction
 * set share. A panel_*.h has PANEL_SIDE, PANEL_MOST, PANEL_PASSES (the numbers of x rows that a
 * tile may have, from half of PANEL_MOST on), PANEL_LAYOUTS and PANEL_LAYOUT_OF before it
 * includes this file; behind it panel_bias, panel_put8, tile and, where x is read in another
 * form, panel_x. */
#ifndef MNK_PANEL_H
#define MNK_PANEL_H
/* How a block of 32 columns lies in a panel; a constant after inlining. */
typedef struct {
    int group; /* columns of a scale */
    int min;   /* there are minima, too */
    int fit;   /* 0: numbers have 16 bits; else 8, and panel_avx2.h says more */
} panel_layout;

/* Bytes of a block's numbers, and of all: numbers, scales, minima if the layout has any. */
INLINE int64_t panel_number_bytes(const panel_layout l) {
    return (l.fit ? 32 : 64) * PANEL_SIDE;
}
INLINE int64_t panel_block_bytes(const panel_layout l) {
    const int floats = 32 / l.group * (1 + l.min);
    return panel_number_bytes(l) + 4 * PANEL_SIDE * floats;
}

/* What up to PANEL_BLOCKS blocks need of PANEL_MOST x rows beside their bytes: scales, and per
 * group of 16 or 32 columns without minima what the weights' bias adds, negative; with minima
 * the sum of x. In one place, because pointers to each row would not fit into the registers. */
enum { PANEL_BLOCKS = 16 };
typedef struct {
    float d[PANEL_MOST][PANEL_BLOCKS];
    union {
        int32_t seed[PANEL_MOST][2 * PANEL_BLOCKS];
        float sum[PANEL_MOST][2 * PANEL_BLOCKS];
    } of;
} panel_scales;
#endif
