/* attend_long.cuh -- what the kernels of k_attention_long.cu and k_attention_distance.cu share: a
 * block of 8 warps has tiles of 32 keys, then values, in shared memory in f32. */
#ifndef CU_ATTEND_LONG_CUH
#define CU_ATTEND_LONG_CUH
#include "cached.cuh"

enum { WARPS = CU_LONG_HEADS, THREADS = 32 * WARPS, TILE = 32 };

/* A running softmax of a head of up to 32 PER elements: the sums of a lane's elements of values. */
template <int PER> struct part { float m, sum, o[PER]; };

template <int PER> __device__ __forceinline__ part<PER> no_sums() {
    part<PER> p;
    p.m = -INFINITY;
    p.sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        p.o[i] = 0;
    return p;
}

template <int PER>
__device__ __forceinline__ void merge_sums(part<PER> &into, const part<PER> &from) {
    const float m = fmaxf(into.m, from.m);
    const float base = m == -INFINITY ? 0 : m;
    const float x = expf(into.m - base);
    const float y = expf(from.m - base);
    into.m = m;
    into.sum = __fadd_rn(__fmul_rn(into.sum, x), __fmul_rn(from.sum, y));
#pragma unroll
    for (int i = 0; i < PER; i++)
        into.o[i] = __fadd_rn(__fmul_rn(into.o[i], x), __fmul_rn(from.o[i], y));
}

/* Rows [at, at + n) of a head's keys, or values, as rows of `stride` floats; zeros where no page
 * is. All threads of the block. */
__device__ __forceinline__ void load_rows(const cu_cache &c, bool value, int slot, int kvh, int at,
                                          int n, int stride, float *to) {
    const int pad = value ? c.pv : c.pk;
    const int chunks = pad / 8;
    for (int i = threadIdx.x; i < n * chunks; i += THREADS) {
        const int row = i / chunks;
        const int p = at + row;
        const int page = __ldcg(&c.pages[(int64_t)slot * c.P + p / CU_PAGE_TOKENS]);
        eight_floats v = {};
        if (page >= 0 && page < c.n_pages)
            v = read_any(value ? values_at(c, page) : keys_at(c, page),
                         value ? c.v_dtype : c.k_dtype, kvh, p, pad, i % chunks);
#pragma unroll
        for (int k = 0; k < 8; k++)
            to[row * stride + 8 * (i % chunks) + k] = v.f[k];
    }
}

/* Whether position p has a page: one that was given back is seen by no row. */
__device__ __forceinline__ bool has_page(const cu_cache &c, int slot, int p) {
    const int page = __ldcg(&c.pages[(int64_t)slot * c.P + p / CU_PAGE_TOKENS]);
    return page >= 0 && page < c.n_pages;
}

/* The last position that row t at pos sees. */
__device__ __forceinline__ int last_of(const cu_attend &a, int t, int pos) {
    int last = pos;
    for (int s = 0; a.bidirectional && s < a.n_seqs; s++) {
        const int first = __ldcg(&a.seqs[4 * s]);
        const int rows = __ldcg(&a.seqs[4 * s + 1]);
        if (rows > 0 && t >= first && t < first + rows && first + rows <= a.c.T)
            last = max(pos, __ldcg(&a.c.row_pos[first + rows - 1]));
    }
    return a.window > 0 ? min(last, pos + a.window - 1) : last;
}

__device__ __forceinline__ int first_of(const cu_attend &a, int pos) {
    const int first = a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
    return a.chunk > 0 ? max(first, pos - pos % a.chunk) : first;
}

/* Queries of the warps, and a tile. */
static size_t shared_bytes(const cu_cache *c) {
    const int longest = c->pk > c->pv ? c->pk : c->pv;
    return (size_t)(WARPS * c->pk + TILE * (longest + 1)) * sizeof(float);
}
#endif
