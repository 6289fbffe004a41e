/* rows_panels8.c -- more than MNK_FEW_ROWS x rows in 8 bits are multiplied through panels of bytes
 * (panels8.h): the unpackers of all types, and the products of all layouts. */
#include "vec.h"
#include "panels8.h"

/* One block of the type, of 8 weight rows: t.elems / 32 blocks of the panel. ahead: bytes to the
 * same place of the next 8. */
INLINE void panels_unpack8(const mnc_weight *w, const mnk_at at[8], int64_t b, int64_t ahead,
                           uint8_t *to, const a8_type t, const panel_layout l) {
    const int n = 32 / t.group; /* groups in 32 columns */
    const int bias = panel_bias(t.off, l);
    float d[8][16];
    float m[8][16];
    for (int i = 0; i < 8; i++) {
        t.scales(w, &at[i], b, d[i], m[i]);
        for (int64_t line = 0; line < t.bytes; line += 64)
            v_prefetch(at[i].data + b * t.bytes + ahead + line);
    }
#pragma GCC unroll 8 /* then shifts are constants */
    for (int j = 0; j < t.elems / 32; j++, to += panel_block_bytes(l)) {
        VB r[8];
        float *scale = (float *)(void *)(to + panel_number_bytes(l));
        for (int i = 0; i < 8; i++) {
            const float *di = d[i] + n * j;
            const float *mi = m[i] + n * j;
            r[i] = t.u(at[i].data + b * t.bytes, j);
            if (t.off != bias)
                r[i] = vb_less(r[i], (uint8_t)(t.off - bias));
            for (int g = 0; g < n; g++) {
                scale[PANEL_SIDE * g + i] = di[g];
                if (!l.min)
                    continue;
                float m_g = t.min ? mi[g] : 0;
                if (bias)
                    m_g -= (float)bias * di[g];
                scale[PANEL_SIDE * (n + g) + i] = m_g;
            }
        }
        panel_put8(r, to, l);
    }
}
INLINE void panels_unpack(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t k,
                          void *panel, const a8_type t, const panel_layout l) {
    const int64_t one = panel_block_bytes(l);
    for (int64_t g = 0; g < n; g += PANEL_SIDE)
        for (int h = 0; h < PANEL_SIDE; h += 8) {
            mnk_at at[8];
            const int64_t first = k0 / t.elems;
            const int64_t end = (k0 + k) / t.elems;
            uint8_t *to = (uint8_t *)panel + g / PANEL_SIDE * (k / 32) * one;
            to += 32 * (h / 8);
            for (int i = 0; i < 8; i++) { /* past the end: any row */
                int64_t r = g + h + i;
                if (r >= n)
                    r = n - 1;
                at[i] = mnk_row_at(w, row + r);
            }
            const int64_t ahead = 8 * (at[1].data - at[0].data);
            for (int64_t b = first; b < end; b++, to += t.elems / 32 * one)
                panels_unpack8(w, at, b, ahead, to, t, l);
        }
}

INLINE void panels_load_scales(panel_scales *to, const mnk_pair *pair, int64_t k, int64_t b0,
                               int64_t blocks, const panel_layout l, const int mr) {
    const int n = 32 / l.group;
    const int bias = panel_bias(0, l);
    for (int a = 0; a < mr; a++) {
        const uint8_t *x = pair[a].x;
        const float *d = mnk_quant_d(x, k) + b0;
        const int32_t *sums = n == 1 ? mnk_quant_sum(x, k) : mnk_quant_sum16(x, k);
        sums += n * b0;
        memcpy(to->d[a], d, (size_t)blocks * sizeof *d);
        for (int64_t g = 0; g < n * blocks; g++)
            if (l.min)
                to->of.sum[a][g] = d[g / n] * (float)sums[g];
            else if (bias)
                to->of.seed[a][g] = -bias * sums[g];
    }
}

/* mr x rows against the n rows of the panel. */
INLINE void few_rows(const uint8_t *panel, int64_t n, int64_t k, const panel_span *of,
                     const mnk_pair *pair, int64_t y0, const panel_layout l, const int mr) {
    panel_scales scales;
    panel_room room[PANEL_MOST];
    const uint8_t *x[PANEL_MOST];
    const int64_t one = of->blocks * panel_block_bytes(l);
    for (int a = 0; a < mr; a++) {
        const uint8_t *row = pair[a].x;
        x[a] = panel_x(row + of->k0, 32 * of->blocks, &room[a], l);
    }
    panels_load_scales(&scales, pair, k, of->k0 / 32, of->blocks, l, mr);
    const bool first = of->k0 == 0;
    for (int64_t j = 0; j < n; j += PANEL_SIDE, panel += one)
        panel_tile(panel, of->blocks, x, &scales, pair, y0 + j, n - j, first, l, mr);
}

/* r > MNK_FEW_ROWS rows in passes of about as many: in a short one products would wait for one
 * another. */
INLINE void panels_gemm(const uint8_t *panel, int64_t n, int64_t k, const panel_span *of,
                        const mnk_pair *pair, int64_t r, int64_t y0, const panel_layout l) {
    for (int64_t passes = (r + PANEL_MOST - 1) / PANEL_MOST; passes; passes--) {
        const int64_t mr = (r + passes - 1) / passes;
        switch (mr) {
#define PASS(rows)                                                                                 \
    case rows:                                                                                     \
        few_rows(panel, n, k, of, pair, y0, l, rows);                                              \
        break;
            PANEL_PASSES(PASS)
        }
        r -= mr;
        pair += mr;
    }
}
#define PANEL_GEMM(group, min, fit)                                                                \
    void V_ID(mnk_gemm8_##group##_##min##_##fit)(const uint8_t *panel, int64_t n, int64_t k,       \
                                                 const panel_span *of, const mnk_pair *pair,       \
                                                 int64_t r, int64_t y0) {                          \
        panels_gemm(panel, n, k, of, pair, r, y0, (panel_layout){group, min, fit});                \
    }
PANEL_LAYOUTS(PANEL_GEMM)

/* ---- the rows -------------------------------------------------------------------------------- */
#define PANELS8_PRODUCT(type, e, bytes, group, off, min, apart, top, ...)                          \
    static inline void unpack_##type(const mnc_weight *w, int64_t row, int64_t n, int64_t k0,      \
                                     int64_t kc, void *panel) {                                    \
        panels_unpack(w, row, n, k0, kc, panel,                                                    \
                      (a8_type){e, bytes, group, off, min, type##_scales, type##_bytes},           \
                      PANEL_LAYOUT_OF(layout, group, min, top));                                   \
    }                                                                                              \
    PANEL_PRODUCT(type, group, min, top, unpack_##type)
#define PANELS8_KERNEL(type, e, bytes, group, off, min, apart, top, ...)                           \
    [MNK_KERNEL_##type] = PANEL_KERNEL(type, " panels8 ", e, group, min, top),
MNK_BLOCKS(PANELS8_PRODUCT, )
const mnk_linear V_ID(mnk_panels8)[MNK_N_KERNELS] = {MNK_BLOCKS(PANELS8_KERNEL, )};
