/* program.c -- verdicts, estimates, compilation. */
#include "mnc.h"

uint32_t mnc_precision(const mn_device *d, const mn_compile *c) {
    const mnc_plugin *p = d->plugin;
    if (c->precision != MN_PRECISION_AUTO)
        return c->precision;
    return p->ops->precision ? p->ops->precision(p->self, c->graph) : MN_PRECISION_EXACT;
}

static bool knows(const mnc_ops *ops, const mn_node *n) {
    for (uint32_t i = 0; i < ops->n_contracts; i++)
        if (ops->contracts[i][0] == n->op)
            return n->contract <= ops->contracts[i][1];
    return false;
}

/* Symbols of a question: NULL = the graph's maxima. */
static mn_status symbols(mn_device *d, const mn_graph *g, const int64_t *at, int64_t **out,
                         mn_error *err) {
    uint32_t bad = 0;
    int64_t *v = mnc_new(d, 2 * (uint64_t)g->n_symbols * sizeof *v),
            *max = v ? v + g->n_symbols : NULL;
    if (!v)
        return mnc_fail_memory(err, 2 * (uint64_t)g->n_symbols * sizeof *v, "symbols");
    for (uint32_t i = 0; i < g->n_symbols; i++)
        max[i] = mnc_symbol(g, i)->max;
    if (!mnc_symbols(g, at ? at : max, NULL, v, &bad)) {
        mn_status s = mnc_fail(err, MN_INVALID, ~0u, "symbol %.24s: %lld is out of bounds",
                               mnc_symbol(g, bad)->name, (long long)(at ? at : max)[bad]);
        mnc_delete(d, v);
        return s;
    }
    *out = v;
    return MN_OK;
}

mn_status mnc_supports(mn_device *d, const mn_graph *g, const int64_t *symbol_at,
                       mn_verdict *verdicts, uint32_t stride, mn_error *err) {
    mnc_plugin *p = d->plugin;
    int64_t *sym = NULL;
    mn_compile ask = {sizeof ask, MN_PRECISION_AUTO,
                      g,          0,
                      g->n_nodes, symbol_at ? symbol_at : (const int64_t[]){0},
                      NULL,       {0},
                      0,          0},
               c;
    mn_status s = mnc_read_compile(&ask, &c, err);
    if (!s)
        s = symbols(d, g, symbol_at, &sym, err);
    if (s)
        return s;
    mnc_query q = {.graph = g,
                   .symbol = sym,
                   .precision = mnc_precision(d, &c),
                   .kv_dtype = MN_F32,
                   .n_workers = p->host->workers(p->host->self)};
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        mn_verdict v = {0};
        q.node = mnc_node(g, i), q.index = i;
        if (knows(p->ops, q.node))
            v.verdict = p->ops->verdict(p->self, &q, &v.reason);
        memcpy((char *)verdicts + (uint64_t)i * stride, &v, stride < sizeof v ? stride : sizeof v);
    }
    mnc_delete(d, sym);
    return MN_OK;
}

/* mnc_op of each node, its scratch, its KV geometry. */
static mn_status prepare(mn_program *p, mn_error *err) {
    const mn_graph *g = p->graph;
    mnc_plugin *pl = p->dev->plugin;
    mnc_query q = {.graph = g,
                   .symbol = p->symbol_max,
                   .precision = p->precision,
                   .kv_dtype = p->kv_dtype,
                   .n_workers = p->n_workers};
    for (uint32_t i = p->lo; i < p->hi; i++) {
        mnc_step *st = &p->steps[p->n_steps++];
        q.node = mnc_node(g, i), q.index = i;
        st->node = i;
        if (!knows(pl->ops, q.node))
            return mnc_fail(err, MN_UNSUPPORTED, i, "node %u: op %u contract %u is unknown to %s",
                            i, q.node->op, q.node->contract, pl->ops->id);
        uint32_t reason = 0;
        if (pl->ops->verdict(pl->self, &q, &reason) == MN_VERDICT_NO) {
            const char *why = pl->ops->reason ? pl->ops->reason(pl->self, reason) : NULL;
            return mnc_fail(err, MN_UNSUPPORTED, i, "node %u (op %u): %s", i, q.node->op,
                            why ? why : "not supported");
        }
        mn_status s = pl->ops->prepare(pl->self, &q, &st->op, err);
        if (s)
            return s;
        if (st->op.worker_bytes > p->worker_bytes)
            p->worker_bytes = st->op.worker_bytes;
        if (st->op.shared_bytes > p->shared_bytes)
            p->shared_bytes = st->op.shared_bytes;
        if (q.node->op != MN_OP_KV_STORE && q.node->op != MN_OP_ATTENTION)
            continue;
        bool store = q.node->op == MN_OP_KV_STORE;
        uint32_t ig = store ? MN_KV_STORE_ATTR_GROUP : MN_ATTENTION_ATTR_GROUP,
                 il = store ? MN_KV_STORE_ATTR_KV_LAYER : MN_ATTENTION_ATTR_KV_LAYER;
        uint32_t group = ig < q.node->n_attr ? (uint32_t)g->attrs[q.node->attr_off + ig] : 0;
        int64_t layer = il < q.node->n_attr ? (int64_t)g->attrs[q.node->attr_off + il] : 0;
        if ((s = mnc_kv_of(g, p->lo, p->hi, group, p->kv_dtype, &st->kv, err)))
            return s;
        if ((st->kv.layer = mnc_kv_rank(g, p->lo, p->hi, group, layer)) < 0)
            return mnc_fail(err, MN_INVALID, i,
                            "node %u: no KV_STORE for KV layer %lld of group %u in the segment", i,
                            (long long)layer, group);
    }
    return MN_OK;
}

static uint64_t round_up(uint64_t n) {
    return (n + MNC_ALIGN - 1) / MNC_ALIGN * MNC_ALIGN;
}

/* A program without weights: for estimate and compile. */
static mn_status plan(mn_device *d, const mn_compile *in, mn_program **out, mn_error *err) {
    mn_compile c;
    uint32_t bad = 0;
    mn_status s = mnc_read_compile(in, &c, err);
    if (s)
        return s;
    const mn_graph *g = c.graph;
    mn_program *p = mnc_new(d, sizeof *p);
    if (!p)
        return mnc_fail_memory(err, sizeof *p, "a program");
    *p = (mn_program){.dev = d,
                      .graph = g,
                      .weights = c.weights,
                      .lo = c.node_lo,
                      .hi = c.node_hi,
                      .precision = mnc_precision(d, &c),
                      .n_workers = d->plugin->host->workers(d->plugin->host->self)};
    if (!p->n_workers)
        p->n_workers = 1;
    p->kv_dtype = mnc_kv_dtype(&c, p->precision);
    p->symbol_max = mnc_new(d, (uint64_t)g->n_symbols * sizeof *p->symbol_max);
    p->steps = mnc_new(d, (uint64_t)(p->hi - p->lo) * sizeof *p->steps);
    p->homes = mnc_new(d, (uint64_t)g->n_tensors * sizeof *p->homes);
    if (!p->symbol_max || !p->steps || !p->homes) {
        s = mnc_fail_memory(err, (p->hi - p->lo) * sizeof *p->steps, "a program");
        goto fail;
    }
    if (!mnc_symbols(g, c.symbol_max, NULL, p->symbol_max, &bad)) {
        s = mnc_fail(err, MN_INVALID, ~0u, "symbol_max of %.24s is %lld", mnc_symbol(g, bad)->name,
                     (long long)c.symbol_max[bad]);
        goto fail;
    }
    if ((s = mnc_homes(p, err)) || (s = prepare(p, err)))
        goto fail;
    p->arena_bytes = round_up(p->arena_bytes), p->shared_bytes = round_up(p->shared_bytes),
    p->worker_bytes = round_up(p->worker_bytes);
    *out = p;
    return MN_OK;
fail:
    mnc_program_free(p);
    return s;
}

/* Bytes of the segment's weights, each counted once; a table that only EMBED reads is read by rows
 * and counts nothing. */
static mn_status weight_bytes(const mn_program *p, uint64_t *sum, mn_error *err) {
    const mn_graph *g = p->graph;
    bool *seen = mnc_new(p->dev, g->n_tensors * sizeof *seen);
    uint64_t bytes;
    *sum = 0;
    if (!seen)
        return mnc_fail_memory(err, g->n_tensors * sizeof *seen, "an estimate");
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnc_node(g, i);
        for (uint32_t j = 0; j < n->n_in && n->op != MN_OP_EMBED; j++) {
            int32_t t = mnc_in(g, n, j);
            if (t < 0 || seen[t] || mnc_tensor(g, (uint32_t)t)->role != MN_ROLE_WEIGHT)
                continue;
            seen[t] = true;
            if (mnc_bytes(g, mnc_tensor(g, (uint32_t)t), p->symbol_max, &bytes))
                *sum += bytes;
        }
    }
    mnc_delete(p->dev, seen);
    return MN_OK;
}

mn_status mnc_estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    const mnc_ops *ops = d->plugin->ops;
    mn_program *p;
    mn_status s = plan(d, c, &p, err);
    if (s)
        return s;
    uint64_t weights;
    if ((s = weight_bytes(p, &weights, err))) {
        mnc_program_free(p);
        return s;
    }
    double gbps = ops->gbps ? ops->gbps(d->plugin->self) : 0;
    mn_estimate e = {.size = sizeof e, .precision = p->precision, .row_grain = 1};
    if (p->precision == MN_PRECISION_EXACT)
        e.flags = MN_ESTIMATE_DETERMINISTIC;
    e.weights = e.import_peak = ops->repack ? weights : 0;
    e.scratch = p->arena_bytes + p->shared_bytes + p->n_workers * p->worker_bytes +
                p->n_steps * sizeof(mnc_call) + p->graph->n_tensors * sizeof(mn_binding);
    if (gbps > 0) {
        e.decode_us = (double)weights / gbps * 1e-3;
        /* a weight read from memory serves about 16 tokens before compute is the limit */
        e.prefill_us = e.decode_us * 512 / 16;
    }
    mnc_program_free(p);
    e.size = out->size < sizeof e ? out->size : (uint32_t)sizeof e;
    memcpy(out, &e, e.size);
    return MN_OK;
}

mn_status mnc_compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    mn_program *p;
    mn_status s = plan(d, c, &p, err);
    if (s)
        return s;
    for (uint32_t i = p->lo; i < p->hi && !s; i++) {
        const mn_node *n = mnc_node(p->graph, i);
        for (uint32_t j = 0; j < n->n_in && !s; j++) {
            int32_t t = mnc_in(p->graph, n, j);
            if (t < 0 || mnc_tensor(p->graph, (uint32_t)t)->role != MN_ROLE_WEIGHT)
                continue;
            if (!p->weights || p->weights->graph != p->graph || !p->weights->kept[t].put)
                s = mnc_fail(err, MN_INVALID, i, "node %u: weight %.*s is not in the weight set", i,
                             MNC_NAME(mnc_tensor(p->graph, (uint32_t)t)));
        }
    }
    if (s)
        mnc_program_free(p);
    else
        *out = p;
    return s;
}

void mnc_program_free(mn_program *p) {
    if (!p)
        return;
    mnc_delete(p->dev, p->symbol_max);
    mnc_delete(p->dev, p->steps);
    mnc_delete(p->dev, p->homes);
    mnc_delete(p->dev, p);
}

mn_status mnc_program_save(const mn_program *p, void *dst, uint64_t *bytes) {
    (void)p, (void)dst, (void)bytes;
    return MN_UNSUPPORTED;
}
