/* gemv.cuh -- LINEAR and MOE_LINEAR by dot products in f32: one row (decode), or rows by eight. A
 * sum's order depends on the width of the matrix alone, never on how many rows there are: class
 * exact gives the same bits in any batch. The first weights are in flight before the kernel waits
 * for its input, unless it must first know which expert is meant. Activations are read past L1
 * (ldcg): with early launches a line cached by an older kernel on the same multiprocessor may be
 * stale. */
#ifndef CU_GEMV_CUH
#define CU_GEMV_CUH
#include "linear.cuh"

/* x[rows r0 .. r0+R) into shared memory, normalised if asked. A lane reads V elements in groups of
 * four; group q of every vector lies together, so that a warp reads without bank conflicts. */
template <class T, int R>
__device__ __forceinline__ void load_x(const cu_linear &a, int r0, float *xs, float *red) {
    enum { HELD = 4 }; /* vectors of x that a thread keeps until the norm is known */
    const int stride = a.ld / T::E;
    if (R == 1 && a.norm && a.ld <= 1024 * HELD) {
        const int64_t row = x_row(a, r0);
        const float *x = row >= 0 ? (const float *)a.x + row * a.K : NULL;
        const float4 *nw = (const float4 *)(xs + a.ld);
        float4 held[HELD];
        float ss = 0;
#pragma unroll
        for (int k = 0; k < HELD; k++)
            held[k] = read4(x, 4 * threadIdx.x + 1024 * k, a.K);
#pragma unroll
        for (int k = 0; k < HELD; k++)
            ss = add_squares(ss, held[k]);
        const float rstd = cu_rstd(block_sum256(ss, red), a.K, a.eps);
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            const int i = 4 * threadIdx.x + 1024 * k;
            int v;
            int q;
            T::place(i, &v, &q);
            if (i < a.ld)
                ((float4 *)xs)[q * stride + v] = normalise(held[k], nw[i / 4], rstd, a.offset);
        }
        __syncthreads();
        return;
    }
    for (int r = 0; r < R; r++) {
        const int64_t row = x_row(a, r0 + r);
        float4 *to = (float4 *)(xs + r * a.ld);
        auto place = [&](int i) {
            int v;
            int q;
            T::place(i, &v, &q);
            return to + q * stride + v;
        };
        const float *x = (const float *)a.x;
        const float *from = row >= 0 ? x + row * a.K : NULL;
        auto keep = [&](int i, float4 v) { *place(i) = v; };
        const float ss = scan_row(from, a.K, a.ld, keep);
        if (!a.norm)
            continue;
        const float rstd = cu_rstd(block_sum256(ss, red), a.K, a.eps);
        const float4 *nw = (const float4 *)(xs + R * a.ld); /* put there by this thread */
        for (int i = 4 * threadIdx.x; i < a.ld; i += 1024) {
            float4 *at = place(i);
            *at = normalise(*at, nw[i / 4], rstd, a.offset);
        }
    }
    __syncthreads();
}

/* W warps share a row of weights, each lane reads U vectors of it at a time; a warp has P rows. A
 * block goes on to the next rows with x still in shared memory, and fetches their weights before it
 * works on the present ones. */
template <class T, int U, int W, int R, int P>
__global__ void __launch_bounds__(256, T::E > 8 ? 1 : 2) gemv(cu_linear a) {
    constexpr int V = T::E;
    constexpr int G = 8 / W;
    extern __shared__ __align__(16) float xs[];
    __shared__ float red[8];
    __shared__ float part_sum[8][P * R];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int part = warp % W;
    const int nv = a.ld / V;
    const int r0 = blockIdx.y * R;
    const int per = G * P;
    const int total = a.epi == CU_EPI_GLU ? 2 * a.total : a.total;
    int64_t expert = 0;
    struct weights {
        T w[P][U];
    } now, next;
    auto fetch = [&](int block, int at, weights &to) {
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int i = block * per + warp / W * P + p;
            int local;
            const cu_seg &g = a.seg[find_row(a, i < total ? i : 0, &local)];
            const int64_t row = expert * g.rows + local;
#pragma unroll
            for (int u = 0; u < U; u++) {
                const int v = ((at + u) * W + part) * 32 + lane;
                const int64_t at = row * nv + min(v, nv - 1);
                to.w[p][u].load(g.w, at);
            }
        }
    };
    auto finish = [&](int block, float(&s)[P][R]) {
#pragma unroll
        for (int p = 0; p < P; p++) {
#pragma unroll
            for (int r = 0; r < R; r++)
                s[p][r] = warp_sum(s[p][r]);
        }
        if (W > 1) {
            __syncthreads();
            if (!lane) {
#pragma unroll
                for (int p = 0; p < P; p++) {
#pragma unroll
                    for (int r = 0; r < R; r++)
                        part_sum[warp][p * R + r] = s[p][r];
                }
            }
            __syncthreads();
            if (part == 0) {
#pragma unroll
                for (int p = 0; p < P; p++) {
#pragma unroll
                    for (int r = 0; r < R; r++) {
                        for (int k = 1; k < W; k++)
                            s[p][r] += part_sum[warp + k][p * R + r];
                    }
                }
            }
        }
        if (lane || part)
            return;
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int i = block * per + warp / W * P + p;
            int local;
            if (i >= total)
                continue;
            const cu_seg &g = a.seg[find_row(a, i, &local)];
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (r0 + r >= a.rows)
                    continue;
                const float v = s[p][r] + bias_at(g, expert, local);
                if (P == 2 && a.epi == CU_EPI_GLU) {
                    if (p == 0) {
                        {
                            const float up = s[P - 1][r] + bias_at(a.seg[1], expert, local);
                            write_glu(a, r0 + r, local, v, up);
                        }
                    }
                } else {
                    write_y(a, g, r0 + r, local, v);
                }
            }
        }
    };
    if (!a.late)
        cu_next();
    if (a.experts.of) {
        cu_wait();
        expert = expert_at(a.experts, r0);
    }
    int block = blockIdx.x;
    int at = 0;
    fetch(block, 0, now);
    if (a.norm) {
        for (int i = 4 * threadIdx.x; i < a.ld; i += 1024) {
            for (int j = i; j < i + 4; j++)
                xs[R * a.ld + j] = j < a.K ? a.norm[j] : 0;
        }
    }
    if (!a.experts.of)
        cu_wait();
    if (a.late)
        cu_next();
    load_x<T, R>(a, r0, xs, red);
    float s[P][R] = {};
    for (;;) {
        int block_next = block;
        int at_next = at + U;
        const bool end = at_next * W * 32 >= nv;
        if (end) {
            at_next = 0;
            block_next += gridDim.x;
        }
        const bool more = block_next * per < total;
        if (more)
            fetch(block_next, at_next, next);
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int v = ((at + u) * W + part) * 32 + lane;
            if (v >= nv)
                continue;
            float w[P][V];
#pragma unroll
            for (int p = 0; p < P; p++)
                now.w[p][u].to_float(w[p]);
#pragma unroll
            for (int r = 0; r < R; r++) {
#pragma unroll
                for (int i = 0; i < V; i += 4) {
                    const float4 *x = (const float4 *)(xs + r * a.ld);
                    const float4 f = x[i / 4 * nv + v];
#pragma unroll
                    for (int p = 0; p < P; p++) {
                        float &sum = s[p][r];
                        sum = fmaf(w[p][i], f.x, sum);
                        sum = fmaf(w[p][i + 1], f.y, sum);
                        sum = fmaf(w[p][i + 2], f.z, sum);
                        sum = fmaf(w[p][i + 3], f.w, sum);
                    }
                }
            }
        }
        if (end) {
            finish(block, s);
#pragma unroll
            for (int p = 0; p < P; p++) {
#pragma unroll
                for (int r = 0; r < R; r++)
                    s[p][r] = 0;
            }
        }
        if (!more)
            break;
        now = next;
        block = block_next;
        at = at_next;
    }
}

template <class T, int U, int W> static void gemv_limits(const cu_card *d) {
    constexpr int U2 = U > 1 ? U / 2 : 1;
    const void *one_row = (const void *)gemv<T, U, W, 1, 1>;
    const void *row_pair = (const void *)gemv<T, U2, W, 1, 2>;
    const void *eight_rows = (const void *)gemv<T, U, W, 8, 1>;
    const void *all[] = {one_row, row_pair, eight_rows};
    for (int i = 0; i < 3; i++) {
        cudaFuncSetAttribute(all[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
                             d->smem_max - 2048);
    }
}

/* U does not change the order of sums, W does: pairs of rows may read half as far ahead. */
template <class T, int U, int W>
static void gemv_shape(const cu_card *d, cudaStream_t s, const cu_linear *a) {
    constexpr int U2 = U > 1 ? U / 2 : 1;
    const size_t row = (size_t)a->ld * 4;
    const size_t one = a->norm ? 2 * row : row;
    const int total = a->epi == CU_EPI_GLU ? 2 * a->total : a->total;
    const int G = 8 / W;
    const bool glu = a->epi == CU_EPI_GLU;
    const bool alone = a->rows == 1 || a->norm || a->experts.of || glu;
    const bool eight = !alone && row * 8 <= (size_t)d->smem_max - 2048;
    const bool pair = glu || (!eight && total >= 16384);
    const int per = pair ? 2 * G : G;
    const int blocks = (total + per - 1) / per;
    const int most = 2 * d->sms;
    const int grid = blocks < most ? blocks : most;
    const dim3 by_one(grid, a->rows);
    const dim3 by_eight(grid, (a->rows + 7) / 8);
    if (eight)
        launch(s, gemv<T, U, W, 8, 1>, by_eight, 256, row * 8, *a);
    else if (pair)
        launch(s, gemv<T, U2, W, 1, 2>, by_one, 256, one, *a);
    else
        launch(s, gemv<T, U, W, 1, 1>, by_one, 256, one, *a);
}

template <class T> static void gemv_run(const cu_card *d, cudaStream_t s, const cu_linear *a) {
    const int per_lane = (a->ld / T::E + 31) / 32;
    if constexpr (T::E > 8) {
        if (per_lane <= 2)
            gemv_shape<T, 2, 1>(d, s, a);
        else
            gemv_shape<T, 2, 4>(d, s, a);
    } else {
        if (per_lane <= 8)
            gemv_shape<T, 8, 1>(d, s, a);
        else if (per_lane <= 22)
            gemv_shape<T, 6, 2>(d, s, a);
        else
            gemv_shape<T, 8, 4>(d, s, a);
    }
}

template <class T> static void gemv_init(const cu_card *d) {
    if constexpr (T::E > 8) {
        gemv_limits<T, 2, 1>(d);
        gemv_limits<T, 2, 4>(d);
    } else {
        gemv_limits<T, 8, 1>(d);
        gemv_limits<T, 6, 2>(d);
        gemv_limits<T, 8, 4>(d);
    }
}
#endif
