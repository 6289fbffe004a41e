/* verdict.c -- the loop of supports: a backend says what it thinks of one node. Holds nothing. */
#include "common.h"

bool mnp_knows(const mn_op_contract *contracts, uint32_t n, const mn_node *node) {
    for (uint32_t i = 0; i < n; i++)
        if (contracts[i].op == node->op)
            return node->contract <= contracts[i].contract;
    return false;
}

/* Of a newer host's mn_verdict the known fields are written. */
mn_status mnp_supports(const mn_host *h, const mn_compile *c, mnp_verdict_fn fn, void *user,
                       mn_verdict *verdicts, uint32_t stride, mn_error *err) {
    const mn_graph *g = c->graph;
    const uint64_t want = (uint64_t)g->n_symbols * sizeof(int64_t);
    int64_t *symbol = (int64_t *)mnp_new(h, want);
    if (!symbol)
        return mnp_fail_memory(err, want, "symbols");
    const size_t known = stride < sizeof(mn_verdict) ? stride : sizeof(mn_verdict);
    mn_status st = mnp_symbols(g, c->symbol_max, NULL, symbol, err);
    for (uint32_t i = c->node_lo; i < c->node_hi && !st; i++) {
        mn_verdict v = {0, 0, 0, 0};
        v.verdict = fn(user, symbol, i, &v.reason);
        memcpy((char *)verdicts + (uint64_t)(i - c->node_lo) * stride, &v, known);
    }
    mnp_delete(h, symbol);
    return st;
}
