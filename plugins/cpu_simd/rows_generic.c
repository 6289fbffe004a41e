/* rows_generic.c -- the rows that run on any CPU: no ISA flags. */
#include "rows.h"
#include "vec_generic.h"
#include "types.inc"
#include "rows_f32.c"
#include "rows_dot8.c"
#include "rows_a8_few.inc"
#include "rows_ops.c"
