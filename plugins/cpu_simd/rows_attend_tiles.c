/* rows_attend_tiles.c -- attention of many query rows on AMX: queries, keys, weights and values
 * in bf16, in class a16 as two planes each.  Scores are made with a column for each query,
 * [positions][16 queries], and so are the sums, [columns of values][16 queries]: maxima,
 * exponentials and what they are multiplied by are operations on whole registers, with a query
 * in each lane. So keys and transposed values are the first operand of the products; queries and
 * weights are the second, whose pairs of rows lie side by side. */
#include "vec.h"

enum {
    KEY_GROUPS = MNK_TILE / SIDE,
    WEIGHT_TILES = MNK_TILE / BF16_COLUMNS, /* of a plane */
    PAIR = 2,                               /* groups of queries that meet the same tiles */
    SCORES = MNK_TILE * SIDE,               /* floats of a group */
};

static int64_t tiles_of(int64_t d) {
    return (d + BF16_COLUMNS - 1) / BF16_COLUMNS;
}
static int64_t group_bytes(int64_t d, const int planes) {
    return planes * tiles_of(d) * TILE_BYTES;
}
/* Groups of queries, an even number: what is behind the last query sees nothing. */
static int64_t groups_of(int64_t n) {
    return (n + PAIR * SIDE - 1) / (PAIR * SIDE) * PAIR;
}

/* Where everything is. */
typedef struct {
    uint8_t *q;       /* [groups][planes][tiles of dk] */
    uint8_t *k;       /* [KEY_GROUPS][planes][tiles of dk] */
    uint8_t *v;       /* [dv / 16][planes][WEIGHT_TILES] */
    uint8_t *weights; /* [PAIR][planes][WEIGHT_TILES] */
    float *scores;    /* [2][PAIR][MNK_TILE][16] */
    float *top;       /* [groups][16] the largest logit so far, in units of ln 2 */
    float *sum;       /* [groups][16] of the weights */
    float *acc;       /* [groups][dv][16] of the weighted values */
} places;

/* The next n bytes of the room, whole lines; NULL where there is none yet. */
static void *attend_take(uint8_t *room, int64_t *at, int64_t n) {
    const int64_t here = *at;
    *at += n;
    return room ? room + here : NULL;
}
/* Returns what it takes. */
static int64_t lay_out(places *p, int64_t n, int64_t dk, int64_t dv, const int planes,
                       uint8_t *room) {
    const int64_t groups = groups_of(n);
    const int64_t lanes = SIDE * (int64_t)sizeof(float);
    const int64_t weights = planes * WEIGHT_TILES * TILE_BYTES;
    int64_t at = 0;
    p->q = attend_take(room, &at, groups * group_bytes(dk, planes));
    p->k = attend_take(room, &at, KEY_GROUPS * group_bytes(dk, planes));
    p->v = attend_take(room, &at, dv / SIDE * weights);
    p->weights = attend_take(room, &at, PAIR * weights);
    p->scores = attend_take(room, &at, 2 * PAIR * SCORES * (int64_t)sizeof(float));
    p->top = attend_take(room, &at, groups * lanes);
    p->sum = attend_take(room, &at, groups * lanes);
    p->acc = attend_take(room, &at, groups * dv * lanes);
    return at;
}
static places places_of(const mnk_attend_block *b, const int planes) {
    places p;
    lay_out(&p, b->n, b->dk, b->dv, planes, b->room);
    return p;
}

/* ---- operands -------------------------------------------------------------------------------- */
INLINE void attend_begin(const mnk_attend_block *b, const float *q, const int planes) {
    const places p = places_of(b, planes);
    const int64_t groups = groups_of(b->n);
    const float *row[SIDE];
    const int64_t bytes = group_bytes(b->dk, planes);
    const int64_t sums = groups * b->dv * SIDE;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t first = SIDE * g;
        int64_t some = 0;
        while (some < SIDE && first + some < b->n) {
            row[some] = q + (first + some) * b->dk;
            some++;
        }
        pack_bf16(row, some, b->dk, p.q + g * bytes, planes);
        v_store(p.top + first, v_set1(-INFINITY));
        v_store(p.sum + first, v_set1(0));
    }
    memset(p.acc, 0, (size_t)sums * sizeof *p.acc);
}

/* The rows of k as they lie: [groups][planes][tiles][16 rows][32 columns]. */
INLINE void put_keys(const float *k, int64_t d, uint8_t *to, const int planes) {
    const int64_t plane = tiles_of(d) * TILE_BYTES;
    for (int64_t g = 0; g < KEY_GROUPS; g++, to += planes * plane)
        for (int64_t t = 0; t < tiles_of(d); t++) {
            uint8_t *tile = to + t * TILE_BYTES;
            for (int i = 0; i < SIDE; i++) {
                const float *row = k + (SIDE * g + i) * d;
                VF v[2];
                load_columns(row, BF16_COLUMNS * t, d, v);
                const __m512i high = round_pair(v[0], v[1]);
                _mm512_storeu_si512(tile + 64 * i, high);
                if (planes != 2)
                    continue;
                const __m512i low = rest_pair(v[0], v[1], high);
                _mm512_storeu_si512(tile + plane + 64 * i, low);
            }
        }
}

/* Row p of v from column c on, zeros outside of [first, end); *top: the largest so far. */
INLINE VF value_at(const mnk_attend_tile *t, int64_t p, int64_t c, int64_t dv, __m512i *top) {
    if (p < t->first || p >= t->end)
        return v_set1(0);
    const VF v = v_load(t->v + p * dv + c);
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    const __m512i bits = _mm512_castps_si512(v);
    *top = _mm512_max_epi32(*top, _mm512_and_si512(bits, size));
    return v;
}

/* Columns of v as rows: [groups of columns][planes][tiles][16 columns][32 positions]. False: one is
 * not finite, and a weight of 0 would not keep it out of a sum. */
INLINE bool put_values(const mnk_attend_tile *t, int64_t dv, uint8_t *to, const int planes) {
    const int64_t plane = WEIGHT_TILES * TILE_BYTES;
    __m512i top = _mm512_setzero_si512();
    for (int64_t c = 0; c < dv; c += SIDE, to += planes * plane)
        for (int64_t tile = 0; tile < WEIGHT_TILES; tile++) {
            __m512i high[SIDE];
            __m512i low[SIDE];
            for (int i = 0; i < SIDE; i++) {
                const int64_t p = BF16_COLUMNS * tile + 2 * i;
                const VF a = value_at(t, p, c, dv, &top);
                const VF b = value_at(t, p + 1, c, dv, &top);
                const __m512i rounded = round_pair(a, b);
                high[i] = zip_halves(rounded);
                if (planes != 2)
                    continue;
                const __m512i rest = rest_pair(a, b, rounded);
                low[i] = zip_halves(rest);
            }
            uint8_t *at = to + tile * TILE_BYTES;
            put_columns(high, at);
            if (planes == 2)
                put_columns(low, at + plane);
        }
    return _mm512_reduce_max_epi32(top) < 0x7f800000;
}

/* ---- products -------------------------------------------------------------------------------- */
/* To tiles 0 to 3, of groups of `tiles` tiles each. */
INLINE void attend_multiply(const uint8_t *a, const uint8_t *b, int64_t tiles, const int na,
                            const int planes) {
    const int64_t plane = tiles * TILE_BYTES;
    const int64_t group = planes * plane;
    const uint8_t *const a_groups[2] = {a, a + group};
    const uint8_t *const b_groups[2] = {b, b + group};
    if (planes == 2)
        multiply_planes(a_groups, plane, b_groups, plane, tiles, na, PAIR, NEAR);
    else
        multiply_tiles(a_groups, b_groups, tiles, na, PAIR, NEAR);
}

/* Of a pair of groups of queries from q on: s [PAIR][MNK_TILE][16]. */
INLINE void make_scores(const uint8_t *q, const uint8_t *k, int64_t d, float *s, const int planes) {
    const int64_t group = group_bytes(d, planes);
    const int64_t tiles = tiles_of(d);
    for (int64_t j = 0; j < KEY_GROUPS; j += 2) {
        float *first = s + j * SIDE * SIDE;
        float *second = first + SCORES;
        TILES_ZERO();
        attend_multiply(k, q, tiles, 2, planes);
        k += 2 * group;
        TILE_STORE(0, first);
        TILE_STORE(1, first + SIDE * SIDE);
        TILE_STORE(2, second);
        TILE_STORE(3, second + SIDE * SIDE);
    }
}

/* Adds a tile's values to the sums of a pair of groups, which are `apart` floats apart. */
INLINE void add_values(const uint8_t *v, const uint8_t *weights, int64_t dv, float *acc,
                       int64_t apart, const int planes) {
    const int64_t group = planes * WEIGHT_TILES * TILE_BYTES;
    for (int64_t c = 0; c < dv; c += 2 * SIDE, v += 2 * group, acc += 2 * SIDE * SIDE) {
        float *below = acc + SIDE * SIDE;
        TILE_LOAD(0, acc);
        TILE_LOAD(2, acc + apart);
        if (c + SIDE < dv) {
            TILE_LOAD(1, below);
            TILE_LOAD(3, below + apart);
            attend_multiply(v, weights, WEIGHT_TILES, 2, planes);
            TILE_STORE(1, below);
            TILE_STORE(3, below + apart);
        } else {
            attend_multiply(v, weights, WEIGHT_TILES, 1, planes);
        }
        TILE_STORE(0, acc);
        TILE_STORE(2, acc + apart);
    }
}

/* The same where a value is not finite: only what a query sees counts. weight: [MNK_TILE][16]; lo,
 * hi: of n queries. */
static void add_any_values(const mnk_attend_tile *t, const float *weight, int64_t dv,
                           const int32_t *lo, const int32_t *hi, int64_t n, float *acc) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t p = lo[i]; p < hi[i]; p++) {
            const float by = weight[SIDE * p + i];
            const float *v = t->v + p * dv;
            for (int64_t c = 0; c < dv; c++)
                acc[SIDE * c + i] += by * v[c];
        }
}

/* ---- weights --------------------------------------------------------------------------------- */
#define LOG2_E 1.44269504f
/* 2^x for x <= 0; NaN stays. 2^f for 0 <= f < 1 is a polynomial fitted for the least relative
 * error: 9e-5 for weights that are rounded to one plane, 9e-8 for two. It is 1 at 0. */
INLINE VF exp2_down(VF x, const int planes) {
    static const float rough[] = {7.706704226e-02f, 2.276449907e-01f, 6.951167866e-01f, 1.0f};
    static const float fine[] = {1.867130075e-03f, 9.017030309e-03f, 5.579991312e-02f,
                                 2.401644501e-01f, 6.931513118e-01f, 1.0f};
    const VF f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); /* x - floor(x) */
    const VF p = planes == 2 ? v_polynomial(f, fine, 6) : v_polynomial(f, rough, 4);
    return _mm512_scalef_ps(p, x); /* by 2^floor(x) */
}

/* Which columns the queries of a group see; those behind the last query: none. */
typedef struct {
    VF lo;
    VF hi;
    bool all; /* everyone sees everything */
} seen;
static seen seen_of(const mnk_attend_tile *t, int64_t at, int64_t n) {
    int32_t lo[SIDE] = {0};
    int32_t hi[SIDE] = {0};
    bool all = n >= SIDE;
    for (int64_t i = 0; i < SIDE && i < n; i++) {
        lo[i] = t->lo[at + i];
        hi[i] = t->hi[at + i];
        all &= lo[i] <= 0 && hi[i] >= MNK_TILE;
    }
    const VF from = _mm512_cvtepi32_ps(_mm512_loadu_si512(lo));
    const VF to = _mm512_cvtepi32_ps(_mm512_loadu_si512(hi));
    return (seen){from, to, all};
}

INLINE VF cap_scores(VF s, float scale, float cap) {
    const VF x = v_mul(s, v_set1(scale / cap));
    return v_mul(v_tanh(x), v_set1(cap * LOG2_E));
}

/* Scores [MNK_TILE][16] to logits in units of ln 2, -infinity where a query does not see. */
INLINE void make_logits(const mnk_attend_tile *t, const seen *see, VF by, float *s) {
    for (int64_t p = 0; p < MNK_TILE; p++) {
        VF x = v_load(s + SIDE * p);
        if (t->cap != 0)
            x = cap_scores(x, t->scale, t->cap);
        else
            x = v_mul(x, by);
        const VF column = v_set1((float)p);
        const __mmask16 begun = _mm512_cmp_ps_mask(column, see->lo, _CMP_GE_OQ);
        const __mmask16 more = _mm512_cmp_ps_mask(column, see->hi, _CMP_LT_OQ);
        v_store(s + SIDE * p, _mm512_mask_blend_ps(begun & more, v_set1(-INFINITY), x));
    }
}

/* The largest of each query; a NaN may be missing. */
INLINE VF top_of(const float *s) {
    VF top[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        top[i] = v_load(s + SIDE * i);
    for (int64_t p = 4; p < MNK_TILE; p += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            top[i] = v_max(v_load(s + SIDE * (p + i)), top[i]);
    return v_max(v_max(top[0], top[1]), v_max(top[2], top[3]));
}

/* f32 whose upper half is the nearest bf16, of two the one further from 0; the lower half is 0. */
INLINE __m512i round_half(VF a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i more = _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
    return _mm512_and_si512(more, _mm512_set1_epi32((int32_t)0xffff0000));
}
/* As bf16, each number beside its place in the other register. */
INLINE __m512i zip_rounded(__m512i low, __m512i high) {
    return _mm512_or_si512(_mm512_srli_epi32(low, 16), high);
}

/* Two rows of weights, side by side, to row `pair` of the second operand. */
INLINE void put_weights(VF a, VF b, int64_t pair, uint8_t *to, const int planes) {
    uint8_t *at = to + pair * 64;
    const __m512i low = round_half(a);
    const __m512i high = round_half(b);
    _mm512_storeu_si512(at, zip_rounded(low, high));
    if (planes != 2)
        return;
    const __m512i rest_low = round_half(v_sub(a, _mm512_castsi512_ps(low)));
    const __m512i rest_high = round_half(v_sub(b, _mm512_castsi512_ps(high)));
    _mm512_storeu_si512(at + WEIGHT_TILES * TILE_BYTES, zip_rounded(rest_low, rest_high));
}

/* Scores of a group to weights, in the operand `to` and, if keep, in their place; the group's sums
 * to what the new maximum makes of them. */
INLINE void weigh(const mnk_attend_tile *t, const seen *see, float *s, float *top, float *sum,
                  float *acc, int64_t dv, uint8_t *to, bool keep, const int planes) {
    VF by = v_set1(t->scale * LOG2_E);
    if (!see->all || t->cap != 0 || !(t->scale > 0)) {
        make_logits(t, see, by, s);
        by = v_set1(1);
    }
    const VF before = v_load(top);
    const VF most = v_mul(top_of(s), by);
    const VF now = v_max(most, before);
    const VF base = v_sel_lt(v_set1(-INFINITY), now, now, v_set1(0)); /* nobody was seen yet */
    const VF less = v_sub(v_set1(0), base);
    const VF share = exp2_down(v_sub(before, base), 2);
    VF of_even = v_set1(0);
    VF of_odd = v_set1(0);
#pragma GCC unroll 2
    for (int64_t p = 0; p < MNK_TILE; p += 2) {
        float *at = s + SIDE * p;
        const VF x = v_fma(v_load(at), by, less);
        const VF y = v_fma(v_load(at + SIDE), by, less);
        const VF a = exp2_down(x, planes);
        const VF b = exp2_down(y, planes);
        of_even = v_add(of_even, a);
        of_odd = v_add(of_odd, b);
        put_weights(a, b, p / 2, to, planes);
        if (keep) {
            v_store(at, a);
            v_store(at + SIDE, b);
        }
    }
    const VF of_tile = v_add(of_even, of_odd);
    const __mmask16 as_before = _mm512_cmp_ps_mask(share, v_set1(1), _CMP_EQ_OQ);
    v_store(top, now);
    v_store(sum, v_fma(v_load(sum), share, of_tile));
    if (as_before == 0xffff)
        return;
    for (int64_t c = 0; c < dv; c++) {
        float *at = acc + SIDE * c;
        v_store(at, v_mul(v_load(at), share));
    }
}

/* ---- the block ------------------------------------------------------------------------------- */
/* A tile's weights of a pair of groups, from scores s, and the values that they bring. */
INLINE void add_pair(const mnk_attend_block *b, const mnk_attend_tile *t, const places *p,
                     int64_t g, float *s, bool finite, const int planes) {
    const int64_t weights = planes * WEIGHT_TILES * TILE_BYTES;
    const int64_t sums = b->dv * SIDE;
    float *acc = p->acc + g * sums;
    for (int64_t i = 0; i < PAIR; i++) {
        const int64_t at = SIDE * (g + i);
        const seen see = seen_of(t, at, b->n - at);
        float *of_group = acc + i * sums;
        uint8_t *to = p->weights + i * weights;
        float *scores = s + i * SCORES;
        weigh(t, &see, scores, p->top + at, p->sum + at, of_group, b->dv, to, !finite, planes);
        if (finite)
            continue;
        const int64_t some = b->n - at < SIDE ? b->n - at : SIDE;
        add_any_values(t, scores, b->dv, t->lo + at, t->hi + at, some, of_group);
    }
    if (finite)
        add_values(p->v, p->weights, b->dv, acc, sums, planes);
}

/* The next pair's scores are asked for before this pair's are weighed: they are multiplied
 * meanwhile. */
INLINE void attend_add(const mnk_attend_block *b, const mnk_attend_tile *t, const int planes) {
    const places p = places_of(b, planes);
    const int64_t pairs = groups_of(b->n) / PAIR;
    const int64_t of_pair = PAIR * group_bytes(b->dk, planes);
    float *s = p.scores;
    float *next = s + PAIR * SCORES;
    TILES_BEGIN();
    put_keys(t->k, b->dk, p.k, planes);
    const bool finite = put_values(t, b->dv, p.v, planes);
    make_scores(p.q, p.k, b->dk, s, planes);
    for (int64_t i = 0; i < pairs; i++) {
        float *const now = s;
        if (i + 1 < pairs)
            make_scores(p.q + (i + 1) * of_pair, p.k, b->dk, next, planes);
        add_pair(b, t, &p, i * PAIR, now, finite, planes);
        s = next;
        next = now;
    }
    TILES_END();
}

/* What the sums of a group are multiplied by in the end; sink: of its n queries, or NULL. */
INLINE VF last_factor(const float *top_at, const float *sum_at, const float *sink, int64_t n) {
    const VF top = v_load(top_at);
    const VF sum = v_load(sum_at);
    if (!sink)
        return v_div(v_set1(1), sum);
    const __mmask16 keep = (__mmask16)((1u << n) - 1);
    const VF logit = _mm512_maskz_loadu_ps(keep, sink);
    const VF one_more = v_mul(logit, v_set1(LOG2_E));
    const VF most = v_max(top, one_more);
    const VF share = exp2_down(v_sub(top, most), 2);
    const VF of_sink = exp2_down(v_sub(one_more, most), 2);
    return v_div(share, v_fma(sum, share, of_sink));
}

INLINE void attend_end(const mnk_attend_block *b, const float *sink, float *const *y,
                       const int planes) {
    const places p = places_of(b, planes);
    for (int64_t first = 0; first < b->n; first += SIDE) {
        const int64_t n = b->n - first < SIDE ? b->n - first : SIDE;
        const float *of_group = sink ? sink + first : NULL;
        const VF by = last_factor(p.top + first, p.sum + first, of_group, n);
        const float *acc = p.acc + first * b->dv;
        for (int64_t c = 0; c < b->dv; c += SIDE) {
            __m512i columns[SIDE];
            for (int i = 0; i < SIDE; i++) {
                const VF sum = v_load(acc + SIDE * (c + i));
                columns[i] = _mm512_castps_si512(v_mul(sum, by));
            }
            transpose16(columns);
            for (int64_t i = 0; i < n; i++)
                if (y[first + i])
                    _mm512_storeu_si512(y[first + i] + c, columns[i]);
        }
    }
}

#define ATTEND(name, planes)                                                                       \
    static uint64_t name##_room_bytes(int64_t n, int64_t dk, int64_t dv) {                         \
        places p;                                                                                  \
        return (uint64_t)lay_out(&p, n, dk, dv, planes, NULL);                                     \
    }                                                                                              \
    static void name##_begin(const mnk_attend_block *b, const float *q) {                          \
        attend_begin(b, q, planes);                                                                \
    }                                                                                              \
    static void name##_add(const mnk_attend_block *b, const mnk_attend_tile *t) {                  \
        attend_add(b, t, planes);                                                                  \
    }                                                                                              \
    static void name##_end(const mnk_attend_block *b, const float *sink, float *const *y) {        \
        attend_end(b, sink, y, planes);                                                            \
    }                                                                                              \
    const mnk_attend V_ID(mnk_attend_##name) = {                                                   \
        .room_bytes = name##_room_bytes,                                                           \
        .begin = name##_begin,                                                                     \
        .add = name##_add,                                                                         \
        .end = name##_end,                                                                         \
        .error = planes == 2 ? 1e-5 : 3e-3,                                                        \
    };
ATTEND(tiles_a8, 1)
ATTEND(tiles_a16, 2)
