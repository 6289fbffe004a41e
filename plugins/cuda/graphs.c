/* graphs.c -- one captured graph per bucket of symbol values. A context's graphs hold the addresses
 * that were bound, so that a new binding drops them. The option `graphs` = 0 launches kernel by
 * kernel. */
#include "ops.h"

mn_status cu_context_open(mn_context *c, mn_error *err) {
    const mng_program *p = &c->base.prog->base;
    const uint64_t bytes = p->graph->n_symbols * sizeof(int64_t) * CU_MAX_CAPTURED;
    c->direct = !mng_option(p->dev->base.host, "graphs", 1);
    c->keys = mng_new(p->dev, bytes);
    if (!c->keys)
        return mnp_fail_memory(err, bytes, "a context");
    for (uint32_t i = 0; i < CU_MAX_CAPTURED; i++)
        c->graphs[i].symbol = c->keys + (uint64_t)i * p->graph->n_symbols;
    const cudaStream_t s = c->base.queue->stream;
    /* counters of kernels begin at 0 */
    CU_TRY(cudaMemsetAsync(c->base.room->mem, 0, c->base.room->base, s), err, "scratch");
    return cu_check(cudaStreamCreateWithFlags(&c->capture, cudaStreamNonBlocking), err, "a stream");
}

/* Drops the graphs captured for a set of bindings. */
void cu_context_rebind(mn_context *c, uint32_t set) {
    if (c->n_graphs)
        cudaStreamSynchronize(c->base.queue->stream);
    for (uint32_t i = c->n_graphs; i-- > 0;) {
        if (c->graphs[i].set != set)
            continue;
        cudaGraphExecDestroy(c->graphs[i].exec);
        const cu_captured gone = c->graphs[i];
        c->graphs[i] = c->graphs[--c->n_graphs];
        c->graphs[c->n_graphs].symbol = gone.symbol; /* its key's memory is kept */
    }
}

void cu_context_close(mn_context *c) {
    mn_device *d = c->base.prog->base.dev;
    const mng_queue *q = &c->base.queue->base;
    mng_log(d->base.host, MN_LOG_DEBUG,
            "%llu launches of a step, %.2f us each on the host; %llu reads, %.2f us each; "
            "%u graphs captured in %.2f ms",
            (unsigned long long)c->n_launches,
            (double)c->launch_ns / 1e3 / (double)(c->n_launches + !c->n_launches),
            (unsigned long long)q->n_reads,
            (double)q->read_ns / 1e3 / (double)(q->n_reads + !q->n_reads), c->n_graphs,
            (double)c->capture_ns / 1e6);
    for (uint32_t i = 0; i < c->base.prog->base.n_sets; i++)
        cu_context_rebind(c, i);
    if (c->capture)
        cudaStreamDestroy(c->capture);
    mng_delete(d, c->keys);
}

/* The step of the context's symbols as a graph; the caller destroys it. */
static mn_status capture_step(mn_context *c, cudaGraphExec_t *out, mn_error *err) {
    cudaGraph_t graph = NULL;
    CU_TRY(cudaStreamBeginCapture(c->capture, cudaStreamCaptureModeThreadLocal), err, "capturing");
    c->stream = c->capture;
    mn_status st = mng_run_units(c, false, err);
    cudaError_t e = cudaStreamEndCapture(c->capture, &graph);
    if (!st)
        st = cu_check(e, err, "capturing");
    if (!st)
        st = cu_check(cudaGraphInstantiate(out, graph, 0), err, "a captured graph");
    if (graph)
        cudaGraphDestroy(graph);
    return st;
}

cudaGraphExec_t cu_graph_find(mn_context *c, bool prepare) {
    const uint64_t bytes = c->base.prog->base.graph->n_symbols * sizeof(int64_t);
    for (uint32_t i = 0; i < c->n_graphs; i++) {
        cu_captured *a = &c->graphs[i];
        if (a->set != c->base.set || memcmp(a->symbol, c->base.symbol, bytes))
            continue;
        a->used = ++c->clock;
        a->prepared |= prepare;
        return a->exec;
    }
    return NULL;
}

/* One that was prepared gives way only where all are. */
void cu_graph_keep(mn_context *c, cudaGraphExec_t exec, bool prepare) {
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
        cudaStreamSynchronize(c->base.queue->stream);
        cudaGraphExecDestroy(c->graphs[at].exec);
    }
    cu_captured *made = &c->graphs[at];
    memcpy(made->symbol, c->base.symbol, c->base.prog->base.graph->n_symbols * sizeof(int64_t));
    made->exec = exec;
    made->set = c->base.set;
    made->used = ++c->clock;
    made->prepared = prepare;
}

/* The graph for the context's symbols, captured if it is not there. */
static mn_status find_graph(mn_context *c, bool prepare, cudaGraphExec_t *out, mn_error *err) {
    const mn_host *h = c->base.prog->base.dev->base.host;
    *out = cu_graph_find(c, prepare);
    if (*out)
        return MN_OK;
    const uint64_t from = h->now_ns(h->self);
    mn_status st = mng_check_sizes(c, err);
    if (!st)
        st = capture_step(c, out, err);
    c->capture_ns += h->now_ns(h->self) - from;
    if (!st)
        cu_graph_keep(c, *out, prepare);
    return st;
}

static mn_status launch_directly(mn_context *c, bool dry, mn_error *err) {
    const mn_status st = mng_check_sizes(c, err);
    if (st || dry)
        return st;
    c->stream = c->base.queue->stream;
    return mng_run_units(c, false, err);
}

/* dry: captures, instantiates and uploads. */
mn_status cu_step(mn_context *c, bool dry, mn_error *err) {
    const mn_host *h = c->base.prog->base.dev->base.host;
    const cudaStream_t stream = c->base.queue->stream;
    cudaGraphExec_t exec = NULL;
    if (c->direct)
        return launch_directly(c, dry, err);
    const mn_status st = find_graph(c, dry, &exec, err);
    if (st)
        return st;
    if (dry)
        return cu_check(cudaGraphUpload(exec, stream), err, "a captured graph");
    const uint64_t from = h->now_ns(h->self);
    const cudaError_t e = cudaGraphLaunch(exec, stream);
    c->launch_ns += h->now_ns(h->self) - from;
    c->n_launches++;
    return cu_check(e, err, "execute");
}
