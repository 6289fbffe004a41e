/* rows_sve256.c -- SVE with vectors of 256 bits (Neoverse V1): products with few rows, f32 panels,
 * attention and small operations. Prompts keep the panels of i8mm and bf16: such a processor
 * multiplies four vectors of 128 bits at once, or two of 256. With 128 bits SVE does nothing that
 * Advanced SIMD does not, and is not built. */
#include "rows.h"
#include "vec_sve256.h"
#include "types.inc"
#define VNAME "sve256"
#define V_ID(name) name##_sve256
#include "rows_f32.c"
#include "rows_dot8.c"
#include "rows_a8_few.inc"
#include "rows_ops.c"
