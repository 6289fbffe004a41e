/* nodes.h -- what runs a node: the drivers over the kernels of rows.h. Built without ISA flags. */
#ifndef MNK_NODES_H
#define MNK_NODES_H
#include "rows.h"

/* mnc_op.user: which rows of the table a node may take. Static data, one per (precision, level). */
typedef struct {
    uint32_t precision;
    int32_t level;
} mnk_use;

void mnk_linear_node(const mnc_call *c, mnc_worker *w);
void mnk_attention_node(const mnc_call *c, mnc_worker *w);
void mnk_embed_node(const mnc_call *c, mnc_worker *w);
void mnk_rope_node(const mnc_call *c, mnc_worker *w);
void mnk_kv_store_node(const mnc_call *c, mnc_worker *w);
void mnk_gather_node(const mnc_call *c, mnc_worker *w);

/* Scratch for the largest shapes of the program. */
void mnk_linear_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op);
void mnk_attention_scratch(const mnc_query *q, mnc_op *op);

/* A bench and the self test look below the node: y = x W^T for one worker's rows [lo, hi) of a weight. */
void mnk_linear_rows(const mnk_linear *k, const mnc_weight *w, const uint8_t *x, int64_t ldx, int64_t r, float *y,
                     int64_t ldy, int64_t lo, int64_t hi, void *panel);
bool mnk_blas_rows(const mnc_weight *w, const float *x, int64_t r, float *y, int64_t ldy, int64_t lo,
                   int64_t hi); /* false = not built in */
#endif
