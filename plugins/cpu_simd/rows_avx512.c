/* AVX-512 without VNNI takes the 8-bit rows of AVX2: maddubs gains nothing from the wider registers
 * there. */
#include "rows.h"
#include "vec_avx512.h"
#include "types.inc"
#include "rows_f32.c"
#include "rows_ops.c"
