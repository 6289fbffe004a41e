/* vec_amx.h -- the vocabulary for AMX: that of AVX-512, and products of tiles. */
#include "vec_avx512.h"
#include "amx.h"
#include "amx_bf16.h"
