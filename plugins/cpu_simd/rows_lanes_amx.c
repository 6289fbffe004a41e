/* rows_lanes_amx.c -- products of some rows of x in 8 bits with weight rows that lie side by side
 * (lanes.h), on AMX: their lines are the rows of a tile of weights as the instruction wants them,
 * but for the bits. A product has the columns of one scale, so that sums are exact. */
#include "rows.h"
#include "vec_avx512.h"
#include "types.inc"
#include "amx.h"
#include "lanes_avx512.h"
#include "lanes_types.inc"

enum {
    TILES_X = 2, /* of MNK_GROUP rows of x */
    TILES_W = 2, /* groups of weight rows multiplied at once */
    SPAN_GS = 8, /* of 32 columns */
    SCALES = 16, /* in a span, at most */
    AT_ONCE = 4, /* scales whose sums are in memory at once */
    X_BYTES = MNK_GROUP * MNK_LANES_SPAN,
    AHEAD = 2048, /* bytes of a stream that are asked for before they are read */
};

typedef struct {
    int64_t n;
    int64_t r;
    int64_t tiles;
    const uint8_t *p[MNK_LANES_STREAMS];
    lanes_x x[MNK_LANES_ROWS];
    lanes_sums sums[MNK_LANES_ROWS][MNK_LANES_STREAMS];
    float acc[MNK_LANES_ROWS][MNK_LANES_STREAMS][MNK_LANES];
    /* tiles: of x [scales][rows][columns], of weights [scales][fours][16 rows][4] */
    _Alignas(64) uint8_t of_x[TILES_X][X_BYTES];
    _Alignas(64) uint8_t of_w[TILES_W][X_BYTES];
    _Alignas(64) int32_t whole[TILES_W][TILES_X][AT_ONCE][MNK_GROUP][MNK_LANES];
} work;

/* Tiles 0 to 3: sums; 4 and 5: weights; 6 and 7: x. */
INLINE tile_config tiles_of(const int depth) {
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = SIDE;
    }
    c.rows[4] = c.rows[5] = (uint8_t)(depth / 4);
    c.row_bytes[6] = c.row_bytes[7] = (uint16_t)depth;
    return c;
}

/* A span of all rows of x; rows behind them are left as they are. */
INLINE void put_x(work *o, const mnk_pair *pair, int64_t k, int64_t b, const lanes_type t) {
    for (int64_t i = 0; i < o->r; i++) {
        uint8_t *to = o->of_x[i / MNK_GROUP] + i % MNK_GROUP * t.of_scale;
        lanes_load_x(&o->x[i], pair[i].x, k, b, t.of_scale, 0);
        for (int c = 0; c < MNK_LANES_SPAN; c += t.of_scale)
            memcpy(to + MNK_GROUP * c, o->x[i].q + c, (size_t)t.of_scale);
    }
}

/* The span of stream s, signed. */
INLINE void put_w(work *o, int64_t s, uint8_t *to, const lanes_type t) {
    const __m512i off = _mm512_set1_epi8((char)t.off);
    for (int64_t i = 0; i < t.bytes; i += 64)
        v_prefetch(o->p[s] + AHEAD + i);
#pragma GCC unroll 8
    for (int g = 0; g < SPAN_GS; g++) {
        LB u[8];
        t.unpack(o->p[s], g, 0, u);
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) {
            __m512i v = u[c];
            if (t.off)
                v = _mm512_sub_epi8(v, off);
            _mm512_storeu_si512(to + MNK_LANES_LINE * (8 * g + c), v);
        }
    }
}

/* Products of scale j with nw groups of weights. */
INLINE void multiply(work *o, int j, const int nw, const lanes_type t) {
    const int64_t x_at = (int64_t)j * MNK_GROUP * t.of_scale;
    const int64_t w_at = (int64_t)j * MNK_LANES * t.of_scale;
    const bool both = o->tiles > 1;
    TILES_ZERO();
    TILE_LOAD(4, o->of_w[0] + w_at);
    TILE_LOAD_ROWS(6, o->of_x[0] + x_at, t.of_scale);
    if (nw > 1)
        TILE_LOAD(5, o->of_w[1] + w_at);
    if (both)
        TILE_LOAD_ROWS(7, o->of_x[1] + x_at, t.of_scale);
    TILE_MULTIPLY_BYTES(0, 6, 4);
    if (both)
        TILE_MULTIPLY_BYTES(1, 7, 4);
    if (nw > 1)
        TILE_MULTIPLY_BYTES(2, 6, 5);
    if (nw > 1 && both)
        TILE_MULTIPLY_BYTES(3, 7, 5);
    TILE_STORE(0, o->whole[0][0][j % AT_ONCE]);
    if (both)
        TILE_STORE(1, o->whole[0][1][j % AT_ONCE]);
    if (nw > 1)
        TILE_STORE(2, o->whole[1][0][j % AT_ONCE]);
    if (nw > 1 && both)
        TILE_STORE(3, o->whole[1][1][j % AT_ONCE]);
}

/* The sums of scales [first, first + AT_ONCE) of group i of those multiplied, which is stream s. */
INLINE void scale_sums(work *o, const int first, const int i, int64_t s, const lanes_type t) {
    const int per = 32 / t.of_scale; /* scales in 32 columns */
    VF scale[AT_ONCE];
    VF least[AT_ONCE];
#pragma GCC unroll 4
    for (int j = 0; j < AT_ONCE; j++) {
        const int g = (first + j) / per;
        scale[j] = t.scale(o->p[s], g, (first + j) % per, 0);
        least[j] = t.least(o->p[s], g, 0);
    }
    for (int64_t row = 0; row < o->r; row++) {
        const lanes_x *x = &o->x[row];
        lanes_sums *to = &o->sums[row][s];
        VF sum = v_load(to->sum);
        VF less = v_load(to->less);
#pragma GCC unroll 4
        for (int j = 0; j < AT_ONCE; j++) {
            const int g = (first + j) / per;
            const int32_t *whole = o->whole[i][row / MNK_GROUP][j][row % MNK_GROUP];
            const VF v = l_float(_mm512_loadu_si512(whole));
            sum = v_fma(v_mul(v, scale[j]), v_set1(x->d[g]), sum);
            if (t.min)
                less = v_fma(least[j], v_set1(x->sum[g]), less);
        }
        v_store(to->sum, sum);
        v_store(to->less, less);
    }
}
/* A span of nw groups of weights from stream s on. */
INLINE void add_span(work *o, int64_t s, const int nw, const lanes_type t) {
    for (int i = 0; i < nw; i++)
        put_w(o, s + i, o->of_w[i], t);
#pragma GCC unroll 4
    for (int first = 0; first < MNK_LANES_SPAN / t.of_scale; first += AT_ONCE) {
#pragma GCC unroll 1
        for (int j = first; j < first + AT_ONCE; j++)
            multiply(o, j, nw, t);
        for (int i = 0; i < nw; i++)
            scale_sums(o, first, i, s + i, t);
    }
}
INLINE void groups(work *o, const mnk_pair *pair, int64_t k, const lanes_type t) {
    memset(o->acc, 0, (size_t)o->r * sizeof o->acc[0]);
    for (int64_t b = 0; b < k / MNK_LANES_SPAN; b++) {
        memset(o->sums, 0, (size_t)o->r * sizeof o->sums[0]);
        put_x(o, pair, k, b, t);
        int64_t s = 0;
        for (; s + TILES_W <= o->n; s += TILES_W)
            add_span(o, s, TILES_W, t);
        if (s < o->n)
            add_span(o, s, 1, t);
        for (int64_t i = 0; i < o->r; i++)
            lanes_close(o->acc[i], o->p, o->n, o->sums[i], t);
        for (s = 0; s < o->n; s++)
            o->p[s] += t.bytes;
    }
}
INLINE void product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo, int64_t hi,
                    const lanes_type t) {
    const lanes_turns turns = lanes_turns_of(lo, hi);
    const tile_config config = tiles_of(t.of_scale);
    work o;
    o.r = r;
    o.tiles = (r + MNK_GROUP - 1) / MNK_GROUP;
    memset(o.of_x, 0, sizeof o.of_x);
    TILES_CONFIGURE(config);
    for (int64_t j = 0; j < turns.turns; j++) {
        o.n = lanes_begin(w, &turns, j, t, o.p);
        groups(&o, pair, w->cols, t);
        for (int64_t i = 0; i < r; i++)
            lanes_end(&turns, j, o.n, lo, hi, o.acc[i], pair[i].y);
    }
    TILES_END();
}
#define LANES_TILES(ID, type, ...)                                                                 \
    static void product_##type(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,   \
                               int64_t hi, void *panel) {                                          \
        (void)panel;                                                                               \
        product(w, pair, r, lo, hi, lanes_type_##type);                                            \
    }                                                                                              \
    const mnk_linear mnk_##type##_lanes_amx = {                                                    \
        .name = #type " a8 lanes amx",                                                             \
        .x_form = MNK_X_A8,                                                                        \
        .grain = MNK_LANES_SPAN,                                                                   \
        .product = product_##type,                                                                 \
    };
MNK_LANES_TYPES(LANES_TILES, )
