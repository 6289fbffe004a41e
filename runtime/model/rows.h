/* rows.h -- rows of a tensor of the model, wherever they lie: one plane or several, in parts,
 * transposed, experts one by one. dtype.h defines the meaning of a row's bytes. All functions: any
 * thread. */
#ifndef MN_MODEL_ROWS_H
#define MN_MODEL_ROWS_H
#include "base/vendor_types.h"

/* Where the blocks of a row lie in one plane. A row is all of the last dimension; rows are counted
 * over all others. */
typedef struct {
    const uint8_t *at;
    int64_t step; /* bytes from one block to the next */
} mn_row_place;

/* Rows [lo, lo + n) of the first dim of a plane that has them all. */
mn_plane mn_plane_rows(const mn_plane *p, int64_t lo, int64_t n);
uint64_t mn_row_count(const mn_tensor_info *t); /* 1 for a vector */
mn_row_place mn_row_find(const mn_tensor_info *t, uint64_t row, uint32_t plane);
/* The row's dim[n_dim - 1] values; the type is one that mn_dequant_has. */
void mn_row_values(const mn_tensor_info *t, uint64_t row, float *out);
/* The same, also of a type of `types` (may be NULL), by its to_f32; then NaN after an error. */
mn_status mn_row_unpack(const mn_vendor_types *types, const mn_tensor_info *t, uint64_t row,
                        float *out, mn_error *err);
#endif
