/* cut.c -- a placement in more segments than it needs, so that the host can read what its products
 * read: a tensor that crosses segments is bound by the host, one inside of a segment is the
 * device's own, which may never store it. */
#include "negotiate/negotiate.h"

/* Whether one of the nodes [lo, hi) writes the tensor, or what it is a view of. */
static bool cut_writes(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t root) {
    for (uint32_t i = lo; i < hi; i++) {
        const mn_node *n = &g->nodes[i];
        for (uint32_t j = 0; j < n->n_out; j++) {
            const int32_t t = g->operands[n->out_off + j];
            if (t >= 0 && mn_tensor_root(g, (uint32_t)t) == root)
                return true;
        }
    }
    return false;
}

/* Whether the product reads, beside weights, what the nodes from lo on make. */
static bool cut_is_needed(const mn_graph *g, uint32_t lo, uint32_t node) {
    const mn_node *n = &g->nodes[node];
    if (n->op != MN_OP_LINEAR && n->op != MN_OP_MOE_LINEAR)
        return false;
    for (uint32_t j = 0; j < n->n_in; j++) {
        const int32_t t = g->operands[n->in_off + j];
        if (t >= 0 && cut_writes(g, lo, node, mn_tensor_root(g, (uint32_t)t)))
            return true;
    }
    return false;
}

/* The KV_STORE of what the ATTENTION of segment k reads, on its device. */
static bool cut_has_store(const mn_graph *g, const mn_segment *list, uint32_t k,
                          uint32_t attention) {
    for (uint32_t s = 0; s <= k; s++) {
        if (list[s].offer != list[k].offer)
            continue;
        for (uint32_t i = list[s].node_lo; i < list[s].node_hi && i < attention; i++)
            if (mn_node_stores_for(g, &g->nodes[i], &g->nodes[attention]))
                return true;
    }
    return false;
}

/* Pages belong to a device, so that none may read those of another one. */
static mn_status check_cut(const mn_graph *g, const mn_segment *list, uint32_t n, mn_error *err) {
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = list[k].node_lo; i < list[k].node_hi; i++)
            if (g->nodes[i].op == MN_OP_ATTENTION && !cut_has_store(g, list, k, i))
                return mn_fail_node(err, MN_UNSUPPORTED, i,
                                    "layer %d reads keys and values of another layer: what its "
                                    "products read cannot be taken out of the graph",
                                    g->nodes[i].layer);
    return MN_OK;
}

mn_status mn_placement_cut(mn_placement *p, const mn_model_graph *graph, mn_error *err) {
    const mn_graph *g = &graph->abi;
    mn_segment *list = mn_alloc(g->n_nodes, sizeof *list);
    uint32_t n = 0;
    if (!list)
        return mn_fail_memory(err, g->n_nodes * sizeof *list);
    for (uint32_t k = 0; k < p->n_segments; k++) {
        const mn_segment *s = &p->segments[k];
        list[n] = *s;
        for (uint32_t i = s->node_lo + 1; i < s->node_hi; i++) {
            if (!cut_is_needed(g, list[n].node_lo, i))
                continue;
            list[n++].node_hi = i;
            list[n] = *s;
            list[n].node_lo = i;
        }
        n++;
    }
    const mn_status st = check_cut(g, list, n, err);
    if (st) {
        mn_free(list);
        return st;
    }
    for (uint32_t k = 0; k < n; k++)
        list[k].stream_group = 0;
    p->stream.rows = 0;
    mn_free(p->segments);
    p->segments = list;
    p->n_segments = n;
    return MN_OK;
}
