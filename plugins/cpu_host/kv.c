/* kv.c -- how the pages of a KV group lie in memory. */
#include "mnc.h"

static int64_t attr(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_attr ? (int64_t)g->attrs[n->attr_off + i] : 0;
}
static bool stores(const mn_graph *g, uint32_t i, uint32_t group) {
    const mn_node *n = mnc_node(g, i);
    return n->op == MN_OP_KV_STORE && (uint32_t)attr(g, n, MN_KV_STORE_ATTR_GROUP) == group;
}

uint32_t mnc_kv_dtype(const mn_compile *c, uint32_t precision) {
    if (c->kv_dtype != MN_DTYPE_NONE)
        return c->kv_dtype;
    return precision == MN_PRECISION_EXACT ? MN_F32 : MN_F16;
}

int64_t mnc_kv_rank(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, int64_t layer) {
    int64_t rank = 0;
    bool found = false;
    for (uint32_t i = lo; i < hi; i++) {
        if (!stores(g, i, group))
            continue;
        int64_t l = attr(g, mnc_node(g, i), MN_KV_STORE_ATTR_KV_LAYER);
        if (l < layer)
            rank++;
        if (l == layer)
            found = true;
    }
    return found ? rank : -1;
}

mn_status mnc_kv_of(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, uint32_t kv_dtype,
                    mnc_kv *kv, mn_error *err) {
    memset(kv, 0, sizeof *kv);
    if (kv_dtype != MN_F32 && kv_dtype != MN_F16)
        return mnc_fail(err, MN_UNSUPPORTED, ~0u, "KV type %u; this plugin keeps f32 or f16",
                        kv_dtype);
    kv->dtype = kv_dtype;
    kv->page_tokens = MNC_PAGE_TOKENS;
    for (uint32_t i = lo; i < hi; i++) {
        if (!stores(g, i, group))
            continue;
        const mn_node *n = mnc_node(g, i);
        if (mnc_in(g, n, MN_KV_STORE_K) < 0 || mnc_in(g, n, MN_KV_STORE_V) < 0)
            return mnc_fail(err, MN_INVALID, i, "node %u: KV_STORE without K or V", i);
        const mn_tensor *k = mnc_tensor(g, (uint32_t)mnc_in(g, n, MN_KV_STORE_K)),
                        *v = mnc_tensor(g, (uint32_t)mnc_in(g, n, MN_KV_STORE_V));
        if (k->n_dim != 3 || v->n_dim != 3 || k->dim[1] <= 0 || k->dim[2] <= 0 || v->dim[2] <= 0 ||
            k->dim[1] != v->dim[1])
            return mnc_fail(err, MN_INVALID, i, "node %u: KV_STORE wants K and V as [T, Hkv, D]",
                            i);
        if (kv->n_layers &&
            (kv->n_head_kv != k->dim[1] || kv->dim_k != k->dim[2] || kv->dim_v != v->dim[2]))
            return mnc_fail(err, MN_INVALID, i,
                            "node %u: the layers of KV group %u differ in shape", i, group);
        kv->n_head_kv = k->dim[1], kv->dim_k = k->dim[2], kv->dim_v = v->dim[2];
        kv->n_layers++;
    }
    if (!kv->n_layers)
        return mnc_fail(err, MN_INVALID, ~0u, "no KV_STORE of group %u in the segment", group);
    uint64_t per_head = MNC_PAGE_TOKENS * (kv_dtype == MN_F32 ? 4u : 2u), kb, vb;
    if (__builtin_mul_overflow((uint64_t)kv->n_head_kv, per_head, &per_head) ||
        __builtin_mul_overflow(per_head, (uint64_t)kv->dim_k, &kb) ||
        __builtin_mul_overflow(per_head, (uint64_t)kv->dim_v, &vb) ||
        __builtin_add_overflow(kb, vb, &kv->layer_bytes) ||
        __builtin_mul_overflow(kv->layer_bytes, (uint64_t)kv->n_layers, &kv->page_bytes))
        return mnc_fail(err, MN_INVALID, ~0u, "KV group %u: the size of a page overflows", group);
    kv->v_offset = kb;
    return MN_OK;
}

mn_status mnc_kv_layout(mn_device *d, const mn_compile *in, uint32_t group, mn_kv_layout *out,
                        mn_error *err) {
    mn_compile c;
    mnc_kv kv;
    mn_status s = mnc_read_compile(in, &c, err);
    if (!s)
        s = mnc_kv_of(c.graph, c.node_lo, c.node_hi, group, mnc_kv_dtype(&c, mnc_precision(d, &c)),
                      &kv, err);
    if (s)
        return s;
    mn_kv_layout l = {sizeof l, MNC_PAGE_TOKENS, kv.page_bytes, 0};
    l.size = out->size < sizeof l ? out->size : (uint32_t)sizeof l;
    memcpy(out, &l, l.size);
    return MN_OK;
}

/* The tokens past n_tokens are nobody's: a page is copied whole. */
mn_status mnc_kv_copy(mn_queue *q, mn_buffer *kv, const mn_kv_layout *l, const mn_page_copy *copies,
                      uint32_t n, uint32_t stride, mn_error *err) {
    (void)q;
    uint64_t n_pages = l->page_bytes ? kv->bytes / l->page_bytes : 0;
    for (uint32_t i = 0; i < n; i++) {
        const mn_page_copy *c = (const mn_page_copy *)((const char *)copies + (uint64_t)i * stride);
        if (c->src_page >= n_pages || c->dst_page >= n_pages || c->n_tokens > l->page_tokens)
            return mnc_fail(
                err, MN_INVALID, ~0u,
                "copy of %u tokens of KV page %u to %u; there are %llu pages of %u tokens",
                c->n_tokens, c->src_page, c->dst_page, (unsigned long long)n_pages, l->page_tokens);
        if (c->n_tokens)
            memmove(kv->ptr + c->dst_page * l->page_bytes, kv->ptr + c->src_page * l->page_bytes,
                    l->page_bytes);
    }
    return MN_OK;
}
