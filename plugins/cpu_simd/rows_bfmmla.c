/* rows_bfmmla.c -- products of more than a few x rows with weights of bf16 by BFMMLA, which
 * multiplies two x rows with two weight rows, four columns of each, into four f32 sums. x is
 * rounded to bf16 once, by groups of MNK_GROUP rows; weights go as they are through panels, of some
 * rows and columns, that stay in the first cache. Sums wait in y from one panel to the next. */
#include "vec.h"

enum {
    SPAN = 4,                          /* columns that one product adds up */
    TILE_SPANS = 8,                    /* of a tile of x, which has 32 columns of MNK_GROUP rows */
    SPAN_BYTES = 2 * SPAN * MNK_GROUP, /* of x */
    PANEL_ROWS = 64,
    CHUNK = 256,  /* columns of a panel */
    AHEAD = 1024, /* bytes of prefetch on each row */
};

/* ---- x: [tiles][TILE_SPANS][pairs of rows][2][SPAN], zeros where there is none ------------- */

/* Columns [c, c + SPAN) of a row of k, zeros behind its end. */
INLINE float32x4_t load_span(const float *x, int64_t c, int64_t k) {
    float tail[SPAN] = {0};
    if (c + SPAN <= k)
        return vld1q_f32(x + c);
    for (int64_t i = c; i < k; i++)
        tail[i - c] = x[i];
    return vld1q_f32(tail);
}
/* Columns [c, c + SPAN) of row i, zeros where there is none. */
INLINE float32x4_t span_of(const float *const x[MNK_GROUP], int64_t i, int64_t n, int64_t c,
                           int64_t k) {
    if (i < n)
        return load_span(x[i], c, k);
    return vdupq_n_f32(0);
}
static void pack(const float *const x[MNK_GROUP], int64_t n, int64_t k, uint8_t *to) {
    const int64_t spans = (k + 31) / 32 * TILE_SPANS;
    for (int64_t c = 0; c < SPAN * spans; c += SPAN)
        for (int64_t i = 0; i < MNK_GROUP; i += 2, to += 16) {
            const float32x4_t a = span_of(x, i, n, c, k);
            const float32x4_t b = span_of(x, i + 1, n, c, k);
            bfloat16x8_t both = vcvtq_low_bf16_f32(a);
            both = vcvtq_high_bf16_f32(both, b);
            vst1q_u8(to, vreinterpretq_u8_bf16(both));
        }
}

/* ---- panels: [groups of PAIR_SIDE rows][spans][pairs of rows][2][SPAN] ----------------------- */

/* Eight columns of a row from byte p on, of which `left` count: zeros for the others. */
INLINE uint64x2_t load_eight(const uint8_t *p, int64_t left) {
    uint16_t tail[8] = {0};
    if (left >= 8)
        return vreinterpretq_u64_u8(vld1q_u8(p));
    memcpy(tail, p, (size_t)(2 * left));
    return vreinterpretq_u64_u16(vld1q_u16(tail));
}
/* Eight columns of two rows: two spans of a panel. */
INLINE void put_eight(const uint8_t *p, const uint8_t *q, int64_t left, uint8_t *to) {
    const uint64x2_t a = load_eight(p, left);
    const uint64x2_t b = load_eight(q, left);
    __builtin_prefetch(p + AHEAD);
    __builtin_prefetch(q + AHEAD);
    vst1q_u8(to, vreinterpretq_u8_u64(vzip1q_u64(a, b)));
    vst1q_u8(to + 16 * PAIRS, vreinterpretq_u8_u64(vzip2q_u64(a, b)));
}
/* Rows [row, row + n) and columns [k0, k0 + kc); a row behind the last one is any. */
static void unpack(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t kc,
                   uint8_t *to) {
    for (int64_t g = 0; g < n; g += PAIR_SIDE) {
        const uint8_t *at[PAIR_SIDE];
        for (int64_t i = 0; i < PAIR_SIDE; i++) {
            const int64_t r = g + i < n ? g + i : n - 1;
            at[i] = mnc_row(w, row + r);
            at[i] += 2 * k0;
        }
        for (int64_t c = 0; c < kc; c += 8, to += 32 * PAIRS)
            for (int i = 0; i < PAIRS; i++) {
                const uint8_t *p = at[2 * i] + 2 * c;
                const uint8_t *q = at[2 * i + 1] + 2 * c;
                put_eight(p, q, kc - c, to + 16 * i);
            }
    }
}

/* ---- products -------------------------------------------------------------------------------- */
INLINE bfloat16x8_t load_pair(const uint8_t *p) {
    return vreinterpretq_bf16_u8(vld1q_u8(p));
}

/* One tile's products. */
typedef struct {
    const uint8_t *panel;
    const uint8_t *x;
    int64_t spans;
    const mnk_pair *pair;
    int64_t mr; /* x rows, at most 2 np */
    int64_t y0;
    int64_t left; /* weight rows that count */
    bool first;
} tile_args;
INLINE void tile(const tile_args *o, const int np) {
    const uint8_t *panel = o->panel;
    const uint8_t *x = o->x;
    pair_sums acc;
    pairs_load(&acc, o->pair, o->mr, o->y0, o->left, o->first, np);
    for (int64_t i = 0; i < o->spans; i++) {
        bfloat16x8_t w[PAIRS];
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++)
            w[j] = load_pair(panel + 16 * j);
#pragma GCC unroll 4
        for (int a = 0; a < np; a++) {
            const bfloat16x8_t two = load_pair(x + 16 * a);
            float32x4_t *sums = acc.of[a];
#pragma GCC unroll 4
            for (int j = 0; j < PAIRS; j++)
                sums[j] = vbfmmlaq_f32(sums[j], two, w[j]);
        }
        panel += 16 * PAIRS;
        x += SPAN_BYTES;
    }
    pairs_store(&acc, o->pair, o->mr, o->y0, o->left, np);
}

/* All x rows with the n weight rows of a panel, whose columns begin at byte x0 of a group. */
static void panel_product(const uint8_t *panel, int64_t kc, const mnk_pair *pair, int64_t r,
                          int64_t x0, int64_t y0, int64_t n, bool first) {
    tile_args o = {
        .spans = (kc + 7) / 8 * 2,
        .first = first,
    };
    for (int64_t i = 0; i < r; i += PAIR_MOST) {
        const int64_t in_group = i % MNK_GROUP;
        o.x = pair[i - in_group].x + x0 + 8 * in_group;
        o.pair = pair + i;
        o.mr = r - i < PAIR_MOST ? r - i : PAIR_MOST;
        for (int64_t j = 0; j < n; j += PAIR_SIDE) {
            o.panel = panel + j / PAIR_SIDE * o.spans * 16 * PAIRS;
            o.y0 = y0 + j;
            o.left = n - j;
            if (o.mr > 4)
                tile(&o, 4);
            else if (o.mr > 2)
                tile(&o, 2);
            else
                tile(&o, 1);
        }
    }
}

static void product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo, int64_t hi,
                    void *panel) {
    for (int64_t j = lo; j < hi; j += PANEL_ROWS) {
        const int64_t n = hi - j < PANEL_ROWS ? hi - j : PANEL_ROWS;
        for (int64_t k0 = 0; k0 < w->cols; k0 += CHUNK) {
            const int64_t kc = w->cols - k0 < CHUNK ? w->cols - k0 : CHUNK;
            unpack(w, j, n, k0, kc, panel);
            panel_product(panel, kc, pair, r, k0 / SPAN * SPAN_BYTES, j, n, k0 == 0);
        }
    }
}

static uint64_t panel_bytes(int64_t k) {
    (void)k;
    return (uint64_t)PANEL_ROWS * CHUNK * 2;
}

const mnk_linear V_ID(mnk_bfmmla)[MNK_N_KERNELS] = {
    [MNK_KERNEL_bf16] =
        {
            .name = "bf16 bfmmla " V_NAME,
            .x_form = MNK_X_TILES,
            .panel_rows = PANEL_ROWS,
            .grain = 1,
            .panel_bytes = panel_bytes,
            .pack = pack,
            .product = product,
        },
};
