/* sample.cuh -- what the kernels of SAMPLE share: the order of logits, reductions over a block, a
 * slot's parameters, penalties, random words. Every function is called by all threads of a block of
 * THREADS. */
#ifndef CU_SAMPLE_CUH
#define CU_SAMPLE_CUH
#include "device.cuh"
#include "samplers.h"
#include <float.h>
#include <stddef.h>

#ifndef CU_SAMPLE_THREADS /* fewer where tests run this on a CPU */
#define CU_SAMPLE_THREADS 1024
#endif
enum { THREADS = CU_SAMPLE_THREADS, WARPS = THREADS / 32 };
typedef unsigned long long u64;

/* Larger logit = larger key. */
__device__ __forceinline__ uint32_t key_of(float f) {
    uint32_t u = __float_as_uint(f == 0 ? 0.0f : f);
    if (u & 0x80000000u)
        return ~u;
    return u | 0x80000000u;
}
/* The logit of a key. */
__device__ __forceinline__ float logit_of(uint32_t key) {
    const uint32_t u = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    return __uint_as_float(u);
}
struct best {
    float v;
    int i;
};
__device__ __forceinline__ best better(best a, best b) {
    if (b.i < 0)
        return a;
    const bool first = b.v == a.v && b.i < a.i;
    if (a.i < 0 || b.v > a.v || first)
        return b;
    return a;
}
__device__ __forceinline__ best warp_best(best b) {
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        best other;
        other.v = __shfl_xor_sync(~0u, b.v, o);
        other.i = __shfl_xor_sync(~0u, b.i, o);
        b = better(b, other);
    }
    return b;
}
/* The best of the block, for all threads. red: 32 in shared memory. */
__device__ best block_best(best b, best *red) {
    b = warp_best(b);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        red[threadIdx.x / 32] = b;
    __syncthreads();
    return warp_best(red[threadIdx.x % WARPS]);
}
/* An element in its place; ids ascend within a thread. */
__device__ __forceinline__ void take(best *b, float v, int i) {
    if (v > b->v)
        *b = best{v, i};
}
/* The largest logit; the same in all threads, as is *is_nan: one of them is NaN, or it was set. */
__device__ best arg_max(const float *l, int V, best *red, int *is_nan) {
    best b = {-INFINITY, -1};
    int bad = *is_nan;
    const int wide = (uintptr_t)l % 16 == 0 ? V / 4 : 0;
#pragma unroll 8
    /* -inf never; ids ascend within a thread */
    for (int i = threadIdx.x; i < wide; i += THREADS) {
        float4 v = __ldcg((const float4 *)l + i);
        bad |= isnan(v.x) | isnan(v.y) | isnan(v.z) | isnan(v.w);
        take(&b, v.x, 4 * i);
        take(&b, v.y, 4 * i + 1);
        take(&b, v.z, 4 * i + 2);
        take(&b, v.w, 4 * i + 3);
    }
    for (int i = 4 * wide + threadIdx.x; i < V; i += THREADS) {
        float v = __ldcg(&l[i]);
        bad |= isnan(v);
        take(&b, v, i);
    }
    *is_nan = __syncthreads_or(bad);
    return block_best(b, red);
}

/* Over the block, for all threads; always in the same order. */
template <class T> __device__ T block_sum(T v, T *red) {
#pragma unroll
    for (int o = 16; o; o >>= 1)
        v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        red[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < WARPS; i++)
        v += red[i];
    return v;
}
/* Word `at` of a slot's row of PARAMS; one that the row lacks is 0. */
__device__ __forceinline__ int32_t param(const cu_rows &rows, int slot, int at) {
    const int32_t *row = rows.at + (int64_t)slot * rows.words;
    if (at < rows.words)
        return __ldcg(&row[at]);
    return 0;
}
#define PARAM_AT(field) ((int)(offsetof(mn_slot_params, field) / 4))

/* All but the stop ids. Rows are usually long enough: then the words are fetched at once, eight
 * bytes at a time. */
__device__ __forceinline__ void read_params(const cu_rows &rows, int slot, mn_slot_params *p) {
    enum { PAIRS = PARAM_AT(stop) / 2, MIN_NEW = PARAM_AT(min_new) };
    int2 words[PAIRS];
    const int2 *from = (const int2 *)(rows.at + (int64_t)slot * rows.words);
    const bool whole = rows.words > MIN_NEW;
    int min_new = 0;
    if (whole) {
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            words[i] = __ldcg(&from[i]);
        min_new = __ldcg(&((const int *)from)[MIN_NEW]);
    } else {
        for (int i = 0; i < PAIRS; i++) {
            words[i].x = param(rows, slot, 2 * i);
            words[i].y = param(rows, slot, 2 * i + 1);
        }
        min_new = param(rows, slot, MIN_NEW);
    }
    memcpy(p, words, sizeof words);
    p->n_stop = min(p->n_stop, MN_MAX_STOP);
    p->min_new = min_new;
}
static_assert(offsetof(mn_slot_params, stop) % 8 == 0, "read_params fetches pairs of words");

/* What contract 4 adds; 0 in a shorter row, and where the node has no such contract. */
__device__ __forceinline__ void read_samplers(const cu_sample &a, int slot, mn_slot_params *p) {
    enum { FROM = PARAM_AT(samplers), WORDS = sizeof(mn_slot_params) / 4 - FROM };
    int32_t words[WORDS];
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        words[i] = a.samplers ? param(a.params, slot, FROM + i) : 0;
    memcpy(&p->samplers, words, sizeof words);
}

/* Lowers the logits l of what the last ids of the slot's history hold; count: room for a.V. */
__device__ void penalise(const cu_sample &a, const mn_slot_params &p, float *l, int32_t *count,
                         const int32_t *history, int pos) {
    int hi = pos < a.C ? pos : a.C;
    int lo = p.penalty_last_n < 0 || p.penalty_last_n > hi ? 0 : hi - p.penalty_last_n;
    for (int i = threadIdx.x; i < a.V; i += THREADS)
        count[i] = 0;
    __syncthreads();
    for (int i = lo + threadIdx.x; i < hi; i += THREADS) {
        int id = __ldcg(&history[i]);
        if (id >= 0 && id < a.V)
            atomicAdd(&count[id], 1);
    }
    __syncthreads();
    for (int id = threadIdx.x; id < a.V; id += THREADS) {
        int n = __ldcg(&count[id]);
        if (!n)
            continue;
        float v = l[id];
        if (p.repeat_penalty != 0)
            v = v > 0 ? __fdiv_rn(v, p.repeat_penalty) : __fmul_rn(v, p.repeat_penalty);
        const float frequency = __fmul_rn(p.frequency_penalty, (float)n);
        v = __fsub_rn(v, __fadd_rn(frequency, p.presence_penalty));
        l[id] = isnan(v) ? -INFINITY : fminf(v, FLT_MAX);
    }
    __syncthreads();
}

/* The random words of a position under a seed: the first two, each as a number in [0, 1). */
__device__ float2 philox(u64 seed, uint32_t pos) {
    uint32_t c[4] = {pos, 0, 0, 0};
    mnp_philox((uint32_t)seed, (uint32_t)(seed >> 32), c);
    float2 uniform;
    uniform.x = (float)(c[0] >> 8) * 0x1p-24f;
    uniform.y = (float)(c[1] >> 8) * 0x1p-24f;
    return uniform;
}

#endif
