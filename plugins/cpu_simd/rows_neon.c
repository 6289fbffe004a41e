/* Built twice: for every AArch64 CPU, and with the dot product instructions of Armv8.2. */
#include "rows.h"
#include "vec_neon.h"
#include "types.inc"
#ifdef __ARM_FEATURE_DOTPROD
#define VNAME "neon sdot"
#define V_ID(name) name##_neon_dot
#include "rows_dot8.c"
#include "rows_a8_few.inc"
#else
#define VNAME "neon"
#define V_ID(name) name##_neon
#include "rows_f32.c"
#include "rows_dot8.c"
#include "rows_a8_few.inc"
#include "rows_ops.c"
#endif
