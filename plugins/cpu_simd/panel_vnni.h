/* panel_vnni.h -- tiles of byte panels by VPDPBUSD: a lane for each of 16 weight rows with AVX-512,
 * of 8 with AVX-VNNI. A column of four bytes is a register; x's four bytes are spread over the
 * lanes. Bytes of types without minima are 128 more than the whole number they stand for, the
 * others are as rows_dot8.c has them. */
#include "panel_x86.h"
#ifdef __AVX512VNNI__
enum { SIDE = 16, MOST = 8 };
#define PANEL_PASSES(X) X(4) X(5) X(6) X(7) X(8)
typedef __m512i SUMS;
typedef __m512 LANES;
typedef __mmask16 KEEP;
INLINE KEEP keep_of(int64_t left) { /* the first lanes, all if there are as many */
    const uint32_t some = (1u << (left & 15)) - 1u;
    return left >= SIDE ? 0xffff : (__mmask16)some;
}
INLINE LANES lanes_some(KEEP keep, const float *y) {
    return _mm512_maskz_loadu_ps(keep, y);
}
INLINE void lanes_store(float *y, KEEP keep, LANES v) {
    _mm512_mask_storeu_ps(y, keep, v);
}
INLINE LANES lanes_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE LANES lanes_set1(float x) {
    return _mm512_set1_ps(x);
}
INLINE LANES lanes_mul(LANES a, LANES b) {
    return _mm512_mul_ps(a, b);
}
INLINE LANES lanes_fma(LANES a, LANES b, LANES c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE LANES lanes_of(SUMS s) {
    return _mm512_cvtepi32_ps(s);
}
INLINE SUMS sums_set1(int32_t x) {
    return _mm512_set1_epi32(x);
}
INLINE SUMS bytes_load(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}
/* s + 16 sums of four products, of the bytes of w with the four at x. By hand: written with
 * intrinsics the four bytes are spread by an instruction of their own, which doubles the number of
 * instructions. */
typedef int32_t four_bytes __attribute__((aligned(1), may_alias));
INLINE SUMS add_products(SUMS s, SUMS w, const uint8_t *x) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(s) : "v"(w), "m"(*(const four_bytes *)x));
    return s;
}
#else
enum { SIDE = 8, MOST = 4 };
#define PANEL_PASSES(X) X(2) X(3) X(4)
typedef __m256i SUMS;
typedef __m256 LANES;
typedef __m256i KEEP;
INLINE KEEP keep_of(int64_t left) {
    return keep8(left);
}
INLINE LANES lanes_some(KEEP keep, const float *y) {
    return _mm256_maskload_ps(y, keep);
}
INLINE void lanes_store(float *y, KEEP keep, LANES v) {
    _mm256_maskstore_ps(y, keep, v);
}
INLINE LANES lanes_load(const float *p) {
    return v_load(p);
}
INLINE LANES lanes_set1(float x) {
    return v_set1(x);
}
INLINE LANES lanes_mul(LANES a, LANES b) {
    return v_mul(a, b);
}
INLINE LANES lanes_fma(LANES a, LANES b, LANES c) {
    return v_fma(a, b, c);
}
INLINE LANES lanes_of(SUMS s) {
    return _mm256_cvtepi32_ps(s);
}
INLINE SUMS sums_set1(int32_t x) {
    return _mm256_set1_epi32(x);
}
INLINE SUMS bytes_load(const uint8_t *p) {
    return vb_load(p);
}
INLINE SUMS add_products(SUMS s, SUMS w, const uint8_t *x) {
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
    turn8(r, to, 4 * SIDE);
}

/* Adds the products of a group's columns: registers of the panel with the bytes x[a] + at of mr x
 * rows. A product waits for the one before of its row; so rows take turns, and few instructions lie
 * between two that can start at the same time. */
INLINE void multiply(SUMS sums[MOST], const SUMS *w, const uint8_t *const x[MOST], int64_t at,
                     const int group, const int mr) {
#pragma GCC unroll 8
    for (int i = 0; i < group / 4; i++)
#pragma GCC unroll 8
        for (int a = 0; a < mr; a++) {
            const uint8_t *four = x[a] + at + 4 * i;
            sums[a] = add_products(sums[a], w[i], four);
        }
}

/* mr x rows against SIDE weight rows, of which `left` count; n blocks; x: their bytes of the first
 * one. */
INLINE void tile(const uint8_t *p, int64_t n, const uint8_t *const x[MOST], const x_scales *s,
                 const mnk_pair *pair, int64_t y0, int64_t left, bool first, const panel_layout l,
                 const int mr) {
    const KEEP keep = keep_of(left);
    const int group = l.group;
    const int groups = 32 / group;
    LANES acc[MOST];
    for (int a = 0; a < mr; a++)
        acc[a] = first ? lanes_set1(0) : lanes_some(keep, pair[a].y + y0);
    for (int64_t b = 0; b < n; b++, p += block_bytes(l)) {
        const float *scale = (const float *)(const void *)(p + 32 * SIDE);
        SUMS w[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            w[i] = bytes_load(p + 4 * SIDE * i);
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            const int64_t at = groups * b + g;
            const LANES d = lanes_load(scale + SIDE * g);
            SUMS sums[MOST];
            for (int a = 0; a < mr; a++)
                sums[a] = sums_set1(l.min ? 0 : s->of.seed[a][at]);
            multiply(sums, w + group / 4 * g, x, 32 * b + group * g, group, mr);
#pragma GCC unroll 8
            for (int a = 0; a < mr; a++) {
                const LANES by = lanes_mul(d, lanes_set1(s->d[a][b]));
                acc[a] = lanes_fma(lanes_of(sums[a]), by, acc[a]);
            }
            if (!l.min)
                continue;
            const LANES m = lanes_load(scale + SIDE * (groups + g));
#pragma GCC unroll 8
            for (int a = 0; a < mr; a++) {
                const LANES sum = lanes_set1(s->of.sum[a][at]);
                acc[a] = lanes_fma(m, sum, acc[a]);
            }
        }
    }
    for (int a = 0; a < mr; a++)
        lanes_store(pair[a].y + y0, keep, acc[a]);
}
