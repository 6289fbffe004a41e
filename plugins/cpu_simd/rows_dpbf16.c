/* rows_dpbf16.c -- products of more than a few x rows with weights of bf16 by VDPBF16PS, which adds
 * products of 32 columns to 16 sums. x is rounded to bf16 once; weights are read as they lie, some
 * rows and columns of them at a time, which stay in the second cache, while the X_ROWS rows of x
 * that they are multiplied with stay in the first. A sum's lanes are added up at the end of those
 * columns, and wait in y.
 *
 * Twice the products of f32 by an instruction: faster only where the processor issues it as often
 * as f32's (Zen 4 and 5), which isa.c measures. On Intel's (Sapphire and Emerald Rapids) it is a
 * quarter as often. */
#include "vec.h"

enum {
    SPAN = 32,        /* columns that one product adds up */
    X_ROWS = 6,       /* of a tile, whose sums the registers have room for */
    W_ROWS = 4,       /* likewise */
    PANEL_ROWS = 128, /* weight rows and columns that x goes through: 512 KiB */
    CHUNK = 2048,
    AHEAD = 1024, /* bytes of prefetch on each row */
};

/* ---- x: [MNK_GROUP][k and SPAN more] in bf16 ------------------------------------------------- */

/* A line between rows: those of 2,048 columns would all fall into the same sets of a cache. */
static int64_t x_row_bytes(int64_t k) {
    return 2 * (k + SPAN);
}

static void pack(const float *const x[MNK_GROUP], int64_t n, int64_t k, uint8_t *to) {
    for (int64_t i = 0; i < n; i++, to += x_row_bytes(k))
        for (int64_t c = 0; c < k; c += SPAN) {
            const VF low = v_load(x[i] + c);
            const VF high = v_load(x[i] + c + VL);
            const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
            memcpy(to + 2 * c, &both, sizeof both);
        }
}

/* ---- products -------------------------------------------------------------------------------- */

INLINE __m512bh load_span(const uint8_t *p) {
    __m512bh v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* One tile: W_ROWS weight rows from byte `column` on, `left` of which count, with x rows. */
typedef struct {
    const uint8_t *w[W_ROWS];
    const uint8_t *x[X_ROWS];
    const mnk_pair *pair;
    int64_t columns, y0, left;
    bool first;   /* y has no sums yet */
    bool is_cold; /* the weights come from memory */
} tile_args;

/* The sums of the lanes of four registers. */
INLINE __m128 sum_four(const VF v[W_ROWS]) {
    const VF pairs = v_pairs(v_pairs(v[0], v[1]), v_pairs(v[2], v[3]));
    const __m256 high = _mm512_extractf32x8_ps(pairs, 1);
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(pairs), high);
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

INLINE void put_sums(float *y, __m128 sums, int64_t left, bool first) {
    const __mmask8 which = (__mmask8)((1u << (left < W_ROWS ? left : W_ROWS)) - 1);
    if (!first)
        sums = _mm_add_ps(sums, _mm_maskz_loadu_ps(which, y));
    _mm_mask_storeu_ps(y, which, sums);
}

INLINE void tile(const tile_args *o, const int mr, const bool is_cold) {
    VF acc[X_ROWS][W_ROWS];
    const uint8_t *w[W_ROWS];
    const uint8_t *x[X_ROWS];
    for (int a = 0; a < mr; a++) {
        x[a] = o->x[a];
        for (int j = 0; j < W_ROWS; j++)
            acc[a][j] = v_set1(0);
    }
    for (int j = 0; j < W_ROWS; j++)
        w[j] = o->w[j];
    for (int64_t at = 0; at < 2 * o->columns; at += 2 * SPAN) {
        __m512bh of_w[W_ROWS];
#pragma GCC unroll 4
        for (int j = 0; j < W_ROWS; j++) {
            of_w[j] = load_span(w[j] + at);
            if (is_cold)
                v_prefetch(w[j] + at + AHEAD);
        }
#pragma GCC unroll 6
        for (int a = 0; a < mr; a++) {
            const __m512bh of_x = load_span(x[a] + at);
#pragma GCC unroll 4
            for (int j = 0; j < W_ROWS; j++)
                acc[a][j] = _mm512_dpbf16_ps(acc[a][j], of_w[j], of_x);
        }
    }
    for (int a = 0; a < mr; a++)
        put_sums(o->pair[a].y + o->y0, sum_four(acc[a]), o->left, o->first);
}

static NOINLINE void tile_of_six(const tile_args *o) {
    tile(o, X_ROWS, false);
}
/* Of `mr` x rows, or from memory. */
static NOINLINE void tile_of(const tile_args *o, int64_t mr) {
    switch (mr) {
    case 1:
        tile(o, 1, true);
        break;
    case 2:
        tile(o, 2, true);
        break;
    case 3:
        tile(o, 3, true);
        break;
    case 4:
        tile(o, 4, true);
        break;
    case 5:
        tile(o, 5, true);
        break;
    default:
        tile(o, X_ROWS, true);
        break;
    }
}

/* Weight rows [row, row + n) and columns [k0, k0 + kc) with all x rows. */
static void panel_product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t row,
                          int64_t n, int64_t k0, int64_t kc) {
    tile_args o = {.columns = kc, .first = k0 == 0};
    for (int64_t i = 0; i < r; i += X_ROWS) {
        const int64_t mr = r - i < X_ROWS ? r - i : X_ROWS;
        o.pair = pair + i;
        for (int64_t a = 0; a < mr; a++)
            o.x[a] = pair[i + a].x + (i + a) % MNK_GROUP * x_row_bytes(w->cols) + 2 * k0;
        for (int64_t j = 0; j < n; j += W_ROWS) {
            o.y0 = row + j;
            o.left = n - j;
            for (int64_t s = 0; s < W_ROWS; s++) {
                const int64_t last = j + s < n ? j + s : n - 1;
                o.w[s] = mnc_row(w, row + last) + 2 * k0;
            }
            if (i && mr == X_ROWS)
                tile_of_six(&o);
            else
                tile_of(&o, mr);
        }
    }
}

static void product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo, int64_t hi,
                    void *panel) {
    (void)panel;
    for (int64_t j = lo; j < hi; j += PANEL_ROWS) {
        const int64_t n = hi - j < PANEL_ROWS ? hi - j : PANEL_ROWS;
        for (int64_t k0 = 0; k0 < w->cols; k0 += CHUNK) {
            const int64_t kc = w->cols - k0 < CHUNK ? w->cols - k0 : CHUNK;
            panel_product(w, pair, r, j, n, k0, kc);
        }
    }
}

static uint64_t panel_bytes(int64_t k) {
    (void)k;
    return 64; /* there is none */
}

const mnk_linear V_ID(mnk_dpbf16)[MNK_N_KERNELS] = {
    [MNK_KERNEL_bf16] =
        {
            .name = "bf16 dpbf16 " V_NAME,
            .x_form = MNK_X_TILES,
            .panel_rows = PANEL_ROWS,
            .grain = SPAN,
            .panel_bytes = panel_bytes,
            .pack = pack,
            .product = product,
        },
};
