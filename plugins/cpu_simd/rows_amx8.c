/* rows_amx8.c -- products of some tens of x rows and more on AMX in class a8: both sides in bytes.
 * Within SPAN columns a row of weights has one scale, and so has a row of x, so that tiles add up
 * whole numbers over a span; then they are scaled and added to sums in f32. A block type's own
 * scales become factors of 1/256 of the span's, which leave each weight within one of the span's
 * 127 steps. A tile of weights is 16 rows by 64 columns as they lie; one of x has the same columns
 * of 16 rows as fours, [16 fours][16 rows][4], so that only x, which is smaller, is transposed. */
#include "rows.h"
#include "vec_avx512.h"
#include "types.inc"
#include "amx.h"

enum {
    COLUMNS = 64,
    SPAN = 256,
    PLANES = 1,
    PANEL_ROWS = 128, /* 32 KiB of a first cache */
    FEW_PANEL_ROWS = 64,
    FEW = 64,
    MOST = 512,
};
#include "rows_amx.inc"

/* ---- x --------------------------------------------------------------------------------------- */
/* A group: tiles, then of each span a scale for each row, f32 [16]. */
static int64_t tiles_bytes(int64_t k) {
    return (k + COLUMNS - 1) / COLUMNS * TILE_BYTES;
}

/* n <= SPAN values to bytes, and zeros behind them up to whole tiles; returns what 1 stands for. A
 * NaN or an infinity becomes that. */
INLINE float round_span(const float *x, int64_t n, int8_t *to) {
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    __m512 v[SPAN / VL];
    __m512i top = _mm512_setzero_si512();
    for (int64_t i = 0; i < SPAN / VL; i++) {
        const int64_t left = n - VL * i;
        __mmask16 keep = 0;
        if (left >= VL)
            keep = 0xffff;
        else if (left > 0)
            keep = (__mmask16)((1u << left) - 1);
        v[i] = _mm512_maskz_loadu_ps(keep, x + VL * i);
        /* as whole numbers, of which a NaN is the largest */
        const __m512i bits = _mm512_castps_si512(v[i]);
        top = _mm512_max_epi32(top, _mm512_and_si512(bits, size));
    }
    const float most = mnk_bits_f32((uint32_t)_mm512_reduce_max_epi32(top));
    float by = 0;
    if (most >= 0x1p-100f)
        by = 127 / most;
    for (int64_t i = 0; i < SPAN / VL; i++) {
        const __m512i q = _mm512_cvtps_epi32(v_mul(v[i], v_set1(by)));
        const __m128i bytes = _mm512_cvtsepi32_epi8(q);
        _mm_storeu_si128((void *)(to + VL * i), bytes);
    }
    return most / 127;
}

static void pack(const float *const x[SIDE], int64_t n, int64_t k, uint8_t *to) {
    float *scale = (float *)(void *)(to + tiles_bytes(k));
    for (int64_t c = 0; c < k; c += SPAN, scale += SIDE) {
        const int64_t span = k - c < SPAN ? k - c : SPAN;
        int8_t q[SIDE][SPAN];
        memset(scale, 0, SIDE * sizeof *scale);
        if (n < SIDE)
            memset(q, 0, sizeof q);
        for (int64_t i = 0; i < n; i++)
            scale[i] = round_span(x[i] + c, span, q[i]);
        for (int64_t t = 0; t < span; t += COLUMNS, to += TILE_BYTES) {
            __m512i rows[SIDE];
            for (int i = 0; i < SIDE; i++)
                rows[i] = _mm512_loadu_si512(q[i] + t);
            transpose16(rows);
            for (int i = 0; i < SIDE; i++)
                _mm512_storeu_si512(to + 64 * i, rows[i]);
        }
    }
}

/* ---- panels: [groups of 16 weight rows][tiles of the span], then scales, f32 [groups][16] ---- */
typedef struct {
    int64_t elems; /* of a block */
    int64_t bytes;
    int group, off, top;
    bool min;
    void (*scales)(const mnc_weight *, const mnk_at *, int64_t b, float *d, float *m);
    VB (*u)(const uint8_t *p, int j);
} byte_type;
enum { MOST_GROUPS = SPAN / 16, ONE = 256 };

/* In 1/ONE of a span's step: by = d of each group, less = its minimum and half a step. */
typedef struct {
    int32_t by[MOST_GROUPS];
    int32_t less[MOST_GROUPS];
} factors;

/* Of n groups with scales d and minima m; returns the step. Each weight d (u - off) + m is within
 * 127 steps, for any u of the type; a scale that is no number makes the step one. */
INLINE float factors_of(const float *d, const float *m, int n, const byte_type t, factors *f) {
    const __mmask16 keep = (__mmask16)((1u << n) - 1);
    const int lowest = t.off == 128 ? 127 : t.off; /* -128 has a byte of its own */
    const VF scale = _mm512_maskz_loadu_ps(keep, d);
    const VF least = t.min ? _mm512_maskz_loadu_ps(keep, m) : v_set1(0);
    const VF low = v_fma(scale, v_set1((float)-lowest), least);
    const VF high = v_fma(scale, v_set1((float)(t.top - t.off)), least);
    const VF most = v_max(v_abs(low), v_abs(high));
    const VF limit = v_set1(__builtin_inff());
    float step = v_top(most) / 127;
    float by = 0;
    const __mmask16 low_out = _mm512_cmp_ps_mask(v_abs(low), limit, _CMP_NLT_UQ);
    const __mmask16 high_out = _mm512_cmp_ps_mask(v_abs(high), limit, _CMP_NLT_UQ);
    if (low_out | high_out)
        step = __builtin_nanf("");
    if (step >= 0x1p-100f)
        by = ONE / step;
    const VF scale_by = v_mul(scale, v_set1(by));
    const VF least_by = v_mul(least, v_set1(by));
    const __m512i a = _mm512_cvtps_epi32(scale_by);
    const __m512i c = _mm512_cvtps_epi32(least_by);
    const __m512i shift = _mm512_mullo_epi32(a, _mm512_set1_epi32(t.off));
    const __m512i half = _mm512_set1_epi32(ONE / 2);
    const __m512i less = _mm512_sub_epi32(c, shift);
    _mm512_storeu_si512(f->by, a);
    _mm512_storeu_si512(f->less, _mm512_add_epi32(less, half));
    return step;
}

/* Factor j of a group of 32 elements, or the two of two groups of 16. */
INLINE __m256i spread(const int32_t *factor, int j, const int group) {
    if (group == 32)
        return _mm256_set1_epi16((int16_t)factor[j]);
    const __m128i low = _mm_set1_epi16((int16_t)factor[2 * j]);
    const __m128i high = _mm_set1_epi16((int16_t)factor[2 * j + 1]);
    return _mm256_set_m128i(high, low);
}

/* 32 bytes u to (u * by + less) / ONE, modulo 2^16 meanwhile. */
INLINE __m256i round_bytes(VB u, __m256i by, __m256i less) {
    const __m256i low = _mm256_set1_epi16(0x00ff);
    const __m256i high = _mm256_set1_epi16((int16_t)0xff00);
    __m256i even = _mm256_and_si256(u, low);
    __m256i odd = _mm256_srli_epi16(u, 8);
    even = _mm256_mullo_epi16(even, by);
    even = _mm256_add_epi16(even, less);
    even = _mm256_srli_epi16(even, 8);
    odd = _mm256_mullo_epi16(odd, by);
    odd = _mm256_add_epi16(odd, less);
    odd = _mm256_and_si256(odd, high);
    return _mm256_or_si256(even, odd);
}

/* Blocks of the type that a span has of a row. */
typedef struct {
    int64_t first;
    int64_t n;
} blocks_of_span;

/* Scales and minima of one row. next: bytes to what comes next in the panel at its place. */
INLINE void load_scales(const mnc_weight *w, const mnk_at *at, blocks_of_span blocks, int64_t next,
                        float *d, float *m, const byte_type t) {
    const int64_t groups = t.elems / t.group;
    const uint8_t *p = at->data + blocks.first * t.bytes;
    for (int64_t b = 0; b < blocks.n; b++) {
        t.scales(w, at, blocks.first + b, d, m);
        d += groups;
        m += groups;
    }
    for (int64_t l = 0; l < blocks.n * t.bytes; l += 64)
        v_prefetch(p + next + l);
}

/* kc columns of one row of blocks at p to tiles, which are TILE_BYTES apart. */
INLINE void put_bytes(const uint8_t *p, int64_t kc, const factors *f, uint8_t *to,
                      const byte_type t) {
    const int of_block = (int)t.elems / 32;
#pragma GCC unroll 8 /* then shifts are constants */
    for (int j = 0; j < SPAN / 32; j++) {
        if (32 * j >= kc)
            break;
        const VB u = t.u(p + j / of_block * t.bytes, j % of_block);
        const __m256i by = spread(f->by, j, t.group);
        const __m256i less = spread(f->less, j, t.group);
        const __m256i q = round_bytes(u, by, less);
        uint8_t *half = to + j / 2 * TILE_BYTES + j % 2 * 32;
        _mm256_storeu_si256((void *)half, q);
    }
    if (kc % COLUMNS)
        memset(to + kc / COLUMNS * TILE_BYTES + 32, 0, 32);
}

/* In passes over the 16 rows: a wide load must not follow the narrow stores of what it reads. */
INLINE void unpack(const mnc_weight *w, int64_t row, int64_t end, const span *s, int64_t ahead,
                   uint8_t *tiles, float *step, const byte_type t) {
    const blocks_of_span blocks = {s->k0 / t.elems, s->kc / t.elems};
    const int groups = (int)s->kc / t.group;
    int64_t next = SPAN / t.elems * t.bytes;
    float d[SIDE][MOST_GROUPS + 16];
    float m[SIDE][MOST_GROUPS + 16];
    factors f[SIDE];
    mnk_at at[SIDE];
    rows_at(w, row, end, at);
    if (s->last) {
        const int64_t of_row = at[1].data - at[0].data;
        next = ahead * of_row - blocks.first * t.bytes;
    }
    for (int i = 0; i < SIDE; i++)
        load_scales(w, &at[i], blocks, next, d[i], m[i], t);
    for (int i = 0; i < SIDE; i++)
        step[i] = factors_of(d[i], m[i], groups, t, &f[i]);
    for (int i = 0; i < SIDE; i++) {
        const uint8_t *p = at[i].data + blocks.first * t.bytes;
        put_bytes(p, s->kc, &f[i], tiles + 64 * i, t);
    }
}

/* ---- products -------------------------------------------------------------------------------- */
/* Whole numbers of the span. */
INLINE void multiply(const mnc_weight *w, const block *b, const span *s, uint8_t *whole,
                     const int nw, const int nx) {
    (void)w;
    TILES_ZERO();
    for (int64_t at = 0; at < s->tiles * TILE_BYTES; at += TILE_BYTES) {
        TILE_LOAD(4, b->w[0] + at);
        TILE_LOAD(6, b->x[0] + at);
        TILE_MULTIPLY_BYTES(0, 4, 6);
        if (nw > 1) {
            TILE_LOAD(5, b->w[1] + at);
            TILE_MULTIPLY_BYTES(1, 5, 6);
        }
        if (nx > 1) {
            TILE_LOAD(7, b->x[1] + at);
            TILE_MULTIPLY_BYTES(2, 4, 7);
        }
        if (nw > 1 && nx > 1)
            TILE_MULTIPLY_BYTES(3, 5, 7);
    }
    TILE_STORE(0, whole);
    if (nw > 1)
        TILE_STORE(1, whole + TILE_BYTES);
    if (nx > 1)
        TILE_STORE(2, whole + 2 * TILE_BYTES);
    if (nw > 1 && nx > 1)
        TILE_STORE(3, whole + 3 * TILE_BYTES);
}

/* sums[i][l] (+)= whole[i][l] times the steps of weight row i and x row l. */
INLINE void add_scaled(const uint8_t *whole, const float *w_step, const float *x_step, float *sums,
                       const bool first) {
    const VF step = v_load(x_step);
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) {
        const VF by = v_mul(step, v_set1(w_step[i]));
        const __m512i row = _mm512_loadu_si512(whole + 64 * i);
        const VF v = _mm512_cvtepi32_ps(row);
        float *to = sums + SIDE * i;
        if (first)
            v_store(to, v_mul(v, by));
        else
            v_store(to, v_fma(v, by, v_load(to)));
    }
}
INLINE void finish(const mnc_weight *w, const block *b, const span *s, const uint8_t *whole) {
    const int64_t of_span = SIDE * (int64_t)sizeof(float);
    const int64_t scales = tiles_bytes(w->cols) + s->k0 / SPAN * of_span;
    for (int x = 0; x < BLOCK && SIDE * x < b->r; x++)
        for (int i = 0; i < BLOCK && SIDE * i < b->n; i++) {
            const int tile = BLOCK * x + i;
            const uint8_t *from = whole + tile * TILE_BYTES;
            const void *x_step = b->group[x] + scales;
            const float *w_step = b->w_step + SIDE * i;
            float *sums = b->sums + tile * SIDE * SIDE;
            if (s->first)
                add_scaled(from, w_step, x_step, sums, true);
            else
                add_scaled(from, w_step, x_step, sums, false);
        }
}

/* ---- the rows -------------------------------------------------------------------------------- */
#define AMX8_ROW(type, e, b, g, off, min, apart, top, ...)                                         \
    INLINE void unpack_##type(const mnc_weight *w, int64_t row, int64_t end, const span *s,        \
                              int64_t ahead, uint8_t *tiles, float *step) {                        \
        unpack(w, row, end, s, ahead, tiles, step,                                                 \
               (byte_type){e, b, g, off, top, min, type##_scales, type##_bytes});                  \
    }                                                                                              \
    static void product_##type(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,   \
                               int64_t hi, void *room) {                                           \
        tile_product(w, pair, r, lo, hi, room, (tile_kernel){1, unpack_##type, multiply, finish}); \
    }                                                                                              \
    const mnk_linear mnk_##type##_a8_amx = {                                                       \
        .name = #type " a8 amx",                                                                   \
        .x_form = MNK_X_TILES8,                                                                    \
        .panel_rows = PANEL_ROWS,                                                                  \
        .grain = e,                                                                                \
        .panel_bytes = room_bytes,                                                                 \
        .pack = pack,                                                                              \
        .product = product_##type,                                                                 \
    };
MNK_BLOCKS(AMX8_ROW, )
