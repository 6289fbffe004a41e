/* types.c -- the rows of the tables of types.h. Constant data. */
#include "types.h"

#define TYPE(DTYPE, name, file, options, head)                                                     \
    {MN_##DTYPE, OCL_TYPE_##name, #name, ocl_text_##file, options, head},
static const mng_type types[] = {OCL_TYPES(TYPE)};

#define KERNEL(name, source, typed) {#name, OCL_SOURCE_##source, typed},
const ocl_kernel ocl_kernels[OCL_N_KERNELS] = {OCL_KERNELS(KERNEL)};

const mng_type *ocl_type_of(uint32_t dtype) {
    for (uint32_t i = 0; i < OCL_N_TYPES; i++)
        if (types[i].dtype == dtype)
            return &types[i];
    return &types[OCL_TYPE_f32];
}

bool ocl_has_halves(const mng_type *type) {
    return type->dtype == MN_F16 || type->dtype == MN_Q8_0 || type->dtype == MN_MXFP4;
}

const mng_type *ocl_type_at(uint32_t index) {
    if (index < OCL_N_TYPES)
        return &types[index];
    return NULL;
}
