/* quant_iq.c -- IQ2 and IQ3: blocks of 256, codes that are indices of a codebook (dtype/grids.h).
 *
 * With magnitudes a, weights w and scale s, entry v of the codebook leaves the error sum(w a a) +
 * s s B - 2 s A, B = sum(w v v), A = sum(w a v). A and B of all entries are computed once for each
 * few elements; a scale is then tried for two operations on each entry, and the best entry is the
 * exact one, not one of some neighbours. The scales of a block are odd multiples of one: that one
 * is searched for with the entries as they were, then each multiple is tried with its neighbours.
 */
#include "convert/quant_iq.h"
#include "grids.h"
#include <math.h>
#include <string.h>

typedef float eight __attribute__((vector_size(32)));
typedef int32_t eight_masks __attribute__((vector_size(32)));
enum { LANES = 8, MOST_SUMS = 4096, BLOCK = 256 };

/* ---- codebooks: [elements of an entry][entries] ---------------------------------------------- */
/* The magnitude of digit j of an entry: 8, 25 or 43, the bytes of the constant. */
#define IQ2_(e, j) (0x2b2b1908 >> 8 * ((e) >> 2 * (j)&3) & 255)
#define IQ2_0(e) IQ2_(e, 0),
#define IQ2_1(e) IQ2_(e, 1),
#define IQ2_2(e) IQ2_(e, 2),
#define IQ2_3(e) IQ2_(e, 3),
#define IQ2_4(e) IQ2_(e, 4),
#define IQ2_5(e) IQ2_(e, 5),
#define IQ2_6(e) IQ2_(e, 6),
#define IQ2_7(e) IQ2_(e, 7),
#define IQ2_TABLE(GRID)                                                                            \
    {                                                                                              \
        {GRID(IQ2_0)}, {GRID(IQ2_1)}, {GRID(IQ2_2)}, {GRID(IQ2_3)}, {GRID(IQ2_4)}, {GRID(IQ2_5)},  \
            {GRID(IQ2_6)}, {                                                                       \
            GRID(IQ2_7)                                                                            \
        }                                                                                          \
    }
#define DIGIT(e, j) ((e) >> 4 * (j)&7)
#define IQ3_(e, j) DIGIT(e, j) == 7 ? 62 : 8 * DIGIT(e, j) + 4
#define IQ3_0(e) IQ3_(e, 0),
#define IQ3_1(e) IQ3_(e, 1),
#define IQ3_2(e) IQ3_(e, 2),
#define IQ3_3(e) IQ3_(e, 3),
#define ODD_0(e) 2 * DIGIT(e, 0) + 1,
#define ODD_1(e) 2 * DIGIT(e, 1) + 1,
#define ODD_2(e) 2 * DIGIT(e, 2) + 1,
#define ODD_3(e) 2 * DIGIT(e, 3) + 1,
static const float iq2_xxs[8][256] = IQ2_TABLE(MN_GRID_IQ2_XXS);
static const float iq2_xs[8][512] = IQ2_TABLE(MN_GRID_IQ2_XS);
static const float iq2_s[8][1024] = IQ2_TABLE(MN_GRID_IQ2_S);
static const float iq3_xxs[4][256] = {{MN_GRID_IQ3_XXS(IQ3_0)},
                                      {MN_GRID_IQ3_XXS(IQ3_1)},
                                      {MN_GRID_IQ3_XXS(IQ3_2)},
                                      {MN_GRID_IQ3_XXS(IQ3_3)}};
static const float iq3_s[4][512] = {
    {MN_GRID_IQ3_S(ODD_0)}, {MN_GRID_IQ3_S(ODD_1)}, {MN_GRID_IQ3_S(ODD_2)}, {MN_GRID_IQ3_S(ODD_3)}};

static const float tried_iq[MN_IQ_TRIED] = {0.6f, 0.75f, 0.9f, 1.05f};
#define BOOK(count, elems, of_group, is_even, largest, table)                                      \
    {                                                                                              \
        .n = (count), .size = (elems), .group = (of_group), .levels = 16, .even = (is_even),       \
        .top = (largest), .tried = tried_iq, .values = (table)                                     \
    }
static const mn_codebook books[] = {
    BOOK(256, 8, 32, true, 43, iq2_xxs[0]), BOOK(512, 8, 16, true, 43, iq2_xs[0]),
    BOOK(1024, 8, 16, false, 43, iq2_s[0]), BOOK(256, 4, 32, true, 62, iq3_xxs[0]),
    BOOK(512, 4, 32, false, 15, iq3_s[0]),
};

/* ---- a group of elements with one scale ------------------------------------------------------ */
static inline eight iq_load(const float *p) {
    eight v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline eight iq_all(float v) {
    return (eight){v, v, v, v, v, v, v, v};
}
static inline eight iq_choose(eight_masks m, eight yes, eight no) {
    return (eight)(((eight_masks)yes & m) | ((eight_masks)no & ~m));
}

/* 2 A and B of every entry, for each of the entries that a group has side by side. */
typedef struct {
    const float *a, *w; /* the group's */
    float twice_a[MOST_SUMS];
    float b[MOST_SUMS];
} entry_sums;

/* Of the `size` elements at a. */
MN_FAST static void sum_entries(const mn_codebook *c, const float *a, const float *w,
                                float *twice_a, float *b) {
    for (int e = 0; e < c->n; e += LANES) {
        eight sum_a = iq_all(0);
        eight sum_b = iq_all(0);
        for (int j = 0; j < c->size; j++) {
            const eight v = iq_load(c->values + j * c->n + e);
            const eight wv = iq_all(w[j]) * v;
            sum_a += iq_all(2 * a[j]) * wv;
            sum_b += wv * v;
        }
        memcpy(twice_a + e, &sum_a, sizeof sum_a);
        memcpy(b + e, &sum_b, sizeof sum_b);
    }
}
static void sum_group(const mn_codebook *c, const float *a, const float *w, entry_sums *o) {
    o->a = a;
    o->w = w;
    for (int i = 0; i < c->group / c->size && !c->pick; i++)
        sum_entries(c, a + i * c->size, w + i * c->size, o->twice_a + i * c->n, o->b + i * c->n);
}

/* The entry with the least s B - 2 A, s > 0. */
MN_FAST static int best_entry(const float *twice_a, const float *b, int n, float s) {
    eight least = iq_all(INFINITY);
    eight at = iq_all(0);
    eight here = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int e = 0; e < n; e += LANES, here += iq_all(LANES)) {
        const eight left = iq_all(s) * iq_load(b + e) - iq_load(twice_a + e);
        const eight_masks less = left < least;
        least = iq_choose(less, left, least);
        at = iq_choose(less, here, at);
    }
    int best = 0;
    for (int k = 1; k < LANES; k++)
        if (least[k] < least[best] || (least[k] == least[best] && at[k] < at[best]))
            best = k;
    return (int)at[best];
}

static mn_iq_pick pick_entry(const mn_codebook *c, const entry_sums *sums, int i, float s) {
    if (c->pick)
        return c->pick(c, sums->a + i * c->size, sums->w + i * c->size, s);
    const float *twice_a = sums->twice_a + i * c->n;
    const float *b = sums->b + i * c->n;
    const int e = best_entry(twice_a, b, c->n, s);
    return (mn_iq_pick){.a = 0.5f * twice_a[e], .b = b[e], .entry = e};
}

/* A and B of a group, by the entries that are best for scale s. codes: NULL, or room for them. */
typedef struct {
    float a, b;
} chosen;
static chosen choose_entries(const mn_codebook *c, const entry_sums *sums, float s,
                             uint16_t *codes) {
    chosen o = {0, 0};
    for (int i = 0; i < c->group / c->size; i++) {
        const mn_iq_pick best = pick_entry(c, sums, i, s);
        o.a += best.a;
        o.b += best.b;
        if (codes)
            codes[i] = (uint16_t)best.entry;
    }
    return o;
}

enum { IQ_ROUNDS = 1 };

/* The best scale of a group, whichever: *s, 0 if there is none. Returns B. */
static float fit_group(const mn_codebook *c, const entry_sums *sums, float largest, float *s) {
    chosen best = {0, 0};
    *s = 0;
    for (int k = 0; k < MN_IQ_TRIED + IQ_ROUNDS && largest > 1e-30f; k++) {
        const float by = k < MN_IQ_TRIED ? largest / c->top * c->tried[k] : *s;
        const chosen o = choose_entries(c, sums, by, NULL);
        if (o.a > 0 && o.b > 0 && (best.b <= 0 || o.a * o.a * best.b > best.a * best.a * o.b)) {
            best = o;
            *s = o.a / o.b;
        } else if (k >= MN_IQ_TRIED) {
            break;
        }
    }
    return best.b;
}

/* ---- a block --------------------------------------------------------------------------------- */
/* Magnitudes and signs, unless the values have signs. Where an odd number is negative and must not
 * be, the element that costs least gets the other sign: its magnitude is negative. */
static void part_signs(const mn_codebook *c, const float *x, const float *w, float *a,
                       uint8_t sign[32]) {
    if (c->is_signed) {
        memcpy(a, x, BLOCK * sizeof *a);
        return;
    }
    for (int i = 0; i < BLOCK; i += 8) {
        int least = 0;
        int bits = 0;
        for (int j = 0; j < 8; j++) {
            const float v = x[i + j];
            const float of_least = x[i + least];
            a[i + j] = fabsf(v);
            bits |= (v < 0) << j;
            if (w[i + j] * v * v < w[i + least] * of_least * of_least)
                least = j;
        }
        if (c->even && __builtin_parity((unsigned)bits)) {
            bits ^= 1 << least;
            a[i + least] = -a[i + least];
        }
        sign[i / 8] = (uint8_t)bits;
    }
}

/* The nearest odd multiple of t, as (multiple - 1) / 2. */
static int level_of(const mn_codebook *c, float s, float t) {
    const int level = (int)floorf(s / t * 0.5f);
    return MN_MIN(MN_MAX(level, 0), c->levels - 1);
}

/* The scale of the block by what its groups want: s and b of each. */
static float block_scale(const mn_codebook *c, const float *s, const float *b) {
    const int n = BLOCK / c->group;
    const float range = (float)c->levels / 16;
    float most = 0;
    float best = 0;
    float least = INFINITY;
    for (int i = 0; i < n; i++)
        most = s[i] > most ? s[i] : most;
    for (int k = 0; k < 40 && most > 0; k++) {
        const float t = most / (range * (13 + 0.5f * (float)k));
        float error = 0;
        for (int i = 0; i < n; i++) {
            const float off = s[i] - t * (float)(2 * level_of(c, s[i], t) + 1);
            error += b[i] * off * off;
        }
        if (error < least) {
            least = error;
            best = t;
        }
    }
    return best;
}

/* Level and codes of group i, with what they leave of the error taken off. */
static chosen settle_group(const mn_codebook *c, const entry_sums *sums, float s, float t,
                           uint8_t *level, uint16_t *codes) {
    const int near = level_of(c, s, t);
    chosen best = {0, 0};
    float least = INFINITY;
    for (int l = MN_MAX(near - 1, 0); l <= MN_MIN(near + 1, c->levels - 1); l++) {
        const float by = t * (float)(2 * l + 1);
        const chosen o = choose_entries(c, sums, by, NULL);
        const float error = by * (by * o.b - 2 * o.a);
        if (error < least) {
            least = error;
            best = o;
            *level = (uint8_t)l;
        }
    }
    choose_entries(c, sums, t * (float)(2 * *level + 1), codes);
    return best;
}

/* The best scale of group i, whichever, with any of the forms; of the one that explains most. */
static void fit_forms(const mn_codebook *forms, int n_forms, const float *a, const float *w, int i,
                      float *s, float *b, uint8_t *form) {
    const int at = i * forms->group;
    entry_sums sums;
    float most = -1;
    for (int k = 0; k < n_forms; k++) {
        float by;
        sum_group(&forms[k], a + at, w + at, &sums);
        const float left =
            fit_group(&forms[k], &sums, fabsf(mn_extreme(a + at, forms->group)), &by);
        if (by * by * left > most) {
            most = by * by * left;
            *s = by;
            *b = left;
            *form = (uint8_t)k;
        }
    }
}

void mn_iq_fit(const mn_codebook *forms, int n_forms, const float *x, const float *w,
               mn_iq_block *o) {
    const int n = BLOCK / forms->group;
    const int per = forms->group / forms->size;
    entry_sums sums;
    float a[BLOCK];
    float s[16];
    float b[16];
    double num = 0;
    double den = 0;
    memset(o, 0, sizeof *o);
    part_signs(forms, x, w, a, o->sign);
    for (int i = 0; i < n; i++)
        fit_forms(forms, n_forms, a, w, i, &s[i], &b[i], &o->form[i]);
    const float t = block_scale(forms, s, b);
    for (int i = 0; i < n && t > 0; i++) {
        const mn_codebook *c = &forms[o->form[i]];
        const int at = i * c->group;
        sum_group(c, a + at, w + at, &sums);
        const chosen best =
            settle_group(c, &sums, s[i], t, &o->level[i], o->code + (size_t)(i * per));
        const double times = 2 * o->level[i] + 1;
        num += times * (double)best.a;
        den += times * times * (double)best.b;
    }
    o->scale = den > 0 ? (float)(num / den) : 0;
}

/* ---- the types ------------------------------------------------------------------------------- */
static void put_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++, v >>= 8)
        p[i] = (uint8_t)v;
}
/* Signs of 32 elements, seven bits of each eight, and a scale. */
static uint32_t signs_and_scale(const mn_iq_block *o, int i) {
    uint32_t v = (uint32_t)o->level[i] << 28;
    for (int j = 0; j < 4; j++)
        v |= (uint32_t)(o->sign[4 * i + j] & 127) << 7 * j;
    return v;
}

void mn_quant_iq2_xxs(const float *x, const float *w, uint8_t *out) {
    mn_iq_block o;
    mn_iq_fit(&books[0], 1, x, w, &o);
    mn_put_half(out, 8 * o.scale);
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < 4; j++)
            out[2 + 8 * i + j] = (uint8_t)o.code[4 * i + j];
        put_u32(out + 2 + 8 * i + 4, signs_and_scale(&o, i));
    }
}

/* Of 16 elements each. */
static void put_levels(const mn_iq_block *o, int n, uint8_t *out) {
    for (int i = 0; i < n; i += 2)
        out[i / 2] = (uint8_t)(o->level[i] | o->level[i + 1] << 4);
}

void mn_quant_iq2_xs(const float *x, const float *w, uint8_t *out) {
    mn_iq_block o;
    mn_iq_fit(&books[1], 1, x, w, &o);
    mn_put_half(out, 8 * o.scale);
    for (int i = 0; i < 32; i++)
        mn_put_u16(out + 2 + 2 * i, (uint16_t)(o.code[i] | (o.sign[i] & 127) << 9));
    put_levels(&o, 16, out + 66);
}

void mn_quant_iq2_s(const float *x, const float *w, uint8_t *out) {
    mn_iq_block o;
    mn_iq_fit(&books[2], 1, x, w, &o);
    mn_put_half(out, 8 * o.scale);
    memset(out + 66, 0, 8);
    for (int i = 0; i < 32; i++) {
        out[2 + i] = (uint8_t)o.code[i];
        out[34 + i] = o.sign[i];
        mn_put_bits(&out[66 + i / 4], o.code[i] >> 8, 2 * (i % 4));
    }
    put_levels(&o, 16, out + 74);
}

void mn_quant_iq3_xxs(const float *x, const float *w, uint8_t *out) {
    mn_iq_block o;
    mn_iq_fit(&books[3], 1, x, w, &o);
    mn_put_half(out, 4 * o.scale);
    for (int i = 0; i < 64; i++)
        out[2 + i] = (uint8_t)o.code[i];
    for (int i = 0; i < 8; i++)
        put_u32(out + 66 + 4 * i, signs_and_scale(&o, i));
}

void mn_quant_iq3_s(const float *x, const float *w, uint8_t *out) {
    mn_iq_block o;
    mn_iq_fit(&books[4], 1, x, w, &o);
    mn_put_half(out, o.scale);
    memset(out + 66, 0, 8);
    for (int i = 0; i < 64; i++) {
        out[2 + i] = (uint8_t)o.code[i];
        mn_put_bits(&out[66 + i / 8], o.code[i] >> 8, i % 8);
    }
    memcpy(out + 74, o.sign, 32);
    put_levels(&o, 8, out + 106);
}
