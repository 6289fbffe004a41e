/* rows_panels8_wide.c -- panels of rows_panels8.c for the types of most models. The stored
 * bytes of 16 rows are transposed first, four bytes of each row to a lane; then nibbles, bits and
 * scales of all 16 rows are taken apart at once. rows_panels8.c takes each row apart by itself
 * and moves its scales one by one: with 20 rows of x that took longer than their products. */
#include "vec.h"
#include "panels8.h"

typedef const uint8_t *rows16[PANEL_SIDE]; /* where 16 rows begin */

/* 16 bytes of each row, from `at` on, to four registers of four bytes. */
INLINE void turn16(const rows16 p, int64_t at, __m512i to[4]) {
    __m512i r[4]; /* rows i, 4 + i, 8 + i and 12 + i */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m128i first = vb_load16(p[i] + at);
        const __m128i second = vb_load16(p[4 + i] + at);
        const __m128i third = vb_load16(p[8 + i] + at);
        const __m128i fourth = vb_load16(p[12 + i] + at);
        r[i] = _mm512_castsi128_si512(first);
        r[i] = _mm512_inserti32x4(r[i], second, 1);
        r[i] = _mm512_inserti32x4(r[i], third, 2);
        r[i] = _mm512_inserti32x4(r[i], fourth, 3);
    }
    const __m512i low01 = _mm512_unpacklo_epi32(r[0], r[1]);
    const __m512i high01 = _mm512_unpackhi_epi32(r[0], r[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(r[2], r[3]);
    const __m512i high23 = _mm512_unpackhi_epi32(r[2], r[3]);
    to[0] = _mm512_unpacklo_epi64(low01, low23);
    to[1] = _mm512_unpackhi_epi64(low01, low23);
    to[2] = _mm512_unpacklo_epi64(high01, high23);
    to[3] = _mm512_unpackhi_epi64(high01, high23);
}
/* 32 bytes of each row to eight. */
INLINE void turn32(const rows16 p, int64_t at, __m512i to[8]) {
    turn16(p, at, to);
    turn16(p, at + 16, to + 4);
}

/* The f16 of four rows; of 16 rows. Put together outside of the vector registers, whose one shuffle
 * unit the transposition keeps busy. */
INLINE uint64_t four_f16(const uint8_t *const *p, int64_t at) {
    const uint64_t a = mnk_u16(p[0] + at);
    const uint64_t b = mnk_u16(p[1] + at);
    const uint64_t c = mnk_u16(p[2] + at);
    const uint64_t d = mnk_u16(p[3] + at);
    return a | b << 16 | c << 32 | d << 48;
}
INLINE __m512 turn_f16(const rows16 p, int64_t at) {
    const long long a = (long long)four_f16(p, at);
    const long long b = (long long)four_f16(p + 4, at);
    const long long c = (long long)four_f16(p + 8, at);
    const long long d = (long long)four_f16(p + 12, at);
    return _mm512_cvtph_ps(_mm256_setr_epi64x(a, b, c, d));
}
/* The f16 in the low half of each lane. */
INLINE __m512 f16_of_lanes(__m512i v) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

/* Each byte moved down by shift bits, up where that is negative, and of it the bits of mask, as
 * vb_field. */
INLINE __m512i wide_field(__m512i v, const int shift, uint8_t mask) {
    if (shift < 0)
        v = _mm512_slli_epi16(v, (unsigned)-shift);
    else if (shift > 0)
        v = _mm512_srli_epi16(v, (unsigned)shift);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}
INLINE __m512i wide_or(__m512i a, __m512i b) {
    return _mm512_or_si512(a, b);
}
/* Byte i of each lane, with or without a sign, as a float. */
INLINE __m512 wide_byte(__m512i v, const int i) {
    if (i < 3)
        v = _mm512_and_si512(_mm512_srli_epi32(v, 8u * (unsigned)i), _mm512_set1_epi32(255));
    else
        v = _mm512_srli_epi32(v, 24);
    return _mm512_cvtepi32_ps(v);
}
INLINE __m512 wide_signed_byte(__m512i v, const int i) {
    v = _mm512_srai_epi32(_mm512_slli_epi32(v, 24u - 8u * (unsigned)i), 24);
    return _mm512_cvtepi32_ps(v);
}

/* ---- where a block of 32 columns has its numbers and scales ---------------------------------- */
INLINE void put_number(uint8_t *block, int i, __m512i v) {
    _mm512_storeu_si512(block + 4 * PANEL_SIDE * i, v);
}
INLINE void put_scale(uint8_t *block, int i, __m512 v) {
    _mm512_storeu_ps(block + 32 * PANEL_SIDE + 4 * PANEL_SIDE * i, v);
}
/* Without minima numbers are 128 too large. */
INLINE __m512i biased(__m512i v, const int off) {
    return _mm512_add_epi8(v, _mm512_set1_epi8((char)(128 - off)));
}

/* ---- the types: the block at byte `at` of 16 rows to blocks of the panel, step apart --------- */
INLINE void wide_q4_0(const rows16 p, int64_t at, uint8_t *to, const int64_t step) {
    __m512i q[4];
    (void)step;
    turn16(p, at + 2, q);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        put_number(to, i, biased(wide_field(q[i], 0, 15), 8));
        put_number(to, 4 + i, biased(wide_field(q[i], 4, 15), 8));
    }
    put_scale(to, 0, turn_f16(p, at));
}

INLINE void wide_q8_0(const rows16 p, int64_t at, uint8_t *to, const int64_t step) {
    __m512i q[8];
    (void)step;
    turn32(p, at + 2, q);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        put_number(to, i, biased(q[i], 0));
    put_scale(to, 0, turn_f16(p, at));
}

/* What Q4_K and Q5_K begin with: {f16 d, dmin; u8 scale[12]}, eight scales and minima of 6 bits. */
INLINE void wide_scales_and_mins(const rows16 p, int64_t at, uint8_t *to, const int64_t step) {
    __m512i v[4];
    __m512i scale[2];
    __m512i min[2];
    turn16(p, at, v);
    const __m512 by = f16_of_lanes(v[0]);
    const __m512 dmin = f16_of_lanes(_mm512_srli_epi32(v[0], 16));
    const __m512 less = _mm512_sub_ps(_mm512_setzero_ps(), dmin);
    scale[0] = wide_field(v[1], 0, 63);
    scale[1] = wide_or(wide_field(v[3], 0, 15), wide_field(v[1], 2, 48));
    min[0] = wide_field(v[2], 0, 63);
    min[1] = wide_or(wide_field(v[3], 4, 15), wide_field(v[2], 2, 48));
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++, to += step) {
        const __m512 d = wide_byte(scale[j / 4], j % 4);
        const __m512 m = wide_byte(min[j / 4], j % 4);
        put_scale(to, 0, _mm512_mul_ps(by, d));
        put_scale(to, 1, _mm512_mul_ps(less, m));
    }
}
INLINE void wide_q4_k(const rows16 p, int64_t at, uint8_t *to, const int64_t step) {
    wide_scales_and_mins(p, at, to, step);
    for (int j = 0; j < 4; j++, to += 2 * step) {
        __m512i q[8];
        turn32(p, at + 16 + 32 * j, q);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            put_number(to, i, wide_field(q[i], 0, 15));
            put_number(to + step, i, wide_field(q[i], 4, 15));
        }
    }
}
/* The fifth bits of all 256 columns are the bits of 32 bytes. */
INLINE void wide_q5_k(const rows16 p, int64_t at, uint8_t *to, const int64_t step) {
    __m512i high[8];
    wide_scales_and_mins(p, at, to, step);
    turn32(p, at + 16, high);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++, to += 2 * step) {
        __m512i q[8];
        turn32(p, at + 48 + 32 * j, q);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const __m512i even = wide_field(q[i], 0, 15);
            const __m512i odd = wide_field(q[i], 4, 15);
            const __m512i high_even = wide_field(high[i], 2 * j - 4, 16);
            const __m512i high_odd = wide_field(high[i], 2 * j - 3, 16);
            put_number(to, i, wide_or(even, high_even));
            put_number(to + step, i, wide_or(odd, high_odd));
        }
    }
}

/* {u8 low[128]; u8 high[64]; i8 scale[16]; f16 d}, as types_k.h has it. */
INLINE void wide_q6_k(const rows16 p, int64_t at, uint8_t *to, const int64_t step) {
    __m512i scale[4];
    turn16(p, at + 192, scale);
    const __m512 by = turn_f16(p, at + 208);
#pragma GCC unroll 16
    for (int g = 0; g < 16; g++) {
        const __m512 d = wide_signed_byte(scale[g / 4], g % 4);
        put_scale(to + g / 2 * step, g % 2, _mm512_mul_ps(by, d));
    }
    for (int h = 0; h < 2; h++, to += 4 * step) {
        __m512i high[8];
        turn32(p, at + 128 + 32 * h, high);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512i low[8];
            uint8_t *first = to + j * step;
            turn32(p, at + 64 * h + 32 * j, low);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                const __m512i a = wide_field(low[i], 0, 15);
                const __m512i b = wide_field(low[i], 4, 15);
                const __m512i high_a = wide_field(high[i], 2 * j - 4, 48);
                const __m512i high_b = wide_field(high[i], 2 * j, 48);
                put_number(first, i, biased(wide_or(a, high_a), 32));
                put_number(first + 2 * step, i, biased(wide_or(b, high_b), 32));
            }
        }
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */
typedef struct {
    int64_t elems;
    int64_t bytes;
    void (*block)(const rows16 p, int64_t at, uint8_t *to, const int64_t step);
} wide_unpacker;

/* Columns [k0, k0 + k) of n rows; of what comes next in the panel the same is prefetched. */
INLINE void unpack_wide(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t k,
                        uint8_t *panel, const wide_unpacker t, const panel_layout l) {
    const int64_t step = panel_block_bytes(l);
    const int64_t per_256 = 256 / t.elems;
    const int64_t first = k0 / t.elems;
    const int64_t end = (k0 + k) / t.elems;
    for (int64_t g = 0; g < n; g += PANEL_SIDE) {
        uint8_t *to = panel + g / PANEL_SIDE * (k / 32) * step;
        rows16 p;
        for (int i = 0; i < PANEL_SIDE; i++) {
            const int64_t of_panel = g + i < n ? g + i : n - 1; /* past the end: the last row */
            p[i] = mnk_row_at(w, row + of_panel).data;
        }
        const int64_t ahead = n * (p[1] - p[0]);
        for (int64_t b = first; b < end; b++, to += t.elems / 32 * step) {
            const int64_t at = b * t.bytes;
            for (int i = 0; i < PANEL_SIDE && b % per_256 == 0; i++)
                for (int64_t line = 0; line < per_256 * t.bytes; line += 64)
                    v_prefetch(p[i] + at + ahead + line);
            t.block(p, at, to, step);
        }
    }
}
/* X(kernel, elements and bytes of a block, columns of a scale, has minima) */
#define WIDE_TYPES(X)                                                                              \
    X(q4_0, 32, 18, 32, 0)                                                                         \
    X(q8_0, 32, 34, 32, 0)                                                                         \
    X(q4_k, 256, 144, 32, 1)                                                                       \
    X(q5_k, 256, 176, 32, 1)                                                                       \
    X(q6_k, 256, 210, 16, 0)
#define WIDE_PRODUCT(type, elems, bytes, group, min)                                               \
    static void unpack_wide_##type(const mnc_weight *w, int64_t row, int64_t n, int64_t k0,        \
                                   int64_t k, void *panel) {                                       \
        unpack_wide(w, row, n, k0, k, panel, (wide_unpacker){elems, bytes, wide_##type},           \
                    (panel_layout){group, min, 1});                                                \
    }                                                                                              \
    PANEL_PRODUCT(type, group, min, , unpack_wide_##type)
#define WIDE_KERNEL(type, elems, bytes, group, min)                                                \
    [MNK_KERNEL_##type] = PANEL_KERNEL(type, " panels8 wide ", elems, group, min, ),
WIDE_TYPES(WIDE_PRODUCT)
const mnk_linear V_ID(mnk_panels8_wide)[MNK_N_KERNELS] = {WIDE_TYPES(WIDE_KERNEL)};
