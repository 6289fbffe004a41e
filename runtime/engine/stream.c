/* stream.c -- makes and frees what stream.h describes: finds the segments whose experts a card can
 * compute, and makes rooms, programs, buffers and bindings for each kind of layers. */
#include "engine/stream.h"

/* ---- which segments -------------------------------------------------------------------------- */
static bool reads(const mn_graph *g, const mn_engine_segment *s, uint32_t root) {
    for (uint32_t i = s->node_lo; i < s->node_hi; i++)
        for (uint32_t j = 0; j < g->nodes[i].n_in; j++) {
            const int32_t t = g->operands[g->nodes[i].in_off + j];
            if (t >= 0 && mn_tensor_root(g, (uint32_t)t) == root)
                return true;
        }
    return false;
}

/* Whether a segment but k reads the tensor on k's device. */
static bool is_read_beside(const mn_engine *e, uint32_t k, uint32_t tensor) {
    for (uint32_t i = 0; i < e->n_segments; i++)
        if (i != k && e->segments[i].device == e->segments[k].device &&
            reads(&e->graph->abi, &e->segments[i], tensor))
            return true;
    return false;
}

/* The transfer that brings the tensor from the card to segment k alone; NULL: there is none. */
static const mn_transfer *transfer_to(const mn_engine *e, uint32_t k, uint32_t card,
                                      int32_t tensor) {
    for (uint32_t i = 0; tensor >= 0 && i < e->n_transfers; i++) {
        const mn_transfer *t = &e->transfers[i];
        if (t->tensor == (uint32_t)tensor && t->before == k && t->from == card &&
            !is_read_beside(e, k, t->tensor))
            return t;
    }
    return NULL;
}

/* Whether what segment k makes goes to the card, and nowhere else. */
static bool goes_to(const mn_engine *e, uint32_t k, uint32_t card, int32_t tensor) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_transfers; i++)
        if (e->transfers[i].made == k) {
            if (e->transfers[i].tensor != (uint32_t)tensor || e->transfers[i].to != card)
                return false;
            n++;
        }
    return n == 1 && !is_read_beside(e, k, (uint32_t)tensor);
}

/* Whether all that the layer reads comes from the card, and what it makes goes there. */
static bool crosses_alone(const mn_engine *e, uint32_t k, uint32_t card, mn_stream_layer *l) {
    const mn_stream_graph *g = &l->graph;
    l->chosen = transfer_to(e, k, card, g->of_chosen);
    bool ok = l->chosen != NULL;
    for (uint32_t i = 0; i < g->n_in && ok; i++)
        ok = transfer_to(e, k, card, g->of_in[i]);
    if (ok && g->of_weights >= 0)
        ok = transfer_to(e, k, card, g->of_weights);
    return ok && goes_to(e, k, card, g->of_sum);
}

static uint32_t kind_of(const mn_engine_stream *x, const mn_stream_graph *g) {
    uint32_t i = 0;
    while (i < x->n_kinds &&
           memcmp(x->kinds[i].graph.abi.digest, g->abi.digest, sizeof g->abi.digest))
        i++;
    return i;
}

static mn_status add_layer(mn_engine_stream *x, mn_engine *e, uint32_t k, mn_error *err) {
    const mn_engine_segment *s = &e->segments[k];
    const int64_t rows = e->symbol_max[MN_SYM_TOKENS];
    mn_stream_layer *l = &x->layers[x->n_layers];
    mn_error why = MN_ERROR_INIT;
    *l = (mn_stream_layer){.segment = k};
    const mn_status st = mn_stream_graph_make(e->graph, s->node_lo, s->node_hi, s->stream_group,
                                              rows, rows, &l->graph, &why);
    if (st && st != MN_UNSUPPORTED)
        return mn_fail(err, st, "%s", why.msg);
    if (st || !crosses_alone(e, k, x->device, l)) {
        mn_stream_graph_free(&l->graph);
        return MN_OK;
    }
    for (uint32_t i = 0; i < l->graph.n_weights; i++)
        l->all[i] = mn_weight_describe(&e->graph->abi, l->graph.weight[i].all, &l->plane[i]);
    l->kind = kind_of(x, &l->graph);
    if (l->graph.of_resident >= 0)
        l->first = e->graph->division.n_first / (uint32_t)l->graph.group;
    l->n_groups = (uint32_t)(l->graph.n_expert / l->graph.group) - l->first;
    x->n_items += l->n_groups;
    x->layer_at[k] = ++x->n_layers;
    if (l->kind < x->n_kinds)
        return MN_OK;
    /* the first layer of a kind gives it its graph */
    x->kinds[x->n_kinds++].graph = l->graph;
    l->graph.pages = NULL;
    return MN_OK;
}

static mn_status find_layers(mn_engine_stream *x, mn_engine *e, mn_error *err) {
    const uint32_t n = e->n_segments;
    x->layers = mn_calloc(n, sizeof *x->layers);
    x->kinds = mn_calloc(n, sizeof *x->kinds);
    x->layer_at = mn_calloc(n, sizeof *x->layer_at);
    if (!x->layers || !x->kinds || !x->layer_at)
        return mn_fail_memory(err, n * sizeof *x->layers);
    mn_status st = MN_OK;
    for (uint32_t k = 0; k < n && !st; k++)
        if (e->segments[k].stream_group)
            st = add_layer(x, e, k, err);
    return st;
}

/* ---- creation: programs ---------------------------------------------------------------------- */
/* In sealed pages. NULL: out of memory. */
static const mn_compile *stream_question(const mn_engine_stream *x, const mn_stream_graph *g,
                                         mn_node_range nodes, mn_weights *set, mn_sealed **owner,
                                         mn_error *err) {
    int64_t max[MN_STREAM_SYMBOLS];
    mn_stream_symbols(g, max);
    const mn_compile c = {.size = sizeof c,
                          .precision = x->precision,
                          .graph = g->given,
                          .node_lo = nodes.lo,
                          .node_hi = nodes.hi,
                          .symbol_max = max,
                          .weights = set,
                          .n_sets = 1,
                          .flags = set ? 0 : MN_COMPILE_UPDATES};
    const mn_compile *given = mn_given_compile(&c, owner);
    if (!given)
        mn_fail_memory(err, sizeof c);
    return given;
}

static mn_status make_program(const mn_engine_stream *x, const mn_stream_graph *g,
                              mn_node_range nodes, mn_weights *set, mn_program **program,
                              mn_context **context, mn_sealed **pages, mn_error *err) {
    const mn_engine_device *d = mn_stream_card(x);
    mn_status st = MN_OK;
    const mn_compile *c = stream_question(x, g, nodes, set, pages, err);
    if (!c)
        return MN_OUT_OF_MEMORY;
    MN_WATCHED(mn_stream_callee(x), "compile",
               st = d->backend->compile(d->device, c, program, err));
    if (!st)
        MN_WATCHED(mn_stream_callee(x), "context_create",
                   st = mn_usual_context(d->backend, *program, d->queue, context, err));
    return st;
}

/* The set with the first group of the layer. It is put twice: the second put, of memory that is
 * warm, tells whether the plugin updates sets at all, and how fast one thread copies. */
static mn_status fill_first(mn_engine_stream *x, const mn_stream_layer *l, uint32_t at,
                            mn_error *err) {
    const mn_backend *b = mn_stream_card(x)->backend;
    mn_stream_room *room = &x->kinds[l->kind].room[at];
    mn_stream_thread *w = &x->threads[at];
    uint32_t kept_how = 0;
    mn_status st = mn_stream_put(w, l, room->set, 0, &room->event, err);
    if (!st)
        MN_WATCHED(mn_stream_callee(x), "weights_seal",
                   st = b->weights_seal(room->set, w->queue, &kept_how, err));
    if (!st)
        st = mn_event_settle(b, mn_stream_callee(x), MN_MOVES_NS(1), &room->event, err);
    const uint64_t begin = mn_now_ns();
    if (!st)
        st = mn_stream_put(w, l, room->set, 0, &room->event, err);
    if (!st)
        st = mn_event_settle(b, mn_stream_callee(x), MN_MOVES_NS(1), &room->event, err);
    x->trial_ns += mn_now_ns() - begin;
    x->trial_bytes += mn_stream_bytes(l) / l->n_groups;
    return st;
}

/* The set, and the products by it. */
static mn_status make_room(mn_engine_stream *x, const mn_stream_layer *l, uint32_t at,
                           mn_error *err) {
    const mn_engine_device *d = mn_stream_card(x);
    const mn_backend *b = d->backend;
    mn_stream_kind *kind = &x->kinds[l->kind];
    mn_stream_room *room = &kind->room[at];
    const mn_node_range products = {0, kind->graph.n_product};
    mn_sealed *pages;
    const mn_compile *c = stream_question(x, &kind->graph, products, NULL, &pages, err);
    mn_status st = MN_OK;
    if (!c)
        return MN_OUT_OF_MEMORY;
    MN_WATCHED(mn_stream_callee(x), "weights_open",
               st = b->weights_open(d->device, c, &room->set, err));
    mn_sealed_free(pages);
    if (!st)
        st = fill_first(x, l, at, err);
    return st ? st
              : make_program(x, &kind->graph, products, room->set, &room->program, &room->context,
                             &room->pages, err);
}

/* ---- creation: memory and bindings ----------------------------------------------------------- */
/* Of a tensor of the graph, at its largest, or `bytes`; t < 0: none. */
static mn_status allocate(mn_engine *e, const mn_stream_graph *g, uint32_t device, int32_t t,
                          uint64_t bytes, mn_buffer **out, mn_error *err) {
    int64_t max[MN_STREAM_SYMBOLS];
    mn_stream_symbols(g, max);
    if (t < 0)
        return MN_OK;
    if (!bytes && !mn_tensor_bytes(&g->abi, (uint32_t)t, max, &bytes))
        return mn_fail(err, MN_INVALID, "streamed experts: a size overflows");
    return mn_engine_alloc(e, device, bytes, MN_MEM_DEVICE, out, err);
}

/* What each tensor of the kind is bound to; NULL: it is the plugin's own, or another program's. */
static mn_binding binding_of(const mn_engine_stream *x, const mn_stream_kind *k, int32_t tensor) {
    const mn_stream_graph *g = &k->graph;
    mn_binding b = {.tensor = (uint32_t)tensor};
    const struct {
        int32_t tensor;
        mn_buffer *buffer;
        uint64_t offset;
    } all[] = {
        {g->in[0], k->in[0], 0},
        {g->in[1], k->in[1], 0},
        {g->rows, k->index, 0},
        {g->experts, k->index, k->experts_at},
        {g->made, k->made, 0},
        {g->all, k->all, 0},
        {g->order, k->order_rows, 0},
        {g->sorted, k->sorted, 0},
        {g->again, k->sorted, 0},
        {g->weights, k->weights, 0},
        {g->chosen, k->chosen, 0},
        {g->resident, g->of_resident < 0 ? NULL : mn_stream_card(x)->at[g->of_resident], 0},
        {g->sum, k->result, 0},
    };
    for (size_t i = 0; i < MN_COUNT(all); i++)
        if (all[i].tensor == tensor) {
            b.buffer = all[i].buffer;
            b.offset = all[i].offset;
        }
    return b;
}

static bool has_binding(const mn_binding *all, uint32_t n, int32_t tensor) {
    for (uint32_t i = 0; i < n; i++)
        if (all[i].tensor == (uint32_t)tensor)
            return true;
    return false;
}

/* All that the nodes read and write and that has a buffer. */
static mn_status bind_nodes(mn_engine *e, const mn_engine_stream *x, const mn_stream_kind *k,
                            mn_node_range nodes, mn_context *context, mn_error *err) {
    enum { MOST = 16 };
    const mn_graph *g = &k->graph.abi;
    const mn_engine_segment on_card = {.device = x->device};
    int64_t max[MN_STREAM_SYMBOLS];
    mn_binding all[MOST];
    uint32_t n = 0;
    mn_stream_symbols(&k->graph, max);
    for (uint32_t i = nodes.lo; i < nodes.hi; i++) {
        const mn_node *node = &g->nodes[i];
        for (uint32_t j = 0; j < node->n_in + node->n_out && n < MOST; j++) {
            const uint32_t at = j < node->n_in ? node->in_off + j : node->out_off + j - node->n_in;
            const int32_t t = g->operands[at];
            if (t < 0 || has_binding(all, n, t))
                continue;
            all[n] = binding_of(x, k, t);
            if (all[n].buffer && mn_tensor_bytes(g, (uint32_t)t, max, &all[n].bytes))
                n++;
        }
    }
    return mn_engine_context_bind(e, &on_card, context, 0, all, n, err);
}

/* ---- creation: sizes of runs ----------------------------------------------------------------- */
int64_t mn_stream_pairs(const mn_engine_stream *x, const mn_stream_kind *k, int64_t n) {
    const int64_t max = k->graph.abi.symbols[MN_STREAM_PAIRS].max;
    const int64_t power = mn_engine_round(n, 0, INT64_MAX);
    const int64_t step = MN_MAX(power / 8, 1);
    if (x->row_grain == 1)
        return MN_MIN(n, max);
    return mn_engine_round((n + step - 1) / step * step, x->row_grain, max);
}

void mn_stream_run_symbols(const mn_stream_kind *k, int64_t n_pairs, int64_t *symbols) {
    mn_stream_symbols(&k->graph, symbols);
    symbols[MN_STREAM_PAIRS] = n_pairs;
}

/* All sizes of runs, where devices record them: none is recorded in a step. */
static mn_status prepare_runs(mn_engine *e, const mn_engine_stream *x, const mn_stream_kind *k,
                              mn_error *err) {
    const mn_backend *b = mn_stream_card(x)->backend;
    const int64_t max = k->graph.abi.symbols[MN_STREAM_PAIRS].max;
    mn_status st = MN_OK;
    if (x->row_grain == 1 || !MN_HAS(mn_backend, b, context_prepare))
        return MN_OK;
    for (int64_t n = 1; n <= max && !st;) {
        int64_t symbols[MN_STREAM_SYMBOLS];
        mn_stream_run_symbols(k, mn_stream_pairs(x, k, n), symbols);
        for (uint32_t r = 0; r < x->n_rooms && !st; r++)
            MN_WATCHED(mn_stream_callee(x), "context_prepare",
                       MN_RETRY(st, mn_usual_prepare(b, k->room[r].context, 0, symbols, err)));
        n = symbols[MN_STREAM_PAIRS] + 1;
    }
    return mn_engine_note(e, x->device, st);
}

static mn_status make_kind(mn_engine *e, mn_engine_stream *x, const mn_stream_layer *first,
                           mn_error *err) {
    mn_stream_kind *k = &x->kinds[first->kind];
    const mn_stream_graph *g = &k->graph;
    const uint64_t pairs = (uint64_t)e->symbol_max[MN_SYM_TOKENS];
    const uint64_t align = MN_MAX(mn_stream_card(x)->record->info.align, (uint64_t)4);
    const mn_node_range products = {0, g->n_product};
    const mn_node_range order = {g->n_product, g->n_product + 1};
    const mn_node_range sum = {order.hi, g->abi.n_nodes};
    k->experts_at = (pairs * 4 + align - 1) / align * align;
    const struct {
        int32_t tensor;
        uint64_t bytes;
        mn_buffer **to;
    } want[] = {
        {g->in[0], 0, &k->in[0]},
        {g->in[1], 0, &k->in[1]},
        {g->rows, k->experts_at + pairs * 4, &k->index},
        {g->made, 0, &k->made},
        {g->all, 0, &k->all},
        {g->order, 0, &k->order_rows},
        {g->sorted, 0, &k->sorted},
        {g->weights, 0, &k->weights},
        {g->chosen, 0, &k->chosen},
        {g->sum, 0, &k->result},
    };
    mn_status st = MN_OK;
    for (uint32_t r = 0; r < x->n_rooms && !st; r++)
        st = make_room(x, first, r, err);
    if (!st)
        st = make_program(x, g, order, k->room[0].set, &k->order, &k->order_context,
                          &k->order_pages, err);
    if (!st)
        st = make_program(x, g, sum, k->room[0].set, &k->sum, &k->sum_context, &k->sum_pages, err);
    mn_engine_note(e, x->device, st);
    for (size_t i = 0; i < MN_COUNT(want) && !st; i++)
        st = allocate(e, g, x->device, want[i].tensor, want[i].bytes, want[i].to, err);
    for (uint32_t r = 0; r < x->n_rooms && !st; r++)
        st = bind_nodes(e, x, k, products, k->room[r].context, err);
    if (!st)
        st = prepare_runs(e, x, k, err);
    if (!st)
        st = bind_nodes(e, x, k, order, k->order_context, err);
    return st ? st : bind_nodes(e, x, k, sum, k->sum_context, err);
}

/* ---- creation: the whole --------------------------------------------------------------------- */
static mn_status make_queues(mn_engine *e, mn_engine_stream *x, mn_error *err) {
    const mn_engine_device *d = mn_stream_card(x);
    mn_status st = MN_OK;
    for (uint32_t r = 0; r < x->n_rooms && !st; r++) {
        x->threads[r] = (mn_stream_thread){.stream = x, .at = r, .err = MN_ERROR_INIT};
        MN_WATCHED(mn_stream_callee(x), "queue_create",
                   st = mn_usual_queue(d->backend, d->device, &x->threads[r].queue, err));
    }
    return mn_engine_note(e, x->device, st);
}

static mn_status make_stream(mn_engine *e, mn_engine_stream *x, mn_error *err) {
    x->has_lock = !pthread_mutex_init(&x->lock, NULL);
    if (x->has_lock && pthread_cond_init(&x->changed, NULL)) {
        pthread_mutex_destroy(&x->lock);
        x->has_lock = false;
    }
    if (!x->has_lock)
        return mn_fail_memory(err, sizeof *x);
    mn_status st = find_layers(x, e, err);
    if (st || !x->n_layers)
        return st;
    st = make_queues(e, x, err);
    for (uint32_t i = 0, kind = 0; i < x->n_layers && !st; i++) {
        if (x->layers[i].kind != kind)
            continue;
        st = make_kind(e, x, &x->layers[i], err);
        kind++;
    }
    return st ? st : mn_stream_threads_start(x, err);
}

/* GB/s that one thread copies, by the second puts. */
static double trial_rate(const mn_engine_stream *x) {
    return (double)x->trial_bytes / (double)MN_MAX(x->trial_ns, 1u);
}

/* The plan's rows, more where all threads copy more slowly than it took for granted: what a plugin
 * makes of rows on the way no rate says. UINT32_MAX: more than any step has. */
static uint32_t rows_by_trial(const mn_engine_stream *x, const mn_stream_plan *plan) {
    const double all = x->n_rooms * trial_rate(x);
    if (!plan->by_rates || all >= plan->gbps)
        return plan->rows;
    const double rows = plan->faster_from * plan->gbps / MN_MAX(all, 1e-6);
    if (rows >= 1e9)
        return UINT32_MAX;
    return MN_MAX(plan->rows, (uint32_t)rows + 1);
}

static void say_made(const mn_engine_stream *x, uint32_t rows) {
    mn_log(MN_LOG_INFO,
           "%s: steps of %u rows or more compute the experts of %u layers there, %lld at a time, "
           "streamed through %u rooms for each of %u kinds of layers; a thread copies %.1f GB/s",
           mn_stream_card(x)->record->name, rows, x->n_layers, (long long)x->layers[0].graph.group,
           x->n_rooms, x->n_kinds, trial_rate(x));
}

mn_status mn_engine_stream_create(mn_engine *e, const mn_stream_plan *plan, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    if (!plan->rows)
        return MN_OK;
    mn_engine_stream *x = mn_calloc(1, sizeof *x);
    if (!x)
        return mn_fail_memory(err, sizeof *x);
    e->stream = x;
    e->stream_rows = plan->rows;
    x->engine = e;
    x->device = UINT32_MAX;
    x->n_rooms = plan->n_rooms;
    x->row_grain = plan->row_grain;
    x->precision = plan->precision;
    for (uint32_t i = 0; i < e->n_devices; i++)
        if (e->devices[i].record == plan->record)
            x->device = i;
    const mn_status st = x->device < e->n_devices ? make_stream(e, x, &why) : MN_OK;
    if (!st && x->n_layers)
        e->stream_rows = rows_by_trial(x, plan);
    const bool in_steps = e->stream_rows <= (uint64_t)e->symbol_max[MN_SYM_TOKENS];
    if (!st && x->n_layers && (in_steps || !plan->by_rates)) {
        say_made(x, e->stream_rows);
        return MN_OK;
    }
    if (!st && x->n_layers)
        mn_log(
            MN_LOG_INFO,
            "%s computes no experts of the CPU in prompts: a thread copies %.1f GB/s of them, so "
            "that it is faster from %u rows on, and a step has %lld",
            plan->record->name, trial_rate(x), e->stream_rows,
            (long long)e->symbol_max[MN_SYM_TOKENS]);
    mn_engine_stream_free(e);
    mn_fail_plain(&why);
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST)
        return mn_fail(err, st, "%s", why.msg);
    if (st)
        mn_log(MN_LOG_WARN, "%s computes no experts of the CPU in prompts: %s", plan->record->name,
               why.msg);
    return MN_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */
static void free_kind(const mn_engine_stream *x, mn_stream_kind *k) {
    const mn_backend *b = mn_stream_card(x)->backend;
    mn_buffer *buffers[] = {k->in[0],      k->in[1],  k->index,   k->made,   k->all,
                            k->order_rows, k->sorted, k->weights, k->chosen, k->result};
    mn_context *contexts[] = {k->order_context, k->sum_context};
    mn_program *programs[] = {k->order, k->sum};
    for (size_t i = 0; i < MN_COUNT(contexts); i++) {
        if (contexts[i])
            b->context_free(contexts[i]);
        if (programs[i])
            b->program_free(programs[i]);
    }
    for (uint32_t r = 0; r < x->n_rooms; r++) {
        mn_stream_room *room = &k->room[r];
        if (room->event)
            b->event_free(room->event);
        if (room->context)
            b->context_free(room->context);
        if (room->program)
            b->program_free(room->program);
        if (room->set)
            b->weights_free(room->set);
        mn_sealed_free(room->pages);
    }
    for (size_t i = 0; i < MN_COUNT(buffers); i++)
        if (buffers[i])
            b->buffer_free(buffers[i]);
    mn_sealed_free(k->order_pages);
    mn_sealed_free(k->sum_pages);
    mn_stream_graph_free(&k->graph);
}

void mn_engine_stream_free(mn_engine *e) {
    mn_engine_stream *x = e->stream;
    if (!x)
        return;
    if (x->has_lock)
        mn_stream_threads_stop(x);
    for (uint32_t i = 0; i < x->n_kinds; i++)
        MN_WATCHED(mn_stream_callee(x), "context_free", free_kind(x, &x->kinds[i]));
    for (uint32_t r = 0; r < x->n_rooms; r++) {
        if (x->threads[r].queue)
            MN_WATCHED(mn_stream_callee(x), "queue_free",
                       mn_stream_card(x)->backend->queue_free(x->threads[r].queue));
        mn_free(x->threads[r].planes);
    }
    for (uint32_t i = 0; i < x->n_layers; i++)
        if (x->layers[i].graph.pages)
            mn_stream_graph_free(&x->layers[i].graph);
    if (x->n_steps)
        mn_log(MN_LOG_INFO, "streamed experts: %llu steps, %.1f MB", (unsigned long long)x->n_steps,
               (double)x->n_bytes * 1e-6);
    mn_free(x->layers);
    mn_free(x->kinds);
    mn_free(x->layer_at);
    mn_free(x->pairs);
    mn_free(x->places);
    mn_free(x->given);
    mn_free(x->begin);
    mn_free(x);
    e->stream = NULL;
}
