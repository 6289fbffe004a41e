/* page_rows.h -- rows of a head that lie one after the other in a page, for mnp_moves_get and
 * mnp_moves_put (moves.h). */
#ifndef MNP_PAGE_ROWS_H
#define MNP_PAGE_ROWS_H
#include "dtype.h"
#include "moves.h"

static inline void mnp_page_row_get(uint32_t dtype, const uint8_t *head, int64_t row_bytes,
                                    uint32_t page_tokens, int64_t at, int64_t n, float *x) {
    (void)page_tokens;
    mn_cached_get(dtype, head + at * row_bytes, n, x);
}

static inline void mnp_page_row_put(uint32_t dtype, const float *x, int64_t row_bytes,
                                    uint32_t page_tokens, int64_t at, int64_t n, uint8_t *head) {
    (void)page_tokens;
    mn_cached_put(dtype, x, n, head + at * row_bytes);
}

static const mnp_rows mnp_page_rows = {mnp_page_row_get, mnp_page_row_put};
#endif
