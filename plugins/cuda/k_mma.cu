/* k_mma.cu -- LINEAR of many rows on the matrix units (mma.sync m16n8k16), 16-bit weights and
 * activations, f32 sums. Weight rows are the M side and stream from memory straight into registers:
 * a lane reads 16 bytes in a row of 128, and since a dot product does not care for the order of k,
 * those 8 elements simply count as the lane's in two products. Eight warps split k; their sums meet
 * in shared memory. */
#include "kernels.h"

template <bool BF>
__device__ __forceinline__ void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                    uint32_t b0, uint32_t b1) {
    if (BF)
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

/* A block: 16 weight rows (GLU: 8 of gate and the 8 of up) by 8*NT rows of x. Grid: x = rows of x,
 * y = weight rows. */
template <bool BF, int NT> __global__ void __launch_bounds__(256, 2) mma_rows(cu_linear a) {
    constexpr int B = 2, N = 8 * NT; /* units of 64 k in flight */
    __shared__ float sum[8][16][N + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4,
              units = a.ld / 64, r0 = blockIdx.x * N;
    const bool glu = a.epi == CU_EPI_GLU;
    const uint4 *row[2];
    const uint4 zero = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int i = glu ? blockIdx.y * 8 + g : blockIdx.y * 16 + h * 8 + g, s = glu ? h : 0;
        bool live = i < a.total;
        while (!glu && s + 1 < a.n_seg && i >= a.seg[s].rows)
            i -= a.seg[s++].rows;
        row[h] = live ? (const uint4 *)a.seg[s].w + (int64_t)i * (a.ld / 8) : NULL;
    }
    float c[NT][4];
#pragma unroll
    for (int n = 0; n < NT; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
    uint4 w[B][2][2];
    auto fetch = [&](int u0) {
#pragma unroll
        for (int b = 0; b < B; b++)
#pragma unroll
            for (int q = 0; q < 2; q++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int u = u0 + b * 8;
                    w[b][q][h] = u < units && row[h] ? __ldcs(row[h] + u * 8 + q * 4 + t) : zero;
                }
    };
    cu_next();
    fetch(warp);
    cu_wait();
    const uint4 *x0 = (const uint4 *)a.x + (int64_t)(r0 + g) * (a.ld / 8) + t;
    const int left = a.rows - r0 - g, step = a.ld; /* rows 8 apart are a.ld vectors apart */
    for (int u0 = warp; u0 < units; u0 += 8 * B) {
        uint4 v[B][2][2];
#pragma unroll
        for (int b = 0; b < B; b++)
#pragma unroll
            for (int q = 0; q < 2; q++)
                v[b][q][0] = w[b][q][0], v[b][q][1] = w[b][q][1];
        if (u0 + 8 * B < units)
            fetch(u0 + 8 * B);
#pragma unroll
        for (int b = 0; b < B; b++) {
            int u = u0 + b * 8;
            if (u >= units)
                break;
            constexpr int A = NT > 4 ? 1 : 2; /* halves of the unit read at a time */
#pragma unroll
            for (int q0 = 0; q0 < 2; q0 += A) {
                uint4 y[A][NT];
#pragma unroll
                for (int q = 0; q < A; q++)
#pragma unroll
                    for (int n = 0; n < NT; n++)
                        y[q][n] =
                            n * 8 < left ? __ldcg(x0 + n * step + u * 8 + (q0 + q) * 4) : zero;
#pragma unroll
                for (int q = 0; q < A; q++)
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        const uint4 *a = v[b][q0 + q];
                        mma<BF>(c[n], a[0].x, a[1].x, a[0].y, a[1].y, y[q][n].x, y[q][n].y);
                        mma<BF>(c[n], a[0].z, a[1].z, a[0].w, a[1].w, y[q][n].z, y[q][n].w);
                    }
            }
        }
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
        sum[warp][g][n * 8 + 2 * t] = c[n][0], sum[warp][g][n * 8 + 2 * t + 1] = c[n][1];
        sum[warp][g + 8][n * 8 + 2 * t] = c[n][2], sum[warp][g + 8][n * 8 + 2 * t + 1] = c[n][3];
    }
    __syncthreads();
    for (int k = threadIdx.x; k < 16 * N; k += 256) {
        int m = k % 16, n = k / 16, r = r0 + n;
        float v = 0;
#pragma unroll
        for (int p = 0; p < 8; p++)
            v += sum[p][m][n];
        if (glu) {
            int i = blockIdx.y * 8 + m % 8, s = m / 8;
            if (i < a.total && a.seg[s].bias)
                v += a.seg[s].bias[i];
            float up = __shfl_down_sync(~0u, v, 8);
            if (m < 8 && i < a.total && r < a.rows)
                put(a.seg[0].y, (int64_t)r * a.total + i, cu_act(a.act, v) * up, a.y_kind);
            continue;
        }
        int i = blockIdx.y * 16 + m, s = 0;
        if (i >= a.total || r >= a.rows)
            continue;
        while (s + 1 < a.n_seg && i >= a.seg[s].rows)
            i -= a.seg[s++].rows;
        const cu_seg &q = a.seg[s];
        if (q.bias)
            v += q.bias[i];
        int64_t at = (int64_t)r * q.rows + i;
        q.y[at] = a.epi == CU_EPI_ADD ? __ldcg(&a.residual[at]) + v : v;
    }
}

template <bool BF> static void by_rows(cudaStream_t s, const cu_linear *a) {
    const int m = (a->total + (a->epi == CU_EPI_GLU ? 7 : 15)) / (a->epi == CU_EPI_GLU ? 8 : 16);
    if (a->rows <= 8)
        launch(s, mma_rows<BF, 1>, dim3(1, m), 256, 0, *a);
    else if (a->rows <= 16)
        launch(s, mma_rows<BF, 2>, dim3(1, m), 256, 0, *a);
    else if (a->rows > 64)
        launch(s, mma_rows<BF, 8>, dim3((a->rows + 63) / 64, m), 256, 0, *a);
    else
        launch(s, mma_rows<BF, 4>, dim3((a->rows + 31) / 32, m), 256, 0, *a);
}

void cu_mma(mn_device *d, cudaStream_t s, uint32_t wtype, const cu_linear *a) {
    (void)d;
    if (wtype == MN_BF16)
        by_rows<true>(s, a);
    else
        by_rows<false>(s, a);
}
