/* panel.h -- what the products of byte panels (rows_a8_panels.inc) and the tiles of an instruction
 * set (panel_*.h, which has SIDE and MOST first) share. */
#ifndef MNK_PANEL_H
#define MNK_PANEL_H
/* Of 32 columns: bytes, scales, and minima if the type has any. */
static int64_t block_bytes(const int group, const int min) {
    const int floats = 32 / group * (1 + min);
    return 32 * SIDE + 4 * SIDE * floats;
}

/* What up to SPAN_BLOCKS blocks need of MOST x rows beside their bytes, per group of 16 or 32
 * columns: without minima what the weights' bias adds, negative; with minima the sum of x. */
enum { SPAN_BLOCKS = 64 };
typedef struct {
    union {
        int32_t seed[MOST][2 * SPAN_BLOCKS];
        float sum[MOST][2 * SPAN_BLOCKS];
    } of;
    const float *d[MOST];
} x_scales;
#endif
