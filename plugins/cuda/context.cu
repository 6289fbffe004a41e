/* context.cu -- scratch, bindings, and one captured graph per bucket of symbol values. */
#include "program.h"

mn_status cu_context_create(mn_program *p, mn_queue *q, mn_context **out, mn_error *err) {
    mn_device *d = p->dev;
    const uint64_t n = p->graph->n_symbols * sizeof(int64_t);
    mn_str value;
    mn_context *c = (mn_context *)cu_new(d, sizeof *c);
    if (!c)
        return cu_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: a context");
    c->prog = p, c->queue = q;
    c->direct = MN_HAS(mn_host, d->plugin->host, option) &&
                d->plugin->host->option(d->plugin->host->self, "graphs", &value) == 1 &&
                value.len == 1 && value.ptr[0] == '0';
    c->symbol = (int64_t *)cu_new(d, n);
    c->keys = (int64_t *)cu_new(d, n * CU_MAX_CAPTURED);
    bool ok = c->symbol && c->keys;
    for (uint32_t i = 0; i < MN_BINDING_SETS; i++) {
        c->sets[i] = (mn_binding *)cu_new(d, p->graph->n_tensors * sizeof *c->bindings);
        ok = ok && c->sets[i];
    }
    mn_status st = ok ? MN_OK : cu_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: a context");
    if (!st)
        st = cu_check(cudaSetDevice(d->index), err, "choosing the device");
    if (!st)
        st = cu_check(cudaMalloc((void **)&c->scratch, p->scratch + CU_SLACK), err, "scratch");
    if (!st)
        st = cu_check(cudaMemsetAsync(c->scratch, 0, p->scratch, q->stream), err, "scratch");
    if (!st)
        st = cu_check(cudaStreamCreateWithFlags(&c->capture, cudaStreamNonBlocking), err,
                      "a stream");
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
        d->plugin->host->log(d->plugin->host->self, MN_LOG_DEBUG, mn_str{line, (uint64_t)n});
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

/* Every input and state that a node reads, and every output without a place, must be bound; absent
 * outputs of SAMPLE aside. */
static mn_status check_bound(mn_context *c, mn_error *err) {
    const mn_program *p = c->prog;
    const mn_graph *g = p->graph;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = cu_node(g, i);
        for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
            int32_t t = j < n->n_in ? cu_in(g, n, j) : cu_out(g, n, j - n->n_in);
            if (t < 0 || cu_tensor(g, t)->role == MN_ROLE_WEIGHT || c->bindings[t].buffer)
                continue;
            uint32_t root = cu_root(g, t);
            if (!c->bindings[root].buffer && p->homes[root].place == CU_NOWHERE)
                return cu_fail(err, MN_INVALID, i, "tensor %d (%.*s) of node %u is not bound", t,
                               (int)cu_tensor(g, t)->name.len, cu_tensor(g, t)->name.ptr, i);
        }
    }
    return MN_OK;
}

/* SLOTS and PARAMS: rows of at least `least` bytes, 4 * dim[1] apart. */
static mn_status check_rows(const mn_context *c, const mn_node *n, uint32_t node, uint32_t in,
                            uint64_t least, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    const int32_t t = cu_in(g, n, in);
    const mn_tensor *x = t >= 0 ? cu_tensor(g, t) : NULL;
    if (!x || x->n_dim != 2)
        return cu_fail(err, MN_INVALID, node, "node %u: slots or parameters are absent", node);
    const int64_t words = cu_dim(g, c->prog->symbol_max, x->dim[1]);
    if (words < 0 || (uint64_t)words * 4 < least)
        return cu_fail(err, MN_INVALID, node,
                       "tensor %d has rows of %lld words, node %u needs %llu", t, (long long)words,
                       node, (unsigned long long)least / 4);
    return MN_OK;
}

static mn_status check_states(const mn_context *c, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = c->prog->lo; i < c->prog->hi && !st; i++) {
        const mn_node *n = cu_node(c->prog->graph, i);
        if (n->op == MN_OP_EMBED)
            st = check_rows(c, n, i, MN_EMBED_SLOTS, CU_UP_TO(mn_slot, done), err);
        if (n->op != MN_OP_SAMPLE)
            continue;
        st = check_rows(c, n, i, MN_SAMPLE_SLOTS, CU_UP_TO(mn_slot, done), err);
        if (!st)
            st = check_rows(c, n, i, MN_SAMPLE_PARAMS, 8, err);
    }
    return st;
}

mn_status cu_context_bind(mn_context *c, uint32_t set, const mn_binding *bindings, uint32_t n,
                          uint32_t stride, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    if (set >= MN_BINDING_SETS)
        return cu_fail(err, MN_INVALID, ~0u, "binding set %u; a context has %u", set,
                       MN_BINDING_SETS);
    CU_TRY(cudaSetDevice(c->prog->dev->index), err, "choosing the device");
    drop_graphs(c, set); /* addresses are baked into them */
    c->bound[set] = false;
    c->set = set;
    c->bindings = c->sets[set];
    memset(c->bindings, 0, g->n_tensors * sizeof *c->bindings);
    if (n && stride < CU_UP_TO(mn_binding, bytes))
        return cu_fail(err, MN_INVALID, ~0u,
                       "bindings of %u bytes lack fields of the first release", stride);
    for (uint32_t i = 0; i < n; i++) {
        const mn_binding *b = (const mn_binding *)((const char *)bindings + (uint64_t)i * stride);
        if (b->tensor >= g->n_tensors)
            return cu_fail(err, MN_INVALID, ~0u, "binding %u: tensor %u of %u", i, b->tensor,
                           g->n_tensors);
        const mn_tensor *t = cu_tensor(g, b->tensor);
        if (t->role == MN_ROLE_WEIGHT)
            return cu_fail(err, MN_INVALID, ~0u, "tensor %u is a weight and cannot be bound",
                           b->tensor);
        if (!b->buffer || b->offset > b->buffer->bytes || b->bytes > b->buffer->bytes - b->offset ||
            b->offset % 4)
            return cu_fail(err, MN_INVALID, ~0u, "tensor %u: %llu bytes at %llu leave the buffer",
                           b->tensor, (unsigned long long)b->bytes, (unsigned long long)b->offset);
        const uint32_t root = cu_root(g, b->tensor);
        if (root != b->tensor && c->prog->homes[root].produced)
            return cu_fail(err, MN_UNSUPPORTED, ~0u,
                           "tensor %u is a view of what the segment makes: bind that", b->tensor);
        memcpy(&c->bindings[b->tensor], b, stride < sizeof *b ? stride : sizeof *b);
    }
    mn_status st = check_bound(c, err);
    if (!st)
        st = check_states(c, err);
    c->bound[set] = !st;
    return st;
}

/* Bound memory against what these symbol values need. Opaque states: slots and KV are checked by
 * their users. */
static mn_status check_sizes(mn_context *c, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    for (uint32_t t = 0; t < g->n_tensors; t++) {
        const mn_tensor *x = cu_tensor(g, t);
        if (!c->bindings[t].buffer || !x->n_dim || !x->dtype.block_elems)
            continue;
        uint64_t n = 1;
        for (uint32_t i = 0; i < x->n_dim; i++) {
            int64_t d = cu_dim(g, c->symbol, x->dim[i]);
            if (d < 0 || __builtin_mul_overflow(n, (uint64_t)d, &n))
                n = ~(uint64_t)0 >> 8;
        }
        /* its type is logical: f32 crosses */
        const bool wide =
            x->role == MN_ROLE_INTERIOR && (x->dtype.id == MN_F16 || x->dtype.id == MN_BF16);
        if (n / x->dtype.block_elems * (wide ? 4 : x->dtype.block_bytes) > c->bindings[t].bytes)
            return cu_fail(err, MN_INVALID, ~0u,
                           "tensor %u is bound to %llu bytes, too few for these symbol values", t,
                           (unsigned long long)c->bindings[t].bytes);
    }
    return MN_OK;
}

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

/* The graph for c->symbol, captured if it is not there. One that was prepared gives way only where
 * all are. */
static mn_status find(mn_context *c, bool prepare, cudaGraphExec_t *out, mn_error *err) {
    const uint64_t bytes = c->prog->graph->n_symbols * sizeof(int64_t);
    uint32_t at = 0;
    for (uint32_t i = 0; i < c->n_graphs; i++) {
        if (c->graphs[i].set == c->set && !memcmp(c->graphs[i].symbol, c->symbol, bytes)) {
            c->graphs[i].used = ++c->clock;
            c->graphs[i].prepared |= prepare;
            *out = c->graphs[i].exec;
            return MN_OK;
        }
        const cu_captured *a = &c->graphs[i], *b = &c->graphs[at];
        if (a->prepared != b->prepared ? b->prepared : a->used < b->used)
            at = i;
    }
    cudaGraphExec_t exec = NULL;
    const mn_host *h = c->prog->dev->plugin->host;
    const uint64_t from = h->now_ns(h->self);
    mn_status st = check_sizes(c, err);
    if (!st)
        st = capture(c, &exec, err);
    c->capture_ns += h->now_ns(h->self) - from;
    if (st)
        return st;
    if (c->n_graphs < CU_MAX_CAPTURED)
        at = c->n_graphs++;
    else {
        cudaStreamSynchronize(c->queue->stream);
        cudaGraphExecDestroy(c->graphs[at].exec);
    }
    memcpy(c->graphs[at].symbol, c->symbol, bytes);
    c->graphs[at].exec = *out = exec;
    c->graphs[at].set = c->set;
    c->graphs[at].used = ++c->clock;
    c->graphs[at].prepared = prepare;
    return MN_OK;
}

/* Takes the values of a step; what they are too large for is an error here already. */
static mn_status begin(mn_context *c, uint32_t set, const int64_t *values, mn_error *err) {
    const mn_program *p = c->prog;
    uint32_t bad = 0;
    if (set >= MN_BINDING_SETS || !c->bound[set])
        return cu_fail(err, MN_INVALID, ~0u, "set %u of the context has no bindings", set);
    c->set = set;
    c->bindings = c->sets[set];
    if (c->queue->aborted)
        return cu_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
    if (!cu_symbols(p->graph, values, p->symbol_max, c->symbol, &bad))
        return cu_fail(
            err, MN_INVALID, ~0u, "symbol %.24s is %lld; the program was compiled for at most %lld",
            cu_symbol(p->graph, bad)->name, (long long)values[bad], (long long)p->symbol_max[bad]);
    CU_TRY(cudaSetDevice(p->dev->index), err, "choosing the device");
    return MN_OK;
}

/* Captures, instantiates and uploads; events for a few steps in flight are made, too. */
mn_status cu_context_prepare(mn_context *c, uint32_t set, const int64_t *values, mn_error *err) {
    cudaGraphExec_t exec = NULL;
    mn_status st = begin(c, set, values, err);
    if (!st)
        st = cu_events_reserve(c->prog->dev, 16, err);
    if (st || c->direct)
        return st ? st : check_sizes(c, err);
    st = find(c, true, &exec, err);
    return st ? st : cu_check(cudaGraphUpload(exec, c->queue->stream), err, "a captured graph");
}

mn_status cu_execute(mn_context *c, uint32_t set, const int64_t *values, mn_event **event,
                     mn_error *err) {
    const mn_program *p = c->prog;
    mn_status st = begin(c, set, values, err);
    if (st)
        return st;
    if (c->direct) {
        st = check_sizes(c, err);
        if (!st)
            st = cu_launch_units(c, c->symbol, c->queue->stream, err);
    } else {
        cudaGraphExec_t exec = NULL;
        st = find(c, false, &exec, err);
        const mn_host *h = p->dev->plugin->host;
        uint64_t from = h->now_ns(h->self);
        if (!st)
            st = cu_check(cudaGraphLaunch(exec, c->queue->stream), err, "execute");
        c->launch_ns += h->now_ns(h->self) - from, c->n_launches++;
    }
    return st || !event ? st : cu_event_new(p->dev, c->queue->stream, event, err);
}
