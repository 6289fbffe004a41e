/* rows_avx2_a8.c -- 8-bit activations without VNNI: few rows as in rows_a8.inc, more through panels
 * of bytes or words, 16 weight rows side by side. */
#include "rows.h"
#include "vec_avx2.h"
#include "vec_a8_x86.h"
#include "types.inc"
#include "rows_a8.inc"
#include "lanes_avx2.h"
#include "lanes_types.inc"
#define LANES_NAME "lanes avx2"
#define LANES_ID(name) name##_avx2
#include "rows_lanes.inc"
#include "panel_avx2.h"
#include "rows_a8_panels.inc"
#define PANEL_NAME "avx2"
#define PANEL_ID(name) name##_avx2
#include "rows_a8_table.inc"
