/* tensor_map.h -- maps of tensors for Hopper's copy engine, which the driver encodes. */
#ifndef CU_TENSOR_MAP_H
#define CU_TENSOR_MAP_H
#include <cuda.h>
#include <stdbool.h>

/* Elements of 16 bits, the first dimension dense; strides: bytes, of the dimensions behind it. A
 * box goes to shared memory in rows of 128 bytes with the 128-byte swizzle, zeros where it lies
 * outside. */
typedef struct {
    CUtensorMapDataType type;
    unsigned n_dim;
    void *at;
    cuuint64_t dim[5];
    cuuint64_t stride[4];
    cuuint32_t box[5];
} cu_boxes;

/* Looks for the driver's function; false: it has none. */
bool cu_maps_init(void);
/* false: no such function, or it does not take these numbers */
bool cu_map_encode(CUtensorMap *map, const cu_boxes *b);
#endif
