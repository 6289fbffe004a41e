/* mmv.cuh -- LINEAR and MOE_LINEAR on the matrix units (mma.sync m16n8k16): few rows, 16-bit weights
 * and activations, f32 sums. Weight rows are the M side and stream from memory straight into
 * registers: a lane reads E elements in a row, and since a dot product does not care for the order
 * of k, these simply count as the lane's in E / 4 products. Eight warps split k; their sums meet in
 * shared memory, in order.
 *
 * ONE: a single row of x in f32, normalised on the way if asked, kept in shared memory while a block
 * goes through its tiles of 16 weight rows. Else x are 16-bit rows in memory; of experts, those of
 * the pairs that chose the expert. */
#ifndef CU_MMV_CUH
#define CU_MMV_CUH
#include "linear.cuh"

template <int KIND>
__device__ __forceinline__ void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                    uint32_t b0, uint32_t b1) {
    if (KIND == CU_BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Four halves, f16 or bf16. */
template <int KIND> __device__ __forceinline__ uint2 round4(float4 v) {
    ushort4 h;
    if (KIND == CU_BF16) {
        h.x = __bfloat16_as_ushort(__float2bfloat16_rn(v.x));
        h.y = __bfloat16_as_ushort(__float2bfloat16_rn(v.y));
        h.z = __bfloat16_as_ushort(__float2bfloat16_rn(v.z));
        h.w = __bfloat16_as_ushort(__float2bfloat16_rn(v.w));
    } else {
        h.x = __half_as_ushort(to_half(v.x));
        h.y = __half_as_ushort(to_half(v.y));
        h.z = __half_as_ushort(to_half(v.z));
        h.w = __half_as_ushort(to_half(v.w));
    }
    uint2 r;
    memcpy(&r, &h, sizeof r);
    return r;
}

/* The one row of x, rounded, into shared memory: [ld] of 16 bits at xs; behind it, with a norm, its
 * weights [ld] and x itself [ld] in f32. */
template <int KIND>
__device__ __forceinline__ void load_one(const cu_linear &a, char *xs, float *red) {
    uint2 *to = (uint2 *)xs;
    float4 *w = (float4 *)(xs + (size_t)a.ld * 2), *raw = w + a.ld / 4;
    const int64_t row = x_row(a, 0);
    const float *from = row >= 0 ? (const float *)a.x + row * a.K : NULL;
    const float ss = scan_row(from, a.K, a.ld, [&](int i, float4 v) {
        if (a.norm)
            raw[i / 4] = v;
        else
            to[i / 4] = round4<KIND>(v);
    });
    if (a.norm) {
        const float rstd = cu_rstd(block_sum256(ss, red), a.K, a.eps);
        for (int i = threadIdx.x; i < a.ld / 4; i += 256)
            to[i] = round4<KIND>(normalise(raw[i], w[i], rstd, a.offset));
    }
    __syncthreads();
}

template <class T, int NT, bool ONE> __global__ void __launch_bounds__(256, 2) mmv(cu_linear a) {
    constexpr int E = T::E, HALF = T::HALF, N = 8 * NT;
    /* units in flight, by what a lane holds of one */
    constexpr int U = E == 8 ? (NT > 4 ? 2 : 4) : (NT > 2 || (!ONE && sizeof(T) > 24) ? 1 : 2);
    extern __shared__ __align__(16) char xs_one[];
    __shared__ float sum[8][16][ONE ? 1 : N + 1], red[8];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int nv = a.ld / E, units = (nv + 3) / 4, steps = (units + 8 * U - 1) / (8 * U);
    const bool glu = a.epi == CU_EPI_GLU;
    const int tiles = glu ? (a.total + 7) / 8 : (a.total + 15) / 16;
    int64_t expert = 0;
    int first = 0, rows = a.rows; /* of the expert's pairs */
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
            const int64_t row = expert * a.seg[s].rows + i;
#pragma unroll
            for (int u = 0; u < U; u++) {
                const int v = ((step * U + u) * 8 + warp) * 4 + t;
                to.w[u][h].load(a.seg[s].w, row * nv + min(v, nv - 1));
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
    fetch(blockIdx.y, 0, now);
    if (ONE && a.norm) {
        float *w = (float *)(xs_one + (size_t)a.ld * 2);
        for (int i = threadIdx.x; i < a.ld; i += 256)
            w[i] = i < a.K ? a.norm[i] : 0;
    }
    if (!a.experts.of)
        cu_wait();
    if (a.late)
        cu_next();
    if (ONE) {
        if (a.norm)
            __syncthreads();
        load_one<HALF>(a, xs_one, red);
    }
    for (int r0 = blockIdx.x * N; r0 < rows; r0 += gridDim.x * N) {
        int tile = blockIdx.y, step = 0;
        const uint4 zero = make_uint4(0, 0, 0, 0);
        const uint4 *x[NT];
        if (r0 != (int)blockIdx.x * N)
            fetch(tile, 0, now);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            if (ONE) {
                x[n] = g ? NULL : (const uint4 *)xs_one;
                continue;
            }
            const int r = r0 + n * 8 + g;
            int64_t row = r;
            if (a.experts.of && r < rows)
                row = __ldcg(&a.experts.pairs[first + r]) / a.experts.x_div;
            x[n] = r < rows ? (const uint4 *)a.x + row * (a.ld / 8) : NULL;
        }
        float c[NT][4];
#pragma unroll
        for (int n = 0; n < NT; n++)
            c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
        for (;;) {
            int tile_next = tile, step_next = step + 1;
            const bool end = step_next >= steps;
            if (end) {
                step_next = 0;
                tile_next += gridDim.y;
            }
            const bool more = tile_next < tiles;
            if (more)
                fetch(tile_next, step_next, next);
#pragma unroll
            for (int u = 0; u < U; u++) {
                const int unit = (step * U + u) * 8 + warp, v = unit * 4 + t;
                if (unit >= units)
                    break;
                uint32_t w0[E / 2], w1[E / 2];
                now.w[u][0].to_half(w0);
                now.w[u][1].to_half(w1);
#pragma unroll
                for (int q = 0; q < E / 8; q++) {
                    uint4 y[NT];
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        const bool in = x[n] && v < nv;
                        const uint4 *from = x[n] + v * (E / 8) + q;
                        y[n] = !in ? zero : ONE ? *from : __ldcg(from);
                    }
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        mma<HALF>(c[n], w0[4 * q], w1[4 * q], w0[4 * q + 1], w1[4 * q + 1], y[n].x,
                                  y[n].y);
                        mma<HALF>(c[n], w0[4 * q + 2], w1[4 * q + 2], w0[4 * q + 3], w1[4 * q + 3],
                                  y[n].z, y[n].w);
                    }
                }
            }
            if (end) {
                if (ONE) {
                    if (!t) {
                        sum[warp][g][0] = c[0][0];
                        sum[warp][g + 8][0] = c[0][2];
                    }
                } else
#pragma unroll
                    for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int k = 0; k < 4; k++)
                            sum[warp][g + k / 2 * 8][ONE ? 0 : n * 8 + 2 * t + k % 2] = c[n][k];
                __syncthreads();
                for (int k = threadIdx.x; k < 16 * (ONE ? 1 : N); k += 256) {
                    const int m = k % 16, n = k / 16;
                    float y = 0;
#pragma unroll
                    for (int p = 0; p < 8; p++)
                        y += sum[p][m][n];
                    y *= 1.0f / T::SCALED;
                    int i = glu ? tile * 8 + m % 8 : tile * 16 + m, s = glu ? m / 8 : 0;
                    while (!glu && s + 1 < a.n_seg && i >= a.seg[s].rows)
                        i -= a.seg[s++].rows;
                    const bool in = r0 + n < rows && i < (glu ? a.total : a.seg[s].rows);
                    if (in)
                        y += bias_at(a.seg[s], expert, i);
                    int64_t row = r0 + n;
                    if (a.experts.of && in)
                        row = __ldcg(&a.experts.pairs[first + row]);
                    if (glu) {
                        const float up = __shfl_down_sync(__activemask(), y, 8);
                        if (in && m < 8)
                            write_glu(a, row, i, y, up);
                    } else if (in)
                        write_y(a, a.seg[s], row, i, y);
                }
                __syncthreads();
#pragma unroll
                for (int n = 0; n < NT; n++)
                    c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
            }
            if (!more)
                break;
            now = next;
            tile = tile_next;
            step = step_next;
        }
    }
}

template <class T, int NT>
static void mmv_rows(mn_device *d, cudaStream_t s, const cu_linear *a, int tiles) {
    const int parts = a->experts.of ? a->experts.n_active : 1;
    /* an expert's rows are known on the device alone: its blocks go through all of them */
    const int across = a->experts.of ? 1 : (a->rows + 8 * NT - 1) / (8 * NT);
    dim3 grid(across, tiles, parts);
    (void)d;
    launch(s, mmv<T, NT, false>, grid, 256, 0, *a);
}

/* Blocks stay for as many tiles as there are waves of them. */
template <class T>
static void mmv_one(mn_device *d, cudaStream_t s, const cu_linear *a, int tiles) {
    const size_t smem = (size_t)a->ld * (a->norm ? 10 : 2);
    const int room = smem > 100 << 10 ? d->sms : 2 * d->sms, waves = (tiles + room - 1) / room;
    launch(s, mmv<T, 1, true>, dim3(1, (tiles + waves - 1) / waves), 256, smem, *a);
}

template <class T> static void mmv_run(mn_device *d, cudaStream_t s, const cu_linear *a) {
    const int tile = a->epi == CU_EPI_GLU ? 8 : 16, tiles = (a->total + tile - 1) / tile;
    /* experts: half of the rows that the fullest one may have, if they spread */
    const int rows = a->experts.of ? a->experts.typical : a->rows;
    if (a->x_kind == CU_F32)
        mmv_one<T>(d, s, a, tiles);
    else if (rows <= 8)
        mmv_rows<T, 1>(d, s, a, tiles);
    else if (rows <= 16)
        mmv_rows<T, 2>(d, s, a, tiles);
    else if (rows <= 32)
        mmv_rows<T, 4>(d, s, a, tiles);
    else
        mmv_rows<T, 8>(d, s, a, tiles);
}

template <class T> static void mmv_init(mn_device *d) {
    cudaFuncSetAttribute((const void *)mmv<T, 1, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         d->smem_max - 4096);
}
#endif
