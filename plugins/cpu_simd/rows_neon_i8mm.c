/* rows_neon_i8mm.c -- 8-bit activations with the matrix products of Armv8.6 (i8mm): few rows by the
 * dot products of rows_dot8.c, more through panels of bytes, 8 weight rows side by side. */
#include "rows.h"
#include "vec_neon.h"
#include "types.inc"
#include "rows_dot8.c"
#include "panel_i8mm.h"
#include "rows_panels8.c"
#define PANEL_NAME "i8mm"
#define PANEL_ID(name) name##_neon_i8mm
#include "rows_a8_table.inc"
