/* types.h -- the table of weight types: how a type lies on the device, and the kernels that read
 * it. A type of the table is one file (w_*.cu) and one row (types.c). A type that is not in the
 * table is kept as f32 rows, unpacked on the host by dtype/ (cu_type_of returns the row of F32); so
 * is a matrix whose rows are no whole blocks of 32 elements, as F8 and NVFP4 may have.
 *
 * On the device a weight is up to four planes, each an array of rows; a row has ld elements, the
 * columns rounded up to CU_K_ALIGN, the rest zero bytes (which every type reads as zero, or which
 * meets a zero of x). Codes lie in groups of 32 elements, in an order that a kernel can turn into
 * bytes with few instructions (codes.cuh); scales lie apart. */
#ifndef CU_TYPES_H
#define CU_TYPES_H
#include "kernels.h"
#ifdef __cplusplus
extern "C" {
#endif

/* One block of a stored weight in the DATA plane, and the values that lie in planes beside it. */
typedef struct {
    const uint8_t *data; /* [rows][blocks] stored blocks, dense */
    /* [rows][values], where the type has such planes; of NVFP4 bias is the scale of the tensor */
    const float *scale, *bias;
    cu_planes to; /* moved to the first row that is written */
    int64_t rows;
    int blocks; /* of a row */
    int values; /* of a row, in scale and in bias */
    int cols;
    int ld;
} cu_import;

typedef struct cu_type cu_type;
struct cu_type {
    uint32_t dtype;
    const char *name;
    /* bits per 128 elements of each plane: bytes of a row are ld * bits / 1024 */
    int bits[CU_MAX_PLANES];
    int align;       /* rows are padded to a multiple of so many elements */
    int block;       /* elements that import reads at once: rows of others are kept as f32 */
    int block_bytes; /* of the DATA plane */
    int planes;  /* elements of a value of SCALE (and BIAS), passed to import as f32; 0 = none */
    int half;    /* how x is rounded in class a16: CU_HALF or CU_LOW; CU_F32 = never */
    bool widens; /* products of many rows want `expand`: it is not kept as they read it */
    void (*init)(const cu_card *d);
    /* y = x W^T in f32, any rows */
    void (*gemv)(const cu_card *d, cudaStream_t s, const cu_linear *a);
    /* the same on matrix units, x in 16 bits (or one row of f32); NULL where half is CU_F32 */
    void (*mmv)(const cu_card *d, cudaStream_t s, const cu_linear *a);
    /* rows [row, row + n) of a matrix as f16, pitch elements each; times CU_LOWERED where half is
     * CU_LOW */
    void (*expand)(cudaStream_t s, const cu_planes *w, int64_t row, int64_t n, int ld, int pitch,
                   void *out);
    void (*embed)(cudaStream_t s, const cu_embed *e);
    /* stored blocks, already on the device, into planes */
    void (*import)(cudaStream_t s, const cu_import *i);
};

/* Never NULL. */
const cu_type *cu_type_of(uint32_t dtype);
/* The row of a matrix with rows of so many elements; F32's where they are no whole blocks. */
const cu_type *cu_type_for(uint32_t dtype, int64_t cols);
/* Raises limits of shared memory, of all kernels of all types. */
void cu_types_init(const cu_card *d);
static inline uint64_t cu_plane_bytes(const cu_type *t, int plane, int64_t rows, int64_t ld) {
    return (uint64_t)rows * (uint64_t)ld * (uint64_t)t->bits[plane] / 1024;
}
#ifdef __cplusplus
}
#endif
#endif
