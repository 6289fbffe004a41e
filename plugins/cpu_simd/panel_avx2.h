/* panel_avx2.h -- tiles of byte panels by VPMADDUBSW, whose sums of two products have 16 bits: of
 * weights of few bits several fit before VPMADDWD widens them, 2 * TOP * 127 each. What eight bits
 * want would overflow, so those weights and their x are widened to 16 bits and multiplied by
 * VPMADDWD alone. Bytes are as rows_dot8.c has them, and their offset is part of a minimum; words
 * are the numbers themselves. */
enum { PANEL_SIDE = 16, PANEL_MOST = 4 };
#define PANEL_PASSES(X) X(2) X(3) X(4)
/* X(group, min, fit) */
#define PANEL_LAYOUTS(X)                                                                           \
    X(32, 1, 8)                                                                                    \
    X(16, 1, 8)                                                                                    \
    X(32, 1, 4)                                                                                    \
    X(16, 1, 4)                                                                                    \
    X(32, 1, 2)                                                                                    \
    X(16, 1, 2)                                                                                    \
    X(32, 1, 1)                                                                                    \
    X(16, 1, 1)                                                                                    \
    X(32, 0, 0)                                                                                    \
    X(32, 1, 0)
#define FIT_2 8
#define FIT_3 8
#define FIT_7 8
#define FIT_15 8
#define FIT_18 4
#define FIT_24 4
#define FIT_30 4
#define FIT_31 4
#define FIT_63 2
#define FIT_86 1
#define FIT_124 1
#define FIT_241 0
#define FIT_255 0
#define MIN_8(min) 1
#define MIN_4(min) 1
#define MIN_2(min) 1
#define MIN_1(min) 1
#define MIN_0(min) min
#define OF_LAYOUT__(name, group, min, fit) name##_##group##_##min##_##fit
#define OF_LAYOUT_(...) OF_LAYOUT__(__VA_ARGS__)
#define OF_FIT_(name, group, min, fit) OF_LAYOUT_(name, group, MIN_##fit(min), fit)
#define OF_FIT(...) OF_FIT_(__VA_ARGS__)
#define PANEL_LAYOUT_OF(name, group, min, top) OF_FIT(name, group, min, FIT_##top)
#include "panel.h"
#include "panel_x86.h"

/* How much larger what a panel holds is than the numbers it stands for. */
INLINE int panel_bias(const int off, const panel_layout l) {
    return l.fit ? off : 0;
}

/* 8 rows of 32 bytes. */
INLINE void panel_put8(const __m256i r[8], uint8_t *to, const panel_layout l) {
    if (l.fit) {
        turn8(r, to, 4 * PANEL_SIDE);
        return;
    }
    __m256i low[8];
    __m256i high[8];
    for (int i = 0; i < 8; i++) {
        low[i] = _mm256_cvtepi8_epi16(vb_half(r[i], 0));
        high[i] = _mm256_cvtepi8_epi16(vb_half(r[i], 16));
    }
    turn8(low, to, 4 * PANEL_SIDE);
    turn8(high, to + 32 * PANEL_SIDE, 4 * PANEL_SIDE);
}

/* n bytes of x in the size of the panel's: themselves, or in `room`. */
typedef struct {
    uint8_t bytes[64 * PANEL_BLOCKS];
} panel_room;
INLINE const uint8_t *panel_x(const uint8_t *x, int64_t n, panel_room *room, const panel_layout l) {
    if (l.fit)
        return x;
    for (int64_t i = 0; i < n; i += 16) {
        const __m256i words = _mm256_cvtepi8_epi16(vb_load16(x + i));
        _mm256_storeu_si256((void *)(room->bytes + 2 * i), words);
    }
    return room->bytes;
}

/* Of mr x rows with the two halves of PANEL_SIDE weight rows. */
typedef struct {
    __m256i of[PANEL_MOST][2];
} panel_sums;

/* *sum + q, or q where it is the first. Sums are pinned as they are: the compiler would add up
 * products in pairs, for which there are not registers enough. */
INLINE void panel_add_words(__m256i *sum, __m256i q, const bool first) {
    __m256i s = q;
    if (!first)
        s = _mm256_add_epi16(*sum, q);
    __asm__("" : "+x"(s));
    *sum = s;
}
INLINE void panel_add_dwords(__m256i *sum, __m256i q, const bool first) {
    __m256i s = q;
    if (!first)
        s = _mm256_add_epi32(*sum, q);
    __asm__("" : "+x"(s));
    *sum = s;
}

/* Sums of a group's columns. p: its columns in the panel; at: its first byte in x. */
INLINE void panel_multiply_bytes(panel_sums *q, const uint8_t *p,
                                 const uint8_t *const x[PANEL_MOST], int64_t at,
                                 const panel_layout l, const int mr) {
    const __m256i one = _mm256_set1_epi16(1);
    const int n = l.group / 4;
    const int fit = l.fit < n ? l.fit : n;
#pragma GCC unroll 8
    for (int i = 0; i < n; i += fit) {
        panel_sums part;
#pragma GCC unroll 8
        for (int j = i; j < i + fit; j++) {
            const uint8_t *w = p + 4 * PANEL_SIDE * j;
            const __m256i w0 = vb_load(w);
            const __m256i w1 = vb_load(w + 32);
#pragma GCC unroll 4
            for (int a = 0; a < mr; a++) {
                const __m256i four = spread4(x[a] + at + 4 * j);
                panel_add_words(&part.of[a][0], _mm256_maddubs_epi16(w0, four), j == i);
                panel_add_words(&part.of[a][1], _mm256_maddubs_epi16(w1, four), j == i);
            }
        }
#pragma GCC unroll 4
        for (int a = 0; a < mr; a++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const __m256i wide = _mm256_madd_epi16(part.of[a][h], one);
                panel_add_dwords(&q->of[a][h], wide, i == 0);
            }
    }
}
INLINE void panel_multiply_words(panel_sums *q, const uint8_t *p,
                                 const uint8_t *const x[PANEL_MOST], int64_t at, const int mr) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) {
        const uint8_t *w = p + 4 * PANEL_SIDE * j;
        const __m256i w0 = vb_load(w);
        const __m256i w1 = vb_load(w + 32);
#pragma GCC unroll 4
        for (int a = 0; a < mr; a++) {
            const __m256i two = spread4(x[a] + at + 4 * j);
            panel_add_dwords(&q->of[a][0], _mm256_madd_epi16(w0, two), j == 0);
            panel_add_dwords(&q->of[a][1], _mm256_madd_epi16(w1, two), j == 0);
        }
    }
}

/* acc + the sums of group g of block b by both scales, and minima times sums of x. */
INLINE void panel_fold(float acc[PANEL_MOST][PANEL_SIDE], const panel_sums *q, const float *scale,
                       const panel_scales *s, int64_t b, const int g, const panel_layout l,
                       const int mr) {
    const int n = 32 / l.group;
    const float *d = scale + PANEL_SIDE * g;
    const float *m = scale + PANEL_SIDE * (n + g);
#pragma GCC unroll 4
    for (int a = 0; a < mr; a++) {
        const VF dx = v_set1(s->d[a][b]);
        const VF sum = v_set1(l.min ? s->of.sum[a][n * b + g] : 0);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            float *to = acc[a] + 8 * h;
            const VF whole = _mm256_cvtepi32_ps(q->of[a][h]);
            const VF sums = v_mul(whole, dx);
            VF y = v_fma(sums, v_load(d + 8 * h), v_load(to));
            if (l.min)
                y = v_fma(v_load(m + 8 * h), sum, y);
            v_store(to, y);
        }
    }
}

/* mr x rows against PANEL_SIDE weight rows, of which `left` count; n blocks; x: their bytes of
 * the first one. */
INLINE void panel_tile(const uint8_t *p, int64_t n, const uint8_t *const x[PANEL_MOST],
                       const panel_scales *s, const mnk_pair *pair, int64_t y0, int64_t left,
                       bool first, const panel_layout l, const int mr) {
    const __m256i keep[2] = {keep8(left), keep8(left - 8)};
    float acc[PANEL_MOST][PANEL_SIDE]; /* registers are for sums */
    for (int a = 0; a < mr; a++)
        for (int h = 0; h < 2; h++) {
            const float *from = pair[a].y + y0 + 8 * h;
            VF y = v_set1(0);
            if (!first)
                y = _mm256_maskload_ps(from, keep[h]);
            v_store(acc[a] + 8 * h, y);
        }
    for (int64_t b = 0; b < n; b++, p += panel_block_bytes(l)) {
        const float *scale = (const float *)(const void *)(p + panel_number_bytes(l));
#pragma GCC unroll 2
        for (int g = 0; g < 32 / l.group; g++) {
            const int column = l.group * g;
            panel_sums q;
            if (l.fit)
                panel_multiply_bytes(&q, p + PANEL_SIDE * column, x, 32 * b + column, l, mr);
            else
                panel_multiply_words(&q, p, x, 64 * b, mr);
            panel_fold(acc, &q, scale, s, b, g, l, mr);
            __asm__("" : "+m"(acc));
        }
    }
    for (int a = 0; a < mr; a++)
        for (int h = 0; h < 2; h++) {
            float *to = pair[a].y + y0 + 8 * h;
            _mm256_maskstore_ps(to, keep[h], v_load(acc[a] + 8 * h));
        }
}
