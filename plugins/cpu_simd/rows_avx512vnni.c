/* rows_avx512vnni.c -- 8-bit activations with VPDPBUSD: few rows as in rows_a8.inc or, of some
 * types, rows_vnni_dot.inc, more through panels of bytes. Panels: 16 weight rows side by side. Per
 * block of 32 columns: u8 [8][16][4], f32 scales [groups][16], then minima if the type has any.
 * Bytes of types without minima are 128 more than the whole number they stand for, the others are
 * as rows_a8.inc has them: so two sizes of group, with and without minima, make four layouts for
 * all types. */
#include "rows.h"
#include "vec_avx2.h"
#undef V_ID /* names are given by hand */
#include "vec_a8_x86.h"
#include "types.inc"
#include "rows_a8.inc"
#include "rows_vnni_dot.inc"
#define SIDE 16
#define ROWS 64

static int64_t block_bytes(const int group, const int min) {
    return 512 + 64 * (32 / group) * (1 + min);
}

/* 8 rows of 8 dwords -> 8 columns of 8 dwords, 64 bytes apart. */
INLINE void transpose8(const __m256i r[8], uint8_t *to) {
    __m256i t[8];
    __m256i u[8];
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
        const __m256i low = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        const __m256i high = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
        _mm256_storeu_si256((void *)(to + 64 * i), low);
        _mm256_storeu_si256((void *)(to + 64 * (i + 4)), high);
    }
}

/* One block of the type, of 8 weight rows: t.elems / 32 blocks of the panel. ahead: bytes to the
 * same place of the next 8. */
INLINE void unpack8(const mnc_weight *w, const mnk_at at[8], int64_t b, int64_t ahead, uint8_t *to,
                    const a8_type t) {
    const int n = 32 / t.group; /* groups in 32 columns */
    float d[8][16];
    float m[8][16];
    for (int i = 0; i < 8; i++) {
        t.scales(w, &at[i], b, d[i], m[i]);
        for (int64_t l = 0; l < t.bytes; l += 64)
            v_prefetch(at[i].data + b * t.bytes + ahead + l);
    }
#pragma GCC unroll 8 /* then shifts are constants */
    for (int j = 0; j < t.elems / 32; j++, to += block_bytes(t.group, t.min)) {
        __m256i r[8];
        float *scale = (float *)(void *)(to + 512);
        for (int i = 0; i < 8; i++) {
            const float *di = d[i] + n * j;
            const float *mi = m[i] + n * j;
            const __m256i to_128 = _mm256_set1_epi8((char)(128 - t.off));
            r[i] = t.u(at[i].data + b * t.bytes, j);
            if (!t.min && t.off != 128)
                r[i] = _mm256_add_epi8(r[i], to_128);
            for (int g = 0; g < n; g++) {
                scale[SIDE * g + i] = di[g];
                if (t.min)
                    scale[SIDE * (n + g) + i] = mi[g] - (float)t.off * di[g];
            }
        }
        transpose8(r, to);
    }
}
INLINE void unpack(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t k, void *panel,
                   const a8_type t) {
    const int64_t one = block_bytes(t.group, t.min);
    for (int64_t g = 0; g < n; g += SIDE)
        for (int h = 0; h < SIDE; h += 8) {
            mnk_at at[8];
            const int64_t first = k0 / t.elems;
            const int64_t end = (k0 + k) / t.elems;
            uint8_t *to = (uint8_t *)panel + g / SIDE * (k / 32) * one;
            to += 32 * (h / 8);
            for (int i = 0; i < 8; i++) { /* past the end: any row */
                const int64_t r = g + h + i;
                at[i] = mnk_row_at(w, row + (r < n ? r : n - 1));
            }
            const int64_t ahead = 8 * (at[1].data - at[0].data);
            for (int64_t b = first; b < end; b++, to += t.elems / 32 * one)
                unpack8(w, at, b, ahead, to, t);
        }
}
/* s + 16 sums of four products, of the bytes of w with the four at x. By hand: written with
 * intrinsics the four bytes are spread by an instruction of their own, which doubles the number of
 * instructions. */
typedef int32_t four_bytes __attribute__((aligned(1), may_alias));
INLINE __m512i add_products(__m512i s, __m512i w, const uint8_t *x) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(s) : "v"(w), "m"(*(const four_bytes *)x));
    return s;
}

/* What up to SPAN_BLOCKS blocks need of MOST x rows beside their bytes, per group of 16 or 32
 * columns: without minima what the 128 adds, negative; with minima the sum of x. */
enum { MOST = 8, SPAN_BLOCKS = 64 };
typedef struct {
    union {
        int32_t seed[MOST][2 * SPAN_BLOCKS];
        float sum[MOST][2 * SPAN_BLOCKS];
    } of;
    const float *d[MOST];
} x_scales;
INLINE void load_scales(x_scales *to, const mnk_pair *pair, int64_t k, int64_t b0, int64_t blocks,
                        const int group, const int min, const int mr) {
    const int n = 32 / group;
    for (int a = 0; a < mr; a++) {
        const uint8_t *x = pair[a].x;
        const float *d = mnk_quant_d(x, k) + b0;
        const int32_t *sums = n == 1 ? mnk_quant_sum(x, k) : mnk_quant_sum16(x, k);
        sums += n * b0;
        to->d[a] = d;
        for (int64_t g = 0; g < n * blocks; g++)
            if (min)
                to->of.sum[a][g] = d[g / n] * (float)sums[g];
            else
                to->of.seed[a][g] = -128 * sums[g];
    }
}

/* mr x rows against 16 weight rows, n blocks; x: their bytes of the first one. */
INLINE void tile(const uint8_t *p, int64_t n, const uint8_t *const x[MOST], const x_scales *s,
                 const mnk_pair *pair, int64_t y0, __mmask16 keep, bool first, const int group,
                 const int min, const int mr) {
    __m512 acc[MOST];
    for (int a = 0; a < mr; a++)
        acc[a] = first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(keep, pair[a].y + y0);
    for (int64_t b = 0; b < n; b++, p += block_bytes(group, min)) {
        const float *scale = (const float *)(const void *)(p + 512);
        __m512i w[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            w[i] = _mm512_loadu_si512(p + 64 * i);
#pragma GCC unroll 8
        for (int a = 0; a < mr; a++) {
#pragma GCC unroll 2
            for (int g = 0; g < 32 / group; g++) {
                const uint8_t *bytes = x[a] + 32 * b + group * g;
                const int32_t seed = min ? 0 : s->of.seed[a][32 / group * b + g];
                __m512i sums = _mm512_set1_epi32(seed);
#pragma GCC unroll 8
                for (int i = 0; i < group / 4; i++)
                    sums = add_products(sums, w[group / 4 * g + i], bytes + 4 * i);
                const __m512 dx = _mm512_set1_ps(s->d[a][b]);
                const __m512 d = _mm512_mul_ps(_mm512_loadu_ps(scale + SIDE * g), dx);
                acc[a] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), d, acc[a]);
                if (min) {
                    const __m512 m = _mm512_loadu_ps(scale + SIDE * (32 / group + g));
                    acc[a] = _mm512_fmadd_ps(m, _mm512_set1_ps(s->of.sum[a][32 / group * b + g]),
                                             acc[a]);
                }
            }
        }
    }
    for (int a = 0; a < mr; a++)
        _mm512_mask_storeu_ps(pair[a].y + y0, keep, acc[a]);
}
/* mr x rows against all rows of the panel, SPAN_BLOCKS blocks at a time. */
INLINE void few_rows(const uint8_t *panel, int64_t n, int64_t k, const mnk_pair *pair, int64_t y0,
                     const int group, const int min, const int mr) {
    x_scales scales;
    for (int64_t b = 0; b < k / 32; b += SPAN_BLOCKS) {
        const int64_t end = b + SPAN_BLOCKS < k / 32 ? b + SPAN_BLOCKS : k / 32;
        const uint8_t *x[MOST];
        for (int a = 0; a < mr; a++)
            x[a] = pair[a].x + 32 * b;
        load_scales(&scales, pair, k, b, end - b, group, min, mr);
        for (int64_t j = 0; j < n; j += SIDE) {
            const uint8_t *p = panel + (j / SIDE * (k / 32) + b) * block_bytes(group, min);
            const uint32_t some = (1u << ((n - j) & 15)) - 1u;
            const __mmask16 keep = n - j >= SIDE ? 0xffff : (__mmask16)some;
            tile(p, end - b, x, &scales, pair, y0 + j, keep, b == 0, group, min, mr);
        }
    }
}
INLINE void gemm(const void *panel, int64_t n, int64_t k, const mnk_pair *pair, int64_t r,
                 int64_t y0, const int group, const int min) {
    for (; r >= 8; r -= 8, pair += 8)
        few_rows(panel, n, k, pair, y0, group, min, 8);
    if (r & 4) {
        few_rows(panel, n, k, pair, y0, group, min, 4);
        pair += 4;
    }
    if (r & 2) {
        few_rows(panel, n, k, pair, y0, group, min, 2);
        pair += 2;
    }
    if (r & 1)
        few_rows(panel, n, k, pair, y0, group, min, 1);
}
#define LAYOUT(group, min)                                                                         \
    static void gemm_##group##_##min(const void *panel, int64_t n, int64_t k,                      \
                                     const mnk_pair *pair, int64_t x0, int64_t r, int64_t y0,      \
                                     bool first) {                                                 \
        (void)x0, (void)first; /* all of K at once */                                              \
        gemm(panel, n, k, pair, r, y0, group, min);                                                \
    }                                                                                              \
    static uint64_t panel_bytes_##group##_##min(int64_t k) {                                       \
        return (uint64_t)(ROWS / SIDE * (k / 32) * block_bytes(group, min));                       \
    }
LAYOUT(32, 0)
LAYOUT(32, 1)
LAYOUT(16, 0)
LAYOUT(16, 1)
/* The types whose rows are multiplied by dot_wide. */
#define dot_a8_q4_0 dot_wide_q4_0
#define dot_a8_q6_k dot_wide_q6_k
#define VNNI_ROW(type, e, bytes, group, off, min, apart, ...)                                      \
    static void unpack_##type(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t kc, \
                              void *panel) {                                                       \
        unpack(w, row, n, k0, kc, panel,                                                           \
               (a8_type){e, bytes, group, off, min, type##_scales, type##_bytes});                 \
    }                                                                                              \
    const mnk_linear mnk_##type##_a8_avx512vnni = {#type " a8 avx512vnni",                         \
                                                   1,                                              \
                                                   ROWS,                                           \
                                                   SIDE,                                           \
                                                   0,                                              \
                                                   e,                                              \
                                                   panel_bytes_##group##_##min,                    \
                                                   dot_a8_##type,                                  \
                                                   unpack_##type,                                  \
                                                   gemm_##group##_##min,                           \
                                                   NULL,                                           \
                                                   NULL};
MNK_BLOCKS(VNNI_ROW, )
