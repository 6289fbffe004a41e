/* vec_avx2.h -- the vocabulary for AVX2 + FMA + F16C: 8 lanes; with VPDPBUSD where the flags have
 * it, of AVX-VNNI or, in registers of 32 bytes, of AVX-512. */
#include "bytes_avx2.h"
#define VL 8
#define MR 3
#define NR 4
typedef __m256 VF;
static inline VF v_load(const void *p) {
    return _mm256_loadu_ps(p);
}
static inline void v_store(void *p, VF v) {
    _mm256_storeu_ps(p, v);
}
static inline VF v_set1(float x) {
    return _mm256_set1_ps(x);
}
static inline VF v_add(VF a, VF b) {
    return _mm256_add_ps(a, b);
}
static inline VF v_sub(VF a, VF b) {
    return _mm256_sub_ps(a, b);
}
static inline VF v_mul(VF a, VF b) {
    return _mm256_mul_ps(a, b);
}
static inline VF v_div(VF a, VF b) {
    return _mm256_div_ps(a, b);
}
static inline VF v_fma(VF a, VF b, VF c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline VF v_min(VF a, VF b) {
    return _mm256_min_ps(a, b);
}
static inline VF v_max(VF a, VF b) {
    return _mm256_max_ps(a, b);
}
static inline VF v_sel_lt(VF a, VF b, VF x, VF y) {
    const VF is_less = _mm256_cmp_ps(a, b, _CMP_LT_OQ);
    return _mm256_blendv_ps(y, x, is_less);
}
static inline VF v_abs(VF a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline VF v_copysign(VF a, VF s) {
    const VF sign = _mm256_and_ps(s, _mm256_set1_ps(-0.0f));
    return _mm256_or_ps(v_abs(a), sign);
}
static inline float v_sum(VF a) {
    const __m128 high = _mm256_extractf128_ps(a, 1);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), high);
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
/* v_sum of 8 vectors, each in its lane: the same additions, three instructions for a pair. */
#define V_SUMS
/* In each half of the register: a's lanes two apart, added, then b's. */
static inline VF v_halves(VF a, VF b) {
    const VF low = _mm256_shuffle_ps(a, b, 0x44);
    const VF high = _mm256_shuffle_ps(a, b, 0xee);
    return v_add(low, high);
}
/* ... a's neighbouring lanes, added, then b's. */
static inline VF v_pairs(VF a, VF b) {
    const VF even = _mm256_shuffle_ps(a, b, 0x88);
    const VF odd = _mm256_shuffle_ps(a, b, 0xdd);
    return v_add(even, odd);
}
static inline VF v_sums(const VF a[VL]) {
    VF s[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const VF low = _mm256_permute2f128_ps(a[i], a[4 + i], 0x20);
        const VF high = _mm256_permute2f128_ps(a[i], a[4 + i], 0x31);
        s[i] = v_add(low, high);
    }
    const VF p = v_halves(s[0], s[1]);
    const VF q = v_halves(s[2], s[3]);
    return v_pairs(p, q);
}
static inline float v_top(VF a) {
    const __m128 high = _mm256_extractf128_ps(a, 1);
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), high);
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
static inline VF v_round(VF a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline VF v_pow2(VF n) {
    __m256i e = _mm256_cvtps_epi32(n);
    e = _mm256_add_epi32(e, _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}
static inline VF v_f16(const uint8_t *p) {
    return _mm256_cvtph_ps(vb_load16(p));
}
static inline VF v_bf16(const uint8_t *p) {
    const __m256i wide = _mm256_cvtepu16_epi32(vb_load16(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline void v_store_f16(uint8_t *p, VF v) {
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline VF v_of(VB v, int64_t e) { /* signed bytes [e, e + 8), e a multiple of 8 */
    __m128i h = vb_half(v, e);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(e & 8 ? _mm_srli_si128(h, 8) : h));
}
/* exponent and mantissa as those of an f32, 2^120 too small; 127 is NaN */
/* As f16 of 256 times less: conversion takes small ones as fast as others, products do not. */
static inline VF v_e4m3(const uint8_t *p) {
    const __m128i b = _mm_cvtepi8_epi16(_mm_loadl_epi64((const void *)p));
    const __m128i a = _mm_and_si128(b, _mm_set1_epi16(127));
    const __m128i nan = _mm_cmpeq_epi16(a, _mm_set1_epi16(127));
    const __m128i moved = _mm_slli_epi16(b, 7);
    const __m128i half = _mm_and_si128(moved, _mm_set1_epi16((short)0xbfff));
    const __m128i none = _mm_srli_epi16(nan, 1);
    const VF f = _mm256_cvtph_ps(_mm_or_si128(half, none));
    return _mm256_mul_ps(f, _mm256_set1_ps(256));
}
static inline VF v_table16(const float *table, const uint8_t *p) {
    const __m128i bytes = _mm_loadu_si32(p);
    const __m128i pairs = _mm_unpacklo_epi8(bytes, bytes);
    const __m256i twice = _mm256_cvtepu8_epi32(pairs);
    const __m256i shift = _mm256_setr_epi32(4, 0, 4, 0, 4, 0, 4, 0);
    const __m256i of = _mm256_srlv_epi32(twice, shift);
    const __m256 first = _mm256_loadu_ps(table);
    const __m256 second = _mm256_loadu_ps(table + 8);
    const __m256 low = _mm256_permutevar8x32_ps(first, of);
    const __m256 high = _mm256_permutevar8x32_ps(second, of);
    const __m256i above = _mm256_slli_epi32(of, 28); /* the sign chooses */
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(above));
}
static inline VF v_e5m2(const uint8_t *p) { /* the upper byte of an f16 */
    return _mm256_cvtph_ps(
        _mm_unpacklo_epi8(_mm_setzero_si128(), _mm_loadl_epi64((const void *)p)));
}
/* Inlined early: GCC takes a function that does nothing else for one without effect and drops its
 * calls. */
static inline __attribute__((always_inline)) void v_prefetch(const uint8_t *p) {
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}
#include "dot8_x86.h"
#include "lanes_avx2.h"
#ifdef __AVX512VNNI__ /* has panels in registers of 64 bytes: vec_avx512.h */
#elif defined __AVXVNNI__
#include "panel_vnni.h"
#else
#include "panel_avx2.h"
#endif
