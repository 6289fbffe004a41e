/* group_stops.c -- the exchanges of a member's program among its units: before which unit each
 * takes place, which additions the sums take in, and how long the tensors between live. The
 * program owns the stops; the plan outlives it. */
#include "ops.h"

/* unit_of: [n_nodes] */
static void fill_units(const mn_program *p, uint32_t *unit_of) {
    for (uint32_t i = 0; i < p->base.graph->n_nodes; i++)
        unit_of[i] = p->base.n_units;
    for (uint32_t i = 0; i < p->base.n_units; i++) {
        const mng_unit *u = &p->base.units[i];
        const int32_t nodes[] = {(int32_t)u->node,  u->gather, u->norm,
                                 cu_epilogue_of(u), u->rope_q, u->rope_k};
        for (uint32_t k = 0; k < sizeof nodes / sizeof *nodes; k++)
            if (nodes[k] >= 0)
                unit_of[nodes[k]] = i;
    }
}

static uint32_t count_readers(const mn_program *p, int32_t t) {
    uint32_t n = 0;
    for (uint32_t i = p->base.lo; i < p->base.hi; i++) {
        const mn_node *node = mnp_node(p->base.graph, i);
        for (uint32_t k = 0; k < node->n_in; k++)
            n += mnp_in(p->base.graph, node, k) == t;
    }
    return n;
}

/* The unit in front of which a sum is taken adds to it, and alone reads it; -1 = it does not. */
static int32_t addition(const mn_program *p, const mnp_exchange *e, uint32_t unit) {
    if (e->kind != MNP_SUM || unit >= p->base.n_units)
        return -1;
    const mn_node *n = mnp_node(p->base.graph, p->base.units[unit].node);
    const int32_t t = e->to;
    if (n->op != MN_OP_ADD || p->base.uses[t].crosses || count_readers(p, t) != 1)
        return -1;
    const bool reads = mnp_in(p->base.graph, n, 0) == t || mnp_in(p->base.graph, n, 1) == t;
    const bool interior = mnp_tensor(p->base.graph, e->to)->role == MN_ROLE_INTERIOR;
    if (reads && interior)
        return (int32_t)unit;
    return -1;
}

mn_status cu_find_stops(mn_program *p, mn_error *err) {
    uint32_t n;
    const mnp_exchange *e = mnp_shard_exchanges(p->plan, &n);
    const uint64_t words = p->base.graph->n_nodes + n;
    uint32_t *unit_of = mng_new(p->base.dev, words * sizeof *unit_of);
    p->stops = mng_new(p->base.dev, n * sizeof *p->stops);
    if (!unit_of || !p->stops) {
        mng_delete(p->base.dev, unit_of);
        return mnp_fail_memory(err, words * sizeof *unit_of, "exchanges of a group");
    }
    uint32_t *before = unit_of + p->base.graph->n_nodes;
    fill_units(p, unit_of);
    mn_status st = mnp_shard_stops(p->plan, p->rank, unit_of, p->base.n_units, before, err);
    for (uint32_t i = 0; i < n && !st; i++) {
        /* of several in front of one unit only the last has all that the unit reads */
        const bool last = i + 1 == n || before[i + 1] != before[i];
        p->stops[i].unit = before[i];
        p->stops[i].add = last ? addition(p, &e[i], before[i]) : -1;
    }
    p->n_stops = st ? 0 : n;
    mng_delete(p->base.dev, unit_of);
    return st;
}

static void live_at(mnp_allocation *a, int32_t at) {
    if (a->first < 0 || at < a->first)
        a->first = at;
    if (at > a->last)
        a->last = at;
}

/* What an exchange reads lives until it; what it makes, from it on. */
void cu_stops_live(mn_program *p) {
    uint32_t n;
    const mnp_exchange *e = p->plan ? mnp_shard_exchanges(p->plan, &n) : NULL;
    for (uint32_t i = 0; i < p->n_stops; i++) {
        live_at(&p->base.allocations[e[i].from], p->stops[i].unit);
        live_at(&p->base.allocations[e[i].to], p->stops[i].unit);
        p->base.allocations[e[i].to].produced = true;
    }
}
