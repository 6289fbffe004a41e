/* panel_vnni.h -- tiles of byte panels by VPDPBUSD: a lane for each of 16 weight rows with AVX-512,
 * of 8 with AVX-VNNI. A column of four bytes is a register; x's four bytes are spread over the
 * lanes. Bytes of types without minima are 128 more than the whole number they stand for, the
 * others are as rows_dot8.c has them. */
#include "panel_x86.h"
#ifdef __AVX512VNNI__
enum { PANEL_SIDE = 16, PANEL_MOST = 8 };
#define PANEL_PASSES(X) X(4) X(5) X(6) X(7) X(8)
typedef __m512i PANEL_SUMS;
typedef __m512 PANEL_LANES;
typedef __mmask16 PANEL_KEEP;
INLINE PANEL_KEEP panel_keep(int64_t left) { /* the first lanes, all if there are as many */
    const uint32_t some = (1u << (left & 15)) - 1u;
    return left >= PANEL_SIDE ? 0xffff : (__mmask16)some;
}
INLINE PANEL_LANES panel_lanes_some(PANEL_KEEP keep, const float *y) {
    return _mm512_maskz_loadu_ps(keep, y);
}
INLINE void panel_lanes_store(float *y, PANEL_KEEP keep, PANEL_LANES v) {
    _mm512_mask_storeu_ps(y, keep, v);
}
INLINE PANEL_LANES panel_lanes_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE PANEL_LANES panel_lanes_set1(float x) {
    return _mm512_set1_ps(x);
}
INLINE PANEL_LANES panel_lanes_mul(PANEL_LANES a, PANEL_LANES b) {
    return _mm512_mul_ps(a, b);
}
INLINE PANEL_LANES panel_lanes_fma(PANEL_LANES a, PANEL_LANES b, PANEL_LANES c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE PANEL_LANES panel_lanes_of(PANEL_SUMS s) {
    return _mm512_cvtepi32_ps(s);
}
INLINE PANEL_SUMS panel_sums_set1(int32_t x) {
    return _mm512_set1_epi32(x);
}
INLINE PANEL_SUMS panel_bytes_load(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}
/* s + 16 sums of four products, of the bytes of w with the four at x. By hand: written with
 * intrinsics the four bytes are spread by an instruction of their own, which doubles the number of
 * instructions. */
typedef int32_t four_bytes __attribute__((aligned(1), may_alias));
INLINE PANEL_SUMS panel_add_products(PANEL_SUMS s, PANEL_SUMS w, const uint8_t *x) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(s) : "v"(w), "m"(*(const four_bytes *)x));
    return s;
}
#else
enum { PANEL_SIDE = 8, PANEL_MOST = 4 };
#define PANEL_PASSES(X) X(2) X(3) X(4)
typedef __m256i PANEL_SUMS;
typedef __m256 PANEL_LANES;
typedef __m256i PANEL_KEEP;
INLINE PANEL_KEEP panel_keep(int64_t left) {
    return keep8(left);
}
INLINE PANEL_LANES panel_lanes_some(PANEL_KEEP keep, const float *y) {
    return _mm256_maskload_ps(y, keep);
}
INLINE void panel_lanes_store(float *y, PANEL_KEEP keep, PANEL_LANES v) {
    _mm256_maskstore_ps(y, keep, v);
}
INLINE PANEL_LANES panel_lanes_load(const float *p) {
    return v_load(p);
}
INLINE PANEL_LANES panel_lanes_set1(float x) {
    return v_set1(x);
}
INLINE PANEL_LANES panel_lanes_mul(PANEL_LANES a, PANEL_LANES b) {
    return v_mul(a, b);
}
INLINE PANEL_LANES panel_lanes_fma(PANEL_LANES a, PANEL_LANES b, PANEL_LANES c) {
    return v_fma(a, b, c);
}
INLINE PANEL_LANES panel_lanes_of(PANEL_SUMS s) {
    return _mm256_cvtepi32_ps(s);
}
INLINE PANEL_SUMS panel_sums_set1(int32_t x) {
    return _mm256_set1_epi32(x);
}
INLINE PANEL_SUMS panel_bytes_load(const uint8_t *p) {
    return vb_load(p);
}
INLINE PANEL_SUMS panel_add_products(PANEL_SUMS s, PANEL_SUMS w, const uint8_t *x) {
    return _mm256_dpbusd_avx_epi32(s, w, spread4(x));
}
#endif
#include "panel_bytes.h"

/* How much larger the bytes of a panel are than the numbers they stand for. */
INLINE int panel_bias(const int off, const panel_layout l) {
    return l.min ? off : 128;
}

/* 8 rows of 32 bytes. */
INLINE void panel_put8(const __m256i r[8], uint8_t *to, const panel_layout l) {
    (void)l;
    turn8(r, to, 4 * PANEL_SIDE);
}

/* Adds the products of a group's columns: registers of the panel with the bytes x[a] + at of mr x
 * rows. A product waits for the one before of its row; so rows take turns, and few instructions lie
 * between two that can start at the same time. */
INLINE void panel_multiply(PANEL_SUMS sums[PANEL_MOST], const PANEL_SUMS *w,
                           const uint8_t *const x[PANEL_MOST], int64_t at, const int group,
                           const int mr) {
#pragma GCC unroll 8
    for (int i = 0; i < group / 4; i++)
#pragma GCC unroll 8
        for (int a = 0; a < mr; a++) {
            const uint8_t *four = x[a] + at + 4 * i;
            sums[a] = panel_add_products(sums[a], w[i], four);
        }
}

/* mr x rows against PANEL_SIDE weight rows, of which `left` count; n blocks; x: their bytes of
 * the first one. */
INLINE void panel_tile(const uint8_t *p, int64_t n, const uint8_t *const x[PANEL_MOST],
                       const panel_scales *s, const mnk_pair *pair, int64_t y0, int64_t left,
                       bool first, const panel_layout l, const int mr) {
    const PANEL_KEEP keep = panel_keep(left);
    const int group = l.group;
    const int groups = 32 / group;
    PANEL_LANES acc[PANEL_MOST];
    for (int a = 0; a < mr; a++)
        acc[a] = first ? panel_lanes_set1(0) : panel_lanes_some(keep, pair[a].y + y0);
    for (int64_t b = 0; b < n; b++, p += panel_block_bytes(l)) {
        const float *scale = (const float *)(const void *)(p + 32 * PANEL_SIDE);
        PANEL_SUMS w[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            w[i] = panel_bytes_load(p + 4 * PANEL_SIDE * i);
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            const int64_t at = groups * b + g;
            const PANEL_LANES d = panel_lanes_load(scale + PANEL_SIDE * g);
            PANEL_SUMS sums[PANEL_MOST];
            for (int a = 0; a < mr; a++)
                sums[a] = panel_sums_set1(l.min ? 0 : s->of.seed[a][at]);
            panel_multiply(sums, w + group / 4 * g, x, 32 * b + group * g, group, mr);
#pragma GCC unroll 8
            for (int a = 0; a < mr; a++) {
                const PANEL_LANES by = panel_lanes_mul(d, panel_lanes_set1(s->d[a][b]));
                acc[a] = panel_lanes_fma(panel_lanes_of(sums[a]), by, acc[a]);
            }
            if (!l.min)
                continue;
            const PANEL_LANES m = panel_lanes_load(scale + PANEL_SIDE * (groups + g));
#pragma GCC unroll 8
            for (int a = 0; a < mr; a++) {
                const PANEL_LANES sum = panel_lanes_set1(s->of.sum[a][at]);
                acc[a] = panel_lanes_fma(m, sum, acc[a]);
            }
        }
    }
    for (int a = 0; a < mr; a++)
        panel_lanes_store(pair[a].y + y0, keep, acc[a]);
}
