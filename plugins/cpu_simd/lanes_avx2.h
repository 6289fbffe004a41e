/* lanes_avx2.h -- what rows_lanes8.c needs of AVX2, with VPDPBUSD where the unit has it: four
 * bytes of 8 rows in a register. */
#define VEC_LANES
#include "panel_x86.h"
typedef VB LB;
typedef __m256i LI; /* whole numbers of 8 rows */
INLINE LB l_load(const uint8_t *p) {
    return vb_load(p);
}
INLINE LB l_field(LB v, const int shift, const uint8_t mask) {
    return vb_field(v, shift, mask);
}
INLINE LB l_or(LB a, LB b) {
    return vb_or(a, b);
}
INLINE VF l_u8(const uint8_t *p) {
    const __m128i bytes = _mm_loadl_epi64((const void *)p);
    const __m256i wide = _mm256_cvtepu8_epi32(bytes);
    return _mm256_cvtepi32_ps(wide);
}
INLINE VF l_i8(const int8_t *p) {
    const __m128i bytes = _mm_loadl_epi64((const void *)p);
    const __m256i wide = _mm256_cvtepi8_epi32(bytes);
    return _mm256_cvtepi32_ps(wide);
}
INLINE VF l_float(LI sum) {
    return _mm256_cvtepi32_ps(sum);
}
INLINE LI l_spread(const uint8_t *p) {
    return spread4(p);
}
/* first + the sum of u[i] times x[i], i < n. Of sums of two products, `fit` fit into 16 bits. */
INLINE LI l_dot(const int32_t first, const LB *u, const LI *x, const int n, const int fit) {
    LI sum = _mm256_set1_epi32(first);
#ifdef VX_PRODUCTS
    (void)fit;
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        sum = VX_PRODUCTS(sum, u[i], x[i]);
    return sum;
#else
    const __m256i one = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int i = 0; i < n; i += fit) {
        __m256i part = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int j = i; j < i + fit; j++) {
            const __m256i pairs = _mm256_maddubs_epi16(u[j], x[j]);
            part = j == i ? pairs : _mm256_add_epi16(part, pairs);
        }
        const __m256i wide = _mm256_madd_epi16(part, one);
        sum = _mm256_add_epi32(sum, wide);
    }
    return sum;
#endif
}
