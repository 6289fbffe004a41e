/* quant.h -- from f32 to the types of the GGUF specification. Each block is chosen for the least
 * sum of squared errors among a few candidates of its scale, then the scale is solved for by least
 * squares. Deterministic; pure; any thread. */
#ifndef MN_QUANT_H
#define MN_QUANT_H
#include "base/base.h"

bool mn_quant_has(uint32_t dtype);
/* n finite values, whole blocks, to out. */
void mn_quant_row(uint32_t dtype, const float *x, int64_t n, uint8_t *out);

/* ---- quant_fit.c: what the types share. n: at most MN_FIT_MAX. ------------------------------- */
#define MN_FIT_MAX 32
/* x ~ d q, q in [lo, hi], lo < 0. Returns d; the codes go to q. Tries the scales at which the
 * extreme value lies within `steps` tenths of lo, on either side. */
float mn_fit_scale(const float *x, int n, int lo, int hi, int steps, int8_t *q);
/* x ~ d q + m, q in [0, hi]; below: m must not be above 0. Returns d. */
float mn_fit_affine(const float *x, int n, int hi, int steps, bool below, float *m, uint8_t *q);
/* x ~ d values[q] over 16 ascending values. Returns d. */
float mn_fit_values(const float *x, int n, const int8_t *values, int steps, uint8_t *q);
uint8_t mn_nearest_value(const int8_t *values, float v);
float mn_extreme(const float *x, int n); /* the value farthest from 0, with its sign */
/* 32 codes of four bits: the second 16 above the first. quant.c */
void mn_put_nibbles(const uint8_t *q, uint8_t *out);
/* The squared error of x against d q + m with q rounded and clamped; the codes go to q. */
float mn_round_affine(const float *x, int n, float d, float m, int lo, int hi, int8_t *q);

/* ---- quant_k.c: blocks of 256 ---------------------------------------------------------------- */
void mn_quant_q2_k(const float *x, uint8_t *out);
void mn_quant_q3_k(const float *x, uint8_t *out);
void mn_quant_q4_k(const float *x, uint8_t *out);
void mn_quant_q5_k(const float *x, uint8_t *out);
void mn_quant_q6_k(const float *x, uint8_t *out);
void mn_quant_iq4_xs(const float *x, uint8_t *out);

static inline void mn_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
/* v, which has room there, into the bits of *p from `shift` on */
static inline void mn_put_bits(uint8_t *p, int v, int shift) {
    *p = (uint8_t)(*p | v << shift);
}
static inline float mn_put_half(uint8_t *p, float v) { /* returns what was stored */
    const float top = 65504;                           /* the largest f16 */
    const float bounded = v > top ? top : v;
    const uint16_t h = mn_f32_to_f16(bounded < -top ? -top : bounded);
    mn_put_u16(p, h);
    return mn_f16_to_f32(h);
}
#endif
