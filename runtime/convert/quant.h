/* quant.h -- from f32 to the types of the GGUF specification. Each block is chosen for the least
 * weighted sum of squared errors among a few candidates of its scale, then the scale is solved for
 * by least squares. Deterministic, the same on every CPU; pure; any thread. */
#ifndef MN_QUANT_H
#define MN_QUANT_H
#include "base/base.h"

bool mn_quant_has(uint32_t dtype);
/* n finite values, whole blocks, to out. w: a weight above 0 of each value's squared error, about 1
 * in the mean; NULL = all the same. */
void mn_quant_row(uint32_t dtype, const float *x, const float *w, int64_t n, uint8_t *out);

/* Functions that the linker's resolver chooses by the CPU's registers, with the same results. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) &&                 \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define MN_FAST __attribute__((target_clones("default", "avx2")))
#else
#define MN_FAST
#endif

/* ---- quant_fit.c: what the types share. n: a multiple of 8, at most MN_FIT_MAX; w: weights */
#define MN_FIT_MAX 32
/* x ~ d q, q in [lo, hi], lo < 0. Returns d. */
float mn_fit_scale(const float *x, const float *w, int n, int lo, int hi);
/* x ~ d q + m, q in [0, hi]; below: m must not be above 0. Returns d. */
float mn_fit_affine(const float *x, const float *w, int n, int hi, bool below, float *m);
/* x ~ d values[q] over 16 ascending values. Returns d. */
float mn_fit_values(const float *x, const float *w, int n, const int8_t *values);
uint8_t mn_nearest_value(const int8_t *values, float v);
/* The weighted squared error of x against d values[q] with the nearest q. */
float mn_values_error(const float *x, const float *w, int n, float d, const int8_t *values);
float mn_extreme(const float *x, int n); /* the value farthest from 0, with its sign */
/* 32 codes of four bits: the second 16 above the first. quant.c */
void mn_put_nibbles(const uint8_t *q, uint8_t *out);
/* x against d q + m with q rounded and clamped: the weighted squared error; the codes. */
float mn_affine_error(const float *x, const float *w, int n, float d, float m, int lo, int hi);
void mn_round_affine(const float *x, int n, float d, float m, int lo, int hi, int8_t *q);

/* ---- quant_k.c: blocks of 256 ---------------------------------------------------------------- */
void mn_quant_q2_k(const float *x, const float *w, uint8_t *out);
void mn_quant_q3_k(const float *x, const float *w, uint8_t *out);
void mn_quant_q4_k(const float *x, const float *w, uint8_t *out);
void mn_quant_q5_k(const float *x, const float *w, uint8_t *out);
void mn_quant_q6_k(const float *x, const float *w, uint8_t *out);
void mn_quant_iq4_xs(const float *x, const float *w, uint8_t *out);

/* ---- quant_iq.c: blocks of 256, indices of a codebook ---------------------------------------- */
void mn_quant_iq2_xxs(const float *x, const float *w, uint8_t *out);
void mn_quant_iq2_xs(const float *x, const float *w, uint8_t *out);
void mn_quant_iq2_s(const float *x, const float *w, uint8_t *out);
void mn_quant_iq3_xxs(const float *x, const float *w, uint8_t *out);
void mn_quant_iq3_s(const float *x, const float *w, uint8_t *out);

/* ---- quant_iq1.c: blocks of 256, elements of -1, 0 and 1 ------------------------------------- */
void mn_quant_iq1_s(const float *x, const float *w, uint8_t *out);
void mn_quant_iq1_m(const float *x, const float *w, uint8_t *out);
void mn_quant_tq1_0(const float *x, const float *w, uint8_t *out);
void mn_quant_tq2_0(const float *x, const float *w, uint8_t *out);

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
