/* rows_tiles16.c -- products of weights of 16 bits with more than a few x rows on AMX: both
 * sides in bf16, sums in f32. A tile of weights is 16 rows by 32 columns as they lie; one of x
 * has the same columns of 16 rows as pairs, [16 pairs][16 rows][2], so that only x, which is
 * smaller, is transposed. Sums stay in tiles over a segment. */
#include "vec.h"
#include "tiles_walk.h"

static const tile_form form = {0, BF16_COLUMNS, 2};

static void pack_rounded(const float *const x[SIDE], int64_t n, int64_t k, uint8_t *to) {
    pack_bf16(x, n, k, to, 1);
}
static void pack_split(const float *const x[SIDE], int64_t n, int64_t k, uint8_t *to) {
    pack_bf16(x, n, k, to, 2);
}

/* ---- weights --------------------------------------------------------------------------------- */
/* 32 columns of a row as they are stored, zeros behind its end. */
INLINE __m512i load_halves(const uint8_t *p, int64_t left) {
    if (left >= BF16_COLUMNS)
        return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16((1u << left) - 1, p);
}
INLINE void unpack_bf16(const mnc_weight *w, int64_t row, int64_t end, columns of, uint8_t *to,
                        float *step) {
    mnk_at at[SIDE];
    (void)step;
    rows_at(w, row, end, at);
    for (int64_t c = 0; c < of.kc; c += BF16_COLUMNS, to += TILE_BYTES)
        for (int i = 0; i < SIDE; i++) {
            const uint8_t *p = at[i].data + 2 * (of.k0 + c);
            _mm512_storeu_si512(to + 64 * i, load_halves(p, of.kc - c));
        }
}
/* Two planes that add up to the f16 value: 8 and at most 3 of its bits. */
INLINE void unpack_f16(const mnc_weight *w, int64_t row, int64_t end, columns of, uint8_t *to,
                       float *step) {
    const int64_t plane = span_tiles(of, form) * TILE_BYTES;
    mnk_at at[SIDE];
    (void)step;
    rows_at(w, row, end, at);
    for (int64_t c = 0; c < of.kc; c += BF16_COLUMNS, to += TILE_BYTES)
        for (int i = 0; i < SIDE; i++) {
            const uint8_t *p = at[i].data + 2 * (of.k0 + c);
            const __m512i h = load_halves(p, of.kc - c);
            const __m256i lower = _mm512_castsi512_si256(h);
            const __m256i upper = _mm512_extracti64x4_epi64(h, 1);
            const VF a = _mm512_cvtph_ps(lower);
            const VF b = _mm512_cvtph_ps(upper);
            const __m512i high = round_pair(a, b);
            _mm512_storeu_si512(to + 64 * i, high);
            _mm512_storeu_si512(to + plane + 64 * i, rest_pair(a, b, high));
        }
}

/* ---- products -------------------------------------------------------------------------------- */
INLINE void store_sums(float *sums, const int nw, const int nx) {
    TILE_STORE(0, sums);
    if (nw > 1)
        TILE_STORE(1, sums + SIDE * SIDE);
    if (nx > 1)
        TILE_STORE(2, sums + 2 * SIDE * SIDE);
    if (nw > 1 && nx > 1)
        TILE_STORE(3, sums + 3 * SIDE * SIDE);
}
INLINE void multiply_rounded(const mnc_weight *w, const block *b, const block *before, const int nw,
                             const int nx) {
    (void)w;
    (void)before;
    TILES_ZERO();
    multiply_tiles(b->w, b->x, b->s.tiles, nw, nx, FAR);
    store_sums(b->sums, nw, nx);
}
INLINE void multiply_split(const mnc_weight *w, const block *b, const block *before, const int nw,
                           const int nx) {
    const int64_t w_plane = b->s.tiles * TILE_BYTES;
    const int64_t x_plane = (w->cols + BF16_COLUMNS - 1) / BF16_COLUMNS * TILE_BYTES;
    (void)before;
    TILES_ZERO();
    multiply_planes(b->w, w_plane, b->x, x_plane, b->s.tiles, nw, nx, FAR);
    store_sums(b->sums, nw, nx);
}

#define AMX_PANEL(name, multiply, planes)                                                          \
    INLINE void name(const mnc_weight *w, room *at, const float *step, const mnk_pair *pair,       \
                     int64_t r, columns of, int64_t y0, int64_t n, const weights_ahead *next) {    \
        multiply_panel(w, at, step, pair, r, of, y0, n, next,                                      \
                       (tile_products){form, planes, multiply, NULL});                             \
    }
AMX_PANEL(panel_rounded, multiply_rounded, 1)
AMX_PANEL(panel_split, multiply_split, 2)

/* ---- the rows -------------------------------------------------------------------------------- */
#define AMX_PRODUCT(type, multiply, planes)                                                        \
    static void product_##type(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,   \
                               int64_t hi, void *room) {                                           \
        tile_product(w, pair, r, lo, hi, room,                                                     \
                     (tile_kernel){form, planes, unpack_##type, multiply});                        \
    }                                                                                              \
    static uint64_t room_##type(int64_t k) {                                                       \
        return tile_room_bytes(k, planes, form);                                                   \
    }
#define AMX_KERNEL(type, form, pack_)                                                              \
    [MNK_KERNEL_##type] = {                                                                        \
        .name = #type " tiles16 " V_NAME,                                                          \
        .x_form = form,                                                                            \
        .grain = 1,                                                                                \
        .panel_bytes = room_##type,                                                                \
        .pack = pack_,                                                                             \
        .product = product_##type,                                                                 \
    },
AMX_PRODUCT(bf16, panel_rounded, 1)
AMX_PRODUCT(f16, panel_split, 2)
const mnk_linear V_ID(mnk_tiles16)[MNK_N_KERNELS] = {AMX_KERNEL(bf16, MNK_X_TILES, pack_rounded)
                                                         AMX_KERNEL(f16, MNK_X_TILES2, pack_split)};
