/* k_lora.cu -- LORA: A x of the rows that have an adapter, a warp for each of its numbers, then y
 * and B of that. Of many rows eight neighbours go together where they have one adapter, as those of
 * a prompt do: its matrices are then read once for them. A sum has one order, whatever rows are
 * beside it. */
#include "device.cuh"

enum { WARPS = 4, TOGETHER = 8, FEW = 64 };

__device__ __forceinline__ float lora_value(const float *x, int64_t i) {
    return x[i];
}
__device__ __forceinline__ float lora_value(const __half *x, int64_t i) {
    return __half2float(x[i]);
}
__device__ __forceinline__ float4 lora_four(const float *x, int64_t i) {
    return *(const float4 *)(x + i);
}
__device__ __forceinline__ float4 lora_four(const __half *x, int64_t i) {
    const uint2 bits = *(const uint2 *)(x + i);
    const __half2 *halves = (const __half2 *)&bits;
    const float2 a = __half22float2(halves[0]);
    const float2 b = __half22float2(halves[1]);
    return make_float4(a.x, a.y, b.x, b.y);
}

__device__ __forceinline__ int lora_adapter(const cu_lora &a, int t) {
    int adapter = -1;
    if (t < a.T)
        adapter = __ldcg(&a.adapter[t]);
    if (adapter >= a.n_adapters)
        adapter = -1;
    return adapter;
}

/* Whether rows [t, t + n) have the adapter of row t. */
__device__ __forceinline__ bool lora_is_one(const cu_lora &a, int t, int n) {
    const int first = lora_adapter(a, t);
    bool one = true;
    for (int i = 1; i < n; i++) {
        const int next = lora_adapter(a, t + i);
        one = one && next == first;
    }
    return one;
}

/* sum[r] of row w [n] and rows r of x [R, n]: the share of a lane of LANES. */
template <int R, int LANES, typename W>
__device__ __forceinline__ void lora_dot(const W *w, const float *x, int n, int lane,
                                         float sum[R]) {
    const int whole = n % 4 == 0 ? n : 0;
    for (int k = 4 * lane; k < whole; k += 4 * LANES) {
        const float4 f = lora_four(w, k);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const float *row = x + (int64_t)r * n;
            const float4 *four = (const float4 *)(row + k);
            const float4 v = __ldcg(four);
            sum[r] = fmaf(f.x, v.x, sum[r]);
            sum[r] = fmaf(f.y, v.y, sum[r]);
            sum[r] = fmaf(f.z, v.z, sum[r]);
            sum[r] = fmaf(f.w, v.w, sum[r]);
        }
    }
    for (int k = whole + lane; k < n; k += LANES) {
        const float f = lora_value(w, k);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const float *row = x + (int64_t)r * n;
            const float v = __ldcg(row + k);
            sum[r] = fmaf(f, v, sum[r]);
        }
    }
}

template <int R, typename W>
__device__ __forceinline__ void lora_shrink_rows(const cu_lora &a, int t, int q, int lane) {
    const int adapter = lora_adapter(a, t);
    const W *w = (const W *)a.a;
    float sum[R] = {0};
    if (adapter < 0)
        return;
    const float *x = a.x + (int64_t)t * a.K;
    const int64_t row_of_a = (int64_t)adapter * a.Q + q;
    w += row_of_a * a.K;
    lora_dot<R, 32>(w, x, a.K, lane, sum);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float all = warp_sum(sum[r]);
        float *h = a.h + (int64_t)(t + r) * a.Q;
        if (!lane)
            h[q] = all;
    }
}

template <int R, typename W> __global__ void __launch_bounds__(32 * WARPS) lora_shrink(cu_lora a) {
    cu_next();
    cu_wait();
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int q = blockIdx.x * WARPS + warp;
    const int t = blockIdx.y * R;
    if (q >= a.Q)
        return;
    if (t + R <= a.T && lora_is_one(a, t, R)) {
        lora_shrink_rows<R, W>(a, t, q, lane);
        return;
    }
    for (int r = 0; r < R && t + r < a.T; r++)
        lora_shrink_rows<1, W>(a, t + r, q, lane);
}

/* y[n] and row n of B times h, of rows t to t + R - 1. */
template <int R, typename W>
__device__ __forceinline__ void lora_expand_rows(const cu_lora &a, int t, int n) {
    const int adapter = lora_adapter(a, t);
    float sum[R] = {0};
    if (adapter >= 0) {
        const int64_t row_of_b = (int64_t)adapter * a.N + n;
        const W *b = (const W *)a.b + row_of_b * a.Q;
        const float *h = a.h + (int64_t)t * a.Q;
        lora_dot<R, 1>(b, h, a.Q, 0, sum);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int64_t at = (int64_t)(t + r) * a.N + n;
        float z = __ldcg(&a.y[at]);
        if (adapter >= 0)
            z += sum[r];
        a.z[at] = z;
    }
}

template <int R, typename W> __global__ void __launch_bounds__(128) lora_expand(cu_lora a) {
    cu_next();
    cu_wait();
    const int n = blockIdx.x * 128 + threadIdx.x;
    const int t = blockIdx.y * R;
    if (n >= a.N)
        return;
    if (t + R <= a.T && lora_is_one(a, t, R)) {
        lora_expand_rows<R, W>(a, t, n);
        return;
    }
    for (int r = 0; r < R && t + r < a.T; r++)
        lora_expand_rows<1, W>(a, t + r, n);
}

template <int R, typename W> static void lora_run(cudaStream_t s, const cu_lora *a) {
    const int groups = (a->T + R - 1) / R;
    const int shrinking = (a->Q + WARPS - 1) / WARPS;
    const int expanding = (a->N + 127) / 128;
    const dim3 shrinks(shrinking, groups);
    const dim3 expands(expanding, groups);
    launch(s, lora_shrink<R, W>, shrinks, 32 * WARPS, 0, *a);
    launch(s, lora_expand<R, W>, expands, 128, 0, *a);
}

void cu_lora_run(cudaStream_t s, const cu_lora *a) {
    if (a->T <= FEW && a->half)
        lora_run<1, __half>(s, a);
    else if (a->T <= FEW)
        lora_run<1, float>(s, a);
    else if (a->half)
        lora_run<TOGETHER, __half>(s, a);
    else
        lora_run<TOGETHER, float>(s, a);
}
