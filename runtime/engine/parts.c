/* parts.c -- the last segment in two parts, for steps with masks: the front part needs none, so
 * that the device computes it while the host learns what the step before it drew and makes the
 * masks. What goes from one part to the other are the logits, in a buffer of the engine; weights,
 * pages, slots are those of the segment. */
#include "engine/engine_impl.h"

/* The logits of all rows of a step, where they do not cross segments anyway. */
static mn_status allocate_logits(mn_engine *e, mn_error *err) {
    const uint32_t at = mn_engine_output_index(e);
    mn_engine_device *d = mn_engine_output_device(e);
    const uint32_t logits = (uint32_t)e->graph->io.logits;
    uint64_t bytes;
    if (d->at[logits])
        return MN_OK;
    if (!mn_tensor_bytes(&e->graph->abi, logits, d->symbol_max, &bytes))
        return mn_fail(err, MN_INVALID, "logits: their size overflows");
    return mn_engine_alloc(e, at, bytes, MN_MEM_DEVICE | MN_UNZEROED, &d->at[logits], err);
}

static mn_status compile_front(mn_engine *e, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    mn_engine_segment *s = &e->parts->front;
    mn_status st = MN_OK;
    if (s->node_lo == s->node_hi)
        return MN_OK;
    const mn_compile *c = mn_engine_segment_question(e, s, e->graph, &s->pages, err);
    if (!c)
        return MN_OUT_OF_MEMORY;
    MN_WATCHED(mn_callee_of(d), "compile",
               st = d->backend->compile(d->device, c, &s->program, err));
    if (!st)
        MN_WATCHED(mn_callee_of(d), "context_create",
                   st = mn_usual_context(d->backend, s->program, d->queue, &s->context, err));
    if (!st)
        st = mn_engine_segment_bind(e, s, MN_SET_PLAIN, MN_SET_LOGITS, err);
    return mn_engine_note(e, s->device, st);
}

/* Nodes [lo, hi) of the last segment. What it owns stays its own. */
static mn_engine_segment part_of(const mn_engine_segment *last, uint32_t lo, uint32_t hi) {
    mn_engine_segment part = *last;
    part.node_lo = lo;
    part.node_hi = hi;
    part.held = NULL;
    part.program = NULL;
    part.context = NULL;
    part.pages = NULL;
    part.tensors = NULL;
    part.n_tensors = 0;
    return part;
}

mn_status mn_engine_parts_create(mn_engine *e, mn_error *err) {
    const mn_engine_segment *last = &e->segments[e->n_segments - 1];
    const uint32_t end = last->node_hi - 1; /* SAMPLE is the last node of a graph that draws */
    if (e->parts)
        return MN_OK;
    e->parts = mn_calloc(1, sizeof *e->parts);
    if (!e->parts)
        return mn_fail_memory(err, sizeof *e->parts);
    e->parts->front = part_of(last, last->node_lo, end);
    e->parts->sample = part_of(last, end, end + 1);
    mn_status st = mn_engine_segment_list(e, &e->parts->front, err);
    if (!st)
        st = mn_engine_segment_list(e, &e->parts->sample, err);
    if (!st)
        st = allocate_logits(e, err);
    if (!st)
        st = compile_front(e, err);
    if (st)
        mn_engine_parts_free(e);
    return st;
}

void mn_engine_parts_free(mn_engine *e) {
    if (!e->parts)
        return;
    const mn_engine_device *d = mn_engine_output_device(e);
    mn_engine_segment *front = &e->parts->front;
    if (front->context)
        MN_WATCHED(mn_callee_of(d), "context_free", d->backend->context_free(front->context));
    if (front->program)
        MN_WATCHED(mn_callee_of(d), "program_free", d->backend->program_free(front->program));
    mn_sealed_free(front->pages);
    mn_free(front->tensors);
    mn_free(e->parts->sample.tensors);
    mn_free(e->parts);
    e->parts = NULL;
}
