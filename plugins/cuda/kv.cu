/* kv.cu -- how the pages of a KV group lie: layer, then keys [Hkv][64][pad_k] and values
 * [Hkv][64][pad_v]; heads are padded to 16 bytes and the padding stays zero. */
#include "backend.h"

static bool stores(const mn_graph *g, uint32_t i, uint32_t group) {
    const mn_node *n = cu_node(g, i);
    return n->op == MN_OP_KV_STORE && (uint32_t)cu_attr(g, n, MN_KV_STORE_ATTR_GROUP) == group;
}

uint32_t cu_precision(const mn_compile *c) {
    /* nothing here rounds to 8 bits */
    if (c->precision == MN_PRECISION_A8)
        return MN_PRECISION_A16;
    if (c->precision != MN_PRECISION_AUTO)
        return c->precision;
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        const mn_node *n = cu_node(c->graph, i);
        int32_t w = cu_in(c->graph, n, MN_LINEAR_WEIGHT);
        if (n->op == MN_OP_LINEAR && w >= 0 && cu_tensor(c->graph, w)->dtype.id != MN_F32)
            return MN_PRECISION_A16;
    }
    return MN_PRECISION_EXACT;
}

uint32_t cu_kv_dtype(uint32_t asked, uint32_t precision) {
    if (asked != MN_DTYPE_NONE)
        return asked;
    return precision == MN_PRECISION_EXACT ? MN_F32 : MN_F16;
}

int64_t cu_kv_rank(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, int64_t layer) {
    int64_t rank = 0;
    bool found = false;
    for (uint32_t i = lo; i < hi; i++) {
        if (!stores(g, i, group))
            continue;
        int64_t l = cu_attr(g, cu_node(g, i), MN_KV_STORE_ATTR_KV_LAYER);
        rank += l < layer;
        found |= l == layer;
    }
    return found ? rank : -1;
}

mn_status cu_kv_of(const mn_graph *g, uint32_t lo, uint32_t hi, uint32_t group, uint32_t k_dtype,
                   uint32_t v_dtype, cu_kv *kv, mn_error *err) {
    *kv = cu_kv{};
    const uint32_t dtype = k_dtype;
    if ((dtype != MN_F32 && dtype != MN_F16) || v_dtype != k_dtype)
        return cu_fail(err, MN_UNSUPPORTED, ~0u,
                       "KV types %u and %u; cuda keeps f32 or f16, the same for both", k_dtype,
                       v_dtype);
    kv->dtype = dtype;
    for (uint32_t i = lo; i < hi; i++) {
        if (!stores(g, i, group))
            continue;
        const mn_node *n = cu_node(g, i);
        if (cu_in(g, n, MN_KV_STORE_K) < 0 || cu_in(g, n, MN_KV_STORE_V) < 0)
            return cu_fail(err, MN_INVALID, i, "node %u: KV_STORE without K or V", i);
        const mn_tensor *k = cu_tensor(g, cu_in(g, n, MN_KV_STORE_K)),
                        *v = cu_tensor(g, cu_in(g, n, MN_KV_STORE_V));
        if (k->n_dim != 3 || v->n_dim != 3 || k->dim[1] <= 0 || k->dim[2] <= 0 || v->dim[2] <= 0 ||
            k->dim[1] != v->dim[1])
            return cu_fail(err, MN_INVALID, i, "node %u: KV_STORE wants K and V as [T, Hkv, D]", i);
        if (k->dim[1] > 65536 || k->dim[2] > 256 || v->dim[2] > 256)
            return cu_fail(err, MN_UNSUPPORTED, i, "node %u: heads of at most 256 elements", i);
        if (kv->n_layers &&
            (kv->n_head_kv != k->dim[1] || kv->dim_k != k->dim[2] || kv->dim_v != v->dim[2]))
            return cu_fail(err, MN_INVALID, i, "node %u: the layers of KV group %u differ in shape",
                           i, group);
        kv->n_head_kv = k->dim[1], kv->dim_k = k->dim[2], kv->dim_v = v->dim[2];
        kv->n_layers++;
    }
    if (!kv->n_layers)
        return cu_fail(err, MN_INVALID, ~0u, "no KV_STORE of group %u in the segment", group);
    kv->pad_k = cu_round(kv->dim_k, 8), kv->pad_v = cu_round(kv->dim_v, 8);
    const uint64_t per = (uint64_t)kv->n_head_kv * CU_PAGE_TOKENS * (dtype == MN_F32 ? 4 : 2);
    kv->v_offset = per * (uint64_t)kv->pad_k;
    kv->layer_bytes = kv->v_offset + per * (uint64_t)kv->pad_v;
    kv->page_bytes = kv->layer_bytes * (uint64_t)kv->n_layers;
    return MN_OK;
}

mn_status cu_kv_layout(mn_device *d, const mn_compile *in, uint32_t group, mn_kv_layout *out,
                       mn_error *err) {
    mn_compile c;
    cu_kv kv;
    (void)d;
    mn_status s = cu_read_compile(in, &c, err);
    if (!s)
        s = cu_kv_of(c.graph, c.node_lo, c.node_hi, group, cu_kv_dtype(c.k_dtype, cu_precision(&c)),
                     cu_kv_dtype(c.v_dtype, cu_precision(&c)), &kv, err);
    if (s)
        return s;
    /* the padding of heads stays zero, and masked positions are read */
    mn_kv_layout l = {sizeof l, CU_PAGE_TOKENS, kv.page_bytes, MN_KV_ZEROED, 0};
    l.size = out->size < sizeof l ? out->size : (uint32_t)sizeof l;
    memcpy(out, &l, l.size);
    return MN_OK;
}

/* The tokens past n_tokens are nobody's: a page is copied whole. */
mn_status cu_kv_copy(mn_queue *q, mn_buffer *kv, const mn_kv_layout *l, const mn_page_copy *copies,
                     uint32_t n, uint32_t stride, mn_event **event, mn_error *err) {
    const uint64_t n_pages = l->page_bytes ? kv->bytes / l->page_bytes : 0;
    for (uint32_t i = 0; i < n; i++) {
        const mn_page_copy *c = (const mn_page_copy *)((const char *)copies + (uint64_t)i * stride);
        if (c->src_page >= n_pages || c->dst_page >= n_pages || c->n_tokens > l->page_tokens)
            return cu_fail(
                err, MN_INVALID, ~0u,
                "copy of %u tokens of KV page %u to %u; there are %llu pages of %u tokens",
                c->n_tokens, c->src_page, c->dst_page, (unsigned long long)n_pages, l->page_tokens);
        if (c->n_tokens && c->src_page != c->dst_page)
            CU_TRY(cudaMemcpyAsync(kv->ptr + c->dst_page * l->page_bytes,
                                   kv->ptr + c->src_page * l->page_bytes, l->page_bytes,
                                   cudaMemcpyDeviceToDevice, q->stream),
                   err, "kv_copy");
    }
    return event ? cu_event_new(q->dev, q->stream, event, err) : MN_OK;
}
