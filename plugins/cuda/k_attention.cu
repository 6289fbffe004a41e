/* k_attention.cu -- attention over the paged cache. Positions come in splits of fixed length; a
 * split gives (max, sum, weighted values), and splits are merged in order. A row's result depends
 * on its position alone, not on the batch. Few rows: one block per head and split, the last to
 * finish merges. Many rows: one block per head walks its splits. */
#include "kernels.h"

enum { SPLIT_MAX = 1024 };

__device__ __forceinline__ void load4(const float *p, float *f) {
    float4 v = __ldcg((const float4 *)p);
    f[0] = v.x, f[1] = v.y, f[2] = v.z, f[3] = v.w;
}
/* 16 bytes of a key */
template <class KT> __device__ __forceinline__ float dot16(const KT *k, const float *q) {
    float s = 0;
    if (sizeof(KT) == 4) {
        float f[4];
        load4((const float *)k, f);
        for (int i = 0; i < 4; i++)
            s = fmaf(f[i], q[i], s);
    } else {
        uint4 v = __ldcg((const uint4 *)k);
        const __half2 *h = (const __half2 *)&v;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 f = __half22float2(h[i]);
            s = fmaf(f.x, q[2 * i], s), s = fmaf(f.y, q[2 * i + 1], s);
        }
    }
    return s;
}
/* the same sums over a key in shared memory */
template <class KT> __device__ __forceinline__ float dot_near(const KT *k, const float *q) {
    float s = 0;
#pragma unroll
    for (int i = 0; i < 16 / (int)sizeof(KT); i++)
        s = fmaf((float)k[i], q[i], s);
    return s;
}
__device__ __forceinline__ void prefetch(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
__device__ __forceinline__ void load16(const float *v, float *f) {
    load4(v, f);
}
__device__ __forceinline__ void load16(const __half *v, float *f) {
    uint4 u = __ldcg((const uint4 *)v);
    const __half2 *h = (const __half2 *)&u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 x = __half22float2(h[i]);
        f[2 * i] = x.x, f[2 * i + 1] = x.y;
    }
}

struct shared_split {
    float p[SPLIT_MAX], red[4], acc[4][256];
    int32_t page[SPLIT_MAX / CU_PAGE_TOKENS];
};

/* Positions [lo, hi) of one head: max, sum and [dv] values; the values end in acc[0]. 128 threads,
 * 4 warps. */
/* Pages of positions [first, hi); -1 where there is none. */
__device__ __forceinline__ void load_pages(const cu_cache &c, int slot, int first, int hi,
                                           int32_t *to) {
    for (int i = threadIdx.x; i < (hi - first + CU_PAGE_TOKENS - 1) / CU_PAGE_TOKENS; i += 128) {
        int page = __ldcg(&c.pages[(int64_t)slot * c.P + first / CU_PAGE_TOKENS + i]);
        to[i] = page >= 0 && page < c.n_pages ? page : -1;
    }
}

/* near: the position whose key and value are in shared memory, not in the cache; -1 = none */
template <class KT, int ND, bool ONE>
__device__ void split(const cu_attend &a, const float *q, int slot, int kvh, int first, int lo,
                      int hi, shared_split &sh, int near, const KT *k_near, const KT *v_near,
                      float *m_out, float *sum_out) {
    const cu_cache &c = a.c;
    constexpr int E = 16 / sizeof(KT);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, chunks = c.pk / E;
    int LP = 1;
    while (LP < chunks && LP < 32)
        LP *= 2;
    const int sub = lane % LP, each = 32 / LP;
    if (!ONE) {
        load_pages(c, slot, first, hi, sh.page);
        __syncthreads();
    }
    float m = -INFINITY;
#pragma unroll 4
    for (int at = lo + warp * each; at < hi; at += 4 * each) {
        int p = at + lane / LP;
        float s = 0;
        int page = p < hi ? sh.page[(p - first) / CU_PAGE_TOKENS] : -1;
        if (page >= 0) {
            const KT *k = (const KT *)(c.kv + (int64_t)page * c.page_bytes + c.layer_at) +
                          ((int64_t)kvh * CU_PAGE_TOKENS + p % CU_PAGE_TOKENS) * c.pk;
            if (ONE && p == near)
                for (int j = sub; j < chunks; j += LP)
                    s += dot_near(k_near + j * E, q + j * E);
            else
                for (int j = sub; j < chunks; j += LP)
                    s += dot16(k + j * E, q + j * E);
        }
        for (int o = LP / 2; o; o >>= 1)
            s += __shfl_xor_sync(~0u, s, o);
        s *= a.scale;
        if (a.softcap != 0)
            s = a.softcap * tanhf(s / a.softcap);
        if (p < hi && page < 0)
            s = -INFINITY;
        if (p < hi) {
            m = fmaxf(m, s);
            if (!sub)
                sh.p[p - first] = s;
        }
    }
    for (int o = 16; o; o >>= 1)
        m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    if (!lane)
        sh.red[warp] = m;
    __syncthreads();
    m = fmaxf(fmaxf(sh.red[0], sh.red[1]), fmaxf(sh.red[2], sh.red[3]));
    __syncthreads();
    float sum = 0;
    const float base = m == -INFINITY ? 0 : m; /* fmaxf passes over NaN: it comes through here */
    for (int p = lo + threadIdx.x; p < hi; p += 128) {
        float e = expf(sh.p[p - first] - base);
        sh.p[p - first] = e;
        sum += e;
    }
    sum = warp_sum(sum);
    if (!lane)
        sh.red[warp] = sum;
    __syncthreads();
    sum = sh.red[0] + sh.red[1] + sh.red[2] + sh.red[3];
    /* values: LV lanes share a position, 16 bytes each; then the positions of a warp meet */
    constexpr int NC = (ND * 64 / E + 31) / 32;
    const int chunks_v = c.pv / E;
    int LV = 1;
    while (LV < chunks_v && LV < 32)
        LV *= 2;
    float o[NC][E] = {};
#pragma unroll 4
    for (int p = lo + warp * (32 / LV) + lane / LV; p < hi; p += 4 * (32 / LV)) {
        int page = sh.page[(p - first) / CU_PAGE_TOKENS];
        if (page < 0)
            continue;
        const float w = sh.p[p - first];
        const KT *v = (const KT *)(c.kv + (int64_t)page * c.page_bytes + c.layer_at + c.v_offset) +
                      ((int64_t)kvh * CU_PAGE_TOKENS + p % CU_PAGE_TOKENS) * c.pv;
#pragma unroll
        for (int n = 0; n < NC; n++) {
            const int chunk = lane % LV + 32 * n;
            if (chunk >= chunks_v)
                continue;
            float f[E];
            if (ONE && p == near)
                for (int e = 0; e < E; e++)
                    f[e] = (float)v_near[chunk * E + e];
            else
                load16(v + chunk * E, f);
#pragma unroll
            for (int e = 0; e < E; e++)
                o[n][e] = fmaf(w, f[e], o[n][e]);
        }
    }
    __syncwarp();
    for (int off = LV; off < 32; off *= 2)
#pragma unroll
        for (int n = 0; n < NC; n++)
#pragma unroll
            for (int e = 0; e < E; e++)
                o[n][e] += __shfl_xor_sync(~0u, o[n][e], off);
#pragma unroll
    for (int n = 0; n < NC; n++)
#pragma unroll
        for (int e = 0; e < E; e++)
            if (lane < LV && lane + 32 * n < chunks_v)
                sh.acc[warp][(lane + 32 * n) * E + e] = o[n][e];
    __syncthreads();
    for (int i = threadIdx.x; i < c.dv; i += 128)
        sh.acc[0][i] = sh.acc[0][i] + sh.acc[1][i] + sh.acc[2][i] + sh.acc[3][i];
    __syncthreads();
    *m_out = m, *sum_out = sum;
}

/* A running merge of splits: each thread holds dims threadIdx.x and +128. */
struct merge {
    float m, sum, v[2];
};
__device__ __forceinline__ void merge_in(merge &r, float m, float sum, float v0, float v1) {
    float top = fmaxf(r.m, m); /* a sum may be NaN where its maximum is not */
    float old = r.m == -INFINITY ? 0 : expf(r.m - top), now = m == -INFINITY ? 0 : expf(m - top);
    r.m = top;
    r.sum = r.sum * old + sum * now;
    r.v[0] = r.v[0] * old + v0 * now, r.v[1] = r.v[1] * old + v1 * now;
}

/* Before the predecessor is over: angles, and the split's keys and values on their way to L2. */
template <class KT>
__device__ __forceinline__ void prepare(const cu_attend &a, int slot, int kvh, int lo, int pos,
                                        int32_t *pages, float *cs, float *sn) {
    const cu_cache &c = a.c;
    const int tid = threadIdx.x, first = lo / a.split * a.split, hi = min(pos + 1, first + a.split),
              bytes_k = c.pk * (int)sizeof(KT), bytes_v = c.pv * (int)sizeof(KT);
    load_pages(c, slot, first, hi, pages);
    for (int i = tid; i < a.st.q.n_rot / 2; i += 128)
        angle(pos, a.st.q.freqs[i], a.st.q.mscale, &cs[i], &sn[i]);
    __syncthreads();
    for (int p = lo + tid; p < hi; p += 128) {
        int page = pages[(p - first) / CU_PAGE_TOKENS];
        if (page < 0)
            continue;
        const char *base = c.kv + (int64_t)page * c.page_bytes + c.layer_at;
        const int64_t at = (int64_t)kvh * CU_PAGE_TOKENS + p % CU_PAGE_TOKENS;
        for (int b = 0; b < bytes_k; b += 128)
            prefetch(base + at * bytes_k + b);
        for (int b = 0; b < bytes_v; b += 128)
            prefetch(base + c.v_offset + at * bytes_v + b);
    }
}

/* One head of a row, turned: to q (padded with zeros) or, rounded to the cache's type, to k. */
template <class T>
__device__ __forceinline__ void turn_head(const cu_rope &r, int h, int padded, const float *cs,
                                          const float *sn, T *to) {
    const float *x = r.x + (int64_t)h * r.D;
    const int half = r.n_rot / 2;
    for (int i = threadIdx.x; i < padded; i += 128) {
        if (i < half) {
            int i0 = r.adjacent ? 2 * i : i, i1 = r.adjacent ? 2 * i + 1 : i + half;
            float a = __ldcg(&x[i0]), b = __ldcg(&x[i1]);
            rotate(a, b, cs[i], sn[i]);
            to[i0] = (T)a, to[i1] = (T)b;
        } else if (i >= r.n_rot)
            to[i] = i < r.D ? (T)__ldcg(&x[i]) : (T)0.0f;
    }
}

/* The new key and value: into shared memory, and by one of the heads that share them into the
 * cache. */
template <class KT>
__device__ __forceinline__ void new_row(const cu_attend &a, int pos, int page, int kvh, bool keep,
                                        const float *cs, const float *sn, KT *k, KT *v) {
    const cu_cache &c = a.c;
    turn_head(a.st.kr, kvh, c.pk, cs, sn, k);
    for (int i = threadIdx.x; i < c.pv; i += 128)
        v[i] = i < c.dv ? (KT)__ldcg(&a.st.v[kvh * c.dv + i]) : (KT)0.0f;
    __syncthreads();
    if (!keep || page < 0)
        return;
    KT *base = (KT *)(c.kv + (int64_t)page * c.page_bytes + c.layer_at),
       *base_v = (KT *)((char *)base + c.v_offset);
    const int64_t at = (int64_t)kvh * CU_PAGE_TOKENS + pos % CU_PAGE_TOKENS;
    for (int i = threadIdx.x; i < c.pk; i += 128)
        base[at * c.pk + i] = k[i];
    for (int i = threadIdx.x; i < c.pv; i += 128)
        base_v[at * c.pv + i] = v[i];
}

/* The last position that row t at pos sees; of BIDIRECTIONAL: that its sequence has in this step, or
 * the window's end. */
__device__ __forceinline__ int last_seen(const cu_attend &a, int t, int pos) {
    int last = pos;
    for (int s = 0; a.bidirectional && s < a.n_seqs; s++) {
        const int first = __ldcg(&a.seqs[4 * s]), rows = __ldcg(&a.seqs[4 * s + 1]);
        if (rows > 0 && t >= first && t < first + rows && first + rows <= a.c.T)
            last = max(pos, __ldcg(&a.c.row_pos[first + rows - 1]));
    }
    return a.window > 0 ? min(last, pos + a.window - 1) : last;
}

template <class KT, int ND, bool ONE> __global__ void __launch_bounds__(128) attend(cu_attend a) {
    __shared__ shared_split sh;
    __shared__ __align__(16) float q[256];
    __shared__ __align__(16) KT k_near[ONE ? 256 : 1], v_near[ONE ? 256 : 1];
    __shared__ float cs[ONE ? 128 : 1], sn[ONE ? 128 : 1];
    __shared__ unsigned last;
    cu_next();
    const bool early = ONE && a.early;
    if (!early)
        cu_wait();
    const cu_cache &c = a.c;
    const int h = blockIdx.x, t = blockIdx.y, kvh = h / (a.H / c.Hkv), tid = threadIdx.x;
    const int64_t out = ((int64_t)t * a.H + h) * c.dv;
    int pos = __ldcg(&c.row_pos[t]), slot = __ldcg(&c.row_slot[t]);
    const bool valid = pos >= 0 && slot >= 0 && slot < c.S && pos < c.P * CU_PAGE_TOKENS;
    const int begin = a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0,
              s0 = begin / a.split;
    const int last_pos = valid && !ONE ? last_seen(a, t, pos) : pos, s1 = last_pos / a.split + 1;
    const int z0 = gridDim.z == 1 ? s0 : (int)blockIdx.z, z1 = gridDim.z == 1 ? s1 : z0 + 1;
    if (ONE && valid && z0 >= s0 && z0 < s1)
        prepare<KT>(a, slot, kvh, max(z0 * a.split, begin), pos, sh.page, cs, sn);
    if (early)
        cu_wait();
    if (!valid) {
        if (blockIdx.z == 0)
            for (int i = tid; i < c.dv; i += 128)
                put(a.y, out + i, 0, a.y_kind);
        return;
    }
    if (z0 < s0 || z0 >= s1)
        return;
    if (ONE) {
        turn_head(a.st.q, h, c.pk, cs, sn, q);
        if (z1 == s1)
            new_row<KT>(a, pos, sh.page[(pos - (s1 - 1) * a.split) / CU_PAGE_TOKENS], kvh,
                        h % (a.H / c.Hkv) == 0, cs, sn, k_near, v_near);
    } else
        for (int i = tid; i < c.pk; i += 128)
            q[i] = i < c.dk ? __ldcg(&a.q[((int64_t)t * a.H + h) * c.dk + i]) : 0;
    __syncthreads();
    merge r = {-INFINITY, 0, {0, 0}};
    const bool alone = s1 - s0 == 1;
    for (int z = z0; z < z1; z++) {
        float m, sum;
        int first = z * a.split;
        split<KT, ND, ONE>(a, q, slot, kvh, first, max(first, begin),
                           min(first + a.split, last_pos + 1), sh, ONE ? pos : -1, k_near, v_near,
                           &m, &sum);
        float v0 = tid < c.dv ? sh.acc[0][tid] : 0,
              v1 = tid + 128 < c.dv ? sh.acc[0][tid + 128] : 0;
        if (gridDim.z == 1 || alone) {
            merge_in(r, m, sum, v0, v1);
            __syncthreads();
            continue;
        }
        float *to = a.partial + (((int64_t)t * a.H + h) * a.max_splits + z) * (c.dv + 2);
        if (!tid)
            __stcg(&to[0], m), __stcg(&to[1], sum);
        if (tid < c.dv)
            __stcg(&to[2 + tid], v0);
        if (tid + 128 < c.dv)
            __stcg(&to[2 + tid + 128], v1);
        __threadfence();
        __syncthreads();
        if (!tid)
            last = atomicAdd(&a.arrived[(int64_t)t * a.H + h], 1) == (unsigned)(s1 - s0 - 1);
        __syncthreads();
        if (!last)
            return;
        __threadfence();
        for (int y = s0; y < s1; y++) {
            const float *from =
                a.partial + (((int64_t)t * a.H + h) * a.max_splits + y) * (c.dv + 2);
            merge_in(r, __ldcg(&from[0]), __ldcg(&from[1]), tid < c.dv ? __ldcg(&from[2 + tid]) : 0,
                     tid + 128 < c.dv ? __ldcg(&from[2 + tid + 128]) : 0);
        }
        if (!tid)
            a.arrived[(int64_t)t * a.H + h] = 0;
    }
    if (a.sinks)
        merge_in(r, a.sinks[h], 1, 0, 0);
    float inv = 1 / r.sum; /* NaN stays NaN; a row sees itself at least */
    if (tid < c.dv)
        put(a.y, out + tid, r.v[0] * inv, a.y_kind);
    if (tid + 128 < c.dv)
        put(a.y, out + tid + 128, r.v[1] * inv, a.y_kind);
}

template <class KT, bool ONE> static void by_dim(cudaStream_t s, const cu_attend *a, dim3 grid) {
    if (a->c.pv <= 64)
        launch(s, attend<KT, 1, ONE>, grid, 128, 0, *a);
    else if (a->c.pv <= 128)
        launch(s, attend<KT, 2, ONE>, grid, 128, 0, *a);
    else
        launch(s, attend<KT, 4, ONE>, grid, 128, 0, *a);
}

void cu_attend_run(mn_device *d, cudaStream_t s, const cu_attend *a) {
    bool apart = (int64_t)a->c.T * a->H <= 16 * d->sms && a->partial && a->max_splits > 1;
    dim3 grid(a->H, a->c.T, apart ? a->max_splits : 1);
    if (a->c.dtype == MN_F32 && a->one)
        by_dim<float, true>(s, a, grid);
    else if (a->c.dtype == MN_F32)
        by_dim<float, false>(s, a, grid);
    else if (a->one)
        by_dim<__half, true>(s, a, grid);
    else
        by_dim<__half, false>(s, a, grid);
}
