/* lanes.h -- a second layout of weights, for products with up to MNK_LANES_ROWS rows of x:
 * MNK_LANES weight rows side by side, so that sums of as many rows are the lanes of registers, and
 * a scale meets all of them at once. A file's rows must be added up over lanes and scaled one by
 * one, which takes AVX2 longer than the memory. 256 columns at a time: first the scales of all
 * rows, then the numbers as the type has them, four bytes of each row in turn. */
#ifndef MNK_LANES_H
#define MNK_LANES_H
#include "rows.h"

enum {
    MNK_LANES = 16,
    MNK_LANES_SPAN = 256, /* columns; a row has whole spans */
    MNK_LANES_LINE = 4 * MNK_LANES,
    MNK_LANES_STREAMS = 4, /* groups of MNK_LANES rows that a thread reads side by side, at most */
    MNK_LANES_ROWS = 32,   /* of x, at most */
};
typedef struct {
    uint16_t d[8][MNK_LANES]; /* f16 */
    uint8_t q[8][4][MNK_LANES_LINE];
} mnk_lanes_q4_0;
typedef struct {
    uint16_t d[MNK_LANES];
    uint16_t dmin[MNK_LANES];
    uint8_t scale[8][MNK_LANES];
    uint8_t min[8][MNK_LANES];
} mnk_lanes_k;
typedef struct {
    mnk_lanes_k head;
    uint8_t q[4][8][MNK_LANES_LINE];
} mnk_lanes_q4_k;
typedef struct {
    mnk_lanes_k head;
    uint8_t high[8][MNK_LANES_LINE];
    uint8_t q[4][8][MNK_LANES_LINE];
} mnk_lanes_q5_k;
typedef struct {
    uint16_t d[MNK_LANES];
    uint8_t unused[2 * MNK_LANES]; /* lines begin at multiples of 64 */
    int8_t scale[16][MNK_LANES];
    struct { /* 128 columns, in the order in which they are read */
        uint8_t low[8][MNK_LANES_LINE];
        uint8_t high[8][MNK_LANES_LINE];
        uint8_t low_next[8][MNK_LANES_LINE];
    } half[2];
} mnk_lanes_q6_k;

/* Affine types of 4 bits, n columns of a scale. A span has a factor for its scales and one for its
 * offsets, powers of two as bf16, negative for these: what is left of them is f16, as exactly as
 * scales of f16 and bf16 are. */
#define MNK_LANES_MLX4(n)                                                                          \
    typedef struct {                                                                               \
        uint16_t d[MNK_LANES];                                                                     \
        uint16_t dmin[MNK_LANES];                                                                  \
        uint16_t scale[MNK_LANES_SPAN / n][MNK_LANES];                                             \
        uint16_t min[MNK_LANES_SPAN / n][MNK_LANES];                                               \
        uint8_t q[8][4][MNK_LANES_LINE];                                                           \
    } mnk_lanes_mlx4_##n;
MNK_LANES_MLX4(32)
MNK_LANES_MLX4(64)
MNK_LANES_MLX4(128)

/* X(ID, layout, columns that share a product's scale, how much too large numbers are, sums of two
 * products with bytes of x that fit into 16 bits, the largest number, columns of a minimum or 0):
 * the types that have it */
#define MNK_LANES_TYPES(X, ...)                                                                    \
    X(Q4_0, q4_0, 32, 8, 8, 15, 0, __VA_ARGS__)                                                    \
    X(Q4_K, q4_k, 32, 0, 8, 15, 32, __VA_ARGS__)                                                   \
    X(Q5_K, q5_k, 32, 0, 4, 31, 32, __VA_ARGS__)                                                   \
    X(Q6_K, q6_k, 16, 32, 2, 63, 0, __VA_ARGS__)                                                   \
    X(MLX4_32, mlx4_32, 32, 0, 8, 15, 32, __VA_ARGS__)                                             \
    X(MLX4_64, mlx4_64, 32, 0, 8, 15, 64, __VA_ARGS__)                                             \
    X(MLX4_128, mlx4_128, 32, 0, 8, 15, 128, __VA_ARGS__)
/* X(kernel): of types.h, each with one layout, or, of mlx4, one for each length of a group */
#define MNK_LANES_KERNELS(X) X(q4_0) X(q4_k) X(q5_k) X(q6_k) X(mlx4)

/* Bytes of [rows, cols]; 0: the type has no such layout, or rows are not whole spans. */
uint64_t mnk_lanes_bytes(uint32_t dtype, int64_t rows, int64_t cols);
/* [rows, cols] of w to `to`, 64-byte aligned. The last lanes may be no rows: they hold the last row
 * again. false: it is read as it is stored, since its scales are F32, which f16 would round. */
bool mnk_lanes_pack(const mnc_weight *w, uint8_t *to);
#endif
