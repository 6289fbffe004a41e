/* attend_tiles.cuh -- a part of attend.cuh: a split of keys and values in f16 by matrix units, for
 * up to 8 heads that share them. A warp takes 32 positions of 64 dims at once, or 16 of 128 or 256,
 * straight from the cache into registers: which dims and which positions meet in a product is free
 * as long as both sides agree, so each lane reads 16 bytes that lie together.
 *
 * Scores [heads, positions] = q k^T: the rows 0 to 7 of the matrix unit have the upper half of q,
 * the rows 8 to 15 the rest of it, so that q is not rounded. Values [dims, heads] += v^T p: p is
 * rounded to f16. Lane 4 i + t has the scores of head i, and values of the heads 2 t and
 * 2 t + 1. */
#ifndef CU_ATTEND_TILES_CUH
#define CU_ATTEND_TILES_CUH
#ifndef CU_EMULATED
#include "ptx.cuh"
#endif

enum { TILE_HEADS = CU_ATTEND_TILE_HEADS };
template <int ND> struct tiles {
    static constexpr int U = ND == 1 ? 2 : 1, EACH = 16 * U, STEP = WARPS * EACH;
};
template <int ND> struct lanes<tile_type, ND> {
    static constexpr int STEP = 0; /* values are not fetched before the row is turned */
};
/* Keys: positions 8 u + lane / 4, dims 32 n + 8 (lane % 4). Values: positions 16 u + the four of
 * `value_row`, dims 64 n + 8 (lane / 4). */
template <int ND> struct ahead<tile_type, ND> {
    uint4 k[2 * tiles<ND>::U][2 * ND];
    uint4 v[tiles<ND>::U][4][ND];
};
__device__ __forceinline__ int value_row(int i) {
    return threadIdx.x % 4 * 2 + i % 2 + i / 2 * 8;
}
/* The first position of a split's tiles: those of a warp lie in one page. */
template <int ND> __device__ __forceinline__ int tiles_from(const span &s) {
    return s.lo / tiles<ND>::EACH * tiles<ND>::EACH;
}

/* Positions from `at` on of the page that has them, whatever lies there: what is not of the split
 * is masked when it is used. */
template <int ND>
__device__ __forceinline__ void fetch_keys(const cu_cache &c, const span &s, int kvh, int at,
                                           ahead<tile_type, ND> &to) {
    const int lane = threadIdx.x % 32;
    const int page = page_at(s, at);
    const char *from = key_at(c, max(page, 0), kvh, at + lane / 4, 2) + lane % 4 * 16;
#pragma unroll
    for (int u = 0; u < 2 * tiles<ND>::U; u++, from += 16 * c.pk)
#pragma unroll
        for (int n = 0; n < 2 * ND; n++) {
            to.k[u][n] = {};
            if (page >= 0 && 32 * n + lane % 4 * 8 < c.pk)
                to.k[u][n] = __ldcg((const uint4 *)(from + 64 * n));
        }
}
template <int ND>
__device__ __forceinline__ void fetch_values(const cu_cache &c, const span &s, int kvh, int at,
                                             ahead<tile_type, ND> &to) {
    const int lane = threadIdx.x % 32;
    const int page = page_at(s, at);
    const char *first = value_at(c, max(page, 0), kvh, at + value_row(0), 2) + lane / 4 * 16;
#pragma unroll
    for (int u = 0; u < tiles<ND>::U; u++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const char *from = first + (16 * u + i % 2 + i / 2 * 8) * 2 * c.pv;
#pragma unroll
            for (int n = 0; n < ND; n++) {
                to.v[u][i][n] = {};
                if (page >= 0 && 64 * n + lane / 4 * 8 < c.pv)
                    to.v[u][i][n] = __ldcg((const uint4 *)(from + 128 * n));
            }
        }
}
template <int ND>
__device__ __forceinline__ void fetch_first(const cu_cache &c, const span &s, int kvh, int,
                                            ahead<tile_type, ND> &to) {
    const int at = tiles_from<ND>(s) + same(threadIdx.x / 32) * tiles<ND>::EACH;
    if (at < s.hi)
        fetch_keys(c, s, kvh, at, to);
}
/* A warp's tile on its way to L2: a line of 128 bytes of keys and one of values for each lane. All
 * that a split has at once would push out of L2 what other blocks have not read yet. */
template <int ND>
__device__ __forceinline__ void warm_tile(const cu_cache &c, const span &s, int kvh, int at) {
    const int lane = threadIdx.x % 32;
    const int p = at + lane / ND;
    const int byte = lane % ND * 128;
    if (at >= s.hi)
        return;
    const int page = page_at(s, at);
    if (page < 0 || p >= s.hi)
        return;
    if (byte < 2 * c.pk)
        prefetch(key_at(c, page, kvh, p, 2) + byte);
    if (byte < 2 * c.pv)
        prefetch(value_at(c, page, kvh, p, 2) + byte);
}
/* The tiles of each warp that a walk does not ask for itself. */
template <int ND>
__device__ __forceinline__ void warm_tiles(const cu_cache &c, const span &s, int kvh, int ahead) {
    const int at = tiles_from<ND>(s) + same(threadIdx.x / 32) * tiles<ND>::EACH;
#pragma unroll 1
    for (int i = 0; i < ahead; i++)
        warm_tile<ND>(c, s, kvh, at + i * tiles<ND>::STEP);
}
/* The new key and value, where this lane has a part of them. */
template <int ND, class SH>
__device__ __forceinline__ void take_new(const SH &sh, int at, int near,
                                         ahead<tile_type, ND> &now) {
    const int lane = threadIdx.x % 32;
    if (near < at || near >= at + tiles<ND>::EACH)
        return;
#pragma unroll
    for (int u = 0; u < 2 * tiles<ND>::U; u++)
#pragma unroll
        for (int n = 0; n < 2 * ND; n++)
            if (at + 8 * u + lane / 4 == near)
                now.k[u][n] = ((const uint4 *)sh.k)[4 * n + lane % 4];
#pragma unroll
    for (int u = 0; u < tiles<ND>::U; u++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int n = 0; n < ND; n++)
                if (at + 16 * u + value_row(i) == near)
                    now.v[u][i][n] = ((const uint4 *)sh.v)[8 * n + lane / 4];
}
/* Scores and values of positions that are not of the split, or have no page: as if they were not
 * there. What lies in their place may be no number. */
template <int ND>
__device__ __forceinline__ void mask_tiles(const span &s, int at, float (&x)[2 * tiles<ND>::U][2],
                                           ahead<tile_type, ND> &now) {
    const int hi = page_at(s, at) < 0 ? s.lo : s.hi;
    if (at >= s.lo && at + tiles<ND>::EACH <= hi)
        return;
#pragma unroll
    for (int u = 0; u < 2 * tiles<ND>::U; u++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int p = at + 8 * u + threadIdx.x % 4 * 2 + e;
            if (p >= s.lo && p < hi)
                continue;
            x[u][e] = -INFINITY;
#pragma unroll
            for (int n = 0; n < ND; n++)
                now.v[u / 2][u % 2 * 2 + e][n] = {};
        }
}

/* The lower, and the upper, halves of two words. */
__device__ __forceinline__ uint32_t lower(uint32_t a, uint32_t b) {
    return __byte_perm(a, b, 0x5410);
}
__device__ __forceinline__ uint32_t upper(uint32_t a, uint32_t b) {
    return __byte_perm(a, b, 0x7632);
}

/* Scores of this lane's head: positions 8 u + 2 (lane % 4) + {0, 1}. */
template <int ND, class Q>
__device__ __forceinline__ void score_tiles(const cu_attend &a, const Q &q,
                                            const uint4 (&k)[2 * tiles<ND>::U][2 * ND],
                                            float (&x)[2 * tiles<ND>::U][2]) {
    const int lane = threadIdx.x % 32;
    float c[2 * tiles<ND>::U][4] = {};
#pragma unroll
    for (int n = 0; n < 2 * ND; n++) {
        const uint4 *from = (const uint4 *)&q[lane / 4][32 * n + 8 * (lane % 4)];
        const uint4 w0 = from[0];
        const uint4 w1 = from[1];
#pragma unroll
        for (int u = 0; u < 2 * tiles<ND>::U; u++) {
            mma<CU_HALF>(c[u], lower(w0.x, w0.y), upper(w0.x, w0.y), lower(w0.z, w0.w),
                         upper(w0.z, w0.w), k[u][n].x, k[u][n].y);
            mma<CU_HALF>(c[u], lower(w1.x, w1.y), upper(w1.x, w1.y), lower(w1.z, w1.w),
                         upper(w1.z, w1.w), k[u][n].z, k[u][n].w);
        }
    }
#pragma unroll
    for (int u = 0; u < 2 * tiles<ND>::U; u++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            x[u][e] = (c[u][e] + c[u][2 + e]) * a.scale;
    if (a.softcap == 0)
        return;
    const float slope = 2 / a.softcap; /* softcap * tanh(x / softcap) */
#pragma unroll
    for (int u = 0; u < 2 * tiles<ND>::U; u++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            x[u][e] = a.softcap - __fdividef(2 * a.softcap, expf(slope * x[u][e]) + 1);
}

/* The split s for `heads` heads: see walk() of attend.cuh. */
template <int ND, bool ONE>
__device__ __forceinline__ void walk(const cu_attend &a, const span &s, int kvh, int heads,
                                     int near, ahead<tile_type, ND> &now,
                                     attend_shared<tile_type, ND, TILE_HEADS, ONE> &sh) {
    constexpr int U = tiles<ND>::U;
    constexpr int STEP = tiles<ND>::STEP;
    const int warp = same(threadIdx.x / 32);
    const int lane = threadIdx.x % 32;
    const int head = lane % 4 * 2; /* of the two whose values this lane has */
    float o[ND][4][4] = {};
    float m = -INFINITY;
    float sum = 0;
#pragma unroll 1
    for (int at = tiles_from<ND>(s) + warp * tiles<ND>::EACH; at < s.hi; at += STEP) {
        float x[2 * U][2];
        uint32_t p[2 * U];
        fetch_values(a.c, s, kvh, at, now);
        warm_tile<ND>(a.c, s, kvh, at + a.ahead * STEP);
        if constexpr (ONE)
            take_new(sh, at, near, now);
        score_tiles<ND>(a, sh.q, now.k, x);
        mask_tiles(s, at, x, now);
        if (at + STEP < s.hi)
            fetch_keys(a.c, s, kvh, at + STEP, now);
        float top = m;
#pragma unroll
        for (int u = 0; u < 2 * U; u++)
            top = fmaxf(top, fmaxf(x[u][0], x[u][1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const float base = top == -INFINITY ? 0 : top;
        const float old = expf(m - base);
        m = top;
        sum *= old;
#pragma unroll
        for (int u = 0; u < 2 * U; u++) {
            const float e0 = expf(x[u][0] - base);
            const float e1 = expf(x[u][1] - base);
            const __half2 e = __floats2half2_rn(e0, e1);
            sum += e0 + e1;
            memcpy(&p[u], &e, sizeof e);
        }
        if (!__all_sync(~0u, old == 1)) {
            const float f0 = __shfl_sync(~0u, old, 4 * head);
            const float f1 = __shfl_sync(~0u, old, 4 * head + 4);
#pragma unroll
            for (int i = 0; i < 16 * ND; i++)
                o[i / 16][i / 4 % 4][i % 4] *= i % 2 ? f1 : f0;
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int n = 0; n < ND; n++) {
                const uint32_t *v[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    v[i] = (const uint32_t *)&now.v[u][i][n];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    mma<CU_HALF>(o[n][i], lower(v[0][i], v[1][i]), upper(v[0][i], v[1][i]),
                                 lower(v[2][i], v[3][i]), upper(v[2][i], v[3][i]), p[2 * u],
                                 p[2 * u + 1]);
            }
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (lane % 4 == 0) {
        sh.m[warp][lane / 4] = m;
        sh.sum[warp][lane / 4] = sum;
    }
#pragma unroll
    for (int i = 0; i < 16 * ND; i++) {
        const int d = i / 16 * 64 + lane / 4 * 8 + i / 4 % 4 * 2 + i / 2 % 2;
        if (head + i % 2 < heads)
            sh.acc[warp][head + i % 2][d] = o[i / 16][i / 4 % 4][i % 4];
    }
}
#endif
