/* rows_neon_i8mm.c -- 8-bit activations with the matrix products of Armv8.6 (i8mm): few rows by the
 * dot products of rows_a8.inc, more through panels of bytes, 8 weight rows side by side. */
#include "rows.h"
#include "vec_neon.h"
#include "types.inc"
#include "rows_a8.inc"
#include "panel_i8mm.h"
#include "rows_a8_panels.inc"
#define PANEL_NAME "i8mm"
#define PANEL_ID(name) name##_neon_i8mm
#include "rows_a8_table.inc"
