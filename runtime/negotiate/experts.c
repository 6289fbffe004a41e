/* experts.c -- which nodes of a graph are the routed experts of a layer: the first MOE_LINEAR up to
 * the MOE_COMBINE that adds up what the experts made. They are one run of nodes, whose operands
 * from outside are the layer's row, the experts and their weights, and whose result is one row; so
 * a device can have them while another one has the rest of the layer. */
#include "negotiate/offer.h"

/* The node behind the MOE_COMBINE of the experts that begin at node lo; 0 = there is none in the
 * layer. */
static uint32_t end_of_experts(const mn_graph *g, uint32_t lo) {
    for (uint32_t i = lo; i < g->n_nodes && g->nodes[i].layer == g->nodes[lo].layer; i++)
        if (g->nodes[i].op == MN_OP_MOE_COMBINE)
            return i + 1;
    return 0;
}

mn_status mn_expert_ranges(const mn_graph *g, mn_expert_range **out, uint32_t *n, mn_error *err) {
    mn_expert_range *list = NULL;
    void *more = NULL;
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *first = &g->nodes[i];
        const uint32_t end = first->op == MN_OP_MOE_LINEAR ? end_of_experts(g, i) : 0;
        if (!end || first->layer < 0)
            continue;
        if (!mn_grow(&more, &cap, *n + 1u, sizeof *list)) {
            mn_free(list);
            *n = 0;
            return mn_fail_memory(err, (*n + 1u) * sizeof *list);
        }
        list = more;
        list[(*n)++] = (mn_expert_range){i, end, first->layer};
        i = end - 1;
    }
    *out = list;
    return MN_OK;
}
