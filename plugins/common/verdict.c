/* verdict.c -- the loop of supports: a backend says what it thinks of one node. Holds nothing. */
#include "common.h"

/* contracts: [n] pairs of an operation and its newest contract that the backend knows. */
bool mnp_knows(const uint32_t (*contracts)[2], uint32_t n, const mn_node *node) {
    for (uint32_t i = 0; i < n; i++)
        if (contracts[i][0] == node->op)
            return node->contract <= contracts[i][1];
    return false;
}

/* symbol_at NULL: the verdicts are for the largest sizes. Of a newer host's mn_verdict the known
 * fields are written. */
mn_status mnp_supports(const mn_host *h, const mn_graph *g, const int64_t *symbol_at,
                       mnp_verdict_fn fn, void *user, mn_verdict *verdicts, uint32_t stride,
                       mn_error *err) {
    const uint64_t want = 2 * (uint64_t)g->n_symbols * sizeof(int64_t);
    int64_t *symbol = (int64_t *)mnp_new(h, want);
    if (!symbol)
        return mnp_fail_memory(err, want, "symbols");
    int64_t *max = symbol + g->n_symbols;
    for (uint32_t i = 0; i < g->n_symbols; i++)
        max[i] = mnp_symbol(g, i)->max;
    mn_status st = mnp_symbols(g, symbol_at ? symbol_at : max, NULL, symbol, err);
    for (uint32_t i = 0; i < g->n_nodes && !st; i++) {
        size_t known;
        if (stride < sizeof(mn_verdict))
            known = stride;
        else
            known = sizeof(mn_verdict);
        mn_verdict v = {0, 0, 0, 0};
        v.verdict = fn(user, symbol, i, &v.reason);
        memcpy((char *)verdicts + (uint64_t)i * stride, &v, known);
    }
    mnp_delete(h, symbol);
    return st;
}
