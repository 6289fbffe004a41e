/* reference.h -- the ops of the oracle, one file each, and what they share. Plain loops, double
 * sums; f32 between nodes. */
#ifndef REF_REFERENCE_H
#define REF_REFERENCE_H
#include "cpu_host.h"

/* ---- dequant*.c: a weight type is one row of a table ----------------------------------------- */
bool ref_has_type(uint32_t dtype);
static inline uint16_t ref_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
/* n elements of whole blocks at p. */
void ref_q4_1(const uint8_t *p, int64_t n, float *out);
void ref_q5_0(const uint8_t *p, int64_t n, float *out);
void ref_q5_1(const uint8_t *p, int64_t n, float *out);
void ref_q8_1(const uint8_t *p, int64_t n, float *out);
void ref_q2_k(const uint8_t *p, int64_t n, float *out);
void ref_q3_k(const uint8_t *p, int64_t n, float *out);
void ref_q4_k(const uint8_t *p, int64_t n, float *out);
void ref_q5_k(const uint8_t *p, int64_t n, float *out);
void ref_q6_k(const uint8_t *p, int64_t n, float *out);
void ref_q8_k(const uint8_t *p, int64_t n, float *out);
void ref_iq4_nl(const uint8_t *p, int64_t n, float *out);
void ref_iq4_xs(const uint8_t *p, int64_t n, float *out);
void ref_mxfp4(const uint8_t *p, int64_t n, float *out);
void ref_f8_e5m2(const uint8_t *p, int64_t n, float *out);
/* MLX, MXFP4_SPLIT and the scaled F8 types: several planes. */
bool ref_has_planes_type(uint32_t dtype);
void ref_planes_row(const mnc_weight *w, int64_t row, float *out);
float ref_e2m1(uint32_t nibble); /* OCP MX 1.0: sign, 2 exponent bits, 1 mantissa bit */
float ref_e8m0(uint8_t e);       /* 2^(e - 127); 255 is NaN */
float ref_f8_e4m3(uint8_t b);    /* OCP FP8, finite form: no infinities, 0x7f is NaN */
/* Elements of a row as f32, exactly: a product of an f16 scale and a small integer fits. */
void ref_row(const mnc_weight *w, int64_t row, float *out);
float ref_f16_to_f32(uint16_t h);
uint16_t ref_f32_to_f16(float f); /* nearest even */

/* Rows of the last dimension: [..., D] read as [n, D]. */
static inline int64_t ref_last(const mnc_operand *o) {
    return o->n_dim ? o->dim[o->n_dim - 1] : 1;
}
static inline int64_t ref_rows(const mnc_operand *o) {
    return ref_last(o) ? o->rows * o->cols / ref_last(o) : 0;
}

void ref_embed(const mnc_call *c, mnc_worker *w);
void ref_rms_norm(const mnc_call *c, mnc_worker *w);
void ref_layer_norm(const mnc_call *c, mnc_worker *w);
void ref_linear(const mnc_call *c, mnc_worker *w);
void ref_rope(const mnc_call *c, mnc_worker *w);
void ref_kv_store(const mnc_call *c, mnc_worker *w);
void ref_attention(const mnc_call *c, mnc_worker *w);
void ref_act(const mnc_call *c, mnc_worker *w);
void ref_glu(const mnc_call *c, mnc_worker *w);
void ref_add(const mnc_call *c, mnc_worker *w);
void ref_mul(const mnc_call *c, mnc_worker *w);
void ref_scale(const mnc_call *c, mnc_worker *w);
void ref_softcap(const mnc_call *c, mnc_worker *w);
void ref_gather_rows(const mnc_call *c, mnc_worker *w);
void ref_moe_route(const mnc_call *c, mnc_worker *w);
void ref_moe_linear(const mnc_call *c, mnc_worker *w);
void ref_moe_combine(const mnc_call *c, mnc_worker *w);
double ref_dot(const float *a, const float *b, int64_t n); /* op_linear.c */

#endif
