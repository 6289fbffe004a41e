/* nodes.h -- what runs a node: the drivers over the kernels of rows.h. Built without ISA flags. */
#ifndef MNK_NODES_H
#define MNK_NODES_H
#include "rows.h"

/* Which rows of the table a node may take. mnc_op.user of most nodes: static data, one per
 * (precision, level, blas); of LINEAR and MOE_LINEAR their plan (plan.h), which begins with it. */
typedef struct {
    uint32_t precision;
    int32_t level;
    bool blas; /* this program's threads may call mnk_blas_rows */
} mnk_use;

void mnk_linear_quantise(const mnc_call *c, mnc_worker *w); /* before: x to 8 bits */
void mnk_linear_node(const mnc_call *c, mnc_worker *w);
/* LINEAR with a matrix for each head (heads.c). */
bool mnk_has_heads(const mnc_query *q);
void mnk_heads_node(const mnc_call *c, mnc_worker *w);
mnc_work mnk_heads_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
void mnk_heads_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op);
void mnk_attention_split(const mnc_call *c, mnc_worker *w); /* before: chunks of long rows */
void mnk_attention_node(const mnc_call *c, mnc_worker *w);
void mnk_embed_resolve(const mnc_call *c, mnc_worker *w); /* before: ids, in row order */
void mnk_embed_node(const mnc_call *c, mnc_worker *w);
void mnk_lookup_node(const mnc_call *c, mnc_worker *w);
void mnk_lora_shrink(const mnc_call *c, mnc_worker *w); /* before: A x */
void mnk_lora_node(const mnc_call *c, mnc_worker *w);
void mnk_rope_node(const mnc_call *c, mnc_worker *w);
void mnk_kv_store_node(const mnc_call *c, mnc_worker *w);
void mnk_gather_node(const mnc_call *c, mnc_worker *w);
void mnk_moe_route_node(const mnc_call *c, mnc_worker *w);
void mnk_moe_quantise(const mnc_call *c, mnc_worker *w); /* before: x to 8 bits */
void mnk_moe_linear_node(const mnc_call *c, mnc_worker *w);
void mnk_moe_combine_node(const mnc_call *c, mnc_worker *w);
void mnk_conv_node(const mnc_call *c, mnc_worker *w);
void mnk_scan_prepare(const mnc_call *c, mnc_worker *w); /* before: decays of the rows */
void mnk_scan_node(const mnc_call *c, mnc_worker *w);
void mnk_delta_prepare(const mnc_call *c, mnc_worker *w); /* before: decays, lengths of q and k */
void mnk_delta_node(const mnc_call *c, mnc_worker *w);

/* mnc_op.work of each. */
mnc_work mnk_linear_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_attention_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_embed_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_rope_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_kv_store_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_sample_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_output_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_moe_route_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_moe_linear_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_conv_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_scan_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_delta_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
mnc_work mnk_lora_work(const mnc_call *c, uint32_t stage, uint32_t n_threads);
/* mnc_op.cells of those that have more than rows. */
int64_t mnk_linear_cells(const mnc_call *c, uint32_t stage);
/* mnc_op.takes: the norm before few rows' products. */
bool mnk_linear_takes(const mnc_call *c);
int64_t mnk_attention_cells(const mnc_call *c, uint32_t stage);
int64_t mnk_vector_cells(const mnc_call *c, uint32_t stage); /* norms */
int64_t mnk_head_cells(const mnc_call *c, uint32_t stage);   /* ROPE, KV_STORE */
int64_t mnk_element_cells(const mnc_call *c, uint32_t stage);
int64_t mnk_moe_cells(const mnc_call *c, uint32_t stage);
/* mnc_op.now: each row of the step has a sequence of its own, so that its head needs nothing but
 * the same head of its own key and value, and of steps before. */
bool mnk_attention_now(const mnc_call *c, uint32_t n_threads);

/* Scratch for the largest shapes of the program. */
void mnk_linear_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op);
void mnk_attention_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op);
void mnk_lora_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op);
void mnk_moe_route_scratch(const mnc_query *q, mnc_op *op);
void mnk_moe_linear_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op);
/* Of CONV_STATE, SSM_SCAN and GATED_DELTA. */
void mnk_state_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op);

/* ---- products, for LINEAR and MOE_LINEAR ----------------------------------------------------- */
/* y = x W^T for r rows of x and rows [lo, hi) of the weight; k: the kernel for r rows. panel:
 * k->panel_bytes if r > MNK_FEW_ROWS. */
void mnk_linear_rows(const mnk_linear *k, const mnc_weight *w, const mnk_pair *pair, int64_t r,
                     int64_t lo, int64_t hi, void *panel);
/* A product of r rows of x with n rows of k weights. */
mnc_work mnk_product_work(int64_t n, int64_t k, int64_t r);
/* This part's share of x [r, per_row, k] to mnk_quant rows. */
void mnk_quantise_rows(const mnc_worker *w, const float *x, int64_t r, int64_t per_row, int64_t k,
                       uint8_t *to);
/* Bytes of these forms of r rows of x, or that many groups in tiles; f32: none. Rows in 8 bits and
 * tiles of them are never there at once: the number of rows decides. */
uint64_t mnk_x_bytes(uint32_t forms, int64_t k, int64_t r, int64_t groups);
/* The forms of x that a call's products read, side by side in its shared memory. */
typedef struct {
    const mnk_linear *kern[MNK_X_FORMS]; /* that makes the form; NULL: nobody reads it */
    int64_t at[MNK_X_FORMS];
    /* Above 0: so many threads make tiles of their own, of rows in f32 or 8 bits, and each has
     * own_bytes for all forms of tiles, from at[MNK_X_TILES] on. 0: a stage before the products
     * makes them, for all threads. */
    int64_t n_own;
    int64_t own_bytes;
    int64_t end; /* of all */
} mnk_forms;
void mnk_forms_add(mnk_forms *f, const mnk_linear *kern);
/* When all are added. */
void mnk_forms_place(mnk_forms *f, int64_t k, int64_t r, int64_t groups);
/* A stage before the products makes tiles. */
static inline bool mnk_forms_has_tiles(const mnk_forms *f) {
    bool tiles = false;
    for (int32_t form = MNK_X_TILES; form < MNK_X_FORMS; form++)
        tiles |= f->kern[form] != NULL;
    return tiles && !f->n_own;
}
/* The form that kern reads. */
static inline int32_t mnk_form_of(const mnk_forms *f, const mnk_linear *kern) {
    const bool wider = kern->x_form == MNK_X_TILES && f->kern[MNK_X_TILES2];
    return wider ? MNK_X_TILES2 : kern->x_form;
}
static inline int64_t mnk_groups(int64_t r) {
    return (r + MNK_GROUP - 1) / MNK_GROUP;
}
/* So few rows that a part has some columns of all of them: what reads those columns alone is done
 * where they are made. Then tiles are each thread's own, because a thread makes them of so few rows
 * in less time than threads wait for one another. */
#define MNK_COLUMN_ROWS 32
/* Of the table: the rows of x above r from which on other kernels may be found; 0: none. */
int64_t mnk_next_rows(int64_t r);
/* Whether a LINEAR of these shapes has products that sgemm computes faster. */
bool mnk_linear_wants_blas(const mnc_query *q, const mnk_use *use);
#endif
