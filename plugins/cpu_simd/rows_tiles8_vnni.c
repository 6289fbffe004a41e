/* rows_tiles8_vnni.c -- products of some tens of x rows and more by VPDPBUSD in class a8, as on
 * AMX: a register is a row of a tile of x, four columns of 16 rows, and is multiplied with the
 * same four of a row of weights, which are spread over it. One of the two sides of VPDPBUSD has
 * no sign: the weights, whose bytes are 128 too large; so sums begin with what that adds,
 * negative. */
#include "vec.h"
#include "tiles8.h"

enum { ROWS = 8 }; /* of weights, with two groups of x: 16 sums in registers */

/* Four bytes at p, in every lane. */
INLINE __m512i spread4_wide(const uint8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}

/* s + 16 sums of four products. By hand: GCC 12 copies and spills sums that it sees written. */
INLINE __m512i tile_add_products(__m512i s, __m512i w, __m512i x) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(w), "v"(x));
    return s;
}

/* What the span's sums of 16 rows of x begin with. Each product waits for the one before of its
 * sum: so there are many sums. */
INLINE __m512i seed_of(const uint8_t *x, const span *s) {
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum[8];
    for (int i = 0; i < 8; i++)
        sum[i] = _mm512_setzero_si512();
    for (int64_t at = 0; at < s->tiles * TILE_BYTES; at += 512)
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            sum[i] = _mm512_dpbusd_epi32(sum[i], ones, _mm512_loadu_si512(x + at + 64 * i));
    for (int n = 4; n; n /= 2)
        for (int i = 0; i < n; i++)
            sum[i] = _mm512_add_epi32(sum[i], sum[i + n]);
    const __m512i bias = _mm512_slli_epi32(sum[0], 7);
    return _mm512_sub_epi32(_mm512_setzero_si512(), bias);
}

/* n rows of weights from w on with nx groups of x, to whole[group] + 64 bytes of each row. */
INLINE void multiply_rows_of(const uint8_t *w, const uint8_t *const x[BLOCK],
                             const __m512i seed[BLOCK], const span *s, uint8_t *const whole[BLOCK],
                             const int n, const int nx) {
    __m512i sum[SIDE][BLOCK];
    for (int i = 0; i < n; i++)
        for (int g = 0; g < nx; g++)
            sum[i][g] = seed[g];
    for (int64_t at = 0; at < s->tiles * TILE_BYTES; at += TILE_BYTES)
        for (int c = 0; c < SIDE; c++) {
            __m512i of_x[BLOCK];
            for (int g = 0; g < nx; g++)
                of_x[g] = _mm512_loadu_si512(x[g] + at + 64 * c);
#pragma GCC unroll 16
            for (int i = 0; i < n; i++) {
                const __m512i four = spread4_wide(w + at + 64 * i + 4 * c);
                for (int g = 0; g < nx; g++)
                    sum[i][g] = tile_add_products(sum[i][g], four, of_x[g]);
            }
        }
    for (int i = 0; i < n; i++)
        for (int g = 0; g < nx; g++)
            _mm512_storeu_si512(whole[g] + 64 * i, sum[i][g]);
}

/* Whole numbers of the span. */
INLINE void tiles8_multiply(const mnc_weight *w, const block *b, const block *before, const int nw,
                            const int nx) {
    const int rows = nx > 1 ? ROWS : SIDE;
    const span *s = &b->s;
    __m512i seed[BLOCK];
    if (before)
        tiles8_finish(w, before);
    for (int g = 0; g < nx; g++)
        seed[g] = seed_of(b->x[g], s);
    for (int j = 0; j < nw; j++)
        for (int i = 0; i < SIDE; i += rows) {
            const uint8_t *from = b->w[j] + 64 * i;
            uint8_t *to[BLOCK];
            for (int g = 0; g < BLOCK; g++)
                to[g] = b->whole + (BLOCK * g + j) * TILE_BYTES + 64 * i;
            multiply_rows_of(from, b->x, seed, s, to, rows, nx);
        }
}

static NOINLINE void multiply_bytes(const mnc_weight *w, room *at, const float *step,
                                    const mnk_pair *pair, int64_t r, columns of, int64_t y0,
                                    int64_t n, const weights_ahead *next) {
    multiply_panel(w, at, step, pair, r, of, y0, n, next,
                   (tile_products){byte_form, 1, tiles8_multiply, tiles8_finish});
}

MNK_BLOCKS(TILES8_PRODUCT, 128, multiply_bytes)
#define KERNEL(type, e, ...) [MNK_KERNEL_##type] = TILES8_KERNEL(type, e),
const mnk_linear V_ID(mnk_tiles8)[MNK_N_KERNELS] = {MNK_BLOCKS(KERNEL, )};
