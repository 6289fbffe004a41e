/* gemm.h -- the matrix product of many rows: Y_i = epilogue(X W_i^T + b_i), 16-bit operands, f32
 * sums. gemm.c chooses by shape; gemm_sm90.cuh, which gemm_maps.c feeds, runs on Hopper (tensor
 * copies and warpgroup products), gemm_mma.cu on every card from compute capability 8.0. What the
 * kernels share is in gemm_tile.cuh, and what they are launched with in gemm_args.h.
 *
 * X [rows, ld] and W_i [n_i, ld] are both f16 or both bf16; ld is a multiple of 64, elements from K
 * to ld are zeros, base addresses are multiples of 256 bytes. Y_i [rows, ld_y]: what lies behind
 * column n_i is written as zeros, so that y can be the x of a next product.
 * Of a segment that is a part of a wider one these columns are another part's, and stay as they
 * are.
 * NONE: y = v. ADD: y = residual + v in f32, one segment; residual is laid out like y and may be y.
 * GLU: seg[0] is gate, seg[1] up, of one n; y is seg[0]'s.
 *
 * Experts (offsets given): rows of x are sorted by expert; offsets[n_groups + 1], in device memory,
 * gives each expert's rows, the first starts at 0 and any may be empty. `rows` bounds the last
 * offset; rows behind it are read at most, never written. W_i is [n_groups, n_i, ld] and w_stride
 * elements apart, bias [n_groups, n_i]. No ADD.
 *
 * The same call gives the same bits. Calls launch one kernel, allocate nothing and do not wait, so
 * that they can be captured; an error is left to cudaPeekAtLastError. Scratch: zeroed once by the
 * caller, then left as it was found; for one call at a time. Without it nothing is split along k.
 */
#ifndef CU_GEMM_H
#define CU_GEMM_H
#include "kernels.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { CU_GEMM_MAX_GROUPS = 1024 };

typedef struct {
    const void *w;
    const float *bias; /* or NULL */
    void *y;
    int n, ld_y;
    bool part; /* columns n to ld_y are another's */
} cu_gemm_seg;
typedef struct {
    const void *x;
    int kind; /* of x and w: CU_HALF or CU_BF16 */
    int rows, K, ld;
    int epi, y_kind;
    int n_seg;
    bool late;    /* the successor starts once this kernel's input is there */
    bool fresh_w; /* the kernel before this one writes w: it must not be read ahead */
    cu_gemm_seg seg[CU_MAX_SEG];
    const float *residual;
    cu_glu glu;
    const int32_t *offsets; /* or NULL: one group of `rows` rows */
    int n_groups;
    int64_t w_stride;
    void *scratch; /* 256-byte aligned, or NULL */
    uint64_t scratch_bytes;
} cu_gemm;

/* Once for each device, the current one. */
void cu_gemm_init(const cu_card *d);
/* Enough for every product on this device. */
uint64_t cu_gemm_scratch(const cu_card *d);
void cu_gemm_run(const cu_card *d, cudaStream_t s, const cu_gemm *g);

/* ---- for tests and benchmarks ---------------------------------------------------------------- */
/* A way to run it. Shape: an index into cu_gemm_shapes, -1 = gemm_mma.cu. Split: the share of the
 * processors, in per cent, that a last wave of tiles may fill before it is left whole; 0 =
 * whole. */
typedef struct {
    int shape, split;
} cu_gemm_plan;
typedef struct {
    int rows, cols; /* of a tile */
    int deep;       /* blocks that share its k */
} cu_gemm_shape;
enum { CU_GEMM_SHAPES = 5 };
extern const cu_gemm_shape cu_gemm_shapes[CU_GEMM_SHAPES];
cu_gemm_plan cu_gemm_choose(const cu_card *d, const cu_gemm *g);
/* false: this device or these operands do not allow it, nothing was launched */
bool cu_gemm_sm90(const cu_card *d, cudaStream_t s, const cu_gemm *g, cu_gemm_plan plan);
void cu_gemm_mma(const cu_card *d, cudaStream_t s, const cu_gemm *g);
void cu_gemm_sm90_init(void);
void cu_gemm_mma_init(void);
#ifdef __cplusplus
}
#endif
#endif
