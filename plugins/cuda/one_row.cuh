/* one_row.cuh -- LINEAR of one row of x, or of two to four, and MOE_LINEAR of a few pairs, on
 * matrix units: decode with packed weights. A block goes through tiles of 16 weight rows (GLU: 8 of
 * gate and the 8 of up); its warps share k, and have read the weights of the next two places before
 * they work on one, the first ones before the kernel waits for x, unless it must first know which
 * expert is meant.
 *
 * What counts is how many instructions lie between x and y: a kernel reads its bytes in a third of
 * its time. A weight costs about one: its code is put below the exponent of an f16 (codes.cuh) and
 * multiplied as it is; scale and minimum of a group apply to the group's sum, of which each lane
 * keeps one in four, so that no scale is turned into a number twice. What the codes' offset adds to
 * a sum is the offset times the sum of x, which is formed once:
 *   sum of x (code - zero) scale + x min = scale (sum of x register - lift) + min (sum of x)
 * x comes in f32, or several rows of it in 16 bits, rounded on the way into shared memory, there in
 * the order in which lanes read it. Where registers hold 16 codes, their x is 1/16 of that of the
 * others. Weights of two positions take turns in two sets of registers, and what is added to y is
 * read before the product begins.
 *
 * A product of matrix units has eight columns. Of one row all are the same, so that each lane of
 * four keeps another group's sums and has its scale alone to apply. Two rows take turns in the
 * columns, and a lane has the sums of both; of four rows a lane has two, and two groups.
 *
 * A norm of one row needs no pass of its own: x times the norm's weights goes to the product, the
 * sum of squares is formed beside it, and 1 / rms multiplies the result. PRESCALE keeps x * weight
 * in the range of f16. */
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
    static constexpr bool HAS_LIFT = (int)codes::BASE != 0 || (int)T::OFFSET != 0;
    static constexpr bool HAS_SUMS = HAS_LIFT || (int)HAS_MIN != 0;
    static __host__ __device__ size_t bytes(int ld) {
        return (size_t)ld * 2 + (size_t)(ld / 32) * N * sizeof(float2);
    }
};

/* Bytes of each of R rows: those of several lie so that lanes which read two at once meet different
 * banks. */
template <class T, int R> __host__ __device__ size_t one_row_bytes(int ld) {
    const size_t bytes = one_shape<T>::bytes(ld);
    return R == 1 ? bytes : (bytes + 63) / 128 * 128 + 64;
}

/* Elements i to i + 3 of a row of K, a multiple of 4 in packed types; zeros behind it, or where x
 * is NULL. */
__device__ __forceinline__ float4 read_one(const float *x, int i, int K) {
    if (x && i < K)
        return __ldcg((const float4 *)(x + i));
    return make_float4(0, 0, 0, 0);
}

/* Four values as f16; what is finite stays so. */
static __device__ __noinline__ uint2 halves_clamped(float4 v) {
    return round4(v);
}
__device__ __forceinline__ uint2 halves_of(float4 v) {
    const float left = fmaxf(fabsf(v.x), fabsf(v.y));
    const float right = fmaxf(fabsf(v.z), fabsf(v.w));
    const __half2 a = __floats2half2_rn(v.x, v.y);
    const __half2 b = __floats2half2_rn(v.z, v.w);
    if (fmaxf(left, right) > 65504.0f)
        return halves_clamped(v);
    return make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
}

/* Where elements i to i + 3 lie among those of the row, in bytes. */
__device__ __forceinline__ int one_place(int i) {
    return i / 32 * 64 + i % 16 / 4 * 16 + i % 32 / 16 * 8;
}

/* Elements i to i + 3 of the row to `to`, and their part of the group's sums: those of eight lanes,
 * or four, make a group. All lanes call it. */
template <class T>
__device__ __forceinline__ void keep_one(float4 v, float prescale, bool in, char *to,
                                         float2 *sum_to) {
    using shape = one_shape<T>;
    const float even = shape::EVEN * prescale;
    const float odd = shape::ODD * prescale;
    const uint2 h = halves_of(make_float4(v.x * even, v.y * even, v.z * odd, v.w * odd));
    if (in)
        *(uint2 *)to = h;
    if constexpr (shape::HAS_SUMS) {
        const float2 a = __half22float2(*(const __half2 *)&h.x);
        const float2 b = __half22float2(*(const __half2 *)&h.y);
        const float e = a.x + a.y;
        const float o = b.x + b.y;
        float2 s;
        s.x = e * (shape::LIFT_EVEN / shape::EVEN) + o * (shape::LIFT_ODD / shape::ODD);
        s.y = e * (1.0f / shape::EVEN) + o * (1.0f / shape::ODD);
#pragma unroll
        for (int k = 1; k < 8 / shape::N; k *= 2) {
            if (shape::HAS_LIFT)
                s.x += __shfl_xor_sync(~0u, s.x, k);
            if (shape::HAS_MIN)
                s.y += __shfl_xor_sync(~0u, s.y, k);
        }
        if (in && threadIdx.x % (8 / shape::N) == 0)
            *sum_to = s;
    }
}

/* Fills shared memory: x [ld], then {lift, sum} [ld / 32][N]; with a norm also the sum of squares
 * of each warp. x: the row, or NULL; v, norm: the thread's first values and weights, read
 * before. */
template <class T, int THREADS, int FIRST>
__device__ __forceinline__ void load_one(const cu_linear &a, const float *x, float4 (&v)[FIRST],
                                         float4 (&norm)[FIRST], float prescale, char *xs,
                                         float *squares) {
    enum { N = one_shape<T>::N };
    const int i0 = 4 * threadIdx.x;
    char *to = xs + one_place(i0);
    float2 *sum_to = (float2 *)(xs + (size_t)a.ld * 2) + i0 / (32 / N);
    float ss = 0;
    for (int from = 0; from < a.ld; from += 4 * FIRST * THREADS) {
#pragma unroll
        for (int k = 0; k < FIRST; k++) {
            const int i = from + 4 * k * THREADS;
            if (i >= a.ld)
                break;
            if (from) {
                v[k] = read_one(x, i + i0, a.K);
                norm[k] = read_one(a.norm, i + i0, a.K);
            }
            if (a.norm) {
                ss = add_squares(ss, v[k]);
                v[k].x *= norm[k].x + a.offset;
                v[k].y *= norm[k].y + a.offset;
                v[k].z *= norm[k].z + a.offset;
                v[k].w *= norm[k].w + a.offset;
            }
            keep_one<T>(v[k], prescale, i + i0 < a.ld, to + 2 * i, sum_to + i / (32 / N));
        }
    }
    if (!a.norm)
        return;
    ss = warp_sum(ss);
    if (threadIdx.x % 32 == 0)
        squares[threadIdx.x / 32] = ss;
}

/* The same of R rows of 16-bit numbers, one after the other; zeros behind the last. */
template <class T, int R, int THREADS>
__device__ __forceinline__ void load_rows(const cu_linear &a, char *xs) {
    enum { N = one_shape<T>::N };
    for (int r = 0; r < R; r++) {
        const size_t row_at = r * one_row_bytes<T, R>(a.ld);
        char *to = xs + row_at;
        char *sums = to + (size_t)a.ld * 2;
        const uint16_t *x = (const uint16_t *)a.x + (int64_t)r * a.x_ld;
        for (int from = 0; from < a.ld; from += 4 * THREADS) {
            const int i = from + 4 * threadIdx.x;
            const bool is_there = r < a.rows && i < a.x_ld;
            uint2 h = make_uint2(0, 0);
            if (is_there)
                h = __ldcg((const uint2 *)(x + i));
            const __half2 first = *(const __half2 *)&h.x;
            const __half2 second = *(const __half2 *)&h.y;
            const float2 low = __half22float2(first);
            const float2 high = __half22float2(second);
            const bool in = i < a.ld;
            const float4 v = make_float4(low.x, low.y, high.x, high.y);
            float2 *sum_to = (float2 *)sums + i / (32 / N);
            keep_one<T>(v, 1.0f, in, to + one_place(i), sum_to);
        }
    }
}

/* d = a b */
__device__ __forceinline__ void mma_fresh(float d[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                          uint32_t a3, uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
}
/* d += a b */
__device__ __forceinline__ void mma_more(float d[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Which sums a lane keeps of a product's eight columns, R rows of x in turn. */
template <int R> struct one_share {
    enum { ROWS = R > 1 ? 2 : 1, GROUPS = R > 1 ? R / 2 : 1, PARTS = 4 / GROUPS };
    float own[PARTS]; /* 1 for its part of a unit's groups, else 0 */
    __device__ __forceinline__ one_share() {
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            own[p] = p == part() ? 1.0f : 0.0f;
    }
    static __device__ __forceinline__ int part() {
        return threadIdx.x % 4 / GROUPS;
    }
    static __device__ __forceinline__ int first_row() {
        return threadIdx.x % GROUPS * ROWS;
    }
};

/* A unit of 16 weight rows: the sums of weight rows g and g + 8 with the lane's rows of x grow by
 * what its groups give. x: of the unit, in the row that the lane reads; sums: of the unit, in the
 * first row that it has sums of. */
template <class T, int R>
__device__ __forceinline__ void multiply_unit(const T (&w)[2], const char *x, const float2 *sums,
                                              int row_bytes, const one_share<R> &share,
                                              float (&y)[2][one_share<R>::ROWS]) {
    using shape = one_shape<T>;
    constexpr int ROWS = one_share<R>::ROWS;
    constexpr int GROUPS = one_share<R>::GROUPS;
    const int t = threadIdx.x % 4;
    float d[GROUPS][2][ROWS][shape::N] = {};
#pragma unroll
    for (int q = 0; q < 4; q++) {
        uint32_t w0[4];
        uint32_t w1[4];
        float c[2][4];
        const uint4 b = *(const uint4 *)(x + q * 64 + t * 16);
        w[0].c.halves(q, w0);
        w[1].c.halves(q, w1);
        mma_fresh(c[0], w0[0], w1[0], w0[1], w1[1], b.x, b.y);
        if (shape::N == 1)
            mma_more(c[0], w0[2], w1[2], w0[3], w1[3], b.z, b.w);
        else
            mma_fresh(c[1], w0[2], w1[2], w0[3], w1[3], b.z, b.w);
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++) {
            const int h = i / ROWS;
            const int k = i % ROWS;
#pragma unroll
            for (int n = 0; n < shape::N; n++) {
                float &sum = d[q % GROUPS][h][k][n];
                sum = fmaf(c[n][2 * h + k], share.own[q / GROUPS], sum);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2 * GROUPS; i++) {
        const int h = i / GROUPS;
        const int j = i % GROUPS;
        const int group = share.part() * GROUPS + j;
        float s[2];
        float m[2];
        w[h].s.get(group, s, m);
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
#pragma unroll
            for (int n = 0; n < shape::N; n++) {
                const char *of_group = (const char *)(sums + group * shape::N + n);
                float2 of = make_float2(0, 0);
                if (shape::HAS_SUMS)
                    of = *(const float2 *)(of_group + k * row_bytes);
                const float sum = fmaf(d[j][h][k][n], shape::UNDO, -of.x);
                y[h][k] = fmaf(s[n], sum, y[h][k]);
                if (shape::HAS_MIN)
                    y[h][k] = fmaf(m[n], of.y, y[h][k]);
            }
        }
    }
}

/* The row of y of thread m in a tile, 16 threads for each row of x, and what is added to it, read
 * ahead. */
struct one_tail {
    int s;
    int i;
    bool in;
    float bias;
    float residual;
};
__device__ __forceinline__ one_tail tail_of(const cu_linear &a, int tile, int64_t expert) {
    const int m = threadIdx.x % 16;
    const bool glu = a.epi == CU_EPI_GLU;
    one_tail r;
    r.s = glu ? m / 8 : 0;
    r.i = glu ? tile * 8 + m % 8 : tile * 16 + m;
    while (!glu && r.s + 1 < a.n_seg && r.i >= a.seg[r.s].rows)
        r.i -= a.seg[r.s++].rows;
    const cu_seg &seg = a.seg[r.s];
    const int row = threadIdx.x / 16;
    const int64_t at = (int64_t)row * seg.rows + r.i;
    const bool is_row = a.experts.of || row < a.rows;
    r.in = is_row && r.i < seg.rows;
    r.bias = r.in ? bias_at(seg, expert, r.i) : 0;
    r.residual = r.in && a.epi == CU_EPI_ADD ? __ldcg(&a.residual[at]) : 0;
    return r;
}

/* R rows: one of f32, or up to R of 16 bits. Registers are bounded so that blocks of the next
 * kernel fit beside these and read ahead. Grid: x = blocks that share the tiles, y = pairs of token
 * and expert. */
template <class T, int R, int NW, int U, int BLOCKS>
__global__ void __launch_bounds__(32 * NW, BLOCKS) one_row(cu_linear a) {
    using shape = one_shape<T>;
    constexpr int THREADS = 32 * NW;
    constexpr int FIRST = NW == 8 ? 4 : 2; /* 4,096 elements, or 3,072 and more */
    constexpr float PRESCALE = 1.0f / 16;
    extern __shared__ __align__(16) float shared_x[];
    char *xs = (char *)shared_x;
    __shared__ float sum[2][NW][R][17], squares[NW];
    using share_of = one_share<R>;
    const int row_bytes = (int)one_row_bytes<T, R>(a.ld);
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
    uint32_t expert = 0;
    struct weights {
        T w[U][2];
    } even, odd; /* of this position and the next, in turn */
    auto fetch = [&](int tile, int step, weights &to) {
        const int unit = step * U * NW + warp;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i = glu ? tile * 8 + g : tile * 16 + h * 8 + g;
            int s = glu ? h : 0;
            i = min(i, a.total - 1);
            while (several && s + 1 < a.n_seg && i >= a.seg[s].rows)
                i -= a.seg[s++].rows;
            const uint32_t row = expert * (uint32_t)a.seg[s].rows + (uint32_t)i;
            const uint32_t v = row * (uint32_t)nv + (uint32_t)(unit * 4 + t);
            const typename T::cursor at = T::seek(a.seg[s].w, v);
#pragma unroll
            for (int u = 0; u < U; u++)
                if (unit + u * NW < units)
                    to.w[u][h].load(at, u * NW);
        }
    };
    float4 norm[FIRST];
    float4 x[FIRST];
    const float *row = NULL;
    auto read_x = [&]() {
        const int64_t n = x_row(a, pair);
        if (n >= 0)
            row = (const float *)a.x + n * a.K;
#pragma unroll
        for (int k = 0; k < FIRST; k++)
            x[k] = read_one(row, 4 * (threadIdx.x + k * THREADS), a.K);
    };
    if (!a.late)
        cu_next();
    if (a.experts.of) {
        cu_wait();
        read_x();
        expert = (uint32_t)expert_at(a.experts, pair);
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
    fetch(at.tile, at.step, even);
    if (ahead.tile < tiles)
        fetch(ahead.tile, ahead.step, odd);
#pragma unroll
    for (int k = 0; k < FIRST && R == 1; k++)
        norm[k] = read_one(a.norm, 4 * (threadIdx.x + k * THREADS), a.K);
    const share_of share;
    if (!a.experts.of) {
        cu_wait();
        if (R == 1)
            read_x();
    }
    one_tail tail = {};
    if (threadIdx.x < 16 * R)
        tail = tail_of(a, at.tile, expert);
    if (a.late)
        cu_next();
    if (R == 1)
        load_one<T, THREADS, FIRST>(a, row, x, norm, a.norm ? PRESCALE : 1.0f, xs, squares);
    else
        load_rows<T, R, THREADS>(a, xs);
    __syncthreads();
    float rstd = 1;
    if (R == 1 && a.norm) {
        float all = 0;
#pragma unroll
        for (int p = 0; p < NW; p++)
            all += squares[p];
        rstd = rsqrtf(__fdividef(all, (float)a.K) + a.eps) * (1.0f / PRESCALE);
        if (isinf(all)) /* see cu_rstd */
            rstd = NAN;
    }
    const char *x_of_lane = xs + g % R * row_bytes;
    const float2 *sums =
        (const float2 *)(xs + share_of::first_row() * row_bytes + (size_t)a.ld * 2);
    float y[2][share_of::ROWS] = {}; /* weight rows g and g + 8 */
    /* What lies at `here`, in w; then w takes what comes behind `there`. False: there is no
     * more. */
    auto turn = [&](weights &w, position &here, const position &there) {
        const int tile = here.tile;
        const int first_unit = here.step * U * NW + warp;
        const char *x_at = x_of_lane + first_unit * 256;
        const float2 *sum_at = sums + first_unit * 4 * shape::N;
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (first_unit + u * NW < units)
                multiply_unit<T, R>(w.w[u], x_at + u * NW * 256, sum_at + u * NW * 4 * shape::N,
                                    row_bytes, share, y);
        }
        here = after(there);
        if (here.tile < tiles)
            fetch(here.tile, here.step, w);
        if (there.tile == tile)
            return true;
#pragma unroll
        for (int i = 0; i < 2 * share_of::ROWS; i++) {
            const int h = i / share_of::ROWS;
            const int k = i % share_of::ROWS;
            const int r = share_of::first_row() + k;
            float &v = y[h][k];
            if (share_of::GROUPS == 1)
                v += __shfl_xor_sync(~0u, v, 1);
            v += __shfl_xor_sync(~0u, v, 2);
            if (!share_of::part())
                sum[parity][warp][r][g + 8 * h] = v;
            v = 0;
        }
        __syncthreads();
        if (threadIdx.x < 16 * R) {
            constexpr uint32_t LANES = R == 1 ? 0xffffu : ~0u;
            const int r = threadIdx.x / 16;
            const int m = threadIdx.x % 16;
            float all = 0;
#pragma unroll
            for (int p = 0; p < NW; p++)
                all += sum[parity][p][r][m];
            all = fmaf(all, rstd, tail.bias);
            if (glu) {
                const float up = __shfl_down_sync(LANES, all, 8);
                if (tail.in && m < 8)
                    write_glu(a, pair + r, tail.i, all, up);
            } else if (tail.in) {
                const cu_seg &to = a.seg[tail.s];
                to.y[(int64_t)(pair + r) * to.rows + tail.i] = tail.residual + all;
            }
            if (there.tile < tiles)
                tail = tail_of(a, there.tile, expert);
        }
        parity ^= 1; /* the sums of two tiles back are written out by then */
        return there.tile < tiles;
    };
    while (turn(even, at, ahead) && turn(odd, ahead, at)) {
    }
}

/* Warps of a block, units that a warp reads at once, and blocks of a processor, by measurement on
 * one H200: two units where their codes and scales leave registers for them, and more warps where
 * both are small (MXFP4). */
template <class T> struct one_row_plan {
    enum {
        HELD = sizeof(typename T::codes) + sizeof(typename T::scales),
        WARPS = HELD <= 20 ? 12 : 8,
        UNITS = HELD > 36 ? 1 : 2,
        BLOCKS = 2
    };
};

/* Blocks go through the tiles in turn. */
template <class T, int R, int NW, int BLOCKS>
static void one_row_launch(const cu_card *d, cudaStream_t s, const cu_linear *a) {
    const bool glu = a->epi == CU_EPI_GLU;
    const size_t smem = R * one_row_bytes<T, R>(a->ld);
    int pairs = 1;
    if (a->experts.of)
        pairs = a->rows;
    int tile = 16;
    if (glu)
        tile = 8;
    const int tiles = (a->total + tile - 1) / tile;
    const int room = max(1, d->sms * BLOCKS / pairs);
    const int blocks = min(tiles, room);
    const dim3 grid(blocks, pairs);
    const int threads = 32 * NW;
    const auto kernel = one_row<T, R, NW, one_row_plan<T>::UNITS, BLOCKS>;
    launch(s, kernel, grid, threads, smem, *a);
}
template <class T> static void one_row_run(const cu_card *d, cudaStream_t s, const cu_linear *a) {
    using plan = one_row_plan<T>;
    one_row_launch<T, 1, plan::WARPS, plan::BLOCKS>(d, s, a);
}

/* Beside rows of x in a block's shared memory: sums, and what the system takes. */
enum { ONE_ROW_BESIDE = 16 << 10, ONE_ROW_WIDE = 16 };

/* Two to four rows of 16 bits. Where two blocks of a processor have no room for the rows, one of
 * twice as many warps has. False: neither has room; nothing was done. */
template <class T> static bool one_row_few(const cu_card *d, cudaStream_t s, const cu_linear *a) {
    using plan = one_row_plan<T>;
    const size_t room = (size_t)(d->smem_max - ONE_ROW_BESIDE);
    const size_t of_two = 2 * one_row_bytes<T, 2>(a->ld);
    const size_t of_four = 4 * one_row_bytes<T, 4>(a->ld);
    const bool is_few = a->rows >= 2 && a->rows <= 4;
    if (a->experts.of)
        return false;
    if (!is_few)
        return false;
    if (a->rows == 2 && 2 * of_two <= room) {
        one_row_launch<T, 2, plan::WARPS, plan::BLOCKS>(d, s, a);
        return true;
    }
    if (2 * of_four <= room) {
        one_row_launch<T, 4, plan::WARPS, plan::BLOCKS>(d, s, a);
        return true;
    }
    if (of_four > room)
        return false;
    one_row_launch<T, 4, ONE_ROW_WIDE, 1>(d, s, a);
    return true;
}

template <class T, int R, int NW, int BLOCKS> static void one_row_limit(const cu_card *d) {
    const auto kernel = one_row<T, R, NW, one_row_plan<T>::UNITS, BLOCKS>;
    const int most = d->smem_max - ONE_ROW_BESIDE;
    cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}
template <class T> static void one_row_init(const cu_card *d) {
    using plan = one_row_plan<T>;
    one_row_limit<T, 1, plan::WARPS, plan::BLOCKS>(d);
    one_row_limit<T, 2, plan::WARPS, plan::BLOCKS>(d);
    one_row_limit<T, 4, plan::WARPS, plan::BLOCKS>(d);
    one_row_limit<T, 4, ONE_ROW_WIDE, 1>(d);
}
#endif
