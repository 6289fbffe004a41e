/* attend_amx.c -- attention of many query rows on AMX: queries, keys, weights and values in bf16,
 * in class a16 as two planes each. */
#include "rows.h"
#include "vec_avx512.h"
#include "types.inc"
#include "amx.h"
#include "amx_bf16.h"

enum {
    PAIR = 2 * SIDE, /* rows of a side that meet at once */
    WEIGHT_TILES = MNK_TILE / COLUMNS,
};

static int64_t tiles_of(int64_t d) {
    return (d + COLUMNS - 1) / COLUMNS;
}
static uint64_t group_bytes(int64_t d, const int planes) {
    return (uint64_t)(planes * tiles_of(d) * TILE_BYTES);
}
INLINE uint64_t query_bytes(int64_t n, int64_t d, const int planes) {
    const int64_t pairs = (n + PAIR - 1) / PAIR;
    return 2 * (uint64_t)pairs * group_bytes(d, planes);
}
INLINE uint64_t key_bytes(int64_t d, const int planes) {
    return MNK_TILE / SIDE * group_bytes(d, planes);
}
/* Values, and behind them the weights of a pair of groups. */
INLINE uint64_t value_bytes(int64_t dv, const int planes) {
    const int64_t groups = dv / SIDE + 2;
    const int64_t tiles = groups * planes * WEIGHT_TILES;
    return (uint64_t)tiles * TILE_BYTES;
}

/* n <= 16 rows, lda apart, as they lie: [planes][tiles][16 rows][32 columns]; rows behind them as
 * zeros. */
INLINE void put_rows(const float *a, int64_t lda, int64_t n, int64_t d, uint8_t *to,
                     const int planes) {
    const int64_t plane = tiles_of(d) * TILE_BYTES;
    for (int64_t t = 0; t < tiles_of(d); t++, to += TILE_BYTES)
        for (int i = 0; i < SIDE; i++) {
            VF v[2] = {v_set1(0), v_set1(0)};
            if (i < n)
                load_columns(a + i * lda, COLUMNS * t, d, v);
            const __m512i high = round_pair(v[0], v[1]);
            _mm512_storeu_si512(to + 64 * i, high);
            if (planes == 2)
                _mm512_storeu_si512(to + plane + 64 * i, rest_pair(v[0], v[1], high));
        }
}

INLINE void queries(const float *q, int64_t n, int64_t d, uint8_t *to, const int planes) {
    for (int64_t i = 0; i < n; i += SIDE, to += group_bytes(d, planes))
        put_rows(q + i * d, d, n - i, d, to, planes);
    if ((n + SIDE - 1) / SIDE % 2) /* the other half of a pair */
        memset(to, 0, group_bytes(d, planes));
}

INLINE void keys(const float *k, int64_t d, uint8_t *to, const int planes) {
    for (int64_t i = 0; i < MNK_TILE; i += SIDE, to += group_bytes(d, planes)) {
        const float *rows[SIDE];
        for (int j = 0; j < SIDE; j++)
            rows[j] = k + (i + j) * d;
        pack(rows, SIDE, d, to, planes);
    }
}

/* Each column of two rows side by side: [planes][tiles of 32 rows][16 pairs][16 columns][2]. */
INLINE bool values(const float *v, int64_t lo, int64_t hi, int64_t dv, uint8_t *to,
                   const int planes) {
    const int64_t plane = WEIGHT_TILES * TILE_BYTES;
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512();
    for (int64_t c = 0; c < dv; c += SIDE, to += planes * plane)
        for (int64_t p = 0; p < MNK_TILE; p += 2) {
            VF row[2];
            for (int64_t i = 0; i < 2; i++) {
                const bool seen = p + i >= lo && p + i < hi;
                row[i] = v_set1(0);
                if (seen)
                    row[i] = v_load(v + (p + i) * dv + c);
                const __m512i bits = _mm512_castps_si512(row[i]);
                top = _mm512_max_epi32(top, _mm512_and_si512(bits, size));
            }
            const __m512i high = round_pair(row[0], row[1]);
            uint8_t *tile = to + p / COLUMNS * TILE_BYTES;
            uint8_t *at = tile + p % COLUMNS / 2 * 64;
            _mm512_storeu_si512(at, zip_halves(high));
            if (planes == 2) {
                const __m512i low = rest_pair(row[0], row[1], high);
                _mm512_storeu_si512(at + plane, zip_halves(low));
            }
        }
    return _mm512_reduce_max_epi32(top) < 0x7f800000;
}

/* Sums in tiles 0 to 3 of a pair of groups of each side; nb 1: the second of b is not there. */
INLINE void multiply(const uint8_t *a, const uint8_t *b, int64_t tiles, const int nb,
                     const int planes) {
    const int64_t plane = tiles * TILE_BYTES;
    const int64_t group = planes * plane;
    const uint8_t *const a_groups[2] = {a, a + group};
    const uint8_t *const b_groups[2] = {b, b + group};
    if (planes == 2)
        multiply_planes(a_groups, plane, b_groups, plane, tiles, 2, nb, NEAR);
    else
        multiply_tiles(a_groups, b_groups, tiles, 2, nb, NEAR);
}

INLINE void scores(const uint8_t *q, int64_t n, const uint8_t *k, int64_t d, float *s,
                   const int planes) {
    const int64_t row = MNK_TILE * sizeof *s;
    TILES_BEGIN();
    for (int64_t i = 0; i < n; i += PAIR, q += 2 * group_bytes(d, planes))
        for (int64_t j = 0; j < MNK_TILE; j += PAIR) {
            const uint8_t *some = k + j / SIDE * (int64_t)group_bytes(d, planes);
            float *to = s + i * MNK_TILE + j;
            float *below = to + SIDE * MNK_TILE;
            TILES_ZERO();
            multiply(q, some, tiles_of(d), 2, planes);
            TILE_STORE_ROWS(0, to, row);
            TILE_STORE_ROWS(1, below, row);
            TILE_STORE_ROWS(2, to + SIDE, row);
            TILE_STORE_ROWS(3, below + SIDE, row);
        }
    TILES_END();
}

/* The sums of two groups of rows at `at`, rows lda apart, and of nb groups of columns. */
INLINE void weigh_columns(const uint8_t *p, const uint8_t *v, float *at, int64_t lda, const int nb,
                          const int planes) {
    const int64_t row = lda * (int64_t)sizeof *at;
    float *below = at + SIDE * lda;
    TILE_LOAD_ROWS(0, at, row);
    TILE_LOAD_ROWS(1, below, row);
    if (nb > 1) {
        TILE_LOAD_ROWS(2, at + SIDE, row);
        TILE_LOAD_ROWS(3, below + SIDE, row);
    }
    multiply(p, v, WEIGHT_TILES, nb, planes);
    TILE_STORE_ROWS(0, at, row);
    TILE_STORE_ROWS(1, below, row);
    if (nb > 1) {
        TILE_STORE_ROWS(2, at + SIDE, row);
        TILE_STORE_ROWS(3, below + SIDE, row);
    }
}

INLINE void weigh(const float *p, int64_t n, uint8_t *v, int64_t dv, float *acc, int64_t lda,
                  const int planes) {
    const int64_t group = planes * WEIGHT_TILES * TILE_BYTES;
    uint8_t *weights = v + dv / SIDE * group;
    TILES_BEGIN();
    for (int64_t i = 0; i < n; i += PAIR) {
        const float *row = p + i * MNK_TILE;
        const float *below = row + SIDE * MNK_TILE;
        float *at = acc + i * lda;
        int64_t c = 0;
        put_rows(row, MNK_TILE, SIDE, MNK_TILE, weights, planes);
        put_rows(below, MNK_TILE, SIDE, MNK_TILE, weights + group, planes);
        for (; c + SIDE < dv; c += PAIR) {
            const uint8_t *columns = v + c / SIDE * group;
            weigh_columns(weights, columns, at + c, lda, 2, planes);
        }
        const uint8_t *rest = v + c / SIDE * group;
        if (c < dv)
            weigh_columns(weights, rest, at + c, lda, 1, planes);
    }
    TILES_END();
}

#define ATTEND(name, planes)                                                                       \
    static uint64_t name##_query_bytes(int64_t n, int64_t d) {                                     \
        return query_bytes(n, d, planes);                                                          \
    }                                                                                              \
    static uint64_t name##_key_bytes(int64_t d) {                                                  \
        return key_bytes(d, planes);                                                               \
    }                                                                                              \
    static uint64_t name##_value_bytes(int64_t dv) {                                               \
        return value_bytes(dv, planes);                                                            \
    }                                                                                              \
    static void name##_queries(const float *q, int64_t n, int64_t d, uint8_t *to) {                \
        queries(q, n, d, to, planes);                                                              \
    }                                                                                              \
    static void name##_keys(const float *k, int64_t d, uint8_t *to) {                              \
        keys(k, d, to, planes);                                                                    \
    }                                                                                              \
    static bool name##_values(const float *v, int64_t lo, int64_t hi, int64_t dv, uint8_t *to) {   \
        return values(v, lo, hi, dv, to, planes);                                                  \
    }                                                                                              \
    static void name##_scores(const uint8_t *q, int64_t n, const uint8_t *k, int64_t d,            \
                              float *s) {                                                          \
        scores(q, n, k, d, s, planes);                                                             \
    }                                                                                              \
    static void name##_weigh(const float *p, int64_t n, uint8_t *v, int64_t dv, float *acc,        \
                             int64_t lda) {                                                        \
        weigh(p, n, v, dv, acc, lda, planes);                                                      \
    }                                                                                              \
    const mnk_attend mnk_attend_##name = {                                                         \
        .query_bytes = name##_query_bytes,                                                         \
        .key_bytes = name##_key_bytes,                                                             \
        .value_bytes = name##_value_bytes,                                                         \
        .queries = name##_queries,                                                                 \
        .keys = name##_keys,                                                                       \
        .values = name##_values,                                                                   \
        .scores = name##_scores,                                                                   \
        .weigh = name##_weigh,                                                                     \
        .error = planes == 2 ? 1e-5 : 3e-3,                                                        \
    };
ATTEND(amx_a8, 1)
ATTEND(amx_a16, 2)
