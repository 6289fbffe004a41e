/* panel.h -- what the products of byte panels (rows_panels8.c) and the tiles of an instruction
 * set share. A panel_*.h has SIDE, MOST, PANEL_PASSES (the numbers of x rows that a tile may have,
 * from half of MOST on), PANEL_LAYOUTS and PANEL_LAYOUT_OF before it includes this file; behind it
 * panel_bias, panel_put8, tile and, where x is read in another form, panel_x. */
#ifndef MNK_PANEL_H
#define MNK_PANEL_H
/* How a block of 32 columns lies in a panel; a constant after inlining. */
typedef struct {
    int group; /* columns of a scale */
    int min;   /* there are minima, too */
    int fit;   /* 0: numbers have 16 bits; else 8, and panel_avx2.h says more */
} panel_layout;

/* Bytes of a block's numbers, and of all: numbers, scales, minima if the layout has any. */
INLINE int64_t number_bytes(const panel_layout l) {
    return (l.fit ? 32 : 64) * SIDE;
}
INLINE int64_t block_bytes(const panel_layout l) {
    const int floats = 32 / l.group * (1 + l.min);
    return number_bytes(l) + 4 * SIDE * floats;
}

/* What up to SPAN_BLOCKS blocks need of MOST x rows beside their bytes: scales, and per group of 16
 * or 32 columns without minima what the weights' bias adds, negative; with minima the sum of x. In
 * one place, because pointers to each row would not fit into the registers. */
enum { SPAN_BLOCKS = 16 };
typedef struct {
    float d[MOST][SPAN_BLOCKS];
    union {
        int32_t seed[MOST][2 * SPAN_BLOCKS];
        float sum[MOST][2 * SPAN_BLOCKS];
    } of;
} x_scales;
#endif
