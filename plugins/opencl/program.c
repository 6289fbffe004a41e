/* program.c -- a segment as units (common/units.c), where its tensors lie, and what kernels need
 * beside them. A program belongs to its device; it reads the weight set's entries, which outlive
 * it. */
#include "ops.h"

/* ---- units ----------------------------------------------------------------------------------- */
static const char *refuse_several(const mnp_lowering *l, const mnp_unit *u, uint32_t node) {
    (void)node;
    if (mnp_node(l->g, u->node)->n_out == 1)
        return NULL;
    return "there are several products";
}

/* LINEAR [add], MOE_COMBINE [add]: the sum is made where the product is written. */
static const mnp_pattern linear_add = {.name = "linear",
                                       .op = MN_OP_LINEAR,
                                       .n_parts = 1,
                                       .parts = {{.name = "add",
                                                  .op = MN_OP_ADD,
                                                  .edge = MNP_READER,
                                                  .of = MNP_ANCHOR,
                                                  .refuse = refuse_several}}};
static const mnp_pattern *const patterns[] = {&linear_add, &mnp_pattern_combine};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };
/* Of a device with warps. */
static const mnp_pattern *const warp_patterns[] = {&mnp_pattern_linear, &mnp_pattern_moe_linear,
                                                   &mnp_pattern_combine, &mnp_pattern_store};
enum { N_WARP_PATTERNS = sizeof warp_patterns / sizeof *warp_patterns };

/* A unit of the lowering pass in the launches' terms. */
static ocl_unit unit_of(const mnp_unit *m) {
    const mnp_taken t = mnp_taken_in(m);
    ocl_unit u = {.node = m->node,
                  .add = t.add,
                  .glu = t.glu,
                  .norm = t.norm,
                  .gather = t.gather,
                  .rope_q = t.rope_q,
                  .rope_k = t.rope_k};
    if (m->pattern == &linear_add)
        u.add = m->part[0];
    return u;
}

static mn_status lower(mn_program *p, const mn_host *log, mn_error *err) {
    const mn_host *h = p->dev->plugin->host;
    const mnp_lowering l = {p->graph, p->lo, p->hi, p->uses};
    const uint64_t bytes = (p->hi - p->lo) * sizeof(mnp_unit);
    mnp_unit *units = mnp_new(h, bytes);
    if (!units)
        return mnp_fail_memory(err, bytes, "fused units");
    mnp_count_uses(p->graph, p->lo, p->hi, p->uses);
    mn_status st;
    if (p->dev->warps)
        st = mnp_lower(h, &l, warp_patterns, N_WARP_PATTERNS, log, units, &p->n_units, err);
    else
        st = mnp_lower(h, &l, patterns, N_PATTERNS, log, units, &p->n_units, err);
    for (uint32_t i = 0; i < p->n_units && !st; i++)
        p->units[i] = unit_of(&units[i]);
    mnp_delete(h, units);
    return st;
}

static mn_status find_caches(mn_program *p, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < p->n_units && !st; i++) {
        ocl_unit *u = &p->units[i];
        const uint32_t op = mnp_node(p->graph, u->node)->op;
        if (op == MN_OP_KV_STORE || op == MN_OP_ATTENTION)
            st = mnp_kv_of_node(p->graph, p->lo, p->hi, u->node, p->kv_types, &ocl_kv_rules, &u->kv,
                                err);
    }
    return st;
}

int32_t ocl_cache_of(const mn_program *p, const ocl_unit *u) {
    const mn_node *n = mnp_node(p->graph, u->node);
    if (n->op == MN_OP_KV_STORE)
        return mnp_in(p->graph, n, MN_KV_STORE_KV);
    if (n->op == MN_OP_ATTENTION)
        return mnp_in(p->graph, n, MN_ATTENTION_KV);
    return -1;
}

/* ---- memory ---------------------------------------------------------------------------------- */
uint64_t ocl_reserve(mn_program *p, uint64_t bytes) {
    const uint64_t at = p->scratch;
    p->scratch += (uint64_t)mnp_round((int64_t)bytes, 256);
    return at;
}

static void place_extras(mn_program *p) {
    ocl_needs needs = {0};
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(p->graph, i);
        const ocl_op *op = ocl_op_of(n->op);
        if (op->needs)
            op->needs(p, n, &needs);
    }
    p->scratch = (uint64_t)mnp_round((int64_t)p->arena, 256);
    p->ids_at = ocl_reserve(p, needs.ids);
    p->logits_at = ocl_reserve(p, needs.logits);
    p->mass_at = ocl_reserve(p, needs.mass);
}

static mn_status check_nodes(const mn_program *p, mn_error *err) {
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const uint32_t why = ocl_verdict(p->graph, i);
        if (why)
            return mnp_fail(err, MN_UNSUPPORTED, i, "node %u (op %u): %s", i,
                            mnp_node(p->graph, i)->op, ocl_reason_text(why));
    }
    return MN_OK;
}

static mn_status plan(mn_program *p, const mn_host *log, mn_error *err) {
    mn_status st = check_nodes(p, err);
    if (!st)
        st = lower(p, log, err);
    if (!st)
        st = find_caches(p, err);
    if (st)
        return st;
    mnp_arena_begin(p->graph, p->allocations);
    for (uint32_t i = 0; i < p->n_units; i++) {
        const ocl_unit *u = &p->units[i];
        int32_t nodes[OCL_UNIT_NODES];
        ocl_nodes_of(u, nodes);
        for (uint32_t k = 0; k < OCL_UNIT_NODES; k++)
            if (nodes[k] >= 0)
                mnp_arena_live(p->graph, (uint32_t)nodes[k], (int32_t)i, p->allocations);
    }
    st = mnp_arena_place(p->dev->plugin->host, p->graph, p->symbol_max, 256, p->allocations,
                         &p->arena, err);
    if (st)
        return st;
    place_extras(p);
    st = ocl_place_views(p, err);
    ocl_reserve(p, 1); /* kernels read whole vectors */
    return st;
}

static bool allocate(mn_program *p) {
    const mn_device *d = p->dev;
    const mn_graph *g = p->graph;
    p->symbol_max = ocl_new(d, g->n_symbols * sizeof *p->symbol_max);
    p->units = ocl_new(d, (p->hi - p->lo) * sizeof *p->units);
    p->allocations = ocl_new(d, g->n_tensors * sizeof *p->allocations);
    p->uses = ocl_new(d, g->n_tensors * sizeof *p->uses);
    p->dense = ocl_new(d, g->n_tensors * sizeof *p->dense);
    p->w = ocl_new(d, g->n_tensors * sizeof *p->w);
    return p->symbol_max && p->units && p->allocations && p->uses && p->dense && p->w;
}

/* A program without weights: for estimate and compile. log: as in mnp_lower. */
static mn_status make(mn_device *d, const mn_compile *in, const mn_host *log, mn_program **out,
                      mn_error *err) {
    mn_compile c;
    mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    mn_program *p = ocl_new(d, sizeof *p);
    if (!p)
        return mnp_fail_memory(err, sizeof *p, "a program");
    p->dev = d;
    p->graph = c.graph;
    p->lo = c.node_lo;
    p->hi = c.node_hi;
    p->kv_types = mnp_kv_types_of(&c, ocl_precision(&c));
    if (!allocate(p))
        st = mnp_fail_memory(err, c.graph->n_tensors * sizeof *p->allocations, "a program");
    if (!st)
        st = mnp_symbols(c.graph, c.symbol_max, NULL, p->symbol_max, err);
    if (!st)
        st = plan(p, log, err);
    if (st)
        ocl_program_free(p);
    else
        *out = p;
    return st;
}

void ocl_program_free(mn_program *p) {
    if (!p)
        return;
    ocl_delete(p->dev, p->symbol_max);
    ocl_delete(p->dev, p->units);
    ocl_delete(p->dev, p->allocations);
    ocl_delete(p->dev, p->uses);
    ocl_delete(p->dev, p->dense);
    ocl_delete(p->dev, p->w);
    ocl_delete(p->dev, p);
}

/* Whether a node of the segment reads the weight as a matrix. */
static bool is_matrix(const mn_program *p, int32_t t) {
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(p->graph, i);
        for (uint32_t k = 0; k < n->n_in; k++)
            if (mnp_in(p->graph, n, k) == t && ocl_is_matrix(n, k))
                return true;
    }
    return false;
}

static uint64_t weight_bytes(const mn_program *p) {
    uint64_t sum = 0;
    for (uint32_t t = 0; t < p->graph->n_tensors; t++) {
        const mn_tensor *x = mnp_tensor(p->graph, t);
        if (x->role == MN_ROLE_WEIGHT && p->uses[t].reads && x->dtype.block_elems)
            sum += ocl_weight_bytes(p->dev, x, is_matrix(p, (int32_t)t)) + 256;
    }
    return sum;
}

/* Times are unknown before the device is measured. */
mn_status ocl_estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_program *p;
    const mn_status st = make(d, c, NULL, &p, err);
    if (st)
        return st;
    mn_estimate e = {.size = sizeof e, .precision = MN_PRECISION_EXACT, .row_grain = 4};
    e.weights = weight_bytes(p);
    e.scratch = p->scratch + 64;
    e.host_pinned = (uint64_t)OCL_SEGMENTS * OCL_SEGMENT_BYTES;
    e.flags = MN_ESTIMATE_DETERMINISTIC;
    ocl_program_free(p);
    mnp_fill(out, &e, sizeof e);
    return MN_OK;
}

/* Finds what the program's nodes read in the weight set, which may have been opened for another
 * graph. */
static mn_status find_weights(mn_program *p, const mn_weights *w, mn_error *err) {
    mnp_cursor at = {p->lo, 0};
    uint32_t node;
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

mn_status ocl_compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    mn_program *p;
    mn_status st = make(d, c, d->plugin->host, &p, err);
    if (st)
        return st;
    st = find_weights(p, c->weights, err);
    if (st)
        ocl_program_free(p);
    else
        *out = p;
    return st;
}

/* What takes long is the driver's compiler, whose results are not a program's alone. */
mn_status ocl_program_save(const mn_program *p, void *dst, uint64_t *bytes) {
    (void)p;
    (void)dst;
    (void)bytes;
    return MN_UNSUPPORTED;
}
