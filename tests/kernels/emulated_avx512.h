/* emulated_avx512.h -- what the kernels on AMX use of AVX-512 and of AMX itself, lane by lane, for
 * CPUs without them: included before the bodies of amx and rows_lanes8.c of avx512vnni, which
 * test_rows then tries there, but for the instructions themselves. A test has one thread in
 * them. */
#ifndef MN_EMULATED_AVX512_H
#define MN_EMULATED_AVX512_H
#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef union {
    __m512i i;
    __m512 f;
    int32_t d[16];
    uint32_t u[16];
    float s[16];
    uint64_t q[8];
    uint16_t h[32];
    uint8_t b[64];
    __m256i half[2];
    __m256 half_f[2];
    __m128i quarter[4];
} lanes;

/* Of each lane. */
#define FLOATS(name, value)                                                                        \
    static inline __m512 e_##name(__m512 x, __m512 y) {                                            \
        const lanes a = {.f = x};                                                                  \
        const lanes b = {.f = y};                                                                  \
        lanes r;                                                                                   \
        for (int l = 0; l < 16; l++)                                                               \
            r.s[l] = value;                                                                        \
        return r.f;                                                                                \
    }
#define WORDS(name, value)                                                                         \
    static inline __m512i e_##name(__m512i x, __m512i y) {                                         \
        const lanes a = {.i = x};                                                                  \
        const lanes b = {.i = y};                                                                  \
        lanes r;                                                                                   \
        for (int l = 0; l < 16; l++)                                                               \
            r.u[l] = value;                                                                        \
        return r.i;                                                                                \
    }
#define SHORTS(name, value)                                                                        \
    static inline __m512i e_##name(__m512i x, __m512i y) {                                         \
        const lanes a = {.i = x};                                                                  \
        const lanes b = {.i = y};                                                                  \
        lanes r;                                                                                   \
        for (int l = 0; l < 32; l++)                                                               \
            r.h[l] = (uint16_t)(value);                                                            \
        return r.i;                                                                                \
    }
FLOATS(add_ps, a.s[l] + b.s[l])
FLOATS(sub_ps, a.s[l] - b.s[l])
FLOATS(mul_ps, a.s[l] * b.s[l])
FLOATS(div_ps, a.s[l] / b.s[l])
FLOATS(max_ps, a.s[l] > b.s[l] ? a.s[l] : b.s[l])
FLOATS(min_ps, a.s[l] < b.s[l] ? a.s[l] : b.s[l])
FLOATS(scalef_ps, ldexpf(a.s[l], b.s[l] > -400 ? (int)floorf(b.s[l]) : -400))
WORDS(add_epi32, a.u[l] + b.u[l])
WORDS(sub_epi32, a.u[l] - b.u[l])
WORDS(mullo_epi32, a.u[l] * b.u[l])
WORDS(and_si512, a.u[l] & b.u[l])
WORDS(or_si512, a.u[l] | b.u[l])
WORDS(xor_si512, a.u[l] ^ b.u[l])
WORDS(max_epi32, a.d[l] > b.d[l] ? a.u[l] : b.u[l])
SHORTS(add_epi16, a.h[l] + b.h[l])
SHORTS(mullo_epi16, (uint32_t)a.h[l] * b.h[l])
SHORTS(mulhrs_epi16, ((int16_t)a.h[l] * (int16_t)b.h[l] + (1 << 14)) >> 15)

static inline __m512i e_castps_si512(__m512 x) {
    return ((lanes){.f = x}).i;
}
static inline __m512 e_castsi512_ps(__m512i x) {
    return ((lanes){.i = x}).f;
}
static inline __m256 e_castps512_ps256(__m512 x) {
    return ((lanes){.f = x}).half_f[0];
}
static inline __m256i e_castsi512_si256(__m512i x) {
    return ((lanes){.i = x}).half[0];
}
static inline __m256 e_extractf32x8_ps(__m512 x, int k) {
    return ((lanes){.f = x}).half_f[k];
}
static inline __m256i e_extracti64x4_epi64(__m512i x, int k) {
    return ((lanes){.i = x}).half[k];
}
static inline __m512i e_set1_epi32(int v) {
    lanes r;
    for (int l = 0; l < 16; l++)
        r.d[l] = v;
    return r.i;
}
static inline __m512 e_set1_ps(float v) {
    lanes r;
    for (int l = 0; l < 16; l++)
        r.s[l] = v;
    return r.f;
}
static inline __m512i e_setzero_si512(void) {
    return e_set1_epi32(0);
}
static inline __m512 e_and_ps(__m512 x, __m512 y) {
    const __m512i a = e_castps_si512(x);
    const __m512i b = e_castps_si512(y);
    return e_castsi512_ps(e_and_si512(a, b));
}
static inline __m512 e_or_ps(__m512 x, __m512 y) {
    const __m512i a = e_castps_si512(x);
    const __m512i b = e_castps_si512(y);
    return e_castsi512_ps(e_or_si512(a, b));
}
static inline __m512i e_set1_epi8(char v) {
    lanes r;
    memset(&r, v, sizeof r);
    return r.i;
}
static inline __m512i e_set1_epi16(short v) {
    lanes r;
    for (int l = 0; l < 32; l++)
        r.h[l] = (uint16_t)v;
    return r.i;
}
static inline __m512i e_broadcast_i32x4(__m128i x) {
    return ((lanes){.quarter = {x, x, x, x}}).i;
}
static inline __m512i e_castsi256_si512(__m256i x) {
    return ((lanes){.half = {x}}).i;
}
static inline __m512i e_inserti64x4(__m512i x, __m256i y, int k) {
    lanes r = {.i = x};
    r.half[k] = y;
    return r.i;
}
static inline float e_cvtss_f32(__m512 x) {
    return ((lanes){.f = x}).s[0];
}
static inline __m512 e_abs_ps(__m512 x) {
    return e_and_ps(x, e_castsi512_ps(e_set1_epi32(0x7fffffff)));
}
static inline __m512 e_fmadd_ps(__m512 x, __m512 y, __m512 z) {
    const lanes a = {.f = x};
    const lanes b = {.f = y};
    const lanes c = {.f = z};
    lanes r;
    for (int l = 0; l < 16; l++)
        r.s[l] = fmaf(a.s[l], b.s[l], c.s[l]);
    return r.f;
}

/* ---- memory ---------------------------------------------------------------------------------- */
static inline __m512i e_loadu_si512(const void *p) {
    lanes r;
    memcpy(&r, p, sizeof r);
    return r.i;
}
static inline __m512 e_loadu_ps(const void *p) {
    return e_castsi512_ps(e_loadu_si512(p));
}
static inline void e_storeu_si512(void *p, __m512i x) {
    memcpy(p, &x, sizeof x);
}
static inline void e_storeu_ps(void *p, __m512 x) {
    memcpy(p, &x, sizeof x);
}
static inline __m512 e_maskz_loadu_ps(uint16_t keep, const void *p) {
    lanes r = {.i = e_setzero_si512()};
    for (int l = 0; l < 16; l++)
        if (keep >> l & 1)
            memcpy(&r.u[l], (const uint8_t *)p + 4 * l, 4);
    return r.f;
}
static inline __m512i e_maskz_loadu_epi16(uint32_t keep, const void *p) {
    lanes r = {.i = e_setzero_si512()};
    for (int l = 0; l < 32; l++)
        if (keep >> l & 1)
            memcpy(&r.h[l], (const uint8_t *)p + 2 * l, 2);
    return r.i;
}
static inline void e_mask_storeu_ps(void *p, uint16_t keep, __m512 x) {
    const lanes a = {.f = x};
    for (int l = 0; l < 16; l++)
        if (keep >> l & 1)
            memcpy((uint8_t *)p + 4 * l, &a.u[l], 4);
}

/* ---- comparisons, conversions ---------------------------------------------------------------- */
static inline uint16_t e_cmp_ps_mask(__m512 x, __m512 y, int how) {
    const lanes a = {.f = x};
    const lanes b = {.f = y};
    uint16_t mask = 0;
    for (int l = 0; l < 16; l++) {
        bool holds = a.s[l] < b.s[l];
        if (how == _CMP_NLT_UQ)
            holds = !holds;
        if (how == _CMP_GE_OQ)
            holds = a.s[l] >= b.s[l];
        if (how == _CMP_EQ_OQ)
            holds = a.s[l] == b.s[l];
        mask |= (uint16_t)(holds << l);
    }
    return mask;
}
static inline uint16_t e_cmpeq_epi32_mask(__m512i x, __m512i y) {
    const lanes a = {.i = x};
    const lanes b = {.i = y};
    uint16_t mask = 0;
    for (int l = 0; l < 16; l++)
        mask |= (uint16_t)((a.u[l] == b.u[l]) << l);
    return mask;
}
static inline __m512 e_mask_blend_ps(uint16_t mask, __m512 x, __m512 y) {
    const lanes b = {.f = y};
    lanes r = {.f = x};
    for (int l = 0; l < 16; l++)
        if (mask >> l & 1)
            r.s[l] = b.s[l];
    return r.f;
}
#define e_mask_mov_ps(x, mask, y) e_mask_blend_ps(mask, x, y)
static inline __m512i e_mask_set1_epi32(__m512i x, uint16_t mask, int v) {
    lanes r = {.i = x};
    for (int l = 0; l < 16; l++)
        if (mask >> l & 1)
            r.d[l] = v;
    return r.i;
}
static inline __m512i e_mask_mov_epi8(__m512i x, uint64_t mask, __m512i y) {
    const lanes b = {.i = y};
    lanes r = {.i = x};
    for (int l = 0; l < 64; l++)
        if (mask >> l & 1)
            r.b[l] = b.b[l];
    return r.i;
}
static inline __m512i e_maskz_mov_epi64(uint8_t mask, __m512i x) {
    lanes r = {.i = x};
    for (int l = 0; l < 8; l++)
        if (!(mask >> l & 1))
            r.q[l] = 0;
    return r.i;
}
static inline __m512 e_maskz_rcp14_ps(uint16_t mask, __m512 x) {
    const lanes a = {.f = x};
    lanes r = {.i = e_setzero_si512()};
    for (int l = 0; l < 16; l++)
        if (mask >> l & 1)
            r.s[l] = 1 / a.s[l];
    return r.f;
}
static inline __m512 e_cvtepi32_ps(__m512i x) {
    const lanes a = {.i = x};
    lanes r;
    for (int l = 0; l < 16; l++)
        r.s[l] = (float)a.d[l];
    return r.f;
}
static inline __m512i e_cvtps_epi32(__m512 x) {
    const lanes a = {.f = x};
    lanes r;
    for (int l = 0; l < 16; l++)
        if (fabsf(a.s[l]) < 0x1p31f)
            r.d[l] = (int32_t)nearbyintf(a.s[l]);
        else
            r.d[l] = INT32_MIN;
    return r.i;
}
static inline __m512i e_cvtepi8_epi32(__m128i x) {
    int8_t b[16];
    lanes r;
    memcpy(b, &x, sizeof b);
    for (int l = 0; l < 16; l++)
        r.d[l] = b[l];
    return r.i;
}
static inline __m512i e_cvtepu8_epi32(__m128i x) {
    return e_and_si512(e_cvtepi8_epi32(x), e_set1_epi32(255));
}
static inline __m512i e_cvtepu16_epi32(__m256i x) {
    const lanes a = {.half = {x}};
    lanes r;
    for (int l = 0; l < 16; l++)
        r.u[l] = a.h[l];
    return r.i;
}
static inline __m512i e_cvtepi8_epi16(__m256i x) {
    int8_t b[32];
    lanes r;
    memcpy(b, &x, sizeof b);
    for (int l = 0; l < 32; l++)
        r.h[l] = (uint16_t)b[l];
    return r.i;
}
static inline __m256i e_cvtepi16_epi8(__m512i x) {
    const lanes a = {.i = x};
    uint8_t b[32];
    __m256i r;
    for (int l = 0; l < 32; l++)
        b[l] = (uint8_t)a.h[l];
    memcpy(&r, b, sizeof r);
    return r;
}
static inline __m128i e_cvtsepi32_epi8(__m512i x) {
    const lanes a = {.i = x};
    int8_t b[16];
    __m128i r;
    for (int l = 0; l < 16; l++) {
        int32_t v = a.d[l];
        if (v > 127)
            v = 127;
        if (v < -128)
            v = -128;
        b[l] = (int8_t)v;
    }
    memcpy(&r, b, sizeof r);
    return r;
}
static inline __m512 e_cvtph_ps(__m256i x) {
    const __m128i low = _mm256_castsi256_si128(x);
    const __m128i high = _mm256_extracti128_si256(x, 1);
    lanes r;
    r.half_f[0] = _mm256_cvtph_ps(low);
    r.half_f[1] = _mm256_cvtph_ps(high);
    return r.f;
}
static inline __m256i e_cvtps_ph(__m512 x, int how) {
    const lanes a = {.f = x};
    (void)how;
    const __m128i low = _mm256_cvtps_ph(a.half_f[0], 0);
    const __m128i high = _mm256_cvtps_ph(a.half_f[1], 0);
    return _mm256_set_m128i(high, low);
}
static inline uint16_t e_bf16(uint32_t u) {
    const uint32_t size = u & 0x7fffffff;
    const uint32_t odd = u >> 16 & 1;
    if (size > 0x7f800000)
        return (uint16_t)(u >> 16 | 64);
    u += 0x7fff + odd;
    return (uint16_t)(u >> 16);
}
static inline __m512i e_cvtne2ps_pbh(__m512 x, __m512 y) {
    const lanes a = {.f = x};
    const lanes b = {.f = y};
    lanes r;
    for (int l = 0; l < 16; l++) {
        r.h[l] = e_bf16(b.u[l]);
        r.h[16 + l] = e_bf16(a.u[l]);
    }
    return r.i;
}
static inline __m512 e_roundscale_ps(__m512 x, int how) {
    lanes a = {.f = x};
    (void)how;
    for (int l = 0; l < 16; l++)
        a.s[l] = nearbyintf(a.s[l]);
    return a.f;
}
static inline __m512 e_reduce_ps(__m512 x, int how) {
    lanes a = {.f = x};
    (void)how;
    for (int l = 0; l < 16; l++)
        a.s[l] = isinf(a.s[l]) ? 0 : a.s[l] - floorf(a.s[l]);
    return a.f;
}
static inline __m512i e_srli_epi32(__m512i x, int n) {
    lanes a = {.i = x};
    for (int l = 0; l < 16; l++)
        a.u[l] >>= n;
    return a.i;
}
static inline __m512i e_slli_epi32(__m512i x, int n) {
    lanes a = {.i = x};
    for (int l = 0; l < 16; l++)
        a.u[l] <<= n;
    return a.i;
}
static inline __m512i e_srli_epi16(__m512i x, int n) {
    lanes a = {.i = x};
    for (int l = 0; l < 32; l++)
        a.h[l] >>= n;
    return a.i;
}
static inline __m512i e_slli_epi16(__m512i x, int n) {
    lanes a = {.i = x};
    for (int l = 0; l < 32; l++)
        a.h[l] = (uint16_t)(a.h[l] << n);
    return a.i;
}
static inline __m512i e_dpbusd(__m512i s, __m512i u, __m512i x) {
    lanes r = {.i = s};
    const lanes a = {.i = u};
    const lanes b = {.i = x};
    for (int l = 0; l < 64; l++)
        r.d[l / 4] += a.b[l] * (int8_t)b.b[l];
    return r.i;
}
static inline __m512i e_sub_epi8(__m512i x, __m512i y) {
    lanes a = {.i = x};
    const lanes b = {.i = y};
    for (int l = 0; l < 64; l++)
        a.b[l] = (uint8_t)(a.b[l] - b.b[l]);
    return a.i;
}
static inline int e_reduce_max_epi32(__m512i x) {
    const lanes a = {.i = x};
    int most = a.d[0];
    for (int l = 1; l < 16; l++)
        most = a.d[l] > most ? a.d[l] : most;
    return most;
}
static inline float e_reduce_max_ps(__m512 x) {
    const lanes a = {.f = x};
    float most = a.s[0];
    for (int l = 1; l < 16; l++)
        most = a.s[l] > most ? a.s[l] : most;
    return most;
}

/* ---- lanes that move ------------------------------------------------------------------------- */
static inline __m512i e_shuffle_i32x4(__m512i x, __m512i y, int k) {
    const lanes a = {.i = x};
    const lanes b = {.i = y};
    lanes r;
    r.quarter[0] = a.quarter[k & 3];
    r.quarter[1] = a.quarter[k >> 2 & 3];
    r.quarter[2] = b.quarter[k >> 4 & 3];
    r.quarter[3] = b.quarter[k >> 6 & 3];
    return r.i;
}
static inline __m512 e_shuffle_f32x4(__m512 x, __m512 y, int k) {
    const __m512i a = e_castps_si512(x);
    const __m512i b = e_castps_si512(y);
    return e_castsi512_ps(e_shuffle_i32x4(a, b, k));
}
static inline __m512 e_shuffle_ps(__m512 x, __m512 y, int k) {
    const lanes a = {.f = x};
    const lanes b = {.f = y};
    lanes r;
    for (int l = 0; l < 16; l += 4) {
        r.s[l] = a.s[l + (k & 3)];
        r.s[l + 1] = a.s[l + (k >> 2 & 3)];
        r.s[l + 2] = b.s[l + (k >> 4 & 3)];
        r.s[l + 3] = b.s[l + (k >> 6 & 3)];
    }
    return r.f;
}
static inline __m512 e_permute_ps(__m512 x, int k) {
    return e_shuffle_ps(x, x, k);
}
/* Of each quarter: bytes of its table. */
static inline __m512i e_shuffle_epi8(__m512i x, __m512i y) {
    const lanes a = {.i = x};
    const lanes b = {.i = y};
    lanes r;
    for (int l = 0; l < 64; l++)
        r.b[l] = b.b[l] & 128 ? 0 : a.b[l / 16 * 16 + b.b[l] % 16];
    return r.i;
}
static inline __m512i e_packus_epi16(__m512i x, __m512i y) {
    const lanes a = {.i = x};
    const lanes b = {.i = y};
    lanes r;
    for (int l = 0; l < 64; l++) {
        const lanes *from = l / 8 % 2 ? &b : &a;
        const int16_t h = (int16_t)from->h[l / 16 * 8 + l % 8];
        const int top = h > 255 ? 255 : h;
        r.b[l] = (uint8_t)(top < 0 ? 0 : top);
    }
    return r.i;
}
/* from: 0, the lower half of each quarter, or 1. */
static inline __m512i e_mix32(__m512i x, __m512i y, int from) {
    const lanes a = {.i = x};
    const lanes b = {.i = y};
    lanes r;
    for (int l = 0; l < 16; l += 4)
        for (int i = 0; i < 2; i++) {
            const int at = l + 2 * from + i;
            r.u[l + 2 * i] = a.u[at];
            r.u[l + 2 * i + 1] = b.u[at];
        }
    return r.i;
}
static inline __m512i e_mix64(__m512i x, __m512i y, int from) {
    const lanes a = {.i = x};
    const lanes b = {.i = y};
    lanes r;
    for (int l = 0; l < 8; l += 2) {
        r.q[l] = a.q[l + from];
        r.q[l + 1] = b.q[l + from];
    }
    return r.i;
}
#define e_unpacklo_epi32(x, y) e_mix32(x, y, 0)
#define e_unpackhi_epi32(x, y) e_mix32(x, y, 1)
#define e_unpacklo_epi64(x, y) e_mix64(x, y, 0)
#define e_unpackhi_epi64(x, y) e_mix64(x, y, 1)

/* ---- tiles ----------------------------------------------------------------------------------- */
static union {
    uint8_t bytes[16][64];
    int8_t b[16][64];
    uint16_t h[16][32];
    int32_t d[16][16];
    float s[16][16];
} e_tile[8];

/* As the instruction has it: {u8 palette, start_row, reserved[14]; u16 row_bytes[16]; u8 rows[16]}
 */
static uint8_t e_config[64];
static inline size_t e_row_bytes(int t) {
    uint16_t bytes;
    memcpy(&bytes, e_config + 16 + 2 * t, sizeof bytes);
    return bytes;
}
static inline int e_rows(int t) {
    return e_config[48 + t];
}
static inline void e_tile_load(int t, const void *p, int64_t apart) {
    const uint8_t *from = p;
    memset(&e_tile[t], 0, sizeof e_tile[t]);
    for (int i = 0; i < e_rows(t); i++)
        memcpy(e_tile[t].bytes[i], from + i * apart, e_row_bytes(t));
}
static inline void e_tile_store(int t, void *p, int64_t apart) {
    uint8_t *to = p;
    for (int i = 0; i < e_rows(t); i++)
        memcpy(to + i * apart, e_tile[t].bytes[i], e_row_bytes(t));
}
static inline float e_wide(uint16_t h) {
    const lanes a = {.u = {(uint32_t)h << 16}};
    return a.s[0];
}
static inline void e_multiply(int sum, int w, int x) {
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 32; k++) {
            const float weight = e_wide(e_tile[w].h[i][k]);
            const uint16_t *pairs = e_tile[x].h[k / 2];
            float *to = e_tile[sum].s[i];
            for (int j = 0; j < 16; j++)
                to[j] += weight * e_wide(pairs[2 * j + k % 2]);
        }
}
static inline void e_multiply_bytes(int sum, int w, int x) {
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 64; k++) {
            const int weight = e_tile[w].b[i][k];
            const int8_t *fours = e_tile[x].b[k / 4];
            int32_t *to = e_tile[sum].d[i];
            for (int j = 0; j < 16; j++)
                to[j] += weight * fours[4 * j + k % 4];
        }
}
#define TILES_CONFIGURE(config) memcpy(e_config, &(config), sizeof e_config)
#define TILES_END() (void)0
#define TILE_LOAD_ROWS(t, p, apart) e_tile_load(t, p, apart)
#define TILE_STORE_ROWS(t, p, apart) e_tile_store(t, p, apart)
#define TILE_ZERO(t) memset(&e_tile[t], 0, sizeof e_tile[t])
#define TILE_MULTIPLY(sum, w, x) e_multiply(sum, w, x)
#define TILE_MULTIPLY_BYTES(sum, w, x) e_multiply_bytes(sum, w, x)

/* ---- names ----------------------------------------------------------------------------------- */
#undef _mm512_abs_ps
#define _mm512_abs_ps e_abs_ps
#undef _mm512_add_epi16
#define _mm512_add_epi16 e_add_epi16
#undef _mm512_add_epi32
#define _mm512_add_epi32 e_add_epi32
#undef _mm512_add_ps
#define _mm512_add_ps e_add_ps
#undef _mm512_and_ps
#define _mm512_and_ps e_and_ps
#undef _mm512_and_si512
#define _mm512_and_si512 e_and_si512
#undef _mm512_broadcast_i32x4
#define _mm512_broadcast_i32x4 e_broadcast_i32x4
#undef _mm512_castps512_ps256
#define _mm512_castps512_ps256 e_castps512_ps256
#undef _mm512_castps_si512
#define _mm512_castps_si512 e_castps_si512
#undef _mm512_castsi256_si512
#define _mm512_castsi256_si512 e_castsi256_si512
#undef _mm512_castsi512_ps
#define _mm512_castsi512_ps e_castsi512_ps
#undef _mm512_castsi512_si256
#define _mm512_castsi512_si256 e_castsi512_si256
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask e_cmp_ps_mask
#undef _mm512_cmpeq_epi32_mask
#define _mm512_cmpeq_epi32_mask e_cmpeq_epi32_mask
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps e_cvtepi32_ps
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 e_cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 e_cvtepu16_epi32
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32 e_cvtepu8_epi32
#undef _mm512_cvtne2ps_pbh
#define _mm512_cvtne2ps_pbh e_cvtne2ps_pbh
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps e_cvtph_ps
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 e_cvtps_epi32
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph e_cvtps_ph
#undef _mm512_cvtepi8_epi16
#define _mm512_cvtepi8_epi16 e_cvtepi8_epi16
#undef _mm512_cvtepi16_epi8
#define _mm512_cvtepi16_epi8 e_cvtepi16_epi8
#undef _mm512_cvtsepi32_epi8
#define _mm512_cvtsepi32_epi8 e_cvtsepi32_epi8
#undef _mm512_cvtss_f32
#define _mm512_cvtss_f32 e_cvtss_f32
#undef _mm512_div_ps
#define _mm512_div_ps e_div_ps
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps e_extractf32x8_ps
#undef _mm512_extracti64x4_epi64
#define _mm512_extracti64x4_epi64 e_extracti64x4_epi64
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps e_fmadd_ps
#undef _mm512_inserti64x4
#define _mm512_inserti64x4 e_inserti64x4
#undef _mm512_loadu_ps
#define _mm512_loadu_ps e_loadu_ps
#undef _mm512_loadu_si512
#define _mm512_loadu_si512 e_loadu_si512
#undef _mm512_mask_blend_ps
#define _mm512_mask_blend_ps e_mask_blend_ps
#undef _mm512_mask_mov_epi8
#define _mm512_mask_mov_epi8 e_mask_mov_epi8
#undef _mm512_mask_mov_ps
#define _mm512_mask_mov_ps e_mask_mov_ps
#undef _mm512_mask_set1_epi32
#define _mm512_mask_set1_epi32 e_mask_set1_epi32
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps e_mask_storeu_ps
#undef _mm512_maskz_loadu_epi16
#define _mm512_maskz_loadu_epi16 e_maskz_loadu_epi16
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps e_maskz_loadu_ps
#undef _mm512_maskz_mov_epi64
#define _mm512_maskz_mov_epi64 e_maskz_mov_epi64
#undef _mm512_maskz_rcp14_ps
#define _mm512_maskz_rcp14_ps e_maskz_rcp14_ps
#undef _mm512_max_epi32
#define _mm512_max_epi32 e_max_epi32
#undef _mm512_max_ps
#define _mm512_max_ps e_max_ps
#undef _mm512_min_ps
#define _mm512_min_ps e_min_ps
#undef _mm512_mul_ps
#define _mm512_mul_ps e_mul_ps
#undef _mm512_mulhrs_epi16
#define _mm512_mulhrs_epi16 e_mulhrs_epi16
#undef _mm512_mullo_epi16
#define _mm512_mullo_epi16 e_mullo_epi16
#undef _mm512_mullo_epi32
#define _mm512_mullo_epi32 e_mullo_epi32
#undef _mm512_or_ps
#define _mm512_or_ps e_or_ps
#undef _mm512_or_si512
#define _mm512_or_si512 e_or_si512
#undef _mm512_packus_epi16
#define _mm512_packus_epi16 e_packus_epi16
#undef _mm512_permute_ps
#define _mm512_permute_ps e_permute_ps
#undef _mm512_reduce_max_epi32
#define _mm512_reduce_max_epi32 e_reduce_max_epi32
#undef _mm512_reduce_max_ps
#define _mm512_reduce_max_ps e_reduce_max_ps
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps e_roundscale_ps
#undef _mm512_scalef_ps
#define _mm512_scalef_ps e_scalef_ps
#undef _mm512_set1_epi16
#define _mm512_set1_epi16 e_set1_epi16
#undef _mm512_set1_epi32
#define _mm512_set1_epi32 e_set1_epi32
#undef _mm512_set1_epi8
#define _mm512_set1_epi8 e_set1_epi8
#undef _mm512_set1_ps
#define _mm512_set1_ps e_set1_ps
#undef _mm512_setzero_si512
#define _mm512_setzero_si512 e_setzero_si512
#undef _mm512_shuffle_epi8
#define _mm512_shuffle_epi8 e_shuffle_epi8
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4 e_shuffle_f32x4
#undef _mm512_shuffle_i32x4
#define _mm512_shuffle_i32x4 e_shuffle_i32x4
#undef _mm512_shuffle_ps
#define _mm512_shuffle_ps e_shuffle_ps
#undef _mm512_reduce_ps
#define _mm512_reduce_ps e_reduce_ps
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 e_srli_epi32
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 e_slli_epi32
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 e_srli_epi16
#undef _mm512_sub_epi8
#define _mm512_sub_epi8 e_sub_epi8
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 e_slli_epi16
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32 e_dpbusd
#undef _mm512_storeu_ps
#define _mm512_storeu_ps e_storeu_ps
#undef _mm512_storeu_si512
#define _mm512_storeu_si512 e_storeu_si512
#undef _mm512_sub_epi32
#define _mm512_sub_epi32 e_sub_epi32
#undef _mm512_sub_ps
#define _mm512_sub_ps e_sub_ps
#undef _mm512_unpackhi_epi32
#define _mm512_unpackhi_epi32 e_unpackhi_epi32
#undef _mm512_unpackhi_epi64
#define _mm512_unpackhi_epi64 e_unpackhi_epi64
#undef _mm512_unpacklo_epi32
#define _mm512_unpacklo_epi32 e_unpacklo_epi32
#undef _mm512_unpacklo_epi64
#define _mm512_unpacklo_epi64 e_unpacklo_epi64
#undef _mm512_xor_si512
#define _mm512_xor_si512 e_xor_si512
#endif
