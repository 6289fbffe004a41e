/* context.c -- scratch, bindings, and the steps of one queue. A context is used by one thread at a
 * time; a step is its units' kernels, enqueued in order, and nothing waits for them. */
#include "ops.h"

mn_status ocl_context_create(mn_program *p, mn_queue *q, mn_context **out, mn_error *err) {
    mn_device *d = p->dev;
    mn_context *c = ocl_new(d, sizeof *c);
    if (!c)
        return mnp_fail_memory(err, sizeof *c, "a context");
    c->prog = p;
    c->queue = q;
    c->symbol = ocl_new(d, p->graph->n_symbols * sizeof *c->symbol);
    bool ok = c->symbol != NULL;
    for (uint32_t i = 0; i < MN_BINDING_SETS; i++) {
        c->sets[i] = ocl_new(d, p->graph->n_tensors * sizeof *c->bindings);
        ok = ok && c->sets[i];
    }
    mn_status st = MN_OK;
    if (!ok)
        st = mnp_fail_memory(err, p->graph->n_tensors * sizeof *c->bindings, "a context");
    if (!st)
        st = ocl_take_written(d, p->scratch, "scratch", &c->scratch, err);
    if (!st)
        st = ocl_steps_create(c, err);
    if (st)
        ocl_context_free(c);
    else
        *out = c;
    return st;
}

void ocl_context_free(mn_context *c) {
    if (!c)
        return;
    mn_device *d = c->prog->dev;
    d->cl->Finish(c->queue->cl);
    ocl_recordings_free(c);
    ocl_drop_places(c);
    ocl_steps_free(c);
    if (c->scratch)
        d->cl->ReleaseMemObject(c->scratch);
    ocl_delete(d, c->symbol);
    for (uint32_t i = 0; i < MN_BINDING_SETS; i++)
        ocl_delete(d, c->sets[i]);
    ocl_delete(d, c);
}

/* Buffers have no address: each counts as aligned, and offsets decide. */
static mnp_extent extent(const mn_buffer *b) {
    return (mnp_extent){0, b->bytes};
}

/* A buffer in several parts is the cache of a unit, from its beginning. */
static mn_status check_parts(const mn_program *p, const mn_binding *table, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t t = 0; t < p->graph->n_tensors && !st; t++) {
        const mn_binding *b = &table[t];
        if (!b->buffer || b->buffer->n_parts == 1)
            continue;
        const mnp_kv *kv = NULL;
        for (uint32_t i = 0; i < p->n_units && !kv; i++)
            if (ocl_cache_of(p, &p->units[i]) == (int32_t)t)
                kv = &p->units[i].kv;
        if (!kv || b->offset)
            return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                            "%.*s: a buffer of %.1f MiB is in several parts, which only a cache of "
                            "keys and values can be",
                            MNP_NAME(mnp_tensor(p->graph, t)), (double)b->buffer->bytes / 1048576);
        st = ocl_kv_pages(b->buffer, kv->page_bytes, err);
    }
    return st;
}

mn_status ocl_context_bind(mn_context *c, uint32_t set, const mn_binding *bindings, uint32_t n,
                           uint32_t stride, mn_error *err) {
    const mn_program *p = c->prog;
    if (set >= MN_BINDING_SETS)
        return mnp_fail(err, MN_INVALID, ~0u, "binding set %u; a context has %u", set,
                        MN_BINDING_SETS);
    c->bound[set] = false;
    mn_binding *table = c->sets[set];
    mn_status st = mnp_bind(p->graph, p->allocations, bindings, n, stride, extent, table, err);
    for (uint32_t i = p->lo; i < p->hi && !st; i++)
        st = mnp_check_bound(p->graph, i, p->allocations, p->symbol_max, table, err);
    if (!st)
        st = check_parts(p, table, err);
    c->bound[set] = !st;
    return st;
}

mn_status ocl_context_begin(mn_context *c, uint32_t set, const int64_t *values, mn_error *err) {
    const mn_program *p = c->prog;
    if (set >= MN_BINDING_SETS || !c->bound[set])
        return mnp_fail(err, MN_INVALID, ~0u, "set %u of the context has no bindings", set);
    c->bindings = c->sets[set];
    mn_status st = ocl_check_abort(c->queue, err);
    if (!st)
        st = mnp_symbols(p->graph, values, p->symbol_max, c->symbol, err);
    if (!st)
        st = mnp_check_sizes(p->graph, c->symbol, c->bindings, err);
    return st;
}

static mn_status run_units(mn_context *c, uint32_t set, bool dry, mn_error *err) {
    ocl_run r = ocl_run_of(c, dry, err);
    ocl_recording_begin(&r, set);
    for (uint32_t i = 0; i < c->prog->n_units && !r.status; i++)
        ocl_launch_unit(&r, &c->prog->units[i]);
    ocl_step_flush(&r);
    ocl_recording_end(&r);
    if (dry && !r.status)
        r.status = ocl_recordings_reserve(c, r.place, err);
    return r.status;
}

/* Programs are compiled and kernels made; nothing is enqueued. */
mn_status ocl_context_prepare(mn_context *c, uint32_t set, const int64_t *values, mn_error *err) {
    mn_status st = ocl_context_begin(c, set, values, err);
    if (!st)
        st = ocl_events_reserve(c->prog->dev, 16, err);
    if (st)
        return st;
    return run_units(c, set, true, err);
}

mn_status ocl_execute(mn_context *c, uint32_t set, const int64_t *values, mn_event **event,
                      mn_error *err) {
    mn_status st = ocl_context_begin(c, set, values, err);
    if (!st)
        st = run_units(c, set, false, err);
    if (st)
        return st;
    if (event)
        return ocl_event_new(c->queue, event, err);
    return ocl_check(c->prog->dev->cl->Flush(c->queue->cl), err, "execute");
}
