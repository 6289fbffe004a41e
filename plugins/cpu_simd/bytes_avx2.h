/* bytes_avx2.h -- 32 unsigned bytes in one register: what weight types are taken apart with. AVX2,
 * AVX-512, VNNI. */
#include <immintrin.h>
typedef __m256i VB;
static inline VB vb_load(const uint8_t *p) {
    return _mm256_loadu_si256((const void *)p);
}
static inline __m128i vb_load16(const uint8_t *p) {
    return _mm_loadu_si128((const void *)p);
}
/* 16 bytes: their low nibbles, then their high ones. */
static inline VB vb_halves(const uint8_t *p) {
    const __m256i by = _mm256_setr_epi64x(0, 0, 4, 4);
    __m256i v = _mm256_broadcastsi128_si256(vb_load16(p));
    v = _mm256_srlv_epi64(v, by);
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
/* 16 bytes: low and high nibble of each. */
static inline VB vb_pairs(const uint8_t *p) {
    __m256i v = _mm256_cvtepu8_epi16(vb_load16(p));
    v = _mm256_or_si256(v, _mm256_slli_epi16(v, 4));
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
static inline VB vb_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return _mm256_setr_epi64x((int64_t)a, (int64_t)b, (int64_t)c, (int64_t)d);
}
/* Each byte moved down by shift bits, up where that is negative, and of it the bits of mask, which
 * must come from the same byte. */
static inline VB vb_field(VB v, int shift, uint8_t mask) {
    if (shift < 0)
        v = _mm256_slli_epi16(v, -shift);
    else
        v = _mm256_srli_epi16(v, shift);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)mask));
}
static inline VB vb_or(VB a, VB b) {
    return _mm256_or_si256(a, b);
}
/* modulo 256 */
static inline VB vb_less(VB v, uint8_t n) {
    return _mm256_sub_epi8(v, _mm256_set1_epi8((char)n));
}
static inline VB vb_flip(VB v) {
    return _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80));
}
static inline VB vb_bits(uint32_t bits, uint8_t to) { /* byte i: to if bit i is set, else 0 */
#if defined __AVX512BW__ && defined __AVX512VL__
    return _mm256_maskz_set1_epi8(bits, (char)to);
#else
    const __m256i where =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    __m256i v = _mm256_set1_epi32((int32_t)bits);
    v = _mm256_shuffle_epi8(v, where);
    v = _mm256_and_si256(v, bit);
    v = _mm256_cmpeq_epi8(v, bit);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)to));
#endif
}
static inline VB vb_lookup(VB i, const uint8_t table[16]) { /* i < 16 */
    const __m256i both = _mm256_broadcastsi128_si256(vb_load16(table));
    return _mm256_shuffle_epi8(both, i);
}
static inline VB vb_mirror(VB v, uint32_t bits, uint8_t top) {
    const __m256i other = _mm256_sub_epi8(_mm256_set1_epi8((char)top), v);
#if defined __AVX512BW__ && defined __AVX512VL__
    return _mm256_mask_mov_epi8(v, bits, other);
#else
    return _mm256_blendv_epi8(v, other, vb_bits(bits, 255));
#endif
}
/* 3 (v by modulo 256) >> 8: how many of the thresholds 86 and 171 are reached. */
static inline VB vb_ternary(VB v, VB by) {
    const __m256i low = _mm256_set1_epi16(255);
    const __m256i by_even = _mm256_and_si256(by, low);
    const __m256i by_odd = _mm256_srli_epi16(by, 8);
    const __m256i even = _mm256_mullo_epi16(v, by_even);
    const __m256i odd = _mm256_mullo_epi16(_mm256_andnot_si256(low, v), by_odd);
    const __m256i left = _mm256_or_si256(_mm256_and_si256(even, low), odd);
    const __m256i one = _mm256_set1_epi8(1);
    __m256i first = _mm256_subs_epu8(left, _mm256_set1_epi8(85));
    __m256i second = _mm256_subs_epu8(left, _mm256_set1_epi8((char)170));
    first = _mm256_min_epu8(first, one);
    second = _mm256_min_epu8(second, one);
    return _mm256_add_epi8(first, second);
}
/* Of each dword the bits of mask. */
static inline VB vb_bits_of(VB v, uint32_t mask) {
    return _mm256_and_si256(v, _mm256_set1_epi32((int)mask));
}
/* 32 fields of 2, 3, 5 or 6 bits, from 4 * bits bytes: four fields go to each dword, then each to
 * its byte. */
static inline VB vb_stream(const uint8_t *p, const int bits) {
    const uint32_t mask = (1u << bits) - 1;
    __m256i v;
    if (bits == 2) {
        v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
    } else if (bits == 3) { /* a dword has one byte and a half */
        static const int8_t from[32] = {0, 1, -1, -1, 1, 2, -1, -1, 3, 4,  -1, -1, 4,  5,  -1, -1,
                                        6, 7, -1, -1, 7, 8, -1, -1, 9, 10, -1, -1, 10, 11, -1, -1};
        const __m256i by = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
        int32_t last;
        memcpy(&last, p + 8, sizeof last);
        __m128i b = _mm_loadl_epi64((const void *)p);
        b = _mm_insert_epi32(b, last, 2);
        v = _mm256_broadcastsi128_si256(b);
        v = _mm256_shuffle_epi8(v, vb_load((const uint8_t *)from));
        v = _mm256_srlv_epi32(v, by);
    } else if (bits == 5) { /* a dword has two bytes and a half; 10 bytes for each half */
        static const int8_t from[32] = {0, 1, 2, -1, 2, 3, 4,  -1, 5,  6,  7,  -1, 7,  8,  9,  -1,
                                        6, 7, 8, -1, 8, 9, 10, -1, 11, 12, 13, -1, 13, 14, 15, -1};
        const __m256i by = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
        v = _mm256_castsi128_si256(vb_load16(p));
        v = _mm256_inserti128_si256(v, vb_load16(p + 4), 1);
        v = _mm256_shuffle_epi8(v, vb_load((const uint8_t *)from));
        v = _mm256_srlv_epi32(v, by);
    } else { /* 12 bytes for each half */
        static const int8_t from[16] = {0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1};
        const __m128i low = vb_load16(p);
        const __m128i high = _mm_srli_si128(vb_load16(p + 8), 4);
        const __m256i order = _mm256_broadcastsi128_si256(vb_load16((const uint8_t *)from));
        v = _mm256_castsi128_si256(low);
        v = _mm256_inserti128_si256(v, high, 1);
        v = _mm256_shuffle_epi8(v, order);
    }
    __m256i a = vb_bits_of(v, mask);
    a = _mm256_or_si256(a, vb_bits_of(_mm256_slli_epi32(v, 8 - bits), mask << 8));
    a = _mm256_or_si256(a, vb_bits_of(_mm256_slli_epi32(v, 16 - 2 * bits), mask << 16));
    v = _mm256_slli_epi32(v, 24 - 3 * bits);
    return _mm256_or_si256(a, vb_bits_of(v, mask << 24));
}
static inline __m128i vb_half(VB v, int64_t e) { /* the 16 bytes that byte e is of */
    return e < 16 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1);
}
static inline float v_f16_1(const uint8_t *p) {
    return _cvtsh_ss(mnk_u16(p));
}
static inline void v_f16_2(const uint8_t *p, float *a, float *b) { /* two in a row */
    int32_t i;
    memcpy(&i, p, 4);
    __m128 v = _mm_cvtph_ps(_mm_cvtsi32_si128(i));
    *a = _mm_cvtss_f32(v);
    *b = _mm_cvtss_f32(_mm_movehdup_ps(v));
}
/* d[i] = by * (byte i - less), i < 8 */
static inline void v_widen8(uint64_t bytes, int less, float by, float *d) {
    __m256i w = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
    if (less)
        w = _mm256_sub_epi32(w, _mm256_set1_epi32(less));
    const __m256 f = _mm256_cvtepi32_ps(w);
    _mm256_storeu_ps(d, _mm256_mul_ps(f, _mm256_set1_ps(by)));
}
#define V_SCALES8 /* has the two that follow, which other vocabularies may leave out */
/* d[i] = value i >> shift of those at p, which are F32, F16 or BF16; i < 8. */
static inline void v_scales8(const uint8_t *p, uint32_t dtype, const int shift, float *d) {
    const size_t size = dtype == MN_F32 ? 4 : 2;
    const size_t bytes = (size_t)(8 >> shift) * size;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i of = _mm256_srlv_epi32(lane, _mm256_set1_epi32(shift));
    __m256i raw;
    if (bytes == 32) {
        raw = vb_load(p);
    } else {
        __m128i low;
        if (bytes == 16)
            low = vb_load16(p);
        else if (bytes == 8)
            low = _mm_loadl_epi64((const void *)p);
        else
            low = _mm_loadu_si32(p);
        if (dtype == MN_F16)
            raw = _mm256_castps_si256(_mm256_cvtph_ps(low));
        else if (dtype == MN_F32)
            raw = _mm256_castsi128_si256(low);
        else
            raw = _mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16);
    }
    const __m256 values = _mm256_castsi256_ps(raw);
    _mm256_storeu_ps(d, _mm256_permutevar8x32_ps(values, of));
}
static inline void v_e8m0_half8(uint64_t bytes, float *d) { /* d[i] = mnk_e8m0_half(byte i) */
    const __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
    const __m256i one_less = _mm256_sub_epi32(e, _mm256_set1_epi32(1));
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    const __m256i is_nan = _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255));
    __m256i v = _mm256_slli_epi32(one_less, 23);
    v = _mm256_blendv_epi8(v, subnormal, is_small);
    v = _mm256_blendv_epi8(v, _mm256_set1_epi32(0x7fc00000), is_nan);
    _mm256_storeu_ps(d, _mm256_castsi256_ps(v));
}
