/* views.c -- operands that are views: dense ones that begin where kernels want rows to begin are
 * used in what they view; the others have a dense place in the scratch (mng_program.dense), filled
 * before each unit that reads them and copied out behind each that writes them. No builder of
 * graphs makes such views: what counts is that they are right. Views of weights and of state are
 * refused (verdict.c). */
#include "gpu_table.h"

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

/* Whether kernels can use the view where it lies. */
static bool lies_well(const mng_program *p, const mn_tensor *t) {
    const int64_t align = mng_backend_of(p->dev)->limits.view_align;
    return is_dense(p->graph, t, p->symbol_max) && (!align || t->offset % align == 0);
}

static bool is_view(const mn_graph *g, int32_t t) {
    return t >= 0 && mnp_root(g, (uint32_t)t) != (uint32_t)t;
}

bool mng_accepts_views(const mn_graph *g, const mn_node *n) {
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        const int32_t t = mnp_operand(g, n, i);
        if (!is_view(g, t))
            continue;
        const mn_tensor *view = mnp_tensor(g, (uint32_t)t);
        const uint32_t of = mnp_tensor(g, mnp_root(g, (uint32_t)t))->role;
        if (of == MN_ROLE_WEIGHT || of == MN_ROLE_STATE || view->role == MN_ROLE_STATE)
            return false;
        if (view->role == MN_ROLE_WEIGHT || mnp_elem_bytes(view) != sizeof(uint32_t))
            return false;
    }
    return true;
}

/* Reserves a dense place for the view if kernels cannot use it where it lies. MN_INVALID: it leaves
 * what it views. */
static mn_status place_view(mng_program *p, uint32_t t, mn_error *err) {
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
    if (lies_well(p, view))
        return MN_OK;
    p->dense[t] = mng_reserve(p, bytes);
    p->n_views++;
    return MN_OK;
}

mn_status mng_place_views(mng_program *p, mn_error *err) {
    const mn_graph *g = p->graph;
    mn_status st = MN_OK;
    for (uint32_t t = 0; t < g->n_tensors; t++)
        p->dense[t] = MNP_NOWHERE;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(g, i);
        for (uint32_t k = 0; k < n->n_in + n->n_out && !st; k++) {
            const int32_t t = mnp_operand(g, n, k);
            if (is_view(g, t) && p->dense[t] == MNP_NOWHERE)
                st = place_view(p, (uint32_t)t, err);
        }
    }
    return st;
}

/* Between a view's dense place and what it views; out: into the latter. */
static void copy_view(mng_run *r, int32_t t, bool out) {
    const mn_tensor *x = mnp_tensor(r->g, (uint32_t)t);
    mng_view v = {.dense = mng_operand(r, t),
                  .apart = mng_operand(r, (int32_t)mnp_root(r->g, (uint32_t)t)),
                  .n = mng_elements(r, t),
                  .n_dim = x->n_dim,
                  .out = out};
    if (!mng_is_there(v.dense) || !mng_is_there(v.apart))
        return;
    v.apart.at += (uint64_t)x->offset * sizeof(uint32_t);
    for (uint32_t d = 0; d < x->n_dim; d++) {
        v.dim[d] = mng_dim(r, t, d);
        v.stride[d] = x->stride[d];
    }
    mng_backend_of(r->dev)->copy_view(r, &v);
}

/* The views among a node's operands [from, to); whether there is any. */
static bool copy_some(mng_run *r, const mn_node *n, uint32_t from, uint32_t to, bool out) {
    bool any = false;
    for (uint32_t i = from; i < to; i++) {
        const int32_t t = mnp_operand(r->g, n, i);
        if (t < 0 || mng_program_of(r->p)->dense[t] == MNP_NOWHERE)
            continue;
        copy_view(r, t, out);
        any = true;
    }
    return any;
}

bool mng_copy_views(mng_run *r, const mng_unit *u, bool out) {
    int32_t nodes[MNG_UNIT_NODES];
    bool any = false;
    if (!mng_program_of(r->p)->n_views)
        return false;
    const uint32_t n = mng_nodes_of(r, u, nodes);
    for (uint32_t i = 0; i < n; i++) {
        const mn_node *node = mnp_node(r->g, (uint32_t)nodes[i]);
        if (out)
            any |= copy_some(r, node, node->n_in, node->n_in + node->n_out, true);
        else
            any |= copy_some(r, node, 0, node->n_in, false);
    }
    return any;
}
