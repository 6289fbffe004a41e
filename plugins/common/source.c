/* source.c -- what weights_put is given, checked before a byte of it is read: the DATA planes of
 * all parts against the graph's tensor and the bytes that the file has. Planes beside DATA depend
 * on the type and are the backend's. Holds nothing; sources belong to the host. */
#include "common.h"

const mn_plane *mnp_plane(const mn_weight_src *s, uint32_t part, uint32_t plane) {
    const uint64_t index = (uint64_t)part * s->n_planes + plane;
    const char *planes = (const char *)s->planes;
    return (const mn_plane *)(const void *)(planes + index * s->plane_stride);
}

/* steps: elements or blocks per dimension, of `size` bytes each. *last: the byte behind the last
 * one that the strides reach; false: it overflows, or the plane ends before. */
bool mnp_plane_reaches(const mn_plane *p, const uint64_t *steps, uint32_t n_dim, uint64_t size,
                       uint64_t *last) {
    *last = 0;
    for (uint32_t i = 0; i < n_dim; i++) {
        uint64_t span;
        if (!steps[i] || p->stride[i] < 0)
            return false;
        if (__builtin_mul_overflow(steps[i] - 1, (uint64_t)p->stride[i], &span))
            return false;
        if (__builtin_add_overflow(*last, span, last))
            return false;
    }
    if (!p->ptr)
        return false;
    if (__builtin_add_overflow(*last, size, last))
        return false;
    return *last <= p->bytes;
}

/* The part's dims against the tensor's (dim 0 of the parts adds up), and that its strides stay
 * within its bytes. */
static mn_status source_check_part(const mn_tensor *t, const mn_plane *p, uint32_t index,
                                   mn_error *err) {
    uint64_t last;
    uint64_t steps[MN_MAX_DIM];
    if (p->kind != MN_PLANE_DATA)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: plane kind %u comes first", MNP_NAME(t),
                        p->kind);
    if (p->dtype != t->dtype.id)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: type %u, the graph expects %u", MNP_NAME(t),
                        p->dtype, t->dtype.id);
    for (uint32_t i = 0; i < t->n_dim; i++) {
        if (p->dim[i] <= 0 || (i > 0 && p->dim[i] != t->dim[i]))
            return mnp_fail(err, MN_INVALID, ~0u,
                            "%.*s: dim %u of part %u is %lld, the graph expects %lld", MNP_NAME(t),
                            i, index, (long long)p->dim[i], (long long)t->dim[i]);
        steps[i] = (uint64_t)p->dim[i];
    }
    const uint64_t row = steps[t->n_dim - 1];
    if (row % t->dtype.block_elems)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: rows of %llu elements in blocks of %u",
                        MNP_NAME(t), (unsigned long long)row, t->dtype.block_elems);
    steps[t->n_dim - 1] = row / t->dtype.block_elems;
    if (mnp_plane_reaches(p, steps, t->n_dim, t->dtype.block_bytes, &last))
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%.*s: part %u has %llu bytes, its strides reach %llu",
                    MNP_NAME(t), index, (unsigned long long)p->bytes, (unsigned long long)last);
}

/* max_dim: how many dimensions the backend's kernels know. */
mn_status mnp_check_source(const mn_graph *g, const mn_weight_src *s, uint32_t max_dim,
                           mn_error *err) {
    if (s->tensor >= g->n_tensors)
        return mnp_fail(err, MN_INVALID, ~0u, "weight for tensor %u of %u", s->tensor,
                        g->n_tensors);
    const mn_tensor *t = mnp_tensor(g, s->tensor);
    if (t->role != MN_ROLE_WEIGHT)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s is not a weight", MNP_NAME(t));
    if (s->dtype.id != t->dtype.id)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: type %u, the graph expects %u", MNP_NAME(t),
                        s->dtype.id, t->dtype.id);
    const bool has_planes = s->n_parts && s->n_planes && s->planes;
    const bool has_fields = s->plane_stride >= MNP_UP_TO(mn_plane, stride);
    if (!has_planes || !has_fields || !t->n_dim || !t->dtype.block_elems)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: no parts or no dimensions", MNP_NAME(t));
    if (t->n_dim > max_dim)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: %u dimensions; at most %u", MNP_NAME(t),
                        t->n_dim, max_dim);
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        const mn_plane *p = mnp_plane(s, i, 0);
        mn_status st = source_check_part(t, p, i, err);
        if (st)
            return st;
        if (__builtin_add_overflow(sum, p->dim[0], &sum))
            sum = -1;
    }
    if (sum == t->dim[0])
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%.*s: %lld rows, the graph expects %lld", MNP_NAME(t),
                    (long long)sum, (long long)t->dim[0]);
}
