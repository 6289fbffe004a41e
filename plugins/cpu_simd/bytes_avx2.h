/* bytes_avx2.h -- 32 unsigned bytes in one register: what weight types are taken apart with. AVX2, AVX-512, VNNI. */
#include <immintrin.h>
typedef __m256i VB;
static inline VB vb_load(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
/* 16 bytes: their low nibbles, then their high ones. */
static inline VB vb_halves(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const void *)p);
    __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(b), _mm_srli_epi16(b, 4), 1);
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
/* 16 bytes: low and high nibble of each. */
static inline VB vb_pairs(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const void *)p), mask = _mm_set1_epi8(15);
    __m128i lo = _mm_and_si128(b, mask), hi = _mm_and_si128(_mm_srli_epi16(b, 4), mask);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(lo, hi)), _mm_unpackhi_epi8(lo, hi), 1);
}
static inline VB vb_field(VB v, int shift, uint8_t mask) { /* (v >> shift) & mask; mask has at most 8 - shift bits */
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8((char)mask));
}
static inline VB vb_shl(VB v, int n) { return _mm256_slli_epi16(v, n); } /* no bit may leave its byte */
static inline VB vb_or(VB a, VB b) { return _mm256_or_si256(a, b); }
static inline VB vb_flip(VB v) { return _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80)); }
static inline VB vb_bits(uint32_t bits, uint8_t to) { /* byte i: to if bit i is set, else 0 */
    const __m256i where = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    __m256i v = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)bits), where), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(v, bit), _mm256_set1_epi8((char)to));
}
static inline VB vb_lookup(VB i, const uint8_t table[16]) { /* i < 16 */
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)), i);
}
static inline VB vb_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return _mm256_setr_epi64x((int64_t)a, (int64_t)b, (int64_t)c, (int64_t)d);
}
static inline __m128i vb_half(VB v, int64_t e) { /* the 16 bytes that byte e is of */
    return e < 16 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1);
}
static inline void v_widen8(uint64_t bytes, int less, float by, float *d) { /* d[i] = by * (byte i - less), i < 8 */
    __m256i w = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
    if (less) w = _mm256_sub_epi32(w, _mm256_set1_epi32(less));
    _mm256_storeu_ps(d, _mm256_mul_ps(_mm256_cvtepi32_ps(w), _mm256_set1_ps(by)));
}
