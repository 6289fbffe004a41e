/* kv.c -- how the pages of keys and values of a PAGED group lie in memory. A backend states three
 * numbers (mnp_kv_rules); everything else follows from the layers of the group (mn_memory_params).
 * Holds nothing. */
#include "common.h"

static uint32_t usual_dtype(uint32_t dtype, uint32_t precision) {
    if (dtype != MN_DTYPE_NONE)
        return dtype;
    if (precision == MN_PRECISION_EXACT)
        return MN_F32;
    return MN_F16;
}

/* Adds layer i; all of a group have one shape. */
static mn_status add_layer(const mn_memory_params *m, uint32_t i, const mnp_kv_rules *rules,
                           mnp_kv *kv, mn_error *err) {
    const mn_memory_layer *l = mnp_memory_layer(m, i);
    if (l->op)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "layer %lld of KV group %u: operation %u",
                        (long long)l->layer, m->group, l->op);
    if (!l->n_head || !l->dim_k)
        return mnp_fail(err, MN_INVALID, ~0u, "layer %lld of KV group %u: %u heads of %u and %u",
                        (long long)l->layer, m->group, l->n_head, l->dim_k, l->dim_v);
    uint32_t longest = l->dim_v;
    if (l->dim_k > l->dim_v)
        longest = l->dim_k;
    if (rules->max_head_dim && longest > rules->max_head_dim)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                        "KV group %u: heads of %u elements; this plugin takes at most %u", m->group,
                        longest, rules->max_head_dim);
    const bool same_dims = kv->dim_k == l->dim_k && kv->dim_v == l->dim_v;
    if (kv->n_layers && (kv->n_head_kv != l->n_head || !same_dims))
        return mnp_fail(err, MN_INVALID, ~0u, "the layers of KV group %u differ in shape",
                        m->group);
    kv->n_head_kv = l->n_head;
    kv->dim_k = l->dim_k;
    kv->dim_v = l->dim_v;
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
    if (!kv->dim_v) { /* values are read where keys lie */
        kv->v_dtype = kv->k_dtype;
        kv->pad_v = kv->pad_k;
        kv->v_row = kv->k_row;
        return !__builtin_mul_overflow(places, (uint64_t)kv->k_row, &kv->layer_bytes) &&
               !__builtin_mul_overflow(kv->layer_bytes, (uint64_t)kv->n_layers, &kv->page_bytes);
    }
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

mn_status mnp_kv_of(const mn_memory_params *m, uint32_t precision, const mnp_kv_rules *rules,
                    mnp_kv *kv, mn_error *err) {
    mn_status st = MN_OK;
    memset(kv, 0, sizeof *kv);
    kv->k_dtype = usual_dtype(m->k_dtype, precision);
    kv->v_dtype = usual_dtype(m->v_dtype, precision);
    if (!kv_is_kept(kv->k_dtype) || !kv_is_kept(kv->v_dtype))
        return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                        "KV types %u and %u; this plugin keeps f32 (%d), f16 (%d) or q8_0 (%d)",
                        kv->k_dtype, kv->v_dtype, MN_F32, MN_F16, MN_Q8_0);
    kv->page_tokens = rules->page_tokens;
    for (uint32_t i = 0; i < m->n_layers && !st; i++)
        st = add_layer(m, i, rules, kv, err);
    if (st)
        return st;
    if (!kv->n_layers)
        return mnp_fail(err, MN_INVALID, ~0u, "KV group %u has no layer", m->group);
    if (!kv_measure(rules, kv))
        return mnp_fail(err, MN_INVALID, ~0u, "KV group %u: the size of a page overflows",
                        m->group);
    return MN_OK;
}

/* The place of a layer in its group; -1 = it is not there. */
static int64_t place_of(const mn_memory_params *m, int64_t layer) {
    for (uint32_t i = 0; i < m->n_layers; i++)
        if (mnp_memory_layer(m, i)->layer == layer)
            return i;
    return -1;
}

/* What KV_STORE is given has the shape of the group. */
static mn_status check_store(const mn_graph *g, uint32_t node, const mnp_kv *kv, mn_error *err) {
    const mn_node *n = mnp_node(g, node);
    const mn_tensor *k = mnp_in_tensor(g, n, MN_KV_STORE_K);
    const mn_tensor *v = mnp_in_tensor(g, n, MN_KV_STORE_V);
    if (!k || (!v && kv->dim_v))
        return mnp_fail(err, MN_INVALID, node, "node %u: KV_STORE without K or V", node);
    const bool has_k = k->n_dim == 3 && k->dim[1] == kv->n_head_kv && k->dim[2] == kv->dim_k;
    const bool has_v =
        !v || (v->n_dim == 3 && v->dim[1] == kv->n_head_kv && v->dim[2] == kv->dim_v);
    if (has_k && has_v)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, node,
                    "node %u: KV_STORE wants K and V as [T, %lld, %lld and %lld], the shape of its "
                    "group",
                    node, (long long)kv->n_head_kv, (long long)kv->dim_k, (long long)kv->dim_v);
}

/* What ATTENTION calls values are those of the group, or the first elements of its keys. */
static mn_status read_values(const mn_graph *g, uint32_t node, mnp_kv *kv, mn_error *err) {
    const mn_node *n = mnp_node(g, node);
    const int64_t dim_v = mnp_attr(g, n, MN_ATTENTION_ATTR_DIM_V);
    const bool of_k = mnp_attr(g, n, MN_ATTENTION_ATTR_V_OF_K);
    if (of_k != !kv->dim_v)
        return mnp_fail(err, MN_INVALID, node, "node %u: values of keys, and a group with values",
                        node);
    if (!of_k)
        return MN_OK;
    kv->dim_v = dim_v ? dim_v : kv->dim_k;
    if (kv->dim_v > 0 && kv->dim_v <= kv->dim_k)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, node, "node %u: values of %lld elements of keys of %lld", node,
                    (long long)kv->dim_v, (long long)kv->dim_k);
}

mn_status mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                         const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err) {
    const mn_graph *g = c->graph;
    const mn_node *n = mnp_node(g, node);
    mnp_memory_node at;
    if (!mnp_memory_node_of(n, &at))
        return mnp_fail(err, MN_INVALID, node, "node %u: op %u has no cache", node, n->op);
    const mn_tensor *pages = mnp_in_tensor(g, n, at.pages);
    if (!pages || pages->n_dim != 2 || mnp_in(g, n, at.memory) < 0)
        return mnp_fail(err, MN_INVALID, node, "node %u: KV or PAGES is absent", node);
    const uint32_t group = (uint32_t)mnp_attr(g, n, at.group);
    const int64_t layer = mnp_attr(g, n, at.layer);
    const mn_memory_params *m = mnp_memory_of(c, group);
    if (!m || m->kind != MN_MEMORY_PAGED)
        return mnp_fail(err, MN_INVALID, node, "node %u: no KV group %u in mn_compile.memory", node,
                        group);
    mn_status st = mnp_kv_of(m, precision, rules, kv, err);
    if (st)
        return st;
    kv->layer = place_of(m, layer);
    if (kv->layer < 0)
        return mnp_fail(err, MN_INVALID, node,
                        "node %u: mn_compile.memory has no layer %lld in KV group %u", node,
                        (long long)layer, group);
    if (n->op == MN_OP_KV_STORE)
        return check_store(g, node, kv, err);
    return read_values(g, node, kv, err);
}
