/* rows_generic.c -- the rows that run on any CPU: no ISA flags. */
#include "rows.h"
#include "vec_generic.h"
#include "types.inc"
#include "rows_f32.inc"
#include "rows_a8.inc"
#include "rows_a8_few.inc"
#include "rows_ops.inc"
