/* scoring.c -- the second program of the last segment, whose SAMPLE has all its operands: biases of
 * single ids, targets, and logarithms of probabilities. It is compiled when somebody first asks for
 * one of these, shares weights, pages and slots with the first program, and runs only steps that
 * need it: the others cost what they cost before. Its graph is the engine's with a few tensors more
 * at the end, so that tensors have the same indices. */
#include "engine/engine_impl.h"
#include <string.h>

_Static_assert(MN_GRAPH_BIAS == MN_MAX_BIAS, "B of the graph is that of minerva.h");
_Static_assert(MN_GRAPH_TOP == MN_MAX_TOP_LOGPROBS, "N of the graph is that of minerva.h");

/* Bytes of an output for all rows of a step. */
static uint64_t rows_bytes(const mn_engine *e, uint64_t per_row) {
    return (uint64_t)e->symbol_max[MN_SYM_OUTPUTS] * per_row * 4;
}

static mn_status allocate(mn_engine *e, mn_scoring *x, mn_error *err) {
    const uint32_t at = mn_engine_output_index(e);
    const uint64_t bias = (uint64_t)e->symbol_max[MN_SYM_SLOTS] * MN_MAX_BIAS * 4;
    const uint64_t top = rows_bytes(e, MN_MAX_TOP_LOGPROBS);
    const uint64_t one = rows_bytes(e, 1);
    const struct {
        mn_buffer **to;
        uint64_t bytes;
        uint32_t kind;
    } want[] = {
        {&x->bias_ids, bias, MN_MEM_DEVICE},
        {&x->bias_values, bias, MN_MEM_DEVICE},
        {&x->top_ids, top, MN_MEM_DEVICE},
        {&x->top_logprobs, top, MN_MEM_DEVICE},
        {&x->logprob, one, MN_MEM_DEVICE},
        {&x->host, (2 * top + one) * e->ring, MN_MEM_HOST_PINNED},
    };
    x->place_bytes = 2 * top + one;
    for (size_t i = 0; i < MN_COUNT(want); i++) {
        mn_status st = mn_engine_alloc(e, at, want[i].bytes, want[i].kind, want[i].to, err);
        if (st)
            return st;
    }
    const mn_engine_device *d = mn_engine_output_device(e);
    return mn_engine_note(e, at, d->backend->map(x->host, (void **)&x->map, err));
}

static mn_status compile(mn_engine *e, mn_scoring *x, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    const mn_engine_segment *s = &e->segments[e->n_segments - 1];
    mn_compile c = mn_engine_segment_question(e, s);
    c.graph = &x->graph->abi;
    mn_status st = MN_OK;
    MN_WATCHED(mn_callee_of(d), "compile",
               st = d->backend->compile(d->device, &c, &x->program, err));
    if (!st)
        MN_WATCHED(mn_callee_of(d), "context_create",
                   st = d->backend->context_create(x->program, d->queue, &x->context, err));
    return mn_engine_note(e, s->device, st);
}

/* What the first program has, and the operands that only this one has. */
static mn_status bind(mn_engine *e, const mn_scoring *x, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    const mn_engine_segment *s = &e->segments[e->n_segments - 1];
    const mn_graph_io *io = &x->graph->io;
    const uint64_t bias = (uint64_t)e->symbol_max[MN_SYM_SLOTS] * MN_MAX_BIAS * 4;
    const uint64_t top = rows_bytes(e, MN_MAX_TOP_LOGPROBS);
    const mn_binding more[] = {
        {(uint32_t)io->bias_ids, 0, x->bias_ids, 0, bias},
        {(uint32_t)io->bias_values, 0, x->bias_values, 0, bias},
        {(uint32_t)io->target, 0, d->inputs, d->in.target * 4ull, rows_bytes(e, 1)},
        {(uint32_t)io->top_ids, 0, x->top_ids, 0, top},
        {(uint32_t)io->top_logprobs, 0, x->top_logprobs, 0, top},
        {(uint32_t)io->logprob, 0, x->logprob, 0, rows_bytes(e, 1)},
    };
    mn_binding *all = mn_alloc(s->n_tensors + 1 + MN_COUNT(more), sizeof *all);
    if (!all)
        return mn_fail_memory(err, s->n_tensors * sizeof *all);
    const uint32_t n = mn_engine_segment_bindings(e, s, MN_SET_PLAIN, all);
    memcpy(all + n, more, sizeof more);
    mn_status st = MN_OK;
    MN_WATCHED(mn_callee_of(d), "context_bind",
               st = d->backend->context_bind(x->context, MN_SET_PLAIN, all,
                                             n + (uint32_t)MN_COUNT(more), sizeof *all, err));
    mn_free(all);
    return mn_engine_note(e, s->device, st);
}

/* No slot has a bias. */
static mn_status clear_bias(mn_engine *e, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->symbol_max[MN_SYM_SLOTS] && !st; i++)
        st = mn_engine_write_bias(e, i, NULL, 0, err);
    return st;
}

mn_status mn_engine_make_scoring(mn_engine *e, const mn_model_graph *g, mn_error *err) {
    mn_scoring *x = &e->scoring;
    if (x->ready)
        return MN_OK;
    mn_engine_scoring_free(e); /* what an attempt has left */
    x->graph = g;
    mn_status st = allocate(e, x, err);
    if (!st)
        st = compile(e, x, err);
    if (!st)
        st = bind(e, x, err);
    if (!st)
        st = clear_bias(e, err);
    if (!st)
        x->ready = true;
    else if (MN_STATUS_CLASS(st) != MN_CLASS_LOST)
        mn_fail_in(err, st, "%s: biases of ids and logprobs",
                   mn_engine_output_device(e)->record->name);
    return st;
}

void mn_engine_scoring_free(mn_engine *e) {
    mn_scoring *x = &e->scoring;
    if (!e->n_segments || !e->n_devices)
        return;
    const mn_backend *b = mn_engine_output_device(e)->backend;
    mn_buffer *all[] = {x->bias_ids,     x->bias_values, x->top_ids,
                        x->top_logprobs, x->logprob,     x->host};
    if (x->context)
        b->context_free(x->context);
    if (x->program)
        b->program_free(x->program);
    for (size_t i = 0; i < MN_COUNT(all); i++)
        if (all[i])
            b->buffer_free(all[i]);
    *x = (mn_scoring){0};
}

mn_status mn_engine_write_bias(mn_engine *e, uint32_t slot, const mn_logit_bias *bias, uint32_t n,
                               mn_error *err) {
    const mn_scoring *x = &e->scoring;
    const uint64_t bytes = MN_MAX_BIAS * 4;
    int32_t ids[MN_MAX_BIAS];
    float values[MN_MAX_BIAS] = {0};
    memset(ids, 0xff, sizeof ids);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = bias[i].id;
        values[i] = bias[i].bias;
    }
    mn_status st = mn_engine_write_output(e, x->bias_ids, slot * bytes, ids, bytes, err);
    if (st)
        return st;
    return mn_engine_write_output(e, x->bias_values, slot * bytes, values, bytes, err);
}

/* Enqueues the reads of n rows into place `at` of the ring: top ids, their logprobs, one
 * logprob. */
mn_status mn_engine_read_scores(mn_engine *e, uint32_t n, uint32_t at, mn_event **done,
                                mn_error *err) {
    mn_scoring *x = &e->scoring;
    const uint64_t top = rows_bytes(e, MN_MAX_TOP_LOGPROBS);
    const uint64_t to = at * x->place_bytes;
    const uint64_t n_top = n * (uint64_t)MN_MAX_TOP_LOGPROBS * 4;
    mn_status st = mn_engine_read_output(e, x->top_ids, x->host, to, n_top, NULL, err);
    if (!st)
        st = mn_engine_read_output(e, x->top_logprobs, x->host, to + top, n_top, NULL, err);
    if (!st)
        st = mn_engine_read_output(e, x->logprob, x->host, to + 2 * top, n * 4ull, done, err);
    return st;
}

mn_score mn_engine_score(const mn_engine *e, uint32_t at, uint32_t row) {
    const mn_scoring *x = &e->scoring;
    const uint64_t top = rows_bytes(e, MN_MAX_TOP_LOGPROBS);
    const char *place = x->map + at * x->place_bytes;
    const int32_t *ids = (const int32_t *)place;
    const float *logprobs = (const float *)(place + top);
    const float *one = (const float *)(place + 2 * top);
    return (mn_score){
        .logprob = one[row],
        .top_ids = ids + (size_t)row * MN_MAX_TOP_LOGPROBS,
        .top_logprobs = logprobs + (size_t)row * MN_MAX_TOP_LOGPROBS,
    };
}
