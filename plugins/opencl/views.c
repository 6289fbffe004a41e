/* views.c -- operands that are views: dense ones are used where they lie in what they view; the
 * others have a dense place in the scratch (mn_program.dense), filled before each unit that reads
 * them and copied out behind each that writes them. No builder of graphs makes such views: what
 * counts is that they are right. Views of weights and of state are refused. */
#include "ops.h"

/* The last element of what the view shows, counted from the begin of its root, at the maxima; -1:
 * it has none. */
static int64_t last_element(const mn_graph *g, const mn_tensor *t, const int64_t *symbol_max) {
    int64_t last = t->offset;
    for (uint32_t d = 0; d < t->n_dim; d++) {
        const int64_t dim = mnp_dim(g, symbol_max, t->dim[d]);
        int64_t step;
        if (dim <= 0)
            return -1;
        if (__builtin_mul_overflow(dim - 1, t->stride[d], &step))
            return INT64_MAX;
        if (t->stride[d] < 0 || __builtin_add_overflow(last, step, &last))
            return INT64_MAX;
    }
    return last;
}

static bool is_dense(const mn_graph *g, const mn_tensor *t, const int64_t *symbol_max) {
    int64_t dense = 1;
    for (uint32_t d = t->n_dim; d-- > 0;) {
        const int64_t dim = mnp_dim(g, symbol_max, t->dim[d]);
        if (t->stride[d] != dense && dim != 1)
            return false;
        dense *= dim;
    }
    return true;
}

static bool is_view(const mn_graph *g, int32_t t) {
    return t >= 0 && mnp_root(g, (uint32_t)t) != (uint32_t)t;
}

bool ocl_takes_views(const mn_graph *g, const mn_node *n) {
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        const int32_t t = mnp_operand(g, n, i);
        if (!is_view(g, t))
            continue;
        const mn_tensor *view = mnp_tensor(g, (uint32_t)t);
        const uint32_t of = mnp_tensor(g, mnp_root(g, (uint32_t)t))->role;
        if (of == MN_ROLE_WEIGHT || of == MN_ROLE_STATE || view->role == MN_ROLE_STATE)
            return false;
        if (mnp_elem_bytes(view) != sizeof(uint32_t))
            return false;
    }
    return true;
}

/* Gives the view a place if it needs one. MN_INVALID: it leaves what it views. */
static mn_status place(mn_program *p, uint32_t t, mn_error *err) {
    const mn_tensor *view = mnp_tensor(p->graph, t);
    const mn_tensor *root = mnp_tensor(p->graph, mnp_root(p->graph, t));
    const int64_t last = last_element(p->graph, view, p->symbol_max);
    uint64_t bytes;
    uint64_t whole;
    const bool sized = mnp_bytes(p->graph, view, p->symbol_max, &bytes) &&
                       mnp_bytes(p->graph, root, p->symbol_max, &whole);
    if (!sized || view->offset < 0 || last >= (int64_t)(whole / sizeof(uint32_t)))
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: a view that leaves what it views",
                        MNP_NAME(view));
    if (is_dense(p->graph, view, p->symbol_max))
        return MN_OK;
    p->dense[t] = ocl_reserve(p, bytes);
    p->has_views = true;
    return MN_OK;
}

mn_status ocl_place_views(mn_program *p, mn_error *err) {
    const mn_graph *g = p->graph;
    mn_status st = MN_OK;
    for (uint32_t t = 0; t < g->n_tensors; t++)
        p->dense[t] = MNP_NOWHERE;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(g, i);
        for (uint32_t k = 0; k < n->n_in + n->n_out && !st; k++) {
            const int32_t t = mnp_operand(g, n, k);
            if (is_view(g, t) && p->dense[t] == MNP_NOWHERE)
                st = place(p, (uint32_t)t, err);
        }
    }
    return st;
}

/* Between a view's dense place and what it views; out: into the latter. */
static void copy(ocl_run *r, int32_t t, bool out) {
    const mn_tensor *x = mnp_tensor(r->g, (uint32_t)t);
    const ocl_ref dense = ocl_operand(r, t);
    ocl_ref apart = ocl_operand(r, (int32_t)mnp_root(r->g, (uint32_t)t));
    ocl_view_args a = {.n = (uint64_t)ocl_elements(r, t), .n_dim = (int)x->n_dim, .out = out};
    if (!ocl_is_there(dense) || !ocl_is_there(apart))
        return;
    apart.at += (uint64_t)x->offset * sizeof(uint32_t);
    for (uint32_t d = 0; d < x->n_dim; d++) {
        a.dim[d] = (uint64_t)ocl_dim(r, t, d);
        a.stride[d] = (uint64_t)x->stride[d];
    }
    const ocl_ref refs[] = {dense, apart};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_copy_view,
                                 .refs = refs,
                                 .n_refs = sizeof refs / sizeof *refs,
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items((int64_t)a.n, 1, 1)});
}

void ocl_copy_views(ocl_run *r, const ocl_unit *u, bool out) {
    int32_t nodes[OCL_UNIT_NODES];
    if (!r->p->has_views)
        return;
    ocl_nodes_of(u, nodes);
    for (uint32_t i = 0; i < OCL_UNIT_NODES; i++) {
        if (nodes[i] < 0)
            continue;
        const mn_node *n = mnp_node(r->g, (uint32_t)nodes[i]);
        const uint32_t first = out ? n->n_in : 0;
        const uint32_t end = out ? n->n_in + n->n_out : n->n_in;
        for (uint32_t k = first; k < end; k++) {
            const int32_t t = mnp_operand(r->g, n, k);
            if (t >= 0 && r->p->dense[t] != MNP_NOWHERE)
                copy(r, t, out);
        }
    }
}
