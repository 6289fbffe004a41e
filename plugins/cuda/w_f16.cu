/* w_f16.cu -- F16: kept as stored. */
#include "rows.cuh"

extern const cu_type cu_type_f16 = float_type<weight_f16>(MN_F16, "f16", 2);
