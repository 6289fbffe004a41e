/* graph.c -- symbols and sizes of the host's graph. */
#include "mnc.h"

int64_t mnc_dim(const mn_graph *g, const int64_t *symbol, int64_t dim) {
    if (dim >= 0)
        return dim;
    return (uint64_t)~dim < g->n_symbols ? symbol[~dim] : -1;
}

/* BOUND symbols fix the layout of tensors (a page table's row): ops always see their maximum. */
bool mnc_symbols(const mn_graph *g, const int64_t *given, const int64_t *max, int64_t *out,
                 uint32_t *bad) {
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        const mn_symbol *s = mnc_symbol(g, i);
        *bad = i;
        if (s->base >= 0) {
            if ((uint32_t)s->base >= g->n_symbols)
                return false;
            int64_t from = (uint32_t)s->base < i ? out[s->base] : given[s->base], v;
            if (__builtin_mul_overflow(from, s->mul, &v) || __builtin_add_overflow(v, s->add, &v) ||
                v < 0)
                return false;
            out[i] = v;
            continue;
        }
        if (given[i] < 0 || (max && given[i] > max[i]))
            return false;
        if (s->kind == MN_SYMBOL_SHAPE && given[i] < s->min)
            return false;
        out[i] = s->kind == MN_SYMBOL_BOUND && max ? max[i] : given[i];
    }
    return true;
}

uint32_t mnc_elem_dtype(const mn_tensor *t) {
    uint32_t id = t->dtype.id;
    return t->role == MN_ROLE_INTERIOR && (id == MN_F16 || id == MN_BF16) ? MN_F32 : id;
}

bool mnc_bytes(const mn_graph *g, const mn_tensor *t, const int64_t *symbol, uint64_t *bytes) {
    if (t->n_dim > MN_MAX_DIM)
        return false;
    uint64_t n = 1, per = mnc_elem_dtype(t) == t->dtype.id ? t->dtype.block_bytes : 4,
             elems = t->dtype.block_elems;
    for (uint32_t i = 0; i < t->n_dim; i++) {
        int64_t d = mnc_dim(g, symbol, t->dim[i]);
        if (d < 0 || __builtin_mul_overflow(n, (uint64_t)d, &n))
            return false;
    }
    if (!elems || n % elems || __builtin_mul_overflow(n / elems, per, bytes))
        return false;
    return *bytes < (uint64_t)1 << 62;
}

uint32_t mnc_root(const mn_graph *g, uint32_t tensor) {
    for (uint32_t hops = 0; hops < 8; hops++) {
        int32_t up = mnc_tensor(g, tensor)->alias_of;
        if (up < 0 || (uint32_t)up >= g->n_tensors)
            break;
        tensor = (uint32_t)up;
    }
    return tensor;
}

static const mn_tensor *query_tensor(const mn_graph *g, int32_t t) {
    return t < 0 || (uint32_t)t >= g->n_tensors ? NULL : mnc_tensor(g, (uint32_t)t);
}
const mn_tensor *mnc_query_in(const mnc_query *q, uint32_t i) {
    return query_tensor(q->graph, mnc_in(q->graph, q->node, i));
}
const mn_tensor *mnc_query_out(const mnc_query *q, uint32_t i) {
    return query_tensor(q->graph, mnc_out(q->graph, q->node, i));
}
int64_t mnc_query_dim(const mnc_query *q, const mn_tensor *t, uint32_t i) {
    return i < t->n_dim ? mnc_dim(q->graph, q->symbol, t->dim[i]) : 1;
}

static mn_status check_operands(const mn_graph *g, uint32_t i, mn_error *err) {
    const mn_node *n = mnc_node(g, i);
    if (n->n_in > MNC_MAX_IN || n->n_out > MNC_MAX_OUT)
        return mnc_fail(err, MN_UNSUPPORTED, i,
                        "node %u: %u inputs and %u outputs; at most %d and %d", i, n->n_in,
                        n->n_out, MNC_MAX_IN, MNC_MAX_OUT);
    if ((uint64_t)n->in_off + n->n_in > g->n_operands ||
        (uint64_t)n->out_off + n->n_out > g->n_operands ||
        (uint64_t)n->attr_off + n->n_attr > g->n_attrs)
        return mnc_fail(err, MN_INVALID, i,
                        "node %u: operands or attributes lie outside the graph's arrays", i);
    for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
        int32_t t = j < n->n_in ? mnc_in(g, n, j) : mnc_out(g, n, j - n->n_in);
        if (t >= 0 && (uint32_t)t >= g->n_tensors)
            return mnc_fail(err, MN_INVALID, i, "node %u: operand %u is tensor %d of %u", i, j, t,
                            g->n_tensors);
    }
    return MN_OK;
}

mn_status mnc_read_compile(const mn_compile *in, mn_compile *out, mn_error *err) {
    memset(out, 0, sizeof *out);
    memcpy(out, in, in->size < sizeof *out ? in->size : sizeof *out);
    const mn_graph *g = out->graph;
    if (!g || !out->symbol_max)
        return mnc_fail(err, MN_INVALID, ~0u, "mn_compile without graph or symbol_max");
    if (g->size < MNC_UP_TO(mn_graph, n_attrs) || g->node_stride < MNC_UP_TO(mn_node, n_attr) ||
        g->tensor_stride < MNC_UP_TO(mn_tensor, name) ||
        (g->n_symbols && g->symbol_stride < MNC_UP_TO(mn_symbol, add)))
        return mnc_fail(err, MN_INVALID, ~0u,
                        "mn_graph of %u bytes lacks fields of the first release", g->size);
    if (out->node_lo > out->node_hi || out->node_hi > g->n_nodes)
        return mnc_fail(err, MN_INVALID, ~0u, "segment [%u, %u) of a graph with %u nodes",
                        out->node_lo, out->node_hi, g->n_nodes);
    if (out->precision > MN_PRECISION_A8)
        return mnc_fail(err, MN_UNSUPPORTED, ~0u, "precision class %u is unknown", out->precision);
    for (uint32_t i = out->node_lo; i < out->node_hi; i++) {
        mn_status s = check_operands(g, i, err);
        if (s)
            return s;
    }
    return MN_OK;
}
