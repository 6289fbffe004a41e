/* grids.c -- the codebooks of IQ types (dtype/grids.h) as the bytes that kernels load: each
 * element with its type's OFF added, so that no byte has a sign. Constant data, expanded by the
 * compiler. */
#include "rows.h"
#include "grids.h"

#define ELEMENT(entry, bits, i) ((uint64_t)(entry) >> (bits) * (i) & ((1 << (bits)) - 1))
#define AT(of, entry, bits, i) (uint64_t)(of(ELEMENT(entry, bits, i))) << 8 * (i)
#define FOUR(of, entry, bits, i)                                                                   \
    (AT(of, entry, bits, i) | AT(of, entry, bits, i + 1) | AT(of, entry, bits, i + 2) |            \
     AT(of, entry, bits, i + 3))
#define EIGHT(of, entry) FOUR(of, entry, 2, 0) | FOUR(of, entry, 2, 4)

#define OF_IQ1(c) (8 * (c))
#define OF_IQ2(c) (51 + 17 * (c) + (c) / 2)        /* 43 and 8, 25, 43 */
#define OF_IQ3_XXS(c) (66 + 8 * (c) + (c) / 7 * 2) /* 62 and 4, 12, ..., 52, 62 */
#define OF_IQ3_S(c) (16 + 2 * (c))                 /* 15 and 1, 3, ..., 15 */
#define X_IQ1(entry) EIGHT(OF_IQ1, entry),
#define X_IQ2(entry) EIGHT(OF_IQ2, entry),
#define X_IQ3_XXS(entry) (uint32_t) FOUR(OF_IQ3_XXS, entry, 4, 0),
#define X_IQ3_S(entry) (uint32_t) FOUR(OF_IQ3_S, entry, 4, 0),

const uint64_t mnk_grid_iq1[2048] = {MN_GRID_IQ1(X_IQ1)};
const uint64_t mnk_grid_iq2_xxs[256] = {MN_GRID_IQ2_XXS(X_IQ2)};
const uint64_t mnk_grid_iq2_xs[512] = {MN_GRID_IQ2_XS(X_IQ2)};
const uint64_t mnk_grid_iq2_s[1024] = {MN_GRID_IQ2_S(X_IQ2)};
const uint32_t mnk_grid_iq3_xxs[256] = {MN_GRID_IQ3_XXS(X_IQ3_XXS)};
const uint32_t mnk_grid_iq3_s[512] = {MN_GRID_IQ3_S(X_IQ3_S)};
