/* scoring.c -- further programs of the last segment, whose SAMPLE has more operands: one with
 * drafts to verify, one with masks of the ids that may be drawn, one that scores, with masks,
 * biases of single ids, targets, and logarithms of probabilities, and one that scores and has the
 * samplers of contract 4. Each is compiled when somebody first asks for it, shares weights, pages
 * and slots with the first program, and runs only steps that need it: the others cost what they
 * cost before. Its graph is the engine's with a few tensors more at the end, so that tensors have
 * the same indices. Those with masks are SAMPLE alone, behind the front part (parts.c). */
#include "engine/engine_impl.h"
#include <string.h>

_Static_assert(MN_GRAPH_BIAS == MN_MAX_BIAS, "B of the graph is that of minerva.h");
_Static_assert(MN_GRAPH_TOP == MN_MAX_TOP_LOGPROBS, "N of the graph is that of minerva.h");

/* Bytes of an output for all rows of a step. */
static uint64_t rows_bytes(const mn_engine *e, uint64_t per_row) {
    return (uint64_t)e->symbol_max[MN_SYM_OUTPUTS] * per_row * 4;
}

static uint64_t mask_bytes(const mn_engine *e) {
    return rows_bytes(e, mn_engine_mask_words(e));
}

/* Of all programs with masks; they share it. */
static mn_status allocate_masks(mn_engine *e, mn_error *err) {
    const uint32_t at = mn_engine_output_index(e);
    if (e->masks)
        return MN_OK;
    return mn_engine_alloc(e, at, mask_bytes(e), MN_MEM_DEVICE, &e->masks, err);
}

static void free_scoring(mn_engine *e, const mn_backend *b) {
    mn_scoring *x = &e->scoring;
    mn_buffer *all[] = {x->bias_ids, x->bias_values, x->top_ids, x->top_logprobs,
                        x->logprob,  x->mu,          x->host,    x->breakers};
    for (size_t i = 0; i < MN_COUNT(all); i++)
        if (all[i])
            b->buffer_free(all[i]);
    *x = (mn_scoring){0};
}

/* No slot has a bias. */
static mn_status clear_bias(mn_engine *e, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->symbol_max[MN_SYM_SLOTS] && !st; i++)
        st = mn_engine_write_bias(e, i, NULL, 0, err);
    return st;
}

/* Of both programs that score; they share it. */
mn_status mn_engine_scoring_create(mn_engine *e, mn_error *err) {
    const uint32_t at = mn_engine_output_index(e);
    const mn_engine_device *d = mn_engine_output_device(e);
    mn_scoring *x = &e->scoring;
    if (x->ready)
        return MN_OK;
    free_scoring(e, d->backend); /* what an attempt has left */
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
        {&x->mu, one, MN_MEM_DEVICE},
        {&x->host, (2 * top + 2 * one) * e->ring, MN_MEM_HOST_PINNED},
    };
    x->place_bytes = 2 * top + 2 * one;
    for (size_t i = 0; i < MN_COUNT(want); i++) {
        mn_status st = mn_engine_alloc(e, at, want[i].bytes, want[i].kind, want[i].to, err);
        if (st)
            return st;
    }
    mn_status st = mn_engine_note(e, at, d->backend->map(x->host, (void **)&x->map, err));
    if (!st)
        st = clear_bias(e, err);
    x->ready = !st;
    return st;
}

static uint64_t breakers_bytes(const mn_engine *e) {
    return (uint64_t)e->symbol_max[MN_SYM_SLOTS] * mn_engine_mask_words(e) * 4;
}

static mn_status allocate_breakers(mn_engine *e, mn_error *err) {
    const uint32_t at = mn_engine_output_index(e);
    if (e->scoring.breakers)
        return MN_OK;
    return mn_engine_alloc(e, at, breakers_bytes(e), MN_MEM_DEVICE, &e->scoring.breakers, err);
}

/* The nodes of a program: SAMPLE alone where it has a mask. */
static const mn_engine_segment *nodes_of(const mn_engine *e, const mn_engine_program *x) {
    return x->graph->masks ? &e->parts->sample : &e->segments[e->n_segments - 1];
}

static mn_status compile_program(mn_engine *e, mn_engine_program *x, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    const mn_engine_segment *s = nodes_of(e, x);
    const mn_compile *c = mn_engine_segment_question(e, s, x->graph, &x->pages, err);
    mn_status st = MN_OK;
    if (!c)
        return MN_OUT_OF_MEMORY;
    MN_WATCHED(mn_callee_of(d), "compile",
               st = d->backend->compile(d->device, c, &x->program, err));
    if (!st)
        MN_WATCHED(mn_callee_of(d), "context_create",
                   st = mn_usual_context(d->backend, x->program, d->queue, &x->context, err));
    return mn_engine_note(e, s->device, st);
}

enum { MOST_BINDINGS = 10 };

/* The operands that the first program does not have; how many. */
static uint32_t bindings(const mn_engine *e, const mn_model_graph *g, mn_binding *to) {
    const mn_engine_device *d = mn_engine_output_device(e);
    const mn_graph_io *io = &g->io;
    const mn_scoring *x = &e->scoring;
    const uint64_t bias = (uint64_t)e->symbol_max[MN_SYM_SLOTS] * MN_MAX_BIAS * 4;
    const uint64_t top = rows_bytes(e, MN_MAX_TOP_LOGPROBS);
    const uint64_t one = rows_bytes(e, 1);
    const mn_binding all[MOST_BINDINGS] = {
        {(uint32_t)io->mask, 0, e->masks, 0, mask_bytes(e)},
        {(uint32_t)io->bias_ids, 0, x->bias_ids, 0, bias},
        {(uint32_t)io->bias_values, 0, x->bias_values, 0, bias},
        {(uint32_t)io->target, 0, d->inputs, d->in.target * 4ull, one},
        {(uint32_t)io->top_ids, 0, x->top_ids, 0, top},
        {(uint32_t)io->top_logprobs, 0, x->top_logprobs, 0, top},
        {(uint32_t)io->logprob, 0, x->logprob, 0, one},
        {(uint32_t)io->breakers, 0, x->breakers, 0, breakers_bytes(e)},
        {(uint32_t)io->mu, 0, x->mu, 0, one},
        {(uint32_t)io->draft, 0, d->inputs, d->in.draft * 4ull, one},
    };
    uint32_t n = 0;
    for (uint32_t i = 0; i < MOST_BINDINGS; i++)
        if ((int32_t)all[i].tensor >= 0)
            to[n++] = all[i];
    return n;
}

/* What the first program has, and the operands that only this one has. set: under which number;
 * content: what it holds. */
static mn_status bind_set(mn_engine *e, const mn_engine_program *x, uint32_t set, uint32_t content,
                          mn_error *err) {
    const mn_engine_segment *s = nodes_of(e, x);
    mn_binding *all = mn_alloc(s->n_tensors + 1 + MOST_BINDINGS, sizeof *all);
    if (!all)
        return mn_fail_memory(err, s->n_tensors * sizeof *all);
    uint32_t n = mn_engine_segment_bindings(e, s, content, all);
    n += bindings(e, x->graph, all + n);
    const mn_status st = mn_engine_context_bind(e, s, x->context, set, all, n, err);
    mn_free(all);
    return st;
}

static mn_status bind(mn_engine *e, const mn_engine_program *x, mn_error *err) {
    const uint32_t content = x->graph->masks ? MN_SET_LOGITS : MN_SET_PLAIN;
    return bind_set(e, x, MN_SET_PLAIN, content, err);
}

mn_status mn_engine_drafts_bind_logits(mn_engine *e, mn_error *err) {
    const mn_engine_program *x = &e->programs[MN_RUN_DRAFTS];
    return x->ready ? bind_set(e, x, MN_SET_LOGITS, MN_SET_LOGITS, err) : MN_OK;
}

static void free_program(const mn_backend *b, mn_engine_program *x) {
    if (x->context)
        b->context_free(x->context);
    if (x->program)
        b->program_free(x->program);
    mn_sealed_free(x->pages);
    *x = (mn_engine_program){0};
}

mn_status mn_engine_make_program(mn_engine *e, uint32_t run, const mn_model_graph *g,
                                 mn_error *err) {
    static const char *const what[] = {
        "", "drafts", "masks of ids", "biases of ids and logprobs",
        "samplers beyond penalties, top_k, top_p, min_p and temperature"};
    const mn_engine_device *d = mn_engine_output_device(e);
    mn_engine_program *x = &e->programs[run];
    if (x->ready)
        return MN_OK;
    free_program(d->backend, x); /* what an attempt has left */
    x->graph = g;
    mn_status st = g->masks ? mn_engine_parts_create(e, err) : MN_OK;
    if (!st && g->masks)
        st = allocate_masks(e, err);
    if (!st && g->scores)
        st = mn_engine_scoring_create(e, err);
    if (!st && g->samplers)
        st = allocate_breakers(e, err);
    if (!st)
        st = compile_program(e, x, err);
    if (!st)
        st = bind(e, x, err);
    if (!st)
        x->ready = true;
    else if (MN_STATUS_CLASS(st) != MN_CLASS_LOST)
        mn_fail_in(err, st, "%s: %s", d->record->name, what[run]);
    return st;
}

void mn_engine_programs_free(mn_engine *e) {
    if (!e->n_segments || !e->n_devices)
        return;
    const mn_backend *b = mn_engine_output_device(e)->backend;
    for (uint32_t i = 0; i < MN_RUNS; i++)
        free_program(b, &e->programs[i]);
    mn_engine_parts_free(e);
    free_scoring(e, b);
    if (e->masks)
        b->buffer_free(e->masks);
    e->masks = NULL;
}

mn_status mn_engine_write_masks(mn_engine *e, uint32_t first, uint32_t n, const uint32_t *rows,
                                mn_error *err) {
    const uint64_t row = mn_engine_mask_words(e) * 4ull;
    return mn_engine_write_output(e, e->masks, first * row, rows, n * row, err);
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

mn_status mn_engine_write_breakers(mn_engine *e, uint32_t slot, const uint32_t *words,
                                   mn_error *err) {
    const uint64_t bytes = mn_engine_mask_words(e) * 4ull;
    return mn_engine_write_output(e, e->scoring.breakers, slot * bytes, words, bytes, err);
}

/* Enqueues the reads of the step's rows into its place of the ring: top ids, their logprobs, one
 * logprob, and what mu has become. */
mn_status mn_engine_read_scores(mn_engine *e, const mn_engine_step *step, mn_event **done,
                                mn_error *err) {
    mn_scoring *x = &e->scoring;
    const uint64_t n = (uint64_t)step->symbols[MN_SYM_OUTPUTS];
    const uint64_t top = rows_bytes(e, MN_MAX_TOP_LOGPROBS);
    const uint64_t to = step->at * x->place_bytes;
    const uint64_t n_top = n * MN_MAX_TOP_LOGPROBS * 4;
    mn_status st = mn_engine_read_output(e, x->top_ids, x->host, to, n_top, NULL, err);
    if (!st)
        st = mn_engine_read_output(e, x->top_logprobs, x->host, to + top, n_top, NULL, err);
    const bool has_mu = step->run == MN_RUN_SAMPLERS || step->n_sampler_rows;
    if (!st)
        st = mn_engine_read_output(e, x->logprob, x->host, to + 2 * top, n * 4,
                                   has_mu ? NULL : done, err);
    if (!st && has_mu)
        st = mn_engine_read_output(e, x->mu, x->host, to + 2 * top + rows_bytes(e, 1), n * 4, done,
                                   err);
    return st;
}

mn_score mn_engine_score(const mn_engine *e, uint32_t at, uint32_t row) {
    const mn_scoring *x = &e->scoring;
    const uint64_t top = rows_bytes(e, MN_MAX_TOP_LOGPROBS);
    const char *place = x->map + at * x->place_bytes;
    const int32_t *ids = (const int32_t *)place;
    const float *logprobs = (const float *)(place + top);
    const float *one = (const float *)(place + 2 * top);
    const float *mu = (const float *)(place + 2 * top + rows_bytes(e, 1));
    return (mn_score){
        .logprob = one[row],
        .mu = mu[row],
        .top_ids = ids + (size_t)row * MN_MAX_TOP_LOGPROBS,
        .top_logprobs = logprobs + (size_t)row * MN_MAX_TOP_LOGPROBS,
    };
}
