/* panels8.h -- what the bodies of byte panels share: a panel's size, its product, and the loop that
 * unpacks some weight rows and multiplies them. PANEL_SIDE weight rows lie side by side,
 * PANEL_BLOCKS blocks of 32 columns. A block: the numbers in the order that the products of the
 * instruction set want, f32 scales [groups][PANEL_SIDE], then minima if the layout has any: so two
 * sizes of group, with and without minima, make four layouts for all types, or a few more where
 * numbers differ in size. A panel is multiplied as soon as it is unpacked: it is in the first
 * cache, and prefetches of what comes next have that time. */
enum {
    ROWS = 64,     /* weight rows of a panel */
    FEW_ROWS = 16, /* ... for up to SOME_X rows of x */
    SOME_X = 48,
};

/* Columns [k0, k0 + 32 * blocks) of all. */
typedef struct {
    int64_t k0;
    int64_t blocks;
} panel_span;

/* The n rows of a panel, from output y0 on, with r > MNK_FEW_ROWS rows of x. */
typedef void (*multiplier)(const uint8_t *panel, int64_t n, int64_t k, const panel_span *of,
                           const mnk_pair *pair, int64_t r, int64_t y0);
/* Rows [row, row + n) and columns [k0, k0 + k) to a panel. */
typedef void (*unpacker)(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t k,
                         void *panel);
/* Of each layout: its description, the bytes of a panel, and its product, which rows_panels8.c
 * defines. */
#define PANEL_LAYOUT(group, min, fit)                                                              \
    static const panel_layout layout_##group##_##min##_##fit = {group, min, fit};                  \
    void V_ID(mnk_gemm8_##group##_##min##_##fit)(const uint8_t *panel, int64_t n, int64_t k,       \
                                                 const panel_span *of, const mnk_pair *pair,       \
                                                 int64_t r, int64_t y0);                           \
    static const multiplier gemm_##group##_##min##_##fit =                                         \
        V_ID(mnk_gemm8_##group##_##min##_##fit);                                                   \
    static inline uint64_t panel_bytes_##group##_##min##_##fit(int64_t k) {                        \
        (void)k;                                                                                   \
        return (uint64_t)(ROWS * PANEL_BLOCKS / PANEL_SIDE *                                       \
                          panel_block_bytes(layout_##group##_##min##_##fit));                      \
    }
PANEL_LAYOUTS(PANEL_LAYOUT)

/* Weight rows [lo, hi) with r > MNK_FEW_ROWS rows of x. */
INLINE void panel_product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,
                          int64_t hi, void *panel, unpacker unpack_rows, multiplier multiply_rows) {
    const int64_t most = r <= SOME_X ? FEW_ROWS : ROWS;
    for (int64_t j = lo; j < hi; j += most) {
        const int64_t n = hi - j < most ? hi - j : most;
        for (int64_t k0 = 0; k0 < w->cols; k0 += 32 * PANEL_BLOCKS) {
            const int64_t left = (w->cols - k0) / 32;
            const panel_span of = {k0, left < PANEL_BLOCKS ? left : PANEL_BLOCKS};
            unpack_rows(w, j, n, k0, 32 * of.blocks, panel);
            multiply_rows(panel, n, w->cols, &of, pair, r, j);
        }
    }
}

/* The product of a type, whose panels `unpack` makes. */
#define PANEL_PRODUCT(type, group, min, top, unpack)                                               \
    static void product_##type(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,   \
                               int64_t hi, void *panel) {                                          \
        panel_product(w, pair, r, lo, hi, panel, unpack, PANEL_LAYOUT_OF(gemm, group, min, top));  \
    }
#define PANEL_KERNEL(type, body, e, group, min, top)                                               \
    {                                                                                              \
        .name = #type body V_NAME, .x_form = MNK_X_A8, .grain = e,                                 \
        .panel_bytes = PANEL_LAYOUT_OF(panel_bytes, group, min, top), .product = product_##type,   \
    }
