/* launch.c -- a program's units as kernel launches, for one set of symbol values. */
#include "ops.h"

static uint32_t op_at(const cu_run *r, uint32_t i) {
    return mnp_node(r->g, r->p->units[i].node)->op;
}

/* Whether an exchange of the group runs the addition. */
static bool is_added_to_sum(const mn_program *p, uint32_t i) {
    for (uint32_t k = 0; k < p->n_stops; k++)
        if (p->stops[k].add == (int32_t)i)
            return true;
    return false;
}

/* Whether members exchange something between the launches of units a and b. */
static bool exchanges_between(const mn_program *p, uint32_t a, uint32_t b) {
    for (uint32_t k = 0; k < p->n_stops; k++)
        if (p->stops[k].unit > a && p->stops[k].unit <= b)
            return true;
    return false;
}

/* What another unit runs is not launched. */
bool cu_is_absorbed(const cu_run *r, uint32_t i) {
    switch (op_at(r, i)) {
    case MN_OP_ADD:
        return is_added_to_sum(r->p, i);
    case MN_OP_KV_STORE:
        return cu_is_joined(r, &r->p->units[i]);
    case MN_OP_LINEAR:
        return i >= 1 && cu_runs_router(r, i - 1);
    case MN_OP_MOE_ROUTE:
        return i >= 2 && cu_runs_router(r, i - 2);
    default:
        return false;
    }
}

/* The unit that is launched after unit i; n_units = none. */
static uint32_t next_launch(const cu_run *r, uint32_t i) {
    for (i++; i < r->p->n_units && cu_is_absorbed(r, i);)
        i++;
    return i;
}

int cu_nodes_of(const cu_run *r, const cu_unit *u, int32_t *nodes) {
    const int32_t own[] = {u->gather, u->norm, u->rope_q, u->rope_k, (int32_t)u->node, u->epi};
    int n = 0;
    for (uint32_t k = 0; k < sizeof own / sizeof *own; k++)
        if (own[k] >= 0)
            nodes[n++] = own[k];
    const uint32_t op = mnp_node(r->g, u->node)->op;
    if (op == MN_OP_RMS_NORM && cu_runs_router(r, (uint32_t)(u - r->p->units))) {
        nodes[n++] = u[1].node;
        nodes[n++] = u[2].node;
    }
    if (op != MN_OP_ATTENTION || !cu_is_joined(r, u))
        return n;
    const cu_unit *store = &r->p->units[u->with];
    nodes[n++] = store->rope_q;
    nodes[n++] = store->rope_k;
    nodes[n++] = store->node;
    return n;
}

/* The unit with the copies of its views around it. What the scratch holds of other tensors beside
 * may be old by then. */
static void launch_apart(cu_run *r, const cu_unit *u, const cu_op *op) {
    const bool in = cu_copy_views(r, u, true);
    op->launch(r, u);
    if (cu_copy_views(r, u, false) || in) {
        r->rounded = -1;
        r->sorted = -1;
    }
}

mn_status cu_launch_unit(cu_run *r, uint32_t i, uint32_t last, mn_error *err) {
    const cu_unit *u = &r->p->units[i];
    const uint32_t next = next_launch(r, i);
    r->late = next < r->p->n_units && op_at(r, next) == MN_OP_ATTENTION &&
              cu_is_joined(r, &r->p->units[next]);
    r->early = last < r->p->n_units && op_at(r, last) == MN_OP_LINEAR;
    if (exchanges_between(r->p, i, next))
        r->late = false;
    if (r->p->n_views || exchanges_between(r->p, last, i))
        r->early = false; /* a copy may lie between */
    launch_apart(r, u, cu_op_of(op_at(r, i)));
    const cudaError_t e = cudaPeekAtLastError();
    if (e == cudaSuccess)
        return MN_OK;
    const mn_status st = cu_check(e, err, "launching");
    if (err && err->size >= MNP_UP_TO(mn_error, node))
        err->node = u->node;
    return st;
}

cu_run cu_run_of(mn_context *c, const int64_t *symbol, cudaStream_t s) {
    cu_run r = {0};
    r.c = c;
    r.p = c->prog;
    r.g = c->prog->graph;
    r.dev = c->prog->dev;
    r.sym = symbol;
    r.s = s;
    r.sorted = -1;
    r.rounded = -1;
    return r;
}

mn_status cu_launch_some(cu_run *r, uint32_t from, uint32_t to, uint32_t *last, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = from; i < to && !st; i++) {
        if (cu_is_absorbed(r, i))
            continue;
        st = cu_launch_unit(r, i, *last, err);
        *last = i;
    }
    return st;
}

mn_status cu_launch_units(mn_context *c, const int64_t *symbol, cudaStream_t s, mn_error *err) {
    cu_run r = cu_run_of(c, symbol, s);
    uint32_t last = UINT32_MAX;
    return cu_launch_some(&r, 0, c->prog->n_units, &last, err);
}
