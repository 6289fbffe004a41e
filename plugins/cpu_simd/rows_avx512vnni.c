/* rows_avx512vnni.c -- 8-bit activations with VPDPBUSD, which multiplies unsigned by signed bytes: the weights are the
 * unsigned side (Q8_0 with 128 added, Q4_0's nibbles as they are), and what that adds is taken off again with the sums of
 * the activations, which the quantiser has left: dot = dpbusd(u, x) - offset * sum(x).
 * Panels: 16 weight rows side by side. Per block of 32 columns: u8 [8][16][4], f32 scale [16] = 576 bytes. */
#include "rows.h"
#include <immintrin.h>
#define INLINE static inline __attribute__((always_inline))
#define AHEAD 1088
#define GROUP 16
#define BLOCK 576
#define ROWS 64

INLINE __m256i load_q8(const uint8_t *q) {
    return _mm256_xor_si256(_mm256_loadu_si256((const void *)q), _mm256_set1_epi8((char)0x80));
}
INLINE __m256i load_q4(const uint8_t *q) {
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)q));
    return _mm256_and_si256(_mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}
INLINE __m256 load_scale(const uint8_t *p) { return _mm256_cvtph_ps(_mm_set1_epi16((short)mnk_u16(p))); }
INLINE float sum8(__m256 a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE void dot(const uint8_t *const w[MNK_STREAMS], const uint8_t *x, int64_t k, float *out, const int64_t bytes,
                __m256i (*load)(const uint8_t *), const int shift) {
    const float *dx = mnk_quant_d(x, k);
    const int32_t *sum4 = mnk_quant_sum4(x, k);
    __m256 acc[MNK_STREAMS];
    for (int s = 0; s < MNK_STREAMS; s++) acc[s] = _mm256_setzero_ps();
    for (int64_t b = 0; b < k / 32; b++) {
        __m256i xv = _mm256_loadu_si256((const void *)(x + 32 * b));
        __m256i off = _mm256_sub_epi32(_mm256_setzero_si256(),
                                       _mm256_slli_epi32(_mm256_loadu_si256((const void *)(sum4 + 8 * b)), shift));
        __m256 d = _mm256_set1_ps(dx[b]);
#pragma GCC unroll 8
        for (int s = 0; s < MNK_STREAMS; s++) {
            const uint8_t *p = w[s] + b * bytes;
            _mm_prefetch((const char *)(p + AHEAD), _MM_HINT_T0);
            __m256i i = _mm256_dpbusd_epi32(off, load(p + 2), xv);
            acc[s] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), _mm256_mul_ps(load_scale(p), d), acc[s]);
        }
    }
    for (int s = 0; s < MNK_STREAMS; s++) out[s] = sum8(acc[s]);
}

static uint64_t panel_bytes(int64_t k) { return (uint64_t)(ROWS / GROUP) * BLOCK * (uint64_t)(k / 32); }

/* 8 rows of 8 dwords -> 8 columns of 8 dwords, 64 bytes apart. */
INLINE void transpose8(const __m256i r[8], uint8_t *to) {
    __m256i t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_si256((void *)(to + 64 * i), _mm256_permute2x128_si256(u[i], u[i + 4], 0x20));
        _mm256_storeu_si256((void *)(to + 64 * (i + 4)), _mm256_permute2x128_si256(u[i], u[i + 4], 0x31));
    }
}
INLINE void unpack(const uint8_t *w, uint64_t row_bytes, int64_t n, int64_t k0, int64_t k, void *panel,
                   const int64_t bytes, __m256i (*load)(const uint8_t *)) {
    for (int64_t g = 0; g < n; g += GROUP)
        for (int64_t b = 0; b < k / 32; b++) {
            uint8_t *to = (uint8_t *)panel + (g / GROUP * (k / 32) + b) * BLOCK;
            float d[GROUP];
            for (int h = 0; h < 2; h++) {
                __m256i r[8];
                for (int i = 0; i < 8; i++) {
                    int64_t row = g + 8 * h + i;
                    const uint8_t *p = w + (uint64_t)(row < n ? row : n - 1) * row_bytes +
                                       (k0 / 32 + b) * bytes; /* past the end: any row */
                    r[i] = load(p + 2);
                    d[8 * h + i] = _cvtsh_ss(mnk_u16(p));
                    _mm_prefetch((const char *)(p + AHEAD), _MM_HINT_T0);
                }
                transpose8(r, to + 32 * h);
            }
            memcpy(to + 512, d, sizeof d);
        }
}
INLINE __m512i broadcast4(const uint8_t *p) {
    int32_t i;
    memcpy(&i, p, 4);
    return _mm512_set1_epi32(i);
}

/* mr x rows against 16 weight rows. */
INLINE void tile(const uint8_t *p, int64_t k, const uint8_t *x, int64_t ldx, float *y, int64_t ldy, __mmask16 keep,
                 const int offset, const int mr) {
    __m512 acc[8];
    for (int a = 0; a < mr; a++) acc[a] = _mm512_setzero_ps();
    for (int64_t b = 0; b < k / 32; b++, p += BLOCK) {
        __m512i w[8];
        __m512 d = _mm512_loadu_ps(p + 512);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) w[i] = _mm512_loadu_si512(p + 64 * i);
#pragma GCC unroll 8
        for (int a = 0; a < mr; a++) {
            const uint8_t *xa = x + a * ldx;
            __m512i s = _mm512_set1_epi32(-offset * mnk_quant_sum(xa, k)[b]);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) s = _mm512_dpbusd_epi32(s, w[i], broadcast4(xa + 32 * b + 4 * i));
            acc[a] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), _mm512_mul_ps(d, _mm512_set1_ps(mnk_quant_d(xa, k)[b])), acc[a]);
        }
    }
    for (int a = 0; a < mr; a++) _mm512_mask_storeu_ps(y + a * ldy, keep, acc[a]);
}
INLINE void gemm(const void *panel, int64_t n, int64_t k, const uint8_t *x, int64_t ldx, int64_t r, float *y,
                 int64_t ldy, const int offset) {
    for (int64_t i = 0; i < r;) {
        int64_t left = r - i, mr = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        for (int64_t j = 0; j < n; j += GROUP) {
            const uint8_t *p = (const uint8_t *)panel + j / GROUP * (k / 32) * BLOCK, *xi = x + i * ldx;
            float *yi = y + i * ldy + j;
            __mmask16 keep = n - j >= 16 ? 0xffff : (__mmask16)((1u << (n - j)) - 1u);
            switch (mr) {
            case 8: tile(p, k, xi, ldx, yi, ldy, keep, offset, 8); break;
            case 4: tile(p, k, xi, ldx, yi, ldy, keep, offset, 4); break;
            case 2: tile(p, k, xi, ldx, yi, ldy, keep, offset, 2); break;
            default: tile(p, k, xi, ldx, yi, ldy, keep, offset, 1); break;
            }
        }
        i += mr;
    }
}
#define VNNI_ROW(type, bytes, load, shift)                                                                             \
    static void dot_##type(const uint8_t *const w[MNK_STREAMS], const uint8_t *x, int64_t k, float *out) {             \
        dot(w, x, k, out, bytes, load, shift);                                                                         \
    }                                                                                                                  \
    static void unpack_##type(const uint8_t *w, uint64_t row_bytes, int64_t n, int64_t k0, int64_t kc, void *panel) {  \
        unpack(w, row_bytes, n, k0, kc, panel, bytes, load);                                                           \
    }                                                                                                                  \
    static void gemm_##type(const void *panel, int64_t n, int64_t k, const uint8_t *x, int64_t ldx, int64_t r,         \
                            float *y, int64_t ldy, bool first) {                                                       \
        (void)first;                                                                                                   \
        gemm(panel, n, k, x, ldx, r, y, ldy, 1 << shift);                                                              \
    }                                                                                                                  \
    const mnk_linear mnk_##type##_a8_avx512vnni = {                                                                    \
        #type " a8 avx512vnni", 1, ROWS, GROUP, 0, panel_bytes, dot_##type, unpack_##type, gemm_##type}
VNNI_ROW(q8_0, 34, load_q8, 7);
VNNI_ROW(q4_0, 18, load_q4, 3);
