/* graph.c -- the host's graph, read with suspicion once (mnp_read_compile) and believed afterwards;
 * symbol values and sizes of tensors. Holds nothing. */
#include "common.h"

enum { MAX_VIEWS = 8 }; /* of views; the contract allows one */

const char *mnp_op_name(uint32_t op) {
    static const char *const names[] = {
#define ROW(name, id) [id] = #name,
        MN_OPS(ROW)
#undef ROW
    };
    if (op < sizeof names / sizeof *names && names[op])
        return names[op];
    return "?";
}

/* The tensor that a chain of views ends at; itself if it is no view. */
uint32_t mnp_root(const mn_graph *g, uint32_t tensor) {
    for (uint32_t hops = 0; hops < MAX_VIEWS; hops++) {
        const int32_t up = mnp_tensor(g, tensor)->alias_of;
        if (up < 0 || (uint32_t)up >= g->n_tensors)
            break;
        tensor = (uint32_t)up;
    }
    return tensor;
}

/* Outputs that nobody has to bind: probabilities beside the drawn ids. */
bool mnp_out_may_be_absent(uint32_t op, uint32_t i) {
    return op == MN_OP_SAMPLE && i != MN_SAMPLE_OUT_IDS;
}

/* Nodes that run although nothing reads their outputs. */
bool mnp_changes_state(uint32_t op) {
    switch (op) {
    case MN_OP_EMBED:
    case MN_OP_KV_STORE:
    case MN_OP_CONV_STATE:
    case MN_OP_SSM_SCAN:
    case MN_OP_GATED_DELTA:
    case MN_OP_SAMPLE:
        return true;
    default:
        return false;
    }
}

/* ---- reading --------------------------------------------------------------------------------- */
static mn_status mnp_graph_check_node(const mn_graph *g, uint32_t i, mn_error *err) {
    const mn_node *n = mnp_node(g, i);
    if ((uint64_t)n->in_off + n->n_in > g->n_operands ||
        (uint64_t)n->out_off + n->n_out > g->n_operands ||
        (uint64_t)n->attr_off + n->n_attr > g->n_attrs)
        return mnp_fail(err, MN_INVALID, i,
                        "node %u: operands or attributes lie outside the graph's arrays", i);
    for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
        const int32_t t = mnp_operand(g, n, j);
        if (t < 0)
            continue;
        if ((uint32_t)t >= g->n_tensors)
            return mnp_fail(err, MN_INVALID, i, "node %u: operand %u is tensor %d of %u", i, j, t,
                            g->n_tensors);
        if (mnp_tensor(g, (uint32_t)t)->n_dim > MN_MAX_DIM)
            return mnp_fail(err, MN_INVALID, i, "node %u: tensor %d has %u dimensions, at most %d",
                            i, t, mnp_tensor(g, (uint32_t)t)->n_dim, MN_MAX_DIM);
    }
    return MN_OK;
}

static mn_status mnp_graph_check_memory(const mn_compile *c, mn_error *err) {
    if (c->n_memory && (!c->memory || c->memory_stride < MNP_UP_TO(mn_memory_use, layout)))
        return mnp_fail(err, MN_INVALID, ~0u, "mn_compile: %u groups of memory at a stride of %u",
                        c->n_memory, c->memory_stride);
    for (uint32_t i = 0; i < c->n_memory; i++) {
        const mn_memory_use *use = (const mn_memory_use *)mnp_entry(c->memory, i, c->memory_stride);
        const mn_memory_params *m = use->params;
        if (!m || m->size < MNP_UP_TO(mn_memory_params, layers) || (m->n_layers && !m->layers) ||
            (m->n_layers && m->layer_stride < MNP_UP_TO(mn_memory_layer, n_state)))
            return mnp_fail(err, MN_INVALID, ~0u,
                            "mn_compile: entry %u of memory lacks parameters or layers", i);
    }
    return MN_OK;
}

/* Structs of the host may be older or newer: read as far as both know them, refused where fields
 * of the first release are missing. */
mn_status mnp_read_compile(const mn_compile *in, mn_compile *out, mn_error *err) {
    mnp_read(out, sizeof *out, in, in->size);
    const mn_graph *g = out->graph;
    if (!g || !out->symbol_max)
        return mnp_fail(err, MN_INVALID, ~0u, "mn_compile without graph or symbol_max");
    if (g->size < MNP_UP_TO(mn_graph, n_attrs) || g->node_stride < MNP_UP_TO(mn_node, n_attr) ||
        g->tensor_stride < MNP_UP_TO(mn_tensor, name) ||
        (g->n_symbols && g->symbol_stride < MNP_UP_TO(mn_symbol, add)))
        return mnp_fail(err, MN_INVALID, ~0u,
                        "mn_graph of %u bytes lacks fields of the first release", g->size);
    if (out->node_lo > out->node_hi || out->node_hi > g->n_nodes)
        return mnp_fail(err, MN_INVALID, ~0u, "segment [%u, %u) of a graph with %u nodes",
                        out->node_lo, out->node_hi, g->n_nodes);
    if (out->precision > MN_PRECISION_A8)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "precision class %u is unknown", out->precision);
    if (out->flags & ~(uint64_t)(MN_COMPILE_DETERMINISTIC | MN_COMPILE_UPDATES))
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "flags 0x%llx: one is unknown",
                        (unsigned long long)out->flags);
    if (!out->n_sets)
        out->n_sets = 1;
    if (out->n_sets > MNP_MAX_SETS)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%u sets of bindings; at most %u", out->n_sets,
                        MNP_MAX_SETS);
    mn_status st = mnp_graph_check_memory(out, err);
    for (uint32_t i = 0; i < g->n_nodes && !st; i++)
        st = mnp_graph_check_node(g, i, err);
    return st;
}

/* Does the view have the strides of a tensor of its own, for the largest sizes? A dimension of 1
 * may have any. */
static bool mnp_graph_is_dense(const mn_graph *g, const mn_tensor *t, const int64_t *symbol_max) {
    int64_t dense = 1;
    for (uint32_t d = t->n_dim; d-- > 0;) {
        const int64_t size = mnp_dim(g, symbol_max, t->dim[d]);
        if (t->stride[d] != dense && size != 1)
            return false;
        dense *= size;
    }
    return true;
}

/* Views of activations are offsets into their root; of nothing else. */
mn_status mnp_check_views(const mn_graph *g, uint32_t lo, uint32_t hi, const int64_t *symbol_max,
                          mn_error *err) {
    for (uint32_t i = lo; i < hi; i++) {
        const mn_node *n = mnp_node(g, i);
        for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
            const int32_t t = mnp_operand(g, n, j);
            if (t < 0)
                continue;
            if (mnp_tensor(g, (uint32_t)t)->alias_of < 0)
                continue;
            const mn_tensor *view = mnp_tensor(g, (uint32_t)t);
            const uint32_t root = mnp_root(g, (uint32_t)t);
            const uint32_t of = mnp_tensor(g, root)->role;
            const bool is_state = of == MN_ROLE_STATE || view->role == MN_ROLE_STATE;
            if (of == MN_ROLE_WEIGHT || is_state)
                return mnp_fail(err, MN_UNSUPPORTED, i,
                                "node %u: %.*s is a view of a weight or state; not supported", i,
                                MNP_NAME(view));
            if (!mnp_graph_is_dense(g, view, symbol_max))
                return mnp_fail(err, MN_UNSUPPORTED, i,
                                "node %u: %.*s: only dense views are supported", i, MNP_NAME(view));
        }
    }
    return MN_OK;
}

/* The weights that nodes [at->node, hi) read, one per call and as often as they are read; -1 at
 * the end. */
int32_t mnp_next_weight(const mn_graph *g, uint32_t hi, mnp_cursor *at, uint32_t *node) {
    for (; at->node < hi; at->node++, at->operand = 0) {
        const mn_node *n = mnp_node(g, at->node);
        while (at->operand < n->n_in) {
            const int32_t t = mnp_in(g, n, at->operand++);
            if (t < 0)
                continue;
            if (mnp_tensor(g, (uint32_t)t)->role != MN_ROLE_WEIGHT)
                continue;
            *node = at->node;
            return t;
        }
    }
    return -1;
}

/* ---- symbols and sizes ----------------------------------------------------------------------- */
/* base * mul + add; the base is a symbol that has its value already. */
static bool mnp_graph_derive(const mn_graph *g, const mn_symbol *s, uint32_t i, const int64_t *out,
                             int64_t *value) {
    const uint32_t base = (uint32_t)s->base;
    if (base >= i || base >= g->n_symbols)
        return false;
    if (__builtin_mul_overflow(out[base], s->mul, value))
        return false;
    if (__builtin_add_overflow(*value, s->add, value))
        return false;
    return *value >= 0;
}

/* Symbols are in the order of their derivation. max NULL: `given` are maxima themselves. */
mn_status mnp_symbols(const mn_graph *g, const int64_t *given, const int64_t *max, int64_t *out,
                      mn_error *err) {
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        const mn_symbol *s = mnp_symbol(g, i);
        if (s->base >= 0) {
            if (mnp_graph_derive(g, s, i, out, &out[i]))
                continue;
            return mnp_fail(err, MN_INVALID, ~0u,
                            "symbol %.24s: %lld * symbol %d + %lld is no size", s->name,
                            (long long)s->mul, s->base, (long long)s->add);
        }
        int64_t least = 0;
        if (s->kind == MN_SYMBOL_SHAPE)
            least = s->min;
        int64_t most = INT32_MAX;
        if (max)
            most = max[i];
        const int64_t v = given[i];
        if (v < 0 || v < least || v > most || v > INT32_MAX)
            return mnp_fail(err, MN_INVALID, ~0u,
                            "symbol %.24s is %lld; at least %lld, at most %lld", s->name,
                            (long long)v, (long long)least, (long long)most);
        out[i] = v;
        if (s->kind == MN_SYMBOL_BOUND && max)
            out[i] = max[i];
    }
    return MN_OK;
}

/* What a tensor is stored as: f32 inside of a segment, whatever the graph's type is. */
uint32_t mnp_elem_dtype(const mn_tensor *t) {
    const uint32_t id = t->dtype.id;
    const bool is_half = id == MN_F16 || id == MN_BF16;
    if (t->role == MN_ROLE_INTERIOR && is_half)
        return MN_F32;
    return id;
}

uint64_t mnp_elem_bytes(const mn_tensor *t) {
    if (mnp_elem_dtype(t) == t->dtype.id)
        return t->dtype.block_bytes;
    return 4;
}

/* False: no size (a negative dimension, no whole blocks) or one beyond 2^62. */
bool mnp_bytes(const mn_graph *g, const mn_tensor *t, const int64_t *symbol, uint64_t *bytes) {
    uint64_t n = 1;
    if (t->n_dim > MN_MAX_DIM)
        return false;
    for (uint32_t i = 0; i < t->n_dim; i++) {
        const int64_t d = mnp_dim(g, symbol, t->dim[i]);
        if (d < 0)
            return false;
        if (__builtin_mul_overflow(n, (uint64_t)d, &n))
            return false;
    }
    const uint64_t block = t->dtype.block_elems;
    if (!block || n % block)
        return false;
    if (__builtin_mul_overflow(n / block, mnp_elem_bytes(t), bytes))
        return false;
    return *bytes < (uint64_t)1 << 62;
}

/* Weight sets serve every graph whose weights have the same names, types and dims. */
static bool mnp_graph_same_weight(const mn_tensor *a, const mn_tensor *b) {
    if (a->role != b->role)
        return false;
    if (a->name.len != b->name.len)
        return false;
    if (a->dtype.id != b->dtype.id || a->n_dim != b->n_dim)
        return false;
    if (memcmp(a->name.ptr, b->name.ptr, a->name.len))
        return false;
    return !memcmp(a->dim, b->dim, a->n_dim * sizeof *a->dim);
}

int32_t mnp_find_weight(const mn_graph *set, const mn_graph *g, uint32_t tensor) {
    if (set == g)
        return (int32_t)tensor;
    const mn_tensor *t = mnp_tensor(g, tensor);
    for (uint32_t i = 0; i < set->n_tensors; i++)
        if (mnp_graph_same_weight(mnp_tensor(set, i), t))
            return (int32_t)i;
    return -1;
}
