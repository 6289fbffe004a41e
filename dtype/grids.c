/* grids.c -- the codebooks of grids.h as constant arrays. */
#include "grids.h"
#include "dtype.h"

const uint16_t mn_grid_iq2_xxs[256] = {MN_GRID_IQ2_XXS};
const uint16_t mn_grid_iq2_xs[512] = {MN_GRID_IQ2_XS};
const uint16_t mn_grid_iq2_s[1024] = {MN_GRID_IQ2_S};
const uint16_t mn_grid_iq3_xxs[256] = {MN_GRID_IQ3_XXS};
const uint16_t mn_grid_iq3_s[512] = {MN_GRID_IQ3_S};
const uint16_t mn_grid_iq1[2048] = {MN_GRID_IQ1};
