/* engine.c -- a placement made real: devices, segments and what crosses them, created and freed.
 *
 * An engine owns all that it made on its devices: queues, buffers, weights, programs, contexts. The
 * graph, the model's files and the devices themselves outlive it. One thread at a time. When a call
 * of a device fails, mn_engine_note keeps whose it was; a half-made engine is freed as a whole
 * one. */
#include "engine/engine_impl.h"
#include <string.h>

mn_status mn_engine_note(mn_engine *e, uint32_t device, mn_status st) {
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST && !e->fault)
        e->fault = e->devices[device].record;
    if (st)
        e->failed = e->devices[device].record;
    return st;
}

mn_status mn_engine_alloc(mn_engine *e, uint32_t device, uint64_t bytes, uint32_t kind,
                          mn_buffer **out, mn_error *err) {
    const mn_engine_device *d = &e->devices[device];
    const mn_alloc_params want = {.size = sizeof want,
                                  .kind = kind & ~MN_UNZEROED,
                                  .bytes = bytes ? bytes : 4,
                                  .flags = kind & MN_UNZEROED ? MN_ALLOC_UNZEROED : 0};
    mn_status st = MN_OK;
    MN_WATCHED(mn_callee_of(d), "alloc", st = d->backend->alloc(d->device, &want, out, err));
    if (!st)
        return st;
    *out = NULL;
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST)
        return mn_engine_note(e, device, st);
    mn_fail_in(err, st, "%llu bytes of %s memory", (unsigned long long)bytes,
               want.kind == MN_MEM_DEVICE ? "device" : "pinned");
    return st;
}

/* ---- creation: devices ----------------------------------------------------------------------- */
/* The engine's record of the offer's device, made at the first segment that it has. */
static uint32_t device_index(mn_engine *e, const mn_offer *o) {
    for (uint32_t i = 0; i < e->n_devices; i++)
        if (e->devices[i].record == o->record)
            return i;
    mn_engine_device *d = &e->devices[e->n_devices];
    d->record = o->record;
    d->backend = o->record->plugin->backend;
    d->device = o->device;
    d->unified = o->record->info.flags & MN_DEVICE_UNIFIED;
    memcpy(d->symbol_max, e->symbol_max, sizeof d->symbol_max);
    d->symbol_max[MN_SYM_PAGES] = 1;
    return e->n_devices++;
}

/* The placement's segments, with the devices that they are on. */
static mn_status list_segments(mn_engine *e, const mn_placement *p, mn_error *err) {
    e->devices = mn_calloc(p->n_segments, sizeof *e->devices);
    e->segments = mn_calloc(p->n_segments, sizeof *e->segments);
    if (!e->devices || !e->segments)
        return mn_fail_memory(err, p->n_segments * sizeof *e->segments);
    for (uint32_t i = 0; i < p->n_segments; i++) {
        const mn_segment *s = &p->segments[i];
        const mn_offer *o = &p->offers[s->offer];
        e->segments[e->n_segments++] = (mn_engine_segment){
            .device = device_index(e, o),
            .node_lo = s->node_lo,
            .node_hi = s->node_hi,
            .row_us = s->row_us,
            .stream_group = s->stream_group,
            .precision = o->precision,
            .k_dtype = o->k_dtype,
            .v_dtype = o->v_dtype,
        };
    }
    return MN_OK;
}

/* What works on the slots is on the device of the last segment, which has them. */
static mn_status check_slots(const mn_engine *e, const mn_engine_segment *s, mn_error *err) {
    const mn_graph *g = &e->graph->abi;
    if (s->device == mn_engine_output_index(e))
        return MN_OK;
    for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
        const uint32_t op = g->nodes[i].op;
        if (op == MN_OP_EMBED || op == MN_OP_SAMPLE)
            return mn_fail_node(
                err, MN_INVALID, i, "node %u works on the slots of %s, but is placed on %s", i,
                mn_engine_output_device(e)->record->name, e->devices[s->device].record->name);
    }
    return MN_OK;
}

/* Segments in order without a gap. */
static mn_status check_segments(const mn_engine *e, mn_error *err) {
    const uint32_t n_nodes = e->graph->abi.n_nodes;
    uint32_t next = 0;
    for (uint32_t k = 0; k < e->n_segments; k++) {
        const mn_engine_segment *s = &e->segments[k];
        if (s->node_lo != next || s->node_hi <= s->node_lo || s->node_hi > n_nodes)
            return mn_fail(err, MN_INVALID,
                           "segment %u is [%u, %u), expected to begin at node %u of %u", k,
                           s->node_lo, s->node_hi, next, n_nodes);
        next = s->node_hi;
        mn_status st = check_slots(e, s, err);
        if (st)
            return st;
    }
    if (next != n_nodes)
        return mn_fail(err, MN_INVALID, "segments end at node %u of %u", next, n_nodes);
    return MN_OK;
}

/* The greatest; b > 0. */
static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Positions per page of the caller: the least common multiple of the devices'; 0 = too large. */
static uint32_t common_pages(const mn_engine *e, uint32_t group) {
    uint64_t common = 1;
    for (uint32_t i = 0; i < e->n_devices && common; i++) {
        const uint64_t own = MN_MAX(e->devices[i].kv[group].page_tokens, 1u);
        common = common / common_divisor(common, own) * own;
        if (common > 1u << 24)
            common = 0;
    }
    return (uint32_t)common;
}

/* How many pages of the group a sequence and the session have, in the caller's size. */
static mn_status join_pages(mn_engine *e, uint32_t group, mn_error *err) {
    const int64_t *max = e->symbol_max;
    const mn_kv_group *kind = &e->graph->hp.kv[group];
    mn_engine_group *g = &e->group[group];
    const uint64_t common = common_pages(e, group);
    if (!common)
        return mn_fail(err, MN_UNSUPPORTED, "KV pages of sizes that do not go together");
    if (kind->state) {
        g->n_pages = 2;
    } else {
        g->page_tokens = (uint32_t)common;
        g->n_pages = (uint32_t)(((uint64_t)max[MN_SYM_CTX] + common - 1) / common);
    }
    const uint64_t total = mn_kv_pages_for(kind, g->page_tokens, max, e->ring, e->kv_positions);
    for (uint32_t i = 0; i < e->n_devices; i++)
        if (total > INT32_MAX / mn_page_ratio(e, &e->devices[i], group))
            return mn_fail(err, MN_OUT_OF_MEMORY, "a KV cache of more pages than can be counted");
    g->n_total = (uint32_t)total;
    g->n_own = (uint32_t)mn_kv_pages_of_one(kind, g->page_tokens, max[MN_SYM_CTX], e->ring);
    if (!kind->state)
        e->row_pages = MN_MAX(e->row_pages, g->n_pages);
    return MN_OK;
}

/* Once all segments were asked: page tables and layouts of the inputs, the caller's and each
 * device's. */
static mn_status set_pages(mn_engine *e, mn_error *err) {
    const uint32_t n_kv = e->graph->hp.n_kv;
    mn_status st = MN_OK;
    e->row_pages = 1;
    for (uint32_t i = 0; i < n_kv && !st; i++)
        st = join_pages(e, i, err);
    if (st)
        return st;
    e->symbol_max[MN_SYM_PAGES] = e->row_pages;
    for (uint32_t i = 0; i < n_kv; i++)
        e->group[i].row = e->graph->hp.kv[i].state ? e->group[i].n_pages : e->row_pages;
    for (uint32_t i = 0; i < e->n_devices; i++) {
        mn_engine_device *d = &e->devices[i];
        d->row_pages = 1;
        for (uint32_t k = 0; k < n_kv; k++) {
            const uint32_t n_pages = e->group[k].n_pages * mn_page_ratio(e, d, k);
            if (!e->graph->hp.kv[k].state)
                d->row_pages = MN_MAX(d->row_pages, n_pages);
        }
        d->symbol_max[MN_SYM_PAGES] = d->row_pages;
        mn_inputs_lay_out(d->symbol_max, e->graph, &d->in);
    }
    mn_inputs_lay_out(e->symbol_max, e->graph, &e->in);
    return MN_OK;
}

/* Whether the caller's page tables are not the device's. */
static bool has_own_pages(const mn_engine *e, const mn_engine_device *d) {
    if (d->row_pages != e->row_pages)
        return true;
    for (uint32_t i = 0; i < e->graph->hp.n_kv; i++)
        if (mn_page_ratio(e, d, i) != 1)
            return true;
    return false;
}

/* ---- creation: memory ------------------------------------------------------------------------ */
/* Blocks of inputs that the device copies itself; without such memory they are written. */
static void allocate_pinned(mn_engine *e, uint32_t i) {
    mn_engine_device *d = &e->devices[i];
    const uint64_t bytes = d->in.total * 4ull * e->ring;
    if (d->unified ||
        mn_usual_alloc(d->backend, d->device, bytes, MN_MEM_HOST_PINNED, &d->pinned, NULL)) {
        d->pinned = NULL;
        return;
    }
    if (!d->backend->map(d->pinned, (void **)&d->pinned_map, NULL))
        return;
    d->backend->buffer_free(d->pinned);
    d->pinned = NULL;
}

/* Room for the inputs of a step on device i, and for where its tensors are. */
static mn_status allocate_device(mn_engine *e, uint32_t i, mn_error *err) {
    mn_engine_device *d = &e->devices[i];
    const uint64_t bytes = d->in.total * 4ull;
    const bool own = has_own_pages(e, d);
    d->at = mn_calloc(e->graph->abi.n_tensors, sizeof *d->at);
    if (own)
        d->packed = mn_alloc(d->in.total, sizeof *d->packed);
    if (d->packed) /* no page anywhere */
        memset(d->packed, 0xff, bytes);
    const bool room = mn_grow(&d->given, &d->given_cap, bytes, 1);
    if (!d->at || (own && !d->packed) || !room)
        return mn_fail_memory(err, bytes);
    allocate_pinned(e, i);
    return mn_engine_alloc(e, i, bytes, MN_MEM_DEVICE | MN_UNZEROED, &d->inputs, err);
}

/* State of the slots, and where ids are drawn to, on the device of the last segment. */
static mn_status allocate_output(mn_engine *e, mn_error *err) {
    const int64_t *s = e->symbol_max;
    const uint64_t n_slots = (uint64_t)s[MN_SYM_SLOTS];
    const uint64_t n_ctx = (uint64_t)s[MN_SYM_CTX];
    const uint64_t ids = (uint64_t)s[MN_SYM_OUTPUTS] * 4;
    const uint32_t at = mn_engine_output_index(e);
    mn_engine_device *d = &e->devices[at];
    const struct {
        mn_buffer **to;
        uint64_t bytes;
        uint32_t kind;
    } want[] = {
        {&d->slots, n_slots * sizeof(mn_slot), MN_MEM_DEVICE},
        {&d->history, n_slots * n_ctx * 4, MN_MEM_DEVICE},
        {&d->params, n_slots * sizeof(mn_slot_params), MN_MEM_DEVICE},
        {e->graph->embeds ? NULL : &d->at[e->graph->io.ids], ids, MN_MEM_DEVICE},
        {&e->ids_host, ids * e->ring, MN_MEM_HOST_PINNED},
    };
    for (size_t i = 0; i < MN_COUNT(want); i++) {
        if (!want[i].to)
            continue;
        mn_status st = mn_engine_alloc(e, at, want[i].bytes, want[i].kind, want[i].to, err);
        if (st)
            return st;
    }
    mn_status st = d->backend->map(e->ids_host, (void **)&e->ids_map, err);
    return mn_engine_note(e, at, st);
}

/* Of queries that grow: the row of their table for each position, the same for all slots. */
static mn_status write_growth(mn_engine *e, mn_error *err) {
    const int32_t t = e->graph->io.growth_row;
    const uint64_t n_slots = (uint64_t)e->symbol_max[MN_SYM_SLOTS];
    const uint64_t n_ctx = (uint64_t)e->symbol_max[MN_SYM_CTX];
    const uint32_t at = mn_engine_output_index(e);
    mn_engine_device *d = &e->devices[at];
    if (t < 0)
        return MN_OK;
    mn_status st = mn_engine_alloc(e, at, n_slots * n_ctx * 4, MN_MEM_DEVICE, &d->at[t], err);
    int32_t *rows = mn_alloc(n_ctx, sizeof *rows);
    if (!st && !rows)
        st = mn_fail_memory(err, n_ctx * sizeof *rows);
    for (uint64_t i = 0; rows && i < n_ctx; i++)
        rows[i] = mn_growth_row(&e->graph->hp, (int64_t)i);
    for (uint64_t i = 0; i < n_slots && !st; i++)
        st = mn_engine_write_output(e, d->at[t], i * n_ctx * 4, rows, n_ctx * 4, err);
    mn_free(rows);
    return st;
}

/* One list of experts, of a device: the first n, or those behind them. */
static mn_status write_residents(mn_engine *e, uint32_t device, int32_t tensor, bool is_first,
                                 mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    const int64_t n = e->graph->abi.tensors[tensor].dim[0];
    const uint64_t bytes = (uint64_t)n * sizeof(int32_t);
    int32_t *list = mn_alloc((size_t)n, sizeof *list);
    if (!list)
        return mn_fail_memory(err, bytes);
    for (int64_t i = 0; i < n; i++)
        list[i] = (i < e->graph->division.n_first) == is_first;
    mn_status st = mn_engine_alloc(e, device, bytes, MN_MEM_DEVICE, &d->at[tensor], err);
    if (!st)
        st = mn_engine_note(e, device, mn_engine_write(d, d->at[tensor], 0, list, bytes, err));
    mn_free(list);
    return st;
}

/* Of divided experts: which ones each half computes. */
static mn_status write_division(mn_engine *e, mn_error *err) {
    const mn_graph_io *io = &e->graph->io;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_devices && io->resident_rest >= 0 && !st; i++) {
        st = write_residents(e, i, io->resident_rest, false, err);
        if (!st)
            st = write_residents(e, i, io->resident_first, true, err);
    }
    return st;
}

/* ---- creation: the whole --------------------------------------------------------------------- */
/* Of the device's segments, which may share it. */
static uint64_t scratch_of(const mn_engine *e, uint32_t device) {
    const bool shares = mn_device_shares_scratch(e->devices[device].record);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < e->n_segments; i++) {
        const mn_engine_segment *s = &e->segments[i];
        if (s->device == device)
            sum = shares ? MN_MAX(sum, s->scratch_bytes) : sum + s->scratch_bytes;
    }
    return sum;
}

/* Asked first, all of them: the pages of a device depend on all of its segments. */
static mn_status create_segments(mn_engine *e, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_segments && !st; i++)
        st = mn_engine_segment_list(e, &e->segments[i], err);
    for (uint32_t i = 0; i < e->n_devices && !st; i++)
        st = mn_engine_memory_ask(e, i, err);
    if (!st)
        st = set_pages(e, err);
    for (uint32_t i = 0; i < e->n_devices && !st; i++) {
        mn_engine_device *d = &e->devices[i];
        MN_WATCHED(mn_callee_of(d), "queue_create",
                   st = mn_usual_queue(d->backend, d->device, &d->queue, err));
        mn_engine_note(e, i, st);
    }
    for (uint32_t i = 0; i < e->n_segments && !st; i++) {
        mn_engine_segment *s = &e->segments[i];
        st = mn_engine_segment_create(e, s, err);
        e->weight_bytes += s->weight_bytes;
        e->kept_how |= s->kept_how;
    }
    for (uint32_t i = 0; i < e->n_devices; i++)
        e->scratch_bytes += scratch_of(e, i);
    for (uint32_t i = 0; i < e->n_devices && !st; i++)
        st = mn_engine_memory_create(e, i, err);
    return st;
}

/* The sizes that are sure to come: one sequence that goes on, all of them, a full batch of a
 * prompt. */
static mn_status prepare(mn_engine *e, mn_error *err) {
    const int64_t *max = e->symbol_max;
    const uint32_t rows = (uint32_t)max[MN_SYM_TOKENS];
    const uint32_t outs = (uint32_t)max[MN_SYM_OUTPUTS];
    const uint32_t seqs = (uint32_t)max[MN_SYM_SLOTS];
    const uint32_t longest = (uint32_t)max[MN_SYM_CTX];
    const mn_step_size sizes[] = {{1, 1, 1, 1, longest, 0, 0},
                                  {seqs, MN_MIN(seqs, outs), seqs, 1, longest, 0, 0},
                                  {rows, 0, 1, rows, longest, 0, 0}};
    mn_status st = MN_OK;
    for (size_t i = 0; i < MN_COUNT(sizes); i++) {
        int64_t symbols[MN_SYM_COUNT];
        mn_engine_symbols(e, &sizes[i], symbols);
        for (uint32_t k = 0; k < e->n_segments && !st; k++)
            st = mn_engine_segment_prepare(e, &e->segments[k], symbols, err);
    }
    return st;
}

/* On a failure e is half made; the caller frees it. */
static mn_status build_engine(mn_engine *e, const mn_placement *p, mn_error *err) {
    mn_status st = list_segments(e, p, err);
    if (!st)
        st = check_segments(e, err);
    if (!st)
        st = create_segments(e, err);
    for (uint32_t i = 0; i < e->n_devices && !st; i++)
        st = allocate_device(e, i, err);
    for (uint32_t i = 0; i < e->n_devices && !st; i++)
        st = mn_engine_adapters_create(e, i, err);
    if (!st)
        st = allocate_output(e, err);
    if (!st)
        st = write_growth(e, err);
    if (!st)
        st = write_division(e, err);
    if (!st)
        st = mn_boundary_create(e, err);
    if (!st)
        st = mn_engine_hidden_create(e, err);
    for (uint32_t i = 0; i < e->n_segments && !st; i++)
        st = mn_engine_segment_bind(e, &e->segments[i], MN_SET_PLAIN, MN_SET_PLAIN, err);
    if (!st)
        st = mn_engine_stream_create(e, &p->stream, err);
    if (st)
        return st;
    return prepare(e, err);
}

mn_status mn_engine_create(const mn_placement *p, const mn_model_graph *g, uint32_t ring,
                           mn_engine **out, const mn_device_record **fault, mn_error *err) {
    const mn_offer *chosen = &p->offers[p->chosen];
    mn_engine *e = mn_calloc(1, sizeof *e);
    if (fault)
        *fault = NULL;
    if (!e)
        return mn_fail_memory(err, sizeof *e);
    e->graph = g;
    e->precision = chosen->precision;
    e->ring = ring;
    e->kv_positions = p->kv_positions;
    e->watcher = p->watcher;
    e->held = p->held;
    memcpy(e->symbol_max, p->symbol_max, sizeof e->symbol_max);
    mn_status st = build_engine(e, p, err);
    if (!st) {
        *out = e;
        return MN_OK;
    }
    const bool refused = MN_STATUS_CLASS(st) == MN_CLASS_REFUSE;
    const mn_device_record *at = refused ? e->failed : e->fault;
    const mn_device_record *named = at;
    if (!at)
        named = chosen->record;
    if (!at || !fault) /* else the caller names the device */
        mn_fail_in(err, st, "%s", named->name);
    if (fault)
        *fault = at;
    mn_engine_free(e);
    return st;
}

/* NULL is fine. */
static void free_buffer(const mn_engine_device *d, mn_buffer *b) {
    if (b)
        MN_WATCHED(mn_callee_of(d), "buffer_free", d->backend->buffer_free(b));
}

static bool in_places(const mn_engine *e, const mn_engine_device *d, const mn_buffer *b) {
    for (uint32_t i = 0; d->places && i < e->n_places; i++)
        if (d->places[i] == b)
            return true;
    return false;
}

/* The device itself is the registry's. */
static void free_device(const mn_engine *e, mn_engine_device *d) {
    mn_buffer *all[] = {d->inputs, d->pinned, d->slots, d->history, d->params, d->staging};
    for (size_t i = 0; i < MN_COUNT(all); i++)
        free_buffer(d, all[i]);
    for (uint32_t t = 0; d->at && t < e->graph->abi.n_tensors; t++)
        if (!in_places(e, d, d->at[t]))
            free_buffer(d, d->at[t]);
    for (uint32_t i = 0; d->places && i < e->n_places; i++)
        free_buffer(d, d->places[i]);
    mn_engine_memory_free(d);
    if (d->queue)
        MN_WATCHED(mn_callee_of(d), "queue_free", d->backend->queue_free(d->queue));
    mn_free(d->at);
    mn_free(d->places);
    mn_free(d->packed);
    mn_free(d->given);
}

void mn_engine_free(mn_engine *e) {
    if (!e)
        return;
    if (e->sampler)
        mn_engine_sampler_free(e);
    mn_engine_stream_free(e);
    mn_engine_places_free(e);
    mn_engine_programs_free(e);
    mn_engine_hidden_free(e);
    mn_boundary_drop(e);
    for (uint32_t i = 0; i < e->n_segments; i++)
        mn_engine_segment_free(e, &e->segments[i]);
    if (e->ids_host)
        free_buffer(mn_engine_output_device(e), e->ids_host);
    if (e->logits_host)
        free_buffer(&e->devices[e->logits_device], e->logits_host);
    for (uint32_t i = 0; i < e->n_devices; i++)
        free_device(e, &e->devices[i]);
    mn_free(e->units);
    mn_free(e->transfers);
    mn_free(e->segments);
    mn_free(e->devices);
    mn_free(e);
}
