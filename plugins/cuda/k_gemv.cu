/* k_gemv.cu -- LINEAR by dot products in f32: one row (decode), or rows by eight. A sum's order
 * depends on the width of the matrix alone, never on how many rows there are: class exact gives the
 * same bits in any batch. The first weights are in flight before the kernel waits for its input.
 * Activations are read past L1 (ldcg): with early launches a line cached by an older kernel on the
 * same multiprocessor may be stale. */
#include "kernels.h"

template <uint32_t WT> struct vec; /* elements per 16 bytes */
template <> struct vec<MN_F32> { static constexpr int n = 4; };
template <> struct vec<MN_F16> { static constexpr int n = 8; };
template <> struct vec<MN_BF16> { static constexpr int n = 8; };
template <> struct vec<MN_Q8_0> { static constexpr int n = 16; };

template <uint32_t WT>
__device__ __forceinline__ float dot(uint4 w, float d, const float *x, float s) {
    if (WT == MN_F32) {
        s = fmaf(__uint_as_float(w.x), x[0], s), s = fmaf(__uint_as_float(w.y), x[1], s);
        return s = fmaf(__uint_as_float(w.z), x[2], s), fmaf(__uint_as_float(w.w), x[3], s);
    }
    const uint32_t u[4] = {w.x, w.y, w.z, w.w};
    if (WT == MN_Q8_0) {
        float t = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                t = fmaf((float)(int8_t)(u[i] >> 8 * j), x[4 * i + j], t);
        s = fmaf(t, d, s);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float a, b;
            if (WT == MN_F16) {
                float2 f = __half22float2(*(const __half2 *)&u[i]);
                a = f.x, b = f.y;
            } else
                a = __uint_as_float(u[i] << 16), b = __uint_as_float(u[i] & 0xffff0000u);
            s = fmaf(a, x[2 * i], s), s = fmaf(b, x[2 * i + 1], s);
        }
    }
    return s;
}

/* Row i of the concatenated segments (GLU: gate and up in turn). */
__device__ __forceinline__ int find(const cu_linear &a, int i, int *local) {
    if (a.epi == CU_EPI_GLU)
        return *local = i >> 1, i & 1;
    int s = 0;
    while (s + 1 < a.n_seg && i >= a.seg[s].rows)
        i -= a.seg[s++].rows;
    return *local = i, s;
}

/* x[rows r0 .. r0+R) into shared memory, normalised if asked. A lane reads V elements in groups of
 * four; group q of every vector lies together, so that a warp reads without bank conflicts. */
template <int R, int V>
__device__ __forceinline__ void load_x(const cu_linear &a, int r0, float *xs, float *red) {
    const int groups = V / 4, stride = a.ld / V;
    for (int r = 0; r < R; r++) {
        int row = r0 + r;
        if (row < a.rows && a.gather)
            row = (row = __ldcg(&a.gather[row])) < a.x_rows ? row : -1;
        else if (row >= a.rows)
            row = -1;
        float4 *to = (float4 *)(xs + r * a.ld);
        auto place = [&](int i) { return to + i / 4 % groups * stride + i / V; };
        float ss = scan_row(row >= 0 ? (const float *)a.x + (int64_t)row * a.K : NULL, a.K, a.ld,
                            [&](int i, float4 v) { *place(i) = v; });
        if (!a.norm)
            continue;
        float rstd = cu_rstd(block_sum256(ss, red), a.K, a.eps);
        const float4 *nw = (const float4 *)(xs + R * a.ld); /* put there by this thread */
        for (int i = 4 * threadIdx.x; i < a.ld; i += 1024) {
            float4 v = *place(i), w = nw[i / 4];
            v.x = v.x * rstd * (w.x + a.offset), v.y = v.y * rstd * (w.y + a.offset),
            v.z = v.z * rstd * (w.z + a.offset), v.w = v.w * rstd * (w.w + a.offset);
            *place(i) = v;
        }
    }
    __syncthreads();
}

/* W warps share a row of weights, each lane reads U vectors of it at a time; a warp has P rows. A
 * block goes on to the next rows with x still in shared memory, and fetches their weights before it
 * works on the present ones. */
template <uint32_t WT, int U, int W, int R, int P>
__global__ void __launch_bounds__(256, 2) gemv(cu_linear a) {
    constexpr int V = vec<WT>::n, G = 8 / W, Q = WT == MN_Q8_0 ? U : 1;
    extern __shared__ __align__(16) float xs[];
    __shared__ float red[8], part_sum[8][P * R];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp % W, nv = a.ld / V,
              r0 = blockIdx.y * R;
    const int total = a.epi == CU_EPI_GLU ? 2 * a.total : a.total, per = G * P;
    struct weights {
        uint4 w[P][U];
        __half d[P][Q];
    } now, next;
    auto fetch = [&](int block, int at, weights &to) {
#pragma unroll
        for (int p = 0; p < P; p++) {
            int i = block * per + warp / W * P + p, local;
            const bool live = i < total;
            const cu_seg &g = a.seg[find(a, live ? i : 0, &local)];
            const uint4 *row = (const uint4 *)g.w + (int64_t)local * nv;
            const __half *scale = g.scale + (int64_t)local * (a.ld / 32);
#pragma unroll
            for (int u = 0; u < U; u++) {
                int v = ((at + u) * W + part) * 32 + lane;
                bool in = live && v < nv;
                to.w[p][u] = in ? __ldcs(row + v) : make_uint4(0, 0, 0, 0);
                if (WT == MN_Q8_0)
                    to.d[p][WT == MN_Q8_0 ? u : 0] = in ? __ldg(scale + v / 2) : __half(0.0f);
            }
        }
    };
    auto finish = [&](int block, float(&s)[P][R]) {
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int r = 0; r < R; r++)
                s[p][r] = warp_sum(s[p][r]);
        if (W > 1) {
            __syncthreads();
            if (!lane)
#pragma unroll
                for (int p = 0; p < P; p++)
#pragma unroll
                    for (int r = 0; r < R; r++)
                        part_sum[warp][p * R + r] = s[p][r];
            __syncthreads();
            if (part == 0)
#pragma unroll
                for (int p = 0; p < P; p++)
#pragma unroll
                    for (int r = 0; r < R; r++)
                        for (int k = 1; k < W; k++)
                            s[p][r] += part_sum[warp + k][p * R + r];
        }
        if (lane || part)
            return;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int i = block * per + warp / W * P + p, local;
            if (i >= total)
                continue;
            const cu_seg &g = a.seg[find(a, i, &local)];
            const float b = g.bias ? g.bias[local] : 0;
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (r0 + r >= a.rows)
                    continue;
                float v = s[p][r] + b;
                int64_t at = (int64_t)(r0 + r) * g.rows + local;
                if (P == 2 && a.epi == CU_EPI_GLU) {
                    if (p == 0)
                        a.seg[0].y[at] = cu_act(a.act, v) *
                                         (s[P - 1][r] + (a.seg[1].bias ? a.seg[1].bias[local] : 0));
                } else
                    g.y[at] = a.epi == CU_EPI_ADD ? __ldcg(&a.residual[at]) + v : v;
            }
        }
    };
    if (!a.late)
        cu_next();
    int block = blockIdx.x, at = 0;
    fetch(block, 0, now);
    if (a.norm)
        for (int i = 4 * threadIdx.x; i < a.ld; i += 1024)
            for (int j = i; j < i + 4; j++)
                xs[R * a.ld + j] = j < a.K ? a.norm[j] : 0;
    cu_wait();
    if (a.late)
        cu_next();
    load_x<R, V>(a, r0, xs, red);
    float s[P][R] = {};
    for (;;) {
        int block_next = block, at_next = at + U;
        const bool end = at_next * W * 32 >= nv;
        if (end)
            at_next = 0, block_next += gridDim.x;
        const bool more = block_next * per < total;
        if (more)
            fetch(block_next, at_next, next);
#pragma unroll
        for (int u = 0; u < U; u++) {
            int v = ((at + u) * W + part) * 32 + lane;
            if (v >= nv)
                continue;
#pragma unroll
            for (int r = 0; r < R; r++) {
                float x[V];
#pragma unroll
                for (int i = 0; i < V; i += 4) {
                    float4 f = ((const float4 *)(xs + r * a.ld))[i / 4 * nv + v];
                    x[i] = f.x, x[i + 1] = f.y, x[i + 2] = f.z, x[i + 3] = f.w;
                }
#pragma unroll
                for (int p = 0; p < P; p++)
                    s[p][r] =
                        dot<WT>(now.w[p][u],
                                WT == MN_Q8_0 ? __half2float(now.d[p][WT == MN_Q8_0 ? u : 0]) : 0,
                                x, s[p][r]);
            }
        }
        if (end) {
            finish(block, s);
#pragma unroll
            for (int p = 0; p < P; p++)
#pragma unroll
                for (int r = 0; r < R; r++)
                    s[p][r] = 0;
        }
        if (!more)
            break;
        now = next, block = block_next, at = at_next;
    }
}

/* U does not change the order of sums, W does: pairs of rows may read half as far ahead. */
template <uint32_t WT, int U, int W>
static void pick(mn_device *d, cudaStream_t s, const cu_linear *a, bool set) {
    const void *all[] = {(const void *)gemv<WT, U, W, 1, 1>, (const void *)gemv<WT, U / 2, W, 1, 2>,
                         (const void *)gemv<WT, U, W, 8, 1>};
    if (set) {
        for (int i = 0; i < 3; i++)
            cudaFuncSetAttribute(all[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 d->smem_max - 2048);
        return;
    }
    const size_t row = (size_t)a->ld * 4, one = a->norm ? 2 * row : row;
    const int total = a->epi == CU_EPI_GLU ? 2 * a->total : a->total, G = 8 / W;
    const bool eight =
        a->rows > 1 && row * 8 <= (size_t)d->smem_max - 2048 && a->epi != CU_EPI_GLU && !a->norm;
    const bool pair = a->epi == CU_EPI_GLU || (!eight && total >= 16384);
    const int per = pair ? 2 * G : G, blocks = (total + per - 1) / per;
    const int most = 2 * d->sms, grid = blocks < most ? blocks : most;
    if (eight) {
        launch(s, gemv<WT, U, W, 8, 1>, dim3(grid, (a->rows + 7) / 8), 256, row * 8, *a);
    } else if (pair)
        launch(s, gemv<WT, U / 2, W, 1, 2>, dim3(grid, a->rows), 256, one, *a);
    else
        launch(s, gemv<WT, U, W, 1, 1>, dim3(grid, a->rows), 256, one, *a);
}

template <uint32_t WT>
static void by_width(mn_device *d, cudaStream_t s, const cu_linear *a, bool set) {
    if (set) {
        pick<WT, 8, 1>(d, s, a, true), pick<WT, 6, 2>(d, s, a, true), pick<WT, 8, 4>(d, s, a, true);
        return;
    }
    int per_lane = (a->ld / vec<WT>::n + 31) / 32;
    if (per_lane <= 8)
        pick<WT, 8, 1>(d, s, a, false);
    else if (per_lane <= 22)
        pick<WT, 6, 2>(d, s, a, false);
    else
        pick<WT, 8, 4>(d, s, a, false);
}

void cu_gemv(mn_device *d, cudaStream_t s, uint32_t wtype, const cu_linear *a) {
    if (wtype == MN_F32)
        by_width<MN_F32>(d, s, a, false);
    else if (wtype == MN_F16)
        by_width<MN_F16>(d, s, a, false);
    else if (wtype == MN_BF16)
        by_width<MN_BF16>(d, s, a, false);
    else
        by_width<MN_Q8_0>(d, s, a, false);
}

bool cu_gemv_fits(const mn_device *d, int64_t K) {
    return mnp_round(K, CU_K_ALIGN) * 8 <= d->smem_max - 2048;
}

void cu_kernels_init(mn_device *d) {
    by_width<MN_F32>(d, 0, NULL, true);
    by_width<MN_F16>(d, 0, NULL, true);
    by_width<MN_BF16>(d, 0, NULL, true);
    by_width<MN_Q8_0>(d, 0, NULL, true);
}
