/* tensor_map.c -- the driver's function that encodes maps of tensors, found once for all. */
#include "tensor_map.h"
#include <cuda_runtime_api.h>
#include <string.h>

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static encode_fn encode; /* NULL: the driver has none */

bool cu_maps_init(void) {
    enum cudaDriverEntryPointQueryResult found;
    void *f = NULL;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault,
                                         &found) == cudaSuccess &&
        found == cudaDriverEntryPointSuccess)
        memcpy(&encode, &f, sizeof f);
    return encode != NULL;
}

bool cu_map_encode(CUtensorMap *map, const cu_boxes *b) {
    const cuuint32_t one[5] = {1, 1, 1, 1, 1};
    if (!encode)
        return false;
    return encode(map, b->type, b->n_dim, b->at, b->dim, b->stride, b->box, one,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
