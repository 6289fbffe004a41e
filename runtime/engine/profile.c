/* profile.c -- steps through mn.profile/1: where the time of each segment goes. Beside execute,
 * which it takes the place of while the engine's caller wants a profile; the units of a step are
 * the engine's until the next one. What a plugin returns is copied and bounded here: a node that
 * the graph does not have is "?" of no layer. */
#include "engine/engine_impl.h"
#include <string.h>

mn_status mn_engine_can_profile(const mn_engine *e, mn_error *err) {
    for (uint32_t i = 0; i < e->n_devices; i++)
        if (!e->devices[i].record->plugin->profile)
            return mn_fail(err, MN_UNSUPPORTED,
                           "%s: its plugin has no %s, so it cannot be profiled",
                           e->devices[i].record->name, MN_PROFILE_ID);
    return MN_OK;
}

static void add_unit(mn_engine *e, const mn_engine_device *d, const mn_profile_unit *from) {
    const mn_graph *g = &e->graph->abi;
    mn_step_unit *to = &e->units[e->n_units++];
    *to = (mn_step_unit){
        .device = d->record->name,
        .op = "?",
        .node = from->node,
        .n_nodes = from->n_nodes,
        .layer = -1,
        .time_ns = from->time_ns,
        .bytes = from->bytes,
        .flop = from->flop,
    };
    if (from->node < g->n_nodes) {
        const mn_node *n = &g->nodes[from->node];
        const mn_op_info *op = mn_op_find(n->op);
        to->layer = n->layer;
        if (op)
            to->op = op->name;
    }
    const mn_str name = {from->name, strnlen(from->name, sizeof from->name)};
    mn_plain(to->name, sizeof to->name, name);
}

/* *n: the units that there are, which may be more than room. */
static mn_status run_profile(const mn_profile *p, mn_context *context, uint32_t set,
                             const int64_t *symbols, mn_profile_unit *units, uint32_t room,
                             uint32_t *n, mn_error *err) {
    mn_given_step given;
    *n = room;
    return p->execute(context, mn_step_give(&given, set, symbols), units, sizeof *units, n, err);
}

mn_status mn_engine_segment_profile(mn_engine *e, const mn_engine_segment *s, mn_context *context,
                                    uint32_t set, const int64_t *symbols, mn_error *err) {
    const mn_engine_device *d = &e->devices[s->device];
    const mn_profile *p = d->record->plugin->profile;
    uint32_t room = 0;
    uint32_t n = 0;
    mn_status st = mn_engine_can_profile(e, err);
    if (!st)
        st = run_profile(p, context, set, symbols, NULL, 0, &room, err);
    if (st)
        return st;
    mn_profile_unit *units = mn_calloc(room ? room : 1, sizeof *units);
    void *list = e->units;
    const bool grown = mn_grow(&list, &e->cap_units, e->n_units + room, sizeof *e->units);
    e->units = list;
    if (!units || !grown) {
        mn_free(units);
        return mn_fail_memory(err, room * (sizeof *units + sizeof *e->units));
    }
    MN_RETRY(st, run_profile(p, context, set, symbols, units, room, &n, err));
    for (uint32_t i = 0; i < n && i < room && !st; i++)
        add_unit(e, d, &units[i]);
    mn_free(units);
    return st;
}
