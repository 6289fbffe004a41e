/* grids.c -- the codebooks of grids.h as constant arrays. */
#include "grids.h"
#include "dtype.h"

#define ENTRY(entry) entry,

const uint16_t mn_grid_iq2_xxs[256] = {MN_GRID_IQ2_XXS(ENTRY)};
const uint16_t mn_grid_iq2_xs[512] = {MN_GRID_IQ2_XS(ENTRY)};
const uint16_t mn_grid_iq2_s[1024] = {MN_GRID_IQ2_S(ENTRY)};
const uint16_t mn_grid_iq3_xxs[256] = {MN_GRID_IQ3_XXS(ENTRY)};
const uint16_t mn_grid_iq3_s[512] = {MN_GRID_IQ3_S(ENTRY)};
const uint16_t mn_grid_iq1[2048] = {MN_GRID_IQ1(ENTRY)};
