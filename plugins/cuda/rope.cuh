/* rope.cuh -- a head's elements by pairs, turned by their position: for the kernels that rotate and
 * those that store what they have rotated. Pairs behind n_rot are copied. */
#ifndef CU_ROPE_CUH
#define CU_ROPE_CUH
#include "device.cuh"

__device__ __forceinline__ void turn(float &a, float &b, int pos, float freq, float mscale) {
    float c;
    float s;
    angle(pos, freq, mscale, &c, &s);
    rotate(a, b, c, s);
}

/* The two kernels' threads: pairs of a head, of all heads of a row. */
__host__ __device__ __forceinline__ int pairs_of(int D) {
    return (D + 1) / 2;
}
__host__ __device__ __forceinline__ int row_pairs(const cu_rope &r) {
    return r.H * pairs_of(r.D);
}

/* element pair i of a head, i < D/2 (or a copied pair past n_rot): indices of both */
__device__ __forceinline__ bool pair(const cu_rope &r, int i, int *i0, int *i1) {
    int half = r.n_rot / 2;
    if (i < half) {
        *i0 = r.adjacent ? 2 * i : i;
        *i1 = r.adjacent ? 2 * i + 1 : i + half;
        return true;
    }
    *i0 = r.n_rot + 2 * (i - half);
    *i1 = *i0 + 1;
    return false;
}

/* Pair i of head h of row t, turned where it is one that turns: its indices and values. */
__device__ __forceinline__ void load_pair(const cu_rope &r, int t, int h, int i, int pos, int *i0,
                                          int *i1, float *a, float *b) {
    const float *x = r.x + ((int64_t)t * r.H + h) * r.D;
    bool turns = pair(r, i, i0, i1);
    *a = __ldcg(&x[*i0]);
    *b = *i1 < r.D ? __ldcg(&x[*i1]) : 0;
    if (turns)
        turn(*a, *b, pos, r.freqs[i], r.mscale);
}

/* Pair j of all heads of row t, from r.x to r.y. */
__device__ __forceinline__ void rope_pair(const cu_rope &r, int t, int j, int pos) {
    int i0;
    int i1;
    int per = (r.D + 1) / 2;
    int h = j / per;
    float a;
    float b;
    float *y = r.y + ((int64_t)t * r.H + h) * r.D;
    load_pair(r, t, h, j % per, pos, &i0, &i1, &a, &b);
    y[i0] = a;
    if (i1 < r.D)
        y[i1] = b;
}
#endif
