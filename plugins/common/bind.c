/* bind.c -- the checks of context_bind and execute: each tensor once, inside of its buffer,
 * aligned, large enough, and none missing. The table of bindings is the caller's, one entry per
 * tensor. */
#include "common.h"

enum { ALIGN = 4 }; /* of every element that crosses */

/* One binding: of a tensor that can be bound, inside of its buffer, aligned. */
static mn_status check_one(const mn_graph *g, const mnp_allocation *a, const mn_binding *b,
                           mnp_extent_fn extent, mn_error *err) {
    const mn_tensor *t = mnp_tensor(g, b->tensor);
    if (t->role == MN_ROLE_WEIGHT)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s is a weight and cannot be bound", MNP_NAME(t));
    const uint32_t root = mnp_root(g, b->tensor);
    if (root != b->tensor && a[root].produced)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                        "%.*s is a view of what the segment makes: bind that", MNP_NAME(t));
    mnp_extent e;
    if (b->buffer)
        e = extent(b->buffer);
    else
        e = (mnp_extent){0, 0};
    const bool inside = b->offset <= e.bytes && b->bytes <= e.bytes - b->offset;
    if (!b->buffer || !inside)
        return mnp_fail(err, MN_INVALID, ~0u,
                        "%.*s: %llu bytes at %llu leave the buffer of %llu bytes", MNP_NAME(t),
                        (unsigned long long)b->bytes, (unsigned long long)b->offset,
                        (unsigned long long)e.bytes);
    if ((e.address + b->offset) % ALIGN)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: offset %llu is not a multiple of %d",
                        MNP_NAME(t), (unsigned long long)b->offset, ALIGN);
    return MN_OK;
}

/* table: [n_tensors], cleared first; after an error it is not to be used. A binding of a newer
 * host may be longer. */
mn_status mnp_bind(const mn_graph *g, const mnp_allocation *a, const mn_binding *given, uint32_t n,
                   uint32_t stride, mnp_extent_fn extent, mn_binding *table, mn_error *err) {
    mn_status st = MN_OK;
    memset(table, 0, g->n_tensors * sizeof *table);
    if (n && stride < MNP_UP_TO(mn_binding, bytes))
        return mnp_fail(err, MN_INVALID, ~0u,
                        "bindings of %u bytes lack fields of the first release", stride);
    for (uint32_t i = 0; i < n && !st; i++) {
        mn_binding b;
        mnp_read(&b, sizeof b, mnp_entry(given, i, stride), stride);
        if (b.tensor >= g->n_tensors)
            return mnp_fail(err, MN_INVALID, ~0u, "binding %u: tensor %u of %u", i, b.tensor,
                            g->n_tensors);
        if (table[b.tensor].buffer)
            return mnp_fail(err, MN_INVALID, ~0u, "binding %u: %.*s is bound twice", i,
                            MNP_NAME(mnp_tensor(g, b.tensor)));
        st = check_one(g, a, &b, extent, err);
        table[b.tensor] = b;
    }
    return st;
}

/* SLOTS or PARAMS: rows of at least `least` bytes, 4 * dim[1] apart. */
static mn_status check_rows(const mn_graph *g, uint32_t node, uint32_t in, uint64_t least,
                            const int64_t *symbol_max, mn_error *err) {
    const mn_tensor *t = mnp_in_tensor(g, mnp_node(g, node), in);
    if (!t || t->n_dim != 2)
        return mnp_fail(err, MN_INVALID, node, "node %u: slots or parameters are absent", node);
    const int64_t words = mnp_dim(g, symbol_max, t->dim[1]);
    if (words >= 0 && (uint64_t)words * 4 >= least)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, node, "%.*s has rows of %lld words, node %u needs %llu",
                    MNP_NAME(t), (long long)words, node, (unsigned long long)least / 4);
}

/* Is everything there that a node reads and writes? It may be bound itself, be a view of what
 * is, or lie in the arena. */
mn_status mnp_check_bound(const mn_graph *g, uint32_t node, const mnp_allocation *a,
                          const int64_t *symbol_max, const mn_binding *table, mn_error *err) {
    const mn_node *n = mnp_node(g, node);
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        const int32_t t = mnp_operand(g, n, i);
        const bool is_out = i >= n->n_in;
        if (t < 0 || table[t].buffer)
            continue;
        const mn_tensor *operand = mnp_tensor(g, (uint32_t)t);
        if (operand->role == MN_ROLE_WEIGHT)
            continue;
        const uint32_t root = mnp_root(g, (uint32_t)t);
        if (table[root].buffer)
            continue;
        if (a[root].place != MNP_NOWHERE)
            continue;
        if (is_out && mnp_out_may_be_absent(n->op, i - n->n_in))
            continue;
        return mnp_fail(err, MN_INVALID, node, "%s %.*s of node %u is not bound",
                        is_out ? "output" : "input", MNP_NAME(operand), node);
    }
    const bool has_mu = n->op == MN_OP_SAMPLE && n->contract >= 4;
    const uint64_t slot_bytes = has_mu ? MNP_UP_TO(mn_slot, mu) : MNP_UP_TO(mn_slot, done);
    if (n->op == MN_OP_EMBED)
        return check_rows(g, node, MN_EMBED_SLOTS, slot_bytes, symbol_max, err);
    if (n->op != MN_OP_SAMPLE)
        return MN_OK;
    mn_status st = check_rows(g, node, MN_SAMPLE_SLOTS, slot_bytes, symbol_max, err);
    if (st)
        return st;
    return check_rows(g, node, MN_SAMPLE_PARAMS, 8, symbol_max, err);
}

/* Once per change of the symbols: the buffers were bound without their values. */
mn_status mnp_check_sizes(const mn_graph *g, const int64_t *symbol, const mn_binding *table,
                          mn_error *err) {
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const mn_tensor *t = mnp_tensor(g, i);
        uint64_t want;
        if (!table[i].buffer || !t->n_dim)
            continue;
        if (mnp_bytes(g, t, symbol, &want) && want <= table[i].bytes)
            continue;
        return mnp_fail(err, MN_INVALID, ~0u,
                        "%.*s is bound to %llu bytes, too few for these symbol values", MNP_NAME(t),
                        (unsigned long long)table[i].bytes);
    }
    return MN_OK;
}
