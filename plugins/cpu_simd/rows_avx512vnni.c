/* rows_avx512vnni.c -- 8-bit activations with VPDPBUSD of AVX-512: few rows as in rows_dot8.c or,
 * of some types, rows_dot8_wide.c, more through panels of bytes, 16 weight rows side by side, of
 * some types made by rows_panels8_wide.c. */
#include "rows.h"
#include "vec_avx2.h"
#include "dot8_x86.h"
#include "types.inc"
#include "rows_dot8.c"
#include "rows_dot8_wide.c"
#include "panel_vnni.h"
#include "rows_panels8.c"
#include "rows_panels8_wide.c"
#define PANEL_NAME "avx512vnni"
#define PANEL_ID(name) name##_avx512vnni
/* The types whose rows are multiplied by dot_wide, and those whose panels unpack_wide makes. */
#define dot_a8_q4_0 dot_wide_q4_0
#define dot_a8_q6_k dot_wide_q6_k
#define dot_a8_q4_k dot_wide_q4_k
#define unpack_q4_0 unpack_wide_q4_0
#define unpack_q8_0 unpack_wide_q8_0
#define unpack_q4_k unpack_wide_q4_k
#define unpack_q5_k unpack_wide_q5_k
#define unpack_q6_k unpack_wide_q6_k
#include "rows_a8_table.inc"
