/* lanes_types.h -- the layouts of lanes.h on the vocabulary of one ISA: what kernels for rows
 * that lie side by side need of a type. A register holds VL rows, from row `from` on of the
 * MNK_LANES of a span at p. Behind lanes_*.h of the instruction set. Each type has, g being
 * constant after inlining:
 *   lanes_unpack_TYPE(p, g, from, u)     columns [32g, 32g + 32) as unsigned bytes, four in each u
 *   lanes_scale_TYPE(p, g, h, from)      the scale of their group h; q4_0's has d in it
 *   lanes_min_TYPE(p, g, from)           what is taken off for each of them, before the factor dmin
 *   lanes_d_TYPE, lanes_dmin_TYPE(p, from)  the factors of all scales and minima of the span */
#include "lanes.h"
#define LANES_AHEAD 2048 /* bytes of a stream that are asked for before they are read */

/* A span of x: 256 columns, and for each 32 of them a scale, it times their sum, with those in
 * front of them that have the same minimum, or for each 16 or 32 what the weights' offset adds,
 * negative. In memory, from which a load spreads a value. */
typedef struct {
    const uint8_t *q;
    const float *d;
    float sum[8];
    int32_t less[16];
} lanes_x;
INLINE void lanes_load_x(lanes_x *o, const uint8_t *x, int64_t k, int64_t b, const int group,
                         const int off, const int min) {
    const int32_t *sum = mnk_quant_sum(x, k) + 8 * b;
    const int32_t *sum16 = mnk_quant_sum16(x, k) + 16 * b;
    o->q = x + MNK_LANES_SPAN * b;
    o->d = mnk_quant_d(x, k) + 8 * b;
    const int32_t *sums = group == 16 ? sum16 : sum;
    const int n = MNK_LANES_SPAN / group;
    if (off)
        for (int i = 0; i < n; i++)
            o->less[i] = -off * sums[i];
    else
        for (int i = 0; i < 8; i++) {
            o->sum[i] = o->d[i] * (float)sum[i];
            if (32 * i % min)
                o->sum[i] += o->sum[i - 1];
        }
    __asm__("" : "+m"(o->sum), "+m"(o->less));
}

/* Sums of a span, of MNK_LANES weight rows and one of x; less: what minima take from them, before
 * their factor dmin. */
typedef struct {
    float sum[MNK_LANES];
    float less[MNK_LANES];
} lanes_sums;

INLINE VF lanes_f16(const uint16_t *d, const int from) {
    return v_f16((const uint8_t *)(d + from));
}
/* For types without minima. */
INLINE VF lanes_no_dmin(const uint8_t *p, const int from) {
    (void)p;
    (void)from;
    return v_set1(0);
}
INLINE VF lanes_no_min(const uint8_t *p, const int g, const int from) {
    (void)p;
    (void)g;
    (void)from;
    return v_set1(0);
}

INLINE void lanes_unpack_q4_0(const uint8_t *p, const int g, const int from, LB u[8]) {
    const mnk_lanes_q4_0 *w = (const void *)p;
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        const LB both = l_load(w->q[g][c] + 4 * from);
        u[c] = l_field(both, 0, 15);
        u[4 + c] = l_field(both, 4, 15);
    }
}
INLINE VF lanes_scale_q4_0(const uint8_t *p, const int g, const int h, const int from) {
    const mnk_lanes_q4_0 *w = (const void *)p;
    (void)h;
    return lanes_f16(w->d[g], from);
}
#define lanes_min_q4_0 lanes_no_min
INLINE VF lanes_d_q4_0(const uint8_t *p, const int from) {
    (void)p;
    (void)from;
    return v_set1(1);
}
#define lanes_dmin_q4_0 lanes_no_dmin

/* What Q4_K and Q5_K have alike. */
INLINE VF lanes_scale_k(const uint8_t *p, const int g, const int h, const int from) {
    const mnk_lanes_k *w = (const void *)p;
    (void)h;
    return l_u8(w->scale[g] + from);
}
INLINE VF lanes_min_k(const uint8_t *p, const int g, const int from) {
    const mnk_lanes_k *w = (const void *)p;
    return l_u8(w->min[g] + from);
}
INLINE VF lanes_d_k(const uint8_t *p, const int from) {
    const mnk_lanes_k *w = (const void *)p;
    return lanes_f16(w->d, from);
}
INLINE VF lanes_dmin_k(const uint8_t *p, const int from) {
    const mnk_lanes_k *w = (const void *)p;
    return lanes_f16(w->dmin, from);
}

INLINE void lanes_unpack_q4_k(const uint8_t *p, const int g, const int from, LB u[8]) {
    const mnk_lanes_q4_k *w = (const void *)p;
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        const LB both = l_load(w->q[g / 2][c] + 4 * from);
        u[c] = l_field(both, 4 * (g % 2), 15);
    }
}
#define lanes_scale_q4_k lanes_scale_k
#define lanes_min_q4_k lanes_min_k
#define lanes_d_q4_k lanes_d_k
#define lanes_dmin_q4_k lanes_dmin_k

INLINE void lanes_unpack_q5_k(const uint8_t *p, const int g, const int from, LB u[8]) {
    const mnk_lanes_q5_k *w = (const void *)p;
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        const LB both = l_load(w->q[g / 2][c] + 4 * from);
        const LB bits = l_load(w->high[c] + 4 * from);
        const LB four = l_field(both, 4 * (g % 2), 15);
        const LB fifth = l_field(bits, g - 4, 16);
        u[c] = l_or(four, fifth);
    }
}
#define lanes_scale_q5_k lanes_scale_k
#define lanes_min_q5_k lanes_min_k
#define lanes_d_q5_k lanes_d_k
#define lanes_dmin_q5_k lanes_dmin_k

INLINE void lanes_unpack_q6_k(const uint8_t *p, const int g, const int from, LB u[8]) {
    const mnk_lanes_q6_k *w = (const void *)p;
    const uint8_t(*low)[MNK_LANES_LINE] = w->half[g / 4].low;
    const uint8_t(*high)[MNK_LANES_LINE] = w->half[g / 4].high;
    if (g % 2)
        low = w->half[g / 4].low_next;
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        const LB both = l_load(low[c] + 4 * from);
        const LB bits = l_load(high[c] + 4 * from);
        const LB four = l_field(both, g % 4 / 2 * 4, 15);
        const LB two = l_field(bits, 2 * (g % 4) - 4, 48);
        u[c] = l_or(four, two);
    }
}
INLINE VF lanes_scale_q6_k(const uint8_t *p, const int g, const int h, const int from) {
    const mnk_lanes_q6_k *w = (const void *)p;
    return l_i8(w->scale[2 * g + h] + from);
}
#define lanes_min_q6_k lanes_no_min
INLINE VF lanes_d_q6_k(const uint8_t *p, const int from) {
    const mnk_lanes_q6_k *w = (const void *)p;
    return lanes_f16(w->d, from);
}
#define lanes_dmin_q6_k lanes_no_dmin

/* Affine types of 4 bits. What minima take off is subtracted, offsets are added: their factor is
 * negative. */
#define LANES_MLX4(n)                                                                              \
    INLINE void lanes_unpack_mlx4_##n(const uint8_t *p, const int g, const int from, LB u[8]) {    \
        const mnk_lanes_mlx4_##n *w = (const void *)p;                                             \
        _Pragma("GCC unroll 4") for (int c = 0; c < 4; c++) {                                      \
            const LB both = l_load(w->q[g][c] + 4 * from);                                         \
            u[c] = l_field(both, 0, 15);                                                           \
            u[4 + c] = l_field(both, 4, 15);                                                       \
        }                                                                                          \
    }                                                                                              \
    INLINE VF lanes_scale_mlx4_##n(const uint8_t *p, const int g, const int h, const int from) {   \
        const mnk_lanes_mlx4_##n *w = (const void *)p;                                             \
        (void)h;                                                                                   \
        return lanes_f16(w->scale[32 * g / n], from);                                              \
    }                                                                                              \
    INLINE VF lanes_min_mlx4_##n(const uint8_t *p, const int g, const int from) {                  \
        const mnk_lanes_mlx4_##n *w = (const void *)p;                                             \
        return lanes_f16(w->min[32 * g / n], from);                                                \
    }                                                                                              \
    INLINE VF lanes_d_mlx4_##n(const uint8_t *p, const int from) {                                 \
        const mnk_lanes_mlx4_##n *w = (const void *)p;                                             \
        return v_bf16((const uint8_t *)(w->d + from));                                             \
    }                                                                                              \
    INLINE VF lanes_dmin_mlx4_##n(const uint8_t *p, const int from) {                              \
        const mnk_lanes_mlx4_##n *w = (const void *)p;                                             \
        return v_bf16((const uint8_t *)(w->dmin + from));                                          \
    }
LANES_MLX4(32)
LANES_MLX4(64)
LANES_MLX4(128)

typedef struct {
    int64_t bytes; /* of a span of MNK_LANES rows */
    int of_scale;  /* columns of a scale: 16 or 32 */
    int off;       /* how much too large numbers are; 0: the type may have minima */
    int fit;       /* sums of two products that fit into 16 bits */
    int top;       /* the largest number */
    int min;       /* columns that share a minimum; 0: there are none */
    void (*unpack)(const uint8_t *p, const int g, const int from, LB u[8]);
    VF (*scale)(const uint8_t *p, const int g, const int h, const int from);
    VF (*least)(const uint8_t *p, const int g, const int from);
    VF (*d)(const uint8_t *p, const int from);
    VF (*dmin)(const uint8_t *p, const int from);
} lanes_type;
#define LANES_TYPE(ID, type, of_scale, off, fit, top, min, ...)                                    \
    static const lanes_type lanes_type_##type = {                                                  \
        sizeof(mnk_lanes_##type),                                                                  \
        of_scale,                                                                                  \
        off,                                                                                       \
        fit,                                                                                       \
        top,                                                                                       \
        min,                                                                                       \
        lanes_unpack_##type,                                                                       \
        lanes_scale_##type,                                                                        \
        lanes_min_##type,                                                                          \
        lanes_d_##type,                                                                            \
        lanes_dmin_##type,                                                                         \
    };
MNK_LANES_TYPES(LANES_TYPE, )

/* Where the spans of up to MNK_LANES_STREAMS groups of rows begin: of turn j, groups that are far
 * apart, so that the memory has several places to read at. */
typedef struct {
    int64_t first; /* group */
    int64_t groups;
    int64_t turns;
} lanes_turns;
INLINE lanes_turns lanes_turns_of(int64_t lo, int64_t hi) {
    const int64_t first = lo / MNK_LANES;
    const int64_t groups = (hi + MNK_LANES - 1) / MNK_LANES - first;
    const int64_t turns = (groups + MNK_LANES_STREAMS - 1) / MNK_LANES_STREAMS;
    return (lanes_turns){first, groups, turns};
}
/* Returns how many there are. */
INLINE int64_t lanes_begin(const mnc_weight *w, const lanes_turns *t, int64_t j,
                           const lanes_type type, const uint8_t *p[MNK_LANES_STREAMS]) {
    const int64_t bytes = w->cols / MNK_LANES_SPAN * type.bytes;
    const uint8_t *first = (const uint8_t *)w->repacked + t->first * bytes;
    int64_t n = 0;
    for (int64_t g = j; g < t->groups; g += t->turns) {
        p[n] = first + g * bytes;
        n++;
    }
    return n;
}
/* Sums of turn j's groups, of one row of x, of which rows [lo, hi) are wanted. */
INLINE void lanes_end(const lanes_turns *t, int64_t j, int64_t n, int64_t lo, int64_t hi,
                      float (*sum)[MNK_LANES], float *y) {
    for (int64_t s = 0; s < n; s++) {
        const int64_t group = t->first + j + t->turns * s;
        const int64_t at = MNK_LANES * group;
        const int64_t first = at < lo ? lo : at;
        int64_t end = at + MNK_LANES;
        if (end > hi)
            end = hi;
        const size_t bytes = (size_t)(end - first) * sizeof *y;
        memcpy(y + first, sum[s] + first - at, bytes);
    }
}
/* acc of n groups, of one row of x, + the sums of a span. */
INLINE void lanes_close(float (*acc)[MNK_LANES], const uint8_t *const *p, int64_t n,
                        const lanes_sums *o, const lanes_type t) {
    for (int64_t s = 0; s < n; s++)
        for (int from = 0; from < MNK_LANES; from += VL) {
            const VF d = t.d(p[s], from);
            const VF dmin = t.dmin(p[s], from);
            const VF scaled = v_load(o[s].sum + from);
            VF sum = v_load(acc[s] + from);
            sum = v_fma(d, scaled, sum);
            if (t.min) {
                const VF less = v_load(o[s].less + from);
                sum = v_sub(sum, v_mul(dmin, less));
            }
            v_store(acc[s] + from, sum);
        }
}
/* NAME##mlx4, by the functions of each length of a group. */
#define LANES_BY_GROUP(name)                                                                       \
    static void name##mlx4(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,       \
                           int64_t hi, void *panel) {                                              \
        if (w->dtype.block_elems == 32)                                                            \
            name##mlx4_32(w, pair, r, lo, hi, panel);                                              \
        else if (w->dtype.block_elems == 64)                                                       \
            name##mlx4_64(w, pair, r, lo, hi, panel);                                              \
        else                                                                                       \
            name##mlx4_128(w, pair, r, lo, hi, panel);                                             \
    }
