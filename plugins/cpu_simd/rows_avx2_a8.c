/* rows_avx2_a8.c -- 8-bit activations without VNNI: few rows as in rows_dot8.c, more through panels
 * of bytes or words, 16 weight rows side by side. */
#include "rows.h"
#include "vec_avx2.h"
#include "dot8_x86.h"
#include "types.inc"
#include "rows_dot8.c"
#include "lanes_avx2.h"
#include "lanes_types.h"
#define LANES_NAME "lanes avx2"
#define LANES_ID(name) name##_avx2
#include "rows_lanes8.c"
#include "panel_avx2.h"
#include "rows_panels8.c"
#define PANEL_NAME "avx2"
#define PANEL_ID(name) name##_avx2
#include "rows_a8_table.inc"
