/* rows_f32.c -- matrix products with f32 activations and f32 sums, for every weight type, on the
 * vocabulary of vec_*.h. One order of summation for dot and gemm: lane l of column c adds columns
 * l, l + VL, ... within MNK_KC columns, then the lanes are added, then the spans of MNK_KC columns.
 * So a row's result does not depend on how many rows there are. */
#include "vec.h"
#include "f32_panel.h"

#define PANEL_ROWS 48 /* a multiple of NR; with MNK_KC columns 192 KiB: half of a small L2 */
#define AHEAD 1024    /* bytes of software prefetch on each stream */
typedef VF (*load_fn)(const uint8_t *);

static inline VF v_f32(const uint8_t *p) {
    return v_load(p);
}
/* n < VL elements, then zeros */
INLINE VF load_tail(load_fn ld, const uint8_t *p, int64_t n, int64_t es) {
    uint8_t b[4 * VL] = {0};
    memcpy(b, p, (size_t)(n * es));
    return ld(b);
}

/* ---- one x row against MNK_STREAMS weight rows, straight from the file ----------------------- */

/* F8_E4M3 has a scale for each row; the other plain types have none. */
INLINE VF row_scale(const mnc_weight *w, const mnk_at *at) {
    if (!at->scale)
        return v_set1(1);
    return v_set1(mnk_load1(at->scale, w->scale.dtype, 0));
}
INLINE VF scaled(VF v, VF scale, const bool has) {
    return has ? v_mul(v, scale) : v;
}

INLINE void dot_plain(const mnc_weight *w, const int64_t row[MNK_STREAMS], const uint8_t *x,
                      float *out, const int64_t es, load_fn ld, const bool has) {
    const int64_t k = w->cols;
    const int64_t line = 64 / es;
    mnk_at at[MNK_STREAMS];
    VF scale[MNK_STREAMS];
    for (int s = 0; s < MNK_STREAMS; s++) {
        at[s] = mnk_row_at(w, row[s]);
        out[s] = 0;
        if (has)
            scale[s] = row_scale(w, &at[s]);
    }
    for (int64_t k0 = 0; k0 < k; k0 += MNK_KC) {
        int64_t end = k - k0 < MNK_KC ? k : k0 + MNK_KC;
        int64_t i = k0;
        VF acc[MNK_STREAMS];
        for (int s = 0; s < MNK_STREAMS; s++)
            acc[s] = v_set1(0);
        for (; i + line <= end; i += line)
#pragma GCC unroll 8
            for (int s = 0; s < MNK_STREAMS; s++) {
                const uint8_t *p = at[s].data + es * i;
                v_prefetch(p + AHEAD);
#pragma GCC unroll 16
                for (int64_t j = i; j < i + line; j += VL) {
                    const VF stored = ld(at[s].data + es * j);
                    const VF weight = scaled(stored, scale[s], has);
                    const VF of_x = v_load(x + 4 * j);
                    acc[s] = v_fma(weight, of_x, acc[s]);
                }
            }
        for (; i + VL <= end; i += VL)
            for (int s = 0; s < MNK_STREAMS; s++) {
                const VF stored = ld(at[s].data + es * i);
                const VF weight = scaled(stored, scale[s], has);
                const VF of_x = v_load(x + 4 * i);
                acc[s] = v_fma(weight, of_x, acc[s]);
            }
        if (i < end) {
            float xt[VL] = {0};
            const int64_t left = end - i;
            memcpy(xt, x + 4 * i, (size_t)(4 * left));
            for (int s = 0; s < MNK_STREAMS; s++) {
                const uint8_t *p = at[s].data + es * i;
                const VF tail = load_tail(ld, p, left, es);
                const VF weight = scaled(tail, scale[s], has);
                acc[s] = v_fma(weight, v_load(xt), acc[s]);
            }
        }
        for (int s = 0; s < MNK_STREAMS; s++)
            out[s] += v_sum(acc[s]);
    }
}

/* Types of blocks: what a kernel knows of its own, constant after inlining. 32 elements at a
 * time. */
typedef struct {
    int64_t elems;
    int64_t bytes;
    void (*scales)(const mnc_weight *, const mnk_at *, int64_t b, float *d, float *m);
    /* 32/VL vectors */
    void (*values)(const uint8_t *p, int j, const float *d, const float *m, VF *v);
} block_type;

INLINE void prefetch_block(const uint8_t *p, const int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64)
        v_prefetch(p + i);
}
INLINE VF dot_one_block(VF acc, const mnc_weight *w, const mnk_at *at, int64_t b, const uint8_t *x,
                        const block_type t) {
    const uint8_t *p = at->data + b * t.bytes;
    float d[32];
    float m[32];
    VF v[32 / VL];
    prefetch_block(p + AHEAD, t.bytes);
    t.scales(w, at, b, d, m);
#pragma GCC unroll 8
    for (int j = 0; j < t.elems / 32; j++) {
        const uint8_t *xj = x + 4 * 32 * j;
        t.values(p, j, d, m, v);
#pragma GCC unroll 8
        for (int i = 0; i < 32 / VL; i++)
            acc = v_fma(v[i], v_load(xj + 4 * VL * i), acc);
    }
    return acc;
}
INLINE void dot_block(const mnc_weight *w, const int64_t row[MNK_STREAMS], const uint8_t *x,
                      float *out, const block_type t) {
    const int64_t n = w->cols / t.elems;
    const int64_t per = MNK_KC / t.elems;
    mnk_at at[MNK_STREAMS];
    for (int s = 0; s < MNK_STREAMS; s++) {
        at[s] = mnk_row_at(w, row[s]);
        out[s] = 0;
    }
    for (int64_t b0 = 0; b0 < n; b0 += per) {
        VF acc[MNK_STREAMS];
        for (int s = 0; s < MNK_STREAMS; s++)
            acc[s] = v_set1(0);
        for (int64_t b = b0; b < n && b < b0 + per; b++) {
            const uint8_t *xb = x + 4 * t.elems * b;
            if (t.elems == 32)
#pragma GCC unroll 8
                for (int s = 0; s < MNK_STREAMS; s++)
                    acc[s] = dot_one_block(acc[s], w, &at[s], b, xb, t);
            else
#pragma GCC unroll 1
                for (int s = 0; s < MNK_STREAMS; s++)
                    acc[s] = dot_one_block(acc[s], w, &at[s], b, xb, t);
        }
        for (int s = 0; s < MNK_STREAMS; s++)
            out[s] += v_sum(acc[s]);
    }
}

/* ---- panels: [rows up to a multiple of NR, kc up to a multiple of VL] in f32, padded with zeros;
 * rows are a line further apart, or those of MNK_KC columns would all fall into one set of an L1
 * cache ---- */
#define PANEL_SPAN(kc) (((kc) + VL - 1) / VL * VL)
#define PANEL_LD(kc) (PANEL_SPAN(kc) + 16)
static uint64_t panel_bytes(int64_t k) {
    (void)k;
    return (uint64_t)PANEL_ROWS * PANEL_LD(MNK_KC) * sizeof(float);
}
static NOINLINE void panel_pad(float *panel, int64_t n, int64_t ld) {
    const int64_t up = (n + NR - 1) / NR * NR;
    const size_t missing = (size_t)((up - n) * ld);
    if (up > n)
        memset(panel + n * ld, 0, missing * sizeof *panel);
}
INLINE void unpack_plain(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t kc,
                         void *panel, const int64_t es, load_fn ld, const bool has) {
    int64_t pl = PANEL_LD(kc);
    for (int64_t r = 0; r < n; r++) {
        const mnk_at at = mnk_row_at(w, row + r);
        const uint8_t *src = at.data + es * k0;
        const VF scale = has ? row_scale(w, &at) : v_set1(1);
        float *dst = (float *)panel + r * pl;
        int64_t i = 0;
        for (; i + VL <= kc; i += VL) {
            v_prefetch(src + es * i + AHEAD);
            v_store(dst + i, scaled(ld(src + es * i), scale, has));
        }
        if (i < kc) {
            const VF tail = load_tail(ld, src + es * i, kc - i, es);
            v_store(dst + i, scaled(tail, scale, has));
        }
    }
    panel_pad(panel, n, pl);
}
INLINE void unpack_block(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t kc,
                         void *panel, const block_type t) {
    for (int64_t r = 0; r < n; r++) {
        const mnk_at at = mnk_row_at(w, row + r);
        float *dst = (float *)panel + r * PANEL_LD(kc);
        const int64_t end = (k0 + kc) / t.elems;
        for (int64_t b = k0 / t.elems; b < end; b++) {
            float d[32];
            float m[32];
            const uint8_t *p = at.data + b * t.bytes;
            prefetch_block(p + AHEAD, t.bytes);
            t.scales(w, &at, b, d, m);
#pragma GCC unroll 8
            for (int j = 0; j < t.elems / 32; j++, dst += 32) {
                VF v[32 / VL];
                t.values(p, j, d, m, v);
                for (int i = 0; i < 32 / VL; i++)
                    v_store(dst + VL * i, v[i]);
            }
        }
    }
    panel_pad(panel, n, PANEL_LD(kc));
}

static void gemm_f32(const void *panel, int64_t n, int64_t kc, const mnk_pair *pair, int64_t x0,
                     int64_t r, int64_t y0, bool first) {
    f32_multiply(panel, PANEL_LD(kc), n, kc, pair, x0, r, y0, first);
}

/* ---- the rows -------------------------------------------------------------------------------- */
#define F32_PRODUCT(type, dot_how, unpack_how, ...)                                                \
    static void dot_##type(const mnc_weight *w, const int64_t row[MNK_STREAMS], const uint8_t *x,  \
                           float *out) {                                                           \
        dot_how(w, row, x, out, __VA_ARGS__);                                                      \
    }                                                                                              \
    static void unpack_##type(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t kc, \
                              void *panel) {                                                       \
        unpack_how(w, row, n, k0, kc, panel, __VA_ARGS__);                                         \
    }
F32_PRODUCT(f32, dot_plain, unpack_plain, 4, v_f32, false)
F32_PRODUCT(f16, dot_plain, unpack_plain, 2, v_f16, false)
F32_PRODUCT(bf16, dot_plain, unpack_plain, 2, v_bf16, false)
F32_PRODUCT(f8_e5m2, dot_plain, unpack_plain, 1, v_e5m2, false)
F32_PRODUCT(f8_e4m3, dot_plain, unpack_plain, 1, v_e4m3, true)

/* A scale for 128 columns of 128 rows; the rows are the groups of the weight. */
INLINE void f8_e4m3_128_scales(const mnc_weight *w, const mnk_at *at, int64_t b, float *d,
                               float *m) {
    (void)m;
    const uint8_t *scale = at->scale + (uint64_t)b / 4 * w->scale.step;
    d[0] = mnk_load1(scale, w->scale.dtype, 0);
}
INLINE void f8_e4m3_128_values(const uint8_t *p, int j, const float *d, const float *m, VF *v) {
    (void)j;
    (void)m;
#pragma GCC unroll 8
    for (int i = 0; i < 32 / VL; i++)
        v[i] = v_mul(v_set1(d[0]), v_e4m3(p + VL * i));
}
/* MXFP8: a power of two for each block. */
INLINE void f8_e4m3_32_scales(const mnc_weight *w, const mnk_at *at, int64_t b, float *d,
                              float *m) {
    (void)m;
    const uint8_t *scale = at->scale + (uint64_t)b * w->scale.step;
    const float half = mnk_e8m0_half(*scale);
    d[0] = 2 * half;
}
F32_PRODUCT(f8_e4m3_32, dot_block, unpack_block,
            (block_type){32, 32, f8_e4m3_32_scales, f8_e4m3_128_values})
/* NF4 and FP4: the codes are no integers times a scale, so that there are no kernels of bytes. Two
 * of the kernel's blocks have one scale. */
INLINE void table4_scales(const mnc_weight *w, const mnk_at *at, int64_t b, float *d, float *m) {
    (void)m;
    const uint8_t *scale = at->scale + (uint64_t)b / 2 * w->scale.step;
    const uint32_t dtype = w->scale.dtype;
    d[0] = mnk_load1(scale, dtype, 0);
}
INLINE void table4_values(const float *table, const uint8_t *p, const float *d, VF *v) {
    const VF scale = v_set1(d[0]);
#pragma GCC unroll 8
    for (int i = 0; i < 32 / VL; i++) {
        const VF some = v_table16(table, p + VL / 2 * i);
        v[i] = v_mul(scale, some);
    }
}
INLINE void nf4_64_values(const uint8_t *p, int j, const float *d, const float *m, VF *v) {
    (void)j;
    (void)m;
    table4_values(mn_nf4_values, p, d, v);
}
INLINE void fp4_64_values(const uint8_t *p, int j, const float *d, const float *m, VF *v) {
    (void)j;
    (void)m;
    table4_values(mn_fp4_values, p, d, v);
}
F32_PRODUCT(nf4_64, dot_block, unpack_block, (block_type){32, 16, table4_scales, nf4_64_values})
F32_PRODUCT(fp4_64, dot_block, unpack_block, (block_type){32, 16, table4_scales, fp4_64_values})
/* Columns in the order of activations: each has a scale and a bias of its own, from the row's. */
INLINE void pick_scales(const mnc_weight *w, const mnk_at *at, int64_t b, float *d, float *m) {
    int32_t pick[32];
    (void)w;
    memcpy(pick, at->pick + b * (int64_t)sizeof pick, sizeof pick);
    for (int i = 0; i < 32; i++) {
        const uint8_t *scale = at->scale + 4 * pick[i];
        const uint8_t *bias = at->bias + 4 * pick[i];
        memcpy(&d[i], scale, sizeof *d);
        memcpy(&m[i], bias, sizeof *m);
    }
}
/* Codes less `less`, which is given back with the bias. */
INLINE void pick_values(const VB codes, const int less, const float *d, const float *m, VF *v) {
    const VF back = v_set1((float)less);
#pragma GCC unroll 8
    for (int i = 0; i < 32 / VL; i++) {
        const VF scale = v_load(d + VL * i);
        const VF code = v_of(codes, VL * i);
        VF bias = v_load(m + VL * i);
        if (less)
            bias = v_fma(scale, back, bias);
        v[i] = v_fma(scale, code, bias);
    }
}
INLINE void pick4_32_values(const uint8_t *p, int j, const float *d, const float *m, VF *v) {
    (void)j;
    const VB codes = vb_pairs(p);
    pick_values(codes, 0, d, m, v);
}
INLINE void pick8_32_values(const uint8_t *p, int j, const float *d, const float *m, VF *v) {
    (void)j;
    const VB codes = vb_load(p);
    const VB less = vb_flip(codes);
    pick_values(less, 128, d, m, v);
}
F32_PRODUCT(pick4_32, dot_block, unpack_block, (block_type){32, 16, pick_scales, pick4_32_values})
F32_PRODUCT(pick8_32, dot_block, unpack_block, (block_type){32, 32, pick_scales, pick8_32_values})
F32_PRODUCT(f8_e4m3_128, dot_block, unpack_block,
            (block_type){32, 32, f8_e4m3_128_scales, f8_e4m3_128_values})

#define BLOCK_PRODUCT(type, e, b, group, off, min, apart, ...)                                     \
    INLINE void type##_values(const uint8_t *p, int j, const float *d, const float *m, VF *v) {    \
        const VB s = off == 128 ? vb_flip(type##_bytes(p, j)) : vb_less(type##_bytes(p, j), off);  \
        _Pragma("GCC unroll 8") for (int i = 0; i < 32 / VL; i++) {                                \
            const int g = (32 * j + VL * i) / group;                                               \
            v[i] = min ? v_fma(v_set1(d[g]), v_of(s, VL * i), v_set1(m[g]))                        \
                       : v_mul(v_set1(d[g]), v_of(s, VL * i));                                     \
        }                                                                                          \
    }                                                                                              \
    F32_PRODUCT(type, dot_block, unpack_block, (block_type){e, b, type##_scales, type##_values})
MNK_BLOCKS(BLOCK_PRODUCT, )

#define F32_KERNEL(type, of, ...)                                                                  \
    [MNK_KERNEL_##type] = {                                                                        \
        .name = #type " f32 " V_NAME,                                                              \
        .x_form = MNK_X_F32,                                                                       \
        .panel_rows = PANEL_ROWS,                                                                  \
        .few_panel_rows = 12,                                                                      \
        .kc = MNK_KC,                                                                              \
        .grain = of,                                                                               \
        .panel_bytes = panel_bytes,                                                                \
        .dot = dot_##type,                                                                         \
        .unpack = unpack_##type,                                                                   \
        .gemm = gemm_f32,                                                                          \
    },
const mnk_linear V_ID(mnk_f32)[MNK_N_KERNELS] = {
    F32_KERNEL(f32, 1) F32_KERNEL(f16, 1) F32_KERNEL(bf16, 1) F32_KERNEL(f8_e5m2, 1)
        F32_KERNEL(f8_e4m3, 1) F32_KERNEL(f8_e4m3_128, 32) F32_KERNEL(f8_e4m3_32, 32)
            F32_KERNEL(nf4_64, 64) F32_KERNEL(fp4_64, 64) F32_KERNEL(pick4_32, 32)
                F32_KERNEL(pick8_32, 32) MNK_BLOCKS(F32_KERNEL, )};
