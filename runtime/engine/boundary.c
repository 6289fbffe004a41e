/* boundary.c -- tensors that cross segments: where each is made, who reads it, and how its rows
 * come there: out of a map of the source where the device has one, else read into pinned memory,
 * then written. A tensor goes to a device once per step, before the first segment that reads it. */
#include "engine/engine_impl.h"

enum { SLICE_NS = 1000000000, SETTLE_S = 600, NOBODY = -1 };

mn_status mn_event_settle(const mn_backend *b, const mn_callee *callee, uint64_t expected_ns,
                          mn_event **event, mn_error *err) {
    mn_status st = MN_OK;
    if (!*event)
        return MN_OK;
    const uint64_t begin = mn_now_ns();
    mn_call *call = mn_call_begin(callee, "wait", expected_ns);
    do {
        st = b->wait(*event, SLICE_NS, err);
        const bool late = mn_now_ns() - begin > SETTLE_S * 1000000000ull;
        if (late && MN_STATUS_CLASS(st) == MN_CLASS_TRANSIENT)
            st = mn_fail(err, MN_DEVICE_LOST, "nothing was finished in %d s", SETTLE_S);
    } while (MN_STATUS_CLASS(st) == MN_CLASS_TRANSIENT);
    b->event_free(*event);
    mn_call_end(call);
    *event = NULL;
    return st;
}

/* The roots of what a node writes are the segment's. */
static void mark_outputs(const mn_graph *g, const mn_node *n, int32_t segment, int32_t *maker) {
    for (uint32_t j = 0; j < n->n_out; j++) {
        const int32_t t = g->operands[n->out_off + j];
        if (t >= 0)
            maker[mn_tensor_root(g, (uint32_t)t)] = segment;
    }
}

/* maker[t]: the segment that writes the tensor. */
static void find_makers(const mn_engine *e, int32_t *maker) {
    const mn_graph *g = &e->graph->abi;
    for (uint32_t t = 0; t < g->n_tensors; t++)
        maker[t] = NOBODY;
    for (uint32_t k = 0; k < e->n_segments; k++) {
        const mn_engine_segment *s = &e->segments[k];
        for (uint32_t i = s->node_lo; i < s->node_hi; i++)
            mark_outputs(g, &g->nodes[i], (int32_t)k, maker);
    }
}

/* The tensor's buffer on the device, made when it is first wanted. */
static mn_status allocate_at(mn_engine *e, uint32_t device, uint32_t t, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    uint64_t bytes;
    if (d->at[t])
        return MN_OK;
    if (!mn_tensor_bytes(&e->graph->abi, t, d->symbol_max, &bytes))
        return mn_fail(err, MN_INVALID, "%.*s: its size overflows",
                       MN_STR_ARG(e->graph->abi.tensors[t].name));
    return mn_engine_alloc(e, device, bytes, MN_MEM_DEVICE, &d->at[t], err);
}

/* Remembers that tensor t goes from one device to another before a segment. */
static mn_status add_transfer(mn_engine *e, uint32_t t, uint32_t from, uint32_t to, uint32_t before,
                              mn_error *err) {
    mn_engine_device *d = &e->devices[from];
    const size_t n = e->n_transfers + 1u;
    void *more = mn_realloc(e->transfers, n, sizeof *e->transfers);
    void *map = NULL;
    mn_status st = MN_OK;
    if (!more)
        return mn_fail_memory(err, n * sizeof *e->transfers);
    e->transfers = more;
    if (d->unified)
        st = d->backend->map(d->at[t], &map, err);
    e->transfers[e->n_transfers++] = (mn_transfer){t, from, to, before, map};
    return mn_engine_note(e, from, st);
}

/* Tensor t, made by segment `made`, is read by segment s. */
static mn_status cross(mn_engine *e, uint32_t t, uint32_t made, uint32_t s, mn_error *err) {
    const uint32_t from = e->segments[made].device;
    const uint32_t to = e->segments[s].device;
    if ((int32_t)t == mn_graph_rows(e->graph))
        e->logits_crosses = true;
    mn_status st = allocate_at(e, from, t, err);
    /* there already: for an earlier segment */
    if (st || from == to || e->devices[to].at[t])
        return st;
    st = allocate_at(e, to, t, err);
    if (st)
        return st;
    return add_transfer(e, t, from, to, s, err);
}

/* Pinned memory for the largest tensor that leaves the device and cannot be mapped there. */
static mn_status create_staging(mn_engine *e, uint32_t device, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    uint64_t most = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->n_transfers; i++) {
        const mn_transfer *t = &e->transfers[i];
        if (t->from != device || t->map)
            continue;
        /* allocate_at has checked it */
        mn_tensor_bytes(&e->graph->abi, t->tensor, d->symbol_max, &bytes);
        most = MN_MAX(most, bytes);
    }
    if (!most)
        return MN_OK;
    mn_status st = mn_engine_alloc(e, device, most, MN_MEM_HOST_PINNED, &d->staging, err);
    if (st)
        return st;
    st = d->backend->map(d->staging, &d->staging_map, err);
    return mn_engine_note(e, device, st);
}

/* What segment k reads of other segments. State does not cross: it is where it is used. */
static mn_status cross_into(mn_engine *e, uint32_t k, const int32_t *maker, mn_error *err) {
    const mn_engine_segment *s = &e->segments[k];
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < s->n_tensors && !st; i++) {
        const uint32_t t = s->tensors[i];
        const bool state = e->graph->abi.tensors[t].role == MN_ROLE_STATE;
        if (!state && maker[t] >= 0 && maker[t] != (int32_t)k)
            st = cross(e, t, (uint32_t)maker[t], k, err);
    }
    return st;
}

mn_status mn_boundary_create(mn_engine *e, mn_error *err) {
    const size_t n = e->graph->abi.n_tensors;
    const int32_t logits = mn_graph_rows(e->graph);
    mn_status st = MN_OK;
    int32_t *maker = mn_alloc(n, sizeof *maker);
    if (!maker)
        return mn_fail_memory(err, n * sizeof *maker);
    find_makers(e, maker);
    if (logits >= 0)
        e->logits_device = e->segments[maker[logits]].device;
    for (uint32_t k = 0; k < e->n_segments && !st; k++)
        st = cross_into(e, k, maker, err);
    mn_free(maker);
    for (uint32_t d = 0; d < e->n_devices && !st; d++)
        st = create_staging(e, d, err);
    return st;
}

/* The rows of this step, one tensor, from one device to the other. */
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
            st = mn_event_settle(from->backend, mn_callee_of(from), MN_MOVES_NS(bytes), &done, err);
        rows = from->staging_map;
    }
    if (st)
        return mn_engine_note(e, t->from, st);
    st = mn_engine_write(to, to->at[t->tensor], 0, rows, bytes, err);
    return mn_engine_note(e, t->to, st);
}

mn_status mn_boundary_move(mn_engine *e, uint32_t before, const int64_t *symbols, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_transfers && !st; i++)
        if (e->transfers[i].before == before)
            st = move(e, &e->transfers[i], symbols, err);
    return st;
}
