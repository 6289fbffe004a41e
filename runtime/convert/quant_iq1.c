/* quant_iq1.c -- types of less than two bits or little more: blocks of 256 whose elements are -1,
 * 0 and 1. IQ1 takes eight of them from a codebook and moves them all by an eighth up or down; the
 * two directions are two codebooks (quant_iq.c). TQ stores them one by one with a scale for all. */
#include "convert/quant_iq.h"
#include "grids.h"
#include <math.h>
#include <string.h>

enum { ENTRIES = 2048, BLOCK = 256 };

/* ---- IQ1: [elements of an entry][entries moved up, the same entries moved down] -------------- */
#define UP_(e, j) (float)((e) >> 2 * (j)&3) - 0.875f
#define DOWN_(e, j) (float)((e) >> 2 * (j)&3) - 1.125f
#define UP_0(e) UP_(e, 0),
#define UP_1(e) UP_(e, 1),
#define UP_2(e) UP_(e, 2),
#define UP_3(e) UP_(e, 3),
#define UP_4(e) UP_(e, 4),
#define UP_5(e) UP_(e, 5),
#define UP_6(e) UP_(e, 6),
#define UP_7(e) UP_(e, 7),
#define DOWN_0(e) DOWN_(e, 0),
#define DOWN_1(e) DOWN_(e, 1),
#define DOWN_2(e) DOWN_(e, 2),
#define DOWN_3(e) DOWN_(e, 3),
#define DOWN_4(e) DOWN_(e, 4),
#define DOWN_5(e) DOWN_(e, 5),
#define DOWN_6(e) DOWN_(e, 6),
#define DOWN_7(e) DOWN_(e, 7),
static const float moved[8][2 * ENTRIES] = {
    {MN_GRID_IQ1(UP_0) MN_GRID_IQ1(DOWN_0)}, {MN_GRID_IQ1(UP_1) MN_GRID_IQ1(DOWN_1)},
    {MN_GRID_IQ1(UP_2) MN_GRID_IQ1(DOWN_2)}, {MN_GRID_IQ1(UP_3) MN_GRID_IQ1(DOWN_3)},
    {MN_GRID_IQ1(UP_4) MN_GRID_IQ1(DOWN_4)}, {MN_GRID_IQ1(UP_5) MN_GRID_IQ1(DOWN_5)},
    {MN_GRID_IQ1(UP_6) MN_GRID_IQ1(DOWN_6)}, {MN_GRID_IQ1(UP_7) MN_GRID_IQ1(DOWN_7)},
};

/* Of the largest of 32 normal values a half is the best scale of three values. */
static const float tried_iq1[MN_IQ_TRIED] = {0.4f, 0.55f, 0.7f, 0.9f};
#define BOOK(count, of_group, from)                                                                \
    {                                                                                              \
        .n = (count), .stride = 2 * ENTRIES, .size = 8, .group = (of_group), .levels = 8,          \
        .is_signed = true, .top = 1.125f, .tried = tried_iq1, .values = moved[0] + (from)          \
    }
static const mn_codebook book_s[2] = {BOOK(ENTRIES, 32, 0), BOOK(ENTRIES, 32, ENTRIES)};
static const mn_codebook book_m = BOOK(2 * ENTRIES, 16, 0);

void mn_quant_iq1_s(const float *x, const float *w, uint8_t *out) {
    mn_iq_block o;
    mn_iq_fit(book_s, 2, x, w, &o);
    mn_put_half(out, o.scale);
    for (int i = 0; i < 8; i++) {
        int high = o.level[i] << 12 | o.form[i] << 15;
        for (int j = 0; j < 4; j++) {
            out[2 + 4 * i + j] = (uint8_t)o.code[4 * i + j];
            high |= o.code[4 * i + j] >> 8 << 3 * j;
        }
        mn_put_u16(out + 34 + 2 * i, (uint16_t)high);
    }
}

/* Codes from ENTRIES on are those that are moved down. */
void mn_quant_iq1_m(const float *x, const float *w, uint8_t *out) {
    mn_iq_block o;
    uint8_t half[2];
    mn_iq_fit(&book_m, 1, x, w, &o);
    mn_put_half(half, o.scale);
    memset(out + 32, 0, 16);
    for (int i = 0; i < 32; i++) {
        out[i] = (uint8_t)o.code[i];
        mn_put_bits(&out[32 + i / 2], o.code[i] >> 8, 4 * (i % 2));
    }
    for (int i = 0; i < 4; i++) {
        int scales = (half[i / 2] >> 4 * (i % 2) & 15) << 12;
        for (int j = 0; j < 4; j++)
            scales |= o.level[4 * i + j] << 3 * j;
        mn_put_u16(out + 48 + 2 * i, (uint16_t)scales);
    }
}

/* ---- TQ -------------------------------------------------------------------------------------- */
/* sum(w |x|) / sum(w) of the elements above half of d: the best scale for them. Returns what it
 * takes off the error. */
static float ternary_round(const float *x, const float *w, float *d) {
    float of_x = 0;
    float of_w = 0;
    for (int i = 0; i < BLOCK; i++) {
        const float a = fabsf(x[i]);
        if (a > 0.5f * *d) {
            of_x += w[i] * a;
            of_w += w[i];
        }
    }
    if (!(of_w > 0))
        return 0;
    *d = of_x / of_w;
    return *d * of_x;
}

enum { STARTS = 12, TERNARY_ROUNDS = 4 };

/* Digits 0, 1, 2 for -1, 0, 1; the scale to `scale`. Weights that are ternary come back exactly
 * if f16 holds their scale. */
static void ternary_fit(const float *x, const float *w, uint8_t *digit, uint8_t *scale) {
    const float most = fabsf(mn_extreme(x, BLOCK));
    float best = 0;
    float fitted = 0;
    for (int k = 1; k <= STARTS; k++) {
        float d = 1.9f * most * (float)k / STARTS;
        for (int i = 0; i < TERNARY_ROUNDS; i++) {
            const float off = ternary_round(x, w, &d);
            if (off > best) {
                best = off;
                fitted = d;
            }
        }
    }
    const float d = mn_put_half(scale, fitted);
    for (int i = 0; i < BLOCK; i++) {
        digit[i] = 1;
        if (fabsf(x[i]) > 0.5f * d && d > 0)
            digit[i] = x[i] > 0 ? 2 : 0;
    }
}

/* Five digits to the base 3 as a fraction of 243 in 256ths, rounded up: the highest digit is the
 * integer part of three times it. */
static uint8_t put_digits(const uint8_t *digit, int n, int step) {
    int value = 0;
    for (int i = 0; i < 5; i++)
        value = value * 3 + (i < n ? digit[i * step] : 0);
    return (uint8_t)((value * 256 + 242) / 243);
}

void mn_quant_tq1_0(const float *x, const float *w, uint8_t *out) {
    uint8_t digit[BLOCK];
    ternary_fit(x, w, digit, out + 52);
    for (int i = 0; i < 32; i++)
        out[i] = put_digits(digit + i, 5, 32);
    for (int i = 0; i < 16; i++)
        out[32 + i] = put_digits(digit + 160 + i, 5, 16);
    for (int i = 0; i < 4; i++)
        out[48 + i] = put_digits(digit + 240 + i, 4, 4);
}

void mn_quant_tq2_0(const float *x, const float *w, uint8_t *out) {
    uint8_t digit[BLOCK];
    ternary_fit(x, w, digit, out + 64);
    memset(out, 0, 64);
    for (int i = 0; i < BLOCK; i++)
        mn_put_bits(&out[i / 128 * 32 + i % 32], digit[i], 2 * (i / 32 % 4));
}
