/* context.c -- bindings, and the steps of one queue. A context is used by one thread at a time;
 * nothing here waits for a step. What a backend captures or records of steps is its own
 * (context_open, step). */
#include "gpu_table.h"
#include "words.h"

mn_status mng_context_create(mn_program *prog, const mn_context_params *params, mn_context **out,
                             mn_error *err) {
    const mng_program *p = mng_program_of(prog);
    const mng_backend *b = mng_backend_of(p->dev);
    const uint64_t set_bytes = p->graph->n_tensors * sizeof(mn_binding);
    mn_queue *q;
    mn_status st = mnp_read_context(params, &q, err);
    if (!st)
        st = mng_check_device(p->dev, mng_queue_of(q)->dev, "a queue", err);
    if (!st)
        st = mng_enter(p->dev, err);
    if (st)
        return st;
    mn_context *ctx = mng_new(p->dev, b->context_bytes);
    if (!ctx)
        return mnp_fail_memory(err, b->context_bytes, "a context");
    mng_context *c = mng_context_of(ctx);
    c->prog = prog;
    c->queue = q;
    c->symbol = mng_new(p->dev, p->graph->n_symbols * sizeof *c->symbol);
    bool ok = c->symbol != NULL;
    for (uint32_t i = 0; i < p->n_sets; i++) {
        c->sets[i] = mng_new(p->dev, set_bytes);
        ok = ok && c->sets[i];
    }
    if (!ok)
        st = mnp_fail_memory(err, set_bytes, "a context");
    if (!st)
        st = mng_room_join(ctx, err);
    if (!st && b->context_open)
        st = b->context_open(ctx, err);
    if (st)
        mng_context_free(ctx);
    else
        *out = ctx;
    return st;
}

void mng_context_free(mn_context *ctx) {
    if (!ctx)
        return;
    mng_context *c = mng_context_of(ctx);
    mn_device *d = mng_program_of(c->prog)->dev;
    const mng_backend *b = mng_backend_of(d);
    mng_enter(d, NULL);
    b->queue_finish(c->queue, NULL);
    if (b->context_close)
        b->context_close(ctx);
    mng_room_leave(ctx);
    mng_delete(d, c->symbol);
    for (uint32_t i = 0; i < mng_program_of(c->prog)->n_sets; i++)
        mng_delete(d, c->sets[i]);
    mng_delete(d, ctx);
}

/* ---- bindings -------------------------------------------------------------------------------- */
/* Memory has no address: each counts as aligned, and offsets decide. */
static mnp_extent extent(const mn_buffer *b) {
    return (mnp_extent){0, b->bytes};
}

/* Bytes of a page of the cache or of the states that tensor t is; 0: it is neither. */
static uint64_t page_bytes_of(const mng_program *p, uint32_t t) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_units; i++)
        if (mng_memory_tensor(p, &p->units[i], &bytes) == (int32_t)t)
            return bytes;
    return 0;
}

static mn_status check_devices(const mng_program *p, const mn_binding *table, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t t = 0; t < p->graph->n_tensors && !st; t++)
        if (table[t].buffer)
            st = mng_check_buffer(p->dev, table[t].buffer, err);
    return st;
}

/* A buffer in several parts is the memory of sequences of a unit, from its beginning. */
static mn_status check_parts(const mng_program *p, const mn_binding *table, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t t = 0; t < p->graph->n_tensors && !st; t++) {
        const mn_binding *b = &table[t];
        if (!b->buffer || b->buffer->n_parts == 1)
            continue;
        const uint64_t page_bytes = page_bytes_of(p, t);
        if (!page_bytes || b->offset)
            return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                            "%.*s: a buffer of %.1f MiB is in several parts, which only memory of "
                            "sequences can be",
                            MNP_NAME(mnp_tensor(p->graph, t)), (double)b->buffer->bytes / 1048576);
        st = mng_buffer_pages(b->buffer, page_bytes, err);
    }
    return st;
}

mn_status mng_context_bind(mn_context *ctx, uint32_t set, const mn_binding *bindings, uint32_t n,
                           uint32_t stride, mn_error *err) {
    mng_context *c = mng_context_of(ctx);
    const mng_program *p = mng_program_of(c->prog);
    const mng_backend *b = mng_backend_of(p->dev);
    if (set >= p->n_sets)
        return mnp_fail(err, MN_INVALID, ~0u, "binding set %u; a context has %u", set, p->n_sets);
    mn_status st = mng_enter(p->dev, err);
    if (st)
        return st;
    if (b->context_rebind)
        b->context_rebind(ctx, set);
    c->bound[set] = false;
    mn_binding *table = c->sets[set];
    st = mnp_bind(p->graph, p->allocations, bindings, n, stride, extent, table, err);
    for (uint32_t i = p->lo; i < p->hi && !st; i++)
        st = mnp_check_bound(p->graph, i, p->allocations, p->symbol_max, table, err);
    if (!st)
        st = check_devices(p, table, err);
    if (!st)
        st = check_parts(p, table, err);
    c->bound[set] = !st;
    return st;
}

/* ---- steps ----------------------------------------------------------------------------------- */
mn_status mng_context_begin(mn_context *ctx, const mn_step *in, mn_error *err) {
    mng_context *c = mng_context_of(ctx);
    const mng_program *p = mng_program_of(c->prog);
    mn_step step;
    mn_status st = mnp_read_step(in, &step, err);
    if (st)
        return st;
    if (step.set >= p->n_sets || !c->bound[step.set])
        return mnp_fail(err, MN_INVALID, ~0u, "set %u of the context has no bindings", step.set);
    c->set = step.set;
    c->bindings = c->sets[step.set];
    st = mng_check_abort(c->queue, err);
    if (!st)
        st = mnp_symbols(p->graph, step.values, p->symbol_max, c->symbol, err);
    if (!st)
        st = mng_enter(p->dev, err);
    if (!st && !c->room->mem)
        st = mnp_fail_memory(err, c->room->base + c->room->rest, "scratch");
    c->room->used = c->room->used || !st;
    return st;
}

mn_status mng_check_sizes(const mn_context *ctx, mn_error *err) {
    const mng_context *c = mng_context_of(ctx);
    return mnp_check_sizes(mng_program_of(c->prog)->graph, c->symbol, c->bindings, err);
}

/* The step as far as it has fields, but for its words. */
static mn_step without_words(const mn_step *in) {
    mn_step step;
    mnp_read(&step, sizeof step, in, in->size);
    step.size = sizeof step;
    step.n_waits = 0;
    step.n_signals = 0;
    return step;
}

static mn_status run_step(mn_context *ctx, bool dry, mn_error *err) {
    const mng_backend *b = mng_backend_of(mng_program_of(mng_context_of(ctx)->prog)->dev);
    if (b->step)
        return b->step(ctx, dry, err);
    const mn_status st = mng_check_sizes(ctx, err);
    return st ? st : mng_run_units(ctx, dry, err);
}

/* What a step can have made before it is; events for a few steps in flight, too. */
mn_status mng_context_prepare(mn_context *ctx, const mn_step *in, mn_error *err) {
    const mn_step step = without_words(in);
    mn_status st = mng_context_begin(ctx, &step, err);
    if (!st)
        st = mng_events_reserve(mng_program_of(mng_context_of(ctx)->prog)->dev, 16, err);
    if (!st)
        st = run_step(ctx, true, err);
    return st;
}

/* A step with words. */
static mn_status run_with_words(mn_context *ctx, const mn_step *in, mn_error *err) {
    const mn_device *d = mng_program_of(mng_context_of(ctx)->prog)->dev;
    mn_step step;
    if (!mng_device_of(d)->has_words)
        return mnp_read_step(in, &step, err);
    mn_status st = mnp_read_step_words(in, &step, err);
    if (!st)
        st = mng_words_check(ctx, &step, err);
    if (st)
        return st;
    const mn_step plain = without_words(in);
    st = mng_context_begin(ctx, &plain, err);
    return st ? st : mng_words_around(ctx, &step, run_step, err);
}

mn_status mng_execute(mn_context *ctx, const mn_step *step, mn_event **event, mn_error *err) {
    const mng_context *c = mng_context_of(ctx);
    const mng_backend *b = mng_backend_of(mng_program_of(c->prog)->dev);
    mn_status st;
    if (MN_HAS(mn_step, step, n_waits) || MN_HAS(mn_step, step, n_signals)) {
        st = run_with_words(ctx, step, err);
    } else {
        st = mng_context_begin(ctx, step, err);
        if (!st)
            st = run_step(ctx, false, err);
    }
    if (st)
        return st;
    if (event)
        return mng_event_new(c->queue, event, err);
    return b->queue_flush ? b->queue_flush(c->queue, err) : MN_OK;
}
