/* linear.cuh -- what the products of gemv.cuh and mmv.cuh share: which row of which segment, which
 * row of x, and what becomes of a sum. */
#ifndef CU_LINEAR_CUH
#define CU_LINEAR_CUH
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
    return i >= 0 && i < e.n ? i : 0;
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
    return row < a.x_rows ? row : -1;
}

__device__ __forceinline__ float bias_at(const cu_seg &g, int64_t expert, int local) {
    return g.bias ? g.bias[expert * g.rows + local] : 0;
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
    g.y[at] = a.epi == CU_EPI_ADD ? __ldcg(&a.residual[at]) + v : v;
}

__device__ __forceinline__ void write_glu(const cu_linear &a, int64_t row, int local, float gate,
                                          float up) {
    put(a.seg[0].y, row * a.seg[0].rows + local, cu_glu_of(a.glu, gate, up), a.y_kind);
}
#endif
