/* segment.c -- a run of nodes on one device: its weights, its program, its bindings.
 *
 * A segment lists its tensors first, when all pages are known it is created, and once every tensor
 * has its buffer it is bound. It owns what it made on its device; queue and buffers of inputs and
 * state are the device's, shared by its segments. */
#include "engine/engine_impl.h"
#include "engine/weights.h"
#include "base/arithmetic.h"
#include <string.h>

static mn_engine_device *device_of(const mn_engine *e, const mn_engine_segment *s) {
    return &e->devices[s->device];
}

/* Adds the roots of n operands to the segment's tensors, each once and weights not at all. seen: by
 * tensor. */
static void collect_tensors(const mn_graph *g, const int32_t *operands, uint32_t n,
                            mn_engine_segment *s, bool *seen) {
    for (uint32_t i = 0; i < n; i++) {
        if (operands[i] < 0)
            continue;
        const uint32_t t = mn_tensor_root(g, (uint32_t)operands[i]);
        if (seen[t] || g->tensors[t].role == MN_ROLE_WEIGHT)
            continue;
        seen[t] = true;
        s->tensors[s->n_tensors++] = t;
    }
}

mn_status mn_engine_segment_list(const mn_engine *e, mn_engine_segment *s, mn_error *err) {
    const mn_graph *g = &e->graph->abi;
    bool *seen = mn_calloc(g->n_tensors, sizeof *seen);
    s->tensors = mn_alloc(g->n_tensors, sizeof *s->tensors);
    if (!seen || !s->tensors) {
        mn_free(seen);
        return mn_fail_memory(err, g->n_tensors * sizeof *s->tensors);
    }
    for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
        const mn_node *n = &g->nodes[i];
        collect_tensors(g, g->operands + n->in_off, n->n_in, s, seen);
        collect_tensors(g, g->operands + n->out_off, n->n_out, s, seen);
    }
    mn_free(seen);
    return MN_OK;
}

const mn_compile *mn_engine_segment_question(const mn_engine *e, const mn_engine_segment *s,
                                             const mn_model_graph *graph, mn_sealed **owner,
                                             mn_error *err) {
    const mn_graph *own;
    if (mn_graph_for(graph, &device_of(e, s)->record->plugin->types, &own, err))
        return NULL;
    mn_compile c = {
        .size = sizeof c,
        .precision = s->precision,
        .graph = own,
        .node_lo = s->node_lo,
        .node_hi = s->node_hi,
        .symbol_max = device_of(e, s)->symbol_max,
        .weights = s->weights,
        .n_sets = MN_BINDING_SETS,
    };
    mn_memory_uses_give(&device_of(e, s)->memory, &c);
    const mn_compile *given = mn_given_compile(&c, owner);
    if (!given)
        mn_fail_memory(err, sizeof c);
    return given;
}

/* Asked again with the pages that the engine has in the end: another size than in negotiation. */
static mn_status estimate(mn_engine *e, mn_engine_segment *s, mn_error *err) {
    mn_engine_device *d = device_of(e, s);
    mn_sealed *pages;
    const mn_compile *c = mn_engine_segment_question(e, s, e->graph, &pages, err);
    mn_estimate x = {.size = sizeof x};
    mn_status st = MN_OK;
    if (!c)
        return MN_OUT_OF_MEMORY;
    MN_WATCHED(mn_callee_of(d), "estimate", st = d->backend->estimate(d->device, c, &x, err));
    mn_sealed_free(pages);
    mn_engine_note(e, s->device, st);
    s->weight_bytes = x.weights;
    s->scratch_bytes = x.scratch;
    s->row_grain = x.row_grain;
    return st;
}

static mn_held_question held_question(const mn_engine *e, const mn_engine_segment *s) {
    return (mn_held_question){.device = device_of(e, s)->device,
                              .graph = e->graph,
                              .node_lo = s->node_lo,
                              .node_hi = s->node_hi,
                              .precision = s->precision};
}

/* A set of the segment's own, which other sessions of the model may share from now on. */
static mn_status import_weights(mn_engine *e, mn_engine_segment *s, mn_error *err) {
    const mn_engine_device *d = device_of(e, s);
    mn_sealed *pages;
    const mn_compile *c = mn_engine_segment_question(e, s, e->graph, &pages, err);
    const mn_held_question q = held_question(e, s);
    const bool parallel = d->record->info.flags & MN_DEVICE_PARALLEL_PUT;
    if (!c)
        return MN_OUT_OF_MEMORY;
    const mn_import import = {
        .backend = d->backend,
        .callee = mn_callee_of(d),
        .device = d->device,
        .queue = d->queue,
        .n_threads = parallel ? mn_device_workers(d->record) : 1,
        .compile = c,
        .graph = e->graph,
        .watcher = e->watcher,
        .part = (uint32_t)(s - e->segments),
        .n_parts = e->n_segments,
    };
    const mn_status st = mn_weights_import(&import, &s->weights, &s->kept_how, err);
    mn_sealed_free(pages);
    if (!st)
        s->held = mn_held_add(e->held, &q, s->weights, s->kept_how);
    return st;
}

static void free_weights(const mn_engine *e, mn_engine_segment *s) {
    const mn_backend *b = device_of(e, s)->backend;
    if (s->weights && mn_held_release(e->held, s->held)) {
        b->weights_free(s->weights);
        mn_graph_drop(e->graph, s->weights);
    }
    s->weights = NULL;
    s->held = NULL;
}

static mn_status compile_segment(mn_engine *e, mn_engine_segment *s, mn_error *err) {
    const mn_engine_device *d = device_of(e, s);
    mn_sealed_free(s->pages); /* of an attempt with other weights */
    const mn_compile *c = mn_engine_segment_question(e, s, e->graph, &s->pages, err);
    mn_status st = MN_OK;
    if (!c)
        return MN_OUT_OF_MEMORY;
    MN_WATCHED(mn_callee_of(d), "compile",
               st = d->backend->compile(d->device, c, &s->program, err));
    return st;
}

/* With the set of another session. *shared false: there is none, or the device cannot use it for
 * this program. */
static mn_status compile_shared(mn_engine *e, mn_engine_segment *s, bool *shared, mn_error *err) {
    const mn_held_question q = held_question(e, s);
    s->held = mn_held_take(e->held, &q);
    *shared = s->held;
    if (!*shared)
        return MN_OK;
    s->weights = mn_held_set(s->held, &s->kept_how);
    const mn_status st = compile_segment(e, s, err);
    *shared = st != MN_UNSUPPORTED;
    if (*shared) {
        s->weight_bytes = 0;
        return st;
    }
    MN_WATCHED(mn_callee_of(device_of(e, s)), "weights_free", free_weights(e, s));
    return MN_OK;
}

mn_status mn_engine_segment_create(mn_engine *e, mn_engine_segment *s, mn_error *err) {
    mn_engine_device *d = device_of(e, s);
    bool shared = false;
    mn_status st = estimate(e, s, err);
    if (st)
        return st;
    st = compile_shared(e, s, &shared, err);
    if (!st && !shared)
        st = import_weights(e, s, err);
    if (!st && !shared)
        st = compile_segment(e, s, err);
    if (!st)
        MN_WATCHED(mn_callee_of(d), "context_create",
                   st = mn_usual_context(d->backend, s->program, d->queue, &s->context, err));
    return mn_engine_note(e, s->device, st);
}

/* Where tensor t lies in the packed inputs of the device, in int32; -1 = it is no input. */
static int64_t input_offset(const mn_engine *e, const mn_engine_device *d, int32_t t) {
    const mn_graph_io *io = &e->graph->io;
    const mn_input_layout *l = &d->in;
    const struct {
        int32_t tensor;
        uint32_t at;
    } inputs[] = {
        {io->step, l->step},
        {io->src, l->src},
        {io->pos, l->pos},
        {io->row_slot, l->row_slot},
        {io->seqs, l->seqs},
        {io->out_row, l->out_row},
        {io->out_slot, l->out_slot},
        {io->text_src, l->text_src},
        {io->text_pos, l->text_pos},
        {io->text_row_slot, l->text_row_slot},
        {io->text_seqs, l->text_seqs},
        {io->text_length, l->text_length},
        {io->adapter, l->adapter},
        {io->out_adapter, l->out_adapter},
    };
    for (size_t i = 0; i < MN_COUNT(inputs); i++)
        if (inputs[i].tensor == t)
            return inputs[i].at;
    for (uint32_t i = 0; i < e->graph->hp.n_kv; i++)
        if (io->pages[i] == t)
            return l->pages[i];
    return -1;
}

/* The buffer of a tensor that is neither an input nor KV pages; NULL = the plugin's own. */
static mn_buffer *buffer_of(const mn_engine *e, const mn_engine_device *d, int32_t t) {
    const mn_graph_io *io = &e->graph->io;
    if (t == io->slots)
        return d->slots;
    if (t == io->history)
        return d->history;
    if (t == io->params)
        return d->params;
    return d->at[t];
}

/* What the host binds for a tensor; false = nothing, the tensor is the plugin's own. */
static bool binding(const mn_engine *e, const mn_engine_segment *s, uint32_t set, uint32_t t,
                    mn_binding *b) {
    const mn_engine_device *d = device_of(e, s);
    const mn_graph_io *io = &e->graph->io;
    const int32_t id = (int32_t)t;
    *b = (mn_binding){.tensor = t};
    for (uint32_t i = 0; i < e->graph->hp.n_kv; i++)
        if (id == io->kv[i]) {
            b->buffer = d->pages_kv[i];
            b->bytes = d->group_bytes[i];
            return true;
        }
    if (id == io->logits && set != MN_SET_LOGITS && !e->logits_crosses)
        return false;
    if (!mn_tensor_bytes(&e->graph->abi, t, d->symbol_max, &b->bytes))
        return false;
    const int64_t at = input_offset(e, d, id);
    if (at < 0) {
        b->buffer = buffer_of(e, d, id);
        return b->buffer != NULL;
    }
    b->buffer = d->inputs;
    b->offset = (uint64_t)at * 4;
    return true;
}

uint32_t mn_engine_segment_bindings(const mn_engine *e, const mn_engine_segment *s, uint32_t set,
                                    mn_binding *to) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_tensors; i++)
        n += binding(e, s, set, s->tensors[i], &to[n]);
    n += binding(e, s, set, (uint32_t)e->graph->io.step, &to[n]); /* no node reads it */
    return n;
}

/* Not in a step: the copy can have pages of its own. */
mn_status mn_engine_context_bind(mn_engine *e, const mn_engine_segment *s, mn_context *context,
                                 uint32_t set, const mn_binding *bindings, uint32_t n,
                                 mn_error *err) {
    const mn_engine_device *d = device_of(e, s);
    mn_sealed *pages;
    const mn_binding *given = mn_given_array(bindings, n, sizeof *bindings, &pages);
    mn_status st = MN_OK;
    if (!given)
        return mn_fail_memory(err, n * sizeof *bindings);
    MN_WATCHED(mn_callee_of(d), "context_bind",
               st = d->backend->context_bind(context, set, given, n, sizeof *given, err));
    mn_sealed_free(pages);
    return mn_engine_note(e, s->device, st);
}

mn_status mn_engine_segment_bind(mn_engine *e, const mn_engine_segment *s, uint32_t set,
                                 uint32_t content, mn_error *err) {
    mn_binding *b = mn_alloc(s->n_tensors + 1u, sizeof *b);
    if (!b)
        return mn_fail_memory(err, s->n_tensors * sizeof *b);
    const uint32_t n = mn_engine_segment_bindings(e, s, content, b);
    const mn_status st = mn_engine_context_bind(e, s, s->context, set, b, n, err);
    mn_free(b);
    return st;
}

/* The caller's symbol values with the device's own pages: those of the longest sequence. */
static void own_symbols(const mn_engine *e, const mn_engine_segment *s, const int64_t *symbols,
                        int64_t *own) {
    const mn_engine_device *d = device_of(e, s);
    int64_t pages = 1;
    memcpy(own, symbols, MN_SYM_COUNT * sizeof *own);
    for (uint32_t i = 0; i < e->graph->hp.n_kv; i++) {
        const int64_t per = d->kv[i].page_tokens;
        if (per)
            pages = MN_MAX(pages, (symbols[MN_SYM_CTX] + per - 1) / per);
    }
    own[MN_SYM_PAGES] = MN_MIN(pages, d->symbol_max[MN_SYM_PAGES]);
}

mn_status mn_engine_segment_prepare(mn_engine *e, mn_engine_segment *s, const int64_t *symbols,
                                    mn_error *err) {
    const mn_engine_device *d = device_of(e, s);
    const mn_backend *b = d->backend;
    int64_t own[MN_SYM_COUNT];
    mn_given_step given;
    mn_status st = MN_OK;
    if (!MN_HAS(mn_backend, b, context_prepare))
        return MN_OK;
    own_symbols(e, s, symbols, own);
    MN_WATCHED(
        mn_callee_of(d), "context_prepare",
        MN_RETRY(st, b->context_prepare(s->context, mn_step_give(&given, MN_SET_PLAIN, own), err)));
    return mn_engine_note(e, s->device, st);
}

uint64_t mn_engine_segment_ns(const mn_engine_segment *s, const int64_t *symbols) {
    return (uint64_t)(s->row_us * 1e3 * (double)symbols[MN_SYM_TOKENS]) + 1;
}

/* What the plugin changed is set back: other plugins compute on this thread, too. Said once. */
static void check_arithmetic(mn_engine_device *d, const mn_arithmetic *before) {
    const char *changed = mn_arithmetic_restore(before);
    if (changed && !d->says_changes)
        mn_log(MN_LOG_WARN, "%s: execute leaves %s other than it was: it is set back each time",
               d->record->name, changed);
    d->says_changes = d->says_changes || changed;
}

mn_status mn_engine_context_execute(mn_engine *e, const mn_engine_segment *s, mn_context *context,
                                    uint32_t set, const mn_engine_step *x, mn_event **event,
                                    mn_error *err) {
    const mn_backend *b = device_of(e, s)->backend;
    const uint64_t expected_ns = mn_engine_segment_ns(s, x->symbols);
    int64_t own[MN_SYM_COUNT];
    mn_given_step given;
    mn_status st;
    own_symbols(e, s, x->symbols, own);
    const mn_arithmetic before = mn_arithmetic_now();
    mn_call *call = mn_call_begin(mn_callee_of(device_of(e, s)), "execute", expected_ns);
    if (x->profile)
        st = mn_engine_segment_profile(e, s, context, set, own, err);
    else
        MN_RETRY(st, b->execute(context, mn_step_give(&given, set, own), event, err));
    mn_call_end(call);
    check_arithmetic(device_of(e, s), &before);
    return mn_engine_note(e, s->device, st);
}

mn_status mn_engine_segment_execute(mn_engine *e, mn_engine_segment *s, const mn_engine_step *x,
                                    mn_event **event, mn_error *err) {
    const bool wanted = x->logits || x->n_sampler_rows;
    const bool with_logits = wanted && !e->logits_crosses && s->device == e->logits_device;
    const bool is_last = s == &e->segments[e->n_segments - 1];
    mn_context *context = is_last && x->run ? e->programs[x->run].context : s->context;
    uint32_t set = MN_SET_PLAIN;
    if (with_logits)
        set = MN_SET_LOGITS;
    return mn_engine_context_execute(e, s, context, set, x, event, err);
}

/* In the order in which they depend on each other. */
static void free_objects(const mn_engine *e, mn_engine_segment *s) {
    const mn_backend *b = device_of(e, s)->backend;
    if (s->context)
        b->context_free(s->context);
    if (s->program)
        b->program_free(s->program);
    free_weights(e, s);
}

void mn_engine_segment_free(mn_engine *e, mn_engine_segment *s) {
    const mn_engine_device *d = device_of(e, s);
    MN_WATCHED(mn_callee_of(d), "context_free", free_objects(e, s));
    mn_sealed_free(s->pages);
    mn_free(s->tensors);
}
