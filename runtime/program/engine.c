/* engine.c -- a placement made real. */
#include "program/engine.h"
#include "program/weights.h"
#include <string.h>

enum { ALIGN = 16 /* int32s: 64 bytes */ };

static uint32_t place(mn_input_layout *l, int64_t n) {
    uint32_t at = l->total;
    l->total += (uint32_t)((n + ALIGN - 1) / ALIGN * ALIGN);
    return at;
}

static void lay_out(mn_engine *e) {
    const int64_t *s = e->symbol_max;
    mn_input_layout *l = &e->in;
    l->src = place(l, s[MN_SYM_TOKENS]);
    l->pos = place(l, s[MN_SYM_TOKENS]);
    l->row_slot = place(l, s[MN_SYM_TOKENS]);
    l->seqs = place(l, s[MN_SYM_SEQS] * 4);
    l->pages = place(l, s[MN_SYM_SLOTS] * s[MN_SYM_PAGES]);
    l->out_row = place(l, s[MN_SYM_OUTPUTS]);
    l->out_slot = place(l, s[MN_SYM_OUTPUTS]);
}

static mn_status buffer(mn_engine *e, uint64_t bytes, uint32_t kind, mn_buffer **out, mn_error *err) {
    return e->backend->alloc(e->device, bytes ? bytes : 4, kind, out, err);
}

static mn_status allocate(mn_engine *e, mn_error *err) {
    const int64_t *s = e->symbol_max;
    const uint64_t n_slots = (uint64_t)s[MN_SYM_SLOTS], ids = (uint64_t)s[MN_SYM_OUTPUTS] * 4;
    const struct {
        mn_buffer **to;
        uint64_t bytes;
        uint32_t kind;
    } want[] = {
        {&e->inputs, (uint64_t)e->in.total * 4, MN_MEM_DEVICE},
        {&e->slots, n_slots * sizeof(mn_slot), MN_MEM_DEVICE},
        {&e->history, n_slots * (uint64_t)s[MN_SYM_CTX] * 4, MN_MEM_DEVICE},
        {&e->params, n_slots * sizeof(mn_slot_params), MN_MEM_DEVICE},
        {&e->pages_kv, e->kv_bytes, MN_MEM_DEVICE},
        {&e->ids, ids, MN_MEM_DEVICE},
        {&e->ids_host, ids * e->ring, MN_MEM_HOST_PINNED},
    };
    for (size_t i = 0; i < MN_COUNT(want); i++) {
        mn_status st = buffer(e, want[i].bytes, want[i].kind, want[i].to, err);
        if (st)
            return mn_fail_in(err, st, "%llu bytes of %s memory", (unsigned long long)want[i].bytes,
                              want[i].kind == MN_MEM_DEVICE ? "device" : "pinned");
    }
    return e->backend->map(e->ids_host, (void **)&e->ids_map, err);
}

static mn_status bind(mn_engine *e, mn_error *err) {
    const mn_graph_io *io = &e->graph->io;
    const int64_t *s = e->symbol_max;
    const uint64_t T = (uint64_t)s[MN_SYM_TOKENS] * 4, O = (uint64_t)s[MN_SYM_OUTPUTS] * 4,
                   S = (uint64_t)s[MN_SYM_SLOTS];
    const mn_input_layout *l = &e->in;
    mn_binding b[16] = {
        {(uint32_t)io->src, 0, e->inputs, l->src * 4ull, T},
        {(uint32_t)io->pos, 0, e->inputs, l->pos * 4ull, T},
        {(uint32_t)io->row_slot, 0, e->inputs, l->row_slot * 4ull, T},
        {(uint32_t)io->seqs, 0, e->inputs, l->seqs * 4ull, (uint64_t)s[MN_SYM_SEQS] * 16},
        {(uint32_t)io->pages, 0, e->inputs, l->pages * 4ull, S * (uint64_t)s[MN_SYM_PAGES] * 4},
        {(uint32_t)io->out_row, 0, e->inputs, l->out_row * 4ull, O},
        {(uint32_t)io->out_slot, 0, e->inputs, l->out_slot * 4ull, O},
        {(uint32_t)io->slots, 0, e->slots, 0, S * sizeof(mn_slot)},
        {(uint32_t)io->history, 0, e->history, 0, S * (uint64_t)s[MN_SYM_CTX] * 4},
        {(uint32_t)io->params, 0, e->params, 0, S * sizeof(mn_slot_params)},
        {(uint32_t)io->kv, 0, e->pages_kv, 0, e->kv_bytes},
        {(uint32_t)io->ids, 0, e->ids, 0, O},
    };
    uint32_t n = 12;
    if (e->logits) b[n++] = (mn_binding){(uint32_t)io->logits, 0, e->logits, 0, O * (uint64_t)e->graph->hp.n_vocab};
    return e->backend->context_bind(e->context, b, n, sizeof *b, err);
}

static mn_status compile(mn_engine *e, mn_error *err) {
    mn_compile c = {.size = sizeof c,
                    .precision = e->precision,
                    .graph = &e->graph->abi,
                    .node_hi = e->graph->abi.n_nodes,
                    .symbol_max = e->symbol_max,
                    .kv_dtype = e->kv_dtype};
    mn_status st = mn_weights_import(e->backend, e->device, e->queue, &c, e->graph, &e->weights, &e->kept_how, err);
    c.weights = e->weights;
    if (!st) st = e->backend->compile(e->device, &c, &e->program, err);
    if (!st) st = e->backend->context_create(e->program, e->queue, &e->context, err);
    return st;
}

mn_status mn_engine_create(const mn_placement *p, const mn_model_graph *g, uint32_t ring, mn_engine **out,
                           mn_error *err) {
    const mn_offer *o = &p->offers[p->chosen];
    mn_engine *e = mn_calloc(1, sizeof *e);
    if (!e) return mn_fail_memory(err, sizeof *e);
    e->backend = o->record->plugin->backend;
    e->device = o->device;
    e->graph = g;
    e->kv = o->kv;
    e->precision = o->precision;
    e->kv_dtype = o->kv_dtype;
    e->n_pages = o->n_pages;
    e->weight_bytes = o->estimate.weights;
    e->kv_bytes = o->kv_bytes;
    e->scratch_bytes = o->estimate.scratch;
    e->async = o->record->info.flags & MN_DEVICE_ASYNC;
    e->ring = ring;
    memcpy(e->symbol_max, p->symbol_max, sizeof e->symbol_max);
    lay_out(e);
    mn_status st = e->backend->queue_create(e->device, &e->queue, err);
    if (!st) st = compile(e, err);
    if (!st) st = allocate(e, err);
    if (!st) st = bind(e, err);
    if (st) {
        mn_fail_in(err, st, "%s", o->record->name);
        mn_engine_free(e);
    } else
        *out = e;
    return st;
}

void mn_engine_free(mn_engine *e) {
    if (!e) return;
    const mn_backend *b = e->backend;
    mn_buffer *all[] = {e->inputs, e->slots,    e->history, e->params,     e->pages_kv,
                        e->ids,    e->ids_host, e->logits,  e->logits_host};
    if (e->context) b->context_free(e->context);
    if (e->program) b->program_free(e->program);
    if (e->weights) b->weights_free(e->weights);
    for (size_t i = 0; i < MN_COUNT(all); i++)
        if (all[i]) b->buffer_free(all[i]);
    if (e->queue) b->queue_free(e->queue);
    mn_free(e);
}

mn_status mn_engine_submit(mn_engine *e, const int32_t *inputs, const int64_t symbols[MN_SYM_COUNT], uint32_t at,
                           mn_event **event, mn_error *err) {
    const uint64_t n = (uint64_t)symbols[MN_SYM_OUTPUTS] * 4, row = (uint64_t)e->symbol_max[MN_SYM_OUTPUTS] * 4;
    mn_event *done = NULL;
    mn_status st = inputs ? e->backend->write(e->queue, e->inputs, 0, inputs, (uint64_t)e->in.total * 4, err) : MN_OK;
    if (!st) st = e->backend->execute(e->context, symbols, n ? NULL : &done, err);
    if (!st && n) st = e->backend->read(e->queue, e->ids, 0, e->ids_host, at * row, n, &done, err);
    if (!st) *event = done;
    return st;
}

mn_status mn_engine_wait(mn_engine *e, mn_event **event, uint64_t timeout_ns, mn_error *err) {
    if (!*event) return MN_OK;
    mn_status st = e->backend->wait(*event, timeout_ns, err);
    if (st == MN_TIMEOUT) return st;
    e->backend->event_free(*event);
    *event = NULL;
    return st;
}

const int32_t *mn_engine_ids(const mn_engine *e, uint32_t at) {
    return e->ids_map + (uint64_t)at * (uint64_t)e->symbol_max[MN_SYM_OUTPUTS];
}

mn_status mn_engine_reset_slot(mn_engine *e, uint32_t slot, const mn_slot *state, const mn_slot_params *params,
                               mn_error *err) {
    mn_status st = e->backend->write(e->queue, e->slots, slot * sizeof *state, state, sizeof *state, err);
    return st ? st : e->backend->write(e->queue, e->params, slot * sizeof *params, params, sizeof *params, err);
}

mn_status mn_engine_write_history(mn_engine *e, uint32_t slot, const int32_t *ids, uint32_t n, mn_error *err) {
    return e->backend->write(e->queue, e->history, (uint64_t)slot * (uint64_t)e->symbol_max[MN_SYM_CTX] * 4, ids,
                             n * 4ull, err);
}

mn_status mn_engine_copy_page(mn_engine *e, mn_page_copy copy, mn_error *err) {
    return e->backend->kv_copy(e->queue, e->pages_kv, &e->kv, &copy, 1, sizeof copy, err);
}

mn_status mn_engine_want_logits(mn_engine *e, bool want, mn_error *err) {
    const uint64_t bytes = (uint64_t)e->symbol_max[MN_SYM_OUTPUTS] * (uint64_t)e->graph->hp.n_vocab * 4;
    mn_buffer **b[2] = {&e->logits, &e->logits_host};
    mn_status st = MN_OK;
    if (want == (e->logits != NULL)) return MN_OK;
    if (want) {
        st = buffer(e, bytes, MN_MEM_DEVICE, &e->logits, err);
        if (!st) st = buffer(e, bytes, MN_MEM_HOST_PINNED, &e->logits_host, err);
        if (!st) st = e->backend->map(e->logits_host, (void **)&e->logits_map, err);
        if (!st) st = bind(e, err);
        if (!st) return MN_OK;
    }
    mn_buffer *old[2] = {e->logits, e->logits_host};
    *b[0] = *b[1] = NULL;
    mn_status bound = bind(e, want ? NULL : err); /* first let go, then free */
    for (int i = 0; i < 2; i++)
        if (old[i]) e->backend->buffer_free(old[i]);
    return st ? st : bound;
}

mn_status mn_engine_logits(mn_engine *e, uint32_t n_rows, const float **rows, mn_error *err) {
    mn_event *done = NULL;
    const uint64_t bytes = (uint64_t)n_rows * (uint64_t)e->graph->hp.n_vocab * 4;
    mn_status st = e->backend->read(e->queue, e->logits, 0, e->logits_host, 0, bytes, &done, err);
    while (!st && done) {
        st = mn_engine_wait(e, &done, 1000000000, err);
        if (st == MN_TIMEOUT) st = MN_OK;
    }
    *rows = e->logits_map;
    return st;
}
