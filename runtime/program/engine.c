/* engine.c -- a placement made real: the whole of devices, segments and what crosses. */
#include "program/parts.h"
#include <string.h>

static mn_engine_device *home(const mn_engine *e) { return &e->devices[e->segments[e->n_segments - 1].device]; }
static uint32_t home_index(const mn_engine *e) { return e->segments[e->n_segments - 1].device; }

mn_status mn_engine_note(mn_engine *e, uint32_t device, mn_status st) {
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST && !e->fault) e->fault = e->devices[device].record;
    return st;
}

mn_status mn_device_alloc(mn_engine *e, uint32_t device, uint64_t bytes, uint32_t kind, mn_buffer **out,
                          mn_error *err) {
    const mn_engine_device *d = &e->devices[device];
    mn_status st = d->backend->alloc(d->device, bytes ? bytes : 4, kind, out, err);
    if (!st) return st;
    *out = NULL;
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST) return mn_engine_note(e, device, st);
    mn_fail_in(err, st, "%llu bytes of %s memory", (unsigned long long)bytes,
               kind == MN_MEM_DEVICE ? "device" : "pinned");
    return st;
}

/* ---- creation: devices ---- */
static uint32_t device_index(mn_engine *e, const mn_offer *o) {
    for (uint32_t i = 0; i < e->n_devices; i++)
        if (e->devices[i].record == o->record) return i;
    mn_engine_device *d = &e->devices[e->n_devices];
    d->record = o->record;
    d->backend = o->record->plugin->backend;
    d->device = o->device;
    d->unified = o->record->info.flags & MN_DEVICE_UNIFIED;
    memcpy(d->symbol_max, e->symbol_max, sizeof d->symbol_max);
    d->symbol_max[MN_SYM_PAGES] = 1;
    return e->n_devices++;
}

static mn_status list_parts(mn_engine *e, const mn_placement *p, mn_error *err) {
    e->devices = mn_calloc(p->n_segments, sizeof *e->devices);
    e->segments = mn_calloc(p->n_segments, sizeof *e->segments);
    if (!e->devices || !e->segments) return mn_fail_memory(err, p->n_segments * sizeof *e->segments);
    for (uint32_t i = 0; i < p->n_segments; i++) {
        const mn_segment *s = &p->segments[i];
        const mn_offer *o = &p->offers[s->offer];
        e->segments[e->n_segments++] = (mn_engine_segment){.device = device_index(e, o),
                                                           .node_lo = s->node_lo,
                                                           .node_hi = s->node_hi,
                                                           .precision = o->precision,
                                                           .kv_dtype = o->kv_dtype};
    }
    return MN_OK;
}

/* Segments in order without a gap; what works on the slots is on the device of the last one. */
static mn_status check_parts(const mn_engine *e, mn_error *err) {
    const mn_graph *g = &e->graph->abi;
    uint32_t next = 0;
    for (uint32_t k = 0; k < e->n_segments; k++) {
        const mn_engine_segment *s = &e->segments[k];
        if (s->node_lo != next || s->node_hi <= s->node_lo || s->node_hi > g->n_nodes)
            return mn_fail(err, MN_INVALID, "segment %u is [%u, %u), expected to begin at node %u of %u", k, s->node_lo,
                           s->node_hi, next, g->n_nodes);
        next = s->node_hi;
        for (uint32_t i = s->node_lo; i < s->node_hi; i++)
            if ((g->nodes[i].op == MN_OP_EMBED || g->nodes[i].op == MN_OP_SAMPLE) && s->device != home_index(e))
                return mn_fail_node(err, MN_INVALID, i, "node %u works on the slots of %s, but is placed on %s", i,
                                    home(e)->record->name, e->devices[s->device].record->name);
    }
    return next == g->n_nodes ? MN_OK : mn_fail(err, MN_INVALID, "segments end at node %u of %u", next, g->n_nodes);
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The session's pages are the least common multiple of the devices'. */
static mn_status set_pages(mn_engine *e, mn_error *err) {
    const int64_t n_ctx = e->symbol_max[MN_SYM_CTX];
    uint64_t common = 1;
    for (uint32_t i = 0; i < e->n_devices; i++) {
        const uint64_t own = e->devices[i].page_tokens ? e->devices[i].page_tokens : 1;
        common = common / common_divisor(common, own) * own;
        if (common > 1u << 24) return mn_fail(err, MN_UNSUPPORTED, "KV pages of sizes that do not go together");
    }
    e->page_tokens = (uint32_t)common;
    e->n_pages = (uint32_t)(((uint64_t)n_ctx + common - 1) / common);
    e->symbol_max[MN_SYM_PAGES] = e->n_pages;
    for (uint32_t i = 0; i < e->n_devices; i++) {
        mn_engine_device *d = &e->devices[i];
        const uint64_t ratio = d->page_tokens ? common / d->page_tokens : 1, pages = ratio * e->n_pages;
        if (pages > INT32_MAX / (uint64_t)e->symbol_max[MN_SYM_SLOTS])
            return mn_fail(err, MN_OUT_OF_MEMORY, "a KV cache of more pages than can be counted");
        d->n_pages = (uint32_t)pages;
        d->symbol_max[MN_SYM_PAGES] = (int64_t)pages;
        mn_inputs_lay_out(d->symbol_max, &d->in);
    }
    mn_inputs_lay_out(e->symbol_max, &e->in);
    return MN_OK;
}

/* ---- creation: memory ---- */
static bool touches(const mn_engine *e, uint32_t device, int32_t tensor) {
    for (uint32_t k = 0; k < e->n_segments; k++) {
        const mn_engine_segment *s = &e->segments[k];
        for (uint32_t i = 0; i < s->n_tensors && s->device == device; i++)
            if ((int32_t)s->tensors[i] == tensor) return true;
    }
    return false;
}

static mn_status allocate_device(mn_engine *e, uint32_t i, mn_error *err) {
    mn_engine_device *d = &e->devices[i];
    const mn_graph_io *io = &e->graph->io;
    const int32_t inputs[] = {io->src, io->pos, io->row_slot, io->seqs, io->pages, io->out_row, io->out_slot};
    for (size_t k = 0; k < MN_COUNT(inputs); k++) d->takes_inputs = d->takes_inputs || touches(e, i, inputs[k]);
    d->at = mn_calloc(e->graph->abi.n_tensors, sizeof *d->at);
    if (d->n_pages != e->n_pages) d->packed = mn_calloc(d->in.total, sizeof *d->packed);
    if (!d->at || (d->n_pages != e->n_pages && !d->packed)) return mn_fail_memory(err, d->in.total * 4ull);
    const uint64_t inputs_bytes = d->takes_inputs ? d->in.total * 4ull : 0;
    return inputs_bytes ? mn_device_alloc(e, i, inputs_bytes, MN_MEM_DEVICE, &d->inputs, err) : MN_OK;
}

static mn_status allocate_home(mn_engine *e, mn_error *err) {
    const int64_t *s = e->symbol_max;
    const uint64_t n_slots = (uint64_t)s[MN_SYM_SLOTS], ids = (uint64_t)s[MN_SYM_OUTPUTS] * 4;
    mn_engine_device *d = home(e);
    const struct {
        mn_buffer **to;
        uint64_t bytes;
        uint32_t kind;
    } want[] = {
        {&d->slots, n_slots * sizeof(mn_slot), MN_MEM_DEVICE},
        {&d->history, n_slots * (uint64_t)s[MN_SYM_CTX] * 4, MN_MEM_DEVICE},
        {&d->params, n_slots * sizeof(mn_slot_params), MN_MEM_DEVICE},
        {&d->at[e->graph->io.ids], ids, MN_MEM_DEVICE},
        {&e->ids_host, ids * e->ring, MN_MEM_HOST_PINNED},
    };
    for (size_t i = 0; i < MN_COUNT(want); i++) {
        mn_status st = mn_device_alloc(e, home_index(e), want[i].bytes, want[i].kind, want[i].to, err);
        if (st) return st;
    }
    return mn_engine_note(e, home_index(e), d->backend->map(e->ids_host, (void **)&e->ids_map, err));
}

/* ---- creation: the whole ---- */
static mn_status create_segments(mn_engine *e, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_segments && !st; i++) st = mn_part_ask(e, &e->segments[i], err);
    if (!st) st = set_pages(e, err);
    for (uint32_t i = 0; i < e->n_devices && !st; i++) {
        mn_engine_device *d = &e->devices[i];
        st = mn_engine_note(e, i, d->backend->queue_create(d->device, &d->queue, err));
    }
    for (uint32_t i = 0; i < e->n_segments && !st; i++) {
        mn_engine_segment *s = &e->segments[i];
        st = mn_part_create(e, s, err);
        e->weight_bytes += s->weight_bytes;
        e->scratch_bytes += s->scratch_bytes;
        e->kv_bytes += s->kv_bytes;
        e->kept_how |= s->kept_how;
    }
    return st;
}

/* The sizes that are sure to come: one sequence that goes on, all of them, a full batch of a prompt. */
static mn_status prepare(mn_engine *e, mn_error *err) {
    const uint32_t rows = (uint32_t)e->symbol_max[MN_SYM_TOKENS], outs = (uint32_t)e->symbol_max[MN_SYM_OUTPUTS],
                   seqs = (uint32_t)e->symbol_max[MN_SYM_SEQS];
    const uint32_t sizes[][3] = {{1, 1, 1}, {seqs, MN_MIN(seqs, outs), seqs}, {rows, 0, 1}};
    mn_status st = MN_OK;
    for (size_t i = 0; i < MN_COUNT(sizes); i++) {
        int64_t symbols[MN_SYM_COUNT];
        mn_engine_symbols(e, sizes[i][0], sizes[i][1], sizes[i][2], symbols);
        for (uint32_t k = 0; k < e->n_segments && !st; k++) st = mn_part_prepare(e, &e->segments[k], symbols, err);
    }
    return st;
}

static mn_status build(mn_engine *e, const mn_placement *p, mn_error *err) {
    mn_status st = list_parts(e, p, err);
    if (!st) st = check_parts(e, err);
    if (!st) st = create_segments(e, err);
    for (uint32_t i = 0; i < e->n_devices && !st; i++) st = allocate_device(e, i, err);
    if (!st) st = allocate_home(e, err);
    if (!st) st = mn_boundary_create(e, err);
    for (uint32_t i = 0; i < e->n_segments && !st; i++) st = mn_part_bind(e, &e->segments[i], err);
    return st ? st : prepare(e, err);
}

mn_status mn_engine_create(const mn_placement *p, const mn_model_graph *g, uint32_t ring, mn_engine **out,
                           const mn_device_record **fault, mn_error *err) {
    mn_engine *e = mn_calloc(1, sizeof *e);
    if (fault) *fault = NULL;
    if (!e) return mn_fail_memory(err, sizeof *e);
    e->graph = g;
    e->precision = p->offers[p->chosen].precision;
    e->ring = ring;
    memcpy(e->symbol_max, p->symbol_max, sizeof e->symbol_max);
    mn_status st = build(e, p, err);
    if (st) {
        if (!e->fault) mn_fail_in(err, st, "%s", p->offers[p->chosen].record->name);
        if (fault) *fault = e->fault;
        mn_engine_free(e);
    } else
        *out = e;
    return st;
}

static void free_device(const mn_engine *e, mn_engine_device *d) {
    mn_buffer *all[] = {d->inputs, d->slots, d->history, d->params, d->staging};
    for (size_t i = 0; i < MN_COUNT(all); i++)
        if (all[i]) d->backend->buffer_free(all[i]);
    for (uint32_t t = 0; d->at && t < e->graph->abi.n_tensors; t++)
        if (d->at[t]) d->backend->buffer_free(d->at[t]);
    if (d->queue) d->backend->queue_free(d->queue);
    mn_free(d->at);
    mn_free(d->packed);
}

void mn_engine_free(mn_engine *e) {
    if (!e) return;
    for (uint32_t i = 0; i < e->n_segments; i++) mn_part_free(e, &e->segments[i]);
    if (e->ids_host) home(e)->backend->buffer_free(e->ids_host);
    if (e->logits_host) e->devices[e->logits_device].backend->buffer_free(e->logits_host);
    for (uint32_t i = 0; i < e->n_devices; i++) free_device(e, &e->devices[i]);
    mn_free(e->transfers);
    mn_free(e->segments);
    mn_free(e->devices);
    mn_free(e);
}

/* ---- steps ---- */
/* plugin.h, mn_estimate.row_grain: powers of two below the grain, its multiples from it on. */
static int64_t round_up(int64_t n, uint32_t grain, int64_t max) {
    int64_t p = 1;
    while (p < n) p *= 2;
    if (grain && p > grain) p = (n + grain - 1) / grain * grain;
    return MN_MIN(p, max);
}

void mn_engine_symbols(const mn_engine *e, uint32_t n_rows, uint32_t n_out, uint32_t n_seqs, int64_t *symbols) {
    const struct {
        uint32_t symbol, n;
    } shape[] = {{MN_SYM_TOKENS, n_rows}, {MN_SYM_OUTPUTS, n_out}, {MN_SYM_SEQS, n_seqs}};
    memcpy(symbols, e->symbol_max, sizeof e->symbol_max);
    for (size_t i = 0; i < MN_COUNT(shape); i++) {
        int64_t most = shape[i].n;
        for (uint32_t k = 0; k < e->n_segments && shape[i].n; k++)
            most = MN_MAX(most, round_up(shape[i].n, e->segments[k].row_grain, e->symbol_max[shape[i].symbol]));
        symbols[shape[i].symbol] = most;
    }
}

static mn_status write_inputs(mn_engine *e, const int32_t *inputs, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_devices && !st; i++) {
        mn_engine_device *d = &e->devices[i];
        if (!d->takes_inputs) continue;
        if (d->packed) mn_inputs_expand(e, d, inputs);
        MN_RETRY(st,
                 d->backend->write(d->queue, d->inputs, 0, d->packed ? d->packed : inputs, d->in.total * 4ull, err));
        mn_engine_note(e, i, st);
    }
    return st;
}

/* All segments but the last one. Where the next reads through a map, the work must be over. */
static mn_status run_before_last(mn_engine *e, const int64_t *symbols, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t k = 0; k + 1 < e->n_segments && !st; k++) {
        mn_engine_segment *s = &e->segments[k];
        const mn_engine_device *d = &e->devices[s->device];
        mn_event *done = NULL;
        st = mn_boundary_move(e, k, symbols, err);
        if (!st) st = mn_part_execute(e, s, symbols, d->unified ? &done : NULL, err);
        if (!st) st = mn_engine_note(e, s->device, mn_event_settle(d->backend, &done, err));
    }
    return st ? st : mn_boundary_move(e, e->n_segments - 1, symbols, err);
}

mn_status mn_engine_submit(mn_engine *e, const int32_t *inputs, const int64_t symbols[MN_SYM_COUNT], uint32_t at,
                           mn_event **event, mn_error *err) {
    const uint64_t n = (uint64_t)symbols[MN_SYM_OUTPUTS] * 4, row = (uint64_t)e->symbol_max[MN_SYM_OUTPUTS] * 4;
    mn_engine_device *d = home(e);
    mn_event *done = NULL;
    mn_status st = inputs ? write_inputs(e, inputs, err) : MN_OK;
    if (!st && e->n_segments > 1) st = run_before_last(e, symbols, err);
    if (!st) st = mn_part_execute(e, &e->segments[e->n_segments - 1], symbols, n ? NULL : &done, err);
    if (!st && n) {
        mn_buffer *ids = d->at[e->graph->io.ids];
        MN_RETRY(st, d->backend->read(d->queue, ids, 0, e->ids_host, at * row, n, &done, err));
        mn_engine_note(e, home_index(e), st);
    }
    if (!st) *event = done;
    return st;
}

mn_status mn_engine_wait(mn_engine *e, mn_event **event, uint64_t timeout_ns, mn_error *err) {
    if (!*event) return MN_OK;
    mn_status st = home(e)->backend->wait(*event, timeout_ns, err);
    if (MN_STATUS_CLASS(st) == MN_CLASS_TRANSIENT) return MN_TIMEOUT;
    mn_engine_drop(e, event);
    return mn_engine_note(e, home_index(e), st);
}

void mn_engine_drop(mn_engine *e, mn_event **event) {
    if (*event) home(e)->backend->event_free(*event);
    *event = NULL;
}

const int32_t *mn_engine_ids(const mn_engine *e, uint32_t at) {
    return e->ids_map + (uint64_t)at * (uint64_t)e->symbol_max[MN_SYM_OUTPUTS];
}

/* ---- state ---- */
static mn_status write_home(mn_engine *e, mn_buffer *b, uint64_t at, const void *src, uint64_t n, mn_error *err) {
    mn_engine_device *d = home(e);
    mn_status st;
    MN_RETRY(st, d->backend->write(d->queue, b, at, src, n, err));
    return mn_engine_note(e, home_index(e), st);
}

mn_status mn_engine_reset_slot(mn_engine *e, uint32_t slot, const mn_slot *state, const mn_slot_params *params,
                               mn_error *err) {
    mn_status st = write_home(e, home(e)->slots, slot * sizeof *state, state, sizeof *state, err);
    return st ? st : write_home(e, home(e)->params, slot * sizeof *params, params, sizeof *params, err);
}

mn_status mn_engine_write_history(mn_engine *e, uint32_t slot, const int32_t *ids, uint32_t n, mn_error *err) {
    const uint64_t row = (uint64_t)e->symbol_max[MN_SYM_CTX] * 4;
    return n ? write_home(e, home(e)->history, slot * row, ids, n * 4ull, err) : MN_OK;
}

/* One of the caller's pages is `ratio` of the device's. */
static mn_status copy_page_of(mn_engine *e, mn_engine_segment *s, mn_page_copy c, mn_error *err) {
    mn_engine_device *d = &e->devices[s->device];
    const uint32_t ratio = d->n_pages / e->n_pages, per = d->page_tokens;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < ratio && i * per < c.n_tokens && !st; i++) {
        const mn_page_copy own = {c.src_page * ratio + i, c.dst_page * ratio + i, MN_MIN(per, c.n_tokens - i * per), 0};
        MN_RETRY(st, d->backend->kv_copy(d->queue, s->pages_kv, &s->kv, &own, 1, sizeof own, err));
    }
    return mn_engine_note(e, s->device, st);
}

mn_status mn_engine_copy_page(mn_engine *e, mn_page_copy copy, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_segments && !st; i++)
        if (e->segments[i].pages_kv) st = copy_page_of(e, &e->segments[i], copy, err);
    return st;
}

/* ---- logits ---- */
static mn_status bind_logits(mn_engine *e, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_segments && !st; i++)
        if (e->segments[i].device == e->logits_device) st = mn_part_bind(e, &e->segments[i], err);
    return st;
}

static mn_status take_logits(mn_engine *e, mn_error *err) {
    const uint32_t at = e->logits_device;
    mn_engine_device *d = &e->devices[at];
    const uint64_t bytes = (uint64_t)e->symbol_max[MN_SYM_OUTPUTS] * (uint64_t)e->graph->hp.n_vocab * 4;
    mn_status st = mn_device_alloc(e, at, bytes, MN_MEM_HOST_PINNED, &e->logits_host, err);
    if (!st) st = mn_engine_note(e, at, d->backend->map(e->logits_host, (void **)&e->logits_map, err));
    if (st || e->logits_crosses) return st;
    st = mn_device_alloc(e, at, bytes, MN_MEM_DEVICE, &d->at[e->graph->io.logits], err);
    return st ? st : bind_logits(e, err);
}

/* First unbound, then freed. */
static mn_status leave_logits(mn_engine *e, mn_error *err) {
    mn_engine_device *d = &e->devices[e->logits_device];
    mn_buffer **bound = &d->at[e->graph->io.logits], *old[2] = {e->logits_host, e->logits_crosses ? NULL : *bound};
    mn_status st = MN_OK;
    e->logits_host = NULL;
    if (old[1]) {
        *bound = NULL;
        st = bind_logits(e, err);
    }
    for (int i = 0; i < 2; i++)
        if (old[i]) d->backend->buffer_free(old[i]);
    return st;
}

mn_status mn_engine_want_logits(mn_engine *e, bool want, mn_error *err) {
    if (want == e->logits_wanted) return MN_OK;
    mn_status st = want ? take_logits(e, err) : leave_logits(e, err);
    if (want && st) leave_logits(e, NULL);
    e->logits_wanted = want && !st;
    return st;
}

mn_status mn_engine_logits(mn_engine *e, uint32_t n_rows, const float **rows, mn_error *err) {
    mn_engine_device *d = &e->devices[e->logits_device];
    mn_event *done = NULL;
    const uint64_t bytes = (uint64_t)n_rows * (uint64_t)e->graph->hp.n_vocab * 4;
    mn_status st;
    MN_RETRY(st, d->backend->read(d->queue, d->at[e->graph->io.logits], 0, e->logits_host, 0, bytes, &done, err));
    if (!st) st = mn_event_settle(d->backend, &done, err);
    *rows = e->logits_map;
    return mn_engine_note(e, e->logits_device, st);
}
