/* gemm_args.h -- what the kernels of the matrix product are launched with, and the tables of the
 * kernels; gemm.c and gemm_maps.c fill in the former and choose from the latter. */
#ifndef CU_GEMM_ARGS_H
#define CU_GEMM_ARGS_H
#include "gemm.h"
#include <cuda.h>
#ifdef __cplusplus
extern "C" {
#endif
#ifdef __CUDACC__
#define CU_BOTH static __device__ /* also called by kernels */
#else
#define CU_BOTH static inline
#endif

typedef struct {
    const char *w;
    const float *bias;
    void *y;
    int n, ld, first; /* first: its first piece in the line */
    int end;          /* columns that are written */
    bool vectors;     /* rows of y (and residual) are whole vectors of four */
} gemm_segment;
typedef struct {
    gemm_segment seg[CU_MAX_SEG];
    const float *residual;
    bool fresh_w;
    const int32_t *offsets;
    int64_t w_stride;
    int rows;
    int n_seg;
    int n_groups;
    int pieces, col_tiles; /* pieces in the line; tiles (of a cluster) in the line */
    int band;              /* so many tiles of rows share the columns that are in the cache */
    int epi;
    int y_kind;
    int late;
    cu_glu glu;
} gemm_args;

/* Lays the segments of a product out in pieces; of gemm.c. */
void gemm_args_fill(gemm_args *a, const cu_gemm *g, int piece, int pieces_a_tile);
/* Tiles of rows at most, of experts any of which may be empty. */
int64_t gemm_row_tiles_most(const cu_gemm *g, int height);

/* ---- on every card (gemm_mma.cu) ------------------------------------------------------------- */
enum { GEMM_MMA_PIECE = 32, GEMM_MMA_COLS = 128 };
/* Tiles of 64 rows or (tall) 128. x, pitch: rows of x, and bytes between them and those of w. */
void gemm_mma_launch(cudaStream_t s, const gemm_args *a, bool tall, bool bf16, int64_t tiles,
                     const char *x, int64_t pitch);

/* ---- on Hopper (gemm_sm90.cuh) --------------------------------------------------------------- */
enum { GEMM_BLOCK_K = 64, GEMM_CONSUMERS = 2 };
/* Of a tile that is split: iterations of a part, parts (their sums are added one after the
 * other). */
enum { GEMM_SHORTEST = 4, GEMM_MOST_PARTS = 16 };

/* How tiles are dealt out: the first `split` of them, iteration by iteration, to so many workers;
 * the others whole. */
typedef struct {
    int tiles;
    int split;
    int workers;
} gemm_deal;
CU_BOTH gemm_deal gemm_deal_out(int tiles, int clusters, int iters, int most) {
    gemm_deal d = {tiles, 0, 0};
    const int rest = tiles % clusters;
    if (rest == 0 || rest * 100 > clusters * most)
        return d;
    const int parts =
        iters / GEMM_SHORTEST < GEMM_MOST_PARTS ? iters / GEMM_SHORTEST : GEMM_MOST_PARTS;
    int workers = rest * parts < clusters ? rest * parts : clusters;
    const int even = workers / rest * rest; /* every tile in as many parts, if that loses little */
    if (even * 16 >= workers * 15)
        workers = even;
    if (workers > rest) {
        d.split = rest;
        d.workers = workers;
    }
    return d;
}

typedef struct {
    CUtensorMap x, w[CU_MAX_SEG];
    gemm_args a;
    float *partial;  /* [blocks][consumers][sums of a thread / 4][128] float4 */
    unsigned *ready; /* [blocks][consumers]: partial is there */
    int iters;       /* k / 64 */
    int split;       /* cu_gemm_plan */
    gemm_deal dealt; /* where the host knows the tiles */
} gemm_params;

typedef struct {
    int piece;
    bool (*init)(void); /* false: built without code for 9.0 */
    void (*launch)(cudaStream_t s, const gemm_params *p, int blocks);
} gemm_kernel;
/* By cu_gemm_shapes. */
extern const gemm_kernel gemm_kernels_f16[CU_GEMM_SHAPES];
extern const gemm_kernel gemm_kernels_bf16[CU_GEMM_SHAPES];
#ifdef __cplusplus
}
#endif
#endif
