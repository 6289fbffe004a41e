/* attend.cuh -- attention over the paged cache, for few rows per sequence. Positions come in splits
 * of fixed length; a split gives (max, sum, weighted values), and splits are merged in order. A
 * row's result depends on its position alone, not on the batch: one order of sums for every kernel
 * here. A block has a row and up to G heads that share keys and values, and walks its splits; the
 * last to finish merges. Within a split each group of lanes takes positions and keeps a running
 * maximum, sum and weighted values in registers; where a program may round, keys and values in f16
 * go to matrix units, in an order of their own (attend_tiles.cuh). A single row is turned and
 * stored on the way.
 *
 * The kernels are made in k_attention_f32.cu, k_attention_f16.cu, k_attention_tiles.cu (f16 on
 * matrix units) and k_attention_kv.cu (q8_0, and keys and values of different types); attend.c
 * chooses among them. */
#ifndef CU_ATTEND_CUH
#define CU_ATTEND_CUH
#include "cached.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, AHEAD = 2, GROUP = CU_ATTEND_GROUP, SPLITS = 32 };

/* A float as the sum of two halves: 22 bits of it, and no more than 65,504. */
struct split_half {
    __half hi, lo;
    split_half() = default;
    __device__ explicit split_half(float x) : hi(__float2half_rn(x)) {
        lo = __float2half_rn(x - __half2float(hi));
    }
};

/* How a lane holds E elements of a key or value until it needs them. Of q8_0: codes and their
 * scale; of `any_type`, types that the cache says at run time: f32; of `tile_type`, f16 for matrix
 * units, as they lie. `element`: of new keys and values in shared memory; `query`: of queries. */
struct q8_type;
struct any_type;
struct tile_type;
template <class KT> struct kept {
    static constexpr int E = 16 / sizeof(KT);
    typedef KT element;
    typedef float query;
    typedef uint4 chunk;
};
template <> struct kept<q8_type> {
    static constexpr int E = 8;
    typedef char element;
    typedef float query;
    typedef q8_codes chunk;
};
template <> struct kept<any_type> {
    static constexpr int E = 8;
    typedef char element;
    typedef float query;
    typedef eight_floats chunk;
};
template <> struct kept<tile_type> {
    static constexpr int E = 8;
    typedef __half element;
    typedef split_half query;
    typedef uint4 chunk;
};

/* L lanes share a position; each has NC chunks of E elements. */
template <class KT, int ND> struct lanes {
    static constexpr int E = kept<KT>::E, D = 64 * ND, L = D / E < 32 ? D / E : 32, NC = D / E / L,
                         N = NC * E, EACH = 32 / L, STEP = WARPS * EACH;
    typedef typename kept<KT>::chunk chunk;
};
/* How a split meets those before: what was weighs `old`, its values `now`, and its sum adds
 * `sum`. */
struct merge_step {
    float old;
    float now;
    float sum;
};
template <class KT, int ND, int G, bool ONE> struct attend_shared {
    typename kept<KT>::query q[G][64 * ND + 4]; /* 4: lanes of tiles read other banks */
    typename kept<KT>::element k[ONE ? 64 * ND : 8], v[ONE ? 64 * ND : 8]; /* of the new position */
    float acc[WARPS][G][64 * ND];
    float m[WARPS][G];
    float sum[WARPS][G];
    merge_step steps[G][SPLITS];
    float cs[ONE ? 128 : 1];
    float sn[ONE ? 128 : 1];
    int last;
};

__device__ __forceinline__ void widen(uint4 v, float (&f)[4]) {
    f[0] = __uint_as_float(v.x);
    f[1] = __uint_as_float(v.y);
    f[2] = __uint_as_float(v.z);
    f[3] = __uint_as_float(v.w);
}
__device__ __forceinline__ void widen(uint4 v, float (&f)[8]) {
    const __half2 *h = (const __half2 *)&v;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 x = __half22float2(h[i]);
        f[2 * i] = x.x;
        f[2 * i + 1] = x.y;
    }
}
__device__ __forceinline__ void widen(const eight_floats &v, float (&f)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++)
        f[i] = v.f[i];
}
/* What all lanes have the same, said so that the compiler knows it. */
__device__ __forceinline__ int same(int x) {
    return __shfl_sync(~0u, x, 0);
}
__device__ __forceinline__ void prefetch(const void *p) {
#ifndef CU_EMULATED
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

/* The part of a sequence's cache that a split has: positions [lo, hi), pages from that of `first`
 * on. Lane i of every warp knows page i; -1 = there is none. */
struct span {
    int first;
    int lo;
    int hi;
    int page;
};
__device__ __forceinline__ span span_of(const cu_cache &c, int slot, int first, int lo, int hi) {
    const int lane = threadIdx.x % 32;
    const int i = first / CU_PAGE_TOKENS + lane;
    span s = {first, lo, hi, -1};
    if (i * CU_PAGE_TOKENS < hi) {
        const int page = __ldcg(&c.pages[(int64_t)slot * c.P + i]);
        s.page = page < c.n_pages ? page : -1;
    }
    return s;
}
/* All lanes call it. */
__device__ __forceinline__ int page_at(const span &s, int p) {
    return __shfl_sync(~0u, s.page, (p - s.first) / CU_PAGE_TOKENS);
}
/* Where position p of a page lies; of keys. */
__device__ __forceinline__ const char *key_at(const cu_cache &c, int page, int kvh, int p,
                                              int size) {
    const int row = p % CU_PAGE_TOKENS;
    const int at = kvh * CU_PAGE_TOKENS + row;
    const int64_t before = (int64_t)at * c.pk;
    return keys_at(c, page) + before * size;
}
__device__ __forceinline__ const char *value_at(const cu_cache &c, int page, int kvh, int p,
                                                int size) {
    const int row = p % CU_PAGE_TOKENS;
    const int at = kvh * CU_PAGE_TOKENS + row;
    const int64_t before = (int64_t)at * c.pv;
    return values_at(c, page) + before * size;
}

/* Chunk i of the key, or of the value, of position p. */
template <class KT>
__device__ __forceinline__ typename kept<KT>::chunk read_key(const cu_cache &c, int page, int kvh,
                                                             int p, int i) {
    if constexpr (std::is_same<KT, q8_type>::value)
        return read_q8(keys_at(c, page), kvh, p, c.pk, i);
    else if constexpr (std::is_same<KT, any_type>::value)
        return read_any(keys_at(c, page), c.k_dtype, kvh, p, c.pk, i);
    else
        return __ldcg((const uint4 *)key_at(c, page, kvh, p, sizeof(KT)) + i);
}
template <class KT>
__device__ __forceinline__ typename kept<KT>::chunk read_value(const cu_cache &c, int page, int kvh,
                                                               int p, int i) {
    if constexpr (std::is_same<KT, q8_type>::value)
        return read_q8(values_at(c, page), kvh, p, c.pv, i);
    else if constexpr (std::is_same<KT, any_type>::value)
        return read_any(values_at(c, page), c.v_dtype, kvh, p, c.pv, i);
    else
        return __ldcg((const uint4 *)value_at(c, page, kvh, p, sizeof(KT)) + i);
}

/* What a lane holds of AHEAD positions. */
template <class KT, int ND> struct ahead {
    typename lanes<KT, ND>::chunk k[AHEAD][lanes<KT, ND>::NC], v[AHEAD][lanes<KT, ND>::NC];
    bool in[AHEAD];
};
/* Positions p, p + STEP, ... of this group of lanes; not `near`, which is not in the cache yet. */
template <class KT, int ND>
__device__ __forceinline__ void fetch(const cu_cache &c, const span &s, int kvh, int p, int near,
                                      ahead<KT, ND> &to) {
    typedef lanes<KT, ND> S;
    const int sub = threadIdx.x % S::L;
#pragma unroll
    for (int u = 0; u < AHEAD; u++, p += S::STEP) {
        const int page = page_at(s, p);
        to.in[u] = p < s.hi && page >= 0;
        const bool reads = to.in[u] && p != near;
#pragma unroll
        for (int n = 0; n < S::NC; n++) {
            const int chunk = sub + S::L * n;
            to.k[u][n] = to.v[u][n] = {};
            if (reads && chunk * S::E < c.pk)
                to.k[u][n] = read_key<KT>(c, page, kvh, p, chunk);
            if (reads && chunk * S::E < c.pv)
                to.v[u][n] = read_value<KT>(c, page, kvh, p, chunk);
        }
    }
}

/* What this group of lanes takes first of a split. */
template <class KT, int ND>
__device__ __forceinline__ void fetch_first(const cu_cache &c, const span &s, int kvh, int near,
                                            ahead<KT, ND> &to) {
    typedef lanes<KT, ND> S;
    const int mine = threadIdx.x / 32 * S::EACH + threadIdx.x % 32 / S::L;
    fetch<KT, ND>(c, s, kvh, s.lo + mine, near, to);
}

/* A running softmax: maximum, sum, weighted values. */
template <int N> struct softmax { float m, sum, o[N]; };
/* AHEAD scores and values more. fmaxf passes over NaN: it comes through the exponential. */
template <int NC, int E>
__device__ __forceinline__ void take(softmax<NC * E> &r, const float (&s)[AHEAD],
                                     const float (&v)[AHEAD][NC][E]) {
    float top = r.m;
    float e[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        top = fmaxf(top, s[u]);
    const float base = top == -INFINITY ? 0 : top;
    const float old = expf(r.m - base);
    r.m = top;
    r.sum = __fmul_rn(r.sum, old);
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        e[u] = expf(s[u] - base);
        r.sum = __fadd_rn(r.sum, e[u]);
    }
#pragma unroll
    for (int i = 0; i < NC * E; i++) {
        r.o[i] = __fmul_rn(r.o[i], old);
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            r.o[i] = fmaf(e[u], v[u][i / E][i % E], r.o[i]);
    }
}
/* A head's query in shared memory; read anew for each use: registers are few. */
template <int N, int E, int L>
__device__ __forceinline__ void read_query(const float *q, float (&f)[N]) {
#ifdef CU_EMULATED /* tests run this on a CPU */
    for (int i = 0; i < N; i++)
        f[i] = q[threadIdx.x % L * E + i / E * L * E + i % E];
#else
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(q) + threadIdx.x % L * E * 4;
#pragma unroll
    for (int i = 0; i < N; i += 4)
        asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                     : "=f"(f[i]), "=f"(f[i + 1]), "=f"(f[i + 2]), "=f"(f[i + 3])
                     : "r"(at + (i / E * L * E + i % E) * 4)
                     : "memory");
#endif
}
template <int NC, int E, class C>
__device__ __forceinline__ float score(const cu_attend &a, const C (&k)[NC], const float *q,
                                       int L) {
    float s = 0;
#pragma unroll
    for (int n = 0; n < NC; n++) {
        float f[E];
        widen(k[n], f);
#pragma unroll
        for (int e = 0; e < E; e++)
            s = fmaf(f[e], q[n * E + e], s);
    }
#pragma unroll
    for (int o = L / 2; o; o >>= 1)
        s = __fadd_rn(s, __shfl_xor_sync(~0u, s, o));
    s = __fmul_rn(s, a.scale);
    if (a.softcap != 0)
        return __fmul_rn(a.softcap, tanhf(s / a.softcap));
    return s;
}

/* The split s for `heads` heads: each warp's maxima, sums and values, to shared memory. now: its
 * first positions, fetched; near: the position whose key and value are in shared memory; -1 =
 * none. */
template <class KT, int ND, int G, bool ONE>
__device__ __forceinline__ void walk(const cu_attend &a, const span &s, int kvh, int heads,
                                     int near, ahead<KT, ND> &now,
                                     attend_shared<KT, ND, G, ONE> &sh) {
    typedef lanes<KT, ND> S;
    const int warp = same(threadIdx.x / 32);
    const int lane = threadIdx.x % 32;
    const int sub = lane % S::L;
    softmax<S::N> r[G];
#pragma unroll
    for (int g = 0; g < G; g++) {
        r[g].m = -INFINITY;
        r[g].sum = 0;
#pragma unroll
        for (int i = 0; i < S::N; i++)
            r[g].o[i] = 0;
    }
    int p = s.lo + warp * S::EACH + lane / S::L;
#pragma unroll 1
    for (int at = s.lo + warp * S::EACH; at < s.hi; at += AHEAD * S::STEP) {
        ahead<KT, ND> next = {};
        float x[G][AHEAD];
        float v[AHEAD][S::NC][S::E];
        if (at + AHEAD * S::STEP < s.hi)
            fetch<KT, ND>(a.c, s, kvh, p + AHEAD * S::STEP, near, next);
        if constexpr (ONE) {
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
#pragma unroll
                for (int n = 0; n < S::NC; n++)
                    if (p + u * S::STEP == near) {
                        now.k[u][n] = ((const uint4 *)sh.k)[sub + S::L * n];
                        now.v[u][n] = ((const uint4 *)sh.v)[sub + S::L * n];
                    }
        }
#pragma unroll
        for (int g = 0; g < G; g++) {
            float q[S::N];
            if (g >= heads)
                break;
            read_query<S::N, S::E, S::L>(sh.q[g], q);
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                x[g][u] = score<S::NC, S::E>(a, now.k[u], q, S::L);
                x[g][u] = now.in[u] ? x[g][u] : -INFINITY;
            }
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
#pragma unroll
            for (int n = 0; n < S::NC; n++)
                widen(now.v[u][n], v[u][n]);
#pragma unroll
        for (int g = 0; g < G; g++)
            if (g < heads)
                take<S::NC, S::E>(r[g], x[g], v);
        now = next;
        p += AHEAD * S::STEP;
    }
    /* the groups of lanes of a warp meet */
#pragma unroll
    for (int g = 0; g < G; g++) {
        if (g >= heads)
            break;
        float m = r[g].m;
#pragma unroll
        for (int o = S::L; o < 32; o *= 2)
            m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
        const float f = expf(r[g].m - (m == -INFINITY ? 0 : m));
        float sum = __fmul_rn(r[g].sum, f);
#pragma unroll
        for (int o = S::L; o < 32; o *= 2)
            sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, o));
#pragma unroll
        for (int i = 0; i < S::N; i++) {
            float x = __fmul_rn(r[g].o[i], f);
#pragma unroll
            for (int o = S::L; o < 32; o *= 2)
                x = __fadd_rn(x, __shfl_xor_sync(~0u, x, o));
            if (lane < S::L)
                sh.acc[warp][g][(sub + i / S::E * S::L) * S::E + i % S::E] = x;
        }
        if (!lane) {
            sh.m[warp][g] = m;
            sh.sum[warp][g] = sum;
        }
    }
}
#include "attend_tiles.cuh"

/* A split's maximum, sum and value i of head g, of all warps. */
template <class SH>
__device__ __forceinline__ void meet(const SH &sh, int g, int i, float *m_out, float *sum_out,
                                     float *v_out) {
    float m = sh.m[0][g];
    float sum = 0;
    float v = 0;
#pragma unroll
    for (int w = 1; w < WARPS; w++)
        m = fmaxf(m, sh.m[w][g]);
    const float base = m == -INFINITY ? 0 : m;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        const float f = expf(sh.m[w][g] - base);
        sum = fmaf(sh.sum[w][g], f, sum);
        v = fmaf(sh.acc[w][g][i], f, v);
    }
    *m_out = m;
    *sum_out = sum;
    *v_out = v;
}

/* A running merge of splits, for one value of one head. */
struct merge {
    float m;
    float sum;
    float v;
};
__device__ __forceinline__ merge_step step_of(float before, float m, float sum) {
    const float top = fmaxf(before, m); /* a sum may be NaN where its maximum is not */
    const float base = top == -INFINITY ? 0 : top;
    const float now = expf(m - base);
    return {expf(before - base), now, __fmul_rn(sum, now)};
}
__device__ __forceinline__ void merge_in(merge &r, const merge_step &s, float v) {
    r.sum = fmaf(r.sum, s.old, s.sum);
    r.v = fmaf(r.v, s.old, __fmul_rn(v, s.now));
}
__device__ __forceinline__ void merge_in(merge &r, float m, float sum, float v) {
    merge_in(r, step_of(r.m, m, sum), v);
    r.m = fmaxf(r.m, m);
}
/* The steps of SPLITS splits of a head, of which there are `n`, by a warp: lane i writes step i.
 * from: the first split's sums; top: the maximum of all splits before, and then of these, too. */
__device__ __forceinline__ void plan_merge(const float *from, int stride, int n, float *top,
                                           merge_step *to) {
    const int lane = threadIdx.x % 32;
    const float m = lane < n ? __ldcg(&from[(int64_t)lane * stride]) : -INFINITY;
    const float sum = lane < n ? __ldcg(&from[(int64_t)lane * stride + 1]) : 0;
    float most = fmaxf(*top, m);
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        const float other = __shfl_sync(~0u, most, max(lane - o, 0));
        most = fmaxf(most, other);
    }
    const float before = __shfl_sync(~0u, most, max(lane - 1, 0));
    to[lane] = step_of(lane ? before : *top, m, sum);
    *top = __shfl_sync(~0u, most, 31);
}

/* One element of a head: those of a pair turn; to q or, rounded to the cache's type, to k; zeros
 * behind the head. */
template <class T>
__device__ __forceinline__ void turn(const cu_rope &r, int h, int i, const float *cs,
                                     const float *sn, T *to) {
    const float *x = r.x + (int64_t)h * r.D;
    const int half = r.n_rot / 2;
    if (i < half) {
        const int i0 = r.adjacent ? 2 * i : i;
        const int i1 = r.adjacent ? 2 * i + 1 : i + half;
        float a = __ldcg(&x[i0]);
        float b = __ldcg(&x[i1]);
        rotate(a, b, cs[i], sn[i]);
        to[i0] = (T)a;
        to[i1] = (T)b;
    } else if (i >= r.n_rot)
        to[i] = i < r.D ? (T)__ldcg(&x[i]) : (T)0.0f;
}
/* The queries of row t, its new key and new value, each by threads of its own where there are
 * enough. */
template <class KT, int ND, int G>
__device__ __forceinline__ void turn_row(const cu_attend_args &x, int t, int h0, int heads, int kvh,
                                         attend_shared<KT, ND, G, true> &sh) {
    typedef typename kept<KT>::element element;
    constexpr int D = 64 * ND;
    const cu_attend &a = x.a;
    const int q0 = t * a.H + h0;
    const int kv = t * a.c.Hkv + kvh;
    const float *v = a.st.v + (int64_t)kv * a.c.dv;
#pragma unroll(G > GROUP ? 2 : 1)
    for (int i = threadIdx.x; i < heads * D; i += THREADS)
        turn(a.st.q, q0 + i / D, i % D, sh.cs, sh.sn, sh.q[i / D]);
#pragma unroll 1
    for (int i = (threadIdx.x - D) & (THREADS - 1); i < D; i += THREADS)
        turn(a.st.kr, kv, i, sh.cs, sh.sn, sh.k);
#pragma unroll 1
    for (int i = (threadIdx.x - 2 * D) & (THREADS - 1); i < D; i += THREADS)
        sh.v[i] = (element)(i < a.c.dv ? __ldcg(&v[i]) : 0.0f);
}
/* The new key and value into the cache. */
template <class KT, class SH>
__device__ __forceinline__ void keep_row(const cu_cache &c, int page, int kvh, int pos,
                                         const SH &sh) {
    constexpr int SIZE = sizeof(typename kept<KT>::element);
    constexpr int E = 16 / SIZE;
    uint4 *k = (uint4 *)key_at(c, page, kvh, pos, SIZE),
          *v = (uint4 *)value_at(c, page, kvh, pos, SIZE);
    const int i = THREADS - 1 - threadIdx.x; /* warps that have the fewest positions */
    if (page < 0)
        return;
    if (i * E < c.pk)
        k[i] = ((const uint4 *)sh.k)[i];
    if (i * E < c.pv)
        v[i] = ((const uint4 *)sh.v)[i];
}
/* Keys and values behind those that are fetched first, on their way to L2: all of a split, for a
 * cache that is short, or those of the first tiles. */
template <class KT, int ND>
__device__ __forceinline__ void warm(const cu_attend &a, const span &s, int kvh, int pos) {
    const cu_cache &c = a.c;
    if constexpr (std::is_same<KT, tile_type>::value) {
        warm_tiles<ND>(c, s, kvh, a.ahead);
        return;
    }
    constexpr int SIZE = sizeof(typename kept<KT>::element);
    const int bytes_k = c.pk * SIZE;
    const int bytes_v = c.pv * SIZE;
#pragma unroll 1
    for (int at = s.lo + AHEAD * lanes<KT, ND>::STEP; at < s.hi; at += THREADS) {
        const int p = at + threadIdx.x;
        const int page = page_at(s, p);
        if (p >= min(s.hi, pos) || page < 0)
            continue;
#pragma unroll 1
        for (int b = 0; b < bytes_k; b += 128)
            prefetch(key_at(c, page, kvh, p, SIZE) + b);
#pragma unroll 1
        for (int b = 0; b < bytes_v; b += 128)
            prefetch(value_at(c, page, kvh, p, SIZE) + b);
    }
}

/* The last position that row t at pos sees; of BIDIRECTIONAL: that its sequence has in this step,
 * or the window's end. */
__device__ __forceinline__ int last_seen(const cu_attend &a, int t, int pos) {
    int last = pos;
#pragma unroll 1
    for (int s = 0; a.bidirectional && s < a.n_seqs; s++) {
        const int first = __ldcg(&a.seqs[4 * s]);
        const int rows = __ldcg(&a.seqs[4 * s + 1]);
        if (rows > 0 && t >= first && t < first + rows && first + rows <= a.c.T)
            last = max(pos, __ldcg(&a.c.row_pos[first + rows - 1]));
    }
    if (a.window > 0)
        return min(last, pos + a.window - 1);
    return last;
}

/* The splits [s0, s1) of `heads` heads from memory, as one thread would merge them one after the
 * other; all threads. What a step does to a value is the same for all values of its head. */
template <class KT, int ND, class SH, int VALUES>
__device__ __forceinline__ void merge_all(const cu_attend &a, int64_t row, int heads, int s0,
                                          int s1, SH &sh, merge (&r)[VALUES]) {
    constexpr int D = 64 * ND;
    constexpr int AT_ONCE = 8;
    const int stride = a.c.dv + 2;
    const int warp = same(threadIdx.x / 32);
    const float *first = a.partial + (row * a.max_splits + s0) * stride;
    float top = -INFINITY;
#pragma unroll 1
    for (int s = s0; s < s1; s += SPLITS, first += SPLITS * stride) {
        const int n = min(s1 - s, (int)SPLITS);
        float v[VALUES][AT_ONCE];
        auto read_values = [&](int at) {
#pragma unroll
            for (int j = 0; j < VALUES; j++) {
                const int g = (threadIdx.x + j * THREADS) / D;
                const int i = (threadIdx.x + j * THREADS) % D;
                const float *from = first + ((int64_t)g * a.max_splits + at) * stride + 2 + i;
                const bool is = g < heads && i < a.c.dv;
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++)
                    v[j][k] = is && at + k < n ? __ldcg(&from[k * stride]) : 0;
            }
        };
        read_values(0); /* on their way beside maxima and sums */
        if (warp < heads)
            plan_merge(first + (int64_t)warp * a.max_splits * stride, stride, n, &top,
                       sh.steps[warp]);
        __syncthreads();
#pragma unroll 1
        for (int at = 0; at < n; at += AT_ONCE) {
            if (at)
                read_values(at);
#pragma unroll
            for (int j = 0; j < VALUES; j++) {
                const int g = min((int)(threadIdx.x + j * THREADS) / D, heads - 1);
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++)
                    merge_in(r[j], sh.steps[g][at + k], v[j][k]);
            }
        }
        __syncthreads();
    }
    if (warp < heads && threadIdx.x % 32 == 0)
        sh.m[0][warp] = top;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        r[j].m = sh.m[0][min((int)(threadIdx.x + j * THREADS) / D, heads - 1)];
}

/* Part `part` of the heads of row t that share keys kvh; its sums are those of row `place` in the
 * scratch; all threads. */
template <class KT, int ND, int G, bool ONE>
__device__ __forceinline__ void attend_part(const cu_attend_args &x, int t, int place, int kvh,
                                            int part, attend_shared<KT, ND, G, ONE> &sh) {
    typedef typename kept<KT>::query query;
    constexpr int D = 64 * ND;
    constexpr int VALUES = (G * D + THREADS - 1) / THREADS;
    const cu_attend &a = x.a;
    const cu_cache &c = a.c;
    const int tid = threadIdx.x;
    const bool early = ONE && a.early;
    const float freq = ONE && tid < a.st.q.n_rot / 2 ? a.st.q.freqs[tid] : 0;
    if (!early)
        cu_wait();
    const int at_pos = __ldcg(&c.row_pos[t]);
    const int at_slot = __ldcg(&c.row_slot[t]);
    const int pos = same(at_pos);
    const int slot = same(at_slot);
    const int h0 = kvh * x.group + part * x.per;
    const int heads = G == 1 ? 1 : min(x.per, x.group - part * x.per);
    const bool valid = pos >= 0 && slot >= 0 && slot < c.S && pos < c.P * CU_PAGE_TOKENS;
    const int64_t row = (int64_t)t * a.H + h0;
    const int64_t kept_at = (int64_t)place * a.H + h0;
    if (!valid) {
        if (early)
            cu_wait();
#pragma unroll 1
        for (int i = tid; blockIdx.z == 0 && i < heads * c.dv; i += THREADS)
            put(a.y, row * c.dv + i, 0, a.y_kind);
        return;
    }
    const int begin = a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
    const int last_pos = ONE ? pos : same(last_seen(a, t, pos));
    const int s0 = begin >> x.log_split;
    const int s1 = (last_pos >> x.log_split) + 1;
    const int z0 = s0 + blockIdx.z;
    const int near = ONE ? pos : -1;
    if (z0 >= s1) {
        if (early)
            cu_wait();
        return;
    }
    const bool direct = gridDim.z == 1 || s1 - s0 == 1;
    merge r[VALUES];
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        r[j] = merge{-INFINITY, 0, 0};
    int mine = 0;
#pragma unroll 1
    for (int z = z0; z < s1; z += gridDim.z, mine++) {
        const int first = z << x.log_split;
        const span s =
            span_of(c, slot, first, max(first, begin), min(first + a.split, last_pos + 1));
        ahead<KT, ND> now;
        fetch_first(c, s, kvh, near, now);
        if (!mine) {
            if constexpr (ONE) {
                if (part == 0)
                    warm<KT, ND>(a, s, kvh, pos);
                if (tid < a.st.q.n_rot / 2)
                    angle(pos, freq, a.st.q.mscale, &sh.cs[tid], &sh.sn[tid]);
                __syncthreads();
                if (early)
                    cu_wait();
                turn_row(x, t, h0, heads, kvh, sh);
            } else
#pragma unroll 1
                for (int i = tid; i < heads * D; i += THREADS)
                    sh.q[i / D][i % D] =
                        (query)(i % D < c.dk ? __ldcg(&a.q[(row + i / D) * c.dk + i % D]) : 0.0f);
        }
        __syncthreads();
        if constexpr (ONE)
            if (part == 0 && z == s1 - 1)
                keep_row<KT>(c, page_at(s, pos), kvh, pos, sh);
        walk(a, s, kvh, heads, near, now, sh);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < VALUES; j++) {
            const int g = (tid + j * THREADS) / D;
            const int i = (tid + j * THREADS) % D;
            float m;
            float sum;
            float v;
            if (g >= heads || i >= c.dv)
                continue;
            meet(sh, g, i, &m, &sum, &v);
            if (direct) {
                merge_in(r[j], m, sum, v);
                continue;
            }
            float *to = a.partial + ((kept_at + g) * a.max_splits + z) * (c.dv + 2);
            if (!i) {
                __stcg(&to[0], m);
                __stcg(&to[1], sum);
            }
            __stcg(&to[2 + i], v);
        }
    }
    if (!direct) {
        __threadfence();
        __syncthreads();
        if (!tid)
            sh.last = (int)atomicAdd(&a.arrived[kept_at], (unsigned)mine) + mine == s1 - s0;
        __syncthreads();
        if (!sh.last)
            return;
        __threadfence();
        if (!tid)
            a.arrived[kept_at] = 0;
    }
    if (!direct)
        merge_all<KT, ND>(a, kept_at, heads, s0, s1, sh, r);
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        const int g = (tid + j * THREADS) / D;
        const int i = (tid + j * THREADS) % D;
        if (g >= heads || i >= c.dv)
            continue;
        if (a.sinks)
            merge_in(r[j], a.sinks[h0 + g], 1, 0);
        /* NaN stays NaN; a row sees itself at least */
        put(a.y, (row + g) * c.dv + i, __fmul_rn(r[j].v, 1 / r[j].sum), a.y_kind);
    }
}

/* The row of sequence s, if it has one row; else -1. */
__device__ __forceinline__ int single_row(const cu_attend &a, int s) {
    const int4 seq = __ldcg((const int4 *)a.seqs + s);
    const bool single = seq.y == 1 && seq.x >= 0 && seq.x < a.c.T;
    return same(single ? seq.x : -1);
}

template <class KT, int ND, int G, bool ONE>
__device__ __forceinline__ void attend_parts(const cu_attend_args &x,
                                             attend_shared<KT, ND, G, ONE> &sh) {
    const int across = x.a.c.T > 1 || !ONE ? blockIdx.x / x.blocks : 0;
    const int first = blockIdx.x - across * x.blocks;
    const int place = ONE ? across : blockIdx.y;
    const int kvh = ONE ? blockIdx.y : across;
    int t = place;
    cu_next();
    if (!ONE && x.a.apart) {
        cu_wait();
        t = single_row(x.a, place);
        if (t < 0)
            return;
    }
#pragma unroll 1
    for (int part = first; part < x.parts; part += x.blocks)
        attend_part(x, t, place, kvh, part, sh);
}
template <class KT, int ND, int G, bool ONE>
__global__ void __launch_bounds__(THREADS, ND < 4 ? 2 : 1) attend(cu_attend_args x) {
    __shared__ __align__(16) attend_shared<KT, ND, G, ONE> sh;
    attend_parts(x, sh);
}

/* Tiles of heads of up to 256 dims: what a block shares is more than 48 KB. */
template <bool ONE> using wide_shared = attend_shared<tile_type, 4, TILE_HEADS, ONE>;
template <bool ONE> __global__ void __launch_bounds__(THREADS, 1) attend_wide(cu_attend_args x) {
#ifdef CU_EMULATED
    __shared__ wide_shared<ONE> sh;
    attend_parts(x, sh);
#else
    extern __shared__ __align__(16) unsigned char room[];
    attend_parts(x, *(wide_shared<ONE> *)room);
#endif
}

template <class KT, int G, bool ONE>
static void by_dim(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    const int longest = x->a.c.pk > x->a.c.pv ? x->a.c.pk : x->a.c.pv;
    if (longest <= 64)
        launch(s, attend<KT, 1, G, ONE>, grid, THREADS, 0, *x);
    else if (longest <= 128)
        launch(s, attend<KT, 2, G, ONE>, grid, THREADS, 0, *x);
    else
        launch(s, attend<KT, 4, G, ONE>, grid, THREADS, 0, *x);
}
/* Keys and values of one type, f32 or f16: rows that are stored on the way, or were before. */
template <class KT> static void by_rows(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    if (x->a.one && x->per == 1)
        by_dim<KT, 1, true>(s, x, grid);
    else if (x->a.one)
        by_dim<KT, GROUP, true>(s, x, grid);
    else if (x->per == 1)
        by_dim<KT, 1, false>(s, x, grid);
    else
        by_dim<KT, GROUP, false>(s, x, grid);
}
#endif
