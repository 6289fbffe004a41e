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

/* A table of relative keys or queries [B, H, Dk], which may be absent. */
static bool relative_fits(const mn_graph *g, const mn_node *n, uint32_t operand) {
    const mn_tensor *q = mnp_in_tensor(g, n, MN_ATTENTION_Q);
    const mn_tensor *t = mnp_in_tensor(g, n, operand);
    const int64_t far = mnp_attr(g, n, MN_ATTENTION_ATTR_MAX_DISTANCE);
    if (!t)
        return true;
    if (!q || q->n_dim != 3 || t->n_dim != 3 || t->dim[1] != q->dim[1] || t->dim[2] != q->dim[2])
        return false;
    if (t->dtype.id != MN_F32 || t->dim[0] < 2 || t->dim[0] % 2 || t->dim[0] > MNP_MAX_DISTANCE)
        return false;
    return !far || (t->dim[0] >= 4 && far - 1 > t->dim[0] / 4 && far <= MNP_MAX_DISTANCE);
}

/* Both tables, of as many rows, go without what else joins logits by the distance or the text. */
static bool relatives_fit(const mn_graph *g, const mn_node *n) {
    const mn_tensor *k = mnp_in_tensor(g, n, MN_ATTENTION_RELATIVE_K);
    const mn_tensor *q = mnp_in_tensor(g, n, MN_ATTENTION_RELATIVE_Q);
    if (!k && !q)
        return true;
    if (mnp_in(g, n, MN_ATTENTION_DISTANCE_BIAS) >= 0 || mnp_in(g, n, MN_ATTENTION_LENGTHS) >= 0 ||
        mnp_in(g, n, MN_ATTENTION_ANCESTORS) >= 0 || (k && q && k->dim[0] != q->dim[0]))
        return false;
    return relative_fits(g, n, MN_ATTENTION_RELATIVE_K) &&
           relative_fits(g, n, MN_ATTENTION_RELATIVE_Q);
}

bool mnp_attention_fits(const mn_graph *g, const mn_node *n) {
    const mn_tensor *biases = mnp_in_tensor(g, n, MN_ATTENTION_DISTANCE_BIAS);
    const mn_tensor *lengths = mnp_in_tensor(g, n, MN_ATTENTION_LENGTHS);
    const mn_tensor *ancestors = mnp_in_tensor(g, n, MN_ATTENTION_ANCESTORS);
    const bool slides = mnp_attr(g, n, MN_ATTENTION_ATTR_WINDOW) ||
                        mnp_attr(g, n, MN_ATTENTION_ATTR_CHUNK) ||
                        mnp_attr(g, n, MN_ATTENTION_ATTR_BIDIRECTIONAL);
    if ((biases && !biases_fit(g, n, biases)) || !relatives_fit(g, n))
        return false;
    if (lengths && (lengths->n_dim != 1 || slides || ancestors))
        return false;
    return !ancestors || (ancestors->n_dim == 2 && !slides);
}
