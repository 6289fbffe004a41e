/* one_row.cuh -- LINEAR of one row of x, and MOE_LINEAR of a few pairs, on matrix units: decode with
 * packed weights. A block goes through tiles of 16 weight rows (GLU: 8 of gate and the 8 of up); its
 * warps share k, and have read the weights of the next two places before they work on one, the first
 * ones before the kernel waits for x, unless it must first know which expert is meant.
 *
 * A weight costs about one instruction: its code is put below the exponent of an f16 (codes.cuh) and
 * multiplied as it is; scale and minimum of a group apply to the group's sum. What the codes' offset
 * adds to a sum is the offset times the sum of x, which is formed once:
 *   sum of x (code - zero) scale + x min = scale (sum of x register - lift) + min (sum of x)
 * x comes in f32, rounded on the way into shared memory, there in the order in which lanes read it.
 * Where registers hold 16 codes, their x is 1/16 of that of the others.
 *
 * A norm needs no pass of its own: x times the norm's weights goes to the product, the sum of
 * squares is formed beside it, and 1 / rms multiplies the result. PRESCALE keeps x * weight in the
 * range of f16. */
#ifndef CU_ONE_ROW_CUH
#define CU_ONE_ROW_CUH
#include "linear.cuh"

/* The one row as kernels need it: x in 16 bits, and per scale {lift, sum of x}. */
template <class T> struct one_shape {
    using codes = typename T::codes;
    enum { N = T::scales::N, HAS_MIN = T::scales::HAS_MIN };
    /* factors of x for registers 0 and 2, 1 and 3, and what undoes them */
    static constexpr float EVEN = codes::ODD ? 4.0f : 1.0f;
    static constexpr float ODD = codes::ODD ? 0.25f : 1.0f;
    static constexpr float UNDO = 1.0f / EVEN;
    /* what a register holds beside the code, in units of x times the code */
    static constexpr float LIFT_EVEN = codes::BASE + T::OFFSET;
    static constexpr float LIFT_ODD = (codes::ODD ? codes::BASE / 16.0f : codes::BASE) + T::OFFSET;
    static __host__ __device__ size_t bytes(int ld) {
        return (size_t)ld * 2 + (size_t)(ld / 32) * N * sizeof(float2);
    }
};

/* Fills shared memory: x [ld], then {lift, sum} [ld / 32][N]; with a norm also the sum of squares of
 * each warp. norm: the thread's first weights, read before. */
template <class T, int THREADS, int NORM>
__device__ __forceinline__ void load_one(const cu_linear &a, int row_of_y, const float4 *norm,
                                         float prescale, char *xs, float *squares) {
    using shape = one_shape<T>;
    const int64_t row = x_row(a, row_of_y);
    const float *x = row >= 0 ? (const float *)a.x + row * a.K : NULL;
    float2 *sums = (float2 *)(xs + (size_t)a.ld * 2);
    float ss = 0;
    auto put_x = [&](int i, float4 v, float4 n) {
        if (a.norm) {
            ss = fmaf(v.x, v.x, ss);
            ss = fmaf(v.y, v.y, ss);
            ss = fmaf(v.z, v.z, ss);
            ss = fmaf(v.w, v.w, ss);
            v = normalise(v, n, prescale, a.offset);
        }
        v.x *= shape::EVEN;
        v.y *= shape::EVEN;
        v.z *= shape::ODD;
        v.w *= shape::ODD;
        const uint2 h = round4<CU_HALF>(v);
        if (i < a.ld)
            *(uint2 *)(xs + i / 32 * 64 + i % 16 / 4 * 16 + i % 32 / 16 * 8) = h;
        const float2 even = __half22float2(*(const __half2 *)&h.x);
        const float2 odd = __half22float2(*(const __half2 *)&h.y);
        const float e = (even.x + even.y) * (1.0f / shape::EVEN);
        const float o = (odd.x + odd.y) * (1.0f / shape::ODD);
        float2 s = make_float2(e * shape::LIFT_EVEN + o * shape::LIFT_ODD, e + o);
#pragma unroll
        for (int k = 1; k < 8 / shape::N; k *= 2) {
            s.x += __shfl_xor_sync(~0u, s.x, k);
            if (shape::HAS_MIN)
                s.y += __shfl_xor_sync(~0u, s.y, k);
        }
        if (i < a.ld && i % (32 / shape::N) == 0)
            sums[i / (32 / shape::N)] = s;
    };
    for (int k0 = 0; 4 * k0 * THREADS < a.ld; k0 += NORM) {
        float4 v[NORM];
#pragma unroll
        for (int k = 0; k < NORM; k++)
            v[k] = read4(x, 4 * (threadIdx.x + (k0 + k) * THREADS), a.K);
#pragma unroll
        for (int k = 0; k < NORM; k++) {
            const int i = 4 * (threadIdx.x + (k0 + k) * THREADS);
            if (4 * (k0 + k) * THREADS < a.ld)
                put_x(i, v[k], k0 ? read4(a.norm, i, a.K) : norm[k]);
        }
    }
    if (!a.norm)
        return;
    ss = warp_sum(ss);
    if (threadIdx.x % 32 == 0)
        squares[threadIdx.x / 32] = ss;
}

/* d = a b */
__device__ __forceinline__ void mma_fresh(float d[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                          uint32_t a3, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
}

/* Registers are bounded so that blocks of the next kernel fit beside these and read ahead. Grid: x =
 * blocks that share the tiles, y = pairs of token and expert. */
template <class T, int NW, int U, int BLOCKS>
__global__ void __launch_bounds__(32 * NW, BLOCKS) one_row(cu_linear a) {
    using shape = one_shape<T>;
    constexpr int THREADS = 32 * NW;
    constexpr int NORM = NW == 8 ? 4 : 2;
    constexpr float PRESCALE = 1.0f / 16;
    extern __shared__ __align__(16) float shared_x[];
    char *xs = (char *)shared_x;
    __shared__ float sum[2][NW][17], squares[NW];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const int nv = a.ld / 32;
    const int units = nv / 4;
    const int steps = (units + NW * U - 1) / (NW * U);
    const bool glu = a.epi == CU_EPI_GLU;
    const bool several = !glu && a.n_seg > 1;
    const int tiles = glu ? (a.total + 7) / 8 : (a.total + 15) / 16;
    const int pair = blockIdx.y;
    int64_t expert = 0;
    struct weights {
        T w[U][2];
    } now, next;
    auto fetch = [&](int tile, int step, weights &to) {
        const int unit = step * U * NW + warp;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i = glu ? tile * 8 + g : tile * 16 + h * 8 + g;
            int s = glu ? h : 0;
            i = min(i, a.total - 1);
            while (several && s + 1 < a.n_seg && i >= a.seg[s].rows)
                i -= a.seg[s++].rows;
            const int64_t row = expert * a.seg[s].rows + i;
            const typename T::cursor at = T::seek(a.seg[s].w, row * nv + unit * 4 + t);
#pragma unroll
            for (int u = 0; u < U; u++)
                if (unit + u * NW < units)
                    to.w[u][h].load(at, u * NW);
        }
    };
    if (!a.late)
        cu_next();
    if (a.experts.of) {
        cu_wait();
        expert = expert_at(a.experts, pair);
    }
    /* a position is a tile and a step of its k; what is at the next two is on its way */
    struct position {
        int tile;
        int step;
    } at = {(int)blockIdx.x, 0};
    auto after = [&](position p) {
        if (++p.step >= steps) {
            p.step = 0;
            p.tile += gridDim.x;
        }
        return p;
    };
    position ahead = after(at);
    int parity = 0;
    fetch(at.tile, at.step, now);
    if (ahead.tile < tiles)
        fetch(ahead.tile, ahead.step, next);
    float4 norm[NORM];
#pragma unroll
    for (int k = 0; k < NORM; k++)
        norm[k] = read4(a.norm, 4 * (threadIdx.x + k * THREADS), a.K);
    if (!a.experts.of)
        cu_wait();
    if (a.late)
        cu_next();
    load_one<T, THREADS, NORM>(a, pair, norm, PRESCALE, xs, squares);
    __syncthreads();
    float rstd = 1;
    if (a.norm) {
        float all = 0;
#pragma unroll
        for (int p = 0; p < NW; p++)
            all += squares[p];
        rstd = cu_rstd(all, a.K, a.eps) * (1.0f / PRESCALE);
    }
    const float2 *sums = (const float2 *)(xs + (size_t)a.ld * 2);
    float y0 = 0, y1 = 0; /* rows g and g + 8; those of lane t = 0 count */
    for (;;) {
        const int tile = at.tile;
        const int first_unit = at.step * U * NW + warp;
        const char *x_at = xs + first_unit * 256 + t * 16;
        const float2 *sum_at = sums + first_unit * 4 * shape::N;
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (first_unit + u * NW >= units)
                break;
#pragma unroll
            for (int q = 0; q < 4; q++) {
                uint32_t w0[4];
                uint32_t w1[4];
                float s0[2];
                float s1[2];
                float m0[2];
                float m1[2];
                float c[4];
                uint4 x = make_uint4(0, 0, 0, 0);
                if (!g)
                    x = *(const uint4 *)(x_at + (u * NW * 4 + q) * 64);
                now.w[u][0].c.halves(q, w0);
                now.w[u][1].c.halves(q, w1);
                now.w[u][0].s.get(q, s0, m0);
                now.w[u][1].s.get(q, s1, m1);
                mma_fresh(c, w0[0], w1[0], w0[1], w1[1], x.x, x.y);
#pragma unroll
                for (int n = 0; n < shape::N; n++) {
                    if (shape::N == 1)
                        mma<CU_HALF>(c, w0[2], w1[2], w0[3], w1[3], x.z, x.w);
                    else if (n)
                        mma_fresh(c, w0[2], w1[2], w0[3], w1[3], x.z, x.w);
                    const float2 of = sum_at[(u * NW * 4 + q) * shape::N + n];
                    y0 = fmaf(s0[n], fmaf(c[0], shape::UNDO, -of.x), y0);
                    y1 = fmaf(s1[n], fmaf(c[2], shape::UNDO, -of.x), y1);
                    if (shape::HAS_MIN) {
                        y0 = fmaf(m0[n], of.y, y0);
                        y1 = fmaf(m1[n], of.y, y1);
                    }
                }
            }
        }
        const bool more = ahead.tile < tiles;
        const bool end = ahead.tile != tile;
        if (more) {
            now = next;
            at = ahead;
            ahead = after(ahead);
            if (ahead.tile < tiles)
                fetch(ahead.tile, ahead.step, next);
        }
        if (end) {
            if (!t) {
                sum[parity][warp][g] = y0;
                sum[parity][warp][g + 8] = y1;
            }
            __syncthreads();
            if (threadIdx.x < 16) {
                const int m = threadIdx.x;
                float y = 0;
#pragma unroll
                for (int p = 0; p < NW; p++)
                    y += sum[parity][p][m];
                y *= rstd;
                int i = glu ? tile * 8 + m % 8 : tile * 16 + m;
                int s = glu ? m / 8 : 0;
                while (!glu && s + 1 < a.n_seg && i >= a.seg[s].rows)
                    i -= a.seg[s++].rows;
                const bool in = i < a.seg[s].rows;
                if (in)
                    y += bias_at(a.seg[s], expert, i);
                if (glu) {
                    const float up = __shfl_down_sync(0xffffu, y, 8);
                    if (in && m < 8)
                        write_glu(a, pair, i, y, up);
                } else if (in)
                    write_y(a, a.seg[s], pair, i, y);
            }
            parity ^= 1; /* the sums of two tiles back are written out by then */
            y0 = y1 = 0;
        }
        if (!more)
            break;
    }
}

/* Warps of a block, units that a warp reads at once, and blocks of a processor, by measurement on one
 * H200: two units where their codes and scales leave registers for them, and more warps where both
 * are small (MXFP4). */
template <class T> struct one_row_plan {
    enum {
        HELD = sizeof(typename T::codes) + sizeof(typename T::scales),
        WARPS = HELD <= 20 ? 12 : 8,
        UNITS = HELD > 36 ? 1 : 2,
        BLOCKS = 2
    };
};

/* Blocks stay for as many tiles as there are waves of them. */
template <class T> static void one_row_run(mn_device *d, cudaStream_t s, const cu_linear *a) {
    using plan = one_row_plan<T>;
    const int pairs = a->experts.of ? a->rows : 1;
    const int tile = a->epi == CU_EPI_GLU ? 8 : 16;
    const int tiles = (a->total + tile - 1) / tile;
    const int room = max(1, d->sms * plan::BLOCKS / pairs);
    const int waves = (tiles + room - 1) / room;
    const dim3 grid((tiles + waves - 1) / waves, pairs);
    launch(s, one_row<T, plan::WARPS, plan::UNITS, plan::BLOCKS>, grid, 32 * plan::WARPS,
           one_shape<T>::bytes(a->ld), *a);
}
template <class T> static void one_row_init(mn_device *d) {
    using plan = one_row_plan<T>;
    cudaFuncSetAttribute((const void *)one_row<T, plan::WARPS, plan::UNITS, plan::BLOCKS>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, d->smem_max - 4096);
}
#endif
