/* shard_units.c -- exchanges among the units of a lowering pass: what must not be fused because
 * members exchange it between, and before which unit each exchange takes place. Arrays are the
 * caller's; nothing is kept. */
#include "shard_impl.h"

/* An exchange is one more reader of both. */
void mnp_shard_uses(const mnp_shard *s, mnp_use *uses) {
    for (uint32_t i = 0; i < s->n_exchanges; i++) {
        const mnp_exchange *e = &s->exchanges[i];
        uses[e->from].reads += 2;
        if (e->to != e->from)
            uses[e->to].reads += 2;
    }
}

/* The first unit with a node that reads tensor t; n_units = none does. */
static uint32_t first_reader(const mnp_shard *s, const mn_graph *g, uint32_t t,
                             const uint32_t *unit_of, uint32_t n_units) {
    uint32_t first = n_units;
    for (uint32_t i = s->lo; i < s->hi; i++) {
        const mn_node *n = mnp_node(g, i);
        for (uint32_t k = 0; k < n->n_in; k++)
            if (mnp_in(g, n, k) == (int32_t)t && unit_of[i] < first)
                first = unit_of[i];
    }
    return first;
}

/* The node that makes tensor t and runs in a unit at or behind `unit`; -1 = none. */
static int32_t late_maker(const mnp_shard *s, const mn_graph *g, uint32_t t,
                          const uint32_t *unit_of, uint32_t unit) {
    for (uint32_t i = s->lo; i < s->hi; i++) {
        const mn_node *n = mnp_node(g, i);
        for (uint32_t k = 0; k < n->n_out; k++)
            if (mnp_out(g, n, k) == (int32_t)t && unit_of[i] >= unit)
                return (int32_t)i;
    }
    return -1;
}

mn_status mnp_shard_stops(const mnp_shard *s, uint32_t rank, const uint32_t *unit_of,
                          uint32_t n_units, uint32_t *before, mn_error *err) {
    const mn_graph *g = mnp_shard_graph(s, rank);
    for (uint32_t i = s->n_exchanges; i-- > 0;) {
        const mnp_exchange *e = &s->exchanges[i];
        before[i] = first_reader(s, g, e->to, unit_of, n_units);
        if (i + 1 < s->n_exchanges && before[i + 1] < before[i])
            before[i] = before[i + 1];
    }
    for (uint32_t i = 0; i < s->n_exchanges; i++) {
        const uint32_t t = s->exchanges[i].from;
        const int32_t late = late_maker(s, g, t, unit_of, before[i]);
        if (late >= 0)
            return mnp_fail(err, MN_UNSUPPORTED, (uint32_t)late,
                            "node %d: %.*s is made behind the unit that wants it from all members",
                            late, MNP_NAME(mnp_tensor(g, t)));
    }
    return MN_OK;
}
