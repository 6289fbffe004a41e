/* sampler.c -- SAMPLE on another device than the last segment's, for slots whose parameters need a
 * newer contract than that device has: as a rule a CPU draws what an older plugin cannot. It draws
 * for one row at a time and keeps nothing between two of them. Logits, slot and history come from
 * the device of the last segment, which has all slots. The id, the slot and the probabilities are
 * written back there, in queue order, so that their readers need not know which device drew. When
 * mn_sampler_draw returns, only these writes of the step are outstanding.
 *
 * Owned by the engine. The device is one of the placement's offers, open as long as that lives. */
#include "engine/engine_impl.h"
#include "engine/weights.h"
#include <string.h>

enum { MOST_TENSORS = 24 };

/* Results of a draw in pinned memory, and what comes from the device of the last segment. */
typedef struct {
    mn_slot slot;
    int32_t id;
    float mu, logprob;
    int32_t top_ids[MN_MAX_TOP_LOGPROBS];
    float top_logprobs[MN_MAX_TOP_LOGPROBS];
} drawn;

struct mn_engine_sampler {
    const mn_device_record *record;
    const mn_backend *backend;
    mn_device *device;
    const mn_model_graph *graph; /* its last node is the SAMPLE; of all samplers, without drafts */
    int64_t symbols[MN_SYM_COUNT]; /* maxima and values: one row, one slot, the session's context */
    mn_queue *queue;
    mn_weights *weights; /* none, but compile wants a set */
    mn_program *program;
    mn_context *context;
    mn_sealed *pages; /* what the program was compiled of */
    void *given;      /* what a write is given: a copy */
    size_t given_cap;
    mn_binding tensors[MOST_TENSORS]; /* each with a buffer of its own */
    uint32_t n_tensors;
    mn_buffer *results; /* pinned; `drawn` */
    drawn *result;
    uint32_t *words; /* [mask words]: all ids, or none */
    /* pinned memory of the last segment's device: slot, history [n_ctx], logits [n_vocab] */
    mn_buffer *staging;
    char *staged;
    bool ready; /* the last segment's device has what it writes to */
};

static const mn_callee *callee_of(const mn_engine_sampler *x) {
    return x->record->plugin->callee;
}

/* Keeps whose fault it was; gives st back. */
static mn_status note(mn_engine *e, mn_status st) {
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST && !e->fault)
        e->fault = e->sampler->record;
    if (st)
        e->failed = e->sampler->record;
    return st;
}

/* ---- creation -------------------------------------------------------------------------------- */
/* A buffer for tensor t of the graph, unless it is absent or has one. */
static mn_status add_tensor(mn_engine_sampler *x, int32_t t, mn_error *err) {
    mn_binding *b = &x->tensors[x->n_tensors];
    mn_status st = MN_OK;
    if (t < 0)
        return MN_OK;
    for (uint32_t i = 0; i < x->n_tensors; i++)
        if (x->tensors[i].tensor == (uint32_t)t)
            return MN_OK;
    *b = (mn_binding){.tensor = (uint32_t)t};
    if (x->n_tensors == MOST_TENSORS ||
        !mn_tensor_bytes(&x->graph->abi, b->tensor, x->symbols, &b->bytes))
        return mn_fail(err, MN_UNSUPPORTED, "SAMPLE has operands that are not known");
    MN_WATCHED(callee_of(x), "alloc",
               st =
                   mn_usual_alloc(x->backend, x->device, b->bytes, MN_MEM_DEVICE, &b->buffer, err));
    x->n_tensors += !st;
    return st;
}

static mn_status add_tensors(mn_engine_sampler *x, mn_error *err) {
    const mn_graph *g = &x->graph->abi;
    const mn_node *n = &g->nodes[g->n_nodes - 1];
    mn_status st = add_tensor(x, x->graph->io.step, err);
    for (uint32_t i = 0; i < n->n_in && !st; i++)
        st = add_tensor(x, g->operands[n->in_off + i], err);
    for (uint32_t i = 0; i < n->n_out && !st; i++)
        st = add_tensor(x, g->operands[n->out_off + i], err);
    return st;
}

/* In sealed pages; NULL: out of memory. */
static const mn_compile *question(const mn_engine_sampler *x, const mn_offer *o, mn_sealed **owner,
                                  mn_error *err) {
    const mn_compile c = {
        .size = sizeof c,
        .precision = o->precision ? o->precision : MN_PRECISION_EXACT,
        .graph = x->graph->given,
        .node_lo = x->graph->abi.n_nodes - 1,
        .node_hi = x->graph->abi.n_nodes,
        .symbol_max = x->symbols,
        .weights = x->weights,
        .n_sets = 1,
    };
    const mn_compile *given = mn_given_compile(&c, owner);
    if (!given)
        mn_fail_memory(err, sizeof c);
    return given;
}

static mn_status compile_sampler(mn_engine_sampler *x, const mn_offer *o, mn_error *err) {
    const mn_backend *b = x->backend;
    uint32_t kept_how = 0;
    mn_sealed *pages;
    const mn_compile *c = question(x, o, &pages, err);
    if (!c)
        return MN_OUT_OF_MEMORY;
    const mn_import import = {
        .backend = b,
        .callee = callee_of(x),
        .device = x->device,
        .queue = x->queue,
        .n_threads = 1,
        .compile = c,
        .graph = x->graph,
        .n_parts = 1,
    };
    mn_status st = mn_weights_import(&import, &x->weights, &kept_how, err);
    mn_sealed_free(pages);
    if (st)
        return st;
    c = question(x, o, &x->pages, err);
    if (!c)
        return MN_OUT_OF_MEMORY;
    MN_WATCHED(callee_of(x), "compile", st = b->compile(x->device, c, &x->program, err));
    if (!st)
        MN_WATCHED(callee_of(x), "context_create",
                   st = mn_usual_context(b, x->program, x->queue, &x->context, err));
    return st;
}

static mn_status bind(const mn_engine_sampler *x, mn_error *err) {
    mn_sealed *pages;
    const mn_binding *given = mn_given_array(x->tensors, x->n_tensors, sizeof *x->tensors, &pages);
    mn_status st = MN_OK;
    if (!given)
        return mn_fail_memory(err, sizeof x->tensors);
    MN_WATCHED(
        callee_of(x), "context_bind",
        st = x->backend->context_bind(x->context, 0, given, x->n_tensors, sizeof *given, err));
    mn_sealed_free(pages);
    return st;
}

/* Memory of the host, and what is written once: the step, and no target. */
static mn_status allocate(mn_engine *e, mn_engine_sampler *x, mn_error *err) {
    const size_t words = mn_engine_mask_words(e);
    const mn_backend *b = x->backend;
    mn_status st = MN_OK;
    x->words = mn_alloc(words, sizeof *x->words);
    if (!x->words)
        return mn_fail_memory(err, words * sizeof *x->words);
    MN_WATCHED(
        callee_of(x), "alloc",
        st = mn_usual_alloc(b, x->device, sizeof *x->result, MN_MEM_HOST_PINNED, &x->results, err));
    if (!st)
        MN_WATCHED(callee_of(x), "map", st = b->map(x->results, (void **)&x->result, err));
    return st ? st : bind(x, err);
}

static mn_buffer *buffer_of(const mn_engine_sampler *x, int32_t tensor) {
    for (uint32_t i = 0; i < x->n_tensors; i++)
        if ((int32_t)x->tensors[i].tensor == tensor)
            return x->tensors[i].buffer;
    return NULL;
}

/* One call, with a copy of its own. */
static mn_status write_copy(const mn_engine_sampler *x, mn_buffer *to, const void *from,
                            uint64_t bytes, mn_error *err) {
    memcpy(x->given, from, bytes);
    return x->backend->write(x->queue, to, 0, x->given, bytes, err);
}

static mn_status put_tensor(mn_engine_sampler *x, int32_t tensor, const void *from, uint64_t bytes,
                            mn_error *err) {
    mn_buffer *to = buffer_of(x, tensor);
    mn_status st = MN_OK;
    if (!mn_grow(&x->given, &x->given_cap, bytes, 1))
        return mn_fail_memory(err, bytes);
    if (to && bytes)
        MN_WATCHED_FOR(callee_of(x), "write", MN_MOVES_NS(bytes),
                       MN_RETRY(st, write_copy(x, to, from, bytes, err)));
    return st;
}

static mn_status write_constants(mn_engine_sampler *x, mn_error *err) {
    const mn_graph_io *io = &x->graph->io;
    const int32_t step[MN_STEP_WORDS] = {1, 1, 1};
    const int32_t slot = 0;
    const int32_t none = -1;
    mn_status st = put_tensor(x, io->step, step, sizeof step, err);
    if (!st)
        st = put_tensor(x, io->out_slot, &slot, sizeof slot, err);
    if (!st)
        st = put_tensor(x, io->target, &none, sizeof none, err);
    return st;
}

mn_status mn_engine_make_sampler(mn_engine *e, const mn_offer *o, const mn_model_graph *g,
                                 mn_error *err) {
    static const uint32_t ones[] = {MN_SYM_TOKENS, MN_SYM_OUTPUTS, MN_SYM_SEQS,
                                    MN_SYM_SLOTS,  MN_SYM_PAGES,   MN_SYM_SEQ_ROWS};
    mn_status st = MN_OK;
    mn_engine_sampler *x = mn_calloc(1, sizeof *x);
    if (!x)
        return mn_fail_memory(err, sizeof *x);
    mn_engine_sampler_free(e);
    e->sampler = x;
    x->record = o->record;
    x->backend = o->record->plugin->backend;
    x->device = o->device;
    x->graph = g;
    memcpy(x->symbols, e->symbol_max, sizeof x->symbols);
    for (size_t i = 0; i < MN_COUNT(ones); i++)
        x->symbols[ones[i]] = 1;
    MN_WATCHED(callee_of(x), "queue_create",
               st = mn_usual_queue(x->backend, x->device, &x->queue, err));
    if (!st)
        st = compile_sampler(x, o, err);
    if (!st)
        st = add_tensors(x, err);
    if (!st)
        st = allocate(e, x, err);
    if (!st)
        st = write_constants(x, err);
    note(e, st);
    if (st)
        mn_engine_sampler_free(e);
    return st;
}

static void free_objects(mn_engine_sampler *x) {
    const mn_backend *b = x->backend;
    if (x->context)
        b->context_free(x->context);
    if (x->program)
        b->program_free(x->program);
    if (x->weights)
        b->weights_free(x->weights);
    for (uint32_t i = 0; i < x->n_tensors; i++)
        b->buffer_free(x->tensors[i].buffer);
    if (x->results)
        b->buffer_free(x->results);
    if (x->queue)
        b->queue_free(x->queue);
}

void mn_engine_sampler_free(mn_engine *e) {
    mn_engine_sampler *x = e->sampler;
    if (!x)
        return;
    if (x->staging)
        mn_engine_output_device(e)->backend->buffer_free(x->staging);
    MN_WATCHED(callee_of(x), "context_free", free_objects(x));
    mn_sealed_free(x->pages);
    mn_free(x->given);
    mn_free(x->words);
    mn_free(x);
    e->sampler = NULL;
}

/* ---- the device of the last segment ---------------------------------------------------------- */
static uint64_t history_bytes(const mn_engine *e) {
    return (uint64_t)e->symbol_max[MN_SYM_CTX] * 4;
}
static uint64_t logits_bytes(const mn_engine *e) {
    return (uint64_t)mn_graph_row_width(e->graph) * 4;
}

mn_status mn_engine_need_sampler(mn_engine *e, mn_error *err) {
    mn_engine_sampler *x = e->sampler;
    const mn_engine_device *d = mn_engine_output_device(e);
    const uint32_t at = mn_engine_output_index(e);
    const uint64_t bytes = sizeof(mn_slot) + history_bytes(e) + logits_bytes(e);
    if (x->ready)
        return MN_OK;
    mn_status st = mn_engine_make_logits(e, err);
    if (!st)
        st = mn_engine_drafts_bind_logits(e, err);
    if (!st)
        st = mn_engine_scoring_create(e, err);
    if (!st && !x->staging)
        st = mn_engine_alloc(e, at, bytes, MN_MEM_HOST_PINNED, &x->staging, err);
    if (!st && !x->staged)
        st = mn_engine_note(e, at, d->backend->map(x->staging, (void **)&x->staged, err));
    x->ready = !st;
    return st;
}

/* Enqueues a read of the last segment's device into the staging memory. */
static mn_status fetch(mn_engine *e, const mn_buffer *from, uint64_t off, uint64_t to,
                       uint64_t bytes, mn_event **done, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    mn_status st;
    MN_WATCHED_FOR(mn_callee_of(d), "read", MN_MOVES_NS(bytes),
                   MN_RETRY(st, d->backend->read(d->queue, from, off, e->sampler->staging, to,
                                                 bytes, done, err)));
    return mn_engine_note(e, mn_engine_output_index(e), st);
}

static mn_status settle_output(mn_engine *e, uint64_t expected_ns, mn_event **done, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    const mn_status st = mn_event_settle(d->backend, mn_callee_of(d), expected_ns, done, err);
    return mn_engine_note(e, mn_engine_output_index(e), st);
}

/* Slot, history and logits of a row; the slot says how much of the history there is. */
static mn_status fetch_row(mn_engine *e, const mn_sampler_row *r, uint64_t expected_ns,
                           mn_slot *slot, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    const mn_buffer *logits = d->at[e->graph->io.logits];
    const uint64_t row = logits_bytes(e);
    const uint64_t n_ctx = (uint64_t)e->symbol_max[MN_SYM_CTX];
    mn_event *done = NULL;
    mn_status st = fetch(e, d->slots, r->slot * sizeof *slot, 0, sizeof *slot, NULL, err);
    if (!st)
        st = fetch(e, logits, r->row * row, sizeof *slot + history_bytes(e), row, &done, err);
    if (!st)
        st = settle_output(e, expected_ns, &done, err);
    if (st)
        return st;
    memcpy(slot, e->sampler->staged, sizeof *slot);
    const uint64_t n = slot->pos > 0 ? MN_MIN((uint64_t)slot->pos, n_ctx) : 0;
    if (!n)
        return MN_OK;
    st = fetch(e, d->history, r->slot * history_bytes(e), sizeof *slot, n * 4, &done, err);
    return st ? st : settle_output(e, 0, &done, err);
}

/* ---- a draw ---------------------------------------------------------------------------------- */
static mn_status put_words(mn_engine_sampler *x, int32_t tensor, const uint32_t *words, int byte,
                           uint32_t n, mn_error *err) {
    if (!words)
        memset(x->words, byte, n * sizeof *x->words);
    return put_tensor(x, tensor, words ? words : x->words, n * 4ull, err);
}

static mn_status put_bias(mn_engine_sampler *x, const mn_sampler_row *r, mn_error *err) {
    int32_t ids[MN_MAX_BIAS];
    float values[MN_MAX_BIAS] = {0};
    memset(ids, 0xff, sizeof ids);
    for (uint32_t i = 0; i < r->n_bias; i++) {
        ids[i] = r->bias[i].id;
        values[i] = r->bias[i].bias;
    }
    mn_status st = put_tensor(x, x->graph->io.bias_ids, ids, sizeof ids, err);
    return st ? st : put_tensor(x, x->graph->io.bias_values, values, sizeof values, err);
}

/* What was fetched, and what the caller has of the row. */
static mn_status put_row(mn_engine *e, const mn_sampler_row *r, const mn_slot *slot,
                         mn_error *err) {
    mn_engine_sampler *x = e->sampler;
    const mn_graph_io *io = &x->graph->io;
    const char *history = x->staged + sizeof *slot;
    const uint32_t words = mn_engine_mask_words(e);
    const uint64_t n_history =
        slot->pos > 0 ? MN_MIN((uint64_t)slot->pos * 4, history_bytes(e)) : 0;
    mn_status st = put_tensor(x, io->logits, history + history_bytes(e), logits_bytes(e), err);
    if (!st)
        st = put_tensor(x, io->slots, slot, sizeof *slot, err);
    if (!st)
        st = put_tensor(x, io->history, history, n_history, err);
    if (!st)
        st = put_tensor(x, io->params, r->params, sizeof *r->params, err);
    if (!st)
        st = put_words(x, io->mask, r->mask, 0xff, words, err);
    if (!st)
        st = put_words(x, io->breakers, r->breakers, 0, words, err);
    return st ? st : put_bias(x, r, err);
}

/* Enqueues the read of a tensor into its place of `drawn`. */
static mn_status read_drawn(mn_engine_sampler *x, int32_t tensor, size_t to, uint64_t bytes,
                            mn_event **done, mn_error *err) {
    mn_status st;
    MN_WATCHED_FOR(callee_of(x), "read", MN_MOVES_NS(bytes),
                   MN_RETRY(st, x->backend->read(x->queue, buffer_of(x, tensor), 0, x->results, to,
                                                 bytes, done, err)));
    return st;
}

static mn_status execute(mn_engine_sampler *x, mn_error *err) {
    const mn_graph_io *io = &x->graph->io;
    const struct {
        int32_t tensor;
        size_t to;
        uint64_t bytes;
    } all[] = {
        {io->slots, offsetof(drawn, slot), sizeof x->result->slot},
        {io->ids, offsetof(drawn, id), sizeof x->result->id},
        {io->mu, offsetof(drawn, mu), sizeof x->result->mu},
        {io->logprob, offsetof(drawn, logprob), sizeof x->result->logprob},
        {io->top_ids, offsetof(drawn, top_ids), sizeof x->result->top_ids},
        {io->top_logprobs, offsetof(drawn, top_logprobs), sizeof x->result->top_logprobs},
    };
    mn_event *done = NULL;
    mn_given_step given;
    mn_status st;
    MN_WATCHED(callee_of(x), "execute",
               MN_RETRY(st, x->backend->execute(x->context, mn_step_give(&given, 0, x->symbols),
                                                NULL, err)));
    for (size_t i = 0; i < MN_COUNT(all) && !st; i++)
        st = read_drawn(x, all[i].tensor, all[i].to, all[i].bytes,
                        i + 1 == MN_COUNT(all) ? &done : NULL, err);
    return st ? st : mn_event_settle(x->backend, callee_of(x), 0, &done, err);
}

/* What was drawn is an id, or none. */
static mn_status check_id(const mn_engine *e, const mn_engine_sampler *x, mn_error *err) {
    const int32_t id = x->result->id;
    if (mn_id_exists(e, id) || id == MN_ID_NONE || id == MN_ID_NAN)
        return MN_OK;
    return mn_fail(err, MN_DEVICE_LOST, "%s drew id %d of %lld", x->record->name, id,
                   (long long)e->graph->hp.n_vocab);
}

/* Where the last segment's own SAMPLE would have left it. */
static mn_status write_back(mn_engine *e, const mn_sampler_row *r, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    const mn_scoring *s = &e->scoring;
    const drawn *x = e->sampler->result;
    const uint64_t top = sizeof x->top_ids;
    const struct {
        mn_buffer *to;
        uint64_t at;
        const void *from;
        uint64_t bytes;
    } all[] = {
        {d->slots, r->slot * sizeof x->slot, &x->slot, sizeof x->slot},
        {d->at[e->graph->io.ids], r->row * 4ull, &x->id, 4},
        {s->mu, r->row * 4ull, &x->mu, 4},
        {s->logprob, r->row * 4ull, &x->logprob, 4},
        {s->top_ids, r->row * top, x->top_ids, top},
        {s->top_logprobs, r->row * top, x->top_logprobs, top},
    };
    mn_status st = MN_OK;
    for (size_t i = 0; i < MN_COUNT(all) && !st; i++)
        st = mn_engine_write_output(e, all[i].to, all[i].at, all[i].from, all[i].bytes, err);
    return st;
}

mn_status mn_sampler_draw(mn_engine *e, const mn_engine_step *x, mn_error *err) {
    const uint64_t step_ns = x->n_sampler_rows ? mn_engine_step_ns(e, x->symbols) : 0;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < x->n_sampler_rows && !st; i++) {
        const mn_sampler_row *r = &x->sampler_rows[i];
        mn_slot slot;
        st = fetch_row(e, r, i ? 0 : step_ns, &slot, err);
        if (!st)
            st = note(e, put_row(e, r, &slot, err));
        if (!st)
            st = note(e, execute(e->sampler, err));
        if (!st)
            st = note(e, check_id(e, e->sampler, err));
        if (!st)
            st = write_back(e, r, err);
    }
    return st;
}
