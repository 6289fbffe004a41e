/* operands.c -- operands of a step as kernels want them: addresses, and how rows lie. */
#include "ops.h"

void *cu_ptr(const mng_run *r, int32_t t) {
    const mng_ref ref = mng_operand(r, t);
    if (mng_is_there(ref))
        return (char *)ref.mem + ref.at;
    return NULL;
}

cu_rows cu_rows_of(const mng_run *r, int32_t t) {
    return (cu_rows){cu_i32(r, t), cu_dim(r, t, 1)};
}

int cu_kind(const mng_run *r, int32_t t) {
    const int half = r->p->half[t];
    const int64_t rows = mng_dim(r, t, 0);
    bool units = rows > 1;
    if (half & CU_PAIRS) /* [T, J, K] that products of experts read */
        units = rows * mng_dim(r, t, 1) > 8 || half & CU_ALWAYS;
    if (units)
        return half & CU_KIND;
    return CU_F32;
}

cu_glu cu_glu_attrs(const mn_graph *g, const mn_node *n) {
    const mng_glu a = mng_glu_of(g, n);
    return (cu_glu){a.kind, a.alpha, a.limit, a.up_offset};
}

/* Places of the sorted pairs in the scratch: pairs, where each expert's begin, which experts have
 * any. */
cu_sort cu_sort_of(const mng_run *r, int32_t experts, int n_experts) {
    cu_sort a = {0};
    a.n_pairs = cu_elements(r, experts);
    a.n = n_experts;
    a.n_active = a.n_pairs < n_experts ? a.n_pairs : n_experts;
    a.of = cu_i32(r, experts);
    a.pairs = cu_room(r, CU_NEED_PAIRS);
    a.start = a.pairs + a.n_pairs;
    a.active = a.start + n_experts + 1;
    return a;
}

void cu_chose(const mng_run *r, uint32_t node, const char *kernel, const char *type, int64_t rows) {
    mng_log(r->dev->base.host, MN_LOG_DEBUG, "node %u, %lld rows: %s<%s>", node, (long long)rows,
            kernel, type);
}
