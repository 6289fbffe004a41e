/* panel_x86.h -- what the byte panels of x86 share: registers of 8 lanes, one for each weight row.
 */
#ifndef MNK_PANEL_X86_H
#define MNK_PANEL_X86_H
/* 8 rows of 8 dwords -> 8 columns of 8 dwords, `apart` bytes from one to the next. */
INLINE void turn8(const __m256i r[8], uint8_t *to, const int apart) {
    __m256i t[8];
    __m256i u[8];
    for (int i = 0; i < 8; i += 2) {
        const __m256i a = r[i];
        const __m256i b = r[i + 1];
        t[i] = _mm256_unpacklo_epi32(a, b);
        t[i + 1] = _mm256_unpackhi_epi32(a, b);
    }
    for (int i = 0; i < 8; i += 4) {
        const __m256i a = t[i];
        const __m256i b = t[i + 1];
        const __m256i c = t[i + 2];
        const __m256i d = t[i + 3];
        u[i] = _mm256_unpacklo_epi64(a, c);
        u[i + 1] = _mm256_unpackhi_epi64(a, c);
        u[i + 2] = _mm256_unpacklo_epi64(b, d);
        u[i + 3] = _mm256_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) {
        const __m256i low = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        const __m256i high = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
        void *of_low = to + apart * i;
        void *of_high = to + apart * (i + 4);
        _mm256_storeu_si256(of_low, low);
        _mm256_storeu_si256(of_high, high);
    }
}

/* The first lanes of 8, all if there are as many. */
INLINE __m256i keep8(int64_t left) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int32_t n = left < 8 ? (int32_t)left : 8;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}
/* Four bytes at p, in every lane. */
INLINE __m256i spread4(const uint8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}
#endif
