/* operands.c -- where operands lie in a step, and how large they are. Addresses come from the
 * bound set, or from the arena in the context's scratch. */
#include "ops.h"

void *cu_ptr(const cu_run *r, int32_t t) {
    if (t < 0)
        return NULL;
    const mn_tensor *x = mnp_tensor(r->g, t);
    const uint32_t root = mnp_root(r->g, t);
    const uint64_t offset = root == (uint32_t)t ? 0 : (uint64_t)x->offset * 4;
    const mn_binding *own = &r->c->bindings[t];
    const mn_binding *whole = &r->c->bindings[root];
    const uint64_t place = r->p->allocations[root].place;
    const bool there = whole->buffer || place != MNP_NOWHERE;
    if (r->p->dense[t] != MNP_NOWHERE)
        return there ? r->c->scratch + r->p->dense[t] : NULL;
    if (own->buffer)
        return own->buffer->ptr + own->offset;
    if (whole->buffer)
        return whole->buffer->ptr + whole->offset + offset;
    if (place == MNP_NOWHERE)
        return NULL;
    return r->c->scratch + place + offset;
}

int64_t cu_dim(const cu_run *r, int32_t t, uint32_t i) {
    if (t < 0)
        return 1;
    const mn_tensor *x = mnp_tensor(r->g, t);
    if (i < x->n_dim)
        return mnp_dim(r->g, r->sym, x->dim[i]);
    return 1;
}

int64_t cu_last_dim(const cu_run *r, int32_t t) {
    return cu_dim(r, t, mnp_tensor(r->g, t)->n_dim - 1);
}

int64_t cu_elements(const cu_run *r, int32_t t) {
    int64_t n = 1;
    for (uint32_t i = 0; i < mnp_tensor(r->g, t)->n_dim; i++)
        n *= cu_dim(r, t, i);
    return n;
}

cu_rows cu_rows_of(const cu_run *r, int32_t t) {
    return (cu_rows){cu_i32(r, t), (int)cu_dim(r, t, 1)};
}

int cu_kind(const cu_run *r, int32_t t) {
    const int half = r->p->half[t];
    const int64_t rows = cu_dim(r, t, 0);
    bool units = rows > 1;
    if (half & CU_PAIRS) /* [T, J, K] that products of experts read */
        units = rows * cu_dim(r, t, 1) > 8 || half & CU_ALWAYS;
    if (units)
        return half & CU_KIND;
    return CU_F32;
}

cu_glu cu_glu_attrs(const mn_graph *g, const mn_node *n) {
    cu_glu a;
    a.kind = (int)mnp_attr(g, n, MN_GLU_ATTR_KIND);
    a.alpha = (float)mnp_attr_f64(g, n, MN_GLU_ATTR_ALPHA);
    a.limit = (float)mnp_attr_f64(g, n, MN_GLU_ATTR_LIMIT);
    a.up_offset = (float)mnp_attr_f64(g, n, MN_GLU_ATTR_UP_OFFSET);
    return a;
}

void cu_chose(const cu_run *r, uint32_t node, const char *kernel, const char *type, int64_t rows) {
    const mn_host *h = r->dev->plugin->host;
    char line[128];
    if (!MN_HAS(mn_host, h, log))
        return;
    const int n = snprintf(line, sizeof line, "node %u, %lld rows: %s<%s>", node, (long long)rows,
                           kernel, type);
    h->log(h->self, MN_LOG_DEBUG, (mn_str){line, (uint64_t)n});
}
