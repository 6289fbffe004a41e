/* tiles.h -- tiles: 16 rows of 64 bytes, and how they are transposed. */
enum {
    SIDE = 16, /* rows of a tile */
    TILE_BYTES = 1024,
};

/* Dwords, then pairs of them, of each quarter: of a and b in turn. */
INLINE void mix_dwords(const __m512i *a, const __m512i *b, __m512i *low, __m512i *high) {
    *low = _mm512_unpacklo_epi32(*a, *b);
    *high = _mm512_unpackhi_epi32(*a, *b);
}
INLINE void mix_pairs(const __m512i *a, const __m512i *b, __m512i *low, __m512i *high) {
    *low = _mm512_unpacklo_epi64(*a, *b);
    *high = _mm512_unpackhi_epi64(*a, *b);
}
/* Quarters 0 and 2 of a, then of b; and 1 and 3. */
INLINE void mix_quarters(const __m512i *a, const __m512i *b, __m512i *even, __m512i *odd) {
    *even = _mm512_shuffle_i32x4(*a, *b, 0x88);
    *odd = _mm512_shuffle_i32x4(*a, *b, 0xdd);
}

/* 16 rows of 16 dwords -> 16 columns */
INLINE void transpose16(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2)
        mix_dwords(&r[i], &r[i + 1], &t[i], &t[i + 1]);
    for (int i = 0; i < 16; i += 4) {
        const __m512i *from = &t[i];
        __m512i *to = &r[i];
        mix_pairs(from, from + 2, to, to + 1);
        mix_pairs(from + 1, from + 3, to + 2, to + 3);
    }
    /* r[4 a + c] lane l: column 4 l + c of rows 4 a to 4 a + 3 */
    for (int c = 0; c < 4; c++) {
        const __m512i *from = &r[c];
        __m512i *to = &t[c];
        mix_quarters(from, from + 4, to, to + 4);
        mix_quarters(from + 8, from + 12, to + 8, to + 12);
    }
    for (int c = 0; c < 4; c++) {
        const __m512i *from = &t[c];
        __m512i *to = &r[c];
        mix_quarters(from, from + 8, to, to + 8);
        mix_quarters(from + 4, from + 12, to + 4, to + 12);
    }
}

/* The columns of 16 rows of dwords as the rows of a tile. */
INLINE void put_columns(__m512i r[SIDE], uint8_t *tile) {
    transpose16(r);
    for (int i = 0; i < SIDE; i++)
        _mm512_storeu_si512(tile + 64 * i, r[i]);
}
