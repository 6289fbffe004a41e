/* k_heads.cu -- around products of heads, each with a matrix of its own: they are products of
 * experts, where pair r H + h is head h of row r, which expert h has chosen. Here the pairs are
 * written down, in their own order and by expert, and what heads have beside the product is
 * moved. */
#include "device.cuh"

/* A block has a pair. */
__global__ void __launch_bounds__(128) heads_in(cu_heads a) {
    const int p = blockIdx.x;
    const int h = p % a.H;
    const int r = p / a.H;
    cu_next();
    cu_wait();
    const float *x = a.x + (int64_t)p * (a.K + a.behind);
    for (int i = threadIdx.x; a.dense && i < a.K; i += 128)
        a.dense[(int64_t)p * a.K + i] = __ldcg(&x[i]);
    if (threadIdx.x)
        return;
    a.order[p] = h;
    a.pairs[h * a.T + r] = p;
    if (!r) {
        a.start[h] = h * a.T;
        a.active[h] = h;
    }
    if (p == a.T * a.H - 1)
        a.start[a.H] = a.T * a.H;
}
void cu_heads_in(cudaStream_t s, const cu_heads *a) {
    launch(s, heads_in, dim3(a->T * a->H), 128, 0, *a);
}

/* The product of a pair to its place, and what is passed on behind it. */
__global__ void __launch_bounds__(128)
    heads_out(cu_heads a, const float *product, float *y, int N) {
    const int64_t p = blockIdx.x;
    cu_next();
    cu_wait();
    const float *behind = a.x + p * (a.K + a.behind) + a.K;
    float *to = y + p * (N + a.behind);
    for (int i = threadIdx.x; i < N; i += 128)
        to[i] = __ldcg(&product[p * N + i]);
    for (int i = threadIdx.x; i < a.behind; i += 128)
        to[N + i] = __ldcg(&behind[i]);
}
void cu_heads_out(cudaStream_t s, const cu_heads *a, const float *product, float *y, int N) {
    launch(s, heads_out, dim3(a->T * a->H), 128, 0, *a, product, y, N);
}

/* Rows of D elements, of which the first n are normalised, and the others passed on. */
__global__ void __launch_bounds__(256)
    rms_part(const float *x, const float *w, float *y, int n, int D, float eps, float offset) {
    __shared__ float red[8];
    cu_next();
    cu_wait();
    const float *from = x + (int64_t)blockIdx.x * D;
    float *to = y + (int64_t)blockIdx.x * D;
    float ss = 0;
    for (int i = threadIdx.x; i < n; i += 256) {
        const float v = __ldcg(&from[i]);
        ss = fmaf(v, v, ss);
    }
    const float rstd = cu_rstd(block_sum256(ss, red), n, eps);
    for (int i = threadIdx.x; i < D; i += 256) {
        const float v = __ldcg(&from[i]);
        to[i] = i < n ? v * rstd * (w[i] + offset) : v;
    }
}
void cu_rms_part(cudaStream_t s, const cu_norm *a, int n) {
    launch(s, rms_part, dim3(a->rows), 256, 0, a->x, a->w, (float *)a->y, n, a->D, a->eps,
           a->offset);
}
