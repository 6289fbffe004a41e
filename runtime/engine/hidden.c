/* hidden.c -- hidden states that go from a model to its draft head: rows of a step's output, read
 * into a place of the ring as its ids are, and rows that a step of the head is given. They are the
 * host's on the way, so that both may be on any devices. */
#include "engine/engine_impl.h"

static uint64_t hidden_row_bytes(const mn_engine *e) {
    return (uint64_t)e->graph->hp.n_embd * 4;
}

static uint64_t place_bytes(const mn_engine *e) {
    return (uint64_t)e->symbol_max[MN_SYM_TOKENS] * hidden_row_bytes(e);
}

/* Which segment has the tensor among those that its nodes read or write, the last one. */
static uint32_t segment_of(const mn_engine *e, int32_t tensor) {
    uint32_t at = 0;
    for (uint32_t k = 0; k < e->n_segments; k++)
        for (uint32_t i = 0; i < e->segments[k].n_tensors; i++)
            if ((int32_t)e->segments[k].tensors[i] == tensor)
                at = k;
    return at;
}

/* The tensor's buffer on a device, unless it crosses segments and has one. */
static mn_status allocate_there(mn_engine *e, uint32_t device, int32_t tensor, mn_error *err) {
    mn_buffer **to = &e->devices[device].at[tensor];
    if (*to)
        return MN_OK;
    return mn_engine_alloc(e, device, place_bytes(e), MN_MEM_DEVICE, to, err);
}

static mn_status create_output(mn_engine *e, mn_error *err) {
    mn_engine_rows *x = &e->hidden;
    x->device = e->segments[segment_of(e, e->graph->io.hidden_out)].device;
    mn_engine_device *d = &e->devices[x->device];
    mn_status st = allocate_there(e, x->device, e->graph->io.hidden_out, err);
    if (!st)
        st = mn_engine_alloc(e, x->device, place_bytes(e) * e->ring,
                             MN_MEM_HOST_PINNED | MN_UNZEROED, &x->host, err);
    if (!st)
        st = mn_engine_note(e, x->device, d->backend->map(x->host, (void **)&x->map, err));
    return st;
}

mn_status mn_engine_hidden_create(mn_engine *e, mn_error *err) {
    const mn_graph_io *io = &e->graph->io;
    mn_status st = MN_OK;
    if (io->hidden_out >= 0)
        st = create_output(e, err);
    if (st || io->hidden_in < 0)
        return st;
    if (e->n_segments > 1)
        return mn_fail(err, MN_UNSUPPORTED,
                       "a draft head in several parts: one device has to have "
                       "room for it");
    return allocate_there(e, mn_engine_output_index(e), io->hidden_in, err);
}

void mn_engine_hidden_free(mn_engine *e) {
    if (e->hidden.host)
        e->devices[e->hidden.device].backend->buffer_free(e->hidden.host);
    e->hidden = (mn_engine_rows){0};
}

mn_status mn_engine_write_hidden(mn_engine *e, const mn_engine_step *x, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    if (!x->hidden_in || !x->n_hidden_in)
        return MN_OK;
    return mn_engine_write_output(e, d->at[e->graph->io.hidden_in], 0, x->hidden_in,
                                  x->n_hidden_in * hidden_row_bytes(e), err);
}

mn_status mn_engine_read_hidden(mn_engine *e, const mn_engine_step *x, mn_event **event,
                                mn_error *err) {
    mn_engine_rows *s = &e->hidden;
    mn_engine_device *d = &e->devices[s->device];
    const bool apart = !mn_engine_tells(e, x);
    const uint64_t bytes = (uint64_t)x->symbols[MN_SYM_TOKENS] * hidden_row_bytes(e);
    mn_event *done = NULL;
    mn_status st;
    if (!x->hidden || !s->host)
        return MN_OK;
    MN_WATCHED_FOR(
        mn_callee_of(d), "read", MN_MOVES_NS(bytes),
        MN_RETRY(st, d->backend->read(d->queue, d->at[e->graph->io.hidden_out], 0, s->host,
                                      x->at * place_bytes(e), bytes, apart ? &done : event, err)));
    if (!st)
        st = mn_event_settle(d->backend, mn_callee_of(d), MN_MOVES_NS(bytes), &done, err);
    return mn_engine_note(e, s->device, st);
}

const float *mn_engine_hidden(const mn_engine *e, uint32_t at) {
    return e->hidden.map + at * (place_bytes(e) / 4);
}
