/* rows_avxvnni.c -- 8-bit activations with the VPDPBUSD of CPUs that have it without AVX-512: few
 * rows as in rows_dot8.c, more through panels of bytes, 8 weight rows side by side. */
#include "rows.h"
#include "vec_avx2.h"
#include "dot8_x86.h"
#include "types.inc"
#include "rows_dot8.c"
#include "lanes_avx2.h"
#include "lanes_types.h"
#define LANES_NAME "lanes avxvnni"
#define LANES_ID(name) name##_avxvnni
#include "rows_lanes8.c"
#include "panel_vnni.h"
#include "rows_panels8.c"
#define PANEL_NAME "avxvnni"
#define PANEL_ID(name) name##_avxvnni
#include "rows_a8_table.inc"
