/* boundary.c -- tensors that cross segments: where each is made, who reads it, and how its rows
 * come there. */
#include "engine/engine_impl.h"

enum { SLICE_NS = 1000000000, SETTLE_S = 600, NOBODY = -1 };

mn_status mn_event_settle(const mn_backend *b, const mn_callee *callee, mn_event **event,
                          mn_error *err) {
    mn_status st = MN_OK;
    if (!*event)
        return MN_OK;
    const uint64_t begin = mn_now_ns();
    do {
        MN_WATCHED(callee, "wait", st = b->wait(*event, SLICE_NS, err));
        if (MN_STATUS_CLASS(st) == MN_CLASS_TRANSIENT &&
            mn_now_ns() - begin > SETTLE_S * 1000000000ull)
            st = mn_fail(err, MN_DEVICE_LOST, "nothing was finished in %d s", SETTLE_S);
    } while (MN_STATUS_CLASS(st) == MN_CLASS_TRANSIENT);
    b->event_free(*event);
    *event = NULL;
    return st;
}

/* maker[t]: the segment that writes the tensor. */
static void find_makers(const mn_engine *e, int32_t *maker) {
    const mn_graph *g = &e->graph->abi;
    for (uint32_t t = 0; t < g->n_tensors; t++)
        maker[t] = NOBODY;
    for (uint32_t s = 0; s < e->n_segments; s++)
        for (uint32_t i = e->segments[s].node_lo; i < e->segments[s].node_hi; i++)
            for (uint32_t j = 0; j < g->nodes[i].n_out; j++) {
                int32_t t = g->operands[g->nodes[i].out_off + j];
                if (t >= 0)
                    maker[mn_tensor_root(g, (uint32_t)t)] = (int32_t)s;
            }
}

static mn_status give_home(mn_engine *e, uint32_t device, uint32_t t, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    uint64_t bytes;
    if (d->at[t])
        return MN_OK;
    if (!mn_tensor_bytes(&e->graph->abi, t, d->symbol_max, &bytes))
        return mn_fail(err, MN_INVALID, "%.*s: its size overflows",
                       MN_STR_ARG(e->graph->abi.tensors[t].name));
    return mn_engine_alloc(e, device, bytes, MN_MEM_DEVICE, &d->at[t], err);
}

static mn_status add_transfer(mn_engine *e, uint32_t t, uint32_t from, uint32_t to, uint32_t before,
                              mn_error *err) {
    mn_engine_device *d = &e->devices[from];
    void *more = mn_realloc(e->transfers, e->n_transfers + 1u, sizeof *e->transfers);
    void *map = NULL;
    if (!more)
        return mn_fail_memory(err, (e->n_transfers + 1ull) * sizeof *e->transfers);
    e->transfers = more;
    mn_status st = d->unified ? d->backend->map(d->at[t], &map, err) : MN_OK;
    e->transfers[e->n_transfers++] = (mn_transfer){t, from, to, before, map};
    return mn_engine_note(e, from, st);
}

/* Tensor t, made by segment `made`, is read by segment s. */
static mn_status cross(mn_engine *e, uint32_t t, uint32_t made, uint32_t s, mn_error *err) {
    const uint32_t from = e->segments[made].device;
    const uint32_t to = e->segments[s].device;
    if ((int32_t)t == e->graph->io.logits)
        e->logits_crosses = true;
    mn_status st = give_home(e, from, t, err);
    /* there already: for an earlier segment */
    if (st || from == to || e->devices[to].at[t])
        return st;
    st = give_home(e, to, t, err);
    return st ? st : add_transfer(e, t, from, to, s, err);
}

static mn_status create_staging(mn_engine *e, uint32_t device, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    uint64_t most = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->n_transfers; i++) {
        const mn_transfer *t = &e->transfers[i];
        if (t->from != device || t->map)
            continue;
        /* give_home has checked it */
        mn_tensor_bytes(&e->graph->abi, t->tensor, d->symbol_max, &bytes);
        most = MN_MAX(most, bytes);
    }
    if (!most)
        return MN_OK;
    mn_status st = mn_engine_alloc(e, device, most, MN_MEM_HOST_PINNED, &d->staging, err);
    return st ? st : mn_engine_note(e, device, d->backend->map(d->staging, &d->staging_map, err));
}

mn_status mn_boundary_create(mn_engine *e, mn_error *err) {
    const mn_graph *g = &e->graph->abi;
    mn_status st = MN_OK;
    int32_t *maker = mn_alloc(g->n_tensors, sizeof *maker);
    if (!maker)
        return mn_fail_memory(err, g->n_tensors * sizeof *maker);
    find_makers(e, maker);
    if (e->graph->io.logits >= 0)
        e->logits_device = e->segments[maker[e->graph->io.logits]].device;
    for (uint32_t s = 0; s < e->n_segments && !st; s++)
        for (uint32_t i = 0; i < e->segments[s].n_tensors && !st; i++) {
            const uint32_t t = e->segments[s].tensors[i];
            const bool state = g->tensors[t].role == MN_ROLE_STATE;
            if (!state && maker[t] >= 0 && maker[t] != (int32_t)s)
                st = cross(e, t, (uint32_t)maker[t], s, err);
        }
    mn_free(maker);
    for (uint32_t d = 0; d < e->n_devices && !st; d++)
        st = create_staging(e, d, err);
    return st;
}

static mn_status move(mn_engine *e, const mn_transfer *t, const int64_t *symbols, mn_error *err) {
    mn_engine_device *from = &e->devices[t->from];
    mn_engine_device *to = &e->devices[t->to];
    const void *rows = t->map;
    uint64_t bytes;
    mn_status st = MN_OK;
    if (!mn_tensor_bytes(&e->graph->abi, t->tensor, symbols, &bytes) || !bytes)
        return MN_OK;
    if (!rows) {
        mn_event *done = NULL;
        MN_WATCHED_FOR(mn_callee_of(from), "read", MN_MOVES_NS(bytes),
                       MN_RETRY(st, from->backend->read(from->queue, from->at[t->tensor], 0,
                                                        from->staging, 0, bytes, &done, err)));
        if (!st)
            st = mn_event_settle(from->backend, mn_callee_of(from), &done, err);
        rows = from->staging_map;
    }
    if (st)
        return mn_engine_note(e, t->from, st);
    MN_WATCHED_FOR(
        mn_callee_of(to), "write", MN_MOVES_NS(bytes),
        MN_RETRY(st, to->backend->write(to->queue, to->at[t->tensor], 0, rows, bytes, err)));
    return mn_engine_note(e, t->to, st);
}

mn_status mn_boundary_move(mn_engine *e, uint32_t before, const int64_t *symbols, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_transfers && !st; i++)
        if (e->transfers[i].before == before)
            st = move(e, &e->transfers[i], symbols, err);
    return st;
}
