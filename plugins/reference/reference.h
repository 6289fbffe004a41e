/* reference.h -- the ops of the oracle, one file each, and what they share. Plain loops, double
 * sums; f32 between nodes. */
#ifndef REF_REFERENCE_H
#define REF_REFERENCE_H
#include "cpu_host.h"
#include "dtype.h"

/* ---- row.c: weights as f32, by the dequantiser of dtype/ ------------------------------------- */
bool ref_has_type(uint32_t dtype);
/* The w->cols values of a row. */
void ref_row(const mnc_weight *w, int64_t row, float *out);

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
