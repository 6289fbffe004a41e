/* program.c -- a segment as units (common/units.c), where its tensors lie, and what kernels need
 * beside them. A program belongs to its device; it reads the weight set's entries, which outlive
 * it. */
#include "gpu_table.h"
#include "state_nodes.h"

/* ---- units ----------------------------------------------------------------------------------- */
static mng_unit unit_of(const mng_backend *b, const mnp_unit *m) {
    const mnp_taken t = mnp_taken_in(m);
    mng_unit u = {.node = m->node,
                  .gather = t.gather,
                  .norm = t.norm,
                  .rope_q = t.rope_q,
                  .rope_k = t.rope_k,
                  .add = t.add,
                  .glu = t.glu,
                  .with = -1};
    if (b->unit_of)
        b->unit_of(m, &u);
    return u;
}

/* Of a node with a table by distances. */
static mn_status find_distances(const mng_program *p, mng_unit *u, mn_error *err) {
    const mn_node *n = mnp_node(p->graph, u->node);
    if (n->op != MN_OP_ATTENTION || !mnp_has_distances(p->graph, n))
        return MN_OK;
    u->distances = mng_new(p->dev, sizeof *u->distances);
    if (!u->distances)
        return mnp_fail_memory(err, sizeof *u->distances, "buckets of distances");
    mnp_distances_of(p->graph, n, u->distances);
    return MN_OK;
}

/* Where the pages of caches and states have what each unit stores; what it knows of distances. */
static mn_status find_memory(const mn_compile *c, mng_program *p, mn_error *err) {
    const mnp_kv_rules *rules = &mng_backend_of(p->dev)->limits.kv;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < p->n_units && !st; i++) {
        mng_unit *u = &p->units[i];
        const mn_node *n = mnp_node(p->graph, u->node);
        mnp_memory_node at;
        if (mnp_has_state(n->op))
            st = mnp_state_of_node(c, u->node, &u->state, err);
        else if (mnp_memory_node_of(n, &at))
            st = mnp_kv_of_node(c, u->node, p->precision, rules, &u->kv, err);
        if (!st)
            st = find_distances(p, u, err);
    }
    return st;
}

/* log: as in mnp_lower. */
static mn_status lower(const mn_compile *c, mn_program *prog, const mn_host *log, mn_error *err) {
    mng_program *p = mng_program_of(prog);
    const mng_backend *b = mng_backend_of(p->dev);
    const mnp_lowering l = {p->graph, p->lo, p->hi, p->uses};
    const uint64_t bytes = (p->hi - p->lo) * sizeof(mnp_unit);
    const mn_host *h = mng_device_of(p->dev)->host;
    uint32_t n_patterns = 0;
    const mnp_pattern *const *patterns = b->patterns ? b->patterns(p->dev, &n_patterns) : NULL;
    mnp_unit *units = mnp_new(h, bytes);
    if (!units)
        return mnp_fail_memory(err, bytes, "fused units");
    mnp_count_uses(p->graph, p->lo, p->hi, p->uses);
    if (b->program_uses)
        b->program_uses(prog);
    mn_status st = mnp_lower(h, &l, patterns, n_patterns, log, units, &p->n_units, err);
    for (uint32_t i = 0; i < p->n_units && !st; i++)
        p->units[i] = unit_of(b, &units[i]);
    if (!st)
        st = find_memory(c, p, err);
    if (!st && b->program_lowered)
        st = b->program_lowered(prog, units, err);
    mnp_delete(h, units);
    return st;
}

int32_t mng_memory_tensor(const mng_program *p, const mng_unit *u, uint64_t *page_bytes) {
    const mn_node *n = mnp_node(p->graph, u->node);
    mnp_memory_node at;
    if (!mnp_memory_node_of(n, &at))
        return -1;
    *page_bytes = mnp_has_state(n->op) ? u->state.page_bytes : u->kv.page_bytes;
    return mnp_in(p->graph, n, at.memory);
}

/* ---- memory ---------------------------------------------------------------------------------- */
uint64_t mng_reserve(mng_program *p, uint64_t bytes) {
    const uint64_t at = p->scratch;
    p->scratch += (uint64_t)mnp_round((int64_t)bytes, 256);
    return at;
}

uint64_t mng_kept_bytes(const mng_program *p) {
    const uint32_t kept = mng_backend_of(p->dev)->kept_needs;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < MNG_MAX_NEEDS; i++)
        if (kept >> i & 1)
            bytes += (uint64_t)mnp_round((int64_t)p->needs.bytes[i], 256);
    return bytes;
}

static void place_needs(mn_program *prog) {
    mng_program *p = mng_program_of(prog);
    const mng_backend *b = mng_backend_of(p->dev);
    if (b->program_needs)
        b->program_needs(prog, &p->needs);
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(p->graph, i);
        const mng_op *op = mng_op_of(b, n->op);
        if (op->needs)
            op->needs(prog, n, &p->needs);
    }
    p->scratch = (uint64_t)mnp_round((int64_t)p->arena, 256);
    for (uint32_t i = 0; i < MNG_MAX_NEEDS; i++)
        if (!(b->kept_needs >> i & 1))
            p->need_at[i] = mng_reserve(p, p->needs.bytes[i]);
}

static mn_status check_nodes(const mng_program *p, mn_error *err) {
    char text[128];
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const uint32_t why = mng_verdict(p->dev, p->graph, i);
        if (!why)
            continue;
        mng_reason_text(mng_backend_of(p->dev), why, text, sizeof text);
        return mnp_fail(err, MN_UNSUPPORTED, i, "node %u (op %u): %s", i, mnp_node(p->graph, i)->op,
                        text);
    }
    return MN_OK;
}

/* What a unit's nodes touch lives while it runs, at time i. */
static void unit_live(mn_program *prog, uint32_t i) {
    mng_program *p = mng_program_of(prog);
    const mng_unit *u = &p->units[i];
    const int32_t nodes[] = {(int32_t)u->node, u->gather, u->norm, u->rope_q,
                             u->rope_k,        u->add,    u->glu};
    for (uint32_t k = 0; k < sizeof nodes / sizeof *nodes; k++)
        if (nodes[k] >= 0)
            mnp_arena_live(p->graph, (uint32_t)nodes[k], (int32_t)i, p->allocations);
    if (mng_backend_of(p->dev)->program_live)
        mng_backend_of(p->dev)->program_live(prog, i);
}

static mn_status plan(const mn_compile *c, mn_program *prog, const mn_host *log, mn_error *err) {
    mng_program *p = mng_program_of(prog);
    mn_status st = check_nodes(p, err);
    if (!st)
        st = lower(c, prog, log, err);
    if (st)
        return st;
    mnp_arena_begin(p->graph, p->allocations);
    for (uint32_t i = 0; i < p->n_units; i++)
        unit_live(prog, i);
    st = mnp_arena_place(mng_device_of(p->dev)->host, p->graph, p->symbol_max, 256, p->allocations,
                         &p->arena, err);
    if (st)
        return st;
    place_needs(prog);
    return mng_place_views(p, err);
}

static bool program_alloc(mng_program *p) {
    const mn_device *d = p->dev;
    const mn_graph *g = p->graph;
    p->symbol_max = mng_new(d, g->n_symbols * sizeof *p->symbol_max);
    p->units = mng_new(d, (p->hi - p->lo) * sizeof *p->units);
    p->allocations = mng_new(d, g->n_tensors * sizeof *p->allocations);
    p->uses = mng_new(d, g->n_tensors * sizeof *p->uses);
    p->dense = mng_new(d, g->n_tensors * sizeof *p->dense);
    p->w = mng_new(d, g->n_tensors * sizeof *p->w);
    return p->symbol_max && p->units && p->allocations && p->uses && p->dense && p->w;
}

/* A program without weights: for estimate and compile. log: as in mnp_lower. */
static mn_status make_program(mn_device *d, const void *as, const mn_compile *in,
                              const mn_host *log, mn_program **out, mn_error *err) {
    const mng_backend *b = mng_backend_of(d);
    mn_compile c;
    mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    mn_program *prog = mng_new(d, b->program_bytes);
    if (!prog)
        return mnp_fail_memory(err, b->program_bytes, "a program");
    mng_program *p = mng_program_of(prog);
    p->dev = d;
    p->graph = c.graph;
    p->lo = c.node_lo;
    p->hi = c.node_hi;
    p->flags = (uint32_t)c.flags;
    p->n_sets = c.n_sets;
    p->precision = mng_precision(b, &c);
    if (!program_alloc(p))
        st = mnp_fail_memory(err, c.graph->n_tensors * sizeof *p->allocations, "a program");
    if (!st && b->program_begin)
        st = b->program_begin(prog, &c, as, err);
    if (!st)
        st = mnp_symbols(c.graph, c.symbol_max, NULL, p->symbol_max, err);
    if (!st)
        st = plan(&c, prog, log, err);
    if (st)
        mng_program_free(prog);
    else
        *out = prog;
    return st;
}

void mng_program_free(mn_program *prog) {
    if (!prog)
        return;
    mng_program *p = mng_program_of(prog);
    mn_device *d = p->dev;
    if (mng_backend_of(d)->program_free)
        mng_backend_of(d)->program_free(prog);
    mng_delete(d, p->symbol_max);
    for (uint32_t i = 0; p->units && i < p->n_units; i++)
        mng_delete(d, p->units[i].distances);
    mng_delete(d, p->units);
    mng_delete(d, p->allocations);
    mng_delete(d, p->uses);
    mng_delete(d, p->dense);
    mng_delete(d, p->w);
    mng_delete(d, prog);
}

/* ---- estimates ------------------------------------------------------------------------------- */
/* Whether a node of the segment reads the weight as a matrix. share: of its bytes that a step of
 * one row reads: all, but few rows of a table, or a few experts. */
static bool is_matrix(const mng_program *p, int32_t t, double *share) {
    bool matrix = false;
    *share = 0;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(p->graph, i);
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (mnp_in(p->graph, n, k) != t)
                continue;
            double part = mnp_reads_rows(n->op) ? 0 : 1;
            if (n->op == MN_OP_MOE_LINEAR && mng_is_matrix(n, k)) {
                const mn_tensor *e = mnp_in_tensor(p->graph, n, MN_MOE_LINEAR_EXPERTS);
                part = (double)e->dim[1] / (double)mnp_tensor(p->graph, (uint32_t)t)->dim[0];
            }
            *share = part > *share ? part : *share;
            matrix = matrix || mng_is_matrix(n, k);
        }
    }
    return matrix;
}

/* Of all weights of the segment; streamed: what a step of one row reads. */
static uint64_t weight_bytes(const mng_program *p, double *streamed) {
    uint64_t sum = 0;
    *streamed = 0;
    for (uint32_t t = 0; t < p->graph->n_tensors; t++) {
        const mn_tensor *x = mnp_tensor(p->graph, t);
        double share;
        if (x->role != MN_ROLE_WEIGHT || !p->uses[t].reads || !x->dtype.block_elems)
            continue;
        const bool matrix = is_matrix(p, (int32_t)t, &share);
        const uint64_t bytes = mng_weight_bytes(p->dev, x, matrix) + 256;
        sum += bytes;
        *streamed += share * (double)bytes;
    }
    return sum;
}

mn_status mng_estimate_as(mn_device *d, const void *as, const mn_compile *c, mn_estimate *out,
                          mn_error *err) {
    const mng_backend *b = mng_backend_of(d);
    mn_program *prog;
    const mn_status st = make_program(d, as, c, NULL, &prog, err);
    if (st)
        return st;
    const mng_program *p = mng_program_of(prog);
    double streamed;
    mn_estimate e = {.size = sizeof e, .precision = p->precision};
    e.weights = weight_bytes(p, &streamed);
    e.scratch = mng_kept_bytes(p) + p->scratch + b->limits.slack;
    e.host_pinned = (uint64_t)mng_segments(b) * MNG_SEGMENT_BYTES;
    if (p->precision == MN_PRECISION_EXACT)
        e.flags |= MN_ESTIMATE_DETERMINISTIC;
    if (b->estimate)
        b->estimate(prog, streamed, &e);
    mng_program_free(prog);
    mnp_fill(out, &e, sizeof e);
    return MN_OK;
}

mn_status mng_estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    return mng_estimate_as(d, NULL, c, out, err);
}

/* ---- with weights ---------------------------------------------------------------------------- */
/* Finds what the program's nodes read in the weight set, which may have been opened for another
 * graph. */
static mn_status take_weights(mng_program *p, const mn_weights *w, mn_error *err) {
    mnp_cursor at = {p->lo, 0};
    uint32_t node;
    const mn_status st = w ? mng_check_device(p->dev, w->dev, "a weight set", err) : MN_OK;
    if (st)
        return st;
    for (;;) {
        const int32_t t = mnp_next_weight(p->graph, p->hi, &at, &node);
        if (t < 0)
            return MN_OK;
        int32_t found = -1;
        if (w)
            found = mnp_find_weight(w->graph, p->graph, (uint32_t)t);
        if (found < 0 || !w->w[found].put)
            return mnp_fail(err, w && w->graph != p->graph ? MN_UNSUPPORTED : MN_INVALID, node,
                            "node %u: weight %.*s is not in the weight set", node,
                            MNP_NAME(mnp_tensor(p->graph, (uint32_t)t)));
        p->w[t] = &w->w[found];
    }
}

mn_status mng_compile_as(mn_device *d, const void *as, const mn_compile *c, mn_program **out,
                         mn_error *err) {
    mn_program *p;
    mn_status st = make_program(d, as, c, mng_device_of(d)->host, &p, err);
    if (st)
        return st;
    st = take_weights(mng_program_of(p), c->weights, err);
    if (st)
        mng_program_free(p);
    else
        *out = p;
    return st;
}

mn_status mng_compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    return mng_compile_as(d, NULL, c, out, err);
}

/* The vendor's compiler is what costs time, and its results do not belong to one program. */
mn_status mng_program_save(const mn_program *p, void *dst, uint64_t *bytes) {
    (void)p;
    (void)dst;
    (void)bytes;
    return MN_UNSUPPORTED;
}
