/* attend_fits.c -- whether the optional operands of an ATTENTION go together, for backends that
 * compute all of them. */
#include "attend_fits.h"

/* Of a table of biases [B, H] each half or all of it has exact distances and others. */
static bool biases_fit(const mn_graph *g, const mn_node *n, const mn_tensor *biases) {
    const mn_tensor *q = mnp_in_tensor(g, n, MN_ATTENTION_Q);
    const bool both_ways = mnp_attr(g, n, MN_ATTENTION_ATTR_BIDIRECTIONAL) != 0;
    if (!q || q->n_dim != 3 || biases->n_dim != 2 || biases->dim[1] != q->dim[1])
        return false;
    const int64_t buckets = both_ways ? biases->dim[0] / 2 : biases->dim[0];
    const int64_t far = mnp_attr(g, n, MN_ATTENTION_ATTR_MAX_DISTANCE);
    return buckets >= 2 && far > buckets / 2 && far <= MNP_MAX_DISTANCE;
}

bool mnp_attention_fits(const mn_graph *g, const mn_node *n) {
    const mn_tensor *biases = mnp_in_tensor(g, n, MN_ATTENTION_DISTANCE_BIAS);
    const mn_tensor *lengths = mnp_in_tensor(g, n, MN_ATTENTION_LENGTHS);
    const mn_tensor *ancestors = mnp_in_tensor(g, n, MN_ATTENTION_ANCESTORS);
    const bool slides = mnp_attr(g, n, MN_ATTENTION_ATTR_WINDOW) ||
                        mnp_attr(g, n, MN_ATTENTION_ATTR_CHUNK) ||
                        mnp_attr(g, n, MN_ATTENTION_ATTR_BIDIRECTIONAL);
    if (biases && !biases_fit(g, n, biases))
        return false;
    if (lengths && (lengths->n_dim != 1 || slides || ancestors))
        return false;
    return !ancestors || (ancestors->n_dim == 2 && !slides);
}
