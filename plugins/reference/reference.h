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

/* ---- an operation: one of these in its file, and its row of REF_OPS -------------------------- */
enum { REF_NO_TYPE = 1, REF_NO_VECTOR, REF_NO_F32, REF_NO_SHAPE }; /* reasons of a no */
typedef struct {
    mnc_fn first; /* as in mnc_op */
    mnc_fn fn;
    void (*size)(const mnc_query *q, mnc_op *op); /* scratch; NULL = needs none */
    /* A reason, or 0: may the WEIGHT tensor t be operand i? NULL: F32, F16 and BF16 may. */
    uint32_t (*weight)(const mnc_query *q, uint32_t i, const mn_tensor *t);
    /* Do the operands fit together? Operand 0 is there. NULL: they do. */
    bool (*fits)(const mnc_query *q);
} ref_op;

/* X(OP, name, contract) */
#define REF_OPS(X)                                                                                 \
    X(EMBED, embed, 2)                                                                             \
    X(RMS_NORM, rms_norm, 3)                                                                       \
    X(LAYER_NORM, layer_norm, 1)                                                                   \
    X(LINEAR, linear, 2)                                                                           \
    X(ROPE, rope, 2)                                                                               \
    X(KV_STORE, kv_store, 2)                                                                       \
    X(ATTENTION, attention, 5)                                                                     \
    X(ACT, act, 3)                                                                                 \
    X(GLU, glu, 2)                                                                                 \
    X(ADD, add, 1)                                                                                 \
    X(MUL, mul, 1)                                                                                 \
    X(SCALE, scale, 1)                                                                             \
    X(SOFTCAP, softcap, 1)                                                                         \
    X(GATHER_ROWS, gather_rows, 1)                                                                 \
    X(SAMPLE, sample, 4)                                                                           \
    X(MOE_ROUTE, moe_route, 2)                                                                     \
    X(MOE_LINEAR, moe_linear, 3)                                                                   \
    X(MOE_COMBINE, moe_combine, 3)                                                                 \
    X(CONV_STATE, conv_state, 1)                                                                   \
    X(SSM_SCAN, ssm_scan, 1)                                                                       \
    X(GATED_DELTA, gated_delta, 1)                                                                 \
    X(LOOKUP, lookup, 1)                                                                           \
    X(LORA, lora, 1)
#define REF_DECLARE_(OP, name, contract) extern const ref_op ref_op_##name;
REF_OPS(REF_DECLARE_)

/* For size, weight and fits; symbols at the values of the query. Dims of operands that are absent
 * or have none: 0. */
uint64_t ref_last_dim(const mnc_query *q, uint32_t in);
uint64_t ref_first_dim(const mnc_query *q, uint32_t in);
uint32_t ref_vector(const mn_tensor *t); /* F32, F16 or BF16, else REF_NO_VECTOR */
uint32_t ref_f32(const mnc_query *q, uint32_t i, const mn_tensor *t); /* a `weight` */
bool ref_has_second(const mnc_query *q);                              /* a `fits` */

/* ---- state.c: for the operations with a state ------------------------------------------------ */
bool ref_has_state(const mnc_query *q); /* a `fits` */
/* to becomes what the step begins with; from NULL: zeros. They may be the same. */
void ref_state_begin(const float *from, float *to, int64_t n);
double ref_softplus(double x);          /* ln(1 + exp(x)) */
double ref_rate(double a, bool is_log); /* a, or -exp(a) */

double ref_dot(const float *a, const float *b, int64_t n); /* op_linear.c */

#endif
