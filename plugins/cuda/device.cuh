/* device.cuh -- what kernels share: waiting for the predecessor, functions of a thread and of a
 * block, and their launch. For *.cu alone. */
#ifndef CU_DEVICE_CUH
#define CU_DEVICE_CUH
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "kernels.h"

__device__ __forceinline__ void cu_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void cu_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/* Of all lanes of a warp, for each of them. */
template <class T> __device__ __forceinline__ T warp_sum(T s) {
#pragma unroll
    for (int o = 16; o; o >>= 1)
        s += __shfl_xor_sync(~0u, s, o);
    return s;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int o = 16; o; o >>= 1)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
/* Of the lanes below and this one. */
__device__ __forceinline__ int warp_sum_until(int v) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        const int below = __shfl_up_sync(~0u, v, o);
        v += lane >= o ? below : 0;
    }
    return v;
}
/* docs/ops.md, ACT. silu: x / (1 + exp(-alpha x)). A relu leaves NaN as it is. */
__device__ __forceinline__ float cu_act(int kind, float x, float alpha = 1) {
    const float x3 = 0.044715f * x * x * x;
    switch (kind) {
    case MN_ACT_SILU:
        return x / (1.0f + expf(-alpha * x));
    case MN_ACT_GELU_ERF:
        return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case MN_ACT_GELU_TANH:
        return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + x3)));
    case MN_ACT_SIGMOID:
        return 1.0f / (1.0f + expf(-x));
    case MN_ACT_RELU2:
        return x < 0 ? 0 : x * x;
    default:
        return x < 0 ? 0 : x;
    }
}
/* docs/ops.md, ACT, xielu. Comparisons let NaN through. */
__device__ __forceinline__ float cu_xielu_of(const cu_xielu &n, float x) {
    const float linear = n.beta * x;
    const float least = x > n.eps ? n.eps : x;
    if (x > 0)
        return n.alpha_p * x * x + linear;
    return n.alpha_n * (expm1f(least) - x) + linear;
}
/* docs/ops.md, GLU. Comparisons let NaN through. */
__device__ __forceinline__ float cu_glu_of(const cu_glu &g, float gate, float up) {
    if (g.limit != 0) {
        gate = gate > g.limit ? g.limit : gate;
        if (up > g.limit)
            up = g.limit;
        else if (up < -g.limit)
            up = -g.limit;
    }
    const float alpha = g.alpha != 0 ? g.alpha : 1.0f;
    return cu_act(g.kind, gate, alpha) * (up + g.up_offset);
}
/* What exceeds f16 becomes its largest value; NaN and infinity stay what they are (fmaxf would make
 * a number of a NaN). */
__device__ __forceinline__ __half to_half(float v) {
    return __float2half_rn(isfinite(v) ? fminf(fmaxf(v, -65504.0f), 65504.0f) : v);
}
/* 1 / root mean square of n elements. A sum beyond f32 gives NaN: 1 / infinity would make zeros of
 * the row. */
__device__ __forceinline__ float cu_rstd(float sum, int n, float eps) {
    return isinf(sum) ? NAN : 1.0f / sqrtf(sum / (float)n + eps);
}
__device__ __forceinline__ void put(void *y, int64_t i, float v, int kind) {
    if (kind == CU_F32)
        ((float *)y)[i] = v;
    else if (kind == CU_HALF)
        ((__half *)y)[i] = to_half(v);
    else if (kind == CU_LOW)
        ((__half *)y)[i] = to_half(v * (1.0f / CU_LOWERED));
    else
        ((__nv_bfloat16 *)y)[i] = __float2bfloat16_rn(v);
}
/* cos and sin of pos * freq: the product and its remainder in double, the rest in float. */
__device__ __forceinline__ void angle(int pos, float freq, float mscale, float *c, float *s) {
    double t = (double)pos * (double)freq;
    t -= 6.283185307179586477 * rint(t * 0.15915494309189533577);
    sincosf((float)t, s, c);
    *s *= mscale;
    *c *= mscale;
}
__device__ __forceinline__ void rotate(float &a, float &b, float c, float s) {
    float x = a;
    float y = b;
    a = __fmaf_rn(x, c, -__fmul_rn(y, s));
    b = __fmaf_rn(x, s, __fmul_rn(y, c));
}
/* The sum grows by the squares of v, in this order everywhere. */
__device__ __forceinline__ float add_squares(float sum, float4 v) {
    sum = fmaf(v.x, v.x, sum);
    sum = fmaf(v.y, v.y, sum);
    sum = fmaf(v.z, v.z, sum);
    return fmaf(v.w, v.w, sum);
}
/* A row of K floats by 256 threads: sink(i, v) for each group of four (i in elements; past K:
 * zeros), returns this thread's sum of squares. One order of sums for every caller. */
template <class F>
__device__ __forceinline__ float scan_row(const float *x, int K, int ld, F sink) {
    float ss = 0;
#pragma unroll 4
    for (int i = 4 * threadIdx.x; i < ld; i += 1024) {
        float4 v = make_float4(0, 0, 0, 0);
        if (x && K % 4 == 0) {
            if (i < K)
                v = __ldcg((const float4 *)(x + i));
        } else if (x) {
            if (i < K)
                v.x = __ldcg(x + i);
            if (i + 1 < K)
                v.y = __ldcg(x + i + 1);
            if (i + 2 < K)
                v.z = __ldcg(x + i + 2);
            if (i + 3 < K)
                v.w = __ldcg(x + i + 3);
        }
        ss = add_squares(ss, v);
        sink(i, v);
    }
    return ss;
}
/* sum over a block of 256 threads; red: 8 floats of shared memory */
__device__ __forceinline__ float block_sum256(float s, float *red) {
    s = warp_sum(s);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        red[threadIdx.x / 32] = s;
    __syncthreads();
    float t = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        t += red[i];
    return t;
}

/* Whether the code of kernel k that runs on the current device has what compute capability 9.0
 * brought: the wait for a predecessor (cu_wait is empty without it), clusters. Machine code for an
 * older card, and what the driver compiles from PTX for 8.0 on a newer one, have neither. */
static inline bool cu_has_sm90(const void *k) {
    cudaFuncAttributes code = {};
    if (cudaFuncGetAttributes(&code, k) == cudaSuccess)
        return code.ptxVersion >= 90;
    cudaGetLastError(); /* the launch will say it */
    return false;
}

/* A kernel whose blocks form clusters of `cluster` along x; 1 = none. */
template <class... A, class... B>
static void launch_cluster(cudaStream_t s, void (*k)(A...), dim3 grid, int block, size_t smem,
                           int cluster, B... b) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute at[2] = {};
    c.gridDim = grid;
    c.blockDim = dim3(block);
    c.dynamicSmemBytes = smem;
    c.stream = s;
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    at[1].id = cudaLaunchAttributeClusterDimension;
    at[1].val.clusterDim.x = cluster;
    at[1].val.clusterDim.y = 1;
    at[1].val.clusterDim.z = 1;
    c.attrs = at;
    if (cu_has_sm90((const void *)k))
        c.numAttrs = cluster > 1 ? 2 : 1;
    cudaLaunchKernelEx(&c, k, A(b)...);
}
template <class... A, class... B>
static void launch(cudaStream_t s, void (*k)(A...), dim3 grid, int block, size_t smem, B... b) {
    launch_cluster(s, k, grid, block, smem, 1, b...);
}
#endif
