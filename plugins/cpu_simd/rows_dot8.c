/* rows_dot8.c -- products of 8-bit activations with up to MNK_FEW_ROWS rows: whole-number sums of
 * 16 or 32 elements in the lanes that vx_fold makes, scaled and added in f32. Minima meet the sums
 * of the activations. More rows than that are multiplied through panels: of f32 (rows_f32.c), or of
 * bytes (rows_panels8.c). */
#include "vec.h"
#define DOT8_AHEAD 1024 /* bytes of prefetch on each row */

/* What all weight rows of a product need of one block of x. */
typedef struct {
    VX x[8];
    float d[16], sum[16]; /* per group: scale of x; it times the sum of x */
    VF first;             /* sum[0] in one lane */
} x_block;
INLINE void load_x(x_block *o, const uint8_t *x, int64_t k, int64_t b, const a8_type t) {
    const int64_t elems = t.elems;
    const int group = t.group;
    const float *d = mnk_quant_d(x, k) + b * elems / 32;
    const int32_t *sum4 = mnk_quant_sum4(x, k) + b * elems / 4;
    const int32_t *sums = group == 32 ? mnk_quant_sum(x, k) : mnk_quant_sum16(x, k);
    const int32_t *sum = sums + b * elems / group;
    const int8_t *q = (const int8_t *)x + elems * b;
    for (int j = 0; j < elems / 32; j++)
        o->x[j] = vx_load(q + 32 * j, sum4 + 8 * j, t.off);
    for (int g = 0; g < elems / group; g++) {
        o->d[g] = d[g * group / 32];
        if (t.min)
            o->sum[g] = o->d[g] * (float)sum[g];
    }
    if (t.min && elems == group) {
        float t[VL] = {o->sum[0]};
        o->first = v_load(t);
    }
}

INLINE VF add_block(VF acc, const mnc_weight *w, const mnk_at *at, int64_t b, const x_block *x,
                    const a8_type t) {
    const uint8_t *p = at->data + b * t.bytes;
    const int n = (int)(t.elems / t.group);
    float d[16];
    float m[16];
    for (int64_t i = 0; i < t.bytes; i += 64)
        v_prefetch(p + DOT8_AHEAD + i);
    t.scales(w, at, b, d, m);
    if (t.elems == 32) { /* one group, or two of 16 without minima */
        if (t.min)
            acc = v_fma(v_set1(m[0]), x->first, acc);
        for (int i = 0; i < n; i++)
            d[i] *= x->d[i];
        const VB u = t.u(p, 0);
        return vx_fold(acc, u, x->x, d, t.group, t.off);
    }
    VF even = v_set1(0); /* two chains of sums: their latency is what a block waits for */
    for (int i = 0; i < n; i += VL) {
        const VF both = v_mul(v_load(d + i), v_load(x->d + i));
        if (t.min)
            acc = v_fma(v_load(m + i), v_load(x->sum + i), acc);
        v_store(d + i, both);
    }
    /* in memory: a load can spread a scale, of a register it takes two shuffles */
    __asm__("" : "+m"(d));
#pragma GCC unroll 4
    for (int j = 0; j < t.elems / 32; j += 2) {
        const float *e = d + 32 / t.group * j;
        const float *o = e + 32 / t.group;
        const VX *pair = &x->x[j];
        const VB first = t.u(p, j);
        even = vx_fold(even, first, pair, e, t.group, t.off);
        const VB second = t.u(p, j + 1);
        acc = vx_fold(acc, second, pair + 1, o, t.group, t.off);
    }
    return v_add(acc, even);
}

/* Blocks [b, end) of t. */
#define ADD_BLOCK(s) acc[s] = add_block(acc[s], w, &at[s], b, &xb, t)
INLINE void add_blocks(VF acc[MNK_STREAMS], const mnc_weight *w, const mnk_at at[MNK_STREAMS],
                       const uint8_t *x, int64_t b, int64_t end, const a8_type t) {
    const int64_t k = w->cols;
    x_block xb;
    for (; b < end; b++) {
        load_x(&xb, x, k, b, t);
        if (t.elems == 32)
#pragma GCC unroll 8
            for (int s = 0; s < MNK_STREAMS; s++)
                ADD_BLOCK(s);
        else
#pragma GCC unroll 1
            for (int s = 0; s < MNK_STREAMS; s++)
                ADD_BLOCK(s);
    }
}
/* wide: t with eight blocks at a time, for as long as there are eight; elems 0 = none. */
INLINE void dot_a8(const mnc_weight *w, const int64_t row[MNK_STREAMS], const uint8_t *x,
                   float *out, const a8_type t, const a8_type wide) {
    int64_t done = 0;
    mnk_at at[MNK_STREAMS];
    VF acc[MNK_STREAMS];
    for (int s = 0; s < MNK_STREAMS; s++) {
        at[s] = mnk_row_at(w, row[s]);
        acc[s] = v_set1(0);
    }
    if (wide.elems) {
        const int64_t n_wide = w->cols / wide.elems;
        add_blocks(acc, w, at, x, 0, n_wide, wide);
        done = n_wide * wide.elems / t.elems;
    }
    add_blocks(acc, w, at, x, done, w->cols / t.elems, t);
    for (int s = 0; s < MNK_STREAMS; s++)
        out[s] = v_sum(acc[s]);
}

#define A8_WIDE_0(type, bytes, group, off, min)                                                    \
    { 0 }
#ifndef V_SCALES8
#define A8_WIDE_1 A8_WIDE_0
#else
#define A8_WIDE_1(type, bytes, group, off, min)                                                    \
    { 256, 8 * bytes, group, off, min, type##_scales8, type##_bytes }
#endif
#define A8_DOT(type, e, bytes, group, off, min, apart, ...)                                        \
    static void dot_a8_##type(const mnc_weight *w, const int64_t row[MNK_STREAMS],                 \
                              const uint8_t *x, float *out) {                                      \
        const a8_type wide = A8_WIDE_##apart(type, bytes, group, off, min);                        \
        dot_a8(w, row, x, out, (a8_type){e, bytes, group, off, min, type##_scales, type##_bytes},  \
               wide);                                                                              \
    }
MNK_BLOCKS(A8_DOT, )
#define DOT8_KERNEL(type, e, ...)                                                                  \
    [MNK_KERNEL_##type] = {                                                                        \
        .name = #type " dot8 " V_NAME,                                                             \
        .x_form = MNK_X_A8,                                                                        \
        .grain = e,                                                                                \
        .dot = dot_a8_##type,                                                                      \
    },
const mnk_linear V_ID(mnk_dot8)[MNK_N_KERNELS] = {MNK_BLOCKS(DOT8_KERNEL, )};
