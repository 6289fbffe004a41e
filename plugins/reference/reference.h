/* reference.h -- the ops of the oracle, one file each, and what they share. Plain loops, double sums; f32 between nodes. */
#ifndef REF_REFERENCE_H
#define REF_REFERENCE_H
#include "cpu_host.h"

/* ---- dequant.c: a weight type is one row of a table ---- */
bool ref_has_type(uint32_t dtype);
/* Elements of a row as f32, exactly: a product of an f16 scale and a small integer fits. */
void ref_row(const mnc_weight *w, int64_t row, float *out);
float ref_f16_to_f32(uint16_t h);
uint16_t ref_f32_to_f16(float f); /* nearest even */

/* Rows of the last dimension: [..., D] read as [n, D]. */
static inline int64_t ref_last(const mnc_operand *o) { return o->n_dim ? o->dim[o->n_dim - 1] : 1; }
static inline int64_t ref_rows(const mnc_operand *o) { return ref_last(o) ? o->rows * o->cols / ref_last(o) : 0; }

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

#endif
