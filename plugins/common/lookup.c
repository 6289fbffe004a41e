/* lookup.c -- whether the operands of a LOOKUP fit together. */
#include "common.h"

bool mnp_lookup_fits(const mn_graph *g, const mn_node *n) {
    const mn_tensor *w = mnp_in_tensor(g, n, MN_LOOKUP_WEIGHT);
    const mn_tensor *y = mnp_out_tensor(g, n, MN_LOOKUP_OUT_Y);
    const mn_tensor *history = mnp_in_tensor(g, n, MN_LOOKUP_HISTORY);
    const mn_tensor *pos = mnp_in_tensor(g, n, MN_LOOKUP_ROW_POS);
    const mn_tensor *slot = mnp_in_tensor(g, n, MN_LOOKUP_ROW_SLOT);
    if (!w || !y || !history || w->n_dim != 2 || y->n_dim != 2 || history->n_dim != 2)
        return false;
    if (!pos || !slot || pos->n_dim != 1 || slot->n_dim != 1)
        return false;
    const int64_t first = mnp_attr(g, n, MN_LOOKUP_ATTR_FIRST);
    const int64_t d = y->dim[1];
    const int64_t block = w->dtype.block_elems ? w->dtype.block_elems : 1;
    if (first < 0 || d < 1 || d > w->dim[1] || first > w->dim[1] - d)
        return false;
    const bool is_rest = first + d == w->dim[1];
    return first % block == 0 && (d % block == 0 || is_rest);
}
