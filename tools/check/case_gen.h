/* case_gen.h -- what the generators of random cases share: case_ops.c, case_cache.c,
 * case_sample.c, case_state.c. */
#ifndef CASE_GEN_H
#define CASE_GEN_H
#include "case.h"

/* One case while it is built. T is what case_symbol returned for the rows of a step. */
typedef struct {
    op_case *c;
    const op_shape *s;
    uint64_t *seed;
    int64_t T;
    int64_t live; /* rows that count; the rest is padding */
    bool holes;   /* there is padding between live rows, too */
} casegen;

casegen casegen_begin(op_case *c, const op_shape *s, uint64_t *seed, const char *rows_symbol);

/* Values of op_case.dead */
enum { ROW_COUNTS = 0, ROW_PADDING = 1, ROW_SPOILED = 2 };
bool casegen_is_hole(const casegen *g, int64_t t);
int64_t casegen_spoiled_row(const casegen *g); /* -1 = none */
/* The mark of a row; outputs of a dirty case are never compared, so all its rows are padding. */
uint8_t casegen_row_mark(const casegen *g, bool padding, bool spoiled);
/* Allocates and fills dead[0], from the holes and the spoiled row. */
void casegen_mark_dead(casegen *g);

/* n + 1 elements, zeroed; NULL and the case has failed = out of memory. The caller frees. */
void *casegen_zeroed(casegen *g, int64_t n, size_t size);
void casegen_fill_bad(float *x, int64_t n); /* NaN, Inf and -Inf by turns */

/* An input [sym, d1] or, if d2 is not 0, [sym, d1, d2] of `rows` rows, of which the first
 * `drawn` are noise. Rows behind those, rows that `dead` (may be NULL) marks, and all rows of a
 * dirty case hold NaN and Inf. The tensor's index. */
int32_t casegen_float_rows(casegen *g, int64_t sym, int64_t rows, int64_t drawn,
                           const uint8_t *dead, int64_t d1, int64_t d2, const char *name);
int32_t casegen_float_input(casegen *g, int64_t d1, int64_t d2, const char *name); /* of T rows */
int32_t casegen_int_input(casegen *g, const int32_t *values, const char *name);    /* [T] */
int32_t casegen_float_output(casegen *g, int64_t cols, const char *name);          /* [T, cols] */
int32_t casegen_int_output(casegen *g, const char *name);                          /* [T] */

/* A weight of random values. */
int32_t casegen_weight(casegen *g, uint32_t dtype, uint32_t n_dim, const int64_t *dim,
                       const char *name);
/* [n], of F16 or BF16 if that is dtype, else of F32 */
int32_t casegen_vector(casegen *g, uint32_t dtype, int64_t n, const char *name);
int32_t casegen_matrix(casegen *g, uint32_t dtype, int64_t rows, int64_t cols, const char *name);

/* ---- the generators in files of their own; each adds its tensors and nodes to g->c ----------- */
void casegen_attention(casegen *g, uint32_t op,
                       uint32_t dtype); /* KV_STORE and ATTENTION; case_cache.c */
void casegen_sample(casegen *g, uint32_t op, uint32_t dtype); /* case_sample.c */
/* CONV_STATE, SSM_SCAN, GATED_DELTA; case_state.c */
void casegen_state(casegen *g, uint32_t op, uint32_t dtype);
#endif
