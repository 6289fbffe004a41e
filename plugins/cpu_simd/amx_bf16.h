/* amx_bf16.h -- values as one plane of bf16, or as two that add up to 16 bits of the mantissa.
 * Behind amx.h. */
enum { BF16_COLUMNS = 32 }; /* of a tile */

/* 32 values to bf16, nearest even; b: the upper 16. */
INLINE __m512i round_pair(VF a, VF b) {
    return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}
/* What round_pair lost, as bf16: with it, 16 bits of each value are kept. */
INLINE __m512i rest_pair(VF a, VF b, __m512i rounded) {
    const __m256i lower = _mm512_castsi512_si256(rounded);
    const __m256i upper = _mm512_extracti64x4_epi64(rounded, 1);
    __m512i low = _mm512_cvtepu16_epi32(lower);
    __m512i high = _mm512_cvtepu16_epi32(upper);
    low = _mm512_slli_epi32(low, 16);
    high = _mm512_slli_epi32(high, 16);
    a = v_sub(a, _mm512_castsi512_ps(low));
    b = v_sub(b, _mm512_castsi512_ps(high));
    return round_pair(a, b);
}

/* 16 of a pair's first half, each beside its place in the second. */
INLINE __m512i zip_halves(__m512i pair) {
    const __m256i lower = _mm512_castsi512_si256(pair);
    const __m256i upper = _mm512_extracti64x4_epi64(pair, 1);
    const __m512i low = _mm512_cvtepu16_epi32(lower);
    const __m512i high = _mm512_cvtepu16_epi32(upper);
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* Columns [c, c + 32) of a row of k, zeros behind its end. */
INLINE void load_columns(const float *x, int64_t c, int64_t k, VF v[2]) {
    const int64_t left = k - c;
    if (left >= BF16_COLUMNS) {
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
INLINE void pack_bf16(const float *const x[SIDE], int64_t n, int64_t k, uint8_t *to,
                      const int planes) {
    const int64_t tiles = (k + BF16_COLUMNS - 1) / BF16_COLUMNS;
    for (int64_t t = 0; t < tiles; t++) {
        __m512i high[SIDE];
        __m512i low[SIDE];
        for (int i = 0; i < SIDE; i++) {
            VF v[2] = {v_set1(0), v_set1(0)};
            if (i < n)
                load_columns(x[i], BF16_COLUMNS * t, k, v);
            high[i] = round_pair(v[0], v[1]);
            if (planes == 2)
                low[i] = rest_pair(v[0], v[1], high[i]);
        }
        uint8_t *tile = to + t * TILE_BYTES;
        put_columns(high, tile);
        if (planes == 2)
            put_columns(low, tile + tiles * TILE_BYTES);
    }
}

/* Tiles 4 and 5, 6 and 7 of one or two groups; those that are `ahead` of them are asked for. */
INLINE void load_a(const uint8_t *const a[2], int64_t at, const int na, const int64_t ahead) {
    TILE_LOAD(4, a[0] + at);
    if (ahead)
        ask_for(a[0] + at + ahead);
    if (na < 2)
        return;
    TILE_LOAD(5, a[1] + at);
    if (ahead)
        ask_for(a[1] + at + ahead);
}
INLINE void load_b(const uint8_t *const b[2], int64_t at, const int nb, const int64_t ahead) {
    TILE_LOAD(6, b[0] + at);
    if (ahead)
        ask_for(b[0] + at + ahead);
    if (nb < 2)
        return;
    TILE_LOAD(7, b[1] + at);
    if (ahead)
        ask_for(b[1] + at + ahead);
}
/* To tiles 0 to 3 what they add. */
INLINE void multiply_loaded(const int na, const int nb) {
    TILE_MULTIPLY(0, 4, 6);
    if (na > 1)
        TILE_MULTIPLY(1, 5, 6);
    if (nb > 1)
        TILE_MULTIPLY(2, 4, 7);
    if (na > 1 && nb > 1)
        TILE_MULTIPLY(3, 5, 7);
}

/* To tiles 0 to 3, of a[0] b[0], a[1] b[0], a[0] b[1], a[1] b[1], what `tiles` tiles of each side
 * add; na, nb: how many there are; ahead: NEAR or FAR; all constant. */
INLINE void multiply_tiles(const uint8_t *const a[2], const uint8_t *const b[2], int64_t tiles,
                           const int na, const int nb, const int64_t ahead) {
    for (int64_t at = 0; at < tiles * TILE_BYTES; at += TILE_BYTES) {
        load_a(a, at, na, ahead);
        load_b(b, at, nb, ahead);
        multiply_loaded(na, nb);
    }
}

/* The same of two planes of each side, those of a a_plane bytes apart, those of b b_plane: all
 * products but that of the two rests, which is 2^-17 of a sum. */
INLINE void multiply_planes(const uint8_t *const a[2], int64_t a_plane, const uint8_t *const b[2],
                            int64_t b_plane, int64_t tiles, const int na, const int nb,
                            const int64_t ahead) {
    for (int64_t at = 0; at < tiles * TILE_BYTES; at += TILE_BYTES) {
        load_a(a, a_plane + at, na, ahead);
        load_b(b, at, nb, ahead);
        multiply_loaded(na, nb);
        load_a(a, at, na, ahead);
        multiply_loaded(na, nb);
        load_b(b, b_plane + at, nb, ahead);
        multiply_loaded(na, nb);
    }
}
