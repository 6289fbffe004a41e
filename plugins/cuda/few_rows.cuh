/* few_rows.cuh -- LINEAR of 2 to 64 rows (of 5 on where one_row.cuh has the others), and
 * MOE_LINEAR, on matrix units: each weight is read once for all rows. On Hopper few_sm90.cuh does
 * it; this is for every card from compute capability 8.0.
 * A block has a tile of 128 weight rows (GLU: 64 of gate and the 64 of up), 16 for each warp, and
 * goes through chunks of k: weights from memory into registers, a chunk ahead; x, which all warps
 * need, through shared memory, a chunk ahead, too.
 *
 * x are 16-bit rows in memory; of experts, those of the pairs that chose the block's expert. */
#ifndef CU_FEW_ROWS_CUH
#define CU_FEW_ROWS_CUH
#include "few_sm90.cuh"
#include "linear.cuh"

enum { FEW_TILE = 128, FEW_WARPS = 8 };

/* k of a chunk, and how its rows of x lie in shared memory: the lanes that read at once meet
 * different banks. */
template <class T, int NT> struct few_shape_mma {
    enum {
        N = 8 * NT,
        UNIT = 4 * T::E,
        CHUNK = T::PACKED ? 256 : 128,
        UNITS = CHUNK / UNIT,
        PIECES = CHUNK / 8,
        PITCH = CHUNK * 2 + (T::PACKED ? 32 : 64),
        X_BYTES = N * PITCH,
        SUM_BYTES = FEW_TILE * (N + 1) * 4,
        SMEM = 2 * X_BYTES > SUM_BYTES ? 2 * X_BYTES : SUM_BYTES
    };
};

/* Grid: rows of x, tiles, experts. */
template <class T, int NT> __global__ void __launch_bounds__(256, 2) few_rows(cu_linear a) {
#ifndef CU_SM90A
    using shape = few_shape_mma<T, NT>;
    constexpr int E = T::E;
    constexpr int HALF = T::HALF;
    constexpr int N = shape::N;
    constexpr int UNITS = shape::UNITS;
    extern __shared__ __align__(16) float shared_x[];
    char *xs = (char *)shared_x;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const int nv = a.ld / E;
    const int chunks = (a.ld + shape::CHUNK - 1) / shape::CHUNK;
    const int tile = blockIdx.y;
    const bool glu = a.epi == CU_EPI_GLU;
    int64_t expert = 0;
    int first = 0;
    int rows = a.rows; /* of the expert's pairs */
    struct weights {
        T w[UNITS][2];
    } now, next;
    auto fetch = [&](int chunk, weights &to) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int glu_row = tile * 64 + warp * 8 + g;
            const int row_of_tile = tile * FEW_TILE + warp * 16 + h * 8 + g;
            int i = glu ? glu_row : row_of_tile;
            int s = glu ? h : 0;
            i = min(i, a.total - 1);
            while (!glu && s + 1 < a.n_seg && i >= a.seg[s].rows) {
                i -= a.seg[s].rows;
                s++;
            }
            const int64_t row = expert * a.seg[s].rows + i;
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                const int v = (chunk * UNITS + u) * 4 + t;
                const int64_t at = row * nv + min(v, nv - 1);
                to.w[u][h].load(a.seg[s].w, at);
            }
        }
    };
    if (!a.late)
        cu_next();
    if (a.experts.of) {
        cu_wait();
        const int e = __ldcg(&a.experts.active[blockIdx.z]);
        if (e < 0)
            return;
        first = __ldcg(&a.experts.start[e]);
        rows = __ldcg(&a.experts.start[e + 1]) - first;
        expert = e;
    }
    fetch(0, now);
    if (!a.experts.of)
        cu_wait();
    if (a.late)
        cu_next();
    const int r_first = (int)blockIdx.x * N;
    const int r_step = (int)gridDim.x * N;
    for (int r0 = r_first; r0 < rows; r0 += r_step) {
        auto copy_x = [&](int chunk, int buffer) {
            for (int i = threadIdx.x; i < N * shape::PIECES; i += 256) {
                const int n = i / shape::PIECES;
                const int piece = i % shape::PIECES;
                const int k = chunk * shape::CHUNK + piece * 8;
                const bool in = r0 + n < rows && k < a.x_ld;
                int64_t row = in ? r0 + n : 0;
                if (a.experts.of && in)
                    row = __ldcg(&a.experts.pairs[first + row]) / a.experts.x_div;
                const uint16_t *from = (const uint16_t *)a.x + row * a.x_ld;
                char *to = xs + buffer * shape::X_BYTES + n * shape::PITCH;
                copy16(shared_at(to + 16 * piece), from + (in ? k : 0), in);
            }
            copy_commit();
        };
        float c[NT][4];
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                c[n][k] = 0;
        if (r0 != r_first)
            fetch(0, now);
        copy_x(0, 0);
        int buffer = 0;
        for (int chunk = 0; chunk < chunks; chunk++, buffer ^= 1) {
            const bool more = chunk + 1 < chunks;
            if (more) {
                fetch(chunk + 1, next);
                copy_x(chunk + 1, buffer ^ 1);
                copy_wait<1>();
            } else {
                copy_wait<0>();
            }
            __syncthreads();
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
#pragma unroll
                for (int q = 0; q < T::GROUPS; q++) {
                    uint32_t w0[4];
                    uint32_t w1[4];
                    now.w[u][0].to_half(q, w0);
                    now.w[u][1].to_half(q, w1);
                    const int v = u * 4 + t;
                    const char *x = xs + buffer * shape::X_BYTES + g * shape::PITCH;
                    const char *low = x + 2 * T::column(v, 2 * q);
                    const char *high = x + 2 * T::column(v, 2 * q + 1);
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        const uint2 y = *(const uint2 *)(low + n * 8 * shape::PITCH);
                        const uint2 z = *(const uint2 *)(high + n * 8 * shape::PITCH);
                        mma<HALF>(c[n], w0[0], w1[0], w0[1], w1[1], y.x, y.y);
                        mma<HALF>(c[n], w0[2], w1[2], w0[3], w1[3], z.x, z.y);
                    }
                }
            }
            __syncthreads();
            now = next;
        }
        float *sum = shared_x;
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int m = warp * 16 + g + k / 2 * 8;
                const int row = n * 8 + 2 * t + k % 2;
                sum[m * (N + 1) + row] = c[n][k];
            }
        }
        __syncthreads();
        const int tile_rows = glu ? 64 : FEW_TILE;
        for (int k = threadIdx.x; k < tile_rows * N; k += 256) {
            const int j = k % tile_rows;
            const int n = k / tile_rows;
            int i = tile * tile_rows + j;
            int s = 0;
            while (!glu && s + 1 < a.n_seg && i >= a.seg[s].rows) {
                i -= a.seg[s].rows;
                s++;
            }
            if (r0 + n >= rows || i >= a.seg[s].rows)
                continue;
            const int m = glu ? j / 8 * 16 + j % 8 : j;
            const float unscale = 1.0f / T::SCALED;
            float y = sum[m * (N + 1) + n] * unscale;
            y += bias_at(a.seg[s], expert, i);
            int64_t row = r0 + n;
            if (a.experts.of)
                row = __ldcg(&a.experts.pairs[first + row]);
            if (glu) {
                float up = sum[(m + 8) * (N + 1) + n] * unscale;
                up += bias_at(a.seg[1], expert, i);
                write_glu(a, row, i, y, up);
            } else {
                write_y(a, a.seg[s], row, i, y);
            }
        }
        __syncthreads();
    }
#endif
}

template <class T, int NT>
static void few_rows_launch(cudaStream_t s, const cu_linear *a, int tiles) {
    const int parts = a->experts.of ? a->experts.n_active : 1;
    /* an expert's rows are known on the device alone: its blocks go through all of them */
    const int across = a->experts.of ? 1 : (a->rows + 8 * NT - 1) / (8 * NT);
    launch(s, few_rows<T, NT>, dim3(across, tiles, parts), 256, few_shape_mma<T, NT>::SMEM, *a);
}

/* x: 16-bit rows, or one row of f32. */
template <class T> static void mmv_run(const cu_card *d, cudaStream_t s, const cu_linear *a) {
    if constexpr (T::PACKED) {
        if (a->x_kind == CU_F32) {
            one_row_run<T>(d, s, a);
            return;
        }
        if (one_row_few<T>(d, s, a))
            return;
    }
    if (few_sm90_runs<T>()) {
        few_sm90_run<T>(d, s, a);
        return;
    }
    const int tile = a->epi == CU_EPI_GLU ? 64 : FEW_TILE;
    const int tiles = (a->total + tile - 1) / tile;
    const int rows = a->experts.of ? a->experts.typical : a->rows;
    if (rows <= 8)
        few_rows_launch<T, 1>(s, a, tiles);
    else if (rows <= 16)
        few_rows_launch<T, 2>(s, a, tiles);
    else if (rows <= 24)
        few_rows_launch<T, 3>(s, a, tiles);
    else if (rows <= 32)
        few_rows_launch<T, 4>(s, a, tiles);
    else
        few_rows_launch<T, 8>(s, a, tiles);
}

template <class T, int NT> static void few_rows_init() {
    cudaFuncSetAttribute((const void *)few_rows<T, NT>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         few_shape_mma<T, NT>::SMEM);
}
template <class T> static void mmv_init(const cu_card *d) {
    if (few_sm90_runs<T>()) {
        few_sm90_init<T>(d);
        return;
    }
    few_rows_init<T, 1>();
    few_rows_init<T, 2>();
    few_rows_init<T, 3>();
    few_rows_init<T, 4>();
    few_rows_init<T, 8>();
}
#endif
