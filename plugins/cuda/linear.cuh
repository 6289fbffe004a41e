/* linear.cuh -- what the products of gemv.cuh and mmv.cuh share: which row of which segment, which
 * row of x, and what becomes of a sum. */
#ifndef CU_LINEAR_CUH
#define CU_LINEAR_CUH
#include "ptx.cuh"
#include "weight.cuh"

/* Row i of the concatenated segments (GLU: gate and up in turn): the segment, and *local. */
__device__ __forceinline__ int find_row(const cu_linear &a, int i, int *local) {
    if (a.epi == CU_EPI_GLU) {
        *local = i >> 1;
        return i & 1;
    }
    int s = 0;
    while (s + 1 < a.n_seg && i >= a.seg[s].rows)
        i -= a.seg[s++].rows;
    *local = i;
    return s;
}

/* The expert of a pair of token and choice; what is not in range counts as 0. */
__device__ __forceinline__ int expert_at(const cu_experts &e, int pair) {
    const int i = __ldcg(&e.of[pair]);
    if (i >= 0 && i < e.n)
        return i;
    return 0;
}

/* The row of x for row r of the product; -1 = none, which reads as zeros. */
__device__ __forceinline__ int64_t x_row(const cu_linear &a, int r) {
    if (r >= a.rows)
        return -1;
    if (a.experts.of)
        return r / a.experts.x_div;
    if (!a.gather)
        return r;
    const int row = __ldcg(&a.gather[r]);
    if (row < a.x_rows)
        return row;
    return -1;
}

__device__ __forceinline__ float bias_at(const cu_seg &g, int64_t expert, int local) {
    if (g.bias)
        return g.bias[expert * g.rows + local];
    return 0;
}

/* Elements i to i + 3 of a row of K; zeros behind it, or where x is NULL. */
__device__ __forceinline__ float4 read4(const float *x, int i, int K) {
    float4 v = make_float4(0, 0, 0, 0);
    if (!x || i >= K)
        return v;
    if (K % 4 == 0)
        return __ldcg((const float4 *)(x + i));
    v.x = __ldcg(x + i);
    if (i + 1 < K)
        v.y = __ldcg(x + i + 1);
    if (i + 2 < K)
        v.z = __ldcg(x + i + 2);
    if (i + 3 < K)
        v.w = __ldcg(x + i + 3);
    return v;
}

__device__ __forceinline__ float4 normalise(float4 v, float4 w, float rstd, float offset) {
    v.x = v.x * rstd * (w.x + offset);
    v.y = v.y * rstd * (w.y + offset);
    v.z = v.z * rstd * (w.z + offset);
    v.w = v.w * rstd * (w.w + offset);
    return v;
}

__device__ __forceinline__ void write_y(const cu_linear &a, const cu_seg &g, int64_t row, int local,
                                        float v) {
    const int64_t at = row * g.rows + local;
    if (a.epi == CU_EPI_ADD)
        v = __ldcg(&a.residual[at]) + v;
    g.y[at] = v;
}

__device__ __forceinline__ void write_glu(const cu_linear &a, int64_t row, int local, float gate,
                                          float up) {
    const int64_t at = row * a.seg[0].rows + local;
    put(a.seg[0].y, at, cu_glu_of(a.glu, gate, up), a.y_kind);
}
#endif
