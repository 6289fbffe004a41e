/* rows_lanes_tiles.c -- products of some rows of x with weight rows that lie side by side
 * (lanes.h), on AMX, with both sides in bytes as in tiles8.h: within BYTE_SPAN columns a row of
 * weights has one scale, and so has a row of x. The lines of the layout are the rows of a tile
 * as the instruction wants it on its other side, and the rows that are its lanes get their
 * factors without any permutation: so unpacking costs half of what tiles8.h takes for it. */
#include "vec.h"
#include "byte_tiles.h"

enum {
    TILES_X = 2, /* of MNK_GROUP rows of x */
    TILES_W = 2, /* groups of weight rows multiplied at once */
    STEPS = 4,   /* tiles in a span */
};

_Static_assert((int)BYTE_SPAN == (int)MNK_LANES_SPAN, "both have one scale in a tile of sums");

typedef struct {
    int64_t n;
    int64_t r;
    const uint8_t *p[MNK_LANES_STREAMS];
    const uint8_t *x[TILES_X]; /* the groups' tiles */
    float acc[MNK_LANES_ROWS][MNK_LANES_STREAMS][MNK_LANES];
    float step[TILES_W][MNK_LANES]; /* what 1 stands for */
    _Alignas(64) uint8_t w[TILES_W][STEPS][TILE_BYTES];
    _Alignas(64) int32_t whole[TILES_W][TILES_X][MNK_GROUP][MNK_LANES];
} work;

/* ---- x --------------------------------------------------------------------------------------- */
static int64_t tiles_bytes(int64_t k) {
    return (k + 63) / 64 * TILE_BYTES;
}
static void pack_quants(const uint8_t *const x[MNK_GROUP], int64_t n, int64_t k, uint8_t *to) {
    float *scale = (float *)(void *)(to + tiles_bytes(k));
    memset(to, 0, (size_t)mnk_group_bytes(k, MNK_X_ROWS8));
    for (int64_t c = 0; c < k; c += BYTE_SPAN, scale += MNK_GROUP)
        for (int64_t i = 0; i < n; i++) {
            int8_t q[BYTE_SPAN];
            uint8_t *row = to + c / 64 * TILE_BYTES + 64 * i;
            scale[i] = unite_scales(x[i], k, c, BYTE_SPAN, q);
            for (int64_t j = 0; j < STEPS; j++)
                memcpy(row + j * TILE_BYTES, q + 64 * j, 64);
        }
}

/* ---- weights --------------------------------------------------------------------------------- */
/* The low half of each lane, twice. */
INLINE __m512i words_of(VF v) {
    const __m512i whole = _mm512_cvtps_epi32(v);
    const __m512i mask = _mm512_set1_epi32(0xffff);
    const __m512i low = _mm512_and_si512(whole, mask);
    const __m512i high = _mm512_slli_epi32(whole, 16);
    return _mm512_or_si512(low, high);
}
/* Upper bytes of words u * by + more: u are 64 bytes, the factors those of their lane. */
INLINE __m512i scale_bytes(LB u, __m512i by, __m512i more) {
    const __m512i even = _mm512_and_si512(u, _mm512_set1_epi16(0xff));
    const __m512i odd = _mm512_srli_epi16(u, 8);
    const __m512i even_by = _mm512_mullo_epi16(even, by);
    const __m512i odd_by = _mm512_mullo_epi16(odd, by);
    const __m512i low = _mm512_add_epi16(even_by, more);
    const __m512i high = _mm512_add_epi16(odd_by, more);
    const __m512i upper = _mm512_set1_epi16((short)0xff00);
    const __m512i of_even = _mm512_srli_epi16(low, 8);
    const __m512i of_odd = _mm512_and_si512(high, upper);
    return _mm512_or_si512(of_even, of_odd);
}
/* The larger of top and |v|, as whole numbers, of which a NaN is the largest. */
INLINE __m512i raise_to(__m512i top, VF v) {
    const __m512i size = _mm512_castps_si512(v_abs(v));
    return _mm512_max_epi32(top, size);
}
/* A span's scales, its minima, negative, and the largest number that they make of the type's. */
typedef struct {
    VF scale[16];
    VF less[8];
    VF most;
} factors;
INLINE void load_factors(factors *o, const uint8_t *p, const lanes_type t) {
    const int per = 32 / t.of_scale; /* scales in 32 columns */
    const VF d = t.d(p, 0);
    const VF dmin = v_sub(v_set1(0), t.dmin(p, 0));
    const VF lowest = v_set1((float)-t.off);
    const VF highest = v_set1((float)(t.top - t.off));
    __m512i top = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        o->less[g] = v_mul(t.least(p, g, 0), dmin);
#pragma GCC unroll 2
        for (int h = 0; h < per; h++) {
            const VF scale = v_mul(t.scale(p, g, h, 0), d);
            const VF least = v_fma(lowest, scale, o->less[g]);
            const VF largest = v_fma(highest, scale, o->less[g]);
            o->scale[per * g + h] = scale;
            top = raise_to(top, least);
            top = raise_to(top, largest);
        }
    }
    o->most = _mm512_castsi512_ps(top);
}
/* The span at p to tiles of weights within 127 steps, and the size of a step. */
INLINE void put_w(const uint8_t *p, uint8_t *to, float step[MNK_LANES], const lanes_type t) {
    const int per = 32 / t.of_scale;
    const int lines = 8 / per;
    factors f;
    load_factors(&f, p, t);
    v_store(step, v_mul(f.most, v_set1(1.0f / 127)));
    const VF inverse = v_div(v_set1(127 * 256), f.most);
    const VF by = v_sel_lt(f.most, v_set1(0x1p-100f), v_set1(0), inverse);
    const VF lowest = v_set1((float)-t.off);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        LB u[8];
        t.unpack(p, g, 0, u);
#pragma GCC unroll 2
        for (int h = 0; h < per; h++) {
            const VF scale = f.scale[per * g + h];
            const VF least = v_fma(lowest, scale, f.less[g]);
            const VF rounded = v_fma(least, by, v_set1(128));
            const __m512i factor = words_of(v_mul(scale, by));
            const __m512i more = words_of(rounded);
#pragma GCC unroll 8
            for (int c = lines * h; c < lines * (h + 1); c++) {
                uint8_t *line = to + MNK_LANES_LINE * (8 * g + c);
                const __m512i bytes = scale_bytes(u[c], factor, more);
                _mm512_storeu_si512(line, bytes);
            }
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */
/* Span b with nw groups of weights and nx of x. */
INLINE void lanes_multiply(work *o, int64_t b, const int nw, const int nx) {
    TILES_ZERO();
    for (int i = 0; i < STEPS; i++) {
        const int64_t x_at = (STEPS * b + i) * TILE_BYTES;
        TILE_LOAD(4, o->w[0][i]);
        TILE_LOAD(6, o->x[0] + x_at);
        if (nw > 1)
            TILE_LOAD(5, o->w[1][i]);
        if (nx > 1)
            TILE_LOAD(7, o->x[1] + x_at);
        TILE_MULTIPLY_BYTES(0, 6, 4);
        if (nx > 1)
            TILE_MULTIPLY_BYTES(1, 7, 4);
        if (nw > 1)
            TILE_MULTIPLY_BYTES(2, 6, 5);
        if (nw > 1 && nx > 1)
            TILE_MULTIPLY_BYTES(3, 7, 5);
    }
    TILE_STORE(0, o->whole[0][0]);
    if (nx > 1)
        TILE_STORE(1, o->whole[0][1]);
    if (nw > 1)
        TILE_STORE(2, o->whole[1][0]);
    if (nw > 1 && nx > 1)
        TILE_STORE(3, o->whole[1][1]);
}
/* Adds the sums of group i of those multiplied to stream s. */
INLINE void add_scaled(work *o, const int i, int64_t s, int64_t k, int64_t b) {
    const VF step = v_load(o->step[i]);
    for (int64_t row = 0; row < o->r; row++) {
        const int64_t x = row / MNK_GROUP;
        const int64_t of_group = row % MNK_GROUP;
        const void *scales = o->x[x] + tiles_bytes(k);
        const float *scale = scales;
        const __m512i sums = _mm512_loadu_si512(o->whole[i][x][of_group]);
        const VF of_x = v_set1(scale[MNK_GROUP * b + of_group]);
        const VF both = v_mul(step, of_x);
        float *to = o->acc[row][s];
        const VF before = v_load(to);
        v_store(to, v_fma(l_float(sums), both, before));
    }
}
INLINE void add_span(work *o, int64_t s, int64_t k, int64_t b, const int nw, const lanes_type t) {
    for (int i = 0; i < nw; i++) {
        const uint8_t *p = o->p[s + i];
        for (int64_t line = 0; line < t.bytes; line += 64)
            v_prefetch(p + LANES_AHEAD + line);
        put_w(p, o->w[i][0], o->step[i], t);
    }
    if (o->r > MNK_GROUP)
        lanes_multiply(o, b, nw, 2);
    else
        lanes_multiply(o, b, nw, 1);
    for (int i = 0; i < nw; i++)
        add_scaled(o, i, s + i, k, b);
}
INLINE void groups(work *o, int64_t k, const lanes_type t) {
    memset(o->acc, 0, (size_t)o->r * sizeof o->acc[0]);
    for (int64_t b = 0; b < k / BYTE_SPAN; b++) {
        int64_t s = 0;
        for (; s + TILES_W <= o->n; s += TILES_W)
            add_span(o, s, k, b, TILES_W, t);
        if (s < o->n)
            add_span(o, s, k, b, 1, t);
        for (s = 0; s < o->n; s++)
            o->p[s] += t.bytes;
    }
}
INLINE void product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo, int64_t hi,
                    const lanes_type t) {
    const lanes_turns turns = lanes_turns_of(lo, hi);
    work o;
    o.r = r;
    o.x[0] = pair[0].x;
    o.x[1] = NULL;
    if (r > MNK_GROUP)
        o.x[1] = pair[MNK_GROUP].x;
    TILES_BEGIN();
    for (int64_t j = 0; j < turns.turns; j++) {
        o.n = lanes_begin(w, &turns, j, t, o.p);
        groups(&o, w->cols, t);
        for (int64_t i = 0; i < r; i++) {
            float *y = pair[i].y;
            lanes_end(&turns, j, o.n, lo, hi, o.acc[i], y);
        }
    }
    TILES_END();
}
#define LANES_PRODUCT(ID, type, ...)                                                               \
    static void product_##type(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,   \
                               int64_t hi, void *panel) {                                          \
        (void)panel;                                                                               \
        product(w, pair, r, lo, hi, lanes_type_##type);                                            \
    }
#define LANES_KERNEL(type)                                                                         \
    [MNK_KERNEL_##type] = {                                                                        \
        .name = #type " lanes tiles8 " V_NAME,                                                     \
        .x_form = MNK_X_ROWS8,                                                                     \
        .grain = MNK_LANES_SPAN,                                                                   \
        .pack_quants = pack_quants,                                                                \
        .product = product_##type,                                                                 \
    },
MNK_LANES_TYPES(LANES_PRODUCT, )
LANES_BY_GROUP(product_)
const mnk_linear V_ID(mnk_lanes_tiles)[MNK_N_KERNELS] = {MNK_LANES_KERNELS(LANES_KERNEL)};
