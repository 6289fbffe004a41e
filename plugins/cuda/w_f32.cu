/* w_f32.cu -- F32: kept as stored. */
#include "rows.cuh"

extern const cu_type cu_type_f32 = float_type<weight_f32>(MN_F32, "f32", 4);
