/* experts.c -- which nodes of a graph are the routed experts of a layer: the first MOE_LINEAR up to
 * the MOE_COMBINE that adds up what the experts made. They are one run of nodes, whose operands
 * from outside are the layer's row, the experts and their weights, and whose result is one row; so
 * a device can have them while another one has the rest of the layer.
 *
 * A divided layer (mn_division) has its products twice: first those of some experts, whose weights
 * are shorter than the list of experts, then, with RESIDENT, those of the others. The second half
 * is the run. */
#include "negotiate/offer.h"

/* ---- halves ---------------------------------------------------------------------------------- */

static bool has_residents(const mn_graph *g, const mn_node *n) {
    const uint32_t at = MN_MOE_LINEAR_WEIGHT + 2 * n->n_out + 1;
    return n->op == MN_OP_MOE_LINEAR && at < n->n_in && g->operands[n->in_off + at] >= 0;
}

static int32_t chosen_of(const mn_graph *g, const mn_node *n) {
    return g->operands[n->in_off + MN_MOE_LINEAR_EXPERTS];
}

/* A MOE_LINEAR of the other half of the node's layer; NULL: its layer is not divided. */
static const mn_node *other_half(const mn_graph *g, uint32_t node) {
    const mn_node *n = &g->nodes[node];
    const bool second = has_residents(g, n);
    uint32_t lo = node;
    while (lo > 0 && g->nodes[lo - 1].layer == n->layer)
        lo--;
    for (uint32_t i = lo; i < g->n_nodes && g->nodes[i].layer == n->layer; i++) {
        const mn_node *x = &g->nodes[i];
        const bool is_other = x->op == MN_OP_MOE_LINEAR && has_residents(g, x) != second;
        if (is_other && chosen_of(g, x) == chosen_of(g, n))
            return x;
    }
    return NULL;
}

static int64_t experts_in_weight(const mn_graph *g, const mn_node *n) {
    const int32_t w = g->operands[n->in_off + MN_MOE_LINEAR_WEIGHT];
    return w < 0 ? 0 : g->tensors[w].dim[0];
}

int64_t mn_experts_routed(const mn_graph *g, uint32_t node) {
    const int32_t chosen = chosen_of(g, &g->nodes[node]);
    for (uint32_t i = node; i-- > 0;) {
        const mn_node *n = &g->nodes[i];
        if (n->op != MN_OP_MOE_ROUTE ||
            g->operands[n->out_off + MN_MOE_ROUTE_OUT_EXPERTS] != chosen)
            continue;
        const mn_tensor *logits = &g->tensors[g->operands[n->in_off + MN_MOE_ROUTE_LOGITS]];
        return logits->n_dim == 2 ? logits->dim[1] : 0;
    }
    return 0;
}

double mn_experts_share(const mn_graph *g, uint32_t node) {
    const mn_node *n = &g->nodes[node];
    const mn_node *other = other_half(g, node);
    const int64_t all = mn_experts_routed(g, node);
    if (!other || all <= 0)
        return 1;
    const int64_t first = experts_in_weight(g, has_residents(g, n) ? other : n);
    const double share = (double)first / (double)all;
    return has_residents(g, n) ? 1 - share : share;
}

double mn_experts_use(const mn_model_graph *g, const mn_graph *own, uint32_t node) {
    const mn_node *n = &own->nodes[node];
    const mn_node *other = other_half(own, node);
    const double by_number = mn_experts_share(own, node);
    if (!other || !g || n->layer < 0 || n->layer >= g->hp.n_layer)
        return by_number;
    const mn_layer_shape *l = &g->hp.layer[n->layer];
    const int64_t first = experts_in_weight(own, has_residents(own, n) ? other : n);
    if (!l->expert_share || first > l->n_expert)
        return by_number;
    return has_residents(own, n) ? 1 - l->expert_share[first] : l->expert_share[first];
}

/* ---- ranges ---------------------------------------------------------------------------------- */

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
        const bool is_product = first->op == MN_OP_MOE_LINEAR && first->layer >= 0;
        const bool is_first = is_product && !has_residents(g, first) && other_half(g, i);
        const uint32_t end = is_product && !is_first ? end_of_experts(g, i) : 0;
        if (!end)
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
