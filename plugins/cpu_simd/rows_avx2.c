/* rows_avx2.c -- AVX2 + FMA + F16C. */
#include "rows.h"
#include "vec_avx2.h"
#include "types.inc"
#include "rows_f32.c"
#include "rows_ops.c"
