/* one_row.cuh -- LINEAR of one row of x on matrix units: decode with packed weights. A block goes
 * through tiles of 16 weight rows (GLU: 8 of gate and the 8 of up); its warps share k, and read the
 * weights of what comes next before they work on what is there, the first before the kernel waits
 * for x. x comes in f32 from memory, rounded on the way into shared memory. Of the matrix units'
 * eight columns one is used: what counts is that a weight costs two instructions, not four.
 *
 * A norm needs no pass of its own: x times the norm's weights goes to the product, the sum of
 * squares is formed beside it, and 1 / rms multiplies the result. PRESCALE keeps x * weight in the
 * range of f16. */
#ifndef CU_ONE_ROW_CUH
#define CU_ONE_ROW_CUH
#include "linear.cuh"

/* x, rounded, into shared memory: [ld] of 16 bits; with a norm times its weights, and the sum of
 * squares of each warp into squares. norm: the thread's first weights, read before. */
template <int HALF, int THREADS, int NORM>
__device__ __forceinline__ void load_one(const cu_linear &a, const float4 *norm, float prescale,
                                         uint2 *to, float *squares) {
    const int64_t row = x_row(a, 0);
    const float *x = row >= 0 ? (const float *)a.x + row * a.K : NULL;
    float ss = 0;
    auto put_x = [&](int i, float4 n) {
        float4 v = read4(x, i, a.K);
        if (a.norm) {
            ss = fmaf(v.x, v.x, ss), ss = fmaf(v.y, v.y, ss);
            ss = fmaf(v.z, v.z, ss), ss = fmaf(v.w, v.w, ss);
            v = normalise(v, n, prescale, a.offset);
        }
        to[i / 4] = round4<HALF>(v);
    };
#pragma unroll
    for (int k = 0; k < NORM; k++)
        if (4 * (threadIdx.x + k * THREADS) < a.ld)
            put_x(4 * (threadIdx.x + k * THREADS), norm[k]);
    for (int i = 4 * (threadIdx.x + NORM * THREADS); i < a.ld; i += 4 * THREADS)
        put_x(i, read4(a.norm, i, a.K));
    if (!a.norm)
        return;
    ss = warp_sum(ss);
    if (threadIdx.x % 32 == 0)
        squares[threadIdx.x / 32] = ss;
}

/* Registers are bounded so that blocks of the next kernel fit beside these and read ahead. */
template <class T, int NW, int U>
__global__ void __launch_bounds__(32 * NW, 24 / NW) one_row(cu_linear a) {
    constexpr int E = T::E, HALF = T::HALF, THREADS = 32 * NW, NORM = 32 / NW;
    constexpr float PRESCALE = 1.0f / 16;
    extern __shared__ __align__(16) float shared_x[];
    const uint4 *xs = (const uint4 *)shared_x;
    __shared__ float sum[2][NW][17], squares[NW];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int nv = a.ld / E, units = (nv + 3) / 4, steps = (units + NW * U - 1) / (NW * U);
    const bool glu = a.epi == CU_EPI_GLU;
    const int tiles = glu ? (a.total + 7) / 8 : (a.total + 15) / 16;
    struct weights {
        T w[U][2];
    } now, next;
    auto fetch = [&](int tile, int step, weights &to) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i = glu ? tile * 8 + g : tile * 16 + h * 8 + g, s = glu ? h : 0;
            i = min(i, a.total - 1);
            while (!glu && s + 1 < a.n_seg && i >= a.seg[s].rows)
                i -= a.seg[s++].rows;
#pragma unroll
            for (int u = 0; u < U; u++) {
                const int v = ((step * U + u) * NW + warp) * 4 + t;
                to.w[u][h].load(a.seg[s].w, (int64_t)i * nv + min(v, nv - 1));
            }
        }
    };
    if (!a.late)
        cu_next();
    int tile = blockIdx.x, step = 0, parity = 0;
    fetch(tile, 0, now);
    float4 norm[NORM];
#pragma unroll
    for (int k = 0; k < NORM; k++)
        norm[k] = read4(a.norm, 4 * (threadIdx.x + k * THREADS), a.K);
    cu_wait();
    if (a.late)
        cu_next();
    load_one<HALF, THREADS, NORM>(a, norm, PRESCALE, (uint2 *)shared_x, squares);
    __syncthreads();
    float c[4] = {0, 0, 0, 0};
    for (;;) {
        int tile_next = tile, step_next = step + 1;
        const bool end = step_next >= steps;
        if (end) {
            step_next = 0;
            tile_next += gridDim.x;
        }
        const bool more = tile_next < tiles;
        if (more)
            fetch(tile_next, step_next, next);
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int unit = (step * U + u) * NW + warp, v = unit * 4 + t;
            if (unit >= units)
                break;
            uint32_t w0[E / 2], w1[E / 2];
            now.w[u][0].to_half(w0);
            now.w[u][1].to_half(w1);
#pragma unroll
            for (int q = 0; q < E / 8; q++) {
                uint4 y = make_uint4(0, 0, 0, 0);
                if (!g && v < nv)
                    y = xs[v * (E / 8) + q];
                mma<HALF>(c, w0[4 * q], w1[4 * q], w0[4 * q + 1], w1[4 * q + 1], y.x, y.y);
                mma<HALF>(c, w0[4 * q + 2], w1[4 * q + 2], w0[4 * q + 3], w1[4 * q + 3], y.z, y.w);
            }
        }
        if (end) {
            if (!t) {
                sum[parity][warp][g] = c[0];
                sum[parity][warp][g + 8] = c[2];
            }
            __syncthreads();
            if (threadIdx.x < 16) {
                const int m = threadIdx.x;
                float y = 0, all = 0;
#pragma unroll
                for (int p = 0; p < NW; p++) {
                    y += sum[parity][p][m];
                    all += squares[p];
                }
                y *= 1.0f / T::SCALED;
                if (a.norm)
                    y *= cu_rstd(all, a.K, a.eps) * (1.0f / PRESCALE);
                int i = glu ? tile * 8 + m % 8 : tile * 16 + m, s = glu ? m / 8 : 0;
                while (!glu && s + 1 < a.n_seg && i >= a.seg[s].rows)
                    i -= a.seg[s++].rows;
                const bool in = i < a.seg[s].rows;
                if (in)
                    y += bias_at(a.seg[s], 0, i);
                if (glu) {
                    const float up = __shfl_down_sync(0xffffu, y, 8);
                    if (in && m < 8)
                        write_glu(a, 0, i, y, up);
                } else if (in)
                    write_y(a, a.seg[s], 0, i, y);
            }
            parity ^= 1; /* the sums of two tiles back are written out by then */
            c[0] = c[1] = c[2] = c[3] = 0;
        }
        if (!more)
            break;
        now = next;
        tile = tile_next;
        step = step_next;
    }
}

/* Blocks stay for as many tiles as there are waves of them. */
template <class T, int NW, int U>
static void one_row_launch(mn_device *d, cudaStream_t s, const cu_linear *a) {
    const int tile = a->epi == CU_EPI_GLU ? 8 : 16, tiles = (a->total + tile - 1) / tile;
    const int room = d->sms * (24 / NW), waves = (tiles + room - 1) / room;
    launch(s, one_row<T, NW, U>, dim3((tiles + waves - 1) / waves), 32 * NW, (size_t)a->ld * 2, *a);
}

/* Reads in flight by what a lane holds of one; warps so that k takes few steps. */
template <class T> static void one_row_run(mn_device *d, cudaStream_t s, const cu_linear *a) {
    constexpr int U = sizeof(T) > 32 ? 1 : 2;
    const int units = (a->ld / T::E + 3) / 4;
    if (units <= 16)
        one_row_launch<T, 8, U>(d, s, a);
    else
        one_row_launch<T, 12, U>(d, s, a);
}
#endif
