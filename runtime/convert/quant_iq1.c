/* quant_iq1.c -- types of less than two bits or little more: blocks of 256 whose elements are -1,
 * 0 and 1. IQ1 takes eight of them from a codebook and moves them all by an eighth up or down; TQ
 * stores them one by one with a scale for all.
 *
 * What an entry of IQ1 leaves of the error is a sum over its two halves, and a half is one of 81:
 * the best entry is found among those of the few second halves that could be better than the best
 * so far, as quant_iq.c would find it among all. */
#include "convert/quant_iq.h"
#include "dtype.h"
#include <math.h>
#include <string.h>

enum { ENTRIES = 2048, HALVES = 81, CODES = 256, BLOCK = 256 };

/* ---- IQ1 ------------------------------------------------------------------------------------- */
/* s v v w - 2 a v w of four elements for each of the 81 combinations of their values: by code (two
 * bits of each element); the least of them. Of codes with a bit pattern 3 there is none. */
typedef struct {
    float left[CODES];
    float least;
} half_errors;

static void add_half(half_errors *o, const float *a, const float *w, float s, float moved) {
    float of[4][3];
    for (int i = 0; i < 4; i++)
        for (int d = 0; d < 3; d++) {
            const float v = (float)(d - 1) + moved;
            of[i][d] = w[i] * v * (s * v - 2 * a[i]);
        }
    o->least = INFINITY;
    for (int i = 0; i < HALVES; i++) {
        const int d[4] = {i % 3, i / 3 % 3, i / 9 % 3, i / 27};
        const float left = of[0][d[0]] + of[1][d[1]] + (of[2][d[2]] + of[3][d[3]]);
        o->left[d[0] | d[1] << 2 | d[2] << 4 | d[3] << 6] = left;
        o->least = left < o->least ? left : o->least;
    }
}

/* The entry of least error that is below *left, which becomes its error; -1: there is none. */
static int best_moved(const mn_codebook *c, const half_errors *first, const half_errors *second,
                      float *left) {
    int best = -1;
    for (int high = 0; high < CODES; high++) {
        const int end = c->start[high + 1];
        if (c->start[high] == end || !(second->left[high] + first->least < *left))
            continue;
        for (int e = c->start[high]; e < end; e++) {
            const float sum = second->left[high] + first->left[mn_grid_iq1[e] & 255];
            if (sum < *left) {
                *left = sum;
                best = e;
            }
        }
    }
    return best;
}

static float moved_by(int down) {
    return down ? -0.125f : 0.125f;
}

/* Entries from ENTRIES on are those that are moved down. */
static mn_iq_pick pick_iq1(const mn_codebook *c, const float *a, const float *w, float s) {
    mn_iq_pick o = {0, 0, 0};
    float left = INFINITY;
    for (int down = 0; down < 2; down++) {
        half_errors first;
        half_errors second;
        if (!(c->moves >> down & 1))
            continue;
        add_half(&first, a, w, s, moved_by(down));
        add_half(&second, a + 4, w + 4, s, moved_by(down));
        const int e = best_moved(c, &first, &second, &left);
        if (e >= 0)
            o.entry = e + down * ENTRIES;
    }
    const uint32_t codes = mn_grid_iq1[o.entry % ENTRIES];
    for (int i = 0; i < 8; i++) {
        const float v = (float)((int)(codes >> 2 * i & 3) - 1) + moved_by(o.entry >= ENTRIES);
        o.a += w[i] * a[i] * v;
        o.b += w[i] * v * v;
    }
    return o;
}

/* Entries ascend: where those of each second half begin. */
static void find_starts(uint16_t start[CODES + 1]) {
    int e = 0;
    for (int high = 0; high <= CODES; high++) {
        while (e < ENTRIES && mn_grid_iq1[e] >> 8 < high)
            e++;
        start[high] = (uint16_t)e;
    }
}

/* Of the largest of 32 normal values a half is the best scale of three values. */
static const float tried_iq1[MN_IQ_TRIED] = {0.4f, 0.55f, 0.7f, 0.9f};

static mn_codebook book_iq1(int group, unsigned moves, const uint16_t *start) {
    return (mn_codebook){
        .size = 8,
        .group = group,
        .levels = 8,
        .is_signed = true,
        .top = 1.125f,
        .tried = tried_iq1,
        .pick = pick_iq1,
        .moves = moves,
        .start = start,
    };
}

void mn_quant_iq1_s(const float *x, const float *w, uint8_t *out) {
    uint16_t start[CODES + 1];
    find_starts(start);
    const mn_codebook forms[2] = {book_iq1(32, 1, start), book_iq1(32, 2, start)};
    mn_iq_block o;
    mn_iq_fit(forms, 2, x, w, &o);
    mn_put_half(out, o.scale);
    for (int i = 0; i < 8; i++) {
        int high = o.level[i] << 12 | o.form[i] << 15;
        for (int j = 0; j < 4; j++) {
            out[2 + 4 * i + j] = (uint8_t)o.code[4 * i + j];
            high |= (o.code[4 * i + j] >> 8 & 7) << 3 * j;
        }
        mn_put_u16(out + 34 + 2 * i, (uint16_t)high);
    }
}

void mn_quant_iq1_m(const float *x, const float *w, uint8_t *out) {
    uint16_t start[CODES + 1];
    find_starts(start);
    const mn_codebook book = book_iq1(16, 3, start);
    mn_iq_block o;
    uint8_t half[2];
    mn_iq_fit(&book, 1, x, w, &o);
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
