/* dequant.h -- what the files of the dequantiser share. One function per type: n values of a row,
 * whole blocks; a row's blocks may lie apart. */
#ifndef MN_DTYPE_DEQUANT_H
#define MN_DTYPE_DEQUANT_H
#include "dtype.h"

#define MN_DTYPE(NAME, name, ggml, align, planes, dequant, half, half2)                            \
    void mn_dequant_##dequant(const mn_stored_row *row, int64_t n, float *out);
#define MN_INTEGER(NAME, name, ggml, align)
#include "dtype.def"
#undef MN_DTYPE
#undef MN_INTEGER

static inline const uint8_t *mn_block(const mn_stored_row *row, int64_t b) {
    return row->plane[0].at + b * row->plane[0].step;
}
static inline uint16_t mn_u16_at(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline float mn_half_at(const uint8_t *p) {
    return mn_f16_to_f32(mn_u16_at(p));
}

#endif
