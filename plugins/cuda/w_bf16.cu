/* w_bf16.cu -- BF16: kept as stored. */
#include "rows.cuh"

extern const cu_type cu_type_bf16 = float_type<weight_bf16>(MN_BF16, "bf16", 2);
