/* k_attention_long.cu -- attention for heads that are longer than those of attend.cuh (latent
 * rows), and for what its kernels do not know: slopes and chunks. A block has LONG_HEADS heads
 * that share keys, of one row, a warp each, and walks splits of fixed length; splits are merged
 * in order, by the block that finishes last, so that a row's result depends on its position
 * alone. A tile of keys lies in shared memory in f32: lane i has the product with key i, then
 * elements i, i + 32, ... of the sum of values, which are the same tile where values are the
 * first elements of keys. */
#include "attend_long.cuh"

enum { PER_LANE = CU_MAX_HEAD / 32 };

typedef part<PER_LANE> long_part;

/* The tile of positions [at, at + n) for the head of this warp, if it has one: all threads come
 * here together. q: of the head, in shared memory; pos: of the row. */
__device__ __forceinline__ void add_tile(const cu_attend &a, bool has, int slot, int kvh, int head,
                                         int pos, int at, int n, int stride, const float *q,
                                         float *tile, long_part &r) {
    const cu_cache &c = a.c;
    const int lane = threadIdx.x % 32;
    load_rows(c, false, slot, kvh, at, n, stride, tile);
    __syncthreads();
    float logit = -INFINITY;
    if (has && lane < n && has_page(c, slot, at + lane)) {
        float s = 0;
        for (int i = 0; i < c.dk; i++)
            s = fmaf(tile[lane * stride + i], q[i], s);
        logit = __fmul_rn(s, a.scale);
        if (a.softcap != 0)
            logit = __fmul_rn(a.softcap, tanhf(logit / a.softcap));
        if (a.slopes)
            logit = fmaf(a.slopes[head], (float)(at + lane - pos), logit);
    }
    const float m = fmaxf(r.m, warp_max(logit));
    const float base = m == -INFINITY ? 0 : m;
    const float old = expf(r.m - base);
    const float e = expf(logit - base);
    r.m = m;
    r.sum = __fadd_rn(__fmul_rn(r.sum, old), warp_sum(e));
    if (c.v_offset) {
        __syncthreads();
        load_rows(c, true, slot, kvh, at, n, stride, tile);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PER_LANE; i++)
        r.o[i] = __fmul_rn(r.o[i], old);
    for (int j = 0; has && j < n; j++) {
        const float share = __shfl_sync(~0u, e, j);
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            if (lane + 32 * i < c.dv)
                r.o[i] = fmaf(share, tile[j * stride + lane + 32 * i], r.o[i]);
    }
    __syncthreads();
}

/* Where the part of split s of a head lies: maximum, sum, values. */
__device__ __forceinline__ float *long_partial_of(const cu_attend &a, int64_t head, int s) {
    return a.partial + (head * a.max_splits + s) * (a.c.dv + 2);
}

/* Grid: groups of heads, row, slices of the splits. */
__global__ void __launch_bounds__(THREADS) attend_long(cu_attend a, int groups, int log_split) {
    extern __shared__ float room[];
    __shared__ int is_last;
    const cu_cache &c = a.c;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int per_kv = a.H / c.Hkv;
    const int kvh = blockIdx.x / groups;
    const int in_group = blockIdx.x % groups * WARPS + warp;
    const bool has = in_group < per_kv;
    const int head = kvh * per_kv + min(in_group, per_kv - 1);
    const int t = blockIdx.y;
    const int stride = max(c.pk, c.pv) + 1; /* lanes read other banks */
    float *tile = room + WARPS * c.pk;
    float *q = room + warp * c.pk;
    cu_next();
    cu_wait();
    const int pos = __ldcg(&c.row_pos[t]);
    const int slot = __ldcg(&c.row_slot[t]);
    const int64_t row = (int64_t)t * a.H + head;
    if (pos < 0 || slot < 0 || slot >= c.S || pos >= c.P * CU_PAGE_TOKENS) {
        for (int i = lane; has && blockIdx.z == 0 && i < c.dv; i += 32)
            put(a.y, row * c.dv + i, 0, a.y_kind);
        return;
    }
    for (int i = lane; i < c.pk; i += 32)
        q[i] = i < c.dk ? __ldcg(&a.q[row * c.dk + i]) : 0;
    const int first = first_of(a, pos);
    const int end = last_of(a, t, pos) + 1;
    const int s0 = first >> log_split;
    const int s1 = ((end - 1) >> log_split) + 1;
    const bool direct = gridDim.z == 1;
    long_part all = no_sums<PER_LANE>();
    int mine = 0;
    __syncthreads();
    for (int s = s0 + blockIdx.z; s < s1; s += gridDim.z, mine++) {
        const int from = max(first, s << log_split);
        const int to = min(end, (s + 1) << log_split);
        long_part r = no_sums<PER_LANE>();
        for (int at = from; at < to; at += TILE)
            add_tile(a, has, slot, kvh, head, pos, at, min(TILE, to - at), stride, q, tile, r);
        if (direct) {
            merge_sums(all, r);
            continue;
        }
        float *p = long_partial_of(a, row, s);
        if (has && !lane) {
            __stcg(&p[0], r.m);
            __stcg(&p[1], r.sum);
        }
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            if (has && lane + 32 * i < c.dv)
                __stcg(&p[2 + lane + 32 * i], r.o[i]);
    }
    if (!direct) {
        unsigned *arrived = &a.arrived[(int64_t)t * gridDim.x + blockIdx.x];
        __threadfence();
        __syncthreads();
        if (!threadIdx.x && mine)
            is_last = (int)atomicAdd(arrived, (unsigned)mine) + mine == s1 - s0;
        __syncthreads();
        if (!mine || !is_last)
            return;
        __threadfence();
        if (!threadIdx.x)
            *arrived = 0;
        for (int s = s0; s < s1; s++) {
            const float *p = long_partial_of(a, row, s);
            long_part r = no_sums<PER_LANE>();
            r.m = __ldcg(&p[0]);
            r.sum = __ldcg(&p[1]);
#pragma unroll
            for (int i = 0; i < PER_LANE; i++)
                if (lane + 32 * i < c.dv)
                    r.o[i] = __ldcg(&p[2 + lane + 32 * i]);
            merge_sums(all, r);
        }
    }
    if (a.sinks) {
        long_part sink = no_sums<PER_LANE>();
        sink.m = a.sinks[head];
        sink.sum = 1;
        merge_sums(all, sink);
    }
#pragma unroll
    for (int i = 0; i < PER_LANE; i++)
        if (has && lane + 32 * i < c.dv)
            put(a.y, row * c.dv + lane + 32 * i, __fmul_rn(all.o[i], 1 / all.sum), a.y_kind);
}

void cu_attend_long_init(const cu_card *d) {
    cudaFuncSetAttribute((const void *)attend_long, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         d->smem_max - 4096);
}

void cu_attend_long(cudaStream_t s, const cu_attend *a, int log_split, int slices) {
    const int per_kv = a->H / a->c.Hkv;
    const int groups = (per_kv + WARPS - 1) / WARPS;
    const dim3 grid((unsigned)(groups * a->c.Hkv), (unsigned)a->c.T, (unsigned)slices);
    launch(s, attend_long, grid, THREADS, shared_bytes(&a->c), *a, groups, log_split);
}
