/* context.c -- scratch, bindings, and one captured graph per bucket of symbol values. A context
 * belongs to one queue and is used by one thread at a time; its graphs hold the addresses that were
 * bound, so that a new binding drops them. The option `graphs` = 0 launches kernel by kernel. */
#include "program.h"

mn_status cu_context_create(mn_program *p, mn_queue *q, mn_context **out, mn_error *err) {
    mn_device *d = p->dev;
    const uint64_t n = p->graph->n_symbols * sizeof(int64_t);
    mn_str value;
    mn_context *c = cu_new(d, sizeof *c);
    if (!c)
        return mnp_fail_memory(err, sizeof *c, "a context");
    c->prog = p;
    c->queue = q;
    c->direct = MN_HAS(mn_host, d->plugin->host, option) &&
                d->plugin->host->option(d->plugin->host->self, "graphs", &value) == 1 &&
                value.len == 1 && value.ptr[0] == '0';
    c->symbol = cu_new(d, n);
    c->keys = cu_new(d, n * CU_MAX_CAPTURED);
    bool ok = c->symbol && c->keys;
    for (uint32_t i = 0; i < MN_BINDING_SETS; i++) {
        c->sets[i] = cu_new(d, p->graph->n_tensors * sizeof *c->bindings);
        ok = ok && c->sets[i];
    }
    mn_status st = ok ? MN_OK : mnp_fail_memory(err, n * CU_MAX_CAPTURED, "a context");
    if (!st)
        st = cu_check(cudaSetDevice(d->index), err, "choosing the device");
    const uint64_t bytes = p->scratch + CU_SLACK;
    if (!st)
        st = cu_check_room(cudaMalloc((void **)&c->scratch, bytes), bytes, err, "scratch");
    if (!st)
        st = cu_check(cudaMemsetAsync(c->scratch, 0, p->scratch, q->stream), err, "scratch");
    if (!st) {
        st = cu_check(cudaStreamCreateWithFlags(&c->capture, cudaStreamNonBlocking), err,
                      "a stream");
    }
    for (int i = 0; i < CU_MAX_CAPTURED && !st; i++)
        c->graphs[i].symbol = c->keys + (uint64_t)i * p->graph->n_symbols;
    if (st)
        cu_context_free(c);
    else
        *out = c;
    return st;
}

/* Drops the graphs captured for a set of bindings. */
static void drop_graphs(mn_context *c, uint32_t set) {
    if (c->n_graphs)
        cudaStreamSynchronize(c->queue->stream);
    for (uint32_t i = c->n_graphs; i-- > 0;) {
        if (c->graphs[i].set != set)
            continue;
        cudaGraphExecDestroy(c->graphs[i].exec);
        const cu_captured gone = c->graphs[i];
        c->graphs[i] = c->graphs[--c->n_graphs];
        c->graphs[c->n_graphs].symbol = gone.symbol; /* its key's memory is kept */
    }
}

void cu_context_free(mn_context *c) {
    if (!c)
        return;
    mn_device *d = c->prog->dev;
    cudaSetDevice(d->index);
    const mn_queue *q = c->queue;
    char line[256];
    int n = snprintf(line, sizeof line,
                     "%llu launches of a step, %.2f us each on the host; %llu reads, %.2f us each; "
                     "%u graphs captured in %.2f ms",
                     (unsigned long long)c->n_launches,
                     (double)c->launch_ns / 1e3 / (double)(c->n_launches + !c->n_launches),
                     (unsigned long long)q->n_reads,
                     (double)q->read_ns / 1e3 / (double)(q->n_reads + !q->n_reads), c->n_graphs,
                     (double)c->capture_ns / 1e6);
    if (MN_HAS(mn_host, d->plugin->host, log))
        d->plugin->host->log(d->plugin->host->self, MN_LOG_DEBUG, (mn_str){line, (uint64_t)n});
    cudaStreamSynchronize(c->queue->stream);
    for (uint32_t i = 0; i < MN_BINDING_SETS; i++)
        drop_graphs(c, i);
    if (c->capture)
        cudaStreamDestroy(c->capture);
    if (c->scratch)
        cudaFree(c->scratch);
    cu_delete(d, c->symbol);
    cu_delete(d, c->keys);
    for (uint32_t i = 0; i < MN_BINDING_SETS; i++)
        cu_delete(d, c->sets[i]);
    cu_delete(d, c);
}

static mnp_extent extent(const mn_buffer *b) {
    const mnp_extent e = {(uint64_t)(uintptr_t)b->ptr, b->bytes};
    return e;
}

mn_status cu_context_bind(mn_context *c, uint32_t set, const mn_binding *bindings, uint32_t n,
                          uint32_t stride, mn_error *err) {
    const mn_program *p = c->prog;
    const mn_graph *g = p->graph;
    if (set >= MN_BINDING_SETS) {
        return mnp_fail(err, MN_INVALID, ~0u, "binding set %u; a context has %u", set,
                        MN_BINDING_SETS);
    }
    CU_TRY(cudaSetDevice(p->dev->index), err, "choosing the device");
    drop_graphs(c, set); /* addresses are baked into them */
    c->bound[set] = false;
    c->set = set;
    c->bindings = c->sets[set];
    mn_status st = mnp_bind(g, p->allocations, bindings, n, stride, extent, c->bindings, err);
    for (uint32_t i = p->lo; i < p->hi && !st; i++)
        st = mnp_check_bound(g, i, p->allocations, p->symbol_max, c->bindings, err);
    c->bound[set] = !st;
    return st;
}

/* The step of c->symbol as a graph; the caller destroys it. */
static mn_status capture(mn_context *c, cudaGraphExec_t *out, mn_error *err) {
    cudaGraph_t graph = NULL;
    CU_TRY(cudaStreamBeginCapture(c->capture, cudaStreamCaptureModeThreadLocal), err, "capturing");
    mn_status st = cu_launch_units(c, c->symbol, c->capture, err);
    cudaError_t e = cudaStreamEndCapture(c->capture, &graph);
    if (!st)
        st = cu_check(e, err, "capturing");
    if (!st)
        st = cu_check(cudaGraphInstantiate(out, graph, 0), err, "a captured graph");
    if (graph)
        cudaGraphDestroy(graph);
    return st;
}

cudaGraphExec_t cu_context_find(mn_context *c, bool prepare) {
    const uint64_t bytes = c->prog->graph->n_symbols * sizeof(int64_t);
    for (uint32_t i = 0; i < c->n_graphs; i++) {
        cu_captured *a = &c->graphs[i];
        if (a->set != c->set || memcmp(a->symbol, c->symbol, bytes))
            continue;
        a->used = ++c->clock;
        a->prepared |= prepare;
        return a->exec;
    }
    return NULL;
}

/* One that was prepared gives way only where all are. */
void cu_context_keep(mn_context *c, cudaGraphExec_t exec, bool prepare) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < c->n_graphs; i++) {
        const cu_captured *a = &c->graphs[i];
        const cu_captured *b = &c->graphs[at];
        if (a->prepared != b->prepared ? b->prepared : a->used < b->used)
            at = i;
    }
    if (c->n_graphs < CU_MAX_CAPTURED) {
        at = c->n_graphs++;
    } else {
        cudaStreamSynchronize(c->queue->stream);
        cudaGraphExecDestroy(c->graphs[at].exec);
    }
    cu_captured *made = &c->graphs[at];
    memcpy(made->symbol, c->symbol, c->prog->graph->n_symbols * sizeof(int64_t));
    made->exec = exec;
    made->set = c->set;
    made->used = ++c->clock;
    made->prepared = prepare;
}

/* The graph for c->symbol, captured if it is not there. */
static mn_status graph_of_step(mn_context *c, bool prepare, cudaGraphExec_t *out, mn_error *err) {
    const mn_host *h = c->prog->dev->plugin->host;
    *out = cu_context_find(c, prepare);
    if (*out)
        return MN_OK;
    const uint64_t from = h->now_ns(h->self);
    mn_status st = mnp_check_sizes(c->prog->graph, c->symbol, c->bindings, err);
    if (!st)
        st = capture(c, out, err);
    c->capture_ns += h->now_ns(h->self) - from;
    if (!st)
        cu_context_keep(c, *out, prepare);
    return st;
}

/* Takes the values of a step; what they are too large for is an error here already. */
mn_status cu_context_begin(mn_context *c, uint32_t set, const int64_t *values, mn_error *err) {
    const mn_program *p = c->prog;
    if (set >= MN_BINDING_SETS || !c->bound[set])
        return mnp_fail(err, MN_INVALID, ~0u, "set %u of the context has no bindings", set);
    c->set = set;
    c->bindings = c->sets[set];
    mn_status st = cu_check_abort(c->queue, err);
    if (!st)
        st = mnp_symbols(p->graph, values, p->symbol_max, c->symbol, err);
    if (st)
        return st;
    CU_TRY(cudaSetDevice(p->dev->index), err, "choosing the device");
    return MN_OK;
}

/* Captures, instantiates and uploads; events for a few steps in flight are made, too. */
mn_status cu_context_prepare(mn_context *c, uint32_t set, const int64_t *values, mn_error *err) {
    cudaGraphExec_t exec = NULL;
    mn_status st = cu_context_begin(c, set, values, err);
    if (!st)
        st = cu_events_reserve(c->prog->dev, 16, err);
    if (st || c->direct)
        return st ? st : mnp_check_sizes(c->prog->graph, c->symbol, c->bindings, err);
    st = graph_of_step(c, true, &exec, err);
    if (st)
        return st;
    return cu_check(cudaGraphUpload(exec, c->queue->stream), err, "a captured graph");
}

mn_status cu_execute(mn_context *c, uint32_t set, const int64_t *values, mn_event **event,
                     mn_error *err) {
    const mn_program *p = c->prog;
    mn_status st = cu_context_begin(c, set, values, err);
    if (st)
        return st;
    if (c->direct) {
        st = mnp_check_sizes(c->prog->graph, c->symbol, c->bindings, err);
        if (!st)
            st = cu_launch_units(c, c->symbol, c->queue->stream, err);
    } else {
        cudaGraphExec_t exec = NULL;
        st = graph_of_step(c, false, &exec, err);
        const mn_host *h = p->dev->plugin->host;
        uint64_t from = h->now_ns(h->self);
        if (!st)
            st = cu_check(cudaGraphLaunch(exec, c->queue->stream), err, "execute");
        c->launch_ns += h->now_ns(h->self) - from;
        c->n_launches++;
    }
    if (st || !event)
        return st;
    return cu_event_new(p->dev, c->queue->stream, event, err);
}
