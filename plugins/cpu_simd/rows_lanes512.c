/* rows_lanes512.c -- products with weight rows that lie side by side, by VPDPBUSD of AVX-512. */
#include "rows.h"
#include "vec_avx512.h"
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#include "lanes_avx512.h"
#define LANES_SCOPE
#define LANES_OF(type) mnk_lanes_##type##_avx512vnni
#include "rows_lanes.inc"
