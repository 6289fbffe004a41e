/* boundary.c -- tensors that cross segments: their memory (negotiate/crossing.c says which have the
 * same), and how their rows come to another device: out of a map of the source where the device has
 * one, else read into pinned memory, then written. A tensor goes to a device once per step, before
 * the first segment that reads it; what goes at one time is waited for once. Reads are enqueued
 * behind the segment that makes what they read, in front of what its device has to do besides: so
 * the device works on while another one waits for the rows and computes. */
#include "engine/engine_impl.h"

enum { SLICE_NS = 1000000000, SETTLE_S = 600, STAGED_ALIGN = 256 };

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

/* ---- memory ---------------------------------------------------------------------------------- */

/* Memory of the place, when a tensor first lies there. */
static mn_status allocate_place(mn_engine *e, const mn_crossing *c, const mn_crossing_place *place,
                                mn_error *err) {
    mn_engine_device *d = &e->devices[c->device];
    if (!d->places)
        d->places = mn_calloc(e->n_places, sizeof(mn_buffer *));
    if (!d->places)
        return mn_fail_memory(err, e->n_places * sizeof(mn_buffer *));
    mn_status st = MN_OK;
    if (!d->places[c->place])
        st = mn_engine_alloc(e, c->device, place->bytes, MN_MEM_DEVICE, &d->places[c->place], err);
    d->at[c->tensor] = d->places[c->place];
    return st;
}

/* Remembers that the tensor goes to the device before a segment. */
static mn_status add_transfer(mn_engine *e, const mn_crossing *c, mn_error *err) {
    mn_engine_device *d = &e->devices[c->from];
    const size_t n = e->n_transfers + 1u;
    void *more = mn_realloc(e->transfers, n, sizeof *e->transfers);
    void *map = NULL;
    mn_status st = MN_OK;
    if (!more)
        return mn_fail_memory(err, n * sizeof *e->transfers);
    e->transfers = more;
    if (d->unified)
        st = d->backend->map(d->at[c->tensor], &map, err);
    e->transfers[e->n_transfers++] = (mn_transfer){
        .tensor = c->tensor,
        .from = c->from,
        .to = c->device,
        .made = c->made,
        .before = c->first,
        .map = map,
    };
    e->segments[c->made].is_mapped |= map != NULL;
    return mn_engine_note(e, c->from, st);
}

/* Whether the rows of both are in the staging memory at one time. a is moved no later than b. */
static bool overlaps(const mn_transfer *a, const mn_transfer *b) {
    return a->from == b->from && !a->map && a->before > b->made;
}

/* Transfers that are read of the device lie behind those that are in its staging memory at the same
 * time. *most: bytes of that memory. */
static void stage_transfers(mn_engine *e, uint32_t device, uint64_t *most) {
    *most = 0;
    for (uint32_t i = 0; i < e->n_transfers; i++) {
        mn_transfer *t = &e->transfers[i];
        uint64_t bytes = 0;
        if (t->from != device || t->map)
            continue;
        t->staged_at = 0;
        for (const mn_transfer *a = e->transfers; a < t; a++)
            if (overlaps(a, t))
                t->staged_at = MN_MAX(t->staged_at, a->staged_end);
        /* mn_crossings_find has checked it */
        mn_tensor_bytes(&e->graph->abi, t->tensor, e->devices[device].symbol_max, &bytes);
        const uint64_t end = t->staged_at + bytes + STAGED_ALIGN - 1;
        t->staged_end = end / STAGED_ALIGN * STAGED_ALIGN;
        *most = MN_MAX(*most, t->staged_end);
    }
}

/* Pinned memory for what leaves the device and cannot be mapped there. */
static mn_status create_staging(mn_engine *e, uint32_t device, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    uint64_t most;
    stage_transfers(e, device, &most);
    if (!most)
        return MN_OK;
    mn_status st = mn_engine_alloc(e, device, most, MN_MEM_HOST_PINNED, &d->staging, err);
    if (st)
        return st;
    st = d->backend->map(d->staging, &d->staging_map, err);
    return mn_engine_note(e, device, st);
}

/* Memory and transfers of what crosses. */
static mn_status adopt_crossings(mn_engine *e, const mn_crossings *x, mn_error *err) {
    const int32_t logits = mn_graph_rows(e->graph);
    mn_status st = MN_OK;
    e->n_places = x->n_places;
    for (uint32_t i = 0; i < x->n && !st; i++) {
        const mn_crossing *c = &x->at[i];
        if ((int32_t)c->tensor == logits)
            e->logits_crosses = true;
        st = allocate_place(e, c, &x->places[c->place], err);
        if (!st && c->from != MN_NOT_MOVED)
            st = add_transfer(e, c, err);
    }
    return st;
}

/* The device of the segment that makes the logits. */
static void find_logits(mn_engine *e) {
    const mn_graph *g = &e->graph->abi;
    const int32_t logits = mn_graph_rows(e->graph);
    for (uint32_t k = 0; k < e->n_segments; k++) {
        const mn_engine_segment *s = &e->segments[k];
        for (uint32_t i = s->node_lo; i < s->node_hi; i++)
            for (uint32_t j = 0; j < g->nodes[i].n_out; j++) {
                const int32_t t = g->operands[g->nodes[i].out_off + j];
                if (t >= 0 && logits >= 0 && mn_tensor_root(g, (uint32_t)t) == (uint32_t)logits)
                    e->logits_device = s->device;
            }
    }
}

mn_status mn_boundary_create(mn_engine *e, mn_error *err) {
    mn_crossing_segment *list = mn_alloc(e->n_segments, sizeof *list);
    mn_crossings x;
    if (!list)
        return mn_fail_memory(err, e->n_segments * sizeof *list);
    for (uint32_t k = 0; k < e->n_segments; k++) {
        const mn_engine_segment *s = &e->segments[k];
        list[k] = (mn_crossing_segment){s->node_lo, s->node_hi, s->device};
    }
    find_logits(e);
    mn_status st = mn_crossings_find(&e->graph->abi, list, e->n_segments, e->n_devices,
                                     e->symbol_max, &x, err);
    if (!st)
        st = adopt_crossings(e, &x, err);
    mn_crossings_free(&x);
    mn_free(list);
    for (uint32_t d = 0; d < e->n_devices && !st; d++)
        st = create_staging(e, d, err);
    return st;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Bytes of the step's rows of the tensor; 0: there are none. */
static uint64_t moved_bytes(const mn_engine *e, const mn_transfer *t, const int64_t *symbols) {
    uint64_t bytes;
    return mn_tensor_bytes(&e->graph->abi, t->tensor, symbols, &bytes) ? bytes : 0;
}

/* Whether nothing more is read behind the segment for the same one. */
static bool is_last_read(const mn_engine *e, const mn_transfer *t, const int64_t *symbols) {
    for (const mn_transfer *n = t + 1; n < e->transfers + e->n_transfers; n++)
        if (n->before == t->before && n->made == t->made && !n->map && !mn_stream_skips(e, n) &&
            moved_bytes(e, n, symbols))
            return false;
    return true;
}

/* Enqueues a read of the rows into pinned memory; of the last one there is an event. */
static mn_status fetch(mn_engine *e, mn_transfer *t, const int64_t *symbols, mn_error *err) {
    mn_engine_device *from = &e->devices[t->from];
    const uint64_t bytes = moved_bytes(e, t, symbols);
    mn_event **event = is_last_read(e, t, symbols) ? &t->read : NULL;
    mn_status st = MN_OK;
    if (!bytes)
        return MN_OK;
    MN_WATCHED_FOR(
        mn_callee_of(from), "read", MN_MOVES_NS(bytes),
        MN_RETRY(st, from->backend->read(from->queue, from->at[t->tensor], 0, from->staging,
                                         t->staged_at, bytes, event, err)));
    return mn_engine_note(e, t->from, st);
}

/* Until the rows are in the map or in the staging memory. */
static mn_status settle_transfer(mn_engine *e, mn_transfer *t, const int64_t *symbols,
                                 mn_error *err) {
    const mn_engine_device *from = &e->devices[t->from];
    mn_engine_segment *maker = &e->segments[t->made];
    const mn_callee *callee = mn_callee_of(from);
    const uint64_t run_ns = mn_engine_segment_ns(maker, symbols);
    mn_status st;
    if (t->map)
        st = mn_event_settle(from->backend, callee, run_ns, &maker->done, err);
    else
        st = mn_event_settle(from->backend, callee, MN_MOVES_NS(moved_bytes(e, t, symbols)),
                             &t->read, err);
    return mn_engine_note(e, t->from, st);
}

/* The rows, which are on the host, to the other device. */
static mn_status deliver(mn_engine *e, const mn_transfer *t, const int64_t *symbols,
                         mn_error *err) {
    const mn_engine_device *from = &e->devices[t->from];
    mn_engine_device *to = &e->devices[t->to];
    const uint64_t bytes = moved_bytes(e, t, symbols);
    const void *rows = t->map ? t->map : (const char *)from->staging_map + t->staged_at;
    if (!bytes)
        return MN_OK;
    return mn_engine_note(e, t->to, mn_engine_write(to, to->at[t->tensor], 0, rows, bytes, err));
}

mn_status mn_boundary_fetch(mn_engine *e, uint32_t made, const int64_t *symbols, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_transfers && !st; i++) {
        mn_transfer *t = &e->transfers[i];
        if (t->made == made && !t->map && !mn_stream_skips(e, t))
            st = fetch(e, t, symbols, err);
    }
    return st;
}

mn_status mn_boundary_move(mn_engine *e, uint32_t before, const int64_t *symbols, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_transfers && !st; i++)
        if (e->transfers[i].before == before && !mn_stream_skips(e, &e->transfers[i]))
            st = settle_transfer(e, &e->transfers[i], symbols, err);
    for (uint32_t i = 0; i < e->n_transfers && !st; i++)
        if (e->transfers[i].before == before && !mn_stream_skips(e, &e->transfers[i]))
            st = deliver(e, &e->transfers[i], symbols, err);
    return st;
}

mn_status mn_boundary_rows(mn_engine *e, const mn_transfer *t, const int64_t *symbols,
                           const void **rows, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_transfers && !st; i++)
        if (&e->transfers[i] == t || (e->transfers[i].before == t->before && e->transfers[i].map))
            st = settle_transfer(e, &e->transfers[i], symbols, err);
    *rows = t->map ? t->map : (const char *)e->devices[t->from].staging_map + t->staged_at;
    return st;
}

static void drop_event(const mn_engine *e, uint32_t device, mn_event **event) {
    const mn_engine_device *d = &e->devices[device];
    if (*event)
        MN_WATCHED(mn_callee_of(d), "event_free", d->backend->event_free(*event));
    *event = NULL;
}

void mn_boundary_drop(mn_engine *e) {
    for (uint32_t i = 0; i < e->n_transfers; i++)
        drop_event(e, e->transfers[i].from, &e->transfers[i].read);
    for (uint32_t i = 0; i < e->n_segments; i++)
        drop_event(e, e->segments[i].device, &e->segments[i].done);
}
