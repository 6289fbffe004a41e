/* memory.c -- the memory of sequences in mn_compile: which group and layer a node is about, where
 * the numbers of a state lie in its page, copies of pages. kv.c has pages of keys and values. Holds
 * nothing. */
#include "moves.h"
#include "state_nodes.h"

const mn_memory_params *mnp_memory_of(const mn_compile *c, uint32_t group) {
    for (uint32_t i = 0; i < c->n_memory; i++) {
        const mn_memory_use *use = (const mn_memory_use *)mnp_entry(c->memory, i, c->memory_stride);
        if (use->params->group == group)
            return use->params;
    }
    return NULL;
}

bool mnp_memory_node_of(const mn_node *n, mnp_memory_node *out) {
    switch (n->op) {
    case MN_OP_KV_STORE:
        *out = (mnp_memory_node){MN_KV_STORE_PAGES, MN_KV_STORE_KV, MN_KV_STORE_ATTR_KV_LAYER,
                                 MN_KV_STORE_ATTR_GROUP};
        return true;
    case MN_OP_ATTENTION:
        *out = (mnp_memory_node){MN_ATTENTION_PAGES, MN_ATTENTION_KV, MN_ATTENTION_ATTR_KV_LAYER,
                                 MN_ATTENTION_ATTR_GROUP};
        return true;
    case MN_OP_CONV_STATE:
        *out = (mnp_memory_node){MN_CONV_STATE_STATES, MN_CONV_STATE_STATE,
                                 MN_CONV_STATE_ATTR_LAYER, MN_CONV_STATE_ATTR_GROUP};
        return true;
    case MN_OP_SSM_SCAN:
        *out = (mnp_memory_node){MN_SSM_SCAN_STATES, MN_SSM_SCAN_STATE, MN_SSM_SCAN_ATTR_LAYER,
                                 MN_SSM_SCAN_ATTR_GROUP};
        return true;
    case MN_OP_GATED_DELTA:
        *out = (mnp_memory_node){MN_GATED_DELTA_STATES, MN_GATED_DELTA_STATE,
                                 MN_GATED_DELTA_ATTR_LAYER, MN_GATED_DELTA_ATTR_GROUP};
        return true;
    default:
        return false;
    }
}

/* ---- states ---------------------------------------------------------------------------------- */
/* Bytes of a layer's part of a page; false = they overflow, or the dims are not those of n_state
 * numbers. */
static bool state_bytes(const mn_memory_layer *l, uint64_t *bytes) {
    uint64_t n = (uint64_t)l->n_head * l->dim_k;
    uint64_t sum;
    if (__builtin_mul_overflow(n, l->dim_v, &n) || !n || n != l->n_state)
        return false;
    if (__builtin_mul_overflow(n, sizeof(float), bytes))
        return false;
    if (__builtin_add_overflow(*bytes, MNP_STATE_ALIGN - 1, &sum))
        return false;
    *bytes = sum / MNP_STATE_ALIGN * MNP_STATE_ALIGN;
    return true;
}

/* want: the layer whose place is asked for, or NULL; *found: it, or NULL where it is not there. */
static mn_status measure_state(const mn_memory_params *m, const int64_t *want,
                               const mn_memory_layer **found, mnp_state *out, mn_error *err) {
    memset(out, 0, sizeof *out);
    *found = NULL;
    if (!m->n_layers)
        return mnp_fail(err, MN_INVALID, ~0u, "group %u of the memory has no layer", m->group);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const mn_memory_layer *l = mnp_memory_layer(m, i);
        uint64_t bytes;
        if (!mnp_has_state(l->op))
            return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                            "layer %lld of group %u: a state of operation %u", (long long)l->layer,
                            m->group, l->op);
        if (want && l->layer == *want) {
            out->layer_at = out->page_bytes;
            *found = l;
        }
        if (!state_bytes(l, &bytes) ||
            __builtin_add_overflow(out->page_bytes, bytes, &out->page_bytes))
            return mnp_fail(err, MN_INVALID, ~0u,
                            "layer %lld of group %u: a state [%u, %u, %u] of %llu numbers",
                            (long long)l->layer, m->group, l->n_head, l->dim_k, l->dim_v,
                            (unsigned long long)l->n_state);
    }
    return MN_OK;
}

mn_status mnp_state_bytes(const mn_memory_params *m, uint64_t *page_bytes, mn_error *err) {
    const mn_memory_layer *none;
    mnp_state state;
    const mn_status st = measure_state(m, NULL, &none, &state, err);
    *page_bytes = state.page_bytes;
    return st;
}

/* Whether the layer that the host states is the node's. */
static bool is_state_of(const mn_memory_layer *l, const mn_memory_layer *node) {
    return l->op == node->op && l->n_head == node->n_head && l->dim_k == node->dim_k &&
           l->dim_v == node->dim_v;
}

mn_status mnp_state_of_node(const mn_compile *c, uint32_t node, mnp_state *out, mn_error *err) {
    const mn_graph *g = c->graph;
    const mn_node *n = mnp_node(g, node);
    mnp_memory_node at;
    if (!mnp_memory_node_of(n, &at))
        return mnp_fail(err, MN_INVALID, node, "node %u: op %u has no state", node, n->op);
    const mn_tensor *states = mnp_in_tensor(g, n, at.pages);
    if (!states || states->n_dim != 2 || states->dim[1] != 2 || mnp_in(g, n, at.memory) < 0)
        return mnp_fail(err, MN_INVALID, node, "node %u: STATE or STATES [S, 2] is absent", node);
    const uint32_t group = (uint32_t)mnp_attr(g, n, at.group);
    const int64_t layer = mnp_attr(g, n, at.layer);
    const mn_memory_params *m = mnp_memory_of(c, group);
    if (!m || m->kind != MN_MEMORY_STATE)
        return mnp_fail(err, MN_INVALID, node,
                        "node %u: no group %u of states in mn_compile.memory", node, group);
    const mn_memory_layer own = mnp_state_layer(g, n);
    const mn_memory_layer *l;
    const mn_status st = measure_state(m, &layer, &l, out, err);
    if (st)
        return st;
    if (!l)
        return mnp_fail(err, MN_INVALID, node,
                        "node %u: mn_compile.memory has no layer %lld in group %u", node,
                        (long long)layer, group);
    if (is_state_of(l, &own))
        return MN_OK;
    return mnp_fail(err, MN_INVALID, node,
                    "node %u: layer %lld of group %u is a state [%u, %u, %u] of operation %u in "
                    "mn_compile.memory; the node has [%u, %u, %u] of %u",
                    node, (long long)layer, group, l->n_head, l->dim_k, l->dim_v, l->op, own.n_head,
                    own.dim_k, own.dim_v, own.op);
}

/* ---- layouts and copies ---------------------------------------------------------------------- */
mn_status mnp_memory_layout(const mn_compile *c, uint32_t group, uint32_t precision, uint64_t flags,
                            const mnp_kv_rules *rules, mn_memory_layout *out, mn_error *err) {
    const mn_memory_params *m = mnp_memory_of(c, group);
    mn_memory_layout l = {sizeof l, 0, 0, flags, 0};
    mn_status st;
    mnp_kv kv;
    if (!m)
        return mnp_fail(err, MN_INVALID, ~0u, "no group %u in mn_compile.memory", group);
    switch (m->kind) {
    case MN_MEMORY_PAGED:
        st = mnp_kv_of(m, precision, rules, &kv, err);
        l.page_tokens = kv.page_tokens;
        l.page_bytes = kv.page_bytes;
        l.cookie = MNP_COOKIE(kv.k_dtype, kv.v_dtype);
        break;
    case MN_MEMORY_STATE:
        st = mnp_state_bytes(m, &l.page_bytes, err);
        l.flags &= ~(uint64_t)MN_MEMORY_ZEROED; /* operations write a page before they read it */
        break;
    default:
        st = mnp_fail(err, MN_UNSUPPORTED, ~0u, "group %u: kind %u of memory is unknown", group,
                      m->kind);
    }
    if (!st)
        mnp_fill(out, &l, sizeof l);
    return st;
}

mn_status mnp_memory_copy_at(const mn_memory_layout *l, const mn_page_copy *copies, uint32_t i,
                             uint32_t stride, uint64_t bytes, mn_page_copy *out, mn_error *err) {
    uint64_t n_pages = 0;
    if (l->page_bytes)
        n_pages = bytes / l->page_bytes;
    mnp_read(out, sizeof *out, mnp_entry(copies, i, stride), stride);
    if (!l->page_tokens)
        out->n_tokens = 1; /* a state is copied whole */
    else if (out->n_tokens > l->page_tokens)
        n_pages = 0;
    if (out->src_page < n_pages && out->dst_page < n_pages)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u,
                    "copy of %u tokens of page %u to %u; there are %llu pages of %u tokens",
                    out->n_tokens, out->src_page, out->dst_page, (unsigned long long)n_pages,
                    l->page_tokens);
}
