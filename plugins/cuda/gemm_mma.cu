/* gemm_mma.cu -- the matrix product with what every card from compute capability 8.0 has: cp.async
 * into three stages of shared memory, ldmatrix, mma.sync m16n8k16. A block computes one tile; its
 * eight warps are four along the rows and two along the columns. Rows in shared memory are 128
 * bytes, their eight vectors in an order that depends on the row, so that both the copies and
 * ldmatrix reach all banks. */
#include "gemm_tile.cuh"
#include "ptx.cuh"

enum {
    STAGES = 3,
    COLS = GEMM_MMA_COLS,
    PIECE = GEMM_MMA_PIECE,
    BLOCK_K = 64,
    ROW_BYTES = 128,
    WARP_COLS = 64
};

/* Byte of vector v (16 bytes) of a row. */
__device__ __forceinline__ uint32_t place(int row, int v) {
    return row * ROW_BYTES + ((v ^ row) & 7) * 16;
}

/* What a thread copies of each stage: vector threadIdx % 8 of every 32nd row. */
template <int ROWS> struct source { const char *x[ROWS / 32], *w[COLS / 32]; /* NULL: zeros */ };

/* x, pitch: rows of x, and bytes between them, which is also the distance of rows of w. */
template <int ROWS>
__device__ __forceinline__ source<ROWS> source_of(const gemm_args &a, const char *x, int64_t pitch,
                                                  const gemm_tile &t) {
    const int row = threadIdx.x / 8;
    const int v = threadIdx.x % 8;
    source<ROWS> s;
#pragma unroll
    for (int i = 0; i < ROWS / 32; i++) {
        const int r = t.row + row + 32 * i;
        s.x[i] = r < t.end ? x + r * pitch + v * 16 : NULL;
    }
#pragma unroll
    for (int i = 0; i < COLS / 32; i++) {
        const int in_tile = row + 32 * i;
        const gemm_place at = gemm_place_of<PIECE>(a, t.piece + in_tile / PIECE);
        const gemm_segment &seg = a.seg[at.seg];
        const int c = at.col + in_tile % PIECE;
        const int64_t group_at = a.offsets ? t.group * a.w_stride * 2 : 0;
        const char *w = seg.w + group_at;
        s.w[i] = c < seg.n ? w + c * pitch + v * 16 : NULL;
    }
    return s;
}

/* The vector of stage k; from NULL: zeros. any: an address that may be read. */
__device__ __forceinline__ void copy_vector(uint32_t to, const char *from, const char *any, int k) {
    const bool live = from != NULL;
    copy16(to, live ? from + k * ROW_BYTES : any, live);
}

template <int ROWS>
__device__ __forceinline__ void copy_stage(const source<ROWS> &s, const char *any, uint32_t to,
                                           int k) {
    const int row = threadIdx.x / 8;
    const int v = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < ROWS / 32; i++)
        copy_vector(to + place(row + 32 * i, v), s.x[i], any, k);
#pragma unroll
    for (int i = 0; i < COLS / 32; i++) {
        copy_vector(to + place(ROWS + row + 32 * i, v), s.w[i], any, k);
    }
}

template <bool BF, int ROWS>
__global__ void __launch_bounds__(256) gemm_tiles_mma(gemm_args a, const char *x, int64_t pitch) {
    constexpr int KIND = BF ? CU_BF16 : CU_HALF;
    constexpr int MT = ROWS / 64;
    constexpr int STAGE_BYTES = (ROWS + COLS) * ROW_BYTES;
    extern __shared__ __align__(128) char raw[];
    __shared__ int starts[CU_GEMM_MAX_GROUPS + 1];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int warp_row = warp / 2 * (16 * MT);
    const int warp_col = warp % 2 * WARP_COLS;
    const int iters = (int)(pitch / ROW_BYTES);
    const uint32_t data = (uint32_t)__cvta_generic_to_shared(raw);
    if (!a.late)
        cu_next();
    cu_wait();
    if (a.late)
        cu_next();
    if (a.offsets) {
        if (warp == 0)
            gemm_starts(a, ROWS, starts);
        __syncthreads();
    }
    if ((int)blockIdx.x >= gemm_tiles(a, ROWS, starts))
        return;
    const gemm_tile t = gemm_tile_at(a, ROWS, COLS / PIECE, starts, blockIdx.x);
    const source<ROWS> s = source_of<ROWS>(a, x, pitch, t);
    float d[MT][WARP_COLS / 2];
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int i = 0; i < WARP_COLS / 2; i++)
            d[m][i] = 0;
    }
#pragma unroll
    for (int k = 0; k < STAGES - 1; k++) {
        if (k < iters)
            copy_stage<ROWS>(s, x, data + k * STAGE_BYTES, k);
        copy_commit();
    }
    for (int k = 0; k < iters; k++) {
        copy_wait<STAGES - 2>();
        __syncthreads(); /* stage k is there, and everybody is done with stage k - 1 */
        const int next = k + STAGES - 1;
        if (next < iters)
            copy_stage<ROWS>(s, x, data + next % STAGES * STAGE_BYTES, next);
        copy_commit();
        const uint32_t at = data + k % STAGES * STAGE_BYTES;
#pragma unroll
        for (int j = 0; j < BLOCK_K / 16; j++) {
            uint32_t xs[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const int row = warp_row + 16 * m + lane % 16;
                load_matrices(xs[m], at + place(row, 2 * j + lane / 16));
            }
#pragma unroll
            for (int n = 0; n < WARP_COLS / 16; n++) {
                const int row = warp_col + 16 * n + lane / 16 * 8 + lane % 8;
                uint32_t ws[4];
                load_matrices(ws, at + place(ROWS + row, 2 * j + lane / 8 % 2));
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    float *sums = d[m] + 8 * n;
                    mma<KIND>(sums, xs[m], ws);
                    mma<KIND>(sums + 4, xs[m], ws + 2);
                }
            }
        }
    }
    copy_wait<0>();
    __syncthreads();
    float *staging = (float *)raw + warp * GEMM_STAGING;
    const int piece = t.piece + warp_col / PIECE;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        gemm_finish_staged<PIECE, WARP_COLS>(a, d[m], staging, t.group, t.row + warp_row + 16 * m,
                                             t.end, piece);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */
typedef void (*kernel)(gemm_args, const char *, int64_t);
/* by rows of a tile (64, 128) and type (f16, bf16) */
static const kernel kernels[2][2] = {{gemm_tiles_mma<false, 64>, gemm_tiles_mma<true, 64>},
                                     {gemm_tiles_mma<false, 128>, gemm_tiles_mma<true, 128>}};

static int smem_of(int rows) {
    return STAGES * (rows + COLS) * ROW_BYTES;
}

void cu_gemm_mma_init(void) {
    for (int i = 0; i < 2; i++) {
        for (int bf = 0; bf < 2; bf++) {
            cudaFuncSetAttribute(kernels[i][bf], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 smem_of(64 << i));
        }
    }
}

void gemm_mma_launch(cudaStream_t s, const gemm_args *a, bool tall, bool bf16, int64_t tiles,
                     const char *x, int64_t pitch) {
    const size_t smem = (size_t)smem_of(tall ? 128 : 64);
    launch(s, kernels[tall][bf16], dim3((unsigned)tiles), 256, smem, *a, x, pitch);
}
