/* program.c -- a segment as units (common/units.c), where its tensors lie, and what kernels need
 * beside them. A program belongs to its device; it reads the weight set's entries, which outlive
 * it. */
#include "gemm.h"
#include "ops.h"
#include <stdlib.h>

/* ---- units ----------------------------------------------------------------------------------- */
static const mnp_pattern *const patterns[] = {&mnp_pattern_linear, &mnp_pattern_store,
                                              &mnp_pattern_moe_linear, &mnp_pattern_combine};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };

/* A unit of the lowering pass in the launches' terms. */
static cu_unit unit_of(const mnp_unit *m) {
    const mnp_taken t = mnp_taken_in(m);
    cu_unit u = {m->node, -1, -1, -1, -1, -1, -1, {0}};
    u.norm = t.norm;
    u.gather = t.gather;
    u.epi = t.add >= 0 ? t.add : t.glu;
    u.rope_q = t.rope_q;
    u.rope_k = t.rope_k;
    return u;
}

/* Links a store with the later unit of the attention that may take it in: of caches all f32 or all
 * f16. */
static void link_attention(mn_program *p, uint32_t store, int32_t attention) {
    for (uint32_t i = store + 1; i < p->n_units && attention >= 0; i++) {
        if (p->units[i].node == (uint32_t)attention) {
            p->units[i].with = store;
            p->units[store].with = i;
        }
    }
}

static mn_status lower(mn_program *p, const mn_host *log, mn_error *err) {
    const mn_host *h = p->dev->plugin->host;
    const mnp_lowering l = {p->graph, p->lo, p->hi, p->uses};
    mnp_unit *units = mnp_new(h, (p->hi - p->lo) * sizeof *units);
    if (!units)
        return mnp_fail_memory(err, (p->hi - p->lo) * sizeof *units, "fused units");
    mnp_count_uses(p->graph, p->lo, p->hi, p->uses);
    if (p->plan)
        mnp_shard_uses(p->plan, p->uses);
    mn_status st = mnp_lower(h, &l, patterns, N_PATTERNS, log, units, &p->n_units, err);
    for (uint32_t i = 0; i < p->n_units && !st; i++)
        p->units[i] = unit_of(&units[i]);
    const bool floats = p->kv_types.k != MN_Q8_0 && p->kv_types.k == p->kv_types.v;
    for (uint32_t i = 0; i < p->n_units && !st && floats; i++) {
        if (units[i].pattern == &mnp_pattern_store)
            link_attention(p, i, units[i].part[MNP_STORE_ATTENTION]);
    }
    mnp_delete(h, units);
    return st;
}

static mn_status find_caches(mn_program *p, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < p->n_units && !st; i++) {
        const uint32_t op = mnp_node(p->graph, p->units[i].node)->op;
        if (op == MN_OP_KV_STORE || op == MN_OP_ATTENTION) {
            cu_unit *u = &p->units[i];
            st = mnp_kv_of_node(p->graph, p->lo, p->hi, u->node, p->kv_types, &cu_kv_rules, &u->kv,
                                err);
        }
    }
    return st;
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* How matrix units want x of a product, if it reads tensor t as x, all its weights agree, and rows
 * need no padding; else 0. With experts one row goes to matrix units, too. */
static uint8_t half_of(const mn_graph *g, const mn_node *n, int32_t t) {
    const bool experts = n->op == MN_OP_MOE_LINEAR;
    const uint32_t first = experts ? (uint32_t)MN_MOE_LINEAR_WEIGHT : (uint32_t)MN_LINEAR_WEIGHT;
    if ((n->op != MN_OP_LINEAR && !experts) || mnp_in(g, n, 0) != t)
        return 0;
    const mn_tensor *w = mnp_in_tensor(g, n, first);
    const int half = cu_type_of(w->dtype.id)->half;
    const uint32_t n_dim = mnp_tensor(g, t)->n_dim;
    if (w->dim[w->n_dim - 1] % CU_K_ALIGN || (experts && n_dim != 3))
        return 0;
    for (uint32_t i = 1; i < n->n_out; i++) {
        const mn_tensor *other = mnp_in_tensor(g, n, first + 2 * i);
        if (cu_type_of(other->dtype.id)->half != half)
            return 0;
    }
    if (half == CU_F32 || !experts)
        return (uint8_t)half;
    const int always = cu_type_of(w->dtype.id)->import ? 0 : CU_ALWAYS;
    return (uint8_t)(half | CU_PAIRS | always);
}

/* Tensors that only products of matrix units read. */
static void choose_half(mn_program *p) {
    const mn_graph *g = p->graph;
    const mnp_lowering l = {g, p->lo, p->hi, p->uses};
    if (!cu_rounds(p))
        return;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(g, i);
        const int32_t y = mnp_out(g, n, 0);
        if (n->op != MN_OP_ATTENTION && n->op != MN_OP_RMS_NORM && n->op != MN_OP_GLU)
            continue;
        if (n->n_out == 1 && mnp_is_private(&l, y)) {
            const mn_node *reader = mnp_node(g, (uint32_t)p->uses[y].reader);
            p->half[y] = half_of(g, reader, y);
        }
    }
}

/* What a unit's nodes touch lives while it runs, at time i; a store that an attention may take in
 * lives until then, too, and what a router's norm may run lives from then on. */
static void unit_live(mn_program *p, uint32_t i) {
    const cu_unit *u = &p->units[i];
    const int32_t nodes[] = {(int32_t)u->node, u->gather, u->norm, u->epi, u->rope_q, u->rope_k};
    for (uint32_t k = 0; k < sizeof nodes / sizeof *nodes; k++) {
        const int32_t n = nodes[k];
        if (n < 0)
            continue;
        mnp_arena_live(p->graph, (uint32_t)n, (int32_t)i, p->allocations);
        if (u->with > (int32_t)i)
            mnp_arena_live(p->graph, (uint32_t)n, u->with, p->allocations);
    }
    for (uint32_t k = 1; k <= 2 && cu_is_router(p, i); k++)
        mnp_arena_live(p->graph, u[k].node, (int32_t)i, p->allocations);
}

uint64_t cu_reserve(mn_program *p, uint64_t bytes) {
    const uint64_t at = p->scratch;
    p->scratch += (uint64_t)mnp_round((int64_t)bytes, 256);
    return at;
}

/* Long caches are attended in splits of so many positions, summed up at the end: one length for all
 * KV groups, by the one with the longest rows of PAGES. */
static void choose_splits(mn_program *p) {
    int64_t most = 0;
    for (uint32_t i = 0; i < p->n_units; i++) {
        const mn_node *n = mnp_node(p->graph, p->units[i].node);
        if (n->op != MN_OP_ATTENTION)
            continue;
        const mn_tensor *pages = mnp_in_tensor(p->graph, n, MN_ATTENTION_PAGES);
        const int64_t positions = mnp_dim(p->graph, p->symbol_max, pages->dim[1]) * CU_PAGE_TOKENS;
        most = positions > most ? positions : most;
    }
    p->split = most > 8192 ? 1024 : 256;
    p->max_splits = (int)((most + p->split - 1) / p->split);
}

/* What kernels need beside tensors. */
static void extras(mn_program *p) {
    cu_needs needs = {0};
    choose_splits(p);
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(p->graph, i);
        const cu_op *op = cu_op_of(n->op);
        if (op->needs)
            op->needs(p, n, &needs);
    }
    p->scratch = (uint64_t)mnp_round((int64_t)p->arena, 256);
    p->half_at = cu_reserve(p, needs.half);
    p->partial_at = cu_reserve(p, needs.partial);
    p->arrived_at = cu_reserve(p, needs.arrived);
    p->tile_sums_at = cu_reserve(p, needs.tile_sums);
    p->tiles_arrived_at = cu_reserve(p, needs.tiles_arrived);
    p->ids_at = cu_reserve(p, needs.ids);
    p->adjusted_at = cu_reserve(p, needs.logits);
    p->count_at = cu_reserve(p, needs.logits);
    p->pairs_at = cu_reserve(p, needs.pairs);
    p->wide_at = cu_reserve(p, needs.wide);
    p->wide_bytes = needs.wide;
    p->sorted_x_at = cu_reserve(p, needs.sorted_x);
    p->sorted_y_at = cu_reserve(p, needs.sorted_y);
    p->gemm_at = cu_reserve(p, cu_gemm_scratch(&p->dev->card));
}

static mn_status check_nodes(const mn_program *p, mn_error *err) {
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const uint32_t why = cu_verdict(p->dev, p->graph, i);
        if (why) {
            return mnp_fail(err, MN_UNSUPPORTED, i, "node %u (op %u): %s", i,
                            mnp_node(p->graph, i)->op, cu_reason_text(why));
        }
    }
    return MN_OK;
}

static mn_status plan(mn_program *p, const mn_host *log, mn_error *err) {
    mn_status st = check_nodes(p, err);
    if (!st)
        st = lower(p, log, err);
    if (!st)
        st = find_caches(p, err);
    if (!st && p->plan)
        st = cu_find_stops(p, err);
    if (st)
        return st;
    choose_half(p);
    mnp_arena_begin(p->graph, p->allocations);
    for (uint32_t i = 0; i < p->n_units; i++)
        unit_live(p, i);
    cu_stops_live(p);
    st = mnp_arena_place(p->dev->plugin->host, p->graph, p->symbol_max, 256, p->allocations,
                         &p->arena, err);
    if (st)
        return st;
    extras(p);
    return cu_place_views(p, err);
}

/* The symbol that says whether each sequence of a step has one row; -1 = none. */
static int32_t find_seq_rows(const mn_graph *g) {
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        const mn_symbol *s = mnp_symbol(g, i);
        if (s->kind == MN_SYMBOL_FACT && !strncmp(s->name, "seq_rows", sizeof s->name))
            return i;
    }
    return -1;
}

/* A program without weights: for estimate and compile. log: as in mnp_lower. */
static mn_status program_make(mn_device *d, const cu_member *of, const mn_compile *in,
                              const mn_host *log, mn_program **out, mn_error *err) {
    mn_compile c;
    mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    const mn_graph *g = c.graph;
    mn_program *p = cu_new(d, sizeof *p);
    if (!p)
        return mnp_fail_memory(err, sizeof *p, "a program");
    p->dev = d;
    p->graph = g;
    p->lo = c.node_lo;
    p->hi = c.node_hi;
    p->seq_rows = find_seq_rows(g);
    if (of) {
        p->plan = of->plan;
        p->rank = of->rank;
    }
    p->flags = (uint32_t)c.flags;
    p->precision = cu_precision(&c);
    p->kv_types = mnp_kv_types_of(&c, p->precision);
    p->symbol_max = cu_new(d, g->n_symbols * sizeof *p->symbol_max);
    p->units = cu_new(d, (p->hi - p->lo) * sizeof *p->units);
    p->allocations = cu_new(d, g->n_tensors * sizeof *p->allocations);
    p->uses = cu_new(d, g->n_tensors * sizeof *p->uses);
    p->half = cu_new(d, g->n_tensors);
    p->dense = cu_new(d, g->n_tensors * sizeof *p->dense);
    p->w = cu_new(d, g->n_tensors * sizeof *p->w);
    const bool units_there = p->symbol_max && p->units;
    const bool tensors_there = p->allocations && p->uses && p->half && p->dense && p->w;
    if (!units_there || !tensors_there)
        st = mnp_fail_memory(err, g->n_tensors * sizeof *p->allocations, "a program");
    if (!st)
        st = mnp_symbols(g, c.symbol_max, NULL, p->symbol_max, err);
    if (!st)
        st = plan(p, log, err);
    if (st)
        cu_program_free(p);
    else
        *out = p;
    return st;
}

/* Whether a node of the segment reads the weight as a matrix, and whether one reads all of it, not
 * a few rows of a table or a few experts. share: of its bytes that a step of one row reads. */
static bool is_matrix(const mn_program *p, int32_t t, double *share) {
    bool matrix = false;
    *share = 0;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(p->graph, i);
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (mnp_in(p->graph, n, k) != t)
                continue;
            double part = n->op == MN_OP_EMBED ? 0 : 1;
            if (n->op == MN_OP_MOE_LINEAR && cu_is_matrix(n, k)) {
                const mn_tensor *e = mnp_in_tensor(p->graph, n, MN_MOE_LINEAR_EXPERTS);
                part = (double)e->dim[1] / (double)mnp_tensor(p->graph, t)->dim[0];
            }
            *share = part > *share ? part : *share;
            matrix = matrix || cu_is_matrix(n, k);
        }
    }
    return matrix;
}

/* Of all weights of the segment; streamed: what a step of one row reads. */
static uint64_t weight_bytes(const mn_program *p, double *streamed) {
    uint64_t sum = 0;
    *streamed = 0;
    for (uint32_t t = 0; t < p->graph->n_tensors; t++) {
        const mn_tensor *x = mnp_tensor(p->graph, t);
        double share;
        if (x->role != MN_ROLE_WEIGHT || !p->uses[t].reads || !x->dtype.block_elems)
            continue;
        const bool matrix = is_matrix(p, (int32_t)t, &share);
        const uint64_t bytes = cu_weight_bytes(x, matrix) + 256;
        sum += bytes;
        *streamed += share * (double)bytes;
    }
    return sum;
}

/* Queues that may import at once (MN_DEVICE_PARALLEL_PUT): each has a staging area of its own. */
static uint32_t importers(const mn_device *d) {
    const mn_host *h = d->plugin->host;
    if (!MN_HAS(mn_host, h, workers))
        return 1;
    const uint32_t n = h->workers(h->self);
    return n ? n : 1;
}

/* What measurements said of one H200: about half of the bandwidth, 2 us a unit; a prompt of 512
 * rows on matrix units. */
mn_status cu_estimate_as(mn_device *d, const cu_member *of, const mn_compile *c, mn_estimate *out,
                         mn_error *err) {
    mn_program *p;
    mn_status st = program_make(d, of, c, NULL, &p, err);
    if (st)
        return st;
    double streamed;
    mn_estimate e = {0};
    e.size = sizeof e;
    e.precision = p->precision;
    e.weights = weight_bytes(p, &streamed);
    e.scratch = p->scratch + CU_SLACK;
    e.host_pinned = (uint64_t)CU_SEGMENTS * CU_SEGMENT_BYTES;
    e.import_peak = (uint64_t)CU_STAGE_BYTES * importers(d);
    const double gbps = d->gbps > 0 ? d->gbps : 500;
    const double launches_us = 2.0 * p->n_units;
    e.decode_us = streamed / (gbps * 0.5) * 1e-3 + launches_us;
    e.prefill_us = e.decode_us * (p->precision == MN_PRECISION_EXACT ? 100 : 16);
    e.row_grain = 8; /* rows of x go by eight, on the matrix units and off them */
    if (p->precision == MN_PRECISION_EXACT)
        e.flags |= MN_ESTIMATE_DETERMINISTIC;
    cu_program_free(p);
    mnp_fill(out, &e, sizeof e);
    return MN_OK;
}

/* Finds what the program's nodes read in the weight set, which may have been opened for another
 * graph. */
static mn_status find_weights(mn_program *p, const mn_weights *w, mn_error *err) {
    mnp_cursor at = {p->lo, 0};
    uint32_t node;
    for (int32_t t; (t = mnp_next_weight(p->graph, p->hi, &at, &node)) >= 0;) {
        const int32_t in_set = w ? mnp_find_weight(w->graph, p->graph, (uint32_t)t) : -1;
        if (in_set < 0 || !w->w[in_set].put) {
            return mnp_fail(err, w && w->graph != p->graph ? MN_UNSUPPORTED : MN_INVALID, node,
                            "node %u: weight %.*s is not in the weight set", node,
                            MNP_NAME(mnp_tensor(p->graph, t)));
        }
        p->w[t] = &w->w[in_set];
    }
    return MN_OK;
}

mn_status cu_estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    return cu_estimate_as(d, NULL, c, out, err);
}

mn_status cu_compile_as(mn_device *d, const cu_member *of, const mn_compile *c, mn_program **out,
                        mn_error *err) {
    mn_program *p;
    mn_status s = program_make(d, of, c, d->plugin->host, &p, err);
    if (s)
        return s;
    s = find_weights(p, c->weights, err);
    if (s)
        cu_program_free(p);
    else
        *out = p;
    return s;
}

mn_status cu_compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    return cu_compile_as(d, NULL, c, out, err);
}

void cu_program_free(mn_program *p) {
    if (!p)
        return;
    cu_delete(p->dev, p->symbol_max);
    cu_delete(p->dev, p->units);
    cu_delete(p->dev, p->stops);
    cu_delete(p->dev, p->allocations);
    cu_delete(p->dev, p->uses);
    cu_delete(p->dev, p->half);
    cu_delete(p->dev, p->dense);
    cu_delete(p->dev, p->w);
    cu_delete(p->dev, p);
}

mn_status cu_program_save(const mn_program *p, void *dst, uint64_t *bytes) {
    return (void)p, (void)dst, (void)bytes, MN_UNSUPPORTED;
}
