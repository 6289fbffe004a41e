/* vendor2_negotiation.c -- see vendor2.h: which nodes it can run, and what they cost. A host may
 * ask from any thread; nothing is kept. */
#include "vendor2.h"
#include <stdio.h>
#include <string.h>

enum { FINE, OTHER_OP, WEIGHT_TYPE, VIEW, SHAPE };
static const char *const reasons[] = {"", "only RMS_NORM and LINEAR",
                                      "weights are f32, f16 or bf16", "no views of tensors",
                                      "operands do not fit together"};

static bool is_plain(uint32_t dtype) {
    return dtype == MN_F32 || dtype == MN_F16 || dtype == MN_BF16;
}

/* An operand or attribute that is used, and behind those that are known. */
static bool has_more(const mn_graph *g, const mn_node *n, uint32_t n_in, uint32_t n_attr) {
    for (uint32_t i = n_in; i < n->n_in; i++)
        if (v2_in(g, n, i) >= 0)
            return true;
    for (uint32_t i = n_attr; i < n->n_attr; i++)
        if (g->attrs[n->attr_off + i])
            return true;
    return false;
}

uint64_t v2_table(const mn_graph *g, const mn_node *n, const float **table) {
    const uint64_t blob = n->n_attr ? g->attrs[n->attr_off] : 0;
    *table = NULL;
    if (!blob || blob > g->n_blobs)
        return 0;
    *table = (const float *)(const void *)g->blobs[blob - 1].ptr;
    if ((uintptr_t)*table % sizeof **table)
        return 0;
    return g->blobs[blob - 1].len / sizeof **table;
}

static uint32_t judge_curve(const mn_graph *g, const mn_node *n) {
    const float *table;
    if (n->contract != 1 || has_more(g, n, 1, 1))
        return OTHER_OP;
    if (n->n_out != 1 || v2_in(g, n, 0) < 0 || v2_out(g, n, 0) < 0 || !v2_table(g, n, &table))
        return SHAPE;
    const mn_tensor *x = v2_tensor(g, v2_in(g, n, 0));
    const mn_tensor *y = v2_tensor(g, v2_out(g, n, 0));
    if (x->alias_of >= 0 || y->alias_of >= 0)
        return VIEW;
    const bool same = x->n_dim == y->n_dim && !memcmp(x->dim, y->dim, sizeof x->dim);
    return same && is_plain(x->dtype.id) && x->role != MN_ROLE_WEIGHT ? FINE : SHAPE;
}

static uint32_t judge(const mn_graph *g, const mn_node *n) {
    if (n->op == V2_CURVE)
        return judge_curve(g, n);
    if ((n->op != MN_OP_RMS_NORM && n->op != MN_OP_LINEAR) || n->contract != 1)
        return OTHER_OP;
    bool linear = n->op == MN_OP_LINEAR;
    const uint32_t known = linear ? 1 + 2 * n->n_out : 2;
    if (has_more(g, n, known, linear ? 0 : 2))
        return OTHER_OP;
    if (!n->n_out || n->n_in < 2 * n->n_out || v2_in(g, n, 0) < 0)
        return SHAPE;
    for (uint32_t i = 0; i < n->n_in && i < known; i++) {
        int32_t at = v2_in(g, n, i);
        if (at < 0 && linear && i > 0 && i % 2 == 0)
            continue; /* no bias */
        if (at < 0 || (uint32_t)at >= g->n_tensors)
            return SHAPE;
        const mn_tensor *t = v2_tensor(g, at);
        if (t->alias_of >= 0)
            return VIEW;
        if (i == 0 && (t->n_dim < 1 || t->role == MN_ROLE_WEIGHT || !is_plain(t->dtype.id)))
            return SHAPE;
        if (i > 0 && (t->role != MN_ROLE_WEIGHT || t->n_dim != (linear && i % 2 ? 2 : 1)))
            return SHAPE;
        if (i > 0 && !is_plain(t->dtype.id))
            return WEIGHT_TYPE;
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        int32_t at = v2_out(g, n, i);
        if (at < 0 || (uint32_t)at >= g->n_tensors)
            return SHAPE;
        if (v2_tensor(g, at)->alias_of >= 0)
            return VIEW;
    }
    return FINE;
}

static mn_status contracts(void *self, const mn_op_contract **table, uint32_t *n,
                           uint32_t *stride) {
    static const mn_op_contract mine[] = {{MN_OP_RMS_NORM, 1}, {MN_OP_LINEAR, 1}, {V2_CURVE, 1}};
    (void)self;
    *table = mine;
    *n = sizeof mine / sizeof mine[0];
    *stride = sizeof mine[0];
    return MN_OK;
}

static mn_status reason(void *self, uint32_t why, char *buf, uint32_t cap) {
    (void)self;
    if (cap)
        snprintf(buf, cap, "%s", why < sizeof reasons / sizeof reasons[0] ? reasons[why] : "");
    return MN_OK;
}

/* The question, but for what its nodes are. */
static mn_status v2_read_segment(const mn_compile *in, mn_compile *c, mn_error *err) {
    v2_read(c, sizeof *c, in);
    const mn_graph *g = c->graph;
    if (!c->n_sets)
        c->n_sets = 1;
    if (c->n_sets > 16)
        return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: %u sets of bindings", c->n_sets);
    if (!g || !c->symbol_max || g->size < sizeof *g)
        return v2_fail(err, MN_INVALID, ~0u, "vendor2: no graph, or an older one");
    if (c->precision > MN_PRECISION_A8)
        return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: precision class %u", c->precision);
    if (c->flags & ~(uint64_t)MN_COMPILE_DETERMINISTIC)
        return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: unknown flag");
    if (c->node_lo > c->node_hi || c->node_hi > g->n_nodes)
        return v2_fail(err, MN_INVALID, ~0u, "vendor2: nodes [%u, %u) of %u", c->node_lo,
                       c->node_hi, g->n_nodes);
    return MN_OK;
}

static mn_status supports(mn_device *d, const mn_compile *in, mn_verdict *verdicts, uint32_t stride,
                          mn_error *err) {
    mn_compile c;
    (void)d;
    mn_status s = v2_read_segment(in, &c, err);
    for (uint32_t i = c.node_lo; i < c.node_hi && !s; i++) {
        uint32_t why = judge(c.graph, v2_node(c.graph, i));
        *(mn_verdict *)((char *)verdicts + (uint64_t)(i - c.node_lo) * stride) =
            (mn_verdict){.verdict = why == FINE ? MN_VERDICT_NATIVE : MN_VERDICT_NO, .reason = why};
    }
    return s;
}

mn_status v2_read_question(const mn_compile *in, mn_compile *c, mn_error *err) {
    mn_status s = v2_read_segment(in, c, err);
    const mn_graph *g = c->graph;
    for (uint32_t i = c->node_lo; i < c->node_hi && !s; i++) {
        uint32_t why = judge(g, v2_node(g, i));
        if (why)
            return v2_fail(err, MN_UNSUPPORTED, i, "vendor2: node %u: %s", i, reasons[why]);
    }
    return s;
}

static bool makes(const mn_graph *g, uint32_t lo, uint32_t hi, int32_t tensor) {
    for (uint32_t i = lo; i < hi; i++)
        for (uint32_t j = 0; j < v2_node(g, i)->n_out; j++)
            if (v2_out(g, v2_node(g, i), j) == tensor)
                return true;
    return false;
}
bool v2_takes(const mn_graph *g, uint32_t lo, uint32_t hi, int32_t tensor) {
    for (uint32_t i = lo; i < hi; i++)
        for (uint32_t j = 0; j < v2_node(g, i)->n_in; j++)
            if (v2_in(g, v2_node(g, i), j) == tensor)
                return true;
    return false;
}

/* Bytes of the weights and of what is made in the segment, and the longest weight row; SMALLER
 * where they overflow. */
mn_status v2_measure(const mn_compile *c, uint64_t *weights, uint64_t *made, uint64_t *row,
                     mn_error *err) {
    const mn_graph *g = c->graph;
    *weights = *made = *row = 0;
    for (int32_t i = 0; i < (int32_t)g->n_tensors; i++) {
        const mn_tensor *t = v2_tensor(g, i);
        bool weight = t->role == MN_ROLE_WEIGHT && v2_takes(g, c->node_lo, c->node_hi, i);
        if (!weight && !makes(g, c->node_lo, c->node_hi, i))
            continue;
        uint64_t n = v2_count(g, c->symbol_max, t, 0);
        uint64_t last = t->n_dim > 1 ? (uint64_t)t->dim[1] : n;
        if (n == UINT64_MAX)
            return v2_fail(err, MN_OUT_OF_MEMORY, ~0u, "vendor2: tensor %d is too large", i);
        if (weight && last > *row)
            *row = last;
        /* as alloc rounds */
        *(weight ? weights : made) += n * (weight ? t->dtype.block_bytes : sizeof(float)) + 128;
    }
    return MN_OK;
}

static mn_status estimate(mn_device *d, const mn_compile *in, mn_estimate *out, mn_error *err) {
    mn_compile c;
    uint64_t row;
    mn_estimate e = {
        .precision = MN_PRECISION_EXACT, .row_grain = 1, .flags = MN_ESTIMATE_DETERMINISTIC};
    mn_status s = v2_read_question(in, &c, err);
    if (!s)
        s = v2_measure(&c, &e.weights, &e.scratch, &row, err);
    if (s)
        return s;
    e.import_peak = e.weights;
    e.scratch += row * sizeof(float) * d->host->workers(d->host->self) + sizeof(mn_program) +
                 sizeof(mn_context) + c.graph->n_tensors * c.n_sets * sizeof(place) +
                 c.graph->n_symbols * sizeof(int64_t) + 512;
    e.weights += sizeof(mn_weights) + c.graph->n_tensors * sizeof(void *) + 128;
    e.size = out->size < sizeof e ? out->size : (uint32_t)sizeof e;
    memcpy(out, &e, e.size);
    return MN_OK;
}

static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    (void)d;
    (void)c;
    (void)group;
    (void)out;
    return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: keeps no keys and values");
}

static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                             const mn_page_copy *list, uint32_t n, uint32_t stride,
                             mn_event **event, mn_error *err) {
    (void)event;
    (void)q;
    (void)kv;
    (void)l;
    (void)list;
    (void)n;
    (void)stride;
    return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: keeps no keys and values");
}

void v2_add_negotiation(mn_backend *b) {
    b->contracts = contracts;
    b->supports = supports;
    b->reason = reason;
    b->estimate = estimate;
    b->memory_layout = memory_layout;
    b->memory_copy = memory_copy;
}
