/* rows_amx.c -- products of more than a few x rows on AMX: both sides in bf16, sums in f32. A tile
 * of weights is 16 rows by 32 columns as they lie, scale multiplied in; one of x has the same
 * columns of 16 rows as pairs, [16 pairs][16 rows][2], so that only x, which is smaller, is
 * transposed. Sums stay in tiles over CHUNK columns and in scratch from one chunk to the next; at
 * the end they are transposed into y. The tile instructions are written by hand: GCC 12 neither
 * knows that a load of a tile reads what a pointer points to nor keeps the stores of a
 * configuration. */
#include "rows.h"
#include "vec_avx512.h"
#include "types.inc"

enum {
    SIDE = 16, /* rows of a tile */
    SPAN = 32, /* columns of a tile */
    TILE_BYTES = 1024,
    QUAD = 4,         /* weight tiles that meet one x tile: a second cache gives 32 bytes a cycle */
    CHUNK = 256,      /* columns: a quad takes 32 KiB, two thirds of a first cache */
    PANEL_ROWS = 128, /* of a chunk's columns and 512 x rows: 64 KiB and 256 KiB of sums */
    FEW_PANEL_ROWS =
        64,     /* where each panel is read a few times only: it stays in the first cache */
    FEW = 64,   /* x rows */
    MOST = 512, /* x rows for which a panel is unpacked once */
    TILES = CHUNK / SPAN, /* of a chunk */
    PLANES = 2,
};
#define SUMS (PANEL_ROWS / SIDE * TILES * PLANES * TILE_BYTES) /* where they begin */

/* All eight tiles are whole. */
static const struct {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} config __attribute__((aligned(64))) = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE},
};

/* tmm0 to 3: sums of weight tile i; 4 to 6: weights; 7: x. */
#define TILE_LOAD(t, p)                                                                            \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"(64L) : "memory")
#define TILE_STORE(t, p)                                                                           \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"(64L) : "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %tmm" #t)
#define TILE_MULTIPLY(sum, weight, x)                                                              \
    __asm__ volatile("tdpbf16ps %tmm" #x ", %tmm" #weight ", %tmm" #sum)

/* 16 rows of 16 dwords -> 16 columns */
INLINE void transpose16(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* r[4 a + c] lane l: column 4 l + c of rows 4 a to 4 a + 3 */
    for (int c = 0; c < 4; c++) {
        t[c] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88);
        t[c + 4] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xdd);
        t[c + 8] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
        t[c + 12] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xdd);
    }
    for (int c = 0; c < 4; c++) {
        r[c] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0x88);
        r[c + 8] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0xdd);
        r[c + 4] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0x88);
        r[c + 12] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0xdd);
    }
}

/* 32 values to bf16, nearest even; b: the upper 16. */
INLINE __m512i round_pair(VF a, VF b) {
    return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}
/* What round_pair lost, as bf16: with it, 16 bits of each value are kept. */
INLINE __m512i rest_pair(VF a, VF b, __m512i rounded) {
    const __m512i low =
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(rounded)), 16);
    const __m256i upper = _mm512_extracti64x4_epi64(rounded, 1);
    const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(upper), 16);
    a = _mm512_sub_ps(a, _mm512_castsi512_ps(low));
    b = _mm512_sub_ps(b, _mm512_castsi512_ps(high));
    return round_pair(a, b);
}

/* Columns [c, c + 32) of a row of k, zeros behind its end. */
INLINE void load_span(const float *x, int64_t c, int64_t k, VF v[2]) {
    const int64_t left = k - c;
    if (left >= SPAN) {
        v[0] = v_load(x + c);
        v[1] = v_load(x + c + VL);
        return;
    }
    const uint32_t keep = (1u << left) - 1;
    v[0] = _mm512_maskz_loadu_ps((__mmask16)(keep & 0xffff), x + c);
    v[1] = _mm512_maskz_loadu_ps((__mmask16)(keep >> 16), x + c + VL);
}

/* n <= 16 rows of x to the tiles of one group, rows behind them as zeros; planes 2: what the first
 * plane's rounding lost is the second plane. */
INLINE void pack(const float *const x[SIDE], int64_t n, int64_t k, uint8_t *to, const int planes) {
    const int64_t tiles = (k + SPAN - 1) / SPAN;
    for (int64_t t = 0; t < tiles; t++) {
        __m512i high[SIDE];
        __m512i low[SIDE];
        for (int i = 0; i < SIDE; i++) {
            VF v[2] = {v_set1(0), v_set1(0)};
            if (i < n)
                load_span(x[i], SPAN * t, k, v);
            high[i] = round_pair(v[0], v[1]);
            if (planes == 2)
                low[i] = rest_pair(v[0], v[1], high[i]);
        }
        uint8_t *tile = to + t * TILE_BYTES;
        transpose16(high);
        for (int i = 0; i < SIDE; i++)
            _mm512_storeu_si512(tile + 64 * i, high[i]);
        if (planes != 2)
            continue;
        tile += tiles * TILE_BYTES;
        transpose16(low);
        for (int i = 0; i < SIDE; i++)
            _mm512_storeu_si512(tile + 64 * i, low[i]);
    }
}
static void pack_rounded(const float *const x[SIDE], int64_t n, int64_t k, uint8_t *to) {
    pack(x, n, k, to, 1);
}
static void pack_split(const float *const x[SIDE], int64_t n, int64_t k, uint8_t *to) {
    pack(x, n, k, to, 2);
}

/* ---- panels: [groups of 16 weight rows][planes][tiles of the chunk] -------------------------- */
typedef struct {
    int64_t elems; /* of a block; 1 = plain */
    int64_t bytes;
    int group, off, min;
    void (*scales)(const mnc_weight *, const mnk_at *, int64_t b, float *d, float *m);
    VB (*u)(const uint8_t *p, int j);
} amx_type;
enum { AHEAD = 1024 }; /* bytes of prefetch on each of 16 rows */

/* The planes of 16 weight rows from `row` on; past `end`: the last one. */
INLINE void rows_at(const mnc_weight *w, int64_t row, int64_t end, mnk_at at[SIDE]) {
    for (int i = 0; i < SIDE; i++)
        at[i] = mnk_row_at(w, row + i < end ? row + i : end - 1);
}

INLINE void unpack_block(const mnc_weight *w, int64_t row, int64_t end, int64_t k0, int64_t kc,
                         uint8_t *to, const amx_type t) {
    mnk_at at[SIDE];
    rows_at(w, row, end, at);
    for (int64_t b = k0 / t.elems; b < (k0 + kc) / t.elems; b++) {
        for (int i = 0; i < SIDE; i++) {
            const uint8_t *p = at[i].data + b * t.bytes;
            float d[16];
            float m[16];
            for (int64_t l = 0; l < t.bytes; l += 64)
                v_prefetch(p + AHEAD + l);
            t.scales(w, &at[i], b, d, m);
#pragma GCC unroll 8
            for (int j = 0; j < t.elems / SPAN; j++) {
                const VB u = t.u(p, j);
                const VB s = t.off == 128 ? vb_flip(u) : vb_less(u, (uint8_t)t.off);
                VF v[2];
                for (int h = 0; h < 2; h++) {
                    const int g = (SPAN * j + VL * h) / t.group;
                    const VF q = v_of(s, VL * h);
                    v[h] = t.min ? v_fma(v_set1(d[g]), q, v_set1(m[g])) : v_mul(v_set1(d[g]), q);
                }
                _mm512_storeu_si512(to + j * TILE_BYTES + 64 * i, round_pair(v[0], v[1]));
            }
        }
        to += t.elems / SPAN * TILE_BYTES;
    }
}

/* 32 columns of a row as they are stored, zeros behind its end. */
INLINE __m512i load_halves(const uint8_t *p, int64_t left) {
    if (left >= SPAN)
        return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16((1u << left) - 1, p);
}
INLINE void unpack_bf16(const mnc_weight *w, int64_t row, int64_t end, int64_t k0, int64_t kc,
                        uint8_t *to, const amx_type t) {
    mnk_at at[SIDE];
    (void)t;
    rows_at(w, row, end, at);
    for (int64_t c = 0; c < kc; c += SPAN, to += TILE_BYTES)
        for (int i = 0; i < SIDE; i++) {
            const uint8_t *p = at[i].data + 2 * (k0 + c);
            v_prefetch(p + AHEAD);
            _mm512_storeu_si512(to + 64 * i, load_halves(p, kc - c));
        }
}
/* Two planes that add up to the f16 value: 8 and at most 3 of its bits. */
INLINE void unpack_f16(const mnc_weight *w, int64_t row, int64_t end, int64_t k0, int64_t kc,
                       uint8_t *to, const amx_type t) {
    const int64_t plane = (kc + SPAN - 1) / SPAN * TILE_BYTES;
    mnk_at at[SIDE];
    (void)t;
    rows_at(w, row, end, at);
    for (int64_t c = 0; c < kc; c += SPAN, to += TILE_BYTES)
        for (int i = 0; i < SIDE; i++) {
            const uint8_t *p = at[i].data + 2 * (k0 + c);
            v_prefetch(p + AHEAD);
            const __m512i h = load_halves(p, kc - c);
            const VF a = _mm512_cvtph_ps(_mm512_castsi512_si256(h));
            const VF b = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1));
            const __m512i high = round_pair(a, b);
            _mm512_storeu_si512(to + 64 * i, high);
            _mm512_storeu_si512(to + plane + 64 * i, rest_pair(a, b, high));
        }
}

/* ---- products -------------------------------------------------------------------------------- */

/* What a chunk's products read: tiles of `tiles` times 32 columns. */
typedef struct {
    int64_t tiles;
    int64_t x_plane; /* bytes from plane to plane of x */
    int64_t x0;      /* the chunk's first byte in a group of x */
} chunk;

/* Sums of na weight tiles, `apart` bytes from each other, with one x tile, over one plane of each
 * side. */
INLINE void multiply(const uint8_t *a, int64_t apart, const uint8_t *b, int64_t tiles,
                     const int na) {
    for (int64_t at = 0; at < tiles * TILE_BYTES; at += TILE_BYTES) {
        TILE_LOAD(7, b + at);
        TILE_LOAD(4, a + at);
        TILE_MULTIPLY(0, 4, 7);
        if (na > 1) {
            TILE_LOAD(5, a + apart + at);
            TILE_MULTIPLY(1, 5, 7);
        }
        if (na > 2) {
            TILE_LOAD(6, a + 2 * apart + at);
            TILE_MULTIPLY(2, 6, 7);
        }
        if (na > 3) {
            TILE_LOAD(4, a + 3 * apart + at);
            TILE_MULTIPLY(3, 4, 7);
        }
    }
}

/* The na weight groups at `a` with the x group at b; sums: [na] tiles. Two planes: all products but
 * that of the two rests, which is 2^-18 of the sum. */
INLINE void tiles_of(const chunk *o, const uint8_t *a, const uint8_t *b, float *sums, bool first,
                     const int na, const int planes) {
    const int64_t plane = o->tiles * TILE_BYTES;
    const int64_t apart = planes * plane;
    b += o->x0;
    if (first) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    } else {
        TILE_LOAD(0, sums);
        if (na > 1)
            TILE_LOAD(1, sums + 256);
        if (na > 2)
            TILE_LOAD(2, sums + 512);
        if (na > 3)
            TILE_LOAD(3, sums + 768);
    }
    if (planes == 2) {
        multiply(a + plane, apart, b, o->tiles, na);
        multiply(a, apart, b + o->x_plane, o->tiles, na);
    }
    multiply(a, apart, b, o->tiles, na);
    TILE_STORE(0, sums);
    if (na > 1)
        TILE_STORE(1, sums + 256);
    if (na > 2)
        TILE_STORE(2, sums + 512);
    if (na > 3)
        TILE_STORE(3, sums + 768);
}

/* A tile of sums [16 weight rows][16 x rows], of which n and r count, to y[.][y0...]. */
static void put_sums(const float *sums, const mnk_pair *pair, int64_t r, int64_t y0, int64_t n) {
    const __mmask16 keep = n >= SIDE ? 0xffff : (__mmask16)((1u << n) - 1);
    __m512i s[SIDE];
    for (int i = 0; i < SIDE; i++)
        s[i] = _mm512_loadu_si512(sums + SIDE * i);
    transpose16(s);
    for (int64_t i = 0; i < r && i < SIDE; i++)
        _mm512_mask_storeu_epi32(pair[i].y + y0, keep, s[i]);
}

/* Up to QUAD weight groups with all r rows of x: the weights stay in the first cache, x passes by.
 * n: weight rows; sums: [x groups][QUAD] tiles. */
INLINE void quad(const chunk *o, const uint8_t *a, const mnk_pair *pair, int64_t r, int64_t y0,
                 int64_t n, float *sums, bool first, bool last, const int planes) {
    for (int64_t i = 0; i < r; i += SIDE, sums += QUAD * 256) {
        const uint8_t *b = pair[i].x;
        if (n > 3 * SIDE)
            tiles_of(o, a, b, sums, first, 4, planes);
        else if (n > 2 * SIDE)
            tiles_of(o, a, b, sums, first, 3, planes);
        else if (n > SIDE)
            tiles_of(o, a, b, sums, first, 2, planes);
        else
            tiles_of(o, a, b, sums, first, 1, planes);
        for (int64_t j = 0; j < n && last; j += SIDE)
            put_sums(sums + j / SIDE * 256, pair + i, r - i, y0 + j, n - j);
    }
}

typedef void (*unpack_fn)(const mnc_weight *w, int64_t row, int64_t end, int64_t k0, int64_t kc,
                          uint8_t *to, const amx_type t);

/* Weight rows [j, j + n) with r <= MOST rows of x. */
INLINE void panel_product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t j,
                          int64_t n, uint8_t *panel, unpack_fn unpack, const amx_type t,
                          const int planes) {
    float *sums = (float *)(void *)(panel + SUMS);
    for (int64_t k0 = 0; k0 < w->cols; k0 += CHUNK) {
        const bool last = w->cols - k0 <= CHUNK;
        const int64_t kc = last ? w->cols - k0 : CHUNK;
        const int64_t tiles = (kc + SPAN - 1) / SPAN;
        const chunk o = {
            .tiles = tiles,
            .x_plane = (w->cols + SPAN - 1) / SPAN * TILE_BYTES,
            .x0 = k0 / SPAN * TILE_BYTES,
        };
        for (int64_t g = 0; g < n; g += SIDE)
            unpack(w, j + g, j + n, k0, kc, panel + g / SIDE * planes * tiles * TILE_BYTES, t);
        for (int64_t q = 0; q < n; q += QUAD * SIDE) {
            const uint8_t *a = panel + q / SIDE * planes * tiles * TILE_BYTES;
            const int64_t some = n - q < QUAD * SIDE ? n - q : QUAD * SIDE;
            quad(&o, a, pair, r, j + q, some, sums + q * MOST, k0 == 0, last, planes);
        }
    }
}

INLINE void product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo, int64_t hi,
                    void *panel, unpack_fn unpack, const amx_type t, const int planes) {
    const int64_t step = r <= FEW ? FEW_PANEL_ROWS : PANEL_ROWS;
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
    for (int64_t i = 0; i < r; i += MOST) {
        const int64_t some = r - i < MOST ? r - i : MOST;
        for (int64_t j = lo; j < hi; j += step) {
            const int64_t n = hi - j < step ? hi - j : step;
            panel_product(w, pair + i, some, j, n, panel, unpack, t, planes);
        }
    }
    __asm__ volatile("tilerelease");
}

static uint64_t panel_bytes(int64_t k) {
    (void)k;
    return SUMS + (uint64_t)MOST * PANEL_ROWS * sizeof(float);
}

/* ---- the rows -------------------------------------------------------------------------------- */
#define AMX_ROW(type, grain_, form, pack_, unpack, planes, ...)                                    \
    static void product_##type(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,   \
                               int64_t hi, void *panel) {                                          \
        product(w, pair, r, lo, hi, panel, unpack, (amx_type)__VA_ARGS__, planes);                 \
    }                                                                                              \
    const mnk_linear mnk_##type##_amx = {                                                          \
        .name = #type " bf16 amx",                                                                 \
        .x_form = form,                                                                            \
        .panel_rows = PANEL_ROWS,                                                                  \
        .grain = grain_,                                                                           \
        .panel_bytes = panel_bytes,                                                                \
        .pack = pack_,                                                                             \
        .product = product_##type,                                                                 \
    };
AMX_ROW(bf16, 1, MNK_X_TILES, pack_rounded, unpack_bf16, 1, {0})
AMX_ROW(f16, 1, MNK_X_TILES2, pack_split, unpack_f16, 2, {0})
#define AMX_BLOCK_ROW(type, e, b, group, off, min, apart, ...)                                     \
    AMX_ROW(type, e, MNK_X_TILES, pack_rounded, unpack_block, 1,                                   \
            {e, b, group, off, min, type##_scales, type##_bytes})
MNK_BLOCKS(AMX_BLOCK_ROW, )
