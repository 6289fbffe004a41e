/* rows_lanes8.c -- products of some rows of x in 8 bits with weight rows that lie side by side
 * (lanes.h), a register of those after the other. */
#include "vec.h"

/* Up to MNK_LANES_STREAMS groups of MNK_LANES weight rows, with r rows of x. */
typedef struct {
    int64_t n;
    int64_t r;
    const uint8_t *p[MNK_LANES_STREAMS]; /* their spans */
    lanes_x x[MNK_LANES_ROWS];
    lanes_sums sums[MNK_LANES_ROWS][MNK_LANES_STREAMS];
    float acc[MNK_LANES_ROWS][MNK_LANES_STREAMS][MNK_LANES];
} lanes_work;

INLINE void lanes_add(float *sums, const int from, VF by, VF more) {
    const VF sum = v_load(sums + from);
    v_store(sums + from, v_fma(by, more, sum));
}
/* Four columns of x in each lane of a register: 32 of them from q on. */
INLINE void lanes_spread(const uint8_t *q, LI four[8]) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        four[j] = l_spread(q + 4 * j);
}
/* 32 columns of a register of weights, unpacked. */
typedef struct {
    LB u[8];
    VF scale[2]; /* the second of groups of 16 alone */
    VF least;
} lanes_weights;
/* Whole numbers of weights w with a row of x, times the weights' scales. */
INLINE VF lanes_scaled(const lanes_weights *w, const lanes_x *x, const LI *four, const int g,
                       const lanes_type t) {
    const int per = 32 / t.of_scale;
    const int n = 8 / per;
    int32_t first = 0;
    if (t.off)
        first = x->less[per * g];
    const LI whole = l_dot(first, w->u, four, n, t.fit);
    const VF sum = v_mul(l_float(whole), w->scale[0]);
    if (per == 1)
        return sum;
    const LI next = l_dot(x->less[per * g + 1], w->u + n, four + n, n, t.fit);
    return v_fma(l_float(next), w->scale[1], sum);
}
/* Columns [32g, 32g + 32) of a register of stream s. of_one: those of a single row of x, spread,
 * so that all streams share them; NULL: each row's are to be. */
INLINE void lanes_register(lanes_work *o, const int64_t s, const int g, const int from,
                           const LI *of_one, const lanes_type t) {
    const uint8_t *p = o->p[s];
    const int64_t r = of_one ? 1 : o->r;
    const bool ends = t.min && 32 * (g + 1) % t.min == 0; /* the columns of a minimum */
    lanes_weights w;
    t.unpack(p, g, from, w.u);
    w.scale[0] = t.scale(p, g, 0, from);
    if (t.of_scale == 16)
        w.scale[1] = t.scale(p, g, 1, from);
    if (ends)
        w.least = t.least(p, g, from);
    for (int64_t i = 0; i < r; i++) {
        const lanes_x *x = &o->x[i];
        lanes_sums *sums = &o->sums[i][s];
        LI room[8];
        const LI *four = of_one;
        if (!of_one) {
            lanes_spread(x->q + 32 * g, room);
            four = room;
        }
        const VF sum = lanes_scaled(&w, x, four, g, t);
        lanes_add(sums->sum, from, sum, v_set1(x->d[g]));
        if (ends)
            lanes_add(sums->less, from, w.least, v_set1(x->sum[g]));
    }
}
/* Columns [32g, 32g + 32) of a span of all streams, a few lines of each. */
INLINE void lanes_columns(lanes_work *o, const int g, const bool one, const lanes_type t) {
    const int64_t lines = t.bytes / 64;
    const int64_t first = lines * g / 8;
    const int64_t end = lines * (g + 1) / 8;
    LI four[8];
    if (one)
        lanes_spread(o->x[0].q + 32 * g, four);
    for (int64_t s = 0; s < o->n; s++) {
        const uint8_t *ahead = o->p[s] + LANES_AHEAD;
        for (int64_t i = first; i < end; i++)
            v_prefetch(ahead + 64 * i);
#pragma GCC unroll 1
        for (int from = 0; from < MNK_LANES; from += VL)
            lanes_register(o, s, g, from, one ? four : NULL, t);
    }
}
/* one: r is 1, and the compiler knows it. */
INLINE void lanes_groups(lanes_work *o, const mnk_pair *pair, int64_t k, const bool one,
                         const lanes_type t) {
    const int64_t r = one ? 1 : o->r;
    memset(o->acc, 0, (size_t)r * sizeof o->acc[0]);
    for (int64_t b = 0; b < k / MNK_LANES_SPAN; b++) {
        memset(o->sums, 0, (size_t)r * sizeof o->sums[0]);
        for (int64_t i = 0; i < r; i++) {
            const uint8_t *x = pair[i].x;
            lanes_load_x(&o->x[i], x, k, b, t.of_scale, t.off, t.min);
        }
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            lanes_columns(o, g, one, t);
        for (int64_t i = 0; i < r; i++) {
            const lanes_sums *sums = o->sums[i];
            lanes_close(o->acc[i], o->p, o->n, sums, t);
        }
        for (int64_t s = 0; s < o->n; s++)
            o->p[s] += t.bytes;
    }
}
INLINE void lanes_product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,
                          int64_t hi, const bool one, const lanes_type t) {
    const lanes_turns turns = lanes_turns_of(lo, hi);
    lanes_work o;
    o.r = r;
    for (int64_t j = 0; j < turns.turns; j++) {
        o.n = lanes_begin(w, &turns, j, t, o.p);
        lanes_groups(&o, pair, w->cols, one, t);
        for (int64_t i = 0; i < r; i++) {
            float *y = pair[i].y;
            lanes_end(&turns, j, o.n, lo, hi, o.acc[i], y);
        }
    }
}
#define LANES_PRODUCT(ID, type, ...)                                                               \
    static NOINLINE void lanes_one_##type(const mnc_weight *w, const mnk_pair *pair, int64_t lo,   \
                                          int64_t hi) {                                            \
        lanes_product(w, pair, 1, lo, hi, true, lanes_type_##type);                                \
    }                                                                                              \
    static NOINLINE void lanes_some_##type(const mnc_weight *w, const mnk_pair *pair, int64_t r,   \
                                           int64_t lo, int64_t hi) {                               \
        lanes_product(w, pair, r, lo, hi, false, lanes_type_##type);                               \
    }                                                                                              \
    static void lanes_all_##type(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo, \
                                 int64_t hi, void *panel) {                                        \
        (void)panel;                                                                               \
        if (r == 1)                                                                                \
            lanes_one_##type(w, pair, lo, hi);                                                     \
        else                                                                                       \
            lanes_some_##type(w, pair, r, lo, hi);                                                 \
    }
#define LANES_KERNEL(type)                                                                         \
    [MNK_KERNEL_##type] = {                                                                        \
        .name = #type " lanes8 " V_NAME,                                                           \
        .x_form = MNK_X_A8,                                                                        \
        .grain = MNK_LANES_SPAN,                                                                   \
        .product = lanes_all_##type,                                                               \
    },
MNK_LANES_TYPES(LANES_PRODUCT, )
LANES_BY_GROUP(lanes_all_)
const mnk_linear V_ID(mnk_lanes8)[MNK_N_KERNELS] = {MNK_LANES_KERNELS(LANES_KERNEL)};
