/* dequant.h -- rows of a tensor as f32, whatever it is stored as: one plane or several, transposed,
 * experts one by one. Layouts: the GGUF specification; MLX and F8: the comment on MN_DTYPES in
 * plugin.h. All functions: any thread. */
#ifndef MN_DEQUANT_H
#define MN_DEQUANT_H
#include "base/base.h"

/* Where the blocks of a row lie in one plane. A row is all of the last dimension; rows are counted
 * over all others. */
typedef struct {
    const uint8_t *at;
    int64_t step; /* bytes from one block to the next */
} mn_row_place;

uint64_t mn_row_count(const mn_tensor_info *t); /* 1 for a vector */
mn_row_place mn_row_find(const mn_tensor_info *t, uint64_t row, uint32_t plane);

bool mn_dequant_has(uint32_t dtype);
/* The row's dim[n_dim - 1] values; the type is one that mn_dequant_has. Products and sums are
 * rounded once, from double. */
void mn_dequant_row(const mn_tensor_info *t, uint64_t row, float *out);

uint32_t mn_mlx_bits(uint32_t dtype); /* of MLXb_g; 0 = another type */
/* element i of a little-endian stream */
uint32_t mn_mlx_code(const uint8_t *p, int64_t i, uint32_t bits);
/* of a SCALE or BIAS plane: F32, F16, BF16, U8 (E8M0) */
float mn_plane_value(uint32_t dtype, const uint8_t *p);
#endif
