/* context.c -- bindings to pointers, and the run: one call of the host's pool per step, a barrier
 * between nodes. */
#include "mnc.h"

mn_status mnc_context_create(mn_program *p, mn_queue *q, mn_context **out, mn_error *err) {
    mn_device *d = p->dev;
    uint64_t nt = p->graph->n_tensors;
    mn_context *c = mnc_new(d, sizeof *c);
    if (!c)
        return mnc_fail_memory(err, sizeof *c, "a context");
    c->prog = p, c->queue = q, c->team.n = p->n_workers;
    c->scratch_bytes = p->arena_bytes + p->shared_bytes + (uint64_t)p->n_workers * p->worker_bytes;
    c->symbol = mnc_new(d, 2 * (uint64_t)p->graph->n_symbols * sizeof *c->symbol);
    c->bindings = mnc_new(d, nt * sizeof *c->bindings);
    c->needed = mnc_new(d, nt * sizeof *c->needed);
    c->calls = mnc_new(d, p->n_steps * sizeof *c->calls);
    c->active = mnc_new(d, p->n_steps * sizeof *c->active);
    c->scratch = mnc_new(d, c->scratch_bytes);
    if (!c->symbol || !c->bindings || !c->needed || !c->calls || !c->active || !c->scratch) {
        uint64_t bytes = c->scratch_bytes;
        mnc_context_free(c);
        return mnc_fail_memory(err, bytes, "the scratch of a context");
    }
    *out = c;
    return MN_OK;
}

void mnc_context_free(mn_context *c) {
    if (!c)
        return;
    mn_device *d = c->prog->dev;
    mnc_delete(d, c->symbol);
    mnc_delete(d, c->bindings);
    mnc_delete(d, c->needed);
    mnc_delete(d, c->calls);
    mnc_delete(d, c->active);
    mnc_delete(d, c->scratch);
    mnc_delete(d, c);
}

static uint8_t *bound_ptr(const mn_binding *b) {
    return b->buffer ? b->buffer->ptr + b->offset : NULL;
}

/* Walks back: a node runs if it changes state, or if something wants one of its outputs. */
static void choose_active(mn_context *c) {
    const mn_program *p = c->prog;
    const mn_graph *g = p->graph;
    memset(c->needed, 0, g->n_tensors * sizeof *c->needed);
    c->n_active = 0;
    for (uint32_t i = p->n_steps; i-- > 0;) {
        const mn_node *n = mnc_node(g, p->steps[i].node);
        bool run = mnc_changes_state(n->op);
        for (uint32_t j = 0; j < n->n_out && !run; j++) {
            int32_t t = mnc_out(g, n, j);
            if (t < 0)
                continue;
            uint32_t root = mnc_root(g, (uint32_t)t);
            run = c->needed[root] || c->bindings[root].buffer || c->bindings[t].buffer;
        }
        if (!run)
            continue;
        c->active[c->n_active++] = i;
        for (uint32_t j = 0; j < n->n_in; j++)
            if (mnc_in(g, n, j) >= 0)
                c->needed[mnc_root(g, (uint32_t)mnc_in(g, n, j))] = true;
    }
    for (uint32_t i = 0; i < c->n_active / 2; i++) {
        uint32_t other = c->active[c->n_active - 1 - i];
        c->active[c->n_active - 1 - i] = c->active[i];
        c->active[i] = other;
    }
}

static mn_status resolve(mn_context *c, const mnc_step *st, int32_t t, bool is_out,
                         bool may_be_absent, mnc_operand *o, mn_error *err) {
    const mn_program *p = c->prog;
    const mn_graph *g = p->graph;
    memset(o, 0, sizeof *o);
    if (t < 0)
        return MN_OK;
    const mn_tensor *x = mnc_tensor(g, (uint32_t)t);
    o->n_dim = x->n_dim;
    o->dtype = mnc_elem_dtype(x);
    if (x->role == MN_ROLE_WEIGHT) {
        o->weight = &p->weights->kept[t].w;
        return MN_OK;
    }
    uint32_t root = mnc_root(g, (uint32_t)t);
    const mnc_home *h = &p->homes[root];
    uint64_t elem = mnc_elem_dtype(x) == x->dtype.id ? x->dtype.block_bytes : 4;
    if (c->bindings[t].buffer)
        o->ptr = bound_ptr(&c->bindings[t]);
    else if (c->bindings[root].buffer)
        o->ptr = bound_ptr(&c->bindings[root]) + (uint64_t)x->offset * elem;
    else if (h->place != MNC_NO_PLACE)
        o->ptr = c->scratch + h->place + (root != (uint32_t)t ? (uint64_t)x->offset * elem : 0);
    else if (!(is_out && may_be_absent))
        return mnc_fail(err, MN_INVALID, st->node, "%s %.*s of node %u is not bound",
                        is_out ? "output" : "input", MNC_NAME(x), st->node);
    return MN_OK;
}

/* mn_slot and mn_slot_params have no dims of their own: their number is HISTORY's. */
static mn_status check_state(const mn_context *c, const mn_node *n, uint32_t node, uint32_t in,
                             uint32_t history, uint64_t size, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    int32_t s = mnc_in(g, n, in), h = mnc_in(g, n, history);
    if (s < 0 || h < 0 || !mnc_tensor(g, (uint32_t)h)->n_dim)
        return mnc_fail(err, MN_INVALID, node, "node %u: slots or history are absent", node);
    uint64_t want =
        (uint64_t)mnc_dim(g, c->prog->symbol_max, mnc_tensor(g, (uint32_t)h)->dim[0]) * size;
    if (c->bindings[s].buffer && c->bindings[s].bytes < want)
        return mnc_fail(err, MN_INVALID, node, "%.*s has %llu bytes, node %u needs %llu",
                        MNC_NAME(mnc_tensor(g, (uint32_t)s)),
                        (unsigned long long)c->bindings[s].bytes, node, (unsigned long long)want);
    return MN_OK;
}

static mn_status fill_call(mn_context *c, uint32_t i, mn_error *err) {
    const mn_program *p = c->prog;
    const mn_graph *g = p->graph;
    const mnc_step *st = &p->steps[i];
    const mn_node *n = mnc_node(g, st->node);
    mnc_call *call = &c->calls[i];
    mn_status s = MN_OK;
    call->node = n, call->attr = g->attrs + n->attr_off, call->n_attr = n->n_attr,
    call->user = st->op.user, call->kv = st->kv;
    call->shared = c->scratch + p->arena_bytes;
    for (uint32_t j = 0; j < n->n_in && !s; j++)
        s = resolve(c, st, mnc_in(g, n, j), false, false, &call->in[j], err);
    for (uint32_t j = 0; j < n->n_out && !s; j++)
        s = resolve(c, st, mnc_out(g, n, j), true, mnc_out_may_be_absent(n->op, j), &call->out[j],
                    err);
    if (s)
        return s;
    int32_t lead = mnc_in(g, n, 0);
    call->max_rows = lead >= 0 && mnc_tensor(g, (uint32_t)lead)->n_dim
                         ? mnc_dim(g, p->symbol_max, mnc_tensor(g, (uint32_t)lead)->dim[0])
                         : 1;
    if (n->op == MN_OP_EMBED)
        s = check_state(c, n, st->node, MN_EMBED_SLOTS, MN_EMBED_HISTORY, sizeof(mn_slot), err);
    if (n->op == MN_OP_SAMPLE) {
        s = check_state(c, n, st->node, MN_SAMPLE_SLOTS, MN_SAMPLE_HISTORY, sizeof(mn_slot), err);
        if (!s)
            s = check_state(c, n, st->node, MN_SAMPLE_PARAMS, MN_SAMPLE_HISTORY,
                            sizeof(mn_slot_params), err);
    }
    bool store = n->op == MN_OP_KV_STORE;
    if (!store && n->op != MN_OP_ATTENTION)
        return s;
    uint32_t ik = store ? MN_KV_STORE_KV : MN_ATTENTION_KV,
             ip = store ? MN_KV_STORE_PAGES : MN_ATTENTION_PAGES;
    int32_t kv = mnc_in(g, n, ik), pages = mnc_in(g, n, ip);
    if (kv < 0 || pages < 0 || mnc_tensor(g, (uint32_t)pages)->n_dim != 2)
        return mnc_fail(err, MN_INVALID, st->node, "node %u: KV or PAGES is absent", st->node);
    call->kv.base = call->in[ik].ptr;
    call->kv.pages = call->in[ip].ptr;
    call->kv.max_pages = mnc_dim(g, p->symbol_max, mnc_tensor(g, (uint32_t)pages)->dim[1]);
    call->kv.n_pages = (int64_t)(c->bindings[kv].bytes / call->kv.page_bytes);
    return s;
}

mn_status mnc_context_bind(mn_context *c, const mn_binding *bindings, uint32_t n, uint32_t stride,
                           mn_error *err) {
    const mn_graph *g = c->prog->graph;
    mn_status s = MN_OK;
    c->bound = c->filled = false;
    memset(c->bindings, 0, g->n_tensors * sizeof *c->bindings);
    if (n && stride < MNC_UP_TO(mn_binding, bytes))
        return mnc_fail(err, MN_INVALID, ~0u,
                        "bindings of %u bytes lack fields of the first release", stride);
    for (uint32_t i = 0; i < n; i++) {
        const mn_binding *b = (const mn_binding *)((const char *)bindings + (uint64_t)i * stride);
        if (b->tensor >= g->n_tensors)
            return mnc_fail(err, MN_INVALID, ~0u, "binding %u: tensor %u of %u", i, b->tensor,
                            g->n_tensors);
        const mn_tensor *t = mnc_tensor(g, b->tensor);
        if (t->role == MN_ROLE_WEIGHT)
            return mnc_fail(err, MN_INVALID, ~0u, "%.*s is a weight and cannot be bound",
                            MNC_NAME(t));
        if (!b->buffer || b->offset > b->buffer->bytes || b->bytes > b->buffer->bytes - b->offset)
            return mnc_fail(err, MN_INVALID, ~0u, "%.*s: %llu bytes at %llu leave the buffer",
                            MNC_NAME(t), (unsigned long long)b->bytes,
                            (unsigned long long)b->offset);
        if ((uintptr_t)(b->buffer->ptr + b->offset) % 4)
            return mnc_fail(err, MN_INVALID, ~0u, "%.*s: offset %llu is not a multiple of 4",
                            MNC_NAME(t), (unsigned long long)b->offset);
        memcpy(&c->bindings[b->tensor], b, stride < sizeof *b ? stride : sizeof *b);
    }
    choose_active(c);
    for (uint32_t i = 0; i < c->n_active && !s; i++)
        s = fill_call(c, c->active[i], err);
    c->bound = !s;
    return s;
}

static mn_status fill_operand(const mn_context *c, uint32_t node, int32_t t, mnc_operand *o,
                              bool is_kv, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    if (t < 0)
        return MN_OK;
    const mn_tensor *x = mnc_tensor(g, (uint32_t)t);
    o->rows = o->cols = 1;
    for (uint32_t i = 0; i < x->n_dim; i++) {
        o->dim[i] = mnc_dim(g, c->symbol, x->dim[i]);
        if (i)
            o->cols *= o->dim[i];
        else
            o->rows = o->dim[i];
    }
    uint64_t want;
    if (is_kv || !c->bindings[t].buffer || x->role == MN_ROLE_WEIGHT)
        return MN_OK;
    if (mnc_bytes(g, x, c->symbol, &want) && want <= c->bindings[t].bytes)
        return MN_OK;
    return mnc_fail(err, MN_INVALID, node,
                    "%.*s is bound to %llu bytes, too few for these symbol values", MNC_NAME(x),
                    (unsigned long long)c->bindings[t].bytes);
}

static mn_status fill_dims(mn_context *c, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    mn_status s = MN_OK;
    for (uint32_t i = 0; i < c->n_active && !s; i++) {
        mnc_call *call = &c->calls[c->active[i]];
        const mn_node *n = call->node;
        uint32_t node = c->prog->steps[c->active[i]].node;
        uint32_t kv = n->op == MN_OP_KV_STORE    ? MN_KV_STORE_KV
                      : n->op == MN_OP_ATTENTION ? MN_ATTENTION_KV
                                                 : ~0u;
        for (uint32_t j = 0; j < n->n_in && !s; j++)
            s = fill_operand(c, node, mnc_in(g, n, j), &call->in[j], j == kv, err);
        for (uint32_t j = 0; j < n->n_out && !s; j++)
            s = fill_operand(c, node, mnc_out(g, n, j), &call->out[j], false, err);
    }
    c->filled = !s;
    return s;
}

/* An abort is seen by worker 0 alone, before it comes to barrier k; all leave behind that
 * barrier. */
static void run(void *arg, uint32_t i, uint32_t n) {
    mn_context *c = arg;
    const mn_program *p = c->prog;
    mnc_worker w = {i, n,
                    c->scratch + p->arena_bytes + p->shared_bytes + (uint64_t)i * p->worker_bytes,
                    &c->team};
    for (uint32_t k = 0; k < c->n_active; k++) {
        p->steps[c->active[k]].op.fn(&c->calls[c->active[k]], &w);
        if (k + 1 == c->n_active)
            break;
        if (i == 0 && atomic_load_explicit(&c->queue->aborted, memory_order_relaxed) &&
            atomic_load(&c->stop_at) == ~0u)
            atomic_store(&c->stop_at, k);
        mnc_barrier(&w);
        if (atomic_load_explicit(&c->stop_at, memory_order_relaxed) <= k)
            break;
    }
}

mn_status mnc_execute(mn_context *c, const int64_t *values, mn_event **event, mn_error *err) {
    const mn_program *p = c->prog;
    const mn_host *h = p->dev->plugin->host;
    uint32_t bad = 0;
    int64_t *next = c->symbol + p->graph->n_symbols;
    if (!c->bound)
        return mnc_fail(err, MN_INVALID, ~0u, "execute before context_bind");
    if (atomic_load(&c->queue->aborted))
        return mnc_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
    if (!mnc_symbols(p->graph, values, p->symbol_max, next, &bad))
        return mnc_fail(
            err, MN_INVALID, ~0u, "symbol %.24s is %lld; the program was compiled for at most %lld",
            mnc_symbol(p->graph, bad)->name, (long long)values[bad], (long long)p->symbol_max[bad]);
    uint64_t bytes = p->graph->n_symbols * sizeof *next;
    if (!c->filled || memcmp(c->symbol, next, bytes)) {
        memcpy(c->symbol, next, bytes);
        mn_status s = fill_dims(c, err);
        if (s)
            return s;
    }
    atomic_store(&c->stop_at, ~0u);
    atomic_store(&c->team.arrived, 0);
    mn_status s = h->parallel(h->self, p->n_workers, run, c);
    if (s)
        return mnc_fail(err, s, ~0u, "the host's thread pool refused %u workers", p->n_workers);
    if (atomic_load(&c->stop_at) != ~0u)
        return mnc_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
    if (event)
        *event = &p->dev->done;
    return MN_OK;
}
