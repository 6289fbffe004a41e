/* kv.c -- how the pages of a KV group lie in memory. A backend states three numbers (mnp_kv_rules);
 * everything else follows from the KV_STORE nodes of the segment. Holds nothing. */
#include "common.h"

/* Is node i a KV_STORE of the group? */
static bool stores(const mn_graph *g, uint32_t i, uint32_t group) {
    const mn_node *n = mnp_node(g, i);
    if (n->op != MN_OP_KV_STORE)
        return false;
    return (uint32_t)mnp_attr(g, n, MN_KV_STORE_ATTR_GROUP) == group;
}

/* What the caller leaves open is f32 in class exact, else f16. */
mnp_kv_types mnp_kv_types_of(const mn_compile *c, uint32_t precision) {
    uint32_t usual = MN_F16;
    if (precision == MN_PRECISION_EXACT)
        usual = MN_F32;
    mnp_kv_types types = {c->k_dtype, c->v_dtype};
    if (types.k == MN_DTYPE_NONE)
        types.k = usual;
    if (types.v == MN_DTYPE_NONE)
        types.v = usual;
    return types;
}

/* How many layers of the group in the segment come before this one; -1 = it is not there. */
static int64_t rank_of(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, int64_t layer) {
    int64_t rank = 0;
    bool found = false;
    for (uint32_t i = lo; i < hi; i++) {
        if (!stores(g, i, group))
            continue;
        const int64_t l = mnp_attr(g, mnp_node(g, i), MN_KV_STORE_ATTR_KV_LAYER);
        if (l < layer)
            rank++;
        if (l == layer)
            found = true;
    }
    if (found)
        return rank;
    return -1;
}

/* Adds the layer that KV_STORE i stores; all of a group have one shape. */
static mn_status add_layer(const mn_graph *g, uint32_t i, uint32_t group, const mnp_kv_rules *rules,
                           mnp_kv *kv, mn_error *err) {
    const mn_node *n = mnp_node(g, i);
    const mn_tensor *k = mnp_in_tensor(g, n, MN_KV_STORE_K);
    const mn_tensor *v = mnp_in_tensor(g, n, MN_KV_STORE_V);
    if (!k || !v)
        return mnp_fail(err, MN_INVALID, i, "node %u: KV_STORE without K or V", i);
    const bool are_heads = k->n_dim == 3 && v->n_dim == 3 && k->dim[1] == v->dim[1];
    const int64_t dim_k = k->dim[2];
    const int64_t dim_v = v->dim[2];
    if (!are_heads || k->dim[1] <= 0 || dim_k <= 0 || dim_v <= 0)
        return mnp_fail(err, MN_INVALID, i, "node %u: KV_STORE wants K and V as [T, Hkv, D]", i);
    int64_t longest = dim_v;
    if (dim_k > dim_v)
        longest = dim_k;
    if (rules->max_head_dim && longest > rules->max_head_dim)
        return mnp_fail(err, MN_UNSUPPORTED, i,
                        "node %u: heads of %lld elements; this plugin takes at most %u", i,
                        (long long)longest, rules->max_head_dim);
    const bool same_dims = kv->dim_k == dim_k && kv->dim_v == dim_v;
    if (kv->n_layers && (kv->n_head_kv != k->dim[1] || !same_dims))
        return mnp_fail(err, MN_INVALID, i, "node %u: the layers of KV group %u differ in shape", i,
                        group);
    kv->n_head_kv = k->dim[1];
    kv->dim_k = dim_k;
    kv->dim_v = dim_v;
    kv->n_layers++;
    return MN_OK;
}

/* A head's row of n elements: padded to the plugin's alignment and to whole blocks, and its bytes;
 * false = they overflow. */
static bool measure_row(const mnp_kv_rules *rules, uint32_t dtype, int64_t n, int64_t *pad,
                        int64_t *bytes) {
    const int64_t block = mnp_kv_block(dtype);
    int64_t align = block;
    int64_t up;
    if (rules->head_align > block)
        align = rules->head_align;
    if (__builtin_add_overflow(n, align - 1, &up))
        return false;
    *pad = up - up % align;
    return !__builtin_mul_overflow(*pad / block, mnp_kv_block_bytes(dtype), bytes);
}

/* Pads and sizes, from the shape; false = they overflow. */
static bool kv_measure(const mnp_kv_rules *rules, mnp_kv *kv) {
    uint64_t places;
    uint64_t v_bytes;
    if (!measure_row(rules, kv->k_dtype, kv->dim_k, &kv->pad_k, &kv->k_row))
        return false;
    if (!measure_row(rules, kv->v_dtype, kv->dim_v, &kv->pad_v, &kv->v_row))
        return false;
    if (__builtin_mul_overflow((uint64_t)kv->n_head_kv, rules->page_tokens, &places))
        return false;
    if (__builtin_mul_overflow(places, (uint64_t)kv->k_row, &kv->v_offset))
        return false;
    if (__builtin_mul_overflow(places, (uint64_t)kv->v_row, &v_bytes))
        return false;
    if (__builtin_add_overflow(kv->v_offset, v_bytes, &kv->layer_bytes))
        return false;
    return !__builtin_mul_overflow(kv->layer_bytes, (uint64_t)kv->n_layers, &kv->page_bytes);
}

static bool kv_is_kept(uint32_t dtype) {
    return dtype == MN_F32 || dtype == MN_F16 || dtype == MN_Q8_0;
}

mn_status mnp_kv_of(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, mnp_kv_types types,
                    const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err) {
    mn_status st = MN_OK;
    memset(kv, 0, sizeof *kv);
    if (!kv_is_kept(types.k) || !kv_is_kept(types.v))
        return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                        "KV types %u and %u; this plugin keeps f32 (%d), f16 (%d) or q8_0 (%d)",
                        types.k, types.v, MN_F32, MN_F16, MN_Q8_0);
    kv->k_dtype = types.k;
    kv->v_dtype = types.v;
    kv->page_tokens = rules->page_tokens;
    for (uint32_t i = lo; i < hi && !st; i++)
        if (stores(g, i, group))
            st = add_layer(g, i, group, rules, kv, err);
    if (st)
        return st;
    if (!kv->n_layers)
        return mnp_fail(err, MN_INVALID, ~0u, "no KV_STORE of group %u in the segment", group);
    if (!kv_measure(rules, kv))
        return mnp_fail(err, MN_INVALID, ~0u, "KV group %u: the size of a page overflows", group);
    return MN_OK;
}

/* node: KV_STORE or ATTENTION, which find their pages at other operands. */
mn_status mnp_kv_of_node(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t node,
                         mnp_kv_types types, const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err) {
    const mn_node *n = mnp_node(g, node);
    uint32_t in_pages = MN_ATTENTION_PAGES;
    uint32_t in_kv = MN_ATTENTION_KV;
    uint32_t at_group = MN_ATTENTION_ATTR_GROUP;
    uint32_t at_layer = MN_ATTENTION_ATTR_KV_LAYER;
    if (n->op == MN_OP_KV_STORE) {
        in_pages = MN_KV_STORE_PAGES;
        in_kv = MN_KV_STORE_KV;
        at_group = MN_KV_STORE_ATTR_GROUP;
        at_layer = MN_KV_STORE_ATTR_KV_LAYER;
    }
    const mn_tensor *pages = mnp_in_tensor(g, n, in_pages);
    if (!pages || pages->n_dim != 2 || mnp_in(g, n, in_kv) < 0)
        return mnp_fail(err, MN_INVALID, node, "node %u: KV or PAGES is absent", node);
    const uint32_t group = (uint32_t)mnp_attr(g, n, at_group);
    const int64_t layer = mnp_attr(g, n, at_layer);
    mn_status st = mnp_kv_of(g, lo, hi, group, types, rules, kv, err);
    if (st)
        return st;
    kv->layer = rank_of(g, lo, hi, group, layer);
    if (kv->layer < 0)
        return mnp_fail(err, MN_INVALID, node,
                        "node %u: no KV_STORE for KV layer %lld of group %u in the segment", node,
                        (long long)layer, group);
    return MN_OK;
}

/* What the host needs to know to allocate pages and to copy them. */
mn_status mnp_kv_layout(const mn_compile *c, uint32_t group, mnp_kv_types types, uint64_t flags,
                        const mnp_kv_rules *rules, mn_kv_layout *out, mn_error *err) {
    mnp_kv kv;
    mn_status st = mnp_kv_of(c->graph, c->node_lo, c->node_hi, group, types, rules, &kv, err);
    if (st)
        return st;
    const mn_kv_layout l = {sizeof l, kv.page_tokens, kv.page_bytes, flags, 0};
    mnp_fill(out, &l, sizeof l);
    return MN_OK;
}

/* Copy i of the host's array, checked against the buffer of kv_bytes. */
mn_status mnp_kv_copy_at(const mn_kv_layout *l, const mn_page_copy *copies, uint32_t i,
                         uint32_t stride, uint64_t kv_bytes, mn_page_copy *out, mn_error *err) {
    uint64_t n_pages = 0;
    if (l->page_bytes)
        n_pages = kv_bytes / l->page_bytes;
    mnp_read(out, sizeof *out, mnp_entry(copies, i, stride), stride);
    if (out->src_page < n_pages && out->dst_page < n_pages && out->n_tokens <= l->page_tokens)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u,
                    "copy of %u tokens of KV page %u to %u; there are %llu pages of %u tokens",
                    out->n_tokens, out->src_page, out->dst_page, (unsigned long long)n_pages,
                    l->page_tokens);
}
