/* panel_i8mm.h -- tiles of byte panels by SMMLA, which multiplies two x rows with two weight rows,
 * eight columns of each, into four sums. Bytes of a panel are signed: [4 spans of 8 columns][pairs
 * of weight rows][2][8]. */
enum { PANEL_SIDE = 8, PANEL_MOST = 4 };
#define PANEL_PASSES(X) X(2) X(3) X(4)
#include "panel_bytes.h"
enum { PAIR_SIDE = PANEL_SIDE, PAIR_MOST = PANEL_MOST };
#include "pairs.h"

/* How much larger the bytes of a panel are than the numbers they stand for. */
INLINE int panel_bias(const int off, const panel_layout l) {
    (void)off;
    (void)l;
    return 0;
}

/* Eight columns of a, then those of b: the first ones, or (h 1) the second ones. */
INLINE uint8x16_t panel_eight(uint8x16_t a, uint8x16_t b, const int h) {
    const uint64x2_t a2 = vreinterpretq_u64_u8(a);
    const uint64x2_t b2 = vreinterpretq_u64_u8(b);
    if (h)
        return vreinterpretq_u8_u64(vzip2q_u64(a2, b2));
    return vreinterpretq_u8_u64(vzip1q_u64(a2, b2));
}
/* 8 rows of 32 bytes. */
INLINE void panel_put8(const VB r[8], uint8_t *to, const panel_layout l) {
    (void)l;
    const int span = 16 * PAIRS;
    for (int i = 0; i < PAIRS; i++) {
        const VB a = r[2 * i];
        const VB b = r[2 * i + 1];
        uint8_t *pair = to + 16 * i;
        vst1q_u8(pair, panel_eight(a.lo, b.lo, 0));
        vst1q_u8(pair + span, panel_eight(a.lo, b.lo, 1));
        vst1q_u8(pair + 2 * span, panel_eight(a.hi, b.hi, 0));
        vst1q_u8(pair + 3 * span, panel_eight(a.hi, b.hi, 1));
    }
}

/* {p[0], p[1], p[0], p[1]} */
INLINE VF panel_twice(const float *p) {
    const float32x2_t two = vld1_f32(p);
    return vcombine_f32(two, two);
}
/* {a, a, b, b} */
INLINE VF panel_each_twice(float a, float b) {
    return vcombine_f32(vdup_n_f32(a), vdup_n_f32(b));
}
/* The x row that row a shares its products with; an odd last one is multiplied twice. */
INLINE int panel_other(const int a, const int mr) {
    return a + 1 < mr ? a + 1 : a;
}

/* Products of the group's columns, in whole numbers. p: the group's bytes; at: its first column in
 * x. */
typedef struct {
    int32x4_t of[PANEL_MOST / 2][PAIRS];
} panel_whole_sums;
INLINE void panel_multiply(panel_whole_sums *q, const uint8_t *p,
                           const uint8_t *const x[PANEL_MOST], int64_t at, const int group,
                           const int mr) {
#pragma GCC unroll 2
    for (int a = 0; a < mr; a += 2)
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++)
            q->of[a / 2][j] = vdupq_n_s32(0);
#pragma GCC unroll 4
    for (int i = 0; i < group; i += 8, p += 16 * PAIRS) {
        int8x16_t w[PAIRS];
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++)
            w[j] = vreinterpretq_s8_u8(vld1q_u8(p + 16 * j));
#pragma GCC unroll 2
        for (int a = 0; a < mr; a += 2) {
            const uint8x8_t x0 = vld1_u8(x[a] + at + i);
            const uint8x8_t x1 = vld1_u8(x[panel_other(a, mr)] + at + i);
            const int8x16_t two = vreinterpretq_s8_u8(vcombine_u8(x0, x1));
            int32x4_t *sums = q->of[a / 2];
#pragma GCC unroll 4
            for (int j = 0; j < PAIRS; j++)
                sums[j] = vmmlaq_s32(sums[j], two, w[j]);
        }
    }
}

/* acc + the sums of group g of block b by both scales, and minima times sums of x. */
INLINE void panel_fold(pair_sums *acc, const panel_whole_sums *q, const float *scale,
                       const panel_scales *s, int64_t b, const int g, const panel_layout l,
                       const int mr) {
    const int n = 32 / l.group;
    const float *d = scale + PANEL_SIDE * g;
    const float *m = scale + PANEL_SIDE * (n + g);
#pragma GCC unroll 2
    for (int a = 0; a < mr; a += 2) {
        const int other = panel_other(a, mr);
        const VF dx = panel_each_twice(s->d[a][b], s->d[other][b]);
        VF *sums = acc->of[a / 2];
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++) {
            const VF by = v_mul(panel_twice(d + 2 * j), dx);
            const VF whole = vcvtq_f32_s32(q->of[a / 2][j]);
            sums[j] = v_fma(whole, by, sums[j]);
        }
        if (!l.min)
            continue;
        const int64_t at = n * b + g;
        const VF sum = panel_each_twice(s->of.sum[a][at], s->of.sum[other][at]);
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++)
            sums[j] = v_fma(panel_twice(m + 2 * j), sum, sums[j]);
    }
}

/* mr x rows against PANEL_SIDE weight rows, of which `left` count; n blocks; x: their bytes of
 * the first one. */
INLINE void panel_tile(const uint8_t *p, int64_t n, const uint8_t *const x[PANEL_MOST],
                       const panel_scales *s, const mnk_pair *pair, int64_t y0, int64_t left,
                       bool first, const panel_layout l, const int mr) {
    const int np = (mr + 1) / 2;
    pair_sums acc;
    pairs_load(&acc, pair, mr, y0, left, first, np);
    for (int64_t b = 0; b < n; b++, p += panel_block_bytes(l)) {
        const float *scale = (const float *)(const void *)(p + 32 * PANEL_SIDE);
#pragma GCC unroll 2
        for (int g = 0; g < 32 / l.group; g++) {
            const int column = l.group * g;
            panel_whole_sums q;
            panel_multiply(&q, p + PANEL_SIDE * column, x, 32 * b + column, l.group, mr);
            panel_fold(&acc, &q, scale, s, b, g, l, mr);
        }
    }
    pairs_store(&acc, pair, mr, y0, left, np);
}
