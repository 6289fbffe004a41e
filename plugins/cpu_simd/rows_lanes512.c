/* rows_lanes512.c -- products with weight rows that lie side by side, by VPDPBUSD of AVX-512. */
#include "rows.h"
#include "vec_avx512.h"
#include "types.inc"
#include "lanes_avx512.h"
#include "lanes_types.h"
#define LANES_NAME "lanes avx512vnni"
#define LANES_ID(name) name##_avx512vnni
#include "rows_lanes8.c"
