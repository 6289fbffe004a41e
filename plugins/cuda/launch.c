/* launch.c -- what happens around the launch of a unit: which units others run, whether kernels may
 * overlap, what the scratch holds beside tensors. Holds nothing; the step is the context's. */
#include "ops.h"

static uint32_t op_at(const mng_run *r, uint32_t i) {
    return mnp_node(r->g, r->p->base.units[i].node)->op;
}

void cu_run_begin(mng_run *r) {
    r->step = &r->c->step;
    *r->step = (mng_step){.stream = r->c->stream, .sorted = -1, .rounded = -1, .last = UINT32_MAX};
}

/* ---- exchanges of a group -------------------------------------------------------------------- */
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

/* ---- units that others run ------------------------------------------------------------------- */
bool cu_is_absorbed(const mng_run *r, uint32_t i) {
    switch (op_at(r, i)) {
    case MN_OP_ADD:
        return is_added_to_sum(r->p, i);
    case MN_OP_KV_STORE:
        return cu_is_joined(r, &r->p->base.units[i]);
    case MN_OP_LINEAR:
        return i >= 1 && cu_runs_router(r, i - 1);
    case MN_OP_MOE_ROUTE:
        return i >= 2 && cu_runs_router(r, i - 2);
    default:
        return false;
    }
}

/* What a router's norm runs, and the store that an attention runs in this step. */
uint32_t cu_unit_nodes(const mng_run *r, const mng_unit *u, int32_t *nodes, uint32_t n) {
    const uint32_t op = mnp_node(r->g, u->node)->op;
    if (op == MN_OP_RMS_NORM && cu_runs_router(r, cu_index_of(r, u))) {
        nodes[n++] = u[1].node;
        nodes[n++] = u[2].node;
    }
    if (op != MN_OP_ATTENTION || !cu_is_joined(r, u))
        return n;
    const mng_unit *store = &r->p->base.units[u->with];
    nodes[n++] = store->rope_q;
    nodes[n++] = store->rope_k;
    nodes[n++] = store->node;
    return n;
}

/* ---- around a launch ------------------------------------------------------------------------- */
/* The unit that is launched after unit i; n_units = none. */
static uint32_t next_launch(const mng_run *r, uint32_t i) {
    for (i++; i < r->p->base.n_units && cu_is_absorbed(r, i);)
        i++;
    return i;
}

void cu_unit_begin(mng_run *r, uint32_t i) {
    const mng_program *p = &r->p->base;
    const uint32_t next = next_launch(r, i);
    const uint32_t last = r->step->last;
    mng_step *s = r->step;
    s->late =
        next < p->n_units && op_at(r, next) == MN_OP_ATTENTION && cu_is_joined(r, &p->units[next]);
    s->early = last < p->n_units && op_at(r, last) == MN_OP_LINEAR;
    if (exchanges_between(r->p, i, next))
        s->late = false;
    if (p->n_views || exchanges_between(r->p, last, i))
        s->early = false; /* a copy may lie between */
}

/* What the scratch holds of other tensors beside may be old where views were copied. */
void cu_unit_end(mng_run *r, uint32_t i, bool views) {
    if (views) {
        r->step->rounded = -1;
        r->step->sorted = -1;
    }
    r->step->last = i;
    if (!r->status)
        r->status = cu_check(cudaPeekAtLastError(), r->err, "launching");
}

mn_status cu_launch_some(mng_run *r, uint32_t from, uint32_t to, mn_error *err) {
    r->err = err;
    for (uint32_t i = from; i < to && !r->status; i++)
        mng_launch_unit(r, i);
    return r->status;
}

void cu_copy_view_of(mng_run *r, const mng_view *v) {
    cu_view copy = {0};
    copy.dense = (uint32_t *)((char *)v->dense.mem + v->dense.at);
    copy.apart = (uint32_t *)((char *)v->apart.mem + v->apart.at);
    copy.n = v->n;
    copy.n_dim = (int)v->n_dim;
    copy.to_apart = v->out;
    memcpy(copy.dim, v->dim, sizeof copy.dim);
    memcpy(copy.stride, v->stride, sizeof copy.stride);
    cu_copy_view(r->step->stream, &copy);
}
