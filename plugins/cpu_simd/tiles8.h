/* tiles8.h -- products in class a8 with both sides in bytes, beside their multiplication. Within
 * BYTE_SPAN columns a row of weights has one scale, and so has a row of x, so that tiles add up
 * whole numbers over a span; then they are scaled and added to sums in f32. A block type's own
 * scales become factors of 1/256 of the span's, which leave each weight within one of the span's
 * 127 steps. A tile of weights is 16 rows by 64 columns as they lie; one of x has the same
 * columns of 16 rows as fours, [16 fours][16 rows][4], so that only x, which is smaller, is
 * transposed. A body has the multiplication, and makes the table's rows by TILES8_KERNEL. */
#include "byte_tiles.h"
#include "tiles_walk.h"

enum { BYTE_COLUMNS = 64 };
static const tile_form byte_form = {BYTE_SPAN, BYTE_COLUMNS, 1};

/* ---- x --------------------------------------------------------------------------------------- */
/* A group: tiles, then of each span a scale for each row, f32 [16]. */
static int64_t tiles_bytes(int64_t k) {
    return (k + BYTE_COLUMNS - 1) / BYTE_COLUMNS * TILE_BYTES;
}

/* n <= BYTE_SPAN values to bytes, and zeros behind them up to whole tiles; returns what 1 stands
 * for. A NaN or an infinity becomes that. */
INLINE float round_span(const float *x, int64_t n, int8_t *to) {
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    __m512 v[BYTE_SPAN / VL];
    __m512i top = _mm512_setzero_si512();
    for (int64_t i = 0; i < BYTE_SPAN / VL; i++) {
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
    for (int64_t i = 0; i < BYTE_SPAN / VL; i++) {
        const __m512i q = _mm512_cvtps_epi32(v_mul(v[i], v_set1(by)));
        const __m128i bytes = _mm512_cvtsepi32_epi8(q);
        _mm_storeu_si128((void *)(to + VL * i), bytes);
    }
    return most / 127;
}

/* SIDE rows of bytes to the tiles of n <= BYTE_SPAN columns. */
INLINE uint8_t *put_tiles(int8_t q[SIDE][BYTE_SPAN], int64_t n, uint8_t *to) {
    for (int64_t t = 0; t < n; t += BYTE_COLUMNS, to += TILE_BYTES) {
        __m512i rows[SIDE];
        for (int i = 0; i < SIDE; i++)
            rows[i] = _mm512_loadu_si512(q[i] + t);
        put_columns(rows, to);
    }
    return to;
}

/* n rows of x, f32 or mnk_quant rows, to a group. */
INLINE void tiles8_pack_rows(const void *const x[SIDE], int64_t n, int64_t k, uint8_t *to,
                             const bool quants) {
    float *scale = (float *)(void *)(to + tiles_bytes(k));
    int8_t q[SIDE][BYTE_SPAN];
    if (n < SIDE)
        memset(q, 0, sizeof q);
    for (int64_t c = 0; c < k; c += BYTE_SPAN, scale += SIDE) {
        const int64_t span = k - c < BYTE_SPAN ? k - c : BYTE_SPAN;
        memset(scale, 0, SIDE * sizeof *scale);
        for (int64_t i = 0; i < n; i++) {
            const float *values = x[i];
            if (quants)
                scale[i] = unite_scales(x[i], k, c, span, q[i]);
            else
                scale[i] = round_span(values + c, span, q[i]);
        }
        to = put_tiles(q, span, to);
    }
}
static void tiles8_pack(const float *const x[SIDE], int64_t n, int64_t k, uint8_t *to) {
    const void *rows[SIDE];
    for (int64_t i = 0; i < n; i++)
        rows[i] = x[i];
    tiles8_pack_rows(rows, n, k, to, false);
}
static void tiles8_pack_quants(const uint8_t *const x[SIDE], int64_t n, int64_t k, uint8_t *to) {
    const void *rows[SIDE];
    for (int64_t i = 0; i < n; i++)
        rows[i] = x[i];
    tiles8_pack_rows(rows, n, k, to, true);
}

/* ---- weights --------------------------------------------------------------------------------- */
typedef struct {
    int64_t elems; /* of a block */
    int64_t bytes;
    int group, off, top;
    bool min;
    void (*scales)(const mnc_weight *, const mnk_at *, int64_t b, float *d, float *m);
    VB (*u)(const uint8_t *p, int j);
    /* how much larger the bytes of a tile are than what they stand for, 0 or 128 */
    int bias;
} byte_type;
enum { MOST_GROUPS = BYTE_SPAN / 16, ONE = 256 };

/* Of 16 rows: scales and minima of their groups, those of a row behind those of the row before. */
typedef struct {
    float d[SIDE * MOST_GROUPS + 16];
    float m[SIDE * MOST_GROUPS + 16];
} group_scales_of;
/* In 1/ONE of a span's step: by = d of each group, less = its minimum and half a step. Whole
 * numbers modulo 2^16, each of them twice. */
typedef struct {
    uint32_t by[SIDE * MOST_GROUPS];
    uint32_t less[SIDE * MOST_GROUPS];
} factors;

/* The largest lane of each row: a register holds one row of 16 groups, or two of 8. */
INLINE VF top_of_rows(VF v, const int groups) {
    if (groups == 16)
        v = v_max(v, _mm512_shuffle_f32x4(v, v, 0x4e));
    v = v_max(v, _mm512_shuffle_f32x4(v, v, 0xb1));
    v = v_max(v, _mm512_permute_ps(v, 0x4e));
    return v_max(v, _mm512_permute_ps(v, 0xb1));
}

INLINE __m512i twice(__m512i number) {
    const __m512i low = _mm512_and_si512(number, _mm512_set1_epi32(0xffff));
    return _mm512_or_si512(low, _mm512_slli_epi32(number, 16));
}

/* Factors of a register's rows, from group `at` on; `keep`: groups that are there. Each weight
 * d (u - off) + m is within 127 steps, for any u of the type; a scale that is no number makes the
 * step one. Returns the step in each lane. */
INLINE VF factors_of(const group_scales_of *of, int64_t at, __mmask16 keep, const byte_type t,
                     const int groups, factors *f) {
    const int lowest = t.off == 128 ? 127 : t.off; /* -128 has a byte of its own */
    const VF none = v_set1(0);
    const VF scale = _mm512_maskz_loadu_ps(keep, of->d + at);
    const VF least = t.min ? _mm512_maskz_loadu_ps(keep, of->m + at) : none;
    const VF low = v_abs(v_fma(scale, v_set1((float)-lowest), least));
    const VF high = v_abs(v_fma(scale, v_set1((float)(t.top - t.off)), least));
    const VF limit = v_set1(__builtin_inff());
    const __mmask16 low_out = _mm512_cmp_ps_mask(low, limit, _CMP_NLT_UQ);
    const __mmask16 high_out = _mm512_cmp_ps_mask(high, limit, _CMP_NLT_UQ);
    const VF either = _mm512_mask_mov_ps(v_max(low, high), low_out | high_out, limit);
    const VF most = top_of_rows(either, groups);
    const __mmask16 some = _mm512_cmp_ps_mask(most, v_set1(0x1p-93f), _CMP_GE_OQ);
    const __mmask16 out = _mm512_cmp_ps_mask(most, limit, _CMP_EQ_OQ);
    const VF one_by = _mm512_maskz_rcp14_ps(some, most);
    const VF by = v_mul(one_by, v_set1(127.0f * ONE));
    const __m512i a = _mm512_cvtps_epi32(v_mul(scale, by));
    VF less = v_fma(least, by, v_set1(ONE / 2));
    if (t.off)
        less = v_fma(_mm512_cvtepi32_ps(a), v_set1((float)-t.off), less);
    _mm512_storeu_si512(f->by + at, twice(a));
    _mm512_storeu_si512(f->less + at, twice(_mm512_cvtps_epi32(less)));
    const VF step = v_mul(most, v_set1(1 / 127.0f));
    return _mm512_mask_mov_ps(step, out, v_set1(__builtin_nanf("")));
}

/* Of 16 rows, `there` groups of each; step[16]. */
INLINE void factors_of_rows(const group_scales_of *of, int there, const byte_type t, factors *f,
                            float *step) {
    const int groups = BYTE_SPAN / t.group;
    const int rows = 16 / groups; /* of a register */
    uint32_t keep = (1u << there) - 1;
    keep |= keep << 16 / rows;
    for (int i = 0; i < SIDE; i += rows) {
        const VF of_rows = factors_of(of, groups * i, (__mmask16)keep, t, groups, f);
        step[i] = _mm512_cvtss_f32(of_rows);
        if (rows == 2)
            step[i + 1] = _mm256_cvtss_f32(_mm512_extractf32x8_ps(of_rows, 1));
    }
}

/* 64 columns of a row take the factors of 2 groups of 32, or of 4 of 16: each for a half or a
 * quarter of a register. */
INLINE __m512i spread(const uint32_t *factor, const int group) {
    const __m512i first = _mm512_set1_epi32((int32_t)factor[0]);
    if (group == 32)
        return _mm512_mask_set1_epi32(first, 0xff00, (int32_t)factor[1]);
    const __m512i second = _mm512_mask_set1_epi32(first, 0x00f0, (int32_t)factor[1]);
    const __m512i third = _mm512_mask_set1_epi32(second, 0x0f00, (int32_t)factor[2]);
    return _mm512_mask_set1_epi32(third, 0xf000, (int32_t)factor[3]);
}

/* Bytes u of 64 columns to whole numbers of the step: (u by + less) / ONE. Even bytes and odd ones
 * apart, as words. */
INLINE __m512i round_bytes(__m512i u, __m512i by, __m512i less) {
    const __m512i low = _mm512_set1_epi16(0x00ff);
    __m512i even = _mm512_and_si512(u, low);
    __m512i odd = _mm512_srli_epi16(u, 8);
    even = _mm512_mullo_epi16(even, by);
    even = _mm512_add_epi16(even, less);
    even = _mm512_srli_epi16(even, 8);
    odd = _mm512_mullo_epi16(odd, by);
    odd = _mm512_add_epi16(odd, less);
    return _mm512_mask_mov_epi8(odd, 0x5555555555555555, even);
}

/* The same for u < 16, whose 16 numbers each quarter of a register has in a table. */
INLINE __m512i look_up(__m512i u, __m512i by, __m512i less) {
    const __m512i first = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7));
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(8));
    __m512i low = _mm512_add_epi16(_mm512_mullo_epi16(first, by), less);
    __m512i high = _mm512_add_epi16(_mm512_mullo_epi16(second, by), less);
    low = _mm512_srli_epi16(low, 8);
    high = _mm512_srli_epi16(high, 8);
    return _mm512_shuffle_epi8(_mm512_packus_epi16(low, high), u);
}

/* Blocks of the type that a span has of a row. */
typedef struct {
    int64_t first;
    int64_t n;
} blocks_of_span;

/* Scales and minima of one row. */
INLINE void load_scales(const mnc_weight *w, const mnk_at *at, blocks_of_span blocks, float *d,
                        float *m, const byte_type t) {
    const int64_t groups = t.elems / t.group;
    for (int64_t b = 0; b < blocks.n; b++) {
        t.scales(w, at, blocks.first + b, d, m);
        d += groups;
        m += groups;
    }
}

/* The bytes of 64 columns, of which 32 may be there. */
INLINE __m512i load_bytes(const uint8_t *p, const int j, bool both, const byte_type t) {
    const int of_block = (int)t.elems / 32;
    const int low = 2 * j;
    const int high = low + 1;
    const VB first = t.u(p + low / of_block * t.bytes, low % of_block);
    VB second = first;
    if (both)
        second = t.u(p + high / of_block * t.bytes, high % of_block);
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

/* kc columns of one row of blocks at p to tiles, which are TILE_BYTES apart; by, less: its
 * factors. */
INLINE void put_bytes(const uint8_t *p, int64_t kc, const uint32_t *by, const uint32_t *less,
                      uint8_t *to, const byte_type t) {
#pragma GCC unroll 4 /* then shifts are constants */
    for (int j = 0; j < BYTE_SPAN / BYTE_COLUMNS; j++) {
        const int64_t left = kc - BYTE_COLUMNS * j;
        if (left <= 0)
            break;
        const int group = BYTE_COLUMNS / t.group * j;
        const __m512i u = load_bytes(p, j, left > 32, t);
        const __m512i of_by = spread(by + group, t.group);
        const __m512i of_less = spread(less + group, t.group);
        __m512i q;
        if (t.top < 16)
            q = look_up(u, of_by, of_less);
        else
            q = round_bytes(u, of_by, of_less);
        q = _mm512_xor_si512(q, _mm512_set1_epi8((char)t.bias));
        if (left <= 32)
            q = _mm512_maskz_mov_epi64(0x0f, q);
        _mm512_storeu_si512(to + j * TILE_BYTES, q);
    }
}

/* Columns [k0, k0 + kc) of 16 rows, at most a span, in passes over the rows: a wide load must not
 * follow the narrow stores of what it reads. kc is constant but in the last span. */
INLINE void unpack_span(const mnc_weight *w, const mnk_at at[SIDE], int64_t k0, int64_t kc,
                        uint8_t *tiles, float *step, const byte_type t) {
    const blocks_of_span blocks = {k0 / t.elems, kc / t.elems};
    const int64_t bytes = blocks.n * t.bytes;
    const int64_t next = BLOCK_ROWS * (at[1].data - at[0].data); /* of this place in the panel */
    const int64_t groups = BYTE_SPAN / t.group;
    group_scales_of scales;
    factors f;
    for (int i = 0; i < SIDE; i++)
        load_scales(w, &at[i], blocks, scales.d + groups * i, scales.m + groups * i, t);
    factors_of_rows(&scales, (int)kc / t.group, t, &f, step);
    for (int i = 0; i < SIDE; i++) {
        const uint8_t *p = at[i].data + blocks.first * t.bytes;
        put_bytes(p, kc, f.by + groups * i, f.less + groups * i, tiles + 64 * i, t);
        for (int64_t l = 0; l < bytes; l += 64)
            v_prefetch(p + next + l);
    }
}
INLINE void tiles8_unpack(const mnc_weight *w, int64_t row, int64_t end, columns of, uint8_t *tiles,
                          float *step, const byte_type t) {
    const int64_t apart = BLOCK * span_tiles(of, byte_form) * TILE_BYTES;
    int64_t c = 0;
    mnk_at at[SIDE];
    rows_at(w, row, end, at);
    for (; c + BYTE_SPAN <= of.kc; c += BYTE_SPAN, tiles += apart, step += BLOCK_ROWS)
        unpack_span(w, at, of.k0 + c, BYTE_SPAN, tiles, step, t);
    if (c < of.kc)
        unpack_span(w, at, of.k0 + c, of.kc - c, tiles, step, t);
}

/* ---- sums ------------------------------------------------------------------------------------ */
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
/* Tile `tile` of a block, if it is there. */
INLINE void finish_tile(const mnc_weight *w, const block *b, const int tile) {
    const int x = tile / BLOCK;
    const int i = tile % BLOCK;
    const int64_t of_span = SIDE * (int64_t)sizeof(float);
    const int64_t scales = tiles_bytes(w->cols) + b->s.k0 / BYTE_SPAN * of_span;
    const uint8_t *whole = b->whole + tile * TILE_BYTES;
    const void *x_step = b->group[x] + scales;
    const float *w_step = b->w_step + SIDE * i;
    float *sums = b->sums + tile * SIDE * SIDE;
    if (SIDE * x >= b->r || SIDE * i >= b->n)
        return;
    if (b->s.first)
        add_scaled(whole, w_step, x_step, sums, true);
    else
        add_scaled(whole, w_step, x_step, sums, false);
}
INLINE void tiles8_finish(const mnc_weight *w, const block *b) {
    for (int tile = 0; tile < BLOCK_TILES; tile++)
        finish_tile(w, b, tile);
}

/* ---- the rows -------------------------------------------------------------------------------- */
static uint64_t tiles8_room(int64_t k) {
    return tile_room_bytes(k, 1, byte_form);
}
/* Three quarters of a second cache; fewer would not be worth unpacking the weights for. */
static int64_t tiles8_rows_at_once(int64_t k) {
    const int64_t some = (3 << 19) / k / BLOCK_ROWS * BLOCK_ROWS;
    return some > 256 ? some : 256;
}
/* Of one type: the product, which multiplies panels by multiply_bytes(...), a tile_kernel.multiply
 * of the body, with bytes that are `bias` too large. */
#define TILES8_PRODUCT(type, e, b, g, off, min, apart, top, bias, multiply_bytes)                  \
    INLINE void unpack_##type(const mnc_weight *w, int64_t row, int64_t end, columns of,           \
                              uint8_t *tiles, float *step) {                                       \
        tiles8_unpack(w, row, end, of, tiles, step,                                                \
                      (byte_type){e, b, g, off, top, min, type##_scales, type##_bytes, bias});     \
    }                                                                                              \
    static void product_##type(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,   \
                               int64_t hi, void *room) {                                           \
        tile_product(w, pair, r, lo, hi, room,                                                     \
                     (tile_kernel){byte_form, 1, unpack_##type, multiply_bytes});                  \
    }
#define TILES8_KERNEL(type, e)                                                                     \
    {                                                                                              \
        .name = #type " tiles8 " V_NAME, .x_form = MNK_X_TILES8, .grain = e,                       \
        .panel_bytes = tiles8_room, .pack = tiles8_pack, .pack_quants = tiles8_pack_quants,        \
        .product = product_##type, .rows_at_once = tiles8_rows_at_once,                            \
    }
