/* k_moe.cu -- scores of experts, which experts a token goes to, the pairs of token and choice
 * sorted by expert, and the weighted sum of what the experts made. Pair p is choice p % k of token
 * p / k. The order of pairs of one expert is not fixed (atomics), what is computed of a pair does
 * not depend on it. */
#include "device.cuh"
#include <limits.h>

enum { ROUTE_WARPS = 8 };

/* The lane with the largest score; of equal ones the lowest index. Every lane gets both. As numbers
 * without a sign floats have their order if negative ones are turned around. */
__device__ __forceinline__ void warp_best(float &v, int &i) {
    const uint32_t negative = 1u << 31;
    const uint32_t bits = __float_as_uint(v + 0.0f); /* -0 is 0 */
    const uint32_t key = bits & negative ? ~bits : bits | negative;
    const uint32_t most = __reduce_max_sync(~0u, key);
    i = __reduce_min_sync(~0u, key == most ? i : INT_MAX);
    v = __uint_as_float(most & negative ? most ^ negative : ~most);
}

/* ---- scores: few outputs of f32 weights for several rows ------------------------------------- */
enum { SCORE_ROWS = 4, SCORE_OUTPUTS = 8, SCORES = SCORE_ROWS * SCORE_OUTPUTS };

__device__ __forceinline__ float dot4(float4 a, float4 b, float sum) {
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum);
    return fmaf(a.w, b.w, sum);
}

/* Lane i gets the sum of v[i] over the warp; v is used up. */
__device__ __forceinline__ float sums_of_lanes(float *v) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int o = 16; o; o >>= 1) {
#pragma unroll
        for (int i = 0; i < o; i++) {
            const bool upper = lane & o;
            const float give = upper ? v[i] : v[i + o];
            const float keep = upper ? v[i + o] : v[i];
            v[i] = keep + __shfl_xor_sync(~0u, give, o);
        }
    }
    return v[0];
}

/* A block has four rows and eight outputs; its threads share k. */
__global__ void __launch_bounds__(256) score_rows(cu_linear a) {
    __shared__ float part[8][SCORES];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row0 = blockIdx.x * SCORE_ROWS;
    const int output0 = blockIdx.y * SCORE_OUTPUTS;
    const cu_seg &g = a.seg[0];
    const float4 *w[SCORE_OUTPUTS];
    const float4 *x[SCORE_ROWS];
    const int vectors = a.K / 4;
    if (!a.late)
        cu_next();
#pragma unroll
    for (int o = 0; o < SCORE_OUTPUTS; o++) {
        const int64_t output = min(output0 + o, g.rows - 1);
        w[o] = (const float4 *)g.w.at[0] + output * (a.ld / 4);
        if (blockIdx.x == 0 && threadIdx.x * 8 < vectors) /* one of each line */
            asm volatile("prefetch.global.L2 [%0];" ::"l"(w[o] + threadIdx.x * 8));
    }
#pragma unroll
    for (int r = 0; r < SCORE_ROWS; r++) {
        const int64_t row = min(row0 + r, a.rows - 1);
        x[r] = (const float4 *)a.x + row * vectors;
    }
    float sum[SCORES] = {};
    cu_wait();
    if (a.late)
        cu_next();
#pragma unroll 2
    for (int i = threadIdx.x; i < vectors; i += 256) {
        float4 v[SCORE_ROWS];
#pragma unroll
        for (int r = 0; r < SCORE_ROWS; r++)
            v[r] = __ldcg(x[r] + i);
#pragma unroll
        for (int o = 0; o < SCORE_OUTPUTS; o++) {
            const float4 f = __ldg(w[o] + i);
#pragma unroll
            for (int r = 0; r < SCORE_ROWS; r++) {
                float &to = sum[r * SCORE_OUTPUTS + o];
                to = dot4(v[r], f, to);
            }
        }
    }
    part[warp][lane] = sums_of_lanes(sum);
    __syncthreads();
    if (warp)
        return;
    float y = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        y += part[i][lane];
    const int row = row0 + lane / SCORE_OUTPUTS;
    const int output = output0 + lane % SCORE_OUTPUTS;
    if (row < a.rows && output < g.rows)
        g.y[(int64_t)row * g.rows + output] = y + (g.bias ? g.bias[output] : 0);
}

void cu_scores_run(cudaStream_t s, const cu_linear *a) {
    const int across = (a->rows + SCORE_ROWS - 1) / SCORE_ROWS;
    const int down = (a->total + SCORE_OUTPUTS - 1) / SCORE_OUTPUTS;
    launch(s, score_rows, dim3(across, down), 256, 0, *a);
}

/* ---- routes ---------------------------------------------------------------------------------- */
/* The experts of this lane, as bits, that are outside of the best groups. Lane g has group g's
 * score: the sum of its best ones, of equal ones the lower index first. */
template <int PER_LANE>
__device__ __forceinline__ unsigned other_groups(const cu_route &r, const float (&pick)[PER_LANE]) {
    const int lane = threadIdx.x % 32;
    const int size = r.n / r.n_group;
    float mine = 0;
    unsigned out = 0;
    for (int g = 0; g < r.n_group; g++) {
        unsigned added = 0;
        float sum = 0;
        for (int j = 0; j < r.group_score && j < size; j++) {
            float v = -INFINITY;
            int best = r.n;
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) {
                const int e = lane + 32 * i;
                const bool free = e < r.n && e / size == g && !(added >> i & 1);
                if (free && (best == r.n || pick[i] > v)) {
                    v = pick[i];
                    best = e;
                }
            }
            warp_best(v, best);
            if (best % 32 == lane)
                added |= 1u << best / 32;
            sum += v;
        }
        if (g == lane)
            mine = sum;
    }
    bool kept = false;
    for (int j = 0; j < r.groups_used; j++) {
        float v = lane < r.n_group && !kept ? mine : -INFINITY;
        int best = lane < r.n_group && !kept ? lane : r.n;
        warp_best(v, best);
        kept |= best == lane;
    }
    const unsigned groups = __ballot_sync(~0u, kept);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int e = lane + 32 * i;
        if (e < r.n && !(groups >> (e / size) & 1))
            out |= 1u << i;
    }
    return out;
}

/* Scores, the k best in order, and their weights, as docs/ops.md says; a NaN among the scores gives
 * experts 0 to k - 1 with weight NaN. The token of a warp; lane l has experts l, l + 32, ... */
template <int PER_LANE> __device__ __forceinline__ void route_token(const cu_route &r, int t) {
    const int lane = threadIdx.x % 32;
    const float *logits = r.logits + (int64_t)t * r.n;
    int32_t *experts = r.experts + (int64_t)t * r.k;
    float *weights = r.weights + (int64_t)t * r.k;
    float p[PER_LANE];
    float pick[PER_LANE];
    float max = -INFINITY;
    float sum = 0;
    bool bad = false;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int e = lane + 32 * i;
        p[i] = e < r.n ? __ldcg(&logits[e]) : -INFINITY;
        if (e < r.n && r.kind == MN_ROUTE_SIGMOID)
            p[i] = 1.0f / (1.0f + expf(-p[i]));
        bad |= isnan(p[i]);
        max = fmaxf(max, p[i]);
    }
    max = warp_max(max);
    if (r.kind == MN_ROUTE_SOFTMAX) {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            p[i] = expf(p[i] - max);
            sum += p[i];
        }
        sum = warp_sum(sum);
        bad |= isnan(sum);
    }
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int e = lane + 32 * i;
        if (r.kind == MN_ROUTE_SOFTMAX)
            p[i] /= sum;
        pick[i] = -INFINITY;
        if (e < r.n)
            pick[i] = p[i] + (r.bias ? r.bias[e] : 0);
        bad |= e < r.n && isnan(pick[i]);
    }
    if (__any_sync(~0u, bad)) {
        for (int j = lane; j < r.k; j += 32) {
            experts[j] = j;
            weights[j] = NAN;
        }
        return;
    }
    unsigned taken = r.n_group ? other_groups(r, pick) : 0; /* of the lane's */
    float total = 0;
    float first = 0;
    for (int j = 0; j < r.k; j++) {
        float v = -INFINITY;
        int best = r.n;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const int e = lane + 32 * i;
            const bool free = e < r.n && !(taken >> i & 1);
            if (free && (best == r.n || pick[i] > v)) {
                v = pick[i];
                best = e;
            }
        }
        warp_best(v, best);
        float near = 0; /* sparsemixer: the exponentials of the logits near the best one */
        if (r.kind == MN_ROUTE_SPARSEMIXER) {
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) {
                const float behind = v - pick[i];
                const float size = fmaxf(fabsf(p[i]), v);
                const bool is_far = behind / size > 2 * r.jitter;
                const bool free = lane + 32 * i < r.n && !(taken >> i & 1);
                if (free && !is_far)
                    near += expf(-behind);
            }
            near = warp_sum(near);
        }
        float score = 0;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            if (lane + 32 * i == best) {
                taken |= 1u << i;
                score = p[i];
            }
        }
        score = __shfl_sync(~0u, score, best & 31);
        if (r.kind == MN_ROUTE_TOPK_SOFTMAX) {
            if (!j) /* by best first, unless a bias has moved the order */
                first = max;
            score = expf(score - first);
        }
        if (r.kind == MN_ROUTE_SPARSEMIXER)
            score = 1.0f / near;
        total += score;
        if (!lane) {
            experts[j] = best;
            weights[j] = score;
        }
    }
    __syncwarp();
    float f = r.scale != 0 ? r.scale : 1.0f;
    if (r.kind == MN_ROUTE_TOPK_SOFTMAX)
        f /= total;
    if (r.normalise)
        f /= r.kind == MN_ROUTE_TOPK_SOFTMAX ? 1.0f : total;
    if (!lane) {
        for (int j = 0; j < r.k; j++)
            weights[j] *= f;
    }
}

/* ---- one row: norm, scores and route together ------------------------------------------------ */
__device__ __forceinline__ float4 four_of(const float *w) {
    return __ldcs((const float4 *)w);
}
__device__ __forceinline__ float4 four_of(const __half *w) {
    const uint2 v = __ldcs((const uint2 *)w);
    const float2 a = __half22float2(*(const __half2 *)&v.x);
    const float2 b = __half22float2(*(const __half2 *)&v.y);
    return make_float4(a.x, a.y, b.x, b.y);
}
__device__ __forceinline__ float4 four_of(const __nv_bfloat16 *w) {
    const uint2 v = __ldcs((const uint2 *)w);
    return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u),
                       __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u));
}

/* A block has an expert; each forms the row's sum of squares for itself and keeps a part of the
 * normalised row; the last one to finish routes. The expert's weights are read before the kernel
 * waits for x. */
template <class W> __global__ void __launch_bounds__(256) router_row(cu_router a) {
    enum { HELD = CU_ROUTER_MOST / 1024 };
    __shared__ float squares[8];
    __shared__ float dots[8];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int expert = blockIdx.x;
    const W *w_row = (const W *)a.w + (int64_t)expert * a.ld;
    const int vectors = a.D / 4;
    float4 norm[HELD];
    float4 w[HELD];
    float4 x[HELD];
    cu_next();
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        const int i = threadIdx.x + 256 * k;
        norm[k] = make_float4(0, 0, 0, 0);
        w[k] = norm[k];
        if (i < vectors) {
            norm[k] = ((const float4 *)a.norm)[i];
            w[k] = four_of(w_row + 4 * i);
        }
    }
    const float bias = a.bias ? a.bias[expert] : 0;
    cu_wait();
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        const int i = threadIdx.x + 256 * k;
        x[k] = make_float4(0, 0, 0, 0);
        if (i < vectors)
            x[k] = __ldcg((const float4 *)a.x + i);
    }
    float ss = 0;
    float dot = 0;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        ss = add_squares(ss, x[k]);
        x[k].x *= norm[k].x + a.offset;
        x[k].y *= norm[k].y + a.offset;
        x[k].z *= norm[k].z + a.offset;
        x[k].w *= norm[k].w + a.offset;
        dot = dot4(x[k], w[k], dot);
    }
    ss = warp_sum(ss);
    dot = warp_sum(dot);
    if (!lane) {
        squares[warp] = ss;
        dots[warp] = dot;
    }
    __syncthreads();
    ss = 0;
    dot = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        ss += squares[i];
        dot += dots[i];
    }
    const float rstd = cu_rstd(ss, a.D, a.eps);
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        const int i = threadIdx.x + 256 * k;
        if (i >= vectors || i % gridDim.x != expert)
            continue;
        const float4 v = x[k];
        ((float4 *)a.y)[i] = make_float4(v.x * rstd, v.y * rstd, v.z * rstd, v.w * rstd);
    }
    if (warp)
        return;
    unsigned before = 0;
    if (!lane) {
        __stcg(&a.scores[expert], fmaf(dot, rstd, bias));
        __threadfence();
        before = atomicAdd(a.arrived, 1);
    }
    before = __shfl_sync(~0u, before, 0);
    if (before + 1 != gridDim.x)
        return;
    __threadfence();
    if (!lane)
        *a.arrived = 0;
    route_token<1>(a.route, 0);
}
void cu_router_run(cudaStream_t s, const cu_router *a) {
    const dim3 experts(a->route.n);
    if (a->w_dtype == MN_F32)
        launch(s, router_row<float>, experts, 256, 0, *a);
    else if (a->w_dtype == MN_F16)
        launch(s, router_row<__half>, experts, 256, 0, *a);
    else
        launch(s, router_row<__nv_bfloat16>, experts, 256, 0, *a);
}

/* ---- pairs by expert ------------------------------------------------------------------------- */
/* One block of at least n threads: counts, their running sum, places. */
__device__ void sort_pairs(const cu_sort &a) {
    __shared__ int count[1024];  /* pairs of an expert, then where its next pair goes */
    __shared__ int pairs_of[32]; /* of a warp's experts, then of those before */
    __shared__ int used_of[32];  /* how many of them have pairs, then likewise */
    __shared__ int used;
    __shared__ int behind; /* where the next pair goes that is of no expert */
    const int own = threadIdx.x;
    const int lane = own % 32;
    const int warp = own / 32;
    const int warps = blockDim.x / 32;
    auto expert = [&](int p) {
        int e = __ldcg(&a.of[p]);
        if (e < 0 || e >= a.n)
            e = 0;
        if (a.resident && !__ldcg(&a.resident[e]))
            return -1;
        return e;
    };
    if (own < a.n)
        count[own] = 0;
    __syncthreads();
    for (int p = own; p < a.n_pairs; p += blockDim.x) {
        const int e = expert(p);
        if (e >= 0)
            atomicAdd(&count[e], 1);
    }
    __syncthreads();
    const int n = own < a.n ? count[own] : 0;
    const int up_to = warp_sum_until(n);
    const unsigned live = __ballot_sync(~0u, n > 0);
    if (lane == 31) {
        pairs_of[warp] = up_to;
        used_of[warp] = __popc(live);
    }
    __syncthreads();
    if (!warp) {
        const int pairs = lane < warps ? pairs_of[lane] : 0;
        const int experts = lane < warps ? used_of[lane] : 0;
        const int all_pairs = warp_sum_until(pairs);
        const int all_experts = warp_sum_until(experts);
        pairs_of[lane] = all_pairs - pairs;
        used_of[lane] = all_experts - experts;
        if (lane == 31) {
            a.start[a.n] = all_pairs;
            behind = all_pairs;
            used = all_experts;
        }
    }
    __syncthreads();
    if (own < a.n) {
        count[own] = pairs_of[warp] + up_to - n;
        a.start[own] = count[own];
        if (n)
            a.active[used_of[warp] + __popc(live & ((1u << lane) - 1))] = own;
    }
    for (int i = used + own; i < a.n_active; i += blockDim.x)
        a.active[i] = -1;
    __syncthreads();
    for (int p = own; p < a.n_pairs; p += blockDim.x) {
        const int e = expert(p);
        a.pairs[atomicAdd(e < 0 ? &behind : &count[e], 1)] = p;
    }
}

__global__ void __launch_bounds__(1024) sort_all(cu_sort a) {
    cu_next();
    cu_wait();
    sort_pairs(a);
}
void cu_moe_sort(cudaStream_t s, const cu_sort *a) {
    launch(s, sort_all, dim3(1), 1024, 0, *a);
}

/* Many tokens. */
template <int PER_LANE> __global__ void __launch_bounds__(32 * ROUTE_WARPS) route_rows(cu_route r) {
    cu_next();
    cu_wait();
    const int t = blockIdx.x * ROUTE_WARPS + threadIdx.x / 32;
    if (t < r.T)
        route_token<PER_LANE>(r, t);
}

/* A warp's scores stay in registers if a block has so many threads. */
template <int PER_LANE> struct few_tokens {
    enum { THREADS = PER_LANE > 4 ? 512 : 1024, MOST = THREADS / 32 };
};

/* Few tokens and their pairs, by one block. */
template <int PER_LANE>
__global__ void __launch_bounds__(few_tokens<PER_LANE>::THREADS) route_few(cu_route r, cu_sort a) {
    cu_next();
    cu_wait();
    if ((int)threadIdx.x / 32 < r.T)
        route_token<PER_LANE>(r, threadIdx.x / 32);
    __threadfence();
    __syncthreads();
    sort_pairs(a);
}

template <int PER_LANE>
static void route_many(cudaStream_t s, const cu_route *r, const cu_sort *then) {
    const dim3 grid((r->T + ROUTE_WARPS - 1) / ROUTE_WARPS);
    launch(s, route_rows<PER_LANE>, grid, 32 * ROUTE_WARPS, 0, *r);
    cu_moe_sort(s, then);
}
template <int PER_LANE>
static void route_by(cudaStream_t s, const cu_route *r, const cu_sort *then) {
    if (r->T <= few_tokens<PER_LANE>::MOST)
        launch(s, route_few<PER_LANE>, dim3(1), few_tokens<PER_LANE>::THREADS, 0, *r, *then);
    else
        route_many<PER_LANE>(s, r, then);
}
void cu_route_run(cudaStream_t s, const cu_route *r, const cu_sort *then) {
    if (r->n <= 32)
        route_by<1>(s, r, then);
    else if (r->n <= 128)
        route_by<4>(s, r, then);
    else if (r->n <= 512)
        route_by<16>(s, r, then);
    else
        route_many<32>(s, r, then);
}

/* Row i of y is the row of x of the i-th sorted pair, in 16 bits, zeros behind K. */
__global__ void __launch_bounds__(256) sort_rows(cu_sorted a) {
    cu_next();
    cu_wait();
    const int64_t to = (int64_t)blockIdx.x * a.ld;
    const int64_t row = __ldcg(&a.pairs[blockIdx.x]) / a.x_div;
    const float *wide = (const float *)a.x + row * a.K;
    const unsigned short *narrow = (const unsigned short *)a.x + row * a.ld;
    for (int i = threadIdx.x; i < a.ld; i += 256) {
        if (a.x_kind == CU_F32) {
            const float v = i < a.K ? __ldcg(wide + i) : 0;
            put(a.y, to + i, v, a.kind);
        } else
            ((uint16_t *)a.y)[to + i] = __ldcg(narrow + i);
    }
}
void cu_sort_rows(cudaStream_t s, const cu_sorted *a) {
    launch(s, sort_rows, dim3(a->n_pairs), 256, 0, *a);
}

__global__ void __launch_bounds__(256)
    unsort_rows(const uint32_t *x, uint32_t *y, const int32_t *pairs, int words) {
    cu_next();
    cu_wait();
    const int64_t from = (int64_t)blockIdx.x * words;
    const int64_t to = (int64_t)__ldcg(&pairs[blockIdx.x]) * words;
    for (int i = threadIdx.x; i < words; i += 256)
        y[to + i] = __ldcg(&x[from + i]);
}
void cu_unsort_rows(cudaStream_t s, const void *x, void *y, const int32_t *pairs, int n_pairs,
                    int bytes) {
    launch(s, unsort_rows, dim3(n_pairs), 256, 0, (const uint32_t *)x, (uint32_t *)y, pairs,
           bytes / 4);
}

/* y[t] = residual[t] + sum over the k choices, added in their order. */
__global__ void __launch_bounds__(256) combine_rows(const float *x, const float *weights,
                                                    const float *residual, float *y, int k, int D) {
    cu_next();
    cu_wait();
    const int t = blockIdx.x;
    const int i = blockIdx.y * 256 + threadIdx.x;
    if (i >= D)
        return;
    float sum = 0;
    for (int j = 0; j < k; j++) {
        const int64_t pair = (int64_t)t * k + j;
        const float weight = weights ? __ldcg(&weights[pair]) : 1.0f;
        sum = fmaf(weight, __ldcg(&x[pair * D + i]), sum);
    }
    const int64_t at = (int64_t)t * D + i;
    y[at] = residual ? __ldcg(&residual[at]) + sum : sum;
}
void cu_moe_combine(cudaStream_t s, const float *x, const float *weights, const float *residual,
                    float *y, int T, int k, int D) {
    launch(s, combine_rows, dim3(T, (D + 255) / 256), 256, 0, x, weights, residual, y, k, D);
}

/* The same of some experts, behind base. */
__global__ void __launch_bounds__(256) combine_part(cu_combine a) {
    cu_next();
    cu_wait();
    const int t = blockIdx.x;
    const int i = blockIdx.y * 256 + threadIdx.x;
    if (i >= a.D)
        return;
    const int64_t at = (int64_t)t * a.D + i;
    float sum = a.base ? __ldcg(&a.base[at]) : 0;
    for (int j = 0; j < a.k; j++) {
        const int64_t pair = (int64_t)t * a.k + j;
        if (a.resident) {
            int e = __ldcg(&a.experts[pair]);
            if (e < 0 || e >= a.n)
                e = 0;
            if (!__ldcg(&a.resident[e]))
                continue;
        }
        const float weight = a.weights ? __ldcg(&a.weights[pair]) : 1.0f;
        sum = fmaf(weight, __ldcg(&a.x[pair * a.D + i]), sum);
    }
    a.y[at] = a.residual ? __ldcg(&a.residual[at]) + sum : sum;
}
void cu_moe_combine_part(cudaStream_t s, const cu_combine *a) {
    launch(s, combine_part, dim3(a->T, (a->D + 255) / 256), 256, 0, *a);
}
