/* views.c -- operands that are views: dense ones lie inside of what they view, aligned as kernels
 * want rows; the others have a dense place in the scratch, filled before each unit that reads them
 * and copied out behind each that writes them. No builder of graphs makes such views: what counts
 * is that they are right. Views of weights and of state are refused (verdict.c). */
#include "ops.h"

/* The last element that the view reaches, at the maxima; -1 = none. */
static int64_t last_element(const mn_program *p, const mn_tensor *t) {
    int64_t last = t->offset;
    for (uint32_t d = 0; d < t->n_dim; d++) {
        const int64_t dim = mnp_dim(p->graph, p->symbol_max, t->dim[d]);
        if (dim <= 0)
            return -1;
        int64_t step;
        if (__builtin_mul_overflow(dim - 1, t->stride[d], &step))
            return INT64_MAX;
        if (__builtin_add_overflow(last, step, &last))
            return INT64_MAX;
    }
    return last;
}

/* Whether kernels can use the view where it lies. */
static bool lies_well(const mn_program *p, const mn_tensor *t) {
    int64_t dense = 1;
    for (uint32_t d = t->n_dim; d-- > 0;) {
        const int64_t dim = mnp_dim(p->graph, p->symbol_max, t->dim[d]);
        if (t->stride[d] != dense && dim != 1)
            return false;
        dense *= dim;
    }
    return t->offset % 4 == 0; /* 16 bytes */
}

/* A view that a node of the segment touches: inside of what it views; if it needs a place it gets
 * one. */
static mn_status place_view(mn_program *p, uint32_t t, mn_error *err) {
    const mn_tensor *view = mnp_tensor(p->graph, t);
    const mn_tensor *root = mnp_tensor(p->graph, mnp_root(p->graph, t));
    uint64_t bytes;
    uint64_t whole;
    const bool sized = mnp_bytes(p->graph, view, p->symbol_max, &bytes) &&
                       mnp_bytes(p->graph, root, p->symbol_max, &whole);
    if (!sized || last_element(p, view) >= (int64_t)(whole / 4))
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: a view that leaves what it views",
                        MNP_NAME(view));
    if (lies_well(p, view))
        return MN_OK;
    p->dense[t] = cu_reserve(p, bytes);
    p->n_views++;
    return MN_OK;
}

mn_status cu_place_views(mn_program *p, mn_error *err) {
    const mn_graph *g = p->graph;
    mn_status st = MN_OK;
    for (uint32_t t = 0; t < g->n_tensors; t++)
        p->dense[t] = MNP_NOWHERE;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(g, i);
        for (uint32_t k = 0; k < n->n_in + n->n_out && !st; k++) {
            const int32_t t = mnp_operand(g, n, k);
            const bool view = t >= 0 && mnp_root(g, t) != (uint32_t)t;
            if (view && p->dense[t] == MNP_NOWHERE)
                st = place_view(p, (uint32_t)t, err);
        }
    }
    return st;
}

/* One view of a unit, in this step; to: into what it views. */
static void copy_view(const cu_run *r, int32_t t, bool to) {
    const mn_tensor *x = mnp_tensor(r->g, t);
    char *root = cu_ptr(r, (int32_t)mnp_root(r->g, t));
    cu_view v = {0};
    if (!root)
        return;
    v.dense = cu_ptr(r, t);
    v.apart = (uint32_t *)root + x->offset;
    v.n_dim = (int)x->n_dim;
    v.n = cu_elements(r, t);
    v.to_apart = to;
    for (uint32_t d = 0; d < x->n_dim; d++) {
        v.dim[d] = cu_dim(r, t, d);
        v.stride[d] = x->stride[d];
    }
    cu_copy_view(r->s, &v);
}

/* The views among a node's operands [from, to); false = none. */
static bool copy_some(const cu_run *r, const mn_node *n, uint32_t from, uint32_t to, bool out) {
    bool any = false;
    for (uint32_t i = from; i < to; i++) {
        const int32_t t = mnp_operand(r->g, n, i);
        if (t < 0 || r->p->dense[t] == MNP_NOWHERE)
            continue;
        copy_view(r, t, out);
        any = true;
    }
    return any;
}

/* in: what the unit's nodes read, before it is launched; else what they wrote. Whether there is
 * any. */
bool cu_copy_views(const cu_run *r, const cu_unit *u, bool in) {
    int32_t nodes[CU_UNIT_NODES];
    bool any = false;
    if (!r->p->n_views)
        return false;
    const int n = cu_nodes_of(r, u, nodes);
    for (int i = 0; i < n; i++) {
        const mn_node *node = mnp_node(r->g, (uint32_t)nodes[i]);
        const uint32_t all = node->n_in + node->n_out;
        if (in)
            any |= copy_some(r, node, 0, node->n_in, false);
        else
            any |= copy_some(r, node, node->n_in, all, true);
    }
    return any;
}
