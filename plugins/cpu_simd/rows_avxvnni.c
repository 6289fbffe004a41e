/* rows_avxvnni.c -- 8-bit activations with the VPDPBUSD of CPUs that have it without AVX-512: few
 * rows as in rows_a8.inc, more through panels of bytes, 8 weight rows side by side. */
#include "rows.h"
#include "vec_avx2.h"
#include "vec_a8_x86.h"
#include "types.inc"
#include "rows_a8.inc"
#include "lanes_avx2.h"
#include "lanes_types.inc"
#define LANES_NAME "lanes avxvnni"
#define LANES_ID(name) name##_avxvnni
#include "rows_lanes.inc"
#include "panel_vnni.h"
#include "rows_a8_panels.inc"
#define PANEL_NAME "avxvnni"
#define PANEL_ID(name) name##_avxvnni
#include "rows_a8_table.inc"
