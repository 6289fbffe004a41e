/* dot8_x86.h -- products of 32 weight bytes with 32 activations, by maddubs or by VPDPBUSD: both
 * multiply unsigned by signed bytes. What the weights' offset adds is taken off with the sums of
 * the activations, which the quantiser has left. maddubs saturates at 16 bits, 127 * 127 * 2 still
 * fits: of weights with all eight bits the signs move over to x instead. */
#ifdef __AVX512VNNI__
#define VX_PRODUCTS _mm256_dpbusd_epi32
#elif defined __AVXVNNI__
#define VX_PRODUCTS _mm256_dpbusd_avx_epi32
#endif
typedef struct {
    __m256i x;
    __m256i seed;
} VX;
static inline VX vx_load(const int8_t *x, const int32_t *sum4, const int off) {
    VX v = {_mm256_loadu_si256((const void *)x), _mm256_setzero_si256()};
#ifndef VX_PRODUCTS
    if (off == 128)
        return v;
#endif
    if (off)
        v.seed = _mm256_sub_epi32(v.seed, _mm256_mullo_epi32(_mm256_loadu_si256((const void *)sum4),
                                                             _mm256_set1_epi32(off)));
    return v;
}
/* acc + d * (u - off) . x; in groups of 16 d[1] is the scale of elements from 16 on. */
static inline VF vx_fold(VF acc, VB u, const VX *x, const float *d, const int group,
                         const int off) {
#ifdef VX_PRODUCTS
    __m256i s = VX_PRODUCTS(x->seed, u, x->x);
#else
    __m256i s, one = _mm256_set1_epi16(1);
    if (off == 128) {
        __m256i w = vb_flip(u);
        s = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x->x, w)),
                              one);
    } else {
        s = _mm256_madd_epi16(_mm256_maddubs_epi16(u, x->x), one);
        if (off)
            s = _mm256_add_epi32(s, x->seed);
    }
#endif
    __m256 by = _mm256_set1_ps(d[0]);
    if (group == 16) { /* both to both halves, then one to all of each */
        double both;
        memcpy(&both, d, 8);
        by = _mm256_permutevar_ps(_mm256_castpd_ps(_mm256_set1_pd(both)),
                                  _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    }
    (void)off;
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), by, acc);
}
