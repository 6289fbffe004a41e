/* vec_avx512.h -- the vocabulary for AVX-512 F, BW, VL, DQ: 16 lanes; with VPDPBUSD where the flags
 * have it. */
#include "bytes_avx2.h"
#define VL 16
#define MR 4
#define NR 6
typedef __m512 VF;
static inline VF v_load(const void *p) {
    return _mm512_loadu_ps(p);
}
static inline void v_store(void *p, VF v) {
    _mm512_storeu_ps(p, v);
}
static inline VF v_set1(float x) {
    return _mm512_set1_ps(x);
}
static inline VF v_add(VF a, VF b) {
    return _mm512_add_ps(a, b);
}
static inline VF v_sub(VF a, VF b) {
    return _mm512_sub_ps(a, b);
}
static inline VF v_mul(VF a, VF b) {
    return _mm512_mul_ps(a, b);
}
static inline VF v_div(VF a, VF b) {
    return _mm512_div_ps(a, b);
}
static inline VF v_fma(VF a, VF b, VF c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline VF v_min(VF a, VF b) {
    return _mm512_min_ps(a, b);
}
static inline VF v_max(VF a, VF b) {
    return _mm512_max_ps(a, b);
}
static inline VF v_sel_lt(VF a, VF b, VF x, VF y) {
    const __mmask16 is_less = _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
    return _mm512_mask_blend_ps(is_less, y, x);
}
static inline VF v_abs(VF a) {
    return _mm512_abs_ps(a);
}
static inline VF v_copysign(VF a, VF s) {
    const VF sign = _mm512_and_ps(s, _mm512_set1_ps(-0.0f));
    return _mm512_or_ps(v_abs(a), sign);
}
static inline float v_sum(VF a) {
    const __m256 high = _mm512_extractf32x8_ps(a, 1);
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), high);
    __m128 s = _mm256_extractf128_ps(h, 1);
    s = _mm_add_ps(_mm256_castps256_ps128(h), s);
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
/* v_sum of 16 vectors, each in its lane: the same additions, three instructions for a pair. */
#define V_SUMS
/* a's quarters two apart, added, then b's. */
static inline VF v_halves_of_quarters(VF a, VF b) {
    const VF low = _mm512_shuffle_f32x4(a, b, 0x44);
    const VF high = _mm512_shuffle_f32x4(a, b, 0xee);
    return v_add(low, high);
}
/* a's neighbouring quarters, added, then b's. */
static inline VF v_pairs_of_quarters(VF a, VF b) {
    const VF even = _mm512_shuffle_f32x4(a, b, 0x88);
    const VF odd = _mm512_shuffle_f32x4(a, b, 0xdd);
    return v_add(even, odd);
}
/* The same of the lanes within each quarter. */
static inline VF v_halves(VF a, VF b) {
    const VF low = _mm512_shuffle_ps(a, b, 0x44);
    const VF high = _mm512_shuffle_ps(a, b, 0xee);
    return v_add(low, high);
}
static inline VF v_pairs(VF a, VF b) {
    const VF even = _mm512_shuffle_ps(a, b, 0x88);
    const VF odd = _mm512_shuffle_ps(a, b, 0xdd);
    return v_add(even, odd);
}
static inline VF v_sums(const VF a[VL]) {
    VF s[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const VF p = v_halves_of_quarters(a[i], a[4 + i]);
        const VF q = v_halves_of_quarters(a[8 + i], a[12 + i]);
        s[i] = v_pairs_of_quarters(p, q);
    }
    const VF p = v_halves(s[0], s[1]);
    const VF q = v_halves(s[2], s[3]);
    return v_pairs(p, q);
}
static inline float v_top(VF a) {
    return _mm512_reduce_max_ps(a);
}
static inline VF v_round(VF a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline VF v_pow2(VF n) {
    return _mm512_scalef_ps(_mm512_set1_ps(1.0f), n);
}
static inline VF v_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(vb_load(p));
}
static inline VF v_bf16(const uint8_t *p) {
    const __m512i wide = _mm512_cvtepu16_epi32(vb_load(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline void v_store_f16(uint8_t *p, VF v) {
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline VF v_of(VB v, int64_t e) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(vb_half(v, e)));
} /* e: 0, 16 */
/* exponent and mantissa as those of an f32, 2^120 too small; 127 is NaN */
/* As f16 of 256 times less: conversion takes small ones as fast as others, products do not. */
static inline VF v_e4m3(const uint8_t *p) {
    const __m256i b = _mm256_cvtepi8_epi16(vb_load16(p));
    const __m256i a = _mm256_and_si256(b, _mm256_set1_epi16(127));
    const __m256i nan = _mm256_cmpeq_epi16(a, _mm256_set1_epi16(127));
    const __m256i sign_and_size = _mm256_set1_epi16((short)0xbfff);
    const __m256i moved = _mm256_slli_epi16(b, 7);
    const __m256i half = _mm256_and_si256(moved, sign_and_size);
    const __m256i none = _mm256_srli_epi16(nan, 1);
    const VF f = _mm512_cvtph_ps(_mm256_or_si256(half, none));
    return _mm512_mul_ps(f, _mm512_set1_ps(256));
}
static inline VF v_table16(const float *table, const uint8_t *p) {
    const __m128i bytes = _mm_loadl_epi64((const void *)p);
    const __m128i pairs = _mm_unpacklo_epi8(bytes, bytes);
    const __m512i twice = _mm512_cvtepu8_epi32(pairs);
    const __m512i shift = _mm512_set4_epi32(0, 4, 0, 4);
    const __m512i of = _mm512_srlv_epi32(twice, shift);
    const __m512 entries = _mm512_loadu_ps(table);
    return _mm512_permutexvar_ps(of, entries);
}
static inline VF v_e5m2(const uint8_t *p) { /* the upper byte of an f16 */
    const __m256i wide = _mm256_cvtepu8_epi16(vb_load16(p));
    return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
}
/* Inlined early: GCC takes a function that does nothing else for one without effect and drops its
 * calls. */
static inline __attribute__((always_inline)) void v_prefetch(const uint8_t *p) {
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}
#include "tiles.h"
#include "lanes_avx512.h"
#ifdef __AVX512VNNI__
#include "panel_vnni.h"
#endif
