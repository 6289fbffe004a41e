/* w_float.cu -- F32, F16, BF16: kept as stored. */
#include "rows.cuh"

extern const cu_type cu_type_f32 = float_type<weight_f32>(MN_F32, "f32", 4);
extern const cu_type cu_type_f16 = float_type<weight_f16>(MN_F16, "f16", 2);
extern const cu_type cu_type_bf16 = float_type<weight_bf16>(MN_BF16, "bf16", 2);
