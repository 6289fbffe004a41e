/* lanes_avx512.h -- what rows_lanes8.c needs of AVX-512 with VNNI: four bytes of 16 rows in a
 * register. */
#define VEC_LANES
typedef __m512i LB;
typedef __m512i LI; /* whole numbers of 16 rows */
INLINE LB l_load(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}
/* As vb_field of 64 bytes. */
INLINE LB l_field(LB v, const int shift, const uint8_t mask) {
    if (shift < 0)
        v = _mm512_slli_epi16(v, -shift);
    else
        v = _mm512_srli_epi16(v, shift);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}
INLINE LB l_or(LB a, LB b) {
    return _mm512_or_si512(a, b);
}
INLINE VF l_u8(const uint8_t *p) {
    const __m512i wide = _mm512_cvtepu8_epi32(vb_load16(p));
    return _mm512_cvtepi32_ps(wide);
}
INLINE VF l_i8(const int8_t *p) {
    const __m128i bytes = vb_load16((const uint8_t *)p);
    const __m512i wide = _mm512_cvtepi8_epi32(bytes);
    return _mm512_cvtepi32_ps(wide);
}
INLINE VF l_float(LI sum) {
    return _mm512_cvtepi32_ps(sum);
}
/* Four bytes at p, in every lane. */
INLINE LI l_spread(const uint8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}
/* first + the sum of u[i] times x[i], i < n. */
INLINE LI l_dot(const int32_t first, const LB *u, const LI *x, const int n, const int fit) {
    LI sum = _mm512_set1_epi32(first);
    (void)fit;
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        sum = _mm512_dpbusd_epi32(sum, u[i], x[i]);
    return sum;
}
