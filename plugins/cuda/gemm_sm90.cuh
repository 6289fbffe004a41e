/* gemm_sm90.cuh -- the matrix product on Hopper. A block is one producer warpgroup, of which one
 * thread asks the copy engine for tiles of x and W, and two consumer warpgroups that multiply them
 * (wgmma, sums in registers). Stages of 64 k wait in shared memory between them, in rows of 128
 * bytes with the engine's 128-byte swizzle. Blocks stay for the whole product.
 *
 * Tiles that would not fill the processors once more are split along k: the line of their
 * iterations is dealt out evenly. A block that ends inside a tile leaves its sums in the scratch;
 * the block that has the tile's end adds them in a fixed order. It only ever waits for blocks with
 * smaller numbers, which began earlier and do that part first. Where tiles are so few that two
 * blocks can have each, the two are a cluster, halve k and trade halves of the sums through each
 * other's shared memory (DEEP).
 *
 * What bounds it: a tile of 128 x 256 reads and writes as many bytes of shared memory as its
 * products take time, smaller tiles more. */
#ifndef CU_GEMM_SM90_CUH
#define CU_GEMM_SM90_CUH
#include "gemm_tile.cuh"
#include "ptx.cuh"

enum { BLOCK_K = GEMM_BLOCK_K, CONSUMERS = GEMM_CONSUMERS, THREADS = 128 * (1 + CONSUMERS) };

/* ---- who computes what ----------------------------------------------------------------------- */
/* Iterations [k0, k1) of a tile. */
struct work {
    int tile;
    int k0;
    int k1;
};
struct schedule {
    gemm_deal d;
    int iters, stride, self; /* stride: clusters (or blocks); self: this one */
    int k0, k1;              /* this block's iterations of a whole tile */
};

/* DEPTH blocks share a tile's k. */
template <bool BF_, int ROWS_, int COLS_, int DEPTH_, int STAGES_> struct shape {
    static constexpr bool BF = BF_;
    static constexpr int ROWS = ROWS_;
    static constexpr int COLS = COLS_;
    static constexpr int DEPTH = DEPTH_;
    static constexpr int STAGES = STAGES_;
    static constexpr bool DEEP = DEPTH == 2;
    static constexpr int WHOLE_PIECE = COLS == 192 ? 96 : 64;
    static constexpr int PIECE = DEEP ? COLS / 4 : WHOLE_PIECE;
    static constexpr int PIECES = COLS / PIECE;
    static constexpr int X_BYTES = ROWS * 128;
    static constexpr int W_BYTES = COLS * 128;
    static constexpr int STAGE_BYTES = X_BYTES + W_BYTES;
    /* a consumer has 64 rows and all columns, or all 64 rows and half of the columns */
    static constexpr bool BY_COLUMNS = ROWS == 64;
    static constexpr int PART = BY_COLUMNS ? COLS / 2 : COLS;
    static constexpr int SUMS = PART / 2; /* of a thread */
    static constexpr int STAGING_BYTES = CONSUMERS * 4 * GEMM_STAGING * (int)sizeof(float);
    /* DEEP: half of the sums come from the other block, [consumers][sums / 8][128] float4 */
    static constexpr int HALF_BYTES = SUMS / 2 * 128 * (int)sizeof(float);
    static constexpr int OTHER_BYTES = DEEP ? CONSUMERS * HALF_BYTES : 0;
    static constexpr int SMEM = STAGES * STAGE_BYTES + STAGING_BYTES + OTHER_BYTES + 1024;
    static_assert(DEPTH == 1 || (DEEP && !BY_COLUMNS), "halves of columns");
};

/* Below 2^31: less than 2^9 workers, tiles, and iterations of a tile below 2^10. */
__device__ __forceinline__ int share(const schedule &s, int worker) {
    const unsigned iters = (unsigned)(worker * s.d.split * s.iters);
    return (int)(iters / (unsigned)s.d.workers);
}

/* The i-th work of this cluster; false: there is none. */
__device__ __forceinline__ bool work_at(const schedule &s, int i, work *w) {
    if (s.self < s.d.workers) {
        const int from = share(s, s.self);
        const int to = share(s, s.self + 1);
        const int last = (to - 1) / s.iters;
        const int begin = last * s.iters;
        const bool two = from < begin;
        if (i == 0) {
            *w = work{last, two ? 0 : from - begin, to - begin};
            return true;
        }
        if (i == 1 && two) {
            *w = work{last - 1, from - begin + s.iters, s.iters};
            return true;
        }
        i -= two ? 2 : 1;
    }
    const int tile = s.d.split + s.self + i * s.stride;
    *w = work{tile, s.k0, s.k1};
    return w->tile < s.d.tiles;
}

#ifdef CU_SM90A
/* ---- copies ---------------------------------------------------------------------------------- */
__device__ __forceinline__ void prefetch_map(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* A box of the tensor at (k, row, group) to shared memory, counted as bytes by the barrier. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, uint32_t bar, int k,
                                         int row, int group) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(k), "r"(row), "r"(group)
                 : "memory");
}

/* ---- producer -------------------------------------------------------------------------------- */
/* Shared memory of the block; the same places in every block. */
struct stages {
    uint32_t data, full, empty; /* full, empty: barriers, 8 bytes each */
    float *staging;             /* of the epilogue: GEMM_STAGING for each warp of the consumers */
    const char *other;          /* DEEP: sums of the other block */
    uint32_t came, taken;       /* of each consumer: they are here; the ones sent are used up */
};

/* What a tile is made of. */
template <class S> struct loads {
    const CUtensorMap *map[S::PIECES];
    int col[S::PIECES];
    int row;
    int group;
};

template <class S>
__device__ __forceinline__ loads<S> loads_of(const gemm_params &p, const gemm_tile &t) {
    loads<S> l;
    l.row = t.row;
    l.group = t.group;
#pragma unroll
    for (int i = 0; i < S::PIECES; i++) {
        const gemm_place at = gemm_place_of<S::PIECE>(p.a, t.piece + i);
        l.map[i] = &p.w[at.seg];
        l.col[i] = at.col;
    }
    return l;
}

template <class S>
__device__ __forceinline__ void load_w(const loads<S> &l, const stages &m, int stage, int k) {
    const uint32_t to = m.data + stage * S::STAGE_BYTES + S::X_BYTES;
    const uint32_t full = m.full + 8 * stage;
#pragma unroll
    for (int i = 0; i < S::PIECES; i++) {
        const uint32_t piece = to + i * (S::PIECE * 128);
        copy_box(piece, l.map[i], full, k, l.col[i], l.group);
    }
}

/* One thread. Weights do not depend on the predecessor: the first stages ask for them before it is
 * over. */
template <class S>
__device__ __forceinline__ void produce(const gemm_params &p, const schedule &s, const stages &m,
                                        const int *starts) {
    int stage = 0;
    int early = 0;
    uint32_t parity = 1; /* a fresh barrier's phase before the first counts as over */
    work w;
    for (int i = 0; work_at(s, i, &w); i++) {
        const gemm_tile t = gemm_tile_at(p.a, S::ROWS, S::PIECES, starts, w.tile);
        const loads<S> l = loads_of<S>(p, t);
        if (i == 0) {
            if (p.a.fresh_w)
                cu_wait();
            early = min(S::STAGES, w.k1 - w.k0);
            for (int k = 0; k < early; k++) {
                barrier_expect(m.full + 8 * k, S::STAGE_BYTES);
                load_w<S>(l, m, k, (w.k0 + k) * BLOCK_K);
            }
            cu_wait();
        }
        for (int k = w.k0; k < w.k1; k++) {
            const uint32_t full = m.full + 8 * stage;
            if (early > 0) {
                early--;
            } else {
                barrier_wait(m.empty + 8 * stage, parity);
                barrier_expect(full, S::STAGE_BYTES);
                load_w<S>(l, m, stage, k * BLOCK_K);
            }
            const uint32_t x = m.data + stage * S::STAGE_BYTES;
            copy_box(x, &p.x, full, k * BLOCK_K, l.row, 0);
            if (++stage == S::STAGES) {
                stage = 0;
                parity ^= 1;
            }
        }
    }
}

/* ---- consumers ------------------------------------------------------------------------------- */
/* Who a consumer's thread is; depth: which half of k its block has. */
struct place {
    int consumer;
    int warp;
    int depth;
};

__device__ __forceinline__ void group_sync(int consumer) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");
}

__device__ __forceinline__ void add_four(float *d, float4 v) {
    d[0] += v.x;
    d[1] += v.y;
    d[2] += v.z;
    d[3] += v.w;
}

/* A consumer's sums in the scratch. */
template <class S>
__device__ __forceinline__ float4 *partial_of(const gemm_params &p, int block, int consumer) {
    const int64_t part = (int64_t)block * CONSUMERS + consumer;
    float4 *sums = (float4 *)p.partial + part * (S::SUMS / 4) * 128;
    return sums + threadIdx.x % 128;
}

/* Leaves the sums for the block that has the tile's end. */
template <class S>
__device__ __forceinline__ void leave(const gemm_params &p, const float *d, int consumer) {
    unsigned *ready = p.ready + blockIdx.x * CONSUMERS + consumer;
    float4 *to = partial_of<S>(p, blockIdx.x, consumer);
#pragma unroll
    for (int i = 0; i < S::SUMS / 4; i++)
        __stcg(to + i * 128, gemm_four(d + 4 * i));
    group_sync(consumer);
    if (threadIdx.x % 128 == 0)
        asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(ready) : "memory");
}

/* Adds what the blocks before this one left of the tile, and takes their marks back. */
template <class S>
__device__ __forceinline__ void collect(const gemm_params &p, const schedule &s, const work &w,
                                        float *d, int consumer) {
    const int begin = w.tile * s.iters;
    for (int block = s.self - 1; block >= 0 && share(s, block + 1) > begin; block--) {
        unsigned *ready = p.ready + block * CONSUMERS + consumer;
        if (threadIdx.x % 128 == 0) {
            unsigned seen = 0;
            while (!seen) {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(seen)
                             : "l"(ready)
                             : "memory");
            }
            *ready = 0;
        }
        __syncwarp();
        group_sync(consumer);
        const float4 *from = partial_of<S>(p, block, consumer);
#pragma unroll
        for (int i = 0; i < S::SUMS / 4; i++) {
            const float4 v = __ldcg(from + i * 128);
            add_four(d + 4 * i, v);
        }
    }
}

/* DEEP: sends the half of the sums that the other block finishes and adds what it sent: d[0 .. SUMS
 * / 2) are then the sums of this block's half of the columns. turn: parity of the tile's number. */
template <class S>
__device__ __forceinline__ void exchange(const stages &m, float *d, const place &at, int turn) {
    constexpr int HALF = S::SUMS / 2;
    const uint32_t came = m.came + 8 * at.consumer;
    const uint32_t taken = m.taken + 8 * at.consumer;
    const int own = at.consumer * S::HALF_BYTES + threadIdx.x % 128 * 16;
    const char *other = m.other + own;
    if (threadIdx.x % 128 == 0)
        barrier_expect(came, S::HALF_BYTES);
    barrier_wait(taken, turn ^ 1);
#pragma unroll
    for (int i = 0; i < HALF; i += 4) {
        float v[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float low = d[i + j];
            const float high = d[HALF + i + j];
            v[j] = at.depth == 0 ? high : low;
            d[i + j] = at.depth == 0 ? low : high;
        }
        const uint32_t to = shared_at(other) + i * (128 * 4);
        peer_send(peer_at(to, 1 - at.depth), peer_at(came, 1 - at.depth), v);
    }
    barrier_wait_cluster(came, turn);
#pragma unroll
    for (int i = 0; i < HALF; i += 4) {
        const float4 v = *(const float4 *)(other + i * (128 * 4));
        add_four(d + i, v);
    }
}

/* Adds a work's products; the last are still under way on return, and the last stage in use. */
template <class S>
__device__ __forceinline__ void multiply(const stages &m, const work &w, float *d, int consumer,
                                         int *stage, uint32_t *parity) {
    const uint32_t x0 = S::BY_COLUMNS ? 0 : consumer * 64 * 128;
    const uint32_t part_at = S::BY_COLUMNS ? consumer * S::PART * 128 : 0;
    const uint32_t w0 = S::X_BYTES + part_at;
    constexpr int KIND = S::BF ? CU_BF16 : CU_HALF;
    uint32_t last = 0; /* barrier of the stage before */
    for (int k = w.k0; k < w.k1; k++) {
        const uint32_t data = m.data + *stage * S::STAGE_BYTES;
        const uint64_t x_at = wgmma_operand(data + x0);
        const uint64_t w_at = wgmma_operand(data + w0);
        barrier_wait(m.full + 8 * *stage, *parity);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < BLOCK_K / 16; j++) /* 16 k are 32 bytes, 2 in a descriptor */
            wgmma<KIND, S::PART>(d, x_at + 2 * j, w_at + 2 * j, j > 0 || k > w.k0);
        wgmma_commit();
        wgmma_wait<1>(); /* the products before these are over: their stage is free */
        if (k > w.k0 && threadIdx.x % 32 == 0)
            barrier_arrive(last);
        last = m.empty + 8 * *stage;
        if (++*stage == S::STAGES) {
            *stage = 0;
            *parity ^= 1;
        }
    }
}

/* The sums are there; frees the last stage. */
template <class S> __device__ __forceinline__ void settle(const stages &m, float *d, int stage) {
    const int last = stage == 0 ? S::STAGES - 1 : stage - 1;
    wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < S::SUMS; j++)
        asm volatile("" : "+f"(d[j])::"memory");
    if (threadIdx.x % 32 == 0)
        barrier_arrive(m.empty + 8 * last);
}

template <class S>
__device__ __forceinline__ void consume(const gemm_params &p, const schedule &s, const stages &m,
                                        const int *starts, const place &at) {
    constexpr int COLS = S::PART / S::DEPTH; /* that it finishes */
    constexpr int PIECE = S::PIECE;
    const int consumer_row = S::BY_COLUMNS ? 0 : at.consumer * 64;
    const int from_row = consumer_row + 16 * at.warp;
    const int depth = S::DEEP ? at.depth : 0;
    const int column_half = S::BY_COLUMNS ? at.consumer : depth;
    const int from_piece = column_half * S::PIECES / 2;
    const int own_warp = at.consumer * 4 + at.warp;
    float *staging = m.staging + own_warp * GEMM_STAGING;
    float d[S::SUMS];
    int stage = 0;
    uint32_t parity = 0;
    work w;
    for (int i = 0; work_at(s, i, &w); i++) {
        multiply<S>(m, w, d, at.consumer, &stage, &parity);
        const gemm_tile t = gemm_tile_at(p.a, S::ROWS, S::PIECES, starts, w.tile);
        const int row = t.row + from_row;
        const int piece = t.piece + from_piece;
        const bool ends = S::DEEP || w.k1 == s.iters;
        const bool plain = gemm_is_plain<PIECE, COLS / PIECE>(p.a, piece);
        gemm_ahead<PIECE, COLS> ahead;
        if (ends && plain)
            gemm_read_ahead<PIECE, COLS>(p.a, row, t.end, piece, &ahead);
        settle<S>(m, d, stage);
        if (!ends) {
            leave<S>(p, d, at.consumer);
            continue;
        }
        if (S::DEEP)
            exchange<S>(m, d, at, i % 2);
        else if (w.k0 > 0)
            collect<S>(p, s, w, d, at.consumer);
        if (plain)
            gemm_finish_plain<PIECE, COLS>(p.a, d, t.group, row, t.end, piece, &ahead);
        else
            gemm_finish_staged<PIECE, COLS>(p.a, d, staging, t.group, row, t.end, piece);
        if (S::DEEP && threadIdx.x % 32 == 0) /* after what was sent has been read */
            barrier_arrive_at(m.taken + 8 * at.consumer, 1 - at.depth);
    }
}
#endif

template <class S>
__global__ void __launch_bounds__(THREADS, 1) gemm_blocks(const __grid_constant__ gemm_params p) {
#ifdef CU_SM90A
    extern __shared__ char raw[];
    __shared__ uint64_t full[S::STAGES];
    __shared__ uint64_t empty[S::STAGES];
    __shared__ int starts[CU_GEMM_MAX_GROUPS + 1];
    __shared__ uint64_t other[2][CONSUMERS];
    const int rank = blockIdx.x % S::DEPTH;
    const uint32_t before = (0u - shared_at(raw)) % 1024; /* the swizzle counts from 1024 */
    char *behind = raw + before + S::STAGES * S::STAGE_BYTES;
    const stages m = {shared_at(raw) + before,
                      shared_at(full),
                      shared_at(empty),
                      (float *)(behind + S::OTHER_BYTES),
                      behind,
                      shared_at(other[0]),
                      shared_at(other[1])};
    const int group = __shfl_sync(~0u, (int)threadIdx.x / 128, 0); /* known to be one a warp */
    const place at = {group - 1, (int)threadIdx.x / 32 % 4, rank};
    if (!p.a.late)
        cu_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(m.full + 8 * i, 1);
            barrier_init(m.empty + 8 * i, CONSUMERS * 4);
        }
        for (int i = 0; i < CONSUMERS; i++) {
            barrier_init(m.came + 8 * i, 1);
            barrier_init(m.taken + 8 * i, 4);
        }
        barrier_publish();
    } else if (threadIdx.x >= 32 && threadIdx.x < 32 + p.a.n_seg) {
        prefetch_map(&p.w[threadIdx.x - 32]);
    } else if (threadIdx.x == 64) {
        prefetch_map(&p.x);
    }
    if (p.a.offsets && threadIdx.x / 32 == 1) {
        cu_wait();
        gemm_starts(p.a, S::ROWS, starts);
    }
    __syncthreads();
    if (S::DEEP)
        cluster_sync();
    schedule s;
    s.d = p.dealt;
    s.iters = p.iters;
    s.stride = (int)gridDim.x / S::DEPTH;
    s.self = (int)blockIdx.x / S::DEPTH;
    s.k0 = 0;
    s.k1 = p.iters;
    if (p.a.offsets) {
        const int tiles = gemm_tiles(p.a, S::ROWS, starts);
        s.d = gemm_deal_out(tiles, s.stride, p.iters, p.split);
    }
    if (S::DEEP) {
        s.k0 = at.depth * p.iters / 2;
        s.k1 = (at.depth + 1) * p.iters / 2;
    }
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        if (threadIdx.x == 0)
            produce<S>(p, s, m, starts);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        cu_wait();
        if (p.a.late)
            cu_next();
        consume<S>(p, s, m, starts, at);
    }
    __syncwarp();
    if (S::DEEP)
        cluster_sync(); /* what peers send here has come */
#endif
}

/* ---- launches ------------------------------------------------------------------------------- */
/* One of cu_gemm_shapes. */
template <class S> struct blocks_of {
    static bool init() {
        if (!cu_has_sm90((const void *)gemm_blocks<S>))
            return false;
        cudaFuncSetAttribute(gemm_blocks<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SMEM);
        return true;
    }
    static void launch(cudaStream_t s, const gemm_params *p, int blocks) {
        cudaLaunchConfig_t c = {};
        cudaLaunchAttribute at[2] = {};
        at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        at[0].val.programmaticStreamSerializationAllowed = 1;
        at[1].id = cudaLaunchAttributeClusterDimension;
        at[1].val.clusterDim.x = (unsigned)S::DEPTH;
        at[1].val.clusterDim.y = 1;
        at[1].val.clusterDim.z = 1;
        c.gridDim = dim3((unsigned)blocks);
        c.blockDim = dim3(THREADS);
        c.dynamicSmemBytes = (size_t)S::SMEM;
        c.stream = s;
        c.attrs = at;
        c.numAttrs = 2;
        cudaLaunchKernelEx(&c, gemm_blocks<S>, *p);
    }
    static constexpr gemm_kernel row() {
        return {S::PIECE, init, launch};
    }
};
#endif
