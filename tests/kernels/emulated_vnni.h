/* emulated_vnni.h -- VPDPBUSD of AVX-VNNI in AVX2, for CPUs without it: included before the
 * bodies of avxvnni, whose rows test_rows then tries there, but for the instruction itself. */
#ifndef MN_EMULATED_VNNI_H
#define MN_EMULATED_VNNI_H
#include <immintrin.h>
#define __AVXVNNI__ 1
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd

/* s + sums of four products: bytes of even and of odd places, as words, two products each. */
static inline __m256i emulated_dpbusd(__m256i s, __m256i u, __m256i x) {
    const __m256i u_even = _mm256_and_si256(u, _mm256_set1_epi16(255));
    const __m256i u_odd = _mm256_srli_epi16(u, 8);
    const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
    const __m256i x_odd = _mm256_srai_epi16(x, 8);
    s = _mm256_add_epi32(s, _mm256_madd_epi16(u_even, x_even));
    return _mm256_add_epi32(s, _mm256_madd_epi16(u_odd, x_odd));
}
#endif
