/* program.c -- verdicts, estimates, compilation. */
#include "mnc.h"
#include "residents.h"

/* The class that is used: the one that was asked for, or a finer one. */
uint32_t mnc_precision(const mn_device *d, const mn_compile *c) {
    const mnc_plugin *p = d->plugin;
    if (c->precision != MN_PRECISION_AUTO)
        return c->precision;
    if (p->ops->precision)
        return p->ops->precision(p->self, c->graph);
    return MN_PRECISION_EXACT;
}

/* A call has room for so many operands. */
mn_status mnc_read_compile(const mn_compile *in, mn_compile *out, mn_error *err) {
    mn_status st = mnp_read_compile(in, out, err);
    for (uint32_t i = out->node_lo; i < out->node_hi && !st; i++) {
        const mn_node *n = mnp_node(out->graph, i);
        if (n->n_in > MNC_MAX_IN || n->n_out > MNC_MAX_OUT)
            st = mnp_fail(err, MN_UNSUPPORTED, i,
                          "node %u: %u inputs and %u outputs; at most %d and %d", i, n->n_in,
                          n->n_out, MNC_MAX_IN, MNC_MAX_OUT);
    }
    return st;
}

typedef struct {
    mnc_plugin *plugin;
    mnc_query query;
} asked;

/* For mnp_supports. user: an `asked`; a contract that the plugin does not list is MN_VERDICT_NO
 * without a question to it. */
static int32_t verdict(void *user, const int64_t *symbol, uint32_t node, uint32_t *reason) {
    asked *a = user;
    const mnc_ops *ops = a->plugin->ops;
    a->query.symbol = symbol;
    a->query.node = mnp_node(a->query.graph, node);
    a->query.index = node;
    if (!mnp_knows(ops->contracts, ops->n_contracts, a->query.graph, a->query.node))
        return MN_VERDICT_NO;
    return ops->verdict(a->plugin->self, &a->query, reason);
}

/* Also what a newer contract of an operation would need is refused here. */
mn_status mnc_supports(mn_device *d, const mn_compile *in, mn_verdict *verdicts, uint32_t stride,
                       mn_error *err) {
    mnc_plugin *p = d->plugin;
    mn_compile c;
    mn_status st = mnc_read_compile(in, &c, err);
    if (st)
        return st;
    asked a = {p,
               {.graph = c.graph,
                .precision = mnc_precision(d, &c),
                .n_workers = p->host->workers(p->host->self)}};
    return mnp_supports(p->host, &c, verdict, &a, verdicts, stride, err);
}

/* Where the memory of a node's layer lies, if it has one. */
static mn_status program_find_memory(const mn_compile *c, uint32_t node, uint32_t precision,
                                     mnc_step *step, mn_error *err) {
    const mn_node *n = mnp_node(c->graph, node);
    mnp_memory_node at;
    if (!mnp_memory_node_of(n, &at))
        return MN_OK;
    if (n->op == MN_OP_KV_STORE || n->op == MN_OP_ATTENTION)
        return mnp_kv_of_node(c, node, precision, &mnc_kv_rules, &step->kv, err);
    return mnp_state_of_node(c, node, &step->state, err);
}

/* mnc_op of each node, its scratch, where its memory lies. */
static mn_status program_prepare(const mn_compile *c, mn_program *p, mn_error *err) {
    const mn_graph *g = p->graph;
    mnc_plugin *pl = p->dev->plugin;
    mnc_query q = {
        .graph = g, .symbol = p->symbol_max, .precision = p->precision, .n_workers = p->n_workers};
    for (uint32_t i = p->lo; i < p->hi; i++) {
        mnc_step *st = &p->steps[p->n_steps++];
        q.node = mnp_node(g, i);
        q.index = i;
        st->node = i;
        if (!mnp_knows(pl->ops->contracts, pl->ops->n_contracts, g, q.node))
            return mnp_fail(err, MN_UNSUPPORTED, i,
                            "node %u: op %u contract %u, or more that it has, is unknown to %s", i,
                            q.node->op, q.node->contract, pl->ops->id);
        uint32_t reason = 0;
        if (pl->ops->verdict(pl->self, &q, &reason) == MN_VERDICT_NO) {
            const char *why = NULL;
            if (pl->ops->reason)
                why = pl->ops->reason(pl->self, reason);
            return mnp_fail(err, MN_UNSUPPORTED, i, "node %u (op %u): %s", i, q.node->op,
                            why ? why : "not supported");
        }
        mn_status s = pl->ops->prepare(pl->self, &q, &st->op, err);
        if (s)
            return s;
        if (st->op.worker_bytes > p->worker_bytes)
            p->worker_bytes = st->op.worker_bytes;
        if (st->op.shared_bytes > p->shared_bytes)
            p->shared_bytes = st->op.shared_bytes;
        s = program_find_memory(c, i, p->precision, st, err);
        if (s)
            return s;
    }
    return MN_OK;
}

/* Where the tensors between the steps lie. What stages may run at one time, in one phase, lives at
 * that time. */
static mn_status program_place(mn_program *p, mn_error *err) {
    mn_status st = mnp_check_views(p->graph, p->lo, p->hi, p->symbol_max, err);
    if (st)
        return st;
    mnp_arena_begin(p->graph, p->allocations);
    int32_t at = 0;
    bool was_in_cells = false;
    for (uint32_t i = 0; i < 2 * p->n_steps; i++) {
        const mnc_step *step = &p->steps[i / 2];
        if (i % 2 == MNC_FIRST && !step->op.first)
            continue;
        const bool in_cells = step->op.in_cells >> i % 2 & 1;
        const bool begins = step->op.begins >> i % 2 & 1;
        if (!in_cells || !was_in_cells || begins)
            at++;
        was_in_cells = in_cells;
        mnp_arena_live(p->graph, step->node, at, p->allocations);
    }
    return mnp_arena_place(p->dev->plugin->host, p->graph, p->symbol_max, MNC_ALIGN, p->allocations,
                           &p->arena_bytes, err);
}

/* Bytes up to a multiple of MNC_ALIGN, so that what lies behind begins aligned. */
static uint64_t program_round_up(uint64_t n) {
    return (n + MNC_ALIGN - 1) / MNC_ALIGN * MNC_ALIGN;
}

/* Nodes that need shared scratch take the areas of it in turn. */
static void share_scratch(mn_program *p) {
    const uint64_t area = program_round_up(p->shared_bytes);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        mnc_step *step = &p->steps[i];
        if (!step->op.shared_bytes)
            continue;
        step->shared_at = n % MNC_SHARED * area;
        n++;
    }
    p->shared_bytes = MNC_SHARED * area;
}

/* A program without weights: for estimate and compile. */
static mn_status program_plan(mn_device *d, const mn_compile *in, mn_program **out, mn_error *err) {
    mn_compile c;
    mn_status s = mnc_read_compile(in, &c, err);
    if (s)
        return s;
    const mn_graph *g = c.graph;
    mn_program *p = mnc_new(d, sizeof *p);
    if (!p)
        return mnp_fail_memory(err, sizeof *p, "a program");
    *p = (mn_program){.dev = d,
                      .graph = g,
                      .lo = c.node_lo,
                      .hi = c.node_hi,
                      .n_sets = c.n_sets,
                      .updates = c.flags & MN_COMPILE_UPDATES,
                      .precision = mnc_precision(d, &c),
                      .n_workers = d->plugin->host->workers(d->plugin->host->self)};
    if (!p->n_workers)
        p->n_workers = 1;
    p->symbol_max = mnc_new(d, (uint64_t)g->n_symbols * sizeof *p->symbol_max);
    p->steps = mnc_new(d, (uint64_t)(p->hi - p->lo) * sizeof *p->steps);
    p->allocations = mnc_new(d, (uint64_t)g->n_tensors * sizeof *p->allocations);
    p->kept = mnc_new(d, (uint64_t)g->n_tensors * sizeof *p->kept);
    if (!p->symbol_max || !p->steps || !p->allocations || !p->kept) {
        s = mnp_fail_memory(err, (p->hi - p->lo) * sizeof *p->steps, "a program");
        goto fail;
    }
    s = mnp_symbols(g, c.symbol_max, NULL, p->symbol_max, err);
    if (!s)
        s = program_prepare(&c, p, err);
    if (!s)
        s = program_place(p, err);
    if (s)
        goto fail;
    p->arena_bytes = program_round_up(p->arena_bytes);
    share_scratch(p);
    p->worker_bytes = program_round_up(p->worker_bytes);
    *out = p;
    return MN_OK;
fail:
    mnc_program_free(p);
    return s;
}

/* Bytes of the segment's weights, each counted once; a table of EMBED or LOOKUP is read by rows
 * and counts nothing. */
static mn_status program_weight_bytes(const mn_program *p, uint64_t *sum, mn_error *err) {
    const mn_graph *g = p->graph;
    bool *seen = mnc_new(p->dev, g->n_tensors * sizeof *seen);
    uint64_t bytes;
    *sum = 0;
    if (!seen)
        return mnp_fail_memory(err, g->n_tensors * sizeof *seen, "an estimate");
    mnp_cursor at = {p->lo, 0};
    uint32_t node;
    for (int32_t t; (t = mnp_next_weight(g, p->hi, &at, &node)) >= 0;) {
        if (seen[t])
            continue;
        if (mnp_reads_rows(mnp_node(g, node)->op))
            continue;
        seen[t] = true;
        if (mnp_bytes(g, mnp_tensor(g, (uint32_t)t), p->symbol_max, &bytes))
            *sum += bytes;
    }
    mnc_delete(p->dev, seen);
    return MN_OK;
}

/* Of a set that may be updated: copies of all its weights, and one more of the largest, which is
 * there beside the old one for a moment. */
static mn_status program_copied_bytes(const mn_program *p, mn_estimate *e, mn_error *err) {
    const mn_graph *g = p->graph;
    bool *seen = mnc_new(p->dev, g->n_tensors * sizeof *seen);
    uint64_t most = 0;
    if (!seen)
        return mnp_fail_memory(err, g->n_tensors * sizeof *seen, "an estimate");
    mnp_cursor at = {p->lo, 0};
    uint32_t node;
    for (int32_t t; (t = mnp_next_weight(g, p->hi, &at, &node)) >= 0;) {
        if (seen[t])
            continue;
        seen[t] = true;
        const uint64_t bytes = mnc_copied_bytes(g, mnp_tensor(g, (uint32_t)t));
        e->weights += bytes;
        if (bytes > most)
            most = bytes;
    }
    e->import_peak += most;
    mnc_delete(p->dev, seen);
    return MN_OK;
}

/* Plans as compile does, without weights; the rates are those that the plugin has measured, if
 * any. */
mn_status mnc_estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    const mnc_ops *ops = d->plugin->ops;
    mn_program *p;
    mn_status s = program_plan(d, c, &p, err);
    if (s)
        return s;
    uint64_t weights;
    s = program_weight_bytes(p, &weights, err);
    if (s) {
        mnc_program_free(p);
        return s;
    }
    uint64_t *bytes = mnc_new(d, p->graph->n_tensors * sizeof *bytes);
    if (!bytes) {
        s = mnp_fail_memory(err, p->graph->n_tensors * sizeof *bytes, "an estimate");
        mnc_program_free(p);
        return s;
    }
    const uint64_t repacked = mnc_repacked_bytes(d, p->graph, p->lo, p->hi, p->precision, bytes);
    mnc_delete(d, bytes);
    double gbps = ops->gbps ? ops->gbps(d->plugin->self) : 0;
    mn_estimate e = {.size = sizeof e, .precision = p->precision, .row_grain = 1};
    if (p->precision == MN_PRECISION_EXACT)
        e.flags = MN_ESTIMATE_DETERMINISTIC;
    e.weights = repacked;
    e.import_peak = repacked;
    e.scratch =
        p->arena_bytes + p->shared_bytes + p->n_workers * p->worker_bytes +
        p->n_sets * (p->n_steps * sizeof(mnc_call) + p->graph->n_tensors * sizeof(mn_binding));
    if (gbps > 0) {
        e.decode_us = (double)weights / gbps * 1e-3;
        /* a weight read from memory serves about 16 tokens before compute is the limit */
        e.prefill_us = e.decode_us * 512 / 16;
    }
    if (p->updates)
        s = program_copied_bytes(p, &e, err);
    mnc_program_free(p);
    if (!s)
        mnp_fill(out, &e, sizeof e);
    return s;
}

static bool reads_residents(const mn_graph *g, uint32_t node) {
    const mn_node *n = mnp_node(g, node);
    return n->op == MN_OP_MOE_LINEAR && mnp_in(g, n, mnp_resident_operand(n)) >= 0;
}

/* Finds what the program's nodes read in the weight set, which may have been opened for another
 * graph. */
static mn_status program_find_weights(mn_program *p, const mn_weights *w, mn_error *err) {
    const mn_graph *g = p->graph;
    mnp_cursor at = {p->lo, 0};
    uint32_t node;
    for (;;) {
        const int32_t t = mnp_next_weight(g, p->hi, &at, &node);
        if (t < 0)
            return MN_OK;
        int32_t found = -1;
        if (w)
            found = mnp_find_weight(w->graph, g, (uint32_t)t);
        if (found < 0 || !w->kept[found].put)
            return mnp_fail(err, w && w->graph != g ? MN_UNSUPPORTED : MN_INVALID, node,
                            "node %u: weight %.*s is not in the weight set", node,
                            MNP_NAME(mnp_tensor(g, (uint32_t)t)));
        if (w->kept[found].room && !reads_residents(g, node))
            return mnp_fail(err, MN_INVALID, node,
                            "node %u: weight %.*s has room for some of its experts, and the node "
                            "does not say which are there (RESIDENT)",
                            node, MNP_NAME(mnp_tensor(g, (uint32_t)t)));
        p->kept[t] = &w->kept[found];
    }
}

/* The program keeps pointers into the weight set and into the graph; both outlive it. */
mn_status mnc_compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    mn_program *p;
    mn_status st = program_plan(d, c, &p, err);
    if (st)
        return st;
    st = program_find_weights(p, c->weights, err);
    if (st)
        mnc_program_free(p);
    else
        *out = p;
    return st;
}

/* Also of a program that plan left half made. Weights and graph are not the program's. */
void mnc_program_free(mn_program *p) {
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_steps; i++)
        if (p->steps[i].op.owns_user)
            mnc_delete(p->dev, p->steps[i].op.user);
    mnc_delete(p->dev, p->symbol_max);
    mnc_delete(p->dev, p->steps);
    mnc_delete(p->dev, p->allocations);
    mnc_delete(p->dev, p->kept);
    mnc_delete(p->dev, p);
}

/* Compiling is cheap here: there is nothing worth keeping in a file. */
mn_status mnc_program_save(const mn_program *p, void *dst, uint64_t *bytes) {
    (void)p;
    (void)dst;
    (void)bytes;
    return MN_UNSUPPORTED;
}
